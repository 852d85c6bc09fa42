"""The answer over all pairs, and how it depends on writers or nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log

import numpy as np
from scipy import special

from iowatch.compare.bootstrap import interval, p_value, spread_of
from iowatch.compare.judge import Decision, decide, goodness
from iowatch.compare.ranks import FEWEST_PAIRS, signed_rank
from iowatch.compare.records import (
    Basis,
    Comparison,
    Dependence,
    Estimate,
    Floats,
    Overall,
    Peak,
    ScalingPoint,
    Settings,
    Verdict,
)

_VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "no difference", "not enough data")
_AXES = ("ranks", "nodes", "instances")
_FEWEST_CASES = 3


def summarise_all(
    compared: Sequence[Comparison], estimates: Sequence[Estimate | None], settings: Settings
) -> Overall:
    """Combine pairs.

    Args:
        compared: judged pairs.
        estimates: of the median of each pair, None where there are no samples; same order.
        settings: as of the pairs.
    """
    counts = Counter(one.verdict for one in compared)
    ratio, ci, p, basis = _combined(compared, estimates, settings)
    decision = decide(p, ci, 1, settings) if compared else Decision("not enough data", None, "no pairs")
    return Overall(
        counts={verdict: counts[verdict] for verdict in _VERDICTS},
        ratio=ratio,
        ci=ci,
        basis=basis,
        verdict=decision.verdict,
        bound=decision.bound,
        reason=decision.reason,
        scaling=scaling(compared),
        peaks=_peaks(compared),
    )


_Combined = tuple[float | None, tuple[float, float] | None, float | None, Basis]


def _combined(
    compared: Sequence[Comparison], estimates: Sequence[Estimate | None], settings: Settings
) -> _Combined:
    logs = np.array([log_gain(one) for one in compared if one.ratio is not None])
    if not len(logs):
        return None, None, None, "none"
    drawn = [
        (one, goodness(one.metric) * found.draws, found.dependence.spread)
        for one, found in zip(compared, estimates, strict=True)
        if found is not None and found.draws is not None
    ]
    if drawn and len(drawn) == len(logs):
        return _over_nights(logs, drawn, settings)
    return _over_cases(logs, settings)


def _over_nights(
    logs: Floats, drawn: Sequence[tuple[Comparison, Floats, float]], settings: Settings
) -> _Combined:
    """All pairs were drawn with the same nights, so the draws of their mean carry their dependence on each
    other; how neighbouring nights hang together is in the draws of each."""
    centre = float(logs.mean())
    draws = np.mean([each for _, each, _ in drawn], axis=0)
    together = Dependence(spread=float(np.median([spread for *_, spread in drawn])))
    spread = spread_of(draws, min(_nights(one) for one, *_ in drawn), together)
    low, high = interval(centre, draws, spread, settings.level)
    paired = all(one.paired for one, *_ in drawn)
    basis: Basis = "paired nights" if paired else "nights"
    return exp(centre), (exp(low), exp(high)), p_value(centre, spread), basis


def _nights(one: Comparison) -> int:
    return min(one.left.runs or 1, one.right.runs or 1)


def _over_cases(logs: Floats, settings: Settings) -> _Combined:
    """Without samples the cases are the sample: an answer about cases like these, not about other nights."""
    n = len(logs)
    centre = float(logs.mean())
    if n < _FEWEST_CASES:
        return exp(centre), None, None, "none"
    error = float(logs.std(ddof=1)) / n**0.5
    half = float(special.stdtrit(n - 1, (1 + settings.level) / 2)) * error
    student = float(2 * special.stdtr(n - 1, -abs(centre) / error)) if error else float(centre == 0)
    p = float(signed_rank(logs[None, :])[0]) if n >= FEWEST_PAIRS else student
    return exp(centre), (exp(centre - half), exp(centre + half)), p, "cases"


def log_gain(one: Comparison) -> float:
    """Log of how many times as fast right is as left; 0 where the metric has no better direction."""
    return goodness(one.metric) * log(one.ratio) if one.ratio is not None else 0.0


def scaling(compared: Sequence[Comparison]) -> Mapping[str, tuple[ScalingPoint, ...]]:
    """Ratios by each parameter of size that takes several values."""
    found = {}
    for axis in _AXES:
        groups: dict[int, list[float]] = defaultdict(list)
        for one in compared:
            value = one.case.parameters.get(axis)
            if one.ratio is not None and isinstance(value, int | float):
                groups[int(value)].append(log_gain(one))
        if len(groups) > 1:
            found[axis] = tuple(_point(value, groups[value]) for value in sorted(groups))
    return found


def _point(value: int, gains: Sequence[float]) -> ScalingPoint:
    return ScalingPoint(value, len(gains), exp(sum(gains) / len(gains)), exp(min(gains)), exp(max(gains)))


def _peaks(compared: Sequence[Comparison]) -> tuple[Peak, ...]:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in compared:
        name = "max" if goodness(one.metric) > 0 else "min"
        best = getattr(one.left, name), getattr(one.right, name)
        if best[0] and best[1]:
            groups[str(one.case.parameters.get("operation", "")), one.metric].append(best)
    found = []
    for (operation, metric), values in sorted(groups.items()):
        best_of = max if goodness(metric) > 0 else min
        found.append(Peak(operation, metric, *(best_of(side) for side in zip(*values, strict=True))))
    return tuple(found)
