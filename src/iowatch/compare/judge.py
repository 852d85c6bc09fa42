"""From estimates to verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.compare.estimate import FEWEST, Sides
from iowatch.compare.records import Settings, Verdict, percent
from iowatch.metrics import metric


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with the x of "no difference above x %" (a fraction) and the reason in words."""

    verdict: Verdict
    bound: float | None
    reason: str


def goodness(name: str) -> int:
    """+1 where a higher value of the metric is better, -1 where a lower is, 0 where neither."""
    return {"higher": 1, "lower": -1, "neutral": 0}[metric(name).direction]


def decide(p: float | None, ci: tuple[float, float] | None, sign: int, settings: Settings) -> Decision:
    """Verdict of a ratio.

    Faster and slower need both: the corrected test rejects, and the interval leaves 1 out. The interval
    protects where the sides' spreads differ, which rank tests mistake for a difference.

    Args:
        p: corrected p value, or None where there is none.
        ci: interval of right / left, or None.
        sign: from `goodness`.
        settings: with alpha, negligible and widest.
    """
    if p is None or ci is None:
        return Decision("not enough data", None, "too few runs to know the noise")
    low, high = ci
    bound = max(high - 1, 1 - low)
    if p <= settings.alpha and not low <= 1 <= high and bound > settings.negligible:
        verdict: Verdict = "faster" if (low > 1) == (sign > 0) else "slower"
        return Decision(verdict, None, f"corrected p = {p:.2g}, interval leaves 1 out")
    if bound <= settings.widest:
        return Decision(
            "no difference", bound, f"the {settings.level:.0%} interval lies within {percent(bound)}"
        )
    return Decision("not enough data", None, f"the interval reaches {percent(bound)} from 1")


def too_few(sides: Sides) -> str | None:
    """Why the nights are too few for any statement about noise, or None."""
    if sides.fewest >= FEWEST:
        return None
    left, right = (len(side) for side in (sides.left, sides.right))
    runs = f"{left} run{'s' * (left != 1)} on the left, {right} on the right"
    return f"{runs}: the noise from run to run is not known below {FEWEST} a side"


def threshold(adjusted: Sequence[float | None], alpha: float) -> float:
    """The p value that one more pair must reach for Benjamini-Hochberg to accept it."""
    known = [p for p in adjusted if p is not None]
    accepted = sum(p <= alpha for p in known)
    return alpha * min(1.0, (accepted + 1) / max(1, len(known)))
