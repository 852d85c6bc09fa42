"""Which changes belong together: one direction, one neighbourhood of dates, one system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy.stats import binom

from iowatch.findings.detection import Step
from iowatch.findings.records import Direction
from iowatch.metrics import METRICS
from iowatch.store import SeriesRow

_DAY_S = 86400
# A detector dates a step to within some nights; several reports within that time are one event.
_NEIGHBOURHOOD_S = 4 * _DAY_S
# Runs of one night start within this time of each other.
_NIGHT_S = _DAY_S // 2
# On a night like any other about this share of the series looks suspicious (13 % on Edison, fewer on a quiet
# system); groups that chance would make more seldom than once in 500 nights are told.
_SUSPECTED_SHARE, _CHANCE = 0.1, 0.002


@dataclass(frozen=True)
class Moved:
    """A change with its series; `log_gain` is the natural logarithm of the performance ratio."""

    row: SeriesRow
    change: Step
    log_gain: float


@dataclass(frozen=True)
class Group:
    """Changes of one event; the change happened between `last_before` and `first_after` (epoch seconds)."""

    direction: Direction
    moved: tuple[Moved, ...]
    last_before: int
    first_after: int

    @property
    def series_ids(self) -> frozenset[int]:
        """Identities of the series in it."""
        return frozenset(m.row.id for m in self.moved)


def log_gain(row: SeriesRow, ratio: float) -> float:
    """Natural logarithm of after / before as performance: positive is better, also for times."""
    return math.log(ratio) if METRICS[row.metric].direction == "higher" else -math.log(ratio)


def group(rows: Sequence[SeriesRow], changes: Mapping[int, Sequence[Step]]) -> list[Group]:
    """Groups of changes in order of time.

    The strongest change of what is left gathers the changes of its direction in its neighbourhood; chains of
    neighbours do not grow beyond it.
    """
    moved = [Moved(row, c, log_gain(row, c.ratio)) for row in rows for c in changes.get(row.id, ())]
    groups: list[Group] = []
    for direction, sign in (("up", 1.0), ("down", -1.0)):
        left = sorted((m for m in moved if m.log_gain * sign > 0), key=lambda m: -abs(m.log_gain))
        while left:
            near = _gather(left)
            groups.append(_made("up" if direction == "up" else "down", near))
            taken = set(map(id, near))
            left = [m for m in left if id(m) not in taken]
    return sorted(groups, key=lambda g: (g.first_after, g.direction))


def _gather(left: Sequence[Moved]) -> list[Moved]:
    """The first of `left`, and of each other series the nearest change in its neighbourhood."""
    seed = left[0]
    nearest: dict[int, Moved] = {}
    for candidate in sorted(left, key=lambda m: _distance(m, seed)):
        if _distance(candidate, seed) <= _NEIGHBOURHOOD_S:
            nearest.setdefault(candidate.row.id, candidate)
    nearest[seed.row.id] = seed
    return _alike(list(nearest.values()))


def _alike(near: list[Moved]) -> list[Moved]:
    """Without suspicions that are small beside the confirmed changes: bad nights of other series, perhaps."""
    confirmed = [abs(m.log_gain) for m in near if not m.change.suspected]
    least = 0.5 * median(confirmed) if confirmed else 0.0
    return [m for m in near if not m.change.suspected or abs(m.log_gain) >= least]


def _distance(one: Moved, other: Moved) -> int:
    """Seconds between the gaps in which two changes happened; 0 where the gaps overlap."""
    a, b = one.change, other.change
    return max(0, a.last_before - b.first_after + 1, b.last_before - a.first_after + 1)


def _made(direction: Direction, moved: Sequence[Moved]) -> Group:
    """The group with its date: the night that agrees with most of the change, the first of equals."""
    ordered = sorted(moved, key=lambda m: m.change.first_after)

    def agreeing(moment: int) -> list[Moved]:
        """Series whose runs on both sides leave room for `moment`; a night is some hours long."""
        return [m for m in ordered if m.change.last_before < moment <= m.change.first_after + _NIGHT_S]

    night = max(
        (m.change.first_after for m in ordered), key=lambda t: (sum(abs(m.log_gain) for m in agreeing(t)), -t)
    )
    return Group(direction, tuple(ordered), max(m.change.last_before for m in agreeing(night)), night)


def credible(group: Group, series: int) -> bool:
    """Whether a group is worth telling: a confirmed change, or a suspicion of more series than by chance.

    A single bad night of a few series is nothing to tell anybody; of many at once it is.

    Args:
        series: how many series the system has.
    """
    if not all(m.change.suspected for m in group.moved):
        return True
    by_chance = float(binom.sf(len(group.moved) - 1, series, _SUSPECTED_SHARE))
    return by_chance < _CHANCE
