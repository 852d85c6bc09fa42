"""Reasons of incomplete sessions from ReFrame's log and report."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import RunKey
from iowatch.session import reframe
from iowatch.session.missing_reasons import reasons_of_failures
from iowatch.session.reframe import ReframeSite

# ReFrame 4.10.4 with a Slurm that keeps no accounts, shortened.
LOG = """[==========] Finished on Sat Nov 21 05:48:56 2026+0000
ERROR: run session stopped: spawned process error: command 'sacct -j 2' failed with exit code 1:
--- stdout ---
--- stdout ---
--- stderr ---
Slurm accounting storage is disabled

--- stderr ---
Log file(s) saved in '/tmp/rfm.log'
"""


def test_abort_reason_of_reframe_is_reported(tmp_path: Path) -> None:
    (tmp_path / "reframe.log").write_text(LOG)
    (tmp_path / "report.json").write_text('{"runs": [{"testcases": []}]}')
    (failure,) = reframe.read_failures(tmp_path, ReframeSite("x", tmp_path, (), {}))
    assert failure.reason == (
        "run session stopped: spawned process error: command 'sacct -j 2' failed with exit code 1: "
        "Slurm accounting storage is disabled"
    )


OWN = reframe.ReframeFailure("BenchioCheck %entry=tiny/api=posix", "gnu", "run", "node down")
OTHER = reframe.ReframeFailure("BenchioCheck %entry=tiny/api=hdf5", "gnu", "run", "cancelled")
BUILD = reframe.ReframeFailure("BuildBenchio ~x:default+gnu", "gnu", "sanity", "no compiler")
LONGER = reframe.ReframeFailure("BenchioCheck %entry=tiny/api=posix,ranks=4", "gnu", "run", "of another case")
OF_IOR = reframe.ReframeFailure("IorCheck %entry=tiny/api=posix", "gnu", "run", "of another benchmark")
WHOLE = reframe.ReframeFailure("ReFrame", "", "run", "gave up")


@pytest.mark.parametrize(
    ("failures", "stopped", "reason"),
    [
        ((), None, ""),
        ((OTHER, OWN), None, "run: node down"),
        ((OTHER,), None, ""),  # the reason of another case does not apply
        ((LONGER, OF_IOR, OWN), None, "run: node down"),
        ((LONGER, OF_IOR), None, ""),
        ((OTHER, BUILD), None, "sanity: no compiler"),
        ((WHOLE,), None, "run: gave up"),
        ((WHOLE,), "ended early", "ended early"),  # ReFrame was ended because the budget was used up
        ((WHOLE, OWN), "ended early", "run: node down"),
    ],
)
def test_reason_of_a_missing_run(
    failures: tuple[reframe.ReframeFailure, ...], stopped: str | None, reason: str
) -> None:
    key = RunKey("x", "gnu", "benchio:api=posix")
    reasons = reasons_of_failures(failures, stopped, [key])
    assert [found.reason for found in reasons.values()] == ([reason] if reason else [])
    assert set(reasons) <= {key}


@pytest.mark.parametrize(
    ("run", "test", "is_found"),
    [
        ("mdtest", "MdtestCheck %entry=gate/single", True),
        ("mdtest#retest", "MdtestCheck %entry=gate/single", True),
        ("mdtest:file_system=work", "MdtestCheck %entry=gate/single,file_system=work", True),
        ("mdtest:directories=single", "MdtestCheck %entry=gate/single", False),
        ("mdtest", "MdtestCheck %entry=gate/directories=single", False),
        ("mdtest", "MdtestCheck", False),
    ],
)
def test_failure_of_an_only_case_is_that_of_its_run(run: str, test: str, is_found: bool) -> None:
    failure = reframe.ReframeFailure(test, "gnu", "run", "node down")
    found = reasons_of_failures([failure], None, [RunKey("default", "gnu", run)])
    expected = [f"run: {failure.reason}"] if is_found or "%entry=" not in test else []
    assert [reason.reason for reason in found.values()] == expected
