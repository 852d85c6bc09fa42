"""This site's own results as curves: cases that differ in one number alone, over that number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.model import Scalar
from iowatch.store import History
from iowatch.units import MIB

# Axes of published tables: the parameter of ours, and what one unit of the axis is of it.
_OURS = {
    "writers": ("ranks", 1),
    "nodes": ("nodes", 1),
    "transfer_mib": ("transfer_bytes", MIB),
    "stripe_count": ("stripe_count", 1),
    "alignment_mib": ("alignment_bytes", MIB),
}
# Grow with the processes and the transfers, and are no other case.
_ALONG = {
    "ranks": ("ranks", "nodes", "total_bytes", "global_size"),
    "nodes": ("ranks", "nodes", "total_bytes", "global_size"),
    "transfer_bytes": ("transfer_bytes", "block_bytes", "segments", "total_bytes"),
}
# Where both a curve of ours and a printed one name these, they must agree.
SAME = ("api", "operation", "collective", "pattern", "local_size", "stripe_count")


@dataclass(frozen=True)
class OwnCurve:
    """Newest headlines of one system: (x, MiB/s) in order of x, and what their cases have in common."""

    system: str
    benchmark: str
    name: str
    shared: Mapping[str, Scalar]
    points: Sequence[tuple[float, float]]

    @property
    def kind(self) -> tuple[Scalar | None, ...]:
        """What decides over which printed figures the curve may lie."""
        return self.benchmark, self.shared.get("instances"), *(self.shared.get(name) for name in SAME)


def kind_of_printed(row: Mapping[str, Any]) -> tuple[Scalar | None, ...]:
    """The same of a row of a published table; None is what the paper does not say."""
    instances = row.get("instances")
    return row["benchmark"], None if instances == 1 else instances, *(row.get(name) for name in SAME)


def agreement(own: Sequence[Scalar | None], printed: Sequence[Scalar | None]) -> int | None:
    """In how many parameters both say the same; None where one says otherwise than the other.

    A printed figure of several files at once is of no other case than ours of as many.
    """
    benchmark, instances = printed[:2]
    if benchmark not in (None, own[0]) or instances not in (None, own[1]):
        return None
    both = [(a, b) for a, b in zip(own[2:], printed[2:], strict=True) if a is not None and b is not None]
    return len(both) if all(a == b for a, b in both) else None


class OwnCurves:
    """Curves of every system over the axes of published tables."""

    def __init__(self, history: History, machines: Sequence[Machine]) -> None:
        self.history, self.machines = history, machines
        self.newest: dict[int, float] = {}

    def over(self, axis: str) -> list[OwnCurve]:
        """All curves over an axis; none over what our cases do not name."""
        if axis not in _OURS:
            return []
        groups = [(machine, found) for machine in self.machines for found in _groups(machine, axis)]
        self._read([one for _, found in groups for one in found.values()])
        return [_curve(machine, found, self.newest) for machine, found in groups]

    def _read(self, series: Sequence[Series]) -> None:
        """Newest headlines, for series that ended on one day together."""
        days: dict[int, list[int]] = defaultdict(list)
        for one in series:
            if one.row.id not in self.newest:
                days[one.stamp.last // 86400].append(one.row.id)
        for day, numbers in days.items():
            found = self.history.points(sorted(set(numbers)), since=day * 86400)
            self.newest.update((number, float(points.max[-1])) for number, points in found.items())


def _groups(machine: Machine, axis: str) -> Iterator[Mapping[float, Series]]:
    """Series that differ in the axis alone, by where they stand on it."""
    parameter, unit = _OURS[axis]
    groups: dict[tuple[str, ...], dict[float, Series]] = defaultdict(dict)
    for one in machine.watched:
        x = one.row.case.parameters.get(parameter)
        if one.row.metric == "bandwidth" and isinstance(x, int) and x > 0:
            rest = one.row.case.without(*_ALONG.get(parameter, (parameter,)))
            key = (one.row.partition, one.row.stack, one.row.case.benchmark, rest.canonical)
            known = groups[key].get(x / unit)
            # Of two cases with as many nodes the newest, then that with most processes.
            if known is None or _fresh(known) < _fresh(one):
                groups[key][x / unit] = one
    yield from (found for found in groups.values() if len(found) > 1)


def _fresh(series: Series) -> tuple[int, int]:
    ranks = series.row.case.parameters.get("ranks")
    return series.stamp.last // 86400, ranks if isinstance(ranks, int) else 0


def _curve(machine: Machine, found: Mapping[float, Series], newest: Mapping[int, float]) -> OwnCurve:
    series = list(found.values())
    places = sorted((x, newest[one.row.id]) for x, one in found.items())
    first = series[0].row
    shared = {
        name: value
        for name, value in first.case.parameters.items()
        if all(one.row.case.parameters.get(name) == value for one in series)
    }
    return OwnCurve(machine.name, first.case.benchmark, _named(machine, series[0], shared), shared, places)


def _named(machine: Machine, series: Series, shared: Mapping[str, Scalar]) -> str:
    words = [str(shared[name]) for name in ("api", "operation", "file") if name in shared]
    if "stripe_count" in shared:
        words.append(f"stripe count {shared['stripe_count']}")
    if isinstance(size := shared.get("stripe_bytes"), int):
        words.append(f"stripe size {size / MIB:g} MiB")
    words += [
        f"{name.removesuffix('_size')} {shared[name]}" for name in ("local_size", "ranks") if name in shared
    ]
    what = f"{series.row.case.benchmark} {' '.join(words)}"
    return f"this site, {machine.name[:40]}: {what} [{series.row.stack}]"[:160]
