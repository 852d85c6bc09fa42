"""bench/statistics/panels_fresh.py: panels whose truth is what their points show, in the format of the scorer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.datasets import ROOT, unpacked

YEAR = ROOT / "tests/data/tokio/edison-summaries_2017-02-14-2018-02-15.csv.xz"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    maker = ROOT / "bench/statistics/panels_fresh.py"
    subprocess.run([sys.executable, maker, YEAR, "1", folder, "--panels", "12"], check=True, timeout=120)
    return folder


def panels(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    truth = json.loads((folder / "truth.json").read_text())
    return [(json.loads((folder / f"panels/{name}.json").read_text()), one) for name, one in truth.items()]


def test_members_of_a_lasting_event_move_on_its_first_night(made: Path) -> None:
    # Levels are flat in these panels, and the median of the sessions since the event is within two scatters of them.
    seen = 0
    for panel, truth in [one for one in panels(made) if one[1]["kind"] == "lasting"]:
        points = {series["id"]: series["points"] for series in panel["series"]}
        for group in truth["groups"]:
            for member in [m for m, snr in zip(group["members"], group["snr"], strict=True) if snr > 4]:
                before, since = (
                    [v for t, v in points[member] if (t >= truth["first_night"]) == k] for k in (False, True)
                )
                assert (median(since) > median(before)) == (group["direction"] == "up")
                seen += 1
    assert seen > 10


def test_four_mornings_are_before_an_event_and_ten_after_its_first_night(made: Path) -> None:
    # README.md in the archive: one to learn what stood already, three before the event, ten from its first night on.
    events = [one for _, one in panels(made) if one["kind"] != "none"]
    assert {one["kind"] for one in events} == {"lasting", "transient"}
    for one in events:
        assert sum(morning < one["first_night"] for morning in one["mornings"]) == 4
        assert sum(morning > one["first_night"] for morning in one["mornings"]) == 10


def test_the_scorer_reads_the_truth(made: Path) -> None:
    truth = json.loads((made / "truth.json").read_text())
    silent = {name: [{"morning": at, "findings": []} for at in one["mornings"]] for name, one in truth.items()}
    (made / "answers.json").write_text(json.dumps(silent))
    scorer = [sys.executable, unpacked("panels") / "score_panels.py", "score", "--truth", made / "truth.json"]
    subprocess.run([*scorer, "--answers", made / "answers.json", "--json", made / "scores.json", "--brief"], check=True)
    scores = json.loads((made / "scores.json").read_text())
    lasting = sum(len(one["groups"]) for one in truth.values() if one["kind"] == "lasting")
    quiet = sum(13 if one["kind"] == "none" else 3 for one in truth.values())
    assert (scores["lasting_events"], scores["quiet_mornings"]) == (lasting, quiet)
    assert scores["lasting_detectable"]["reported"]["10"] == 0
