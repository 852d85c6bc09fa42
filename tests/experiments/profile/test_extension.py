"""The profiler in the job of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from iowatch.checks import JobScript, RunOrder
from iowatch.checks.cases import ReframeTasks, changed_case
from iowatch.checks.job import compose_job, job_time_limit_s
from tests.builders import build_checked_run
from tests.checks.test_reframe import WRITE, check, replay


def test_profiler_starts_the_traced_program() -> None:
    order = RunOrder(session="s1", extensions={"profiler": {"profilers": ["perf"]}})
    run = build_checked_run(order=order, is_traced=True)
    script = compose_job(run, JobScript())
    assert list(script.command[:3]) == ["sh", "profile.sh", "env"]
    assert "perf trace" in script.files["profile.sh"]
    assert "strace" not in script.files["profile.sh"]
    assert job_time_limit_s(run) == 600
    assert changed_case(run.case, order, ReframeTasks({}, 1, None)).options["repeat"] == 1


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_profiled_run_has_a_profile_and_no_results(tmp_path: Path) -> None:
    """The times of a traced run must not enter a series: `iowatch profile`."""
    extensions = {"profiler": {"profilers": ["strace without callers"]}}
    order = RunOrder(spool=tmp_path / "session", extensions=extensions)
    _, _, spooled = check("ior", WRITE, replay(), tmp_path, order=order)
    kept = json.loads(spooled[0].read_text())
    assert kept["output"]["results"] == []
    assert kept["output"]["facts"]["profile"]["tool"] == "strace without callers"
    assert kept["files"]["profile"] == ["profile.json"]
    assert " -i 1 " in kept["facts"]["command"], "one repetition"
