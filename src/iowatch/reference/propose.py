"""References from measured nights: the level, bounds that its own scatter gives, and what that changes.

The bounds are the level's, not a guess: on a logarithmic scale, the median deviation of the nights below (and,
apart from it, above) the median, times a factor that pays for few nights, and at least as far as the nights
themselves went (one in twenty at each end left out). `bench/references.py` says how often nights fall outside.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from iowatch.errors import InputError, MachineError
from iowatch.files import locked, write_whole
from iowatch.reference import rewrite
from iowatch.reference.bandwidth import Entry, Provenance, References, is_case
from iowatch.units import counted

MIN_NIGHTS = 7
# In units of the normal distribution's standard deviation: 4 of them are passed once in 16,000 nights. With few
# nights more, because then the deviation itself is uncertain.
_DEVIATIONS, _FOR_FEW_NIGHTS = 4.0, 14.0
_NORMAL = 1.4826
_LEAST_SCATTER = 0.005
_LOWEST = math.log(0.01)  # below a hundredth of the level nothing is normal
_LEFT_OUT = 20

Kind = Literal["new", "changed", "same"]


@dataclass(frozen=True)
class Level:
    """Nights of one series at its accepted level.

    Attributes:
        check, partition, stack, case, variable: as in `Entry`.
        values: one a night, in time order, in `unit`.
        origin: first and last session.
        versions: parts of the stack in the last of these nights.
        note: what a person must know of it, for example a change after it that nobody has reviewed.
    """

    check: str
    partition: str
    stack: str
    case: str
    variable: str
    unit: str
    higher_is_better: bool
    values: tuple[float, ...]
    origin: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Bounds:
    """The middle of some nights and how far from it is still normal, relative to it."""

    value: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True)
class Proposal:
    """An entry to write and what it replaces."""

    kind: Kind
    old: Entry | None
    new: Entry
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        old = None if self.old is None else self.old.to_json()
        return {"kind": self.kind, "note": self.note, "old": old, "new": self.new.to_json()}


@dataclass(frozen=True)
class Change:
    """What proposals make of a reference file.

    Attributes:
        old: the file's text; empty where there is none.
        left_out: why some series give no reference.
    """

    system: str
    path: Path
    old: str
    proposals: tuple[Proposal, ...]
    left_out: tuple[str, ...] = ()

    @cached_property
    def new(self) -> str:
        """The file's text with what is new or changed; its comments and order stay."""
        entries = [p.new for p in self.proposals if p.kind != "same"]
        return rewrite.text_with(self.system, self.old, entries) if entries else self.old

    @property
    def diff(self) -> str:
        """The unified diff; empty where nothing changes."""
        return rewrite.difference(self.path, self.old, self.new)

    def write(self) -> None:
        """Write the file whole, if anything changes, and only in place of the text that was proposed against.

        Raises:
            MachineError: it cannot be written, or somebody else changed it meanwhile.
        """
        if self.new == self.old:
            return
        with locked(self.path):
            if text_of(self.path) != self.old:
                raise MachineError(
                    f"{self.path} was changed by somebody else meanwhile; nothing was written",
                    hint="Look at it, and propose again.",
                )
            write_whole(self.path, self.new)

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "system": self.system,
            "path": str(self.path),
            "written": written and self.new != self.old,
            "proposals": [proposal.to_json() for proposal in self.proposals],
            "left_out": list(self.left_out),
            "diff": self.diff,
        }


def text_of(path: Path) -> str:
    """The text of a reference file; empty where there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def bounds(values: Sequence[float]) -> Bounds:
    """Level and bounds of some nights, shape (n,), positive.

    Raises:
        InputError: fewer than `MIN_NIGHTS`, or a value that is not positive and finite.
    """
    if len(values) < MIN_NIGHTS:
        raise InputError(f"{len(values)} nights are too few for a reference; at least {MIN_NIGHTS}")
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise InputError("a reference needs positive, finite values")
    middle = median(values)
    away = sorted(math.log(v / middle) for v in values)
    factor = _DEVIATIONS + _FOR_FEW_NIGHTS / len(values)
    left_out = len(away) // _LEFT_OUT
    # The median of few nights on one side may be small by chance: neither side counts less than both together.
    both = _scatter([abs(a) for a in away])
    below = max(both, _scatter([-a for a in away if a <= 0]))
    above = max(both, _scatter([a for a in away if a >= 0]))
    low = max(min(-factor * below, away[left_out]), _LOWEST)
    high = max(factor * above, away[-1 - left_out])
    return Bounds(middle, math.expm1(low), math.expm1(high), both)


def _scatter(deviations: Sequence[float]) -> float:
    return max(_NORMAL * median(deviations), _LEAST_SCATTER)


def entry_of(level: Level, today: dt.date, by: str, why: str) -> Entry:
    """The reference that a level gives.

    Raises:
        InputError: too few nights.
    """
    found = bounds(level.values)
    return Entry(
        check=level.check,
        partition=level.partition,
        stack=level.stack,
        case=level.case,
        variable=level.variable,
        value=_rounded(found.value),
        low=_rounded(found.low, 3),
        high=_rounded(found.high, 3),
        unit=level.unit,
        provenance=Provenance(
            statistic="median of maxima" if level.higher_is_better else "median of minima",
            n=len(level.values),
            spread=_rounded(found.spread, 2),
            date=today,
            origin=list(level.origin),
            by=by,
            why=why,
            versions=dict(level.versions),
        ),
    )


def _rounded(value: float, digits: int = 4) -> float:
    """Significant digits: more would say more than was measured."""
    return float(f"{value:.{digits}g}")


def proposals(
    references: References, levels: Iterable[Level], today: dt.date, by: str, why: str
) -> tuple[list[Proposal], list[str]]:
    """What the levels would change, and why some give nothing.

    An entry whose value lies inside the new bounds, and the new value inside its own, is left alone (`same`):
    references that follow every night hide slow losses.
    """
    known = {entry.key: entry for entry in references.entries}
    found, left = [], []
    for level in levels:
        name = f"{level.stack} {level.variable} {level.case}"
        if len(level.values) < MIN_NIGHTS:
            left.append(
                f"{name}: {counted(len(level.values), 'night')} at the accepted level, {MIN_NIGHTS} needed"
                f"{_why(level)}"
            )
            continue
        if not is_case(level.case):
            left.append(f"{name}: its case cannot be written as name=value,name=value")
            continue
        new = entry_of(level, today, by, why)
        old = known.get(new.key)
        found.append(Proposal(_kind(old, new), old, new, level.note))
    return found, left


def _why(level: Level) -> str:
    return f" ({level.note})" if level.note else ""


def _kind(old: Entry | None, new: Entry) -> Kind:
    if old is None:
        return "new"
    bounded = old.low is not None and old.high is not None
    same_stack = old.provenance.versions == new.provenance.versions
    return (
        "same" if bounded and same_stack and _within(old.value, new) and _within(new.value, old) else "changed"
    )


def _within(value: float, entry: Entry) -> bool:
    return (entry.lower is None or value >= entry.lower) and (entry.upper is None or value <= entry.upper)
