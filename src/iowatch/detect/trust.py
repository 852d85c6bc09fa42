"""How credible a step is: two small logistic models; bench/detect_search.py searches their weights.

One for settled levels; one for a newest level of few nights, which may be a spell of bad nights that will pass.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from iowatch.detect.noise import Floats
from iowatch.detect.settings import Settings
from iowatch.detect.stretch import Series, Stretch

Facts = tuple[float, ...]


def confidences(series: Series, stretches: list[Stretch]) -> list[float]:
    """Confidence (0 to 1) in the step before each stretch but the first; 0 for steps too small to matter."""
    settings = series.settings
    found = []
    for facts, newest in step_facts(series, stretches):
        weights = settings.newest_weights if newest else settings.settled_weights
        odds = sum(w * x for w, x in zip(weights, facts, strict=True)) if facts else -math.inf
        found.append(1 / (1 + math.exp(-odds)) if odds > -700 else 0.0)
    return found


def step_facts(series: Series, stretches: list[Stretch]) -> list[tuple[Facts, bool]]:
    """What each step is judged by, in the order of the weights, and whether its level is new and short.

    The facts of a step that is too small to matter, or has no evidence, are empty.
    """
    scatter = np.abs(
        series.logs - np.repeat([s.level for s in stretches], [s.end - s.first for s in stretches])
    )
    few, away = series.settings.transient_nights, float(series.away.mean())
    found: list[tuple[Facts, bool]] = []
    undone = returns(stretches, series.settings.return_nights)
    short = max(0.0, 1 - len(series.logs) / series.settings.short_nights)
    for (before, after), back in zip(pairwise(stretches), undone, strict=True):
        _, evidence = series.common(before, after)
        step = abs(after.level - before.level)
        newest = after is stretches[-1] and after.nights <= few
        start = unproven(before, len(series.logs), series.settings) if before is stretches[0] else 0.0
        if step < series.settings.min_effect or evidence <= 0:
            found.append(((), newest))
        elif newest:
            relative = _relative(step, scatter[: after.first])
            found.append(((1.0, _log(evidence, 3, 80), relative, back, away, start, short), True))
        else:
            facts = (
                1.0,
                _log(evidence, 3, 80),
                _relative(step, scatter),
                rank_distance(before.logs, after.logs),
                away,
                max(0.0, 1 - min(before.nights, after.nights) / few),
                back,
                start,
            )
            found.append((facts, False))
    return found


def unproven(first: Stretch, nights: int, settings: Settings) -> float:
    """How little is known of a first level, 0 to 1: it has lasted few nights, and the series is young.

    A young series has not shown yet how deep and how long its spells are.
    """
    few = max(0.0, 1 - first.nights / settings.first_nights)
    return few * max(0.0, 1 - nights / settings.young_nights)


def returns(stretches: list[Stretch], scale: float) -> list[float]:
    """How far each step is undone by a neighbouring one, 0 to 1, less the longer the level between has lasted.

    A level that comes back soon was left by a spell rather than for good, even where the spell is too long
    or its return too rough to count as a transient.

    Args:
        scale: nights between the two steps that make it count 1/e.
    """
    steps = [after.level - before.level for before, after in pairwise(stretches)]
    found = [0.0] * len(steps)
    for i, (first, second) in enumerate(pairwise(steps)):
        between = stretches[i + 1]
        faded = math.exp(-(between.end - between.first) / scale)
        for k, step in ((i, first), (i + 1, second)):
            if step:
                found[k] = max(found[k], (1 - abs(first + second) / abs(step)) * faded)
    return found


def _log(value: float, low: float, high: float) -> float:
    return math.log(min(max(value, low), high))


def _relative(step: float, scatter: Floats) -> float:
    """ln of a step in units of the scatter that 80 % of all nights stay within, spells included."""
    return _log(step / max(float(np.quantile(scatter, 0.8)), 1e-3), 0.05, 50)


def rank_distance(a: Floats, b: Floats) -> float:
    """|z| of the Mann-Whitney test of two samples; ties count half."""
    n, m = len(a), len(b)
    if not n or not m:
        return 0.0
    ordered = np.sort(a)
    wins = np.searchsorted(ordered, b, side="left") + np.searchsorted(ordered, b, side="right")
    return abs(float(wins.sum()) / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
