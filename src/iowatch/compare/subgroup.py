"""Where a difference is concentrated: the shortest rule over case parameters, by the code that explains
findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Literal

from iowatch.compare.overall import log_gain
from iowatch.compare.records import Comparison, Settings
from iowatch.explain import Observation, explain

_FEWEST = 4  # pairs: below, any rule is chance


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A rule for the pairs that are faster, or for those that are slower.

    Attributes:
        rule: in words.
        inside, inside_total: pairs that meet the rule: how many are faster (slower), and of how many.
        outside, outside_total: the same of the other pairs.
        ratio: how many times as fast right is as left over the pairs inside that differ (geometric mean).
    """

    direction: Literal["faster", "slower"]
    rule: str
    inside: int
    inside_total: int
    outside: int
    outside_total: int
    ratio: float


def subgroups(compared: Sequence[Comparison], settings: Settings) -> tuple[Subgroup, ...]:
    """At most one rule for each direction; none where a rule says nothing.

    Pairs of printed figures have no verdict; they count as different beyond `settings.difference`.
    """
    usable = [one for one in compared if one.ratio is not None]
    if len(usable) < _FEWEST:
        return ()
    found = (_subgroup(usable, direction, settings) for direction in ("faster", "slower"))
    return tuple(group for group in found if group is not None)


def _subgroup(
    usable: Sequence[Comparison], direction: Literal["faster", "slower"], settings: Settings
) -> Subgroup | None:
    sign = 1 if direction == "faster" else -1
    changed = [_differs(one, settings) == direction for one in usable]
    gains = [log_gain(one) for one in usable]
    explanation = explain(
        [
            Observation({"benchmark": one.case.benchmark, **one.case.parameters}, differs, gain)
            for one, differs, gain in zip(usable, changed, gains, strict=True)
        ]
    )
    rule = explanation.rule
    if rule is None:
        return None
    inside = [gain for gain, differs in zip(gains, changed, strict=True) if differs and sign * gain > 0]
    return Subgroup(
        direction=direction,
        rule=rule.text,
        inside=rule.changed_in,
        inside_total=rule.total_in,
        outside=rule.changed_out,
        outside_total=rule.total_out,
        ratio=exp(sum(inside) / len(inside)),
    )


def _differs(one: Comparison, settings: Settings) -> str | None:
    if one.p is None and one.left.runs is None and one.right.runs is None:
        gain = log_gain(one)
        large = abs(gain) > log(1 + settings.difference)
        return None if not large else "faster" if gain > 0 else "slower"
    return one.verdict if one.verdict in ("faster", "slower") else None
