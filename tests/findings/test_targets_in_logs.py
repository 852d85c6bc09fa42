"""Slow targets of runs as evidence of a finding. Relative times with seeded noise and a planted target."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.core import Output
from iowatch.darshan import DarshanReader, FileSystemTargets, NamedTarget, add_trace_results
from iowatch.darshan.targets import TargetFigures
from iowatch.demo.scenarios import Scenario
from iowatch.findings import finding_document, finding_from_document, targets_of_run
from iowatch.output.dashboard.build import build_site
from iowatch.output.text.findings import finding_lines
from iowatch.store import History, RunFacts
from tests.conftest import ROOT
from tests.darshan.conftest import bad_ost_log, reader
from tests.findings.conftest import FIRST, STEP, RecordAndUpdate, slower_mpiio
from tests.output.dashboard.chosen_pages import pages_named

__all__ = ["bad_ost_log", "reader"]

UNTIL = STEP + timedelta(days=15)


def targets_of_day(day: date, *, is_named: bool) -> FileSystemTargets:
    """Four files on each of twelve targets; from STEP on those on OST 7 take five times as long.

    Args:
        is_named: whether the run itself names the target.
    """
    rng = np.random.default_rng(day.toordinal())
    times = rng.lognormal(0, 0.1, 12)
    is_slow = day >= STEP
    if is_slow:
        times[7] *= 5
    slow = (NamedTarget(7, 4, 5.0, 4, 4, 1e-5),) if is_slow and is_named else ()
    figures = tuple(TargetFigures(target, 4, time) for target, time in enumerate(times.tolist()))
    return FileSystemTargets(None, "files", 48, 12, None, slow, figures)


def with_slow_target(*, is_named: bool = True) -> Scenario:
    facts = []
    for number in range((UNTIL - FIRST).days):
        day = FIRST + timedelta(days=number)
        targets = json.loads(json.dumps(asdict(targets_of_day(day, is_named=is_named))))
        facts.append((day, {"darshan": {"status": "ok", "targets": targets}}))
    return replace(slower_mpiio(), facts=tuple(facts))


@pytest.mark.parametrize("is_named", [True, False])
def test_slow_targets_are_evidence_of_a_finding(record_and_update: RecordAndUpdate, is_named: bool) -> None:
    """Also where no run has enough files to name it: seven runs together do."""
    (finding,) = record_and_update(with_slow_target(is_named=is_named), UNTIL)
    (slow,) = finding.targets_in_logs
    assert (slow.target, slow.other_targets) == (7, 11)
    assert slow.ratio == pytest.approx(5, rel=0.1)
    # At most seven runs on each side.
    assert (slow.slow_after, slow.runs_after, slow.slow_before, slow.runs_before) == (7, 7, 0, 7)


def test_text_and_page_name_the_target(
    record_and_update: RecordAndUpdate, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = record_and_update(with_slow_target(), UNTIL)
    (line,) = [line for line in finding_lines(finding) if line.startswith("Slow targets")]
    assert "OST 7: 5.0 times the median of the other 11 targets (" in line
    assert "so in 7 of 7 runs with files on it since the change, in 0 of 7 before" in line
    assert finding_from_document(json.loads(json.dumps(finding_document(finding)))) == finding
    older = finding_document(finding)
    del older["targets_in_logs"]
    assert finding_from_document(older).targets_in_logs == ()

    monkeypatch.setenv("IOWATCH_ROOT", str(ROOT))  # templates
    build_site(history, tmp_path / "site", pages=pages_named("finding"))
    page = (tmp_path / "site" / "finding" / f"{finding.id}.html").read_text()
    assert "<h3>Slow targets in Darshan logs</h3>" in page
    assert "in 7 of 7 runs with files on it since the change" in page


def test_history_without_targets_names_none(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(slower_mpiio(), UNTIL)
    assert finding.targets_in_logs == ()


@pytest.mark.parametrize("targets", [None, {}, {"slow": 3}, {"slow": [], "figures": [{"osts": 1}]}])
def test_fact_of_another_program_is_as_good_as_absent(targets: dict[str, Any] | None) -> None:
    assert targets_of_run(RunFacts.from_document({"darshan": {"status": "ok", "targets": targets}})) is None
    assert targets_of_run(RunFacts()) is None


def test_run_records_what_its_log_shows(bad_ost_log: Path, reader: DarshanReader) -> None:
    """The public log of NERSC with one bad OST, without its mount point."""
    output = add_trace_results(Output("ior", None, "ok", None, (), {}), [bad_ost_log], reader)
    stored = RunFacts.from_document(json.loads(json.dumps(dict(output.facts))))
    targets = targets_of_run(stored)
    assert targets is not None
    assert (targets.file_system, [slow.target for slow in targets.slow], len(targets.figures)) == (None, [14], 24)
    assert "scratch1" not in json.dumps(stored.document["darshan"]["targets"])


def test_bad_ost_of_edison_is_evidence_of_a_finding(
    record_and_update: RecordAndUpdate, bad_ost_log: Path, reader: DarshanReader
) -> None:
    """The public log stands for the runs since the change; those before used the same 24 OSTs, none of them slow."""
    output = add_trace_results(Output("ior", None, "ok", None, (), {}), [bad_ost_log], reader)
    bad = json.loads(json.dumps(output.facts["darshan"]))
    good = json.loads(json.dumps(bad))
    good["targets"]["slow"] = []
    for entry in good["targets"]["figures"]:
        entry["relative_time"] = 1.0
    facts = []
    for number in range((UNTIL - FIRST).days):
        day = FIRST + timedelta(days=number)
        facts.append((day, {"darshan": bad if day >= STEP else good}))
    (finding,) = record_and_update(replace(slower_mpiio(), facts=tuple(facts)), UNTIL)
    (line,) = [line for line in finding_lines(finding) if line.startswith("Slow targets")]
    assert "OST 14: 45.8 times the median of the other 23 targets (" in line
    assert "so in 7 of 7 runs with files on it since the change, in 0 of 7 before" in line
