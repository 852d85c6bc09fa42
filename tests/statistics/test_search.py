"""The cached graph that bench/detect_search.py uses for detection, compared with the detector itself."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from iowatch.statistics import DetectorSettings, detect_many
from tests.statistics.series import FAMILIES, Floats, times


def load(path: Path) -> ModuleType:
    """A script as a module; its folder is not added to the path, because bench/darshan.py would hide PyDarshan."""
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GRAPH = load(Path(__file__).resolve().parents[2] / "bench" / "detect_graph.py")
IN_USE = DetectorSettings()
SERIES = 60


def perturbed(seed: int, shift: float, drift_penalty: float) -> DetectorSettings:
    """Each weight times 0.2 to 2, so that other steps have the lowest confidence; the intercepts shifted."""
    rng = np.random.default_rng(seed)
    (a, *facts), (b, *others) = IN_USE.settled_weights, IN_USE.newest_weights
    return replace(
        IN_USE,
        settled_weights=(a + shift, *(float(w * rng.uniform(0.2, 2)) for w in facts)),
        newest_weights=(b + shift, *(float(w * rng.uniform(0.2, 2)) for w in others)),
        drift_penalty=drift_penalty,
    )


WEIGHTS = {"in use": IN_USE, "stricter": perturbed(1, -2.0, 0.0), "laxer": perturbed(2, 1.0, 9.0)}


def simulated_logs(rng: np.random.Generator, number: int) -> Floats:
    """ln values of a family: up to four levels, some with a short first or newest one, some on a slope."""
    n = int(rng.integers(20, 180))
    logs = list(FAMILIES.values())[number % len(FAMILIES)](rng, n)
    if number % 4 == 0:
        logs += np.linspace(0, rng.choice([-0.5, 0.4]), n)
    for at in rng.integers(5, n - 4, rng.integers(0, 4)):
        logs[at:] += rng.choice([-0.7, -0.2, -0.1, 0.1, 0.2, 0.7])
    if number % 3 == 0:
        logs[: rng.integers(5, 12)] += rng.choice([-0.3, 0.3])
    if number % 5 == 0:
        logs[-rng.integers(2, 7) :] += rng.choice([-0.7, 0.7])
    return logs


@pytest.fixture(scope="module")
def series() -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(32)
    return [(times(len(logs)), np.exp(logs)) for logs in (simulated_logs(rng, i) for i in range(SERIES))]


@pytest.fixture(scope="module")
def graph(series: list[tuple[Floats, Floats]]) -> list[Any]:
    """One graph for all weights, so that cached states of one are used by the next."""
    states: list[Any] = GRAPH.roots([np.log(values) for _, values in series], IN_USE)
    return states


@pytest.mark.parametrize("weights", WEIGHTS)
def test_graph_gives_the_results_of_the_detector(
    series: list[tuple[Floats, Floats]], graph: list[Any], weights: str
) -> None:
    """Exactly the same numbers: both compute the same sums in the same order."""
    settings = WEIGHTS[weights]
    detections = detect_many(series, settings=settings)
    states = [GRAPH.assess(root, settings) for root in graph]
    assert [[(s.first, s.end - 1, math.exp(s.level)) for s in state.segments] for state in states] == [
        [(level.index, level.last_index, level.value) for level in detection.levels] for detection in detections
    ]
    assert [[tuple(change.values()) for change in state.changes] for state in states] == [
        [(change.index, change.direction, change.ratio) for change in detection.changes] for detection in detections
    ]


def test_series_cover_all_outcomes_of_the_graph(graph: list[Any]) -> None:
    """All outcomes of a step, and different results for other weights; otherwise the test above shows little."""
    ends = [[GRAPH.assess(root, settings) for root in graph] for settings in WEIGHTS.values()]
    pairs = [(root, end) for group in ends for root, end in zip(graph, group, strict=True)]
    assert sum(len(end.segments) < len(root.segments) for root, end in pairs) >= 20
    assert sum(end.series.away.sum() > root.series.away.sum() for root, end in pairs) >= 3
    assert sum(root.sloped(0.0) is not root for root in graph) >= 3
    dated_once = [_dated_once(root, settings) for settings in WEIGHTS.values() for root in graph]
    assert sum(len(end.segments) < len(once) for (_, end), once in zip(pairs, dated_once, strict=True)) >= 2
    assert sum(len({len(end.segments) for end in same}) > 1 for same in zip(*ends, strict=True)) >= 10


def _dated_once(root: Any, settings: DetectorSettings) -> list[Any]:
    """The levels before their dates reduce the confidence of further steps."""
    dated = GRAPH._credible(root, settings).sloped(settings.drift_penalty).dated
    segments: list[Any] = dated.segments
    return segments
