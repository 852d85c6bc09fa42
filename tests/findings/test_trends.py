"""Slow trends: told beside the findings, never as one."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest

from tests.findings.conftest import FIRST, Watch, level, story
from tests.findings.test_commands import Cli

# 0.6 % less each night for 90 nights: x0.58.
SLOPE = [(FIRST + timedelta(days=n), 0.994) for n in range(1, 90)]


@pytest.fixture
def drifting(watch: Watch) -> None:
    watch(story(level("MPIIO", "write", *SLOPE), level("POSIX", "write")), date(2025, 4, 1), None)


@pytest.mark.usefixtures("drifting")
def test_a_trend_that_goes_on_is_told_and_is_no_finding(cli: Cli) -> None:
    found = cli("findings", "list", "--json")
    document = json.loads(found.output)
    assert (found.exit_code, document["findings"]) == (0, [])
    (trend,) = document["trends"]
    assert "MPIIO" in trend["name"]
    assert trend["gain"] == pytest.approx(0.994**89, rel=0.15)
    assert "Slow trends" in cli("findings", "list").output
