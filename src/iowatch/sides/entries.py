"""Cases of one side with their samples by night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from iowatch.compare import Measured, Side
from iowatch.errors import UsageError, near_miss
from iowatch.metrics import METRICS
from iowatch.model import Case, Scalar
from iowatch.sides.spec import Spec
from iowatch.store.results import ResultRow

_DAY_S = 86_400
AXES = ("system", "partition", "stack", "side")


class Fact(NamedTuple):
    """A run of a night: when it began (epoch s), and the numbers of its stack's content and of itself in the
    history, where known."""

    time: int
    content: int | None
    number: int | None


Facts = Mapping[str, frozenset[Fact]]


@dataclass(frozen=True)
class Entry:
    """One case and metric of a side.

    Attributes:
        axes: those of `AXES` that are known.
        facts: the runs of each night.
    """

    case: Case
    metric: str
    axes: Mapping[str, str]
    side: Side
    facts: Facts = field(default_factory=dict)

    @property
    def described(self) -> dict[str, Scalar]:
        """Axes, benchmark and parameters in one."""
        return {**self.axes, "benchmark": self.case.benchmark, **self.case.parameters}


@dataclass(frozen=True)
class Gathered:
    """Entries of a side and how many results were left out because they are not whole or not positive."""

    entries: tuple[Entry, ...]
    not_ok: int = 0
    not_positive: int = 0
    warm_ups: int = 0


def meets(described: Mapping[str, Scalar], filters: Mapping[str, Scalar | None]) -> bool:
    """Whether all filters hold; numbers and texts that read the same are the same."""
    return all(
        described.get(name) == value or (value is not None and str(described.get(name)) == str(value))
        for name, value in filters.items()
    )


def filtered(spec: Spec, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries that meet the filters of a side.

    Raises:
        UsageError: a filter names what no case has.
    """
    known = sorted({name for entry in entries for name in entry.described})
    for name, value in spec.filters.items():
        if name not in known and value is not None:
            raise UsageError(f"side '{spec.text}': no case has '{name}'", hint=near_miss(name, known))
    return tuple(entry for entry in entries if meets(entry.described, spec.filters))


@dataclass
class _Group:
    case: Case
    nights: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    facts: dict[str, set[Fact]] = field(default_factory=lambda: defaultdict(set))


def gather(rows: Iterable[ResultRow], names: Mapping[tuple[str, int], str], by_side: bool = False) -> Gathered:
    """Results to entries: runs that are not ok, values that are not positive and warm-ups are left out and
    counted.

    Args:
        rows: results in time order within each series.
        names: of the night of each (session, time), from `night_names`.
        by_side: keep the sides of fair runs apart, as the axis `side`.
    """
    groups: dict[tuple[str, ...], _Group] = {}
    not_ok = not_positive = warm_ups = 0
    for row in rows:
        if row.status != "ok":
            not_ok += 1
        elif row.pair == 0:
            warm_ups += 1
        elif min(row.samples, default=0) <= 0:
            # A count or a share of 0 is a fact, and compared with nothing.
            not_positive += METRICS[row.metric].direction != "neutral"
        else:
            side = (row.side or "") if by_side else ""
            key = (row.system, row.partition, row.stack, side, row.case.key, row.metric)
            group = groups.setdefault(key, _Group(row.case))
            night = names[row.session, row.time] if row.pair is None else f"{row.session}#{row.pair}"
            group.nights[night].extend(row.samples)
            group.facts[night].add(Fact(row.time, row.content, row.number))
    entries = tuple(_entry(key, group) for key, group in groups.items())
    return Gathered(entries, not_ok, not_positive, warm_ups)


def _entry(key: tuple[str, ...], group: _Group) -> Entry:
    axes = {name: value for name, value in zip(AXES, key, strict=False) if value}
    measured = Measured({n: tuple(s) for n, s in group.nights.items()})
    return Entry(group.case, key[-1], axes, measured, {n: frozenset(f) for n, f in group.facts.items()})


def night_names(rows: Iterable[ResultRow]) -> dict[tuple[str, int], str]:
    """The night that each (session, time) belongs to.

    A session is a night; one that spans more than a day (an import of old outputs) is split from noon to noon
    UTC.
    """
    times: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        times[row.session].add(row.time)
    found = {}
    for session, moments in times.items():
        long = max(moments) - min(moments) > _DAY_S
        for moment in moments:
            night = f"{session}@{(moment - _DAY_S // 2) // _DAY_S}" if long else session
            found[session, moment] = night
    return found
