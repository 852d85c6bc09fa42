"""Seeded samples with a known ratio: session effects, heavy tails, contention. Used by the tests and by
bench/statistics/compare.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Case
from iowatch.statistics import Pair, SideSamples

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int, int], Floats]


def _student(df: float, session: float, sample: float) -> Noise:
    """Student-t sessions and samples; `session` and `sample` are scales of the log."""

    def draw(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> Floats:
        between = session * rng.standard_t(df, (pairs, sessions, 1))
        return between + sample * rng.standard_t(df, (pairs, sessions, repetitions))

    return draw


def _normal(session: float, sample: float) -> Noise:
    def draw(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> Floats:
        return session * rng.standard_normal((pairs, sessions, 1)) + sample * rng.standard_normal(
            (pairs, sessions, repetitions)
        )

    return draw


def _contention(session: float, sample: float) -> Noise:
    """Every seventh sample and every tenth session are 10 to 70 % slower because of other users."""
    normal = _normal(session, sample)

    def draw(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> Floats:
        shape = (pairs, sessions, repetitions)
        slow = np.where(rng.random(shape) < 1 / 7, np.log(rng.uniform(0.3, 0.9, shape)), 0)
        slow_sessions = np.where(
            rng.random((pairs, sessions, 1)) < 0.1, np.log(rng.uniform(0.3, 0.9, (pairs, sessions, 1))), 0
        )
        return normal(rng, pairs, sessions, repetitions) + slow + slow_sessions

    return draw


def wandering(correlation: float, share: float = 1.0, scale: float = 0.1) -> Noise:
    """Autocorrelated sessions: a first-order autoregression with this lag-1 `correlation`, which has `share` of the
    variance between sessions; the rest is independent."""

    def draw(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> Floats:
        steps = rng.standard_normal((pairs, sessions)) * np.sqrt(1 - correlation**2)
        steps[:, 0] = rng.standard_normal(pairs)
        for session in range(1, sessions):
            steps[:, session] += correlation * steps[:, session - 1]
        own = rng.standard_normal((pairs, sessions))
        between = scale * (np.sqrt(share) * steps + np.sqrt(1 - share) * own)
        return np.asarray(between[:, :, None] + 0.02 * rng.standard_normal((pairs, sessions, repetitions)))

    return draw


# As Edison's year: r1 = 0.31, r2 = 0.21, r3 = 0.14, r4 = 0.10 (iowatch.compare.dependence).
EDISON = wandering(0.7, 0.44)

NOISE: dict[str, Noise] = {
    "normal": _normal(0.08, 0.1),
    "Student t3": _student(3, 0.05, 0.08),
    "Student t2": _student(2, 0.03, 0.08),
    "contention": _contention(0.05, 0.05),
}


def make_pairs(
    rng: np.random.Generator,
    noise: Noise,
    pairs: int,
    sessions: tuple[int, int],
    repetitions: int,
    ratio: float = 1.0,
    shared: bool = False,
) -> list[Pair]:
    """Pairs whose true ratio right / left is `ratio`; `shared`: both sides have the same session effects."""
    left = 1000 * np.exp(noise(rng, pairs, sessions[0], repetitions))
    right = 1000 * ratio * np.exp(noise(rng, pairs, sessions[1], repetitions))
    if shared:
        common = np.exp(0.2 * rng.standard_normal((pairs, sessions[0], 1)))
        left, right = left * common, right * common
    names = ("n", "n") if shared else ("l", "r")
    return [
        Pair(Case("ior", {"operation": "write", "segments": index + 1}), "bandwidth", *sides, sign=1)
        for index, sides in enumerate(
            zip(*(_sides(values, name) for values, name in ((left, names[0]), (right, names[1]))), strict=True)
        )
    ]


def make_consecutive_pairs(rng: np.random.Generator, noise: Noise, pairs: int, sessions: int) -> list[Pair]:
    """Null pairs of which the right side follows the left one without a break: one series, cut in the middle."""
    values = 1000 * np.exp(noise(rng, pairs, 2 * sessions, 3))
    sides = zip(_sides(values[:, :sessions], "l"), _sides(values[:, sessions:], "r"), strict=True)
    return [Pair(Case("ior", {"segments": n + 1}), "bandwidth", *both, sign=1) for n, both in enumerate(sides)]


def make_common_factor_pairs(
    rng: np.random.Generator,
    pairs: int,
    sessions: int,
    missing: float = 0.0,
    shared: bool = False,
    ratio: float = 1.0,
    factor: float = 0.12,
) -> list[Pair]:
    """Pairs whose cases share a factor per session and side, and have 5 % noise of their own.

    Args:
        missing: share of the runs that are missing, at random.
        factor: standard deviation of its logarithm.
    """
    sides: list[list[SideSamples]] = []
    for name, level in zip(("n", "n") if shared else ("l", "r"), (1000.0, 1000.0 * ratio), strict=True):
        common = factor * rng.standard_normal(sessions)
        values = level * np.exp(common + 0.05 * rng.standard_normal((pairs, sessions)))
        kept = rng.random((pairs, sessions)) >= missing
        sides.append([
            SideSamples({f"{name}{s}": (float(row[s]),) for s in np.flatnonzero(kept[n])})
            for n, row in enumerate(values)
        ])  # fmt: skip
    return [
        Pair(Case("ior", {"segments": n + 1}), "bandwidth", left, right, sign=1)
        for n, (left, right) in enumerate(zip(*sides, strict=True))
        if left.sessions and right.sessions
    ]


def _sides(values: Floats, name: str) -> list[SideSamples]:
    return [
        SideSamples({f"{name}{session}": tuple(samples) for session, samples in enumerate(one.tolist())})
        for one in values
    ]
