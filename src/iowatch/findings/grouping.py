"""Which changes belong together: one direction, one neighbourhood of dates, one system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from iowatch.explain import derive, find_rule
from iowatch.findings.detection import Step
from iowatch.findings.records import Direction
from iowatch.metrics import METRICS
from iowatch.model import Scalar
from iowatch.store import SeriesRow

_DAY_S = 86400
# A detector dates a step to within some nights; several reports within that time are one event.
_NEIGHBOURHOOD_S = 3 * _DAY_S
# Runs of one night start within this time of each other.
_NIGHT_S = _DAY_S // 2
# Two events are at least two nights apart, and of the series of each so many are on the right side of the rule:
# less may be how detection dates steps in noise.
_APART_S, _CLEAR = _DAY_S // 2, 0.9
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


def parameters(row: SeriesRow) -> dict[str, Scalar]:
    """The case's parameters and the axes of its series."""
    return {
        "benchmark": row.case.benchmark,
        "stack": row.stack,
        "partition": row.partition,
        **row.case.parameters,
    }


def group(rows: Sequence[SeriesRow], changes: Mapping[int, Sequence[Step]]) -> list[Group]:
    """Groups of changes in order of time.

    The night that agrees with most of what is left gathers the changes near it; then the next night.
    """
    moved = [Moved(row, c, log_gain(row, c.ratio)) for row in rows for c in changes.get(row.id, ())]
    groups: list[Group] = []
    directions: tuple[tuple[Direction, float], ...] = (("up", 1.0), ("down", -1.0))
    for direction, sign in directions:
        left = [m for m in moved if m.log_gain * sign > 0]
        while left:
            made = _first_event(_gather(direction, left))
            groups.append(made)
            taken = set(map(id, made.moved))
            left = [m for m in left if id(m) not in taken]
    return sorted(groups, key=lambda g: (g.first_after, g.direction))


def _gather(direction: Direction, left: Sequence[Moved]) -> Group:
    """The group of the strongest night: of each series its nearest change in the neighbourhood."""
    night = _strongest_night(left)
    nearest: dict[int, Moved] = {}
    for candidate in sorted(left, key=lambda m: _distance(m, night)):
        if _distance(candidate, night) <= _NEIGHBOURHOOD_S:
            nearest.setdefault(candidate.row.id, candidate)
    near = _alike(list(nearest.values()))
    if all(_distance(m, night) > 0 for m in near):  # the night was that of suspicions which are left out
        night = _strongest_night(near)
    return _group(direction, near, night)


def _group(direction: Direction, moved: Sequence[Moved], night: int) -> Group:
    last_before = max(m.change.last_before for m in moved if _distance(m, night) == 0)
    return Group(direction, tuple(sorted(moved, key=lambda m: m.change.first_after)), last_before, night)


def _first_event(group: Group) -> Group:
    """A group without what belongs to another event of the days around: series of another night that share what
    those of its own night do not.

    Series that are dated to neither night, or to the wrong one, follow the rule.
    """
    late = [m for m in group.moved if _distance(m, group.first_after) > _APART_S]
    if not late:
        return group
    other = _strongest_night(late)
    nearer = [_distance(m, other) < _distance(m, group.first_after) for m in group.moved]
    derived = [derive(parameters(m.row)) for m in group.moved]
    rule = find_rule(derived, np.asarray(nearer))
    if rule is None or not rule.conditions or min(rule.precision, rule.recall) < _CLEAR:
        return group
    mine = [
        m for m, its in zip(group.moved, derived, strict=True) if not all(c.holds(its) for c in rule.conditions)
    ]
    return _group(group.direction, mine, _strongest_night(mine))


def _strongest_night(moved: Sequence[Moved]) -> int:
    """The first run at a new level that agrees with most of the change, the first of equals (epoch seconds).

    A change agrees with every moment between its last run before and its first run after; a night is some hours
    long. Agreement is the sum of |log gain|.
    """
    weights = np.asarray([abs(m.log_gain) for m in moved])
    nights = np.unique([m.change.first_after for m in moved])

    def begun(starts: Sequence[int]) -> NDArray[np.float64]:
        """Weight of what starts before each of the nights."""
        order = np.argsort(starts)
        total = np.concatenate([[0.0], np.cumsum(weights[order])])
        return np.asarray(total[np.searchsorted(np.asarray(starts)[order], nights)])

    agreement = begun([m.change.last_before for m in moved]) - begun(
        [m.change.first_after + _NIGHT_S for m in moved]
    )
    return int(nights[np.argmax(np.round(agreement, 9))])


def _distance(moved: Moved, night: int) -> int:
    """Seconds from a moment to the gap between runs in which a change happened; 0 inside of it."""
    change = moved.change
    return max(0, change.last_before - night + 1, night - change.first_after - _NIGHT_S)


def _alike(near: list[Moved]) -> list[Moved]:
    """Without suspicions that are small beside the confirmed changes, or nights later: bad nights, perhaps."""
    confirmed = [m for m in near if not m.change.suspected]
    if not confirmed:
        return near
    night, least = _strongest_night(confirmed), 0.5 * median(abs(m.log_gain) for m in confirmed)
    return [
        m
        for m in near
        if not m.change.suspected or (abs(m.log_gain) >= least and _distance(m, night) <= _APART_S)
    ]


def credible(group: Group, series: int) -> bool:
    """Whether a group is worth telling: a confirmed change, or a suspicion of more series than by chance.

    A single bad night of a few series is nothing to tell anybody; of many at once it is.

    Args:
        series: how many series the system has.
    """
    if not all(m.change.suspected for m in group.moved):
        return True
    by_chance = float(bdtrc(len(group.moved) - 1, series, _SUSPECTED_SHARE))
    return by_chance < _CHANCE
