"""bench/maintenance.py: maintenances on the nights of a real system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import ROOT

BENCH = ROOT / "bench" / "maintenance.py"


def run(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCH), *map(str, words)], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def test_replay_counts_the_decisions_of_all_trials() -> None:
    lines = run("replay", "--trials", "4", "--losses", "1", "0.1").splitlines()
    rows = [line.split() for line in lines[2:]]
    assert [row[:2] for row in rows] == [["edison", "x1"], ["edison", "x0.1"]]
    for row in rows:
        assert sum(map(int, row[2:5])) == 4
    # A loss to a tenth in three or more series is found whatever the night.
    assert int(rows[1][2]) >= 3
    assert int(rows[0][2]) <= 1


def test_scatter_within_a_job_is_a_fifth_of_the_variance(outside_data: Path) -> None:
    """The constant `WITHIN` of the replay: ARCHER's jobs of ten writes each on five or six days."""
    last = run("within", outside_data / "data/archer-benchio/ARCHER_baseline").splitlines()[-1]
    assert float(last.removeprefix("median ")) == pytest.approx(0.21, abs=0.01)
