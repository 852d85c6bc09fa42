"""The detector's last stage, cached: thousands of series are assessed for other weights within milliseconds.

Only what follows the search for levels depends on the weights of the confidence (`settled_weights`,
`newest_weights`, `min_confidence`) and on `drift_penalty`. So a series becomes a graph of states: each has
its levels and, computed on demand, the facts of its steps and the states without a step, with a slope instead of
steps, and with dated borders. The detector's own functions compute all of that; this module only walks
through the states. tests/statistics/test_search.py compares its results with those of `detect_many`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from operator import mul
from typing import TypedDict

import numpy as np

from iowatch.statistics import DetectorSettings, steps
from iowatch.statistics.method import Floats
from iowatch.statistics.segments import Segment, SeriesFit, segment_many, step_penalty
from iowatch.statistics.steps import StepFeatures, step_features


class Change(TypedDict):
    """A reported step, in the form of the scorer in changes.tar.xz."""

    index: int
    direction: str
    magnitude: float


class State:
    """Levels of a series at one point of its assessment. `series.away` belongs to the state and does not change."""

    def __init__(self, series: SeriesFit, segments: list[Segment]) -> None:
        self.series = series
        self.segments = segments
        self._merged: dict[int, State] = {}
        self._sloped: dict[float, State] = {}

    @cached_property
    def facts(self) -> list[tuple[StepFeatures, bool]]:
        """Of each step: its facts, and whether its level is the newest and short."""
        return step_features(self.series, self.segments)

    def without(self, step: int) -> State:
        """Without one step: as `rules.drop_doubtful_steps` removes it."""
        if step not in self._merged:
            series = replace(self.series, away=self.series.away.copy())
            segments = steps.remove_step(series, self.segments, step)
            self._merged[step] = State(series, segments)
        return self._merged[step]

    def sloped(self, drift_penalty: float) -> State:
        """With slopes in place of the steps that they describe better; `drift_penalty` >= 0."""
        if drift_penalty not in self._sloped:
            # Where no slope pays at a penalty of 0, none pays at all: so for most states.
            never = drift_penalty > 0 and self.sloped(0.0) is self
            self._sloped[drift_penalty] = self if never else self._with_slopes(drift_penalty)
        return self._sloped[drift_penalty]

    def _with_slopes(self, drift_penalty: float) -> State:
        settings = replace(self.series.settings, drift_penalty=drift_penalty)
        price = step_penalty(len(self.series.logs), settings)
        segments, drifts = steps.extract_drifts(replace(self.series, settings=settings), self.segments, price)
        return State(self.series, segments) if drifts else self

    @cached_property
    def dated(self) -> State:
        """With each border at its date."""
        return State(self.series, steps.redate_segments(self.series, self.segments))

    @cached_property
    def changes(self) -> list[Change]:
        """The steps whose new level is confirmed."""
        return [
            Change(
                index=after.first,
                direction="up" if after.level > before.level else "down",
                magnitude=math.exp(after.level - before.level),
            )
            for before, after in pairwise(self.segments)
            if after.end - after.first >= self.series.settings.confirm_observations
        ]


def roots(logs: Sequence[Floats], settings: DetectorSettings) -> list[State]:
    """The state of each series before its doubtful steps are dropped.

    Args:
        logs: ln of the values in time order, each of at least `settings.min_observations` observations.
        settings: all but the weights, `min_confidence` and `drift_penalty` hold for all later assessments.
    """
    found = []
    permissive = replace(settings, min_confidence=0.0)
    for observations, (path, noise) in zip(logs, segment_many(logs, settings), strict=True):
        series = SeriesFit(observations, noise, permissive, np.zeros(len(observations), dtype=bool))
        segments, _ = steps.refine_segments(series, series.segments(path), step_penalty(len(observations), settings))
        found.append(State(replace(series, settings=settings), segments))
    return found


def assess(root: State, settings: DetectorSettings) -> State:
    """The state that the detector ends in by the weights, least confidence and drift penalty given."""
    state = _credible(root, settings).sloped(settings.drift_penalty)
    while True:
        dated = state.dated
        state = _credible(dated, settings)
        if state is dated:
            return dated


def _credible(state: State, settings: DetectorSettings) -> State:
    """The state without doubtful steps, the most doubtful one dropped first."""
    least_odds = math.log(settings.min_confidence / (1 - settings.min_confidence))
    weights = (settings.settled_weights, settings.newest_weights)
    while len(state.segments) > 1:
        odds = [sum(map(mul, weights[newest], facts)) if facts else -math.inf for facts, newest in state.facts]
        least = min(odds)
        if least >= least_odds:
            break
        state = state.without(odds.index(least))
    return state
