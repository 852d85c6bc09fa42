"""Schedulers: job options, state of a job without result, the current allocation, limits of a system.

ReFrame does not report every end of a job: with Slurm's `squeue`, it considers a job that disappeared as ended,
whatever the reason. The scheduler is therefore asked whether the job was cancelled, timed out or lost its node.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, MachineError, suggest_name
from iowatch.site.machine import query_command
from iowatch.site.system import SystemLimits


@dataclass(frozen=True)
class SchedulerOptions:
    """Job options of one scheduler.

    Attributes:
        scheduler, launcher: ReFrame's backends.
        queue: option that selects a queue.
        account: option that selects an account; empty where jobs have none.
        exclusive: options that request whole nodes; other jobs would share the node's link to the file system.
        avoid: option that excludes nodes, a list with commas; empty where ReFrame's job options cannot.
        once: options that prevent a second start of a job after a node failure: it would find the files of the first.
    """

    scheduler: str
    launcher: str
    queue: str
    exclusive: tuple[str, ...]
    once: tuple[str, ...] = ()
    avoid: str = ""
    account: str = ""


class _SchedulerTable(dict[str, SchedulerOptions]):
    def __missing__(self, name: str) -> SchedulerOptions:
        raise InputError(
            f"SCHEDULER in reframe.py: no scheduler is called '{name}'", hint=suggest_name(name, list(self))
        )


SCHEDULER_OPTIONS = _SchedulerTable(
    # The keys are the values of SCHEDULER in systems/*/reframe.py.
    slurm=SchedulerOptions(
        "slurm",
        "srun",
        "--partition={}",
        ("--exclusive",),
        ("--no-requeue",),
        avoid="--exclude={}",
        account="--account={}",
    ),
    # Slurm without accounting (AccountingStorageType=accounting_storage/none).
    squeue=SchedulerOptions(
        "squeue",
        "srun",
        "--partition={}",
        ("--exclusive",),
        ("--no-requeue",),
        avoid="--exclude={}",
        account="--account={}",
    ),
    # Not ReFrame's `pbs`: it waits forever for the output of a job that was deleted while pending.
    pbs=SchedulerOptions("pbspro", "mpirun", "-q {}", ("-l place=excl",), ("-r n",), account="-A {}"),
    lsf=SchedulerOptions("lsf", "mpirun", "-q {}", ("-x",), ("-rn",), account="-P {}"),
    # In an allocation: see iowatch.site.reframe_config.
    flux=SchedulerOptions("local", "flux-run", "{}", ()),
    local=SchedulerOptions("local", "mpirun", "{}", ()),
)


# Slurm's reasons of a pending job that waiting does not resolve (squeue(1), "JOB REASON CODES"): ReFrame cancels the
# job and reports the reason. A nightly session that waits for an operator would end without results.
BLOCKED_REASONS = [
    "AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser", "NodeDown",
    "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "ReqNodeNotAvail",
]  # fmt: skip


def access_options(scheduler: str, queue: str | None, more: Sequence[str]) -> list[str]:
    """Return ReFrame's `access` options of a partition.

    Args:
        scheduler: a key of `SCHEDULER_OPTIONS`.
        queue: the scheduler's name of the queue, or None for its default.
        more: additional options of the site (`--account=…`); `--requeue` overrides the default.
    """
    options = SCHEDULER_OPTIONS[scheduler]
    # Without a batch system there are no queues.
    named = [options.queue.format(queue)] if queue and options.scheduler != "local" else []
    return [*options.once, *more, *named, *options.exclusive]


def can_avoid_nodes(scheduler: str, queue: str | None, nodes: Collection[str], wanted: int) -> bool:
    """Return whether a job can start now on other nodes than these; one that had to wait for them might never start.

    Args:
        scheduler: ReFrame's name of the scheduler.
        queue: the scheduler's name of the queue, or None for all.
        wanted: number of nodes of the job.
    """
    if not any(one.avoid for one in SCHEDULER_OPTIONS.values() if one.scheduler == scheduler):
        return False
    words = ["sinfo", "--noheader", "--Node", "--format=%N %t", *([f"--partition={queue}"] if queue else [])]
    # `--states=idle` also lists drained nodes; the state of a node that does not respond or sleeps has a suffix.
    lines = (query_command(*words, timeout_s=30) or "").splitlines()
    idle = {line.split()[0] for line in lines if line.split()[1:] == ["idle"]}
    return len(idle - set(nodes)) >= wanted


def partition_capacity(queue: str | None) -> tuple[int, int] | None:
    """Return nodes and processors of a partition of Slurm that are not down; None if it does not report them.

    Args:
        queue: Slurm's partition, or None for its default.
    """
    words = ["sinfo", "--noheader", "--responding", "--format=%P %D %C", *([f"--partition={queue}"] if queue else [])]
    rows = [line.split() for line in (query_command(*words, timeout_s=30) or "").splitlines()]
    # `%C` is allocated/idle/other/total; `*` marks the default partition.
    found = [(int(n), int(cpus.split("/")[3])) for name, n, cpus in rows if queue or name.endswith("*")]
    return (sum(n for n, _ in found), sum(cpus for _, cpus in found)) if found else None


def avoiding_options(scheduler: str, nodes: Sequence[str]) -> list[str]:
    """Return the options of a job that does not use these nodes; empty without nodes.

    Args:
        scheduler: ReFrame's name of the scheduler.
    """
    found = (one.avoid for one in SCHEDULER_OPTIONS.values() if one.scheduler == scheduler and one.avoid)
    return [option.format(",".join(nodes)) for option in list(found)[:1] if nodes]


def with_mpi_types(environments: list[dict[str, Any]], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return ReFrame's environments with the `srun --mpi` type of their MPI.

    Without it, each rank of MPICH runs as a job of one rank, and ranks of Open MPI end immediately.

    Args:
        types: feature of an environment (`openmpi`, `mpich`) to a plugin of `srun --mpi=list`; empty if
            Slurm's own default is right.
    """
    found = []
    for environment in environments:
        kind = next((kind for mpi, kind in types.items() if mpi in environment["features"]), None)
        found.append({**environment, "env_vars": [["SLURM_MPI_TYPE", kind]]} if kind else environment)
    return found


