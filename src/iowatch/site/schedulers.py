"""Schedulers: job options, state of a job without result, the current allocation, limits of a system.

ReFrame does not report every end of a job: with Slurm's `squeue`, it considers a job that disappeared as ended,
whatever the reason. The scheduler is therefore asked whether the job was cancelled, timed out or lost its node.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, MachineError, format_count, suggest_name
from iowatch.site.machine import is_slurm, query_command
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
        require: option that requests these nodes, a list with commas; empty where ReFrame's job options cannot.
        once: options that prevent a second start of a job after a node failure: it would find the files of the first.
    """

    scheduler: str
    launcher: str
    queue: str
    exclusive: tuple[str, ...]
    once: tuple[str, ...] = ()
    avoid: str = ""
    require: str = ""
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
        require="--nodelist={}",
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
        require="--nodelist={}",
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
    access = [*options.once, *more]
    # Without a batch system there are no queues.
    if queue and options.scheduler != "local":
        access.append(options.queue.format(queue))
    return [*access, *options.exclusive]


def _avoid_option(scheduler: str) -> str:
    """Return the option that excludes nodes, with `{}` for the nodes; empty if the scheduler has none."""
    for options in SCHEDULER_OPTIONS.values():
        if options.scheduler == scheduler and options.avoid:
            return options.avoid
    return ""


def _query_sinfo(queue: str | None, *options: str) -> list[list[str]]:
    """Return the words of each line that Slurm's `sinfo` prints about a queue; None: about all."""
    command = ["sinfo", "--noheader", *options]
    if queue:
        command.append(f"--partition={queue}")
    output = query_command(*command, timeout_s=30) or ""
    return [line.split() for line in output.splitlines()]


def can_avoid_nodes(scheduler: str, queue: str | None, nodes: Collection[str], node_count: int) -> bool:
    """Return whether a job can start now on other nodes than these; one that had to wait for them might never start.

    Args:
        scheduler: ReFrame's name of the scheduler.
        queue: the scheduler's name of the queue, or None for all.
        node_count: number of nodes of the job.
    """
    if not _avoid_option(scheduler):
        return False
    # `--states=idle` also lists drained nodes; the state of a node that does not respond or sleeps has a suffix.
    rows = _query_sinfo(queue, "--Node", "--format=%N %t")
    idle_nodes = {row[0] for row in rows if row[1:] == ["idle"]}
    return len(idle_nodes - set(nodes)) >= node_count


@dataclass(frozen=True)
class PartitionCapacity:
    """Nodes and processors of a partition of Slurm that are not down."""

    nodes: int
    processors: int


def partition_capacity(queue: str | None) -> PartitionCapacity | None:
    """Return what a partition of Slurm has; None if Slurm does not report it.

    Args:
        queue: Slurm's partition, or None for its default.
    """
    rows = _query_sinfo(queue, "--responding", "--format=%P %D %C")
    if not queue:
        # `*` marks the default partition.
        rows = [row for row in rows if row[0].endswith("*")]
    if not rows:
        return None
    # A partition has a row for each of its sets of nodes; `%C` is allocated/idle/other/total processors.
    nodes = sum(int(node_count) for _, node_count, _ in rows)
    processors = sum(int(processor_states.split("/")[3]) for _, _, processor_states in rows)
    return PartitionCapacity(nodes, processors)


# States of nodes that run jobs, as `sinfo` abbreviates them (sinfo(1), "NODE STATE CODES").
_WORKING_STATES = ("idle", "mix", "alloc", "comp", "plnd")
# Suffixes of states in which a node still starts jobs: it completes one, sleeps, wakes, or is planned for another job.
_WORKING_SUFFIXES = "+~#!%-"


@dataclass(frozen=True)
class PartitionNode:
    """A node of a partition of Slurm.

    Attributes:
        state: as `sinfo` abbreviates it, without a suffix.
        is_working: whether it is neither down, drained, reserved nor out of reach.
        is_completing: whether a job on it is just ending.
        features: that jobs can ask for by `--constraint`.
    """

    name: str
    state: str
    is_working: bool
    is_completing: bool
    processors: int
    idle_processors: int
    features: frozenset[str] = frozenset()


