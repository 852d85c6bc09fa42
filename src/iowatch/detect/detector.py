"""The detector: series in, `Detection` out. docs/detection.md explains the method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iowatch.detect.noise import Floats, Noise
from iowatch.detect.records import Detection
from iowatch.detect.report import report
from iowatch.detect.rules import drop_doubtful_steps, redate, settle, take_drift
from iowatch.detect.segment import Path, penalty, segment_many
from iowatch.detect.settings import Settings
from iowatch.detect.stretch import Series, Stretch
from iowatch.errors import InputError

VERSION = "levels-9"
"""Changes whenever the same series may give another answer: a key for remembered answers."""


def detect(
    times: ArrayLike, values: ArrayLike, *, since: float | None = None, settings: Settings | None = None
) -> Detection:
    """Changes, transients and drift of one series.

    Args:
        times: epoch seconds, shape (n,), in any order, gaps allowed. Points of the same time are samples of one
            night, which their median stands for.
        values: shape (n,), finite and > 0, in any unit: only ratios matter.
        since: epoch seconds; earlier nights are not looked at (the level of that moment was accepted). Indices
            still count in the whole series.
        settings: the assumptions, if not the usual ones.

    Raises:
        InputError: shapes differ, or a time or value is not finite, or a value is not positive.
    """
    return detect_many([(times, values)], since=[since], settings=settings)[0]


def detect_many(
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    since: Sequence[float | None] | None = None,
    settings: Settings | None = None,
) -> list[Detection]:
    """`detect` for many series at once, which is much faster than a loop.

    Raises:
        InputError: as `detect`; the message names the position of the series.
    """
    settings = settings or Settings()
    starts = since or [None] * len(series)
    inputs = [
        _Input(i, times, values, start)
        for i, ((times, values), start) in enumerate(zip(series, starts, strict=True))
    ]
    judged = [x for x in inputs if len(x.logs) >= settings.min_nights]
    answers = dict(
        zip((x.number for x in judged), segment_many([x.logs for x in judged], settings), strict=True)
    )
    return [_judge(x, *answers[x.number], settings) if x.number in answers else _unjudged(x) for x in inputs]


class _Input:
    """A checked series as nights in time order, those before `since` left out.

    Points of the same time are samples of one night, which their median stands for.

    Attributes:
        points: of the whole series.
        times, logs: of each night, shape (nights,).
        firsts: the position in time order of each night's first point, then `points`; shape (nights + 1,).
    """

    def __init__(self, number: int, times: ArrayLike, values: ArrayLike, since: float | None) -> None:
        t, v = _checked(number, times, values)
        order = np.lexsort((v, t))
        t, logs = t[order], np.log(v[order])
        starts = np.flatnonzero(np.diff(t, prepend=-np.inf) > 0)
        if len(starts) < len(t):
            logs = np.array([np.median(night) for night in np.split(logs, starts[1:])])
        skipped = 0 if since is None else int(np.searchsorted(t[starts], since, side="left"))
        self.number = number
        self.points = len(t)
        self.times: Floats = t[starts][skipped:]
        self.logs: Floats = logs[skipped:]
        self.firsts: NDArray[np.int64] = np.append(starts, len(t))[skipped:]


def _checked(number: int, times: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    t, v = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if t.ndim != 1 or t.shape != v.shape:
        raise InputError(
            f"series {number}: times have shape {t.shape}, values {v.shape}; expected the same (n,)"
        )
    wrong = np.flatnonzero(~(np.isfinite(t) & np.isfinite(v) & (v > 0)))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"series {number}, point {i}: time {t[i]}, value {v[i]}; expected finite numbers and a value > 0",
            hint="Leave out nights that were not measured.",
        )
    return t, v


def _unjudged(x: _Input) -> Detection:
    return Detection(x.points, "too few nights" if len(x.logs) else "no data")


def _judge(x: _Input, path: Path, noise: Noise, settings: Settings) -> Detection:
    series = Series(x.logs, noise, settings, np.zeros(len(x.logs), dtype=bool))
    price = penalty(len(x.logs), settings)
    stretches, spells = settle(series, series.stretches(path), price)
    stretches, drifts = take_drift(series, stretches, price)
    return report(x.times, x.firsts, series, _dated(series, stretches), spells, drifts)


def _dated(series: Series, stretches: list[Stretch]) -> list[Stretch]:
    """Levels with dated borders; a date moves nights, so steps that are no longer credible are merged."""
    while True:
        dated = redate(series, stretches)
        stretches = drop_doubtful_steps(series, dated)
        if len(stretches) == len(dated):
            return dated
