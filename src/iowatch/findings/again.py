"""Nights that were measured twice: of two runs of a case in one session the second is the night's.

A run is made again because its first value looked different (`iowatch run --night`). Were both points of the
series, one bad hour would count as two nights; were the better one taken, only one direction could be cleared.
The second was not chosen by its value; the first stays in the history and on the pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from iowatch.store import History, SeriesPoints

# Attribute of a session: epoch seconds from which on its runs are repetitions.
AGAIN_SINCE = "again_since"


Repeated = tuple[int, int, int]
"""A session with repetitions: its start, theirs, and its end, in epoch seconds."""


def nights_repeated(history: History, system: str) -> Sequence[Repeated]:
    """The finished sessions of a system in which runs were made again."""
    return [
        (row.started_at, row.attributes[AGAIN_SINCE], row.ended_at)
        for row in history.sessions(system)
        if AGAIN_SINCE in row.attributes and row.ended_at is not None
    ]


def without_first_runs(
    points: Mapping[int, SeriesPoints], nights: Sequence[Repeated]
) -> Mapping[int, SeriesPoints]:
    """The points without the first runs of what was run again in the same session."""
    return {number: _without(one, nights) for number, one in points.items()} if nights else points


def _without(points: SeriesPoints, nights: Sequence[Repeated]) -> SeriesPoints:
    """The points without those that a later one of the same night stands for."""
    times = np.asarray(nights, dtype=np.int64)
    start, again = np.searchsorted(points.time, times[:, :2]).T
    end = np.searchsorted(points.time, times[:, 2], side="right")
    keep = np.ones(len(points.time), dtype=bool)
    for first, second in zip(start[end > again], again[end > again], strict=True):
        keep[first:second] = False
    if keep.all():
        return points
    arrays = {f.name: getattr(points, f.name)[keep] for f in fields(points) if f.name != "series_id"}
    return replace(points, **arrays)
