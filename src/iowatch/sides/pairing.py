"""Which case of the left side is which of the right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from iowatch.compare import Measured, Pair
from iowatch.errors import UsageError
from iowatch.metrics import HEADLINES
from iowatch.model import Case, Scalar, canonical_json
from iowatch.sides.entries import AXES, Entry

# What says how large a measurement is, or what was measured: never taken out of the key without being asked.
_KEPT = {
    "benchmark", "operation", "ranks", "nodes", "instances", "local_size", "global_size", "total_bytes",
    "transfer_bytes", "block_bytes", "segments", "files",
}  # fmt: skip

Differing = Mapping[str, tuple[Scalar | None, Scalar | None]]
# A case as both sides have it, and a metric.
_Key = tuple[str, str]


@dataclass(frozen=True)
class Matched:
    """Pairs, what differs between the sides by construction, and the cases that only one side has.

    Attributes:
        entries: what each of `pairs` was made of, left and right.
        differing: parameter or axis to its value on the left and on the right; taken out of the key.
        common: axes that have the same value everywhere.
    """

    pairs: tuple[Pair, ...]
    entries: tuple[tuple[Entry, Entry], ...]
    differing: Differing
    common: Mapping[str, str]
    only_left: tuple[Entry, ...]
    only_right: tuple[Entry, ...]


def match(
    left: Sequence[Entry],
    right: Sequence[Entry],
    ignored: Collection[str] = (),
    asked: Collection[str] = (),
    headlines: bool = False,
) -> Matched:
    """Pair entries by everything but what differs between the sides.

    What differs is what has one value on the whole left and another on the whole right: the stack, the system,
    or a parameter that two published tables differ in.

    Args:
        ignored: names taken out of the key in any case; samples of cases that become equal are put together.
        asked: names that the user filtered both sides by, which may differ whatever they are.
        headlines: of each case only the first metric of `HEADLINES` that both sides have; all are of those.

    Raises:
        UsageError: printed figures would have to be put together.
    """
    differing = _differing(left, right, {*asked, *ignored})
    out = {*differing, *ignored}
    sides = [_by_key(entries, out) for entries in (left, right)]
    shared = [key for key in sides[0] if key in sides[1]]
    alone = [[key for key in side if key not in set(shared)] for side in sides]
    if headlines:
        shared = _watched(shared)
        alone = [_watched(keys, {case for case, _ in shared}) for keys in alone]
    axes = _axes([sides[0][key] for key in shared], out)
    entries = tuple((sides[0][key], sides[1][key]) for key in shared)
    pairs = tuple(_pair(one, other, out, axes) for one, other in entries)
    only = [tuple(side[key] for key in keys) for side, keys in zip(sides, alone, strict=True)]
    common = {name: values[0] for name, values in axes.items() if len(values) == 1}
    return Matched(pairs, entries, differing, common, only[0], only[1])


def _watched(keys: Iterable[_Key], done: Collection[str] = ()) -> list[_Key]:
    """Of each case that is not `done` its first metric."""
    found: dict[str, str] = {}
    for case, name in keys:
        if case not in done:
            found[case] = min(found.get(case, name), name, key=HEADLINES.index)
    return list(found.items())


def _differing(left: Sequence[Entry], right: Sequence[Entry], asked: Collection[str]) -> Differing:
    described = [[entry.described for entry in entries] for entries in (left, right)]
    names = {name for side in described for one in side for name in one}
    found = {}
    for name in sorted(names):
        values = [{one.get(name) for one in side} for side in described]
        single = all(len(each) == 1 for each in values) and values[0] != values[1]
        if single and (name not in _KEPT or name in asked):
            found[name] = (values[0].pop(), values[1].pop())
    return found


def _by_key(entries: Sequence[Entry], out: Collection[str]) -> dict[_Key, Entry]:
    found: dict[_Key, Entry] = {}
    for entry in entries:
        case = canonical_json({n: v for n, v in entry.described.items() if n not in out})
        key = case, entry.metric
        found[key] = _together(found[key], entry) if key in found else entry
    return found


def _together(first: Entry, second: Entry) -> Entry:
    if not (isinstance(first.side, Measured) and isinstance(second.side, Measured)):
        raise UsageError(
            "two printed figures of one side are the same case once parameters are ignored",
            hint="Ignore fewer parameters, or choose with ,name=value after the side.",
        )
    nights = dict(first.side.nights)
    for name, samples in second.side.nights.items():
        nights[name] = (*nights.get(name, ()), *samples)
    facts = dict(first.facts)
    for name, known in second.facts.items():
        facts[name] = facts.get(name, frozenset()) | known
    return Entry(first.case, first.metric, first.axes, Measured(nights), facts)


def _axes(entries: Sequence[Entry], out: Collection[str]) -> dict[str, list[str]]:
    """Values of each axis that is part of the key."""
    found = {
        name: sorted({e.axes[name] for e in entries if name in e.axes}) for name in AXES if name not in out
    }
    return {name: values for name, values in found.items() if values}


def _pair(left: Entry, right: Entry, out: Collection[str], axes: Mapping[str, Sequence[str]]) -> Pair:
    several = {name: left.axes[name] for name in axes if len(axes[name]) > 1 and name in left.axes}
    case = left.case.without(*out)
    return Pair(Case(case.benchmark, {**case.parameters, **several}), left.metric, left.side, right.side)
