"""Seeded samples with a known ratio: night effects, heavy tails, contention. Used by the tests and by
bench/compare.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Case
from iowatch.stats import Pair, SideSamples

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int, int], Floats]


def _student(df: float, night: float, sample: float) -> Noise:
    """Student-t nights and samples; `night` and `sample` are scales of the log."""

    def draw(rng: np.random.Generator, pairs: int, nights: int, repetitions: int) -> Floats:
        between = night * rng.standard_t(df, (pairs, nights, 1))
        return between + sample * rng.standard_t(df, (pairs, nights, repetitions))

    return draw


def _normal(night: float, sample: float) -> Noise:
    def draw(rng: np.random.Generator, pairs: int, nights: int, repetitions: int) -> Floats:
        return night * rng.standard_normal((pairs, nights, 1)) + sample * rng.standard_normal(
            (pairs, nights, repetitions)
        )

    return draw


def _contention(night: float, sample: float) -> Noise:
    """Every seventh sample and every tenth night lose 10 to 70 % to other users."""
    usual = _normal(night, sample)

    def draw(rng: np.random.Generator, pairs: int, nights: int, repetitions: int) -> Floats:
        shape = (pairs, nights, repetitions)
        slow = np.where(rng.random(shape) < 1 / 7, np.log(rng.uniform(0.3, 0.9, shape)), 0)
        bad = np.where(rng.random((pairs, nights, 1)) < 0.1, np.log(rng.uniform(0.3, 0.9, (pairs, nights, 1))), 0)
        return usual(rng, pairs, nights, repetitions) + slow + bad

    return draw


def wandering(neighbours: float, share: float = 1.0, scale: float = 0.1) -> Noise:
    """Nights that hang together: a first-order autoregression with this correlation of neighbours, which has
    `share` of the variance between nights; the rest is independent."""

    def draw(rng: np.random.Generator, pairs: int, nights: int, repetitions: int) -> Floats:
        steps = rng.standard_normal((pairs, nights)) * np.sqrt(1 - neighbours**2)
        steps[:, 0] = rng.standard_normal(pairs)
        for night in range(1, nights):
            steps[:, night] += neighbours * steps[:, night - 1]
        own = rng.standard_normal((pairs, nights))
        between = scale * (np.sqrt(share) * steps + np.sqrt(1 - share) * own)
        return np.asarray(between[:, :, None] + 0.02 * rng.standard_normal((pairs, nights, repetitions)))

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
    nights: tuple[int, int],
    repetitions: int,
    ratio: float = 1.0,
    shared: bool = False,
) -> list[Pair]:
    """Pairs whose true ratio right / left is `ratio`; `shared`: both sides have the same nights' effects."""
    left = 1000 * np.exp(noise(rng, pairs, nights[0], repetitions))
    right = 1000 * ratio * np.exp(noise(rng, pairs, nights[1], repetitions))
    if shared:
        common = np.exp(0.2 * rng.standard_normal((pairs, nights[0], 1)))
        left, right = left * common, right * common
    names = ("n", "n") if shared else ("l", "r")
    return [
        Pair(Case("ior", {"operation": "write", "segments": index + 1}), "bandwidth", *sides)
        for index, sides in enumerate(
            zip(*(_sides(values, name) for values, name in ((left, names[0]), (right, names[1]))), strict=True)
        )
    ]


def _sides(values: Floats, name: str) -> list[SideSamples]:
    return [
        SideSamples({f"{name}{night}": tuple(samples) for night, samples in enumerate(one.tolist())}) for one in values
    ]
