"""Slow trends: small ones are listed beside the findings, losses from the setting `slow_loss` on are findings."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.findings.conftest import FIRST, RecordAndUpdate, level, scenario_of
from tests.findings.test_commands import Cli

LARGE_LOSS = 0.994
"""Factor of one observation to the next: ×0.58 in 90 observations."""


def record_slope(record_and_update: RecordAndUpdate, factor: float) -> None:
    """Record 90 sessions in which MPI-IO writes lose a little in each."""
    slope = [(FIRST + timedelta(days=n), factor) for n in range(1, 90)]
    record_and_update(scenario_of(level("MPIIO", "write", *slope), level("POSIX", "write")), date(2025, 4, 1), None)


def test_large_slow_loss_is_a_finding_and_not_listed_again(record_and_update: RecordAndUpdate, cli: Cli) -> None:
    record_slope(record_and_update, LARGE_LOSS)
    listed = cli("findings", "list", "--json")
    document = json.loads(listed.output)
    (finding,) = document["findings"]
    assert (listed.exit_code, finding["pattern"], document["trends"]) == (1, "drift", [])
    assert finding["size"] == pytest.approx(LARGE_LOSS**89, rel=0.15)
    assert "Slow trends" not in cli("findings", "list").output


def test_slow_loss_below_the_setting_is_listed_and_no_finding(
    record_and_update: RecordAndUpdate, cli: Cli, root: Path
) -> None:
    (root / "site.yaml").write_text("thresholds: {slow_loss: 0.5}\n")
    record_slope(record_and_update, LARGE_LOSS)
    found = cli("findings", "list", "--json")
    document = json.loads(found.output)
    assert (found.exit_code, document["findings"]) == (0, [])
    (trend,) = document["trends"]
    assert "MPI-IO" in trend["name"]
    assert trend["gain"] == pytest.approx(LARGE_LOSS**89, rel=0.15)
    assert "Slow trends" in cli("findings", "list").output
