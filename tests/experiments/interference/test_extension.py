"""The aggressors in place of the job of a run."""

from __future__ import annotations

from pathlib import Path

from iowatch.checks import JobScript, RunOrder
from iowatch.checks.job import compose_job, job_time_limit_s, scheduler_options
from tests.builders import build_checked_run


def test_aggressors_replace_the_job(tmp_path: Path) -> None:
    settings = {"count": 2, "directory": str(tmp_path / "aggressors"), "time_limit_s": 300}
    run = build_checked_run(order=RunOrder(session="s1", extensions={"aggressor": settings}), scheduler="slurm")
    script = compose_job(run, JobScript())
    assert (script.before, script.after, script.is_launched) == ((), (), False)
    assert list(script.command) == ["sh", f"{tmp_path}/aggressors/start.sh"]
    loops = [(tmp_path / "aggressors" / f"job-{n}" / "aggressor.sh").read_text() for n in (1, 2)]
    assert all("mpirun -np 4 ior " in loop for loop in loops)
    assert loops[0] != loops[1], "each has a directory of its own"
    assert job_time_limit_s(run) == 300
    assert scheduler_options(run) == ["--array=1-2"]


def test_single_aggressor_is_no_array(tmp_path: Path) -> None:
    """`squeue` lists a pending array of one task as `12_[1]`, which ReFrame 4.10 does not recognise as a job."""
    settings = {"count": 1, "directory": str(tmp_path), "time_limit_s": 300}
    run = build_checked_run(order=RunOrder(session="s1", extensions={"aggressor": settings}), scheduler="squeue")
    assert scheduler_options(run) == []
