"""Runs on nodes whose processors others used: shown with a mark, left out where levels are learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result as CliResult

from iowatch.core import processor_saturation
from iowatch.findings import headline_series, load_observations, proposals, update_findings
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.pages import series, session
from iowatch.output.report import change_lines
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import assess_session
from iowatch.store import History, RunRecord
from tests.builders import build_result, build_run, build_session, store_session

DAY = 86400
START = int(datetime(2025, 1, 1, 2, tzinfo=UTC).timestamp())
DAYS = 40
LATER = datetime(2025, 3, 1, tzinfo=UTC)


def make_run(day: int, speed: float, pressure: float, operation: str = "write") -> RunRecord:
    before = {"time_s": START + day * DAY, "cpu_pressure": pressure, "load_1m": pressure / 2}
    return build_run(
        build_result(speed, operation=operation, case={"ranks": 4, "operation": operation}),
        name=f"ior:{operation}",
        started_at=START + day * DAY,
        facts={"covariates": {"before": before, "after": {**before, "time_s": START + day * DAY + 10}}},
    )


def record_days(history: History, saturated: Sequence[int], share: float = 0.5) -> None:
    """40 nights of 1000 MiB/s with 1 % noise; on the saturated ones a share of it, at a pressure of 99 %."""
    noise = np.random.default_rng(3).normal(0, 0.01, (DAYS, 2))
    for day in range(DAYS):
        is_saturated = day in saturated
        runs: list[RunRecord] = []
        for position, operation in enumerate(("write", "read")):
            speed = 1000 * float(np.exp(noise[day, position])) * (share if is_saturated else 1.0)
            runs.append(make_run(day, speed, 99.0 if is_saturated else 20.0, operation))
        store_session(history, build_session(f"day-{day}", started_at=START + day * DAY), runs)


def test_pressure_from_which_on_a_node_is_saturated() -> None:
    def pressure_of(value: object) -> float | None:
        return processor_saturation({"covariates": {"before": {"cpu_pressure": value}}})

    assert [pressure_of(value) for value in (99.0, 90.0, 89.9, "99", None)] == [99.0, 90.0, None, None, None]
    assert processor_saturation({}) is None


def test_saturated_observations_are_left_out_of_levels(history: History, root: Path) -> None:
    """Ten saturated nights at half the speed would be a step of every series."""
    record_days(history, saturated=range(30, 40))
    rows = headline_series(history, "local")
    assert {len(points.time) for points in load_observations(history, rows).values()} == {30}
    assert {len(points.time) for points in load_observations(history, rows, with_saturated=True).values()} == {40}
    assert update_findings(history, "local", LATER) == []


def test_same_loss_without_saturation_is_found(history: History, root: Path) -> None:
    record_days(history, saturated=())
    for day in range(DAYS, DAYS + 10):
        runs = [make_run(day, 500.0, 89.0, operation) for operation in ("write", "read")]
        store_session(history, build_session(f"day-{day}", started_at=START + day * DAY), runs)
    (finding,) = update_findings(history, "local", LATER)
    assert finding.direction == "down"


def test_saturated_observations_are_left_out_of_proposed_references(history: History, root: Path) -> None:
    """The best value of a night that others disturbed is no bound of what is normal."""
    record_days(history, saturated=range(0, 40, 4), share=0.9)
    levels = proposals.collect_accepted_levels(history, "local", LATER.date())
    assert [len(level.values) for level in levels] == [30, 30]
    assert min(min(level.values) for level in levels) > 950


@pytest.mark.parametrize("saturated", [range(DAYS), [DAYS - 1], [0]], ids=["all", "newest", "first"])
def test_sessions_that_are_saturated_as_a_whole_are_assessed(
    history: History, root: Path, saturated: Sequence[int]
) -> None:
    record_days(history, saturated)
    verdict = assess_session(history, SessionSummary(f"day-{DAYS - 1}"))
    assert verdict.changes == ()
    expected = 2 if DAYS - 1 in saturated else 0
    assert len(verdict.saturated) == expected
    text = "  measured at a processor pressure of 99 %, left out of levels and references: 2 of 2 runs"
    assert (text in change_lines(verdict)) == bool(expected)


def test_history_marks_saturated_runs(history: History, root: Path, cli: Callable[..., CliResult]) -> None:
    record_days(history, saturated=[5])
    shown = cli("history", "show", "day-5").stdout
    mark = "measured at a processor pressure of 99 %, left out of levels and references"
    assert f"ior:write, gnu: {mark}" in shown
    assert f"ior:read, gnu: {mark}" in shown
    assert "pressure" not in cli("history", "show", "day-6").stdout


def test_pages_mark_saturated_observations(history: History, tmp_path: Path) -> None:
    """On the page of the session and in the table of the series, which show them nevertheless."""
    record_days(history, saturated=[DAYS - 1])
    update_findings(history, "local", LATER)
    build_site(history, tmp_path / "site", BuildOptions(sessions=2), pages=[session.PAGE, series.PAGE])
    page = (tmp_path / f"site/session/day-{DAYS - 1}.html").read_text(encoding="utf-8")
    assert page.count("Measured at a processor pressure of 99 %, left out of levels and references.") == 2
    assert "pressure of" not in (tmp_path / f"site/session/day-{DAYS - 2}.html").read_text(encoding="utf-8")
    for path in (tmp_path / "site/series").glob("*.html"):
        assert path.read_text(encoding="utf-8").count("node saturated, 99 %") == 1
