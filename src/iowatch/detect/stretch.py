"""Stretches of nights at one level, and what it costs to describe two of them by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.detect.noise import Floats, Noise, surprise
from iowatch.detect.segment import Path
from iowatch.detect.settings import Settings


@dataclass(frozen=True)
class Stretch:
    """Nights first … end-1 at `level` (ln of the value); `logs` are those that count, `cost` their surprise."""

    first: int
    end: int
    level: float
    cost: float
    logs: Floats

    @property
    def nights(self) -> int:
        """Nights that count (transients do not)."""
        return len(self.logs)


@dataclass
class Series:
    """A series on its way to an answer.

    Attributes:
        logs: ln of the values, shape (n,).
        away: nights that belong to a transient, shape (n,).
    """

    logs: Floats
    noise: Noise
    settings: Settings
    away: NDArray[np.bool_]

    def cost(self, logs: Floats, levels: Floats) -> Floats:
        """Surprise of nights at each of several levels, shape of `levels`."""
        total: Floats = surprise(logs[None, :] - levels[:, None], self.noise, self.settings).sum(axis=1)
        return total

    def stretch(self, first: int, end: int, level: float) -> Stretch:
        """Nights first … end-1 at the likeliest level near the one given."""
        logs = self.logs[first:end][~self.away[first:end]]
        spread = float(self.noise.spread)
        for reach, points in ((1.2, 13), (0.25, 5)):
            levels = level + spread * np.linspace(-reach, reach, points)
            costs = self.cost(logs, levels)
            level = float(levels[costs.argmin()])
        return Stretch(first, end, level, float(costs.min()), logs)

    def stretches(self, path: Path) -> list[Stretch]:
        """The stretches of a path."""
        ends = [start for start, _ in path[1:]] + [len(self.logs)]
        return [self.stretch(start, end, level) for (start, level), end in zip(path, ends, strict=True)]

    def common(self, a: Stretch, b: Stretch) -> tuple[float, float]:
        """The likeliest common level of two stretches and the evidence (nats) against having one."""
        spread = float(self.noise.spread)
        low, high = sorted((a.level, b.level))
        points = int(np.clip((high - low) / (0.25 * spread), 2, 60)) + 5
        levels = np.linspace(low - 0.5 * spread, high + 0.5 * spread, points)
        costs = self.cost(np.concatenate([a.logs, b.logs]), levels)
        return float(levels[costs.argmin()]), float(costs.min()) - a.cost - b.cost
