"""Covariates of runs in detection and in findings: what is used, stored, switched off and printed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from iowatch.findings import (
    finding_document,
    finding_from_document,
    headline_series,
    load_observations,
    update_findings,
)
from iowatch.findings.detections import detect_series, load_covariates
from iowatch.findings.finding import LoadShare
from iowatch.output.text.findings import finding_line, finding_lines
from iowatch.store import History, write
from tests.builders import build_result, build_run, build_session
from tests.findings.test_commands import Cli

DAY = 86400
START = int(datetime(2025, 1, 1, 2, tzinfo=UTC).timestamp())
DAYS, STEP = 80, 50


def record_days(history: History, own_change: float = 1.0) -> None:
    """Writes and reads that lose 1 % per running job; jobs rise from about 20 to 60 on STEP; the own change, too."""
    rng = np.random.default_rng(1)
    with history.writing() as connection:
        for day in range(DAYS):
            time, jobs = START + day * DAY, float(rng.integers(10, 30) + 40 * (day >= STEP))
            session = build_session(f"day-{day}", system="site", started_at=time)
            write.insert_session(connection, session, ())
            runs = []
            for operation in ("write", "read"):
                speed = 1000 * np.exp(-0.01 * jobs + 0.02 * rng.standard_normal()) * (own_change if day >= STEP else 1)
                # A run that waits longer is slower: no reason to call the load the cause.
                before = {"time_s": time, "jobs_running": jobs, "client_wait_s": 0.0, "client_written_bytes": 0}
                after = {"time_s": time + 10, "client_wait_s": 1e4 / speed, "client_written_bytes": 1e9 * speed}
                facts = {"covariates": {"before": before, "after": after}}
                runs.append(
                    build_run(
                        build_result(speed, operation=operation, case={"ranks": 4}),
                        name=operation,
                        stack="one",
                        started_at=time,
                        facts=facts,
                    )
                )
            write.insert_runs(connection, session.uuid, runs)


def test_covariates_of_the_runs_are_aligned_with_the_observations(history: History) -> None:
    record_days(history)
    rows = headline_series(history, "site")
    points = load_observations(history, rows)
    (table, _) = load_covariates(history, rows, {number: one.run_id for number, one in points.items()})
    assert table is not None
    # Time that the run waited is a consequence; traffic of the run itself may only slow it.
    assert table.names == ("client_written_bytes", "jobs_running")
    assert table.signs.tolist() == [-1.0, 0.0]
    jobs = table.values[:, 1]
    assert jobs.shape == (DAYS,)
    assert jobs[:STEP].max() < 30 < 50 <= jobs[STEP:].min()


def test_a_change_of_the_load_is_found_and_attributed(history: History, root: Path) -> None:
    record_days(history)
    (finding,) = update_findings(history, "site", datetime(2025, 4, 1, tzinfo=UTC))
    # 40 jobs at 1 % each: exp(-0.4) = 0.67.
    assert finding.direction == "down"
    assert finding.size == pytest.approx(0.67, abs=0.03)
    assert finding.load is not None
    assert finding.load.share > 0.9
    assert finding.load.covariates == ("jobs_running",)
    assert f"{100 * finding.load.share:.0f} % explained by jobs running on the system" in finding_line(finding)
    text = "\n".join(finding_lines(finding))
    assert "of the change goes along with jobs running on the system" in text
    assert "2 of 2 series are adjusted for it; it predicts" in text
    assert finding_from_document(finding_document(finding)) == finding


def test_detect_prints_what_series_are_adjusted_for(history: History, root: Path, cli: Cli) -> None:
    record_days(history)
    assert "2 adjusted for jobs running on the system" in cli("detect", "--system", "site").output


def test_a_change_of_the_store_is_not_attributed(history: History, root: Path) -> None:
    """Of the whole loss, ln 0.67 + ln 0.37, the load explains less than half: the line does not mention it."""
    record_days(history, own_change=0.37)
    (finding,) = update_findings(history, "site", datetime(2025, 4, 1, tzinfo=UTC))
    assert finding.load is not None
    assert finding.load.share == pytest.approx(0.4 / (0.4 + 0.99), abs=0.05)
    assert "explained" not in finding_line(finding)


def test_a_stored_finding_without_load_still_loads(history: History, root: Path) -> None:
    record_days(history)
    (finding,) = update_findings(history, "site", datetime(2025, 4, 1, tzinfo=UTC))
    document = finding_document(finding)
    del document["load"]
    assert isinstance(finding.load, LoadShare)
    assert finding_from_document(document).load is None


def test_a_system_can_switch_the_adjustment_off(history: History, root: Path) -> None:
    record_days(history)
    rows = headline_series(history, "site")
    assert all(one.adjustment for one in detect_series(history, rows, {}).values())
    (root / "systems" / "site").mkdir()
    described = root / "systems" / "site" / "system.yaml"
    described.write_text("name: site\ntitle: Site\ncovariates: {adjust: false}\n")
    # Stored detections of the other kind are not used.
    assert not any(one.adjustment for one in detect_series(history, rows, {}).values())


def test_runs_without_covariates_are_not_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest runs are examined."""
    with history.writing() as connection:
        for day in range(20):
            write.insert_session(connection, build_session(f"{day}", system="site", started_at=START + day * DAY), ())
            run = build_run(build_result(100.0 + day % 3), name="w", stack="one", started_at=START + day * DAY)
            write.insert_runs(connection, f"{day}", [run])
    read: list[int] = []
    whole = History.run_facts
    monkeypatch.setattr(History, "run_facts", lambda *args: read.append(len(args[1])) or whole(*args))
    detect_series(history, headline_series(history, "site"), {})
    # Once for saturated nodes, once for the adjustment.
    assert read == [3, 3]
    assert history.run_covariates(list(range(100))) == {}


def test_facts_of_a_run_are_read_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    record_days(history)
    rows = headline_series(history, "site")
    points = load_observations(history, rows)
    (first, _) = load_covariates(history, rows, {number: one.run_id for number, one in points.items()})
    read: list[int] = []
    whole = History.run_facts
    monkeypatch.setattr(History, "run_facts", lambda *args: read.extend(args[1]) or whole(*args))
    (again, _) = load_covariates(history, rows, {number: one.run_id for number, one in points.items()})
    assert read == []
    assert first is not None
    assert again is not None
    assert again.names == first.names
    np.testing.assert_array_equal(again.values, first.values)