# Commands that describe a job, and the fields of their output: label to pattern.
_JobQueries = tuple[tuple[tuple[str, ...], Mapping[str, str]], ...]
# `scontrol` lists jobs for some minutes after their end (MinJobAge), `sacct` for long if accounting is enabled.
_SLURM: _JobQueries = (
    (
        ("scontrol", "show", "job", "-o", "{job}"),
        {
            "state": r"\bJobState=(\S+)",
            "reason": r"\bReason=(\S+)",
            "ran": r"\bRunTime=(\S+)",
            "time limit": r"\bTimeLimit=(\S+)",
            "nodes": r"\bNodeList=([^\s(]\S*)",
            "requeued": r"\bRestarts=([1-9]\d*)",
        },
    ),
    (
        ("sacct", "-n", "-P", "-X", "-j", "{job}", "-o", "State,Reason,Elapsed,Timelimit,NodeList"),
        {
            "state": r"^([^|\n]+)\|",
            "reason": r"^[^|\n]*\|([^|\n]+)",
            "ran": r"^(?:[^|\n]*\|){2}([^|\n]+)",
            "time limit": r"^(?:[^|\n]*\|){3}([^|\n]+)",
            "nodes": r"^(?:[^|\n]*\|){4}([^|\n]+)",
        },
    ),
)
# PBS Professional Reference Guide, "Job Attributes"; a long value continues after a line break and a tab.
_PBS: _JobQueries = (
    (
        ("qstat", "-x", "-f", "{job}"),
        {
            "state": r"^\s*job_state = (\S+)",
            "reason": r"^\s*comment = (.+(?:\n\t.+)*)",
            "exit status": r"^\s*Exit_status = (-?\d+)",
            "ran": r"^\s*resources_used\.walltime = (\S+)",
            "time limit": r"^\s*Resource_List\.walltime = (\S+)",
        },
    ),
)
# By ReFrame's scheduler names.
_JOB_QUERIES = {"slurm": _SLURM, "squeue": _SLURM, "pbs": _PBS, "pbspro": _PBS}


