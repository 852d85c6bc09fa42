"""Schedulers: options of jobs, the state of a job that gave no result, the current allocation, limits of a system.

ReFrame does not report some ends of a job: with Slurm's `squeue` a job that disappeared has ended, for whatever
reason. So the scheduler is asked whether it was cancelled, reached its time limit or lost its node.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, MachineError, suggest_name
from iowatch.site.machine import query_command
from iowatch.site.system import SystemLimits


@dataclass(frozen=True)
class SchedulerOptions:
    """Options of a job for one scheduler.

    Attributes:
        scheduler, launcher: ReFrame's backends.
        queue: how a queue is named.
        exclusive: how whole nodes are asked for; a neighbour would share the node's link to the file system.
    """

    scheduler: str
    launcher: str
    queue: str
    exclusive: tuple[str, ...]


class _SchedulerTable(dict[str, SchedulerOptions]):
    def __missing__(self, name: str) -> SchedulerOptions:
        raise InputError(f"no scheduler is called '{name}'", hint=suggest_name(name, list(self)))


SCHEDULER_OPTIONS = _SchedulerTable(
    # Values of SCHEDULER in systems/*/reframe.py.
    slurm=SchedulerOptions("slurm", "srun", "--partition={}", ("--exclusive",)),
    # Slurm that keeps no accounts (AccountingStorageType=accounting_storage/none).
    squeue=SchedulerOptions("squeue", "srun", "--partition={}", ("--exclusive",)),
    # Not ReFrame's `pbs`: it waits for ever for the output of a job that was deleted while it waited.
    pbs=SchedulerOptions("pbspro", "mpirun", "-q {}", ("-l place=excl",)),
    lsf=SchedulerOptions("lsf", "mpirun", "-q {}", ("-x",)),
    # Inside an allocation: see iowatch.site.reframe_config.
    flux=SchedulerOptions("local", "flux-run", "{}", ()),
    local=SchedulerOptions("local", "mpirun", "{}", ()),
)


# Slurm's reasons of a waiting job that no waiting removes (squeue(1), "JOB REASON CODES"): ReFrame cancels the
# job and reports the reason. A nightly session that waits for a person would end without results.
BLOCKED_REASONS = [
    "AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser", "NodeDown",
    "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "ReqNodeNotAvail",
]  # fmt: skip


def access_options(scheduler: str, queue: str | None, more: list[str]) -> list[str]:
    """ReFrame's `access` options of a partition.

    Args:
        scheduler: a key of `OPTIONS`.
        queue: the scheduler's name of the queue, or None for its default.
        more: what the site asks for besides (`--account=…`).
    """
    options = SCHEDULER_OPTIONS[scheduler]
    # Without a batch system there are no queues.
    named = [options.queue.format(queue)] if queue and options.scheduler != "local" else []
    return [*more, *named, *options.exclusive]


def with_mpi_types(environments: list[dict[str, Any]], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """ReFrame's environments with the `srun --mpi` type of their MPI.

    Without it each rank of MPICH runs as a job of one rank, and ranks of Open MPI end at once.

    Args:
        types: feature of an environment (`openmpi`, `mpich`) to a plugin of `srun --mpi=list`; empty where
            Slurm's own default fits.
    """
    found = []
    for environment in environments:
        kind = next((kind for mpi, kind in types.items() if mpi in environment["features"]), None)
        found.append({**environment, "env_vars": [["SLURM_MPI_TYPE", kind]]} if kind else environment)
    return found


# Commands that describe a job, and the fields of their output: label to pattern.
_JobQueries = tuple[tuple[tuple[str, ...], Mapping[str, str]], ...]
# `scontrol` knows jobs for some minutes after their end (MinJobAge), `sacct` for long where accounts are kept.
_SLURM: _JobQueries = (
    (
        ("scontrol", "show", "job", "-o", "{job}"),
        {
            "state": r"\bJobState=(\S+)",
            "reason": r"\bReason=(\S+)",
            "ran": r"\bRunTime=(\S+)",
            "time limit": r"\bTimeLimit=(\S+)",
            "nodes": r"\bNodeList=([^\s(]\S*)",
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
# PBS Professional Reference Guide, "Job Attributes"; a long value goes on after a line break and a tab.
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
# By the names of ReFrame's schedulers.
_JOB_QUERIES = {"slurm": _SLURM, "squeue": _SLURM, "pbs": _PBS, "pbspro": _PBS}


def job_state(scheduler: str, job: str | None) -> str:
    """The scheduler's facts about a job, in one line; empty where there is no scheduler to ask or no answer.

    Args:
        scheduler: ReFrame's name of it.
        job: the job's number as the scheduler gave it, or None where it was never submitted.
    """
    for command, patterns in _JOB_QUERIES.get(scheduler, ()) if job else ():
        # A command that fails prints nothing here: a reason that cannot be had hides no result.
        text = query_command(*(word.format(job=job) for word in command), timeout_s=30) or ""
        facts = []
        for name, pattern in patterns.items():
            match = re.search(pattern, text, re.MULTILINE)
            value = match.group(1).replace("\n\t", "").strip() if match else ""
            # Slurm joins the words of a reason with underscores, and prints None where it has none.
            value = value.replace("_", " ") if name == "reason" else value
            if value not in ("", "None", "(null)", "None assigned"):
                facts.append(f"{name} {value}")
        if facts:
            return f"job {job}: {', '.join(facts)}"
    return ""


@dataclass(frozen=True)
class Allocation:
    """Nodes that a batch system gave to one job, in its order.

    Attributes:
        title: the batch system's name for people.
        queue: the queue or partition; None where the batch system does not report it.
    """

    title: str
    job: str
    queue: str | None
    nodes: tuple[str, ...]


def current_allocation() -> Allocation | None:
    """The allocation that this process was started in; None outside of one.

    Flux needs none of this: its systems run inside an allocation in any case (`iowatch.site.reframe_config`).

    Raises:
        MachineError: the batch system does not report the nodes of the job.
    """
    for title, job, queue, nodes in _SYSTEMS:
        if os.environ.get(job):
            names = tuple(dict.fromkeys(nodes()))
            if not names:
                raise MachineError(f"{title} does not tell the nodes of its job {os.environ[job]}")
            return Allocation(title, os.environ[job], os.environ.get(queue), names)
    return None


def _slurm() -> Iterable[str]:
    # The job's list is not folded out in the environment: n[1-3,7].
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    return (query_command("scontrol", "show", "hostnames", listed) or "").split()


def _pbs() -> Iterable[str]:
    try:
        return Path(os.environ.get("PBS_NODEFILE", "")).read_text(encoding="utf-8").split()
    except OSError:
        return ()


# Name, and the variables of a job that hold its number and its queue (sbatch(1), qsub(1), bsub(1)).
_SYSTEMS: tuple[tuple[str, str, str, Callable[[], Iterable[str]]], ...] = (
    ("Slurm", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", _slurm),
    ("PBS", "PBS_JOBID", "PBS_QUEUE", _pbs),
    ("LSF", "LSB_JOBID", "LSB_QUEUE", lambda: os.environ.get("LSB_HOSTS", "").split()),
)


def exceeded_limits(case: SuiteCase, limits: SystemLimits | None) -> tuple[str, ...]:
    """What the case would need beyond the system's limits, as text."""
    if limits is None:
        return ()
    per_node = -(-case.ranks // case.nodes)
    wanted = [
        ("nodes", case.nodes, limits.nodes),
        ("ranks", case.ranks, limits.ranks),
        ("ranks a node", per_node, limits.ranks_per_node),
        ("files", case.tool.inodes(case.options), limits.files),
        ("minutes", math.ceil(case.time_limit_s / 60), limits.minutes),
    ]
    return tuple(f"{need} {what} (limit {limit})" for what, need, limit in wanted if limit and need > limit)
