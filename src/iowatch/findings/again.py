"""Nights that were measured twice: of two runs of a case in one session the second is the night's.

A run is made again because its first value looked different (`iowatch run --night`). Were both points of the
series, one bad hour would count as two nights; were the better one taken, only one direction could be cleared.
The second was not chosen by its value; the first stays in the history and on the pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from iowatch.store import History, SeriesPoints


def judged(history: History, system: str, points: Mapping[int, SeriesPoints]) -> Mapping[int, SeriesPoints]:
    """The points without the first runs of what was run again in the same session."""
    nights = sorted(
        (row.started_at, row.ended_at if row.ended_at is not None else np.iinfo(np.int64).max)
        for row in history.sessions(system)
        if row.attributes.get("again")
    )
    if not nights:
        return points
    starts, ends = np.asarray(nights, dtype=np.int64).T
    return {number: _last_of_each(one, starts, ends) for number, one in points.items()}


def _last_of_each(points: SeriesPoints, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> SeriesPoints:
    """The last point of each night, and all points outside of nights; starts and ends of shape (nights,)."""
    night = np.searchsorted(starts, points.time, side="right") - 1
    night[points.time > ends[night]] = -1
    keep = np.ones(len(night), dtype=bool)
    keep[:-1] = (night[:-1] != night[1:]) | (night[:-1] < 0)
    if keep.all():
        return points
    arrays = {f.name: getattr(points, f.name)[keep] for f in fields(points) if f.name != "series_id"}
    return replace(points, **arrays)