def partition_nodes(queue: str | None) -> list[PartitionNode]:
    """Return the nodes of a partition of Slurm; empty if Slurm does not report them.

    Args:
        queue: Slurm's partition, or None for its default.
    """
    nodes: list[PartitionNode] = []
    for row in _query_sinfo(queue, "--Node", "--format=%P %N %t %C %b"):
        # Without a queue every partition is listed; `*` marks the default one.
        if len(row) != 5 or not (queue or row[0].endswith("*")):
            continue
        _, name, state, processor_states, features = row
        # `%C` is allocated/idle/other/total processors.
        _, idle, _, total = processor_states.split("/")
        base_state = state.rstrip(_WORKING_SUFFIXES)
        nodes.append(
            PartitionNode(
                name=name,
                state=base_state,
                is_working=base_state in _WORKING_STATES,
                is_completing=base_state == "comp" or state.endswith("+"),
                processors=int(total),
                idle_processors=int(idle),
                features=frozenset(features.split(",")),
            )
        )
    return nodes


def avoiding_options(scheduler: str, nodes: Sequence[str]) -> list[str]:
    """Return the options of a job that does not use these nodes; empty without nodes.

    Args:
        scheduler: ReFrame's name of the scheduler.
    """
    option = _avoid_option(scheduler)
    if not option or not nodes:
        return []
    return [option.format(",".join(nodes))]


def requiring_options(scheduler: str, nodes: Sequence[str]) -> list[str]:
    """Return the options of a job that runs on these nodes; empty without nodes.

    Args:
        scheduler: ReFrame's name of the scheduler.
        nodes: as many as the job needs.
    """
    if not nodes:
        return []
    for options in SCHEDULER_OPTIONS.values():
        if options.scheduler == scheduler and options.require:
            return [options.require.format(",".join(nodes))]
    return []


