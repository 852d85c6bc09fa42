"""Series with changes at known positions, on the noise of real systems and on simulated noise.

Used by `detect_added.py`, `detect_unseen.py` and tests/statistics/test_known_changes.py. docs/weights.md describes how
such series served to find the weights of the detector.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.datasets import unpacked
from tests.statistics.series import FAMILIES

DATA = unpacked("changes")

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]
RATIOS = [0.5, 0.7, 0.8, 0.9, 0.95, 1.1, 1.25, 2.0, 3.0, 50.0]
LENGTHS = [20, 40, 60, 120, 200, 300]


@dataclass
class PlantedSeries:
    """A series of ln values with the inserted changes, and what counts neither way.

    Attributes:
        spread: robust standard deviation of the noise.
        steps: first observation and ln ratio of each.
        bursts: first observation and end of each; an inserted one is the last.
        kind: what was inserted, in the terms of the scorer in changes.tar.xz.
    """

    logs: Floats
    spread: float
    steps: list[tuple[int, float]]
    bursts: list[tuple[int, int]]
    kind: str = "none"
    outliers: list[int] = field(default_factory=list)


def about_five(rng: np.random.Generator) -> int:
    """A length of 1 to 15 observations, five on average."""
    return min(int(rng.geometric(0.2)), 15)


def blocks(residuals: list[Floats], length: Callable[[np.random.Generator], int] = about_five) -> Noise:
    """Noise from random blocks of one of the residual series, each of a drawn length (observations)."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        source = residuals[rng.integers(len(residuals))]
        parts: list[Floats] = []
        while sum(map(len, parts)) < n:
            nights = length(rng)
            start = int(rng.integers(len(source) - nights + 1))
            parts.append(source[start : start + nights])
        return np.concatenate(parts)[:n]

    return draw


def residuals(width: int = 31) -> list[Floats]:
    """The real series less their running median."""
    half, residuals_of_series = width // 2, []
    for case in json.loads((DATA / "real_shown.json").read_text())["cases"]:
        logs = np.log([value for _, value in case["series"]])
        padded = np.pad(logs, half, mode="reflect")
        medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
        residuals_of_series.append(logs - medians)
    return residuals_of_series


def bare(noise: Floats) -> PlantedSeries:
    """A series of noise only. Its own bursts count neither way.

    They are runs of four observations and more that are two robust standard deviations off, on one side.
    """
    deviation = noise - np.median(noise)
    spread = max(1.4826 * float(np.median(np.abs(deviation))), 1e-3)
    bursts = []
    for sign in (-1, 1):
        is_far = sign * deviation > 2 * spread
        edges = np.flatnonzero(np.diff(np.concatenate([[0], is_far, [0]]).astype(int)))
        bursts += [(int(first), int(end)) for first, end in edges.reshape(-1, 2) if end - first >= 4]
    return PlantedSeries(noise.copy(), spread, [], bursts)


def plateaus(rng: np.random.Generator, n: int) -> Floats:
    """Inliers, and bursts of several observations at a level of their own."""
    logs = 0.05 * rng.standard_t(5, size=n)
    for start in np.flatnonzero(rng.random(n) < rng.uniform(0.01, 0.05)):
        side = rng.choice([-1, -1, 1])
        logs[start : start + rng.geometric(1 / rng.uniform(2, 7))] += side * rng.uniform(0.1, 0.4)
    return logs


def mixed_noise(rng: np.random.Generator, n: int) -> Floats:
    """Noise of one of the tests' families or plateaus, of random size."""
    families = [*FAMILIES.values(), plateaus]
    logs: Floats = families[rng.integers(len(families))](rng, n)
    return logs * float(np.exp(rng.uniform(-0.9, 1.4)))


def kinds() -> dict[str, Noise]:
    """The noise of the simulated series."""
    return {
        "weekly": blocks(residuals(51), lambda rng: 7),
        "long": blocks(residuals(31), lambda rng: int(rng.integers(10, 41))),
        "mixed": mixed_noise,
    }


def draw_nightly(rng: np.random.Generator, noise: Noise) -> PlantedSeries:
    """A series to be assessed after every observation: 30 to 70, a step and 45 more; or 120 without a step."""
    if rng.random() < 0.4:
        return replace(bare(noise(rng, 120)), kind="online_none")
    start, size = int(rng.integers(30, 71)), float(np.log(rng.choice(RATIOS[:-2])))
    planted = replace(bare(noise(rng, start + 45)), kind="online_step", steps=[(start, size)])
    planted.logs[start:] += size
    return planted


def truth(planted: PlantedSeries) -> dict[str, Any]:
    """The description of a series that the scorer in changes.tar.xz needs."""
    natural = planted.bursts[:-1] if planted.kind == "temp" else planted.bursts
    edges = [0, *(start for start, _ in planted.steps), len(planted.logs)]
    changes = []
    for before, (start, size), end in zip(edges, planted.steps, edges[2:], strict=False):
        snr = abs(size) / planted.spread
        z = snr / math.sqrt(1 / (start - before) + 1 / (end - start))
        changes.append({"index": start, "factor": math.exp(size), "z": z, "snr": snr})
    return {
        "system": "simulated",
        "flavour": "simulated",
        "n": len(planted.logs),
        "kind": planted.kind,
        "changes": changes,
        "outliers": planted.outliers,
        "ignore": _borders(natural),
        "temp_ignore": _borders(planted.bursts[len(natural) :]),
    }


def _borders(bursts: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"index": i, "direction": side} for burst in bursts for i in burst for side in ("up", "down")]
