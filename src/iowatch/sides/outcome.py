"""Two sides, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

from iowatch.compare import Comparison, Measured, Overall, Pair, Settings, Side, compare
from iowatch.compare.subgroup import Subgroup, subgroups
from iowatch.errors import UsageError
from iowatch.metrics import HEADLINES, METRICS
from iowatch.model import Scalar
from iowatch.sides import published
from iowatch.sides.entries import Entry, Gathered, filtered, gather, night_names
from iowatch.sides.grounds import Grounds, grounds
from iowatch.sides.pairing import Matched, match
from iowatch.sides.resolve import Opened, Place, rows
from iowatch.sides.spec import Spec
from iowatch.sides.traces import Traced, traced
from iowatch.store import bulk
from iowatch.store.exported import read_exported
from iowatch.store.results import ResultRow
from iowatch.units import counted


@dataclass(frozen=True)
class Options:
    """What is compared and how strictly.

    Attributes:
        metrics: names; empty means of each case the one that is watched (`metrics.HEADLINES`), or where neither
            side has one all that have a better direction.
        ignored: parameters taken out of the key.
        days: before and after an event.
        last: newest nights of each case used; older levels of a stack say little, and cost time.
    """

    metrics: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    days: int = 28
    last: int = 100
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Outcome:
    """A comparison with all that a report says of it.

    Attributes:
        grounds: when each side was measured, and with which libraries.
        notes: what was left out and why.
        traced: how the I/O of the sides differs by their Darshan logs.
    """

    left: Spec
    right: Spec
    matched: Matched
    compared: tuple[Comparison, ...]
    overall: Overall
    subgroups: tuple[Subgroup, ...]
    options: Options
    grounds: Grounds
    notes: tuple[str, ...]
    traced: Traced = field(default_factory=Traced)


def compare_sides(left: Spec, right: Spec, history: Opened, options: Options) -> Outcome:
    """Resolve both sides, pair their cases, compare.

    Args:
        history: opens the history; not called for published tables and files.

    Raises:
        UsageError: a side has no results, or nothing is on both sides.
        InputError: a file is damaged.
    """
    gathered = _gathered(left, right, history, options)
    found = [filtered(spec, side.entries) for spec, side in zip((left, right), gathered, strict=True)]
    watched = not options.metrics and any(entry.metric in HEADLINES for side in found for entry in side)
    sides = [_chosen(entries, options.metrics, watched) for entries in found]
    asked = set(left.filters) & set(right.filters)
    matched = match(sides[0], sides[1], options.ignored, asked, headlines=watched)
    if not matched.pairs:
        raise UsageError(
            f"no case is on both sides of '{left.text}' and '{right.text}'", hint=_why_not(sides[0], sides[1])
        )
    matched = replace(matched, pairs=tuple(_newest(pair, options.last) for pair in matched.pairs))
    compared, overall = compare(matched.pairs, options.settings)
    groups = subgroups(compared, options.settings)
    notes = _notes(gathered, options)
    measured_here = bool({left.kind, right.kind} - {"file", "published"})
    rests_on = grounds(matched.pairs, matched.entries, _Known(history) if measured_here else None)
    logs = traced(compared, matched.pairs, matched.entries, history()) if measured_here else Traced()
    return Outcome(left, right, matched, tuple(compared), overall, groups, options, rests_on, notes, logs)


@dataclass(frozen=True)
class _Known:
    """What `grounds` asks of the history."""

    history: Opened

    def contents(self, numbers: Sequence[int]) -> Mapping[int, Mapping[str, object]]:
        with self.history().reading() as connection:
            return bulk.stack_contents(connection, numbers)

    def nodes(self, numbers: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
        with self.history().reading() as connection:
            return bulk.run_nodes(connection, numbers)


def _gathered(left: Spec, right: Spec, history: Opened, options: Options) -> list[Gathered]:
    places: tuple[tuple[Spec, Place], ...] = ((left, "left"), (right, "right"))
    files = cache(read_exported)  # both sides may be in one file

    def results(spec: Spec, place: Place) -> list[ResultRow]:
        return files(Path(spec.name)) if spec.kind == "file" else rows(spec, place, history, options.days)

    found = [None if spec.kind == "published" else results(spec, place) for spec, place in places]
    names = night_names(chain.from_iterable(each for each in found if each is not None))
    return [
        Gathered(tuple(published.entries(spec.name)))
        if each is None
        else gather(each, names, "side" in spec.filters)
        for (spec, _), each in zip(places, found, strict=True)
    ]


def _chosen(entries: Sequence[Entry], asked: Sequence[str], watched: bool) -> list[Entry]:
    if asked or watched:
        return [entry for entry in entries if entry.metric in (asked or HEADLINES)]
    return [entry for entry in entries if METRICS[entry.metric].direction != "neutral"]


def _newest(pair: Pair, last: int) -> Pair:
    return replace(pair, left=_cut(pair.left, last), right=_cut(pair.right, last))


def _cut(side: Side, last: int) -> Side:
    if not isinstance(side, Measured) or len(side.nights) <= last:
        return side
    return Measured(dict(list(side.nights.items())[-last:]))


def _why_not(left: Sequence[Entry], right: Sequence[Entry]) -> str:
    """Which parameters have no value in common."""
    if not left or not right:
        return f"The {'left' if not left else 'right'} side has no case of these metrics and filters."
    names = sorted({name for entry in (*left, *right) for name in entry.described})
    apart = []
    for name in names:
        values = [{str(entry.described.get(name)) for entry in side} for side in (left, right)]
        if not values[0] & values[1]:
            apart.append(f"{name} ({_few(values[0])} | {_few(values[1])})")
    return f"Nothing in common in: {'; '.join(apart) or 'the combinations'}. --ignore NAME takes one out."


def _few(values: set[str]) -> str:
    listed = sorted(values)
    return ", ".join(listed[:4]) + (", …" if len(listed) > 4 else "")


def _notes(gathered: Sequence[Gathered], options: Options) -> tuple[str, ...]:
    found = []
    for name, side in zip(("left", "right"), gathered, strict=True):
        if side.not_ok:
            found.append(f"{name}: {counted(side.not_ok, 'result')} of failed or incomplete runs left out")
        if side.warm_ups:
            found.append(f"{name}: {counted(side.warm_ups, 'result')} of warm-ups left out")
        if side.not_positive:
            found.append(f"{name}: {counted(side.not_positive, 'result')} with a value of 0 left out")
        longest = max((len(e.side.nights) for e in side.entries if isinstance(e.side, Measured)), default=0)
        if longest > options.last:
            found.append(f"{name}: the newest {options.last} of up to {longest} runs used (--last)")
    return tuple(found)


def described(entry: Entry) -> Mapping[str, Scalar]:
    """An unpaired case with its metric, as reports list it."""
    return {**entry.described, "metric": entry.metric}
