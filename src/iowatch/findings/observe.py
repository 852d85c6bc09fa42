"""What each series did at a group's date: changed, unchanged, or no data; the input of the explanation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from iowatch.explain import Observation, names
from iowatch.findings.detection import Step, nightly
from iowatch.findings.grouping import Group, Moved, log_gain, parameters
from iowatch.findings.records import Member
from iowatch.metrics import METRICS
from iowatch.store import SeriesPoints, SeriesRow

# Levels of unchanged series are medians of at most this many nights on each side.
_NIGHTS = 30
_HALF_DAY_S = 43_200
# A series that moved the same way by so much of the event's size is not called unchanged, though no change of
# it is sure: noise may hide one, or it is too young to be judged.
_UNSURE = 0.5


@dataclass(frozen=True)
class Seen:
    """Everything that was compared at one date, changed series first.

    Attributes:
        observations, series_names: of the same length and order.
        without_data: number of series that have no runs on both sides.
        moved_otherwise: number of series that moved then, too, but the other way or not surely.
    """

    observations: tuple[Observation, ...]
    series_names: tuple[str, ...]
    members: tuple[Member, ...]
    without_data: int
    moved_otherwise: int


def observe(
    group: Group,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[Step]],
    points: Mapping[int, SeriesPoints],
) -> Seen:
    """Compares every series across the date of the group.

    Args:
        rows: all headline series of the system.
        changes: of each of them, by series id.
        points: of each of them, at least `_NIGHTS` nights on both sides of the date where there are so many.
    """
    others: list[tuple[SeriesRow, float]] = []
    without_data = moved_otherwise = 0
    least, sign = _UNSURE * median(abs(m.log_gain) for m in group.moved), 1 if group.direction == "up" else -1
    for row in rows:
        if row.id in group.series_ids:
            continue
        if _moved_otherwise(changes.get(row.id, ()), group):
            moved_otherwise += 1
            continue
        ratio = _ratio(row, points[row.id], changes.get(row.id, ()), group)
        if ratio is None:
            without_data += 1
        elif log_gain(row, ratio) * sign >= least:
            moved_otherwise += 1
        else:
            others.append((row, ratio))
    changed = [(m.row, m.log_gain, True) for m in group.moved]
    everything = changed + [(row, log_gain(row, ratio), False) for row, ratio in others]
    called = tuple(names([parameters(row) for row, _, _ in everything]))
    return Seen(
        observations=tuple(Observation(parameters(row), is_, gain) for row, gain, is_ in everything),
        series_names=called,
        members=tuple(_member(m, points[m.row.id], name) for m, name in zip(group.moved, called, strict=False)),
        without_data=without_data,
        moved_otherwise=moved_otherwise,
    )


def _moved_otherwise(changes: Sequence[Step], group: Group) -> bool:
    """Whether the series moved at the time without being of the group: neither changed alike nor unchanged."""
    return any(
        c.first_after > group.last_before - _HALF_DAY_S and c.last_before < group.first_after + _HALF_DAY_S
        for c in changes
    )


def _ratio(row: SeriesRow, points: SeriesPoints, changes: Sequence[Step], group: Group) -> float | None:
    """Median after / median before the group's date, as far as the series' neighbouring changes allow."""
    boundary = group.first_after - _HALF_DAY_S // 2
    start = max((c.first_after for c in changes if c.first_after <= boundary), default=0)
    end = min((c.first_after for c in changes if c.first_after > boundary), default=2**62)
    values = nightly(row, points)
    before = values[(points.time >= start) & (points.time < boundary)][-_NIGHTS:]
    after = values[(points.time >= boundary) & (points.time < end)][:_NIGHTS]
    if not len(before) or not len(after):
        return None
    return float(np.median(after) / np.median(before))


def _member(moved: Moved, points: SeriesPoints, name: str) -> Member:
    row, change = moved.row, moved.change
    return Member(
        series_id=row.id,
        name=name,
        partition=row.partition,
        stack=row.stack,
        case_key=row.case.key,
        parameters={"benchmark": row.case.benchmark, **row.case.parameters},
        metric=row.metric,
        unit=METRICS[row.metric].unit,
        last_before=change.last_before,
        first_after=change.first_after,
        before=change.before,
        after=change.after,
        ratio=change.ratio,
        gain=math.exp(moved.log_gain),
        confidence=change.confidence,
        suspected=change.suspected,
        run_before=_run_at(points, change.last_before),
        run_after=_run_at(points, change.first_after),
    )


def _run_at(points: SeriesPoints, moment: int) -> int | None:
    position = int(np.searchsorted(points.time, moment))
    if position < len(points.time) and points.time[position] == moment:
        return int(points.run_id[position])
    return None
