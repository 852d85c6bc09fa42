"""What differs between two stacks, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from iowatch.stacks.model import Part, Stack


@dataclass(frozen=True)
class Difference:
    """One field of one part; `left` or `right` is None where that stack has no such part or field."""

    part: str
    field: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class StackDiff:
    """Everything that differs between two stacks.

    Attributes:
        left, right: their names.
        differences: versions first, then variants, compilers and targets.
        rebuilt: parts that are equal in all of this and still have another hash: something below them differs.
        same: number of parts that are equal.
    """

    left: str
    right: str
    differences: tuple[Difference, ...]
    rebuilt: tuple[str, ...]
    same: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_FIELDS = ("version", "compiler", "target")


def _part_differences(left: Part, right: Part) -> Iterator[Difference]:
    for field in _FIELDS:
        values = (getattr(left, field), getattr(right, field))
        # A stack of the operating system does not know its compiler and target: that is no difference.
        if values[0] != values[1] and None not in values:
            yield Difference(left.name, field, *values)
    for variant in sorted({*left.variants, *right.variants}):
        pair = (left.variants.get(variant), right.variants.get(variant))
        if pair[0] != pair[1] and ((left.hash and right.hash) or None not in pair):
            yield Difference(left.name, f"variant {variant}", *pair)


def diff(left: Stack, right: Stack) -> StackDiff:
    """Compare two stacks part by part, by name."""
    ours, theirs = ({part.name: part for part in stack.parts} for stack in (left, right))
    found: list[Difference] = []
    rebuilt, same = [], 0
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            one = ours[name].version if name in ours else None
            other = theirs[name].version if name in theirs else None
            found.append(Difference(name, "version", one, other))
            continue
        differences = list(_part_differences(ours[name], theirs[name]))
        found += differences
        if differences:
            continue
        if ours[name].hash and theirs[name].hash and ours[name].hash != theirs[name].hash:
            rebuilt.append(name)
        else:
            same += 1
    ordered = sorted(found, key=lambda row: (row.field != "version", row.field.startswith("variant"), row.part))
    return StackDiff(left.name, right.name, tuple(ordered), tuple(rebuilt), same)
