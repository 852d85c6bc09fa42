"""Slow trends: reported next to the findings, never as findings."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest

from tests.findings.conftest import FIRST, RecordAndUpdate, level, scenario_of
from tests.findings.test_commands import Cli

# 0.6 % less per observation for 90 observations: x0.58.
SLOPE = [(FIRST + timedelta(days=n), 0.994) for n in range(1, 90)]


@pytest.fixture
def drifting(record_and_update: RecordAndUpdate) -> None:
    record_and_update(scenario_of(level("MPIIO", "write", *SLOPE), level("POSIX", "write")), date(2025, 4, 1), None)


@pytest.mark.usefixtures("drifting")
def test_ongoing_trend_is_reported_but_is_no_finding(cli: Cli) -> None:
    found = cli("findings", "list", "--json")
    document = json.loads(found.output)
    assert (found.exit_code, document["findings"]) == (0, [])
    (trend,) = document["trends"]
    assert "MPI-IO" in trend["name"]
    assert trend["gain"] == pytest.approx(0.994**89, rel=0.15)
    assert "Slow trends" in cli("findings", "list").output
