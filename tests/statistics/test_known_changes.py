"""The scores on the series with known changes; the figures of docs/detection-scores.md must not get worse."""

from __future__ import annotations

import json
from importlib import import_module, util
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from iowatch.statistics import detect_many
from tests.datasets import ROOT, unpacked
from tests.statistics.series import times

DATA = unpacked("changes")


@pytest.fixture(scope="module")
def scorer() -> ModuleType:
    spec = util.spec_from_file_location("changes_score", DATA / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name).read_text())
    return found


def detect_cases(cases: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    answers = detect_many([tuple(zip(*case["series"], strict=True)) for case in cases])
    return {
        case["id"]: [{"index": c.index, "direction": c.direction, "magnitude": c.ratio} for c in answer.changes]
        for case, answer in zip(cases, answers, strict=True)
    }


# The bounds are the targets of the detector (docs/detection-scores.md), less one or two steps where it only just meets
# one, because another processor may round a borderline step differently.


def test_scores_on_real_noise_reach_the_targets(scorer: ModuleType) -> None:
    score = scorer.score(read("truth_shown.json"), detect_cases(read("cases_shown.json")["cases"]))
    assert score["precision"] >= 0.95
    assert score["f1"] >= 0.886
    assert score["recall_detectable"] >= 0.94
    assert score["fa_per_series_year"] <= 0.05
    assert score["outlier_reported"] <= 0.005
    assert score["temp_flagged"] <= 0.05
    assert score["drift_reports_per_series"] <= 0.34


@pytest.mark.slow
def test_scores_with_daily_detection_reach_the_targets(scorer: ModuleType) -> None:
    truth = read("truth_online_shown.json")
    score = scorer.online(truth, detect_cases(scorer.expand(read("online_shown.json"), truth)["cases"]))
    assert score["delay_median_snr2"] <= 4
    assert score["never_snr2"] <= 2 / 46  # the target of 3 % is missed: docs/detection-scores.md states why
    assert score["online_fa_per_series_year"] <= 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("width", "shortest", "longest"), [(51, 7, 7), (31, 10, 40)])
def test_short_histories_of_real_noise_have_few_false_alarms(
    width: int, shortest: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 0.3 false alarms per series-year with 7 to 20 observations, including natural bursts (issue: Detection).

    The noise consists of blocks of the real series minus their running median of `width` observations.
    """
    monkeypatch.syspath_prepend(ROOT / "bench/statistics")
    simulated = import_module("simulated_series")
    noise = simulated.blocks(simulated.residuals(width), lambda rng: int(rng.integers(shortest, longest + 1)))
    rng = np.random.default_rng(4)
    histories = [noise(rng, int(rng.integers(7, 21))) for _ in range(3000)]
    answers = detect_many([(times(len(logs)), np.exp(logs)) for logs in histories])
    alarms = sum(len(answer.changes) for answer in answers)
    assert alarms / (sum(map(len, histories)) / 365) <= 0.3
