"""The scores on the series with known changes; the figures of docs/detection.md must not get worse."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path

import pytest

from iowatch.detect import detect_many

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "changes"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the series with known changes in {DATA}")
def test_scores_on_real_noise() -> None:
    spec = util.spec_from_file_location("changes_score", DATA / "score.py")
    assert spec is not None
    assert spec.loader is not None
    scorer = util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    cases = json.loads((DATA / "cases_shown.json").read_text())["cases"]
    answers = detect_many([tuple(zip(*case["series"], strict=True)) for case in cases])
    found = {
        case["id"]: [{"index": c.index, "direction": c.direction, "magnitude": c.ratio} for c in answer.changes]
        for case, answer in zip(cases, answers, strict=True)
    }
    score = scorer.score(json.loads((DATA / "truth_shown.json").read_text()), found)
    assert score["precision"] >= 0.95
    assert score["f1"] >= 0.87
    assert score["recall_detectable"] >= 0.92
    assert score["fa_per_series_year"] <= 0.05
    assert score["outlier_reported"] <= 0.005
    assert score["temp_flagged"] <= 0.05
    assert score["drift_reports_per_series"] <= 0.34
