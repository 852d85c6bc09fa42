"""From stretches, spells and slopes (ln, night numbers) to records (units, times)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from iowatch.detect.noise import Floats
from iowatch.detect.records import Change, Detection, Direction, Drift, Level, Transient
from iowatch.detect.rules import Spell
from iowatch.detect.stretch import Series, Stretch
from iowatch.detect.trust import confidences


def report(
    times: Floats,
    firsts: NDArray[np.int64],
    series: Series,
    stretches: list[Stretch],
    spells: list[Spell],
    drifts: list[Spell],
) -> Detection:
    """The answer for one series.

    Args:
        times: of the nights that were looked at, shape (n,).
        firsts: the position of each night's first point among all points in time order, then how many points
            there are; shape (n + 1,).
        stretches: accepted levels, dated.
        spells, drifts: transients and slopes.
    """
    writer = _Writer(times, firsts, series)
    steps = writer.steps(stretches)
    confirm = series.settings.confirm_nights
    return Detection(
        n=int(firsts[-1]),
        status="ok",
        noise=float(series.noise.spread),
        changes=tuple(c for c in steps if c.nights >= confirm),
        suspected=tuple(c for c in steps if c.nights < confirm) or writer.suspicion(stretches[-1]),
        transients=tuple(writer.transient(spell) for spell in spells),
        drifts=tuple(writer.drift(spell) for spell in drifts),
        levels=tuple(writer.level(s) for s in stretches),
    )


def _direction(log_ratio: float) -> Direction:
    return "up" if log_ratio > 0 else "down"


@dataclass(frozen=True)
class _Writer:
    times: Floats
    firsts: NDArray[np.int64]
    series: Series

    def _time(self, night: int) -> float:
        return float(self.times[night])

    def _first_point(self, night: int) -> int:
        return int(self.firsts[night])

    def _last_point(self, night: int) -> int:
        return int(self.firsts[night + 1]) - 1

    def steps(self, stretches: list[Stretch]) -> list[Change]:
        return [
            self._change(
                before.level,
                after.level,
                after.first,
                after.end - after.first,
                trust,
            )
            for (before, after), trust in zip(
                pairwise(stretches), confidences(self.series, stretches), strict=True
            )
        ]

    def _change(self, before: float, after: float, first: int, nights: int, confidence: float) -> Change:
        return Change(
            index=self._first_point(first),
            time=self._time(first),
            last_before=self._time(first - 1),
            direction=_direction(after - before),
            ratio=math.exp(after - before),
            before=math.exp(before),
            after=math.exp(after),
            confidence=confidence,
            nights=nights,
        )

    def suspicion(self, last: Stretch) -> tuple[Change, ...]:
        """The newest nights, where all of them lie far on the same side of the last level."""
        residuals = self.series.logs - last.level
        spread = self.series.noise.left if residuals[-1] < 0 else self.series.noise.right
        far = max(3 * float(spread), self.series.settings.min_effect)
        sign = 1 if residuals[-1] > 0 else -1
        first = len(residuals)
        while first - 1 > last.first and sign * residuals[first - 1] > far:
            first -= 1
        nights = len(residuals) - first
        if nights == 0:
            return ()
        middle = sorted(residuals[first:])[nights // 2]
        return (self._change(last.level, last.level + float(middle), first, nights, 0.25),)

    def transient(self, spell: Spell) -> Transient:
        first, end, depth = spell
        return Transient(
            index=self._first_point(first),
            time=self._time(first),
            last_index=self._last_point(end - 1),
            last_time=self._time(end - 1),
            direction=_direction(depth),
            ratio=math.exp(depth),
            nights=end - first,
        )

    def drift(self, spell: Spell) -> Drift:
        first, end, rise = spell
        return Drift(
            index=self._first_point(first),
            time=self._time(first),
            last_index=self._last_point(end - 1),
            last_time=self._time(end - 1),
            direction=_direction(rise),
            ratio=math.exp(rise),
        )

    def level(self, stretch: Stretch) -> Level:
        return Level(
            index=self._first_point(stretch.first),
            time=self._time(stretch.first),
            last_index=self._last_point(stretch.end - 1),
            last_time=self._time(stretch.end - 1),
            value=math.exp(stretch.level),
            nights=stretch.nights,
        )
