"""Covariates of a finding: what went on around the runs and differs. Planted values on seeded noise."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.demo.scenarios import Scenario
from iowatch.findings import finding_document, finding_from_document
from iowatch.findings.evidence import _covariate_shift, covariate_differences
from iowatch.output.dashboard.build import build_site
from iowatch.output.text.evidence import covariate_cells
from iowatch.output.text.findings import finding_line, finding_lines
from iowatch.store import History
from tests.conftest import ROOT
from tests.findings.conftest import FIRST, STEP, RecordAndUpdate, slower_mpiio
from tests.output.dashboard.chosen_pages import pages_named

UNTIL = STEP + timedelta(days=15)


def day_facts(day: date, rng: np.random.Generator) -> dict[str, Any]:
    """From STEP on twice the load, half the rate of writing and a shorter read-ahead; nothing else changes."""
    changed = day >= STEP
    before = {
        "time_s": 1000.0,
        "load_1m": (8.0 if changed else 4.0) * rng.lognormal(0, 0.1),
        "memory_cached_bytes": 2.0**30 * rng.lognormal(0, 0.3),
        "fill": 40.0 + 0.001 * rng.standard_normal(),
        "client_written_bytes": 0,
        "setting:read_ahead_kib": 128 if changed else 4096,
    }
    after = {"time_s": 1010.0, "client_written_bytes": (5e6 if changed else 1e7) * rng.lognormal(0, 0.1)}
    return {"covariates": {"before": before, "after": after}}


def with_covariates() -> Scenario:
    rng = np.random.default_rng(1)
    days = [FIRST + timedelta(days=number) for number in range((UNTIL - FIRST).days)]
    return replace(slower_mpiio(), facts=tuple((day, day_facts(day, rng)) for day in days))


def test_covariates_and_settings_that_differ_are_shown(
    record_and_update: RecordAndUpdate, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = record_and_update(with_covariates(), UNTIL)
    assert [one.name for one in finding.covariates] == ["load_1m", "client_written_bytes"]
    load, written = finding.covariates
    # The medians of what was planted, 10 % scatter; 5e6 and 1e7 bytes in 10 s.
    assert (load.before, load.after, load.usual) == (
        pytest.approx(4, rel=0.1),
        pytest.approx(8, rel=0.1),
        pytest.approx(4, rel=0.1),
    )
    assert 3 < load.lowest < load.usual < load.highest < 5.5
    assert (written.usual, written.after, written.unit) == (
        pytest.approx(1e6, rel=0.1),
        pytest.approx(5e5, rel=0.1),
        "bytes/s",
    )
    # The runs became slower: what they wrote themselves comes last, and is marked.
    assert (load.includes_run, written.includes_run) == (False, True)

    (found,) = [d for d in finding.differences if d.where == "settings"]
    assert (found.what, found.before, found.after) == ("read_ahead_kib", "4096", "128")
    assert "read_ahead_kib differs" in finding_line(finding)

    lines = [line for line in finding_lines(finding) if "load average" in line]
    assert len(lines) == 1
    assert lines[0].startswith("Around the runs")
    assert finding_from_document(finding_document(finding)) == finding
    older = finding_document(finding)
    del older["covariates"]
    assert finding_from_document(older).covariates == ()

    monkeypatch.setenv("IOWATCH_ROOT", str(ROOT))  # templates
    build_site(history, tmp_path / "site", pages=pages_named("finding"))
    page = (tmp_path / "site" / "finding" / f"{finding.id}.html").read_text()
    for cell in covariate_cells(load):
        assert cell in page

    label, _, after, _, span = covariate_cells(
        replace(finding.covariates[1], after=2.0**21, lowest=0.0, highest=1024.0)
    )
    assert label.endswith("(with the runs themselves)")
    assert (after, span) == ("2 MiB/s", "0 B/s to 1 KiB/s")


def test_runs_without_covariates_have_none(record_and_update: RecordAndUpdate, history: History) -> None:
    (found,) = record_and_update(slower_mpiio(), UNTIL)
    points = history.points([member.series_id for member in found.members])
    assert found.covariates == ()
    assert covariate_differences(history, found.members, points) == ()


@pytest.mark.parametrize(("shift", "lowest", "highest"), [(0.0, 0.0, 0.02), (3.0, 0.9, 1.0)])
def test_shifts_are_told_from_chance(shift: float, lowest: float, highest: float) -> None:
    """Share of 500 seeded covariates that are shown: 30 runs before and 7 after, a shift in standard deviations."""
    rng = np.random.default_rng(3)
    shown = 0
    for _ in range(500):
        values = rng.normal(10, 1, 37) + np.repeat([0.0, shift], [30, 7])
        runs = [{"load_1m": float(value)} for value in values]
        shown += _covariate_shift("load_1m", runs[:30], runs[30:]) is not None
    assert lowest <= shown / 500 <= highest
