"""The most probable path of levels: exact dynamic programming over candidate levels, in time linear in n.

For each night and each candidate level the recursion keeps the probability of the best history that is now at
this level (summed over good and bad nights) and where its present segment began. A new segment may begin every
night for the price of the penalty. Many series are worked on at once, as one more axis of the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from iowatch.detect.noise import Floats, Noise, densities, first_guess, fit, stack
from iowatch.detect.settings import Settings

Ints = NDArray[np.int32]
Path = list[tuple[int, float]]
"""Segments of a series: first night and level (ln of the value)."""

_CHUNK = 128


def penalty(n: int, settings: Settings) -> float:
    """Evidence (nats) that one step must bring in a series of n nights."""
    return settings.penalty + settings.penalty_per_log_night * float(np.log(n))


def segment_many(series: Sequence[Floats], settings: Settings) -> list[tuple[Path, Noise]]:
    """Paths and noise of many series of ln values, each of at least one night."""
    found: list[tuple[Path, Noise]] = [([], first_guess(logs, settings)) for logs in series]
    order = np.argsort([len(logs) for logs in series], kind="stable")
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        for i, result in zip(chunk, _segment_chunk([series[i] for i in chunk], settings), strict=True):
            found[i] = result
    return found


def _segment_chunk(series: list[Floats], settings: Settings) -> list[tuple[Path, Noise]]:
    noises = [first_guess(logs, settings) for logs in series]
    paths = _best_paths(series, noises, settings, settings.passes[0])
    for share in settings.passes[1:]:
        noises = [fit(y, y - along(p, len(y)), settings) for y, p in zip(series, paths, strict=True)]
        paths = _best_paths(series, noises, settings, share)
    return list(zip(paths, noises, strict=True))


def along(path: Path, n: int) -> Floats:
    """The level of each of n nights."""
    starts = [start for start, _ in path] + [n]
    return np.repeat([level for _, level in path], np.diff(starts))


@dataclass(frozen=True)
class _Problem:
    """A chunk of series: `logs` (nights, series) padded, `levels` (series, candidates), lengths (series,)."""

    logs: Floats
    levels: Floats
    lengths: NDArray[np.int64]
    noise: Noise
    price: Floats


def _best_paths(series: list[Floats], noises: list[Noise], settings: Settings, share: float) -> list[Path]:
    problem = _problem(series, noises, settings, share)
    best, began = _forward(problem, settings)
    return [_backward(problem, best, began, i) for i in range(len(series))]


def _problem(series: list[Floats], noises: list[Noise], settings: Settings, share: float) -> _Problem:
    candidates = [_candidates(y, float(v.spread), settings) for y, v in zip(series, noises, strict=True)]
    most = max(len(c) for c in candidates)
    lengths = np.array([len(y) for y in series])
    logs = np.zeros((lengths.max(), len(series)))
    for i, y in enumerate(series):
        logs[: len(y), i] = y
    levels = np.array([np.pad(c, (0, most - len(c)), mode="edge") for c in candidates])
    noise = stack(noises)
    prices = np.array([[share * penalty(n, settings)] for n in lengths])
    return _Problem(logs, levels, lengths, noise, np.exp(-prices * noise.thinning))


def _candidates(logs: Floats, spread: float, settings: Settings) -> Floats:
    """Levels worth trying: running medians over 3 and 9 nights, on a grid."""
    medians = np.concatenate([_running_median(logs, 3), _running_median(logs, 9)])
    step = settings.grid_step * spread
    while True:
        levels = np.unique(np.round(medians / step)) * step
        if len(levels) <= settings.grid_levels:
            return levels
        step *= 1.4


def _running_median(logs: Floats, width: int) -> Floats:
    return np.median(sliding_window_view(logs, min(width, len(logs))), axis=1)


def _forward(problem: _Problem, settings: Settings) -> tuple[Ints, Ints]:
    """For each night and series: the best level's number, and the night its segment began."""
    noise, series = problem.noise, np.arange(len(problem.lengths))
    bad_share = noise.bad_share
    nights = len(problem.logs)
    best = np.zeros((nights, len(series)), np.int32)
    began = np.zeros((nights, len(series)), np.int32)
    # Probabilities of the best histories at each level, now in a good and now in a bad night; each night they
    # are divided by the largest, so that a new segment always begins with probability 1 x price.
    good, bad = 1 - bad_share, bad_share
    since: Ints = np.zeros(problem.levels.shape, np.int32)
    for night in range(nights):
        if night:
            stays = good + bad >= problem.price
            since = np.where(stays, since, np.int32(night))
            good, bad = (
                np.where(stays, good * (1 - noise.enter) + bad * noise.leave, problem.price * (1 - bad_share)),
                np.where(stays, good * noise.enter + bad * (1 - noise.leave), problem.price * bad_share),
            )
        density_good, density_bad = densities(problem.logs[night][:, None] - problem.levels, noise, settings)
        good, bad = good * density_good, bad * density_bad
        total = good + bad
        best[night] = total.argmax(axis=1)
        largest = total[series, best[night]][:, None]
        good, bad = good / largest, bad / largest
        began[night] = since[series, best[night]]
    return best, began


def _backward(problem: _Problem, best: Ints, began: Ints, i: int) -> Path:
    path: Path = []
    night = int(problem.lengths[i]) - 1
    while night >= 0:
        path.append((int(began[night, i]), float(problem.levels[i, best[night, i]])))
        night = path[-1][0] - 1
    return path[::-1]
