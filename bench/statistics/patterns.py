"""Patterns of series (more noise, alternating good and bad sessions): what is found, and how often in noise.

    python bench/statistics/patterns.py [SERIES]

Of each planted pattern SERIES series (default 200) with 60 observations before it: the share in which it is found after
the stated number of sessions, and the median error of its date. Then years of noise without a pattern, assessed every
morning: series of a year in which something is reported. `iowatch.findings.patterns` adds steps of derived series,
whose detector has its own scores.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from iowatch.statistics.patterns import Alternation, NoiseIncrease, find_alternation, find_noise_increase  # noqa: E402

Floats = NDArray[np.float64]
BEFORE = 60
YEAR = 365
Find = Callable[[Floats], NoiseIncrease | Alternation | None]
# Adds a pattern to the noise of a series, from observation `BEFORE` on.
Plant = Callable[[np.random.Generator, Floats], Floats]


def draw_noise(stream: np.random.Generator, n: int) -> Floats:
    """Noise of one series: t4 with two scales, a short memory, and outliers to the left in 2 % of the sessions."""
    scatter = float(np.clip(np.exp(stream.normal(math.log(0.05), 0.5)), 0.02, 0.15))
    white = stream.standard_t(4, n) * 0.8
    noise = scatter * white * np.where(white < 0, 1.3, 0.7)
    memory = np.zeros(n)
    for position in range(1, n):
        memory[position] = 0.3 * memory[position - 1] + stream.normal(0, 0.5 * scatter)
    outliers = (stream.random(n) < 0.02) * stream.exponential(0.4, n)
    return np.asarray(noise + memory - outliers)


def draw_spells(stream: np.random.Generator, n: int) -> Floats:
    """Bad spells of a file system: 5 % of the sessions begin one, most of one or two sessions, 15 % of 5 to 14."""
    spells = np.zeros(n)
    position = 0
    while position < n:
        if stream.random() < 0.05:
            length = int(stream.integers(5, 15)) if stream.random() < 0.15 else int(min(6, stream.geometric(1 / 1.7)))
            spells[position : position + length] += stream.uniform(math.log(0.3), math.log(0.9))
            position += length
        position += 1
    return spells


def print_power(name: str, find: Find, plant: Plant, since: int, n: int) -> None:
    """Print how often a planted pattern is found after `since` sessions, in `n` series."""
    errors: list[int] = []
    for seed in range(n):
        stream = np.random.default_rng([66, seed])
        noise = draw_noise(stream, BEFORE + since)
        pattern = find(plant(stream, noise))
        if pattern is not None:
            errors.append(abs(pattern.index - BEFORE))
    error = "-" if not errors else f"{np.median(errors):.0f}"
    print(f"  {name}, {since} sessions: found {len(errors) / n:.2f}, date {error} sessions off")


def more_noise(factor: float) -> Plant:
    """Noise that grows by a factor."""

    def plant(stream: np.random.Generator, noise: Floats) -> Floats:
        planted = noise.copy()
        planted[BEFORE:] *= factor
        return planted

    return plant


def bad_sessions(share: float, level: float) -> Plant:
    """A share of the sessions at another level, at random; the first one is."""

    def plant(stream: np.random.Generator, noise: Floats) -> Floats:
        planted = noise.copy()
        is_bad = stream.random(len(noise) - BEFORE) < share
        is_bad[0] = True
        planted[BEFORE:][is_bad] += math.log(level)
        return planted

    return plant


def count_reports(find: Find, with_spells: bool, n: int) -> tuple[int, int]:
    """Series of `n` years of noise in which something is reported, and mornings on which it is."""
    series = mornings = 0
    for seed in range(n):
        stream = np.random.default_rng([67, seed])
        noise = draw_noise(stream, BEFORE + YEAR)
        if with_spells:
            noise = noise + draw_spells(stream, len(noise))
        reported = sum(find(noise[:morning]) is not None for morning in range(BEFORE, len(noise) + 1))
        series += reported > 0
        mornings += reported
    return series, mornings


def main() -> None:
    """Print the tables."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"More noise ({n} series each):")
    for factor in (2.0, 3.0, 5.0, 10.0, 20.0):
        for since in (10, 15, 30):
            print_power(f"x{factor:g}", find_noise_increase, more_noise(factor), since, n)
    print("Alternating good and bad sessions:")
    for share, level in ((0.5, 0.3), (0.33, 0.3), (0.2, 0.3), (0.33, 0.6)):
        for since in (15, 30, 60):
            print_power(f"{share:.0%} at x{level}", find_alternation, bad_sessions(share, level), since, n)
    years = max(2, n // 4)
    print(f"Noise without a pattern ({years} series of a year, assessed every morning):")
    finders: tuple[tuple[str, Find], ...] = (("more noise", find_noise_increase), ("bad sessions", find_alternation))
    for name, find in finders:
        for with_spells in (False, True):
            series, mornings = count_reports(find, with_spells, years)
            world = "with spells" if with_spells else "without spells"
            print(f"  {name}, {world}: {series} of {years} series, {mornings} mornings of {years * (YEAR + 1)}")


if __name__ == "__main__":
    main()
