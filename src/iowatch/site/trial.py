"""Trials of a new system: a file in the scratch directory, and one small job per partition, submitted by ReFrame."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from iowatch.core import MachineError, settings
from iowatch.site import machine, schedulers, storage
from iowatch.site.file_system import FileSystemIdentity

QUEUE_S = 60
_TIMEOUT_S = QUEUE_S + 240.0
_CANCEL_S = 20.0
# Slurm's reasons of a job that only has to wait (squeue(1), "JOB REASON CODES").
_ORDINARY_REASONS = ("Resources", "Priority")
JobStatus = Literal["ran", "refused", "waiting", "failed", "no scratch"]


@dataclass(frozen=True)
class JobTrial:
    """One job in one partition.

    Attributes:
        status: `ran`; `refused`: the scheduler does not accept or never starts it; `waiting`: accepted, and cancelled
            after `QUEUE_S` in the queue; `no scratch`: it ran and could not write there; `failed`: anything else.
        submitted: its options.
        answer: what the scheduler or the job reported; empty if it ran.
    """

    partition: str
    status: JobStatus
    submitted: str
    answer: str = ""


def try_scratch(directory: Path) -> FileSystemIdentity | None:
    """Write and remove a file in a scratch directory, as a session does; return its file system.

    Raises:
        MachineError: it cannot be used; a directory that was created for this is removed.
    """
    existed = directory.exists()
    identity = storage.prepare_scratch(directory, FileSystemIdentity())
    try:
        storage.check_scratch_space(directory, 0)
    except MachineError:
        if not existed:
            directory.rmdir()
        raise
    return identity


def try_partitions(
    scheduler: str, partitions: Sequence[str | None], access: Sequence[str], scratch: Path
) -> list[JobTrial]:
    """Submit one job to each partition at the same time, with the options of measurements, and wait for all.

    Args:
        scheduler: a key of `SCHEDULER_OPTIONS`.
        partitions: the scheduler's names; None is its default.
        access: additional options of each job.
        scratch: the directory in which it writes a file.
    """
    options = [schedulers.access_options(scheduler, name, list(access)) for name in partitions]
    trials = []
    with _working_directory() as path:
        working_directory = Path(path)
        cases = _run_reframe(working_directory, scheduler, options, scratch)
        for number, (name, job_options) in enumerate(zip(partitions, options, strict=True)):
            job = _SubmittedJob(name or "default", scheduler, " ".join(job_options), working_directory)
            trials.append(_judge(job, cases.get(f"p{number}")))
    return trials


@dataclass(frozen=True)
class _SubmittedJob:
    """One job: its partition, the scheduler (a key of `SCHEDULER_OPTIONS`), its options, and ReFrame's directory."""

    partition: str
    scheduler: str
    options: str
    working_directory: Path

    def trial(self, status: JobStatus, answer: str = "") -> JobTrial:
        return JobTrial(self.partition, status, self.options, answer)


def _working_directory() -> tempfile.TemporaryDirectory[str]:
    var = settings.var_directory().absolute()  # the nodes of jobs see it, as in a session
    var.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="trial-", dir=var, ignore_cleanup_errors=True)


def _configuration(scheduler: str, options: Sequence[Sequence[str]], directory: Path) -> dict[str, Any]:
    partitions = [
        {
            "name": f"p{number}",
            "scheduler": schedulers.SCHEDULER_OPTIONS[scheduler].scheduler,
            "launcher": "local",
            "access": list(words),
            "environs": ["builtin"],
            "max_jobs": len(options),
            "sched_options": {"slurm_job_cancel_reasons": schedulers.BLOCKED_REASONS},
        }
        for number, words in enumerate(options)
    ]
    system = {"name": "trial", "hostnames": [".*"], "modules_system": "nomod", "prefix": str(directory)}
    logs = [{"type": "file", "name": str(directory / "log"), "level": "info"}]
    return {
        "systems": [{**system, "partitions": partitions}],
        "environments": [{"name": "builtin"}],
        "logging": [{"handlers": logs}],
    }


def _run_reframe(directory: Path, scheduler: str, options: Sequence[Sequence[str]], scratch: Path) -> dict[str, Any]:
    """Return ReFrame's record of each case by its partition.

    Raises:
        MachineError: ReFrame cannot be started, or leaves no report.
    """
    configuration, report = directory / "configuration.json", directory / "report.json"
    configuration.write_text(json.dumps(_configuration(scheduler, options, directory)), encoding="utf-8")
    command = [
        *(machine.reframe_program(), "-C", str(configuration), "--system", "trial"),
        *("-c", str(Path(__file__).with_name("partition_trial.py")), "--exec-policy", "async", "--nocolor"),
        *("-S", f"scratch={scratch}", "-S", f"max_pending_time={QUEUE_S}s", "--report-file", str(report), "-r"),
    ]
    output = _run_to_end(command)
    if not report.exists():
        fault = next((line for line in output.splitlines() if "ERROR" in line), "no report")
        raise MachineError(f"ReFrame could not submit the jobs: {fault}")
    cases = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]
    return {case["partition"]: case for case in cases}


def _run_to_end(command: Sequence[str]) -> str:
    """Return the output of ReFrame. If this process is interrupted, ReFrame cancels its jobs first."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise MachineError(f"ReFrame could not be started: {error.strerror}") from error
    with process:
        try:
            return process.communicate(timeout=_TIMEOUT_S)[0]
        except subprocess.TimeoutExpired as error:
            process.send_signal(signal.SIGINT)
            raise MachineError(f"ReFrame did not end within {_TIMEOUT_S:.0f} s") from error
        finally:
            with suppress(subprocess.TimeoutExpired):  # the terminal interrupts all its processes, also ReFrame
                process.wait(_CANCEL_S)
            process.kill()


def _judge(job: _SubmittedJob, case: dict[str, Any] | None) -> JobTrial:
    """Return the result of a job from ReFrame's record of its case, and from what the scheduler reports about it."""
    if case is None:
        return job.trial("failed", "ReFrame did not run it")
    if case["result"] == "pass":
        return job.trial("ran")
    job_id, reason = case["jobid"], _scheduler_words(case["fail_reason"] or "")
    if job_id is None:
        return job.trial("refused", reason)
    # A job with an output ran; its only step that can fail is writing to the scratch directory.
    stage = Path(case["stagedir"])
    if (stage / case["job_stdout"]).exists():
        errors = (stage / case["job_stderr"]).read_text(encoding="utf-8", errors="replace").strip()
        return job.trial("no scratch", errors or reason)
    facts = schedulers.query_job(schedulers.SCHEDULER_OPTIONS[job.scheduler].scheduler, job_id)
    if facts.get("state") == "COMPLETED":
        var = job.working_directory.parent
        answer = f"job {job_id} ended, and its output is not in {var}: the nodes do not see this directory"
        return job.trial("failed", answer)
    if facts.get("reason", "Resources") in _ORDINARY_REASONS and case["fail_phase"] == "sanity":
        answer = f"job {job_id} was accepted and did not start within {QUEUE_S} s ({facts.get('reason', 'no reason')})"
        return job.trial("waiting", answer)
    return job.trial("refused", f"job {job_id}: {facts.get('reason', reason)}")


def _scheduler_words(reason: str) -> str:
    """Return what a failed command printed, from ReFrame's reason, or the reason itself; on one line."""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.startswith("---")]
    return "; ".join(lines[1:] or lines)