def with_mpi_types(environments: list[dict[str, Any]], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return ReFrame's environments with the `srun --mpi` type of their MPI.

    Without it, each rank of MPICH runs as a job of one rank, and ranks of Open MPI end immediately.

    Args:
        types: feature of an environment (`openmpi`, `mpich`) to a plugin of `srun --mpi=list`; empty if
            Slurm's own default is right.
    """
    typed_environments = []
    for environment in environments:
        mpi_type = None
        for mpi, plugin in types.items():
            if mpi in environment["features"]:
                mpi_type = plugin
                break
        if mpi_type:
            environment = {**environment, "env_vars": [["SLURM_MPI_TYPE", mpi_type]]}
        typed_environments.append(environment)
    return typed_environments


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


def _job_queries(scheduler: str) -> _JobQueries:
    """Return the commands that describe a job of this scheduler (ReFrame's name); empty if none are known."""
    if is_slurm(scheduler):
        return _SLURM
    if scheduler in ("pbs", "pbspro"):
        return _PBS
    return ()


def job_state(scheduler: str, job: str | None, waited_minutes: float | None = None) -> str:
    """Return the scheduler's facts about a job in one line; empty without a scheduler or a response.

    Args:
        scheduler: ReFrame's name of the scheduler.
        job: the scheduler's job id, or None if the job was never submitted.
        waited_minutes: the limit of its time in the queue, if it was cancelled because of that.
    """
    facts = _facts_of_ended_job(scheduler, job) if job else {}
    if waited_minutes is not None:
        reason = facts.get("reason", "not reported")
        return (
            f"job {job}: cancelled by iowatch after {waited_minutes:g} minutes in the queue (queue_minutes); "
            f"the scheduler's reason: {reason}"
        )
    if job is None or not facts:
        return ""
    texts = [f"{name} {value}" for name, value in facts.items()]
    failed_nodes = _failed_nodes(job, facts)
    if failed_nodes:
        texts.append(f"failed node {', '.join(failed_nodes)}")
    if "requeued" in facts:
        texts += [f"earlier start: {text}" for text in earlier_starts(scheduler, job)]
    return f"job {job}: {', '.join(texts)}"


# Slurm gives a job its last state when all its nodes have ended it, or are given up.
_ENDING, _ENDING_LIMIT_S, _ENDING_POLL_S = "COMPLETING", 20.0, 1.0


def _facts_of_ended_job(scheduler: str, job: str) -> dict[str, str]:
    """Return the facts of a job that has ended or is about to; what it is about to be is waited for."""
    facts = query_job(scheduler, job)
    end = time.monotonic() + _ENDING_LIMIT_S
    while facts.get("state", "").startswith(_ENDING) and time.monotonic() < end:
        time.sleep(_ENDING_POLL_S)
        facts = query_job(scheduler, job)
    return facts


_NODE_FAIL, _NODE_DOWN = "NODE_FAIL", "NodeDown"
# Words at the beginning of the state of a node on which no job runs any more (sinfo(1), "NODE STATE CODES").
_FAILED_STATES = ("down", "fail", "drain", "no_respond", "unknown", "power", "reboot")


def _failed_nodes(job: str, facts: Mapping[str, str]) -> list[str]:
    """Return the nodes whose failure ended a job of Slurm; empty if that is not why it ended.

    Args:
        facts: of the job, from `query_job`.
    """
    if not (facts.get("state", "").startswith(_NODE_FAIL) or facts.get("reason") == _NODE_DOWN):
        return []
    # Accounting knows the node; without it, those that are down now.
    starts = _slurm_starts(job)
    if starts and starts[-1].failed_node:
        return [starts[-1].failed_node]
    # Of a job that is still ending, Slurm lists the nodes that are not done with it, and accounting all.
    nodes = starts[-1].nodes if starts and starts[-1].nodes else facts.get("nodes", "")
    rows = _query_sinfo(None, "--Node", f"--nodes={nodes}", "--format=%N %T") if nodes else []
    failed = [row[0] for row in rows if len(row) == 2 and (row[1].startswith(_FAILED_STATES) or row[1].endswith("*"))]
    return list(dict.fromkeys(failed))


@dataclass(frozen=True)
class _JobStart:
    """One start of a job of Slurm.

    Attributes:
        failed_node: whose failure ended it; empty if that is not why it ended.
    """

    state: str
    nodes: str
    failed_node: str

    def __str__(self) -> str:
        text = self.state
        if self.nodes:
            text += f" on {self.nodes}"
        return f"{text}, failed node {self.failed_node}" if self.failed_node else text


# What sacct prints for a field without a value.
_NO_VALUES = ("None assigned", "None", "(null)")


def _slurm_starts(job: str) -> list[_JobStart]:
    """Return all starts of a job, the last one at the end; empty without accounting."""
    # Releases without FailedNode, such as 22.05, refuse the whole query.
    command = ("sacct", "--duplicates", "-n", "-P", "-X", "-j", job, "-o")
    answer = query_command(*command, "State,NodeList,FailedNode", timeout_s=30)
    if answer is None:
        answer = query_command(*command, "State,NodeList", timeout_s=30) or ""
    starts: list[_JobStart] = []
    for line in answer.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) < 2:
            continue
        state, nodes, failed_node = ("" if word in _NO_VALUES else word for word in (*words, "")[:3])
        starts.append(_JobStart(state, nodes, failed_node))
    return starts


def earlier_starts(scheduler: str, job: str | None) -> list[str]:
    """Return what ended each start of a job before the last one, in words: `NODE_FAIL on n[1-2], failed node n2`.

    Args:
        scheduler: ReFrame's name of the scheduler.
        job: the scheduler's job id, or None if the job was never submitted.
    """
    if job is None or not is_slurm(scheduler):
        return []
    return [str(start) for start in _slurm_starts(job)[:-1]]


def job_nodes(scheduler: str, job: str | None) -> list[str]:
    """Return the nodes of a job that has ended, as the scheduler reports them; empty if it does not know them.

    Args:
        scheduler: ReFrame's name of the scheduler.
        job: the scheduler's job id, or None if the job was never submitted.
    """
    if not job:
        return []
    node_list = query_job(scheduler, job).get("nodes", "")
    if not node_list:
        return []
    return expand_slurm_nodes(node_list)


def expand_slurm_nodes(node_list: str) -> list[str]:
    """Return the names in a list of Slurm: n[1-3,7] is n1, n2, n3, n7; empty if Slurm does not respond."""
    return (query_command("scontrol", "show", "hostnames", node_list) or "").split()


def query_job(scheduler: str, job: str) -> dict[str, str]:
    """Return the facts of the first command that knows the job: `state`, `reason`, `ran`, `time limit`, `nodes`, …

    Args:
        scheduler: ReFrame's name of the scheduler.
    """
    for command, patterns in _job_queries(scheduler):
        # A failed command prints nothing: a missing reason must not hide a result.
        text = query_command(*(word.format(job=job) for word in command), timeout_s=30) or ""
        facts = _parse_job_facts(text, patterns)
        if facts:
            return facts
    return {}


def _parse_job_facts(text: str, patterns: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that the output of a command states, by label."""
    facts: dict[str, str] = {}
    for label, pattern in patterns.items():
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            continue
        value = match.group(1).replace("\n\t", "").strip()
        # Slurm joins the words of a reason by underscores, and prints None if there is none.
        if label == "reason":
            value = value.replace("_", " ")
        if value not in ("", "None", "(null)", "None assigned"):
            facts[label] = value
    return facts


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
    for system in _BATCH_SYSTEMS:
        job = os.environ.get(system.job_variable)
        if not job:
            continue
        # A node is listed once per task.
        nodes = tuple(dict.fromkeys(system.list_nodes()))
        if not nodes:
            raise MachineError(f"{system.title} does not report the nodes of its job {job}")
        return Allocation(system.title, job, os.environ.get(system.queue_variable), nodes)
    return None


# How programs of Slurm reach it and start MPI programs; all other variables SLURM_* are of the job of this process.
_SLURM_SETTINGS = frozenset(
    ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_MPI_TYPE", "SLURM_TIME_FORMAT")
)


def job_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the names of Slurm's variables of the job in which a process was started; empty outside of a job.

    `sbatch` hands them to the jobs that the process submits: tasks per node, memory or the number of restarts of the
    outer job would count there.
    """
    if "SLURM_JOB_ID" not in environment:
        return []
    return [name for name in environment if name.startswith("SLURM_") and name not in _SLURM_SETTINGS]


def _slurm_job_nodes() -> list[str]:
    # Slurm does not expand the job's node list in the environment.
    return expand_slurm_nodes(os.environ.get("SLURM_JOB_NODELIST", ""))


def _pbs_job_nodes() -> list[str]:
    try:
        return Path(os.environ.get("PBS_NODEFILE", "")).read_text(encoding="utf-8").split()
    except OSError:
        return []


def _lsf_job_nodes() -> list[str]:
    return os.environ.get("LSB_HOSTS", "").split()


@dataclass(frozen=True)
class _BatchSystem:
    """How a job learns of its allocation.

    Attributes:
        job_variable, queue_variable: environment variables with job id and queue (sbatch(1), qsub(1), bsub(1)).
        list_nodes: returns the nodes of the job of this process.
    """

    title: str
    job_variable: str
    queue_variable: str
    list_nodes: Callable[[], list[str]]


_BATCH_SYSTEMS = (
    _BatchSystem("Slurm", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", _slurm_job_nodes),
    _BatchSystem("PBS", "PBS_JOBID", "PBS_QUEUE", _pbs_job_nodes),
    _BatchSystem("LSF", "LSB_JOBID", "LSB_QUEUE", _lsf_job_nodes),
)


@dataclass(frozen=True)
class PartitionLimits:
    """What one job can have on a partition, as reframe.py declares it; None: not declared, no limit.

    Attributes:
        nodes: nodes of the partition.
        cores: of each node. Without a scheduler an MPI starts more ranks than there are cores: then it is None.
    """

    nodes: int | None = None
    cores: int | None = None


NO_PARTITION_LIMITS = PartitionLimits()


def partition_limits(scheduler: str, nodes: int | None, cores: int | None) -> PartitionLimits:
    """Return the limits of a partition.

    Args:
        scheduler: ReFrame's name of its scheduler.
        nodes: of the partition, `extras: nodes` of its configuration.
        cores: of each node, `processor: num_cpus` of its configuration.
    """
    return PartitionLimits(nodes, None if scheduler == "local" else cores)


def exceeded_partition_limit(case: SuiteCase, partition: str, limits: PartitionLimits) -> str | None:
    """Return why a case cannot run on a partition: `not available on fat (1 node)`; None if it can."""
    if case.is_on_all_nodes:
        stated = "no number of nodes" if case.nodes == 1 else f"no partition of {case.nodes} nodes or more"
        return f"not available on {partition} (system.yaml states {stated})"
    if limits.nodes is not None and case.nodes > limits.nodes:
        return f"not available on {partition} ({format_count(limits.nodes, 'node')})"
    ranks_per_node = math.ceil(case.ranks / case.nodes)
    if limits.cores is not None and ranks_per_node > limits.cores:
        return f"not available on {partition} ({format_count(limits.cores, 'core')} per node)"
    return None


def exceeded_limits(case: SuiteCase, limits: SystemLimits | None) -> tuple[str, ...]:
    """Return texts on the requirements of a case that exceed the system's limits."""
    if limits is None:
        return ()
    ranks_per_node = math.ceil(case.ranks / case.nodes)
    requirements = [
        ("nodes", case.nodes, limits.nodes),
        ("ranks", case.ranks, limits.ranks),
        ("ranks per node", ranks_per_node, limits.ranks_per_node),
        ("files", case.tool.inodes(case.options), limits.files),
        ("minutes", math.ceil(case.time_limit_s / 60), limits.minutes),
    ]
    exceeded = []
    for quantity, required, limit in requirements:
        if limit and required > limit:
            exceeded.append(f"{required} {quantity} (limit {limit})")
    return tuple(exceeded)
