"""The allocation of a batch system that this process runs in: its job, its queue, its nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from iowatch.errors import MachineError
from iowatch.systems.machine import ask


@dataclass(frozen=True)
class Allocation:
    """Nodes that a batch system gave to one job, in its order.

    Attributes:
        title: the batch system's name for people.
        queue: what it calls the queue or partition; None where it does not tell.
    """

    title: str
    job: str
    queue: str | None
    nodes: tuple[str, ...]


def here() -> Allocation | None:
    """The allocation that this process was started in; None outside of one.

    Flux needs none of this: its systems run inside an allocation in any case (`iowatch.systems.flux`).

    Raises:
        MachineError: the batch system does not say which nodes it gave.
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
    return (ask("scontrol", "show", "hostnames", listed) or "").split()


def _pbs() -> Iterable[str]:
    try:
        return Path(os.environ.get("PBS_NODEFILE", "")).read_text(encoding="utf-8").split()
    except OSError:
        return ()


def _lsf() -> Iterable[str]:
    return os.environ.get("LSB_HOSTS", "").split()


# Name, and the variables of a job that hold its number and its queue (sbatch(1), qsub(1), bsub(1)).
_SYSTEMS: tuple[tuple[str, str, str, Callable[[], Iterable[str]]], ...] = (
    ("Slurm", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", _slurm),
    ("PBS", "PBS_JOBID", "PBS_QUEUE", _pbs),
    ("LSF", "LSB_JOBID", "LSB_QUEUE", _lsf),
)
