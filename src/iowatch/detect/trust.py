"""How credible a step is: two small logistic models, fitted to known steps on real noise (docs/detection.md).

One for settled levels; one for a newest level of few nights, which may be a spell of bad nights that will pass.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from iowatch.detect.noise import Floats
from iowatch.detect.stretch import Series, Stretch


def confidences(series: Series, stretches: list[Stretch]) -> list[float]:
    """Confidence (0 to 1) in the step before each stretch but the first; 0 for steps too small to matter."""
    settings = series.settings
    scatter = np.abs(
        series.logs - np.repeat([s.level for s in stretches], [s.end - s.first for s in stretches])
    )
    found = []
    for before, after in pairwise(stretches):
        _, evidence = series.common(before, after)
        step = abs(after.level - before.level)
        if step < settings.min_effect or evidence <= 0:
            found.append(0.0)
        elif after is stretches[-1] and after.nights <= settings.transient_nights:
            newest = (_log(evidence, 3, 80), _relative(step, scatter[: after.first]))
            found.append(_logistic(settings.newest_weights, newest))
        else:
            shortest = min(before.nights, after.nights)
            facts = (
                _log(evidence, 3, 80),
                _relative(step, scatter),
                rank_distance(before.logs, after.logs),
                _log(len(series.logs), 60, math.inf),
                float(series.away.mean()),
                max(0.0, 1 - shortest / settings.transient_nights),
            )
            found.append(_logistic(settings.settled_weights, facts))
    return found


def _log(value: float, low: float, high: float) -> float:
    return math.log(min(max(value, low), high))


def _relative(step: float, scatter: Floats) -> float:
    """ln of a step in units of the scatter that 80 % of all nights stay within, spells included."""
    return _log(step / max(float(np.quantile(scatter, 0.8)), 1e-3), 0.05, 50)


def _logistic(weights: tuple[float, ...], facts: tuple[float, ...]) -> float:
    return 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, (1.0, *facts), strict=True))))


def rank_distance(a: Floats, b: Floats) -> float:
    """|z| of the Mann-Whitney test of two samples; ties count half."""
    n, m = len(a), len(b)
    if not n or not m:
        return 0.0
    ordered = np.sort(a)
    wins = np.searchsorted(ordered, b, side="left") + np.searchsorted(ordered, b, side="right")
    return abs(float(wins.sum()) / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