def job_state(scheduler: str, job: str | None, waited_minutes: float | None = None) -> str:
    """Return the scheduler's facts about a job in one line; empty without a scheduler or a response.

    Args:
        scheduler: ReFrame's name of the scheduler.
        job: the scheduler's job id, or None if the job was never submitted.
        waited_minutes: the limit of its time in the queue, if it was cancelled because of that.
    """
    facts = query_job(scheduler, job) if job else {}
    if waited_minutes is not None:
        reason = facts.get("reason", "not reported")
        return (
            f"job {job}: cancelled by iowatch after {waited_minutes:g} minutes in the queue (queue_minutes); "
            f"the scheduler's reason: {reason}"
        )
    return f"job {job}: {', '.join(f'{name} {value}' for name, value in facts.items())}" if facts else ""


def job_nodes(scheduler: str, job: str | None) -> list[str]:
    """Return the nodes of a job that has ended, as the scheduler reports them; empty if it does not know them.

    Args:
        scheduler: ReFrame's name of the scheduler.
        job: the scheduler's job id, or None if the job was never submitted.
    """
    listed = (query_job(scheduler, job) if job else {}).get("nodes", "")
    return (query_command("scontrol", "show", "hostnames", listed) or "").split() if listed else []


def query_job(scheduler: str, job: str) -> dict[str, str]:
    """Return the facts of the first command that knows the job: `state`, `reason`, `ran`, `time limit`, `nodes`, …

    Args:
        scheduler: ReFrame's name of the scheduler.
    """
    for command, patterns in _JOB_QUERIES.get(scheduler, ()):
        # A failed command prints nothing: a missing reason must not hide a result.
        text = query_command(*(word.format(job=job) for word in command), timeout_s=30) or ""
        facts = {}
        for name, pattern in patterns.items():
            match = re.search(pattern, text, re.MULTILINE)
            value = match.group(1).replace("\n\t", "").strip() if match else ""
            # Slurm joins the words of a reason by underscores, and prints None if there is none.
            value = value.replace("_", " ") if name == "reason" else value
            if value not in ("", "None", "(null)", "None assigned"):
                facts[name] = value
        if facts:
            return facts
    return {}


@dataclass(frozen=True)
class Allocation:
    """Nodes that a batch system granted to one job, in its order.

    Attributes:
        title: display name of the batch system.
        queue: the queue or partition; None where the batch system does not report it.
    """

    title: str
    job: str
    queue: str | None
    nodes: tuple[str, ...]


def current_allocation() -> Allocation | None:
    """Return the allocation in which this process was started; None outside an allocation.

    Flux is not covered: its systems always run in an allocation (`iowatch.site.reframe_config`).

    Raises:
        MachineError: the batch system does not report the nodes of the job.
    """
    for title, job, queue, nodes in _SYSTEMS:
        if os.environ.get(job):
            names = tuple(dict.fromkeys(nodes()))
            if not names:
                raise MachineError(f"{title} does not report the nodes of its job {os.environ[job]}")
            return Allocation(title, os.environ[job], os.environ.get(queue), names)
    return None


def _slurm() -> Iterable[str]:
    # Slurm does not expand the job's node list in the environment: n[1-3,7].
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    return (query_command("scontrol", "show", "hostnames", listed) or "").split()


def _pbs() -> Iterable[str]:
    try:
        return Path(os.environ.get("PBS_NODEFILE", "")).read_text(encoding="utf-8").split()
    except OSError:
        return ()


# Name, and the variables with job id and queue (sbatch(1), qsub(1), bsub(1)).
_SYSTEMS: tuple[tuple[str, str, str, Callable[[], Iterable[str]]], ...] = (
    ("Slurm", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", _slurm),
    ("PBS", "PBS_JOBID", "PBS_QUEUE", _pbs),
    ("LSF", "LSB_JOBID", "LSB_QUEUE", lambda: os.environ.get("LSB_HOSTS", "").split()),
)


def exceeded_limits(case: SuiteCase, limits: SystemLimits | None) -> tuple[str, ...]:
    """Return texts on the requirements of a case that exceed the system's limits."""
    if limits is None:
        return ()
    per_node = -(-case.ranks // case.nodes)
    wanted = [
        ("nodes", case.nodes, limits.nodes),
        ("ranks", case.ranks, limits.ranks),
        ("ranks per node", per_node, limits.ranks_per_node),
        ("files", case.tool.inodes(case.options), limits.files),
        ("minutes", math.ceil(case.time_limit_s / 60), limits.minutes),
    ]
    return tuple(f"{need} {what} (limit {limit})" for what, need, limit in wanted if limit and need > limit)
