"""How each scheduler is asked for a queue and for whole nodes; `systems/*/reframe.py` use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iowatch.errors import InputError, near_miss


@dataclass(frozen=True)
class Options:
    """What a job needs to say to one scheduler.

    Attributes:
        scheduler, launcher: ReFrame's backends.
        queue: how a queue is named.
        exclusive: how whole nodes are asked for; a neighbour would share the node's link to the file system.
    """

    scheduler: str
    launcher: str
    queue: str
    exclusive: tuple[str, ...]


class _Known(dict[str, Options]):
    def __missing__(self, name: str) -> Options:
        raise InputError(f"no scheduler is called '{name}'", hint=near_miss(name, list(self)))


OPTIONS = _Known(
    # Values of SCHEDULER in systems/*/reframe.py.
    slurm=Options("slurm", "srun", "--partition={}", ("--exclusive",)),
    # Slurm that keeps no accounts (AccountingStorageType=accounting_storage/none).
    squeue=Options("squeue", "srun", "--partition={}", ("--exclusive",)),
    # Not ReFrame's `pbs`: it waits for ever for the output of a job that was deleted while it waited.
    pbs=Options("pbspro", "mpirun", "-q {}", ("-l place=excl",)),
    lsf=Options("lsf", "mpirun", "-q {}", ("-x",)),
    # Inside an allocation: see iowatch.systems.flux.
    flux=Options("local", "flux-run", "{}", ()),
    local=Options("local", "mpirun", "{}", ()),
)


# Slurm's reasons of a waiting job that no waiting removes (squeue(1), "JOB REASON CODES"): ReFrame cancels the
# job and tells the reason. A night that waits for a person would end in the morning with nothing.
BLOCKED = [
    "AccountNotAllowed",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "JobHeldUser",
    "NodeDown",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "ReqNodeNotAvail",
]


def access(scheduler: str, queue: str | None, more: list[str]) -> list[str]:
    """ReFrame's `access` options of a partition.

    Args:
        scheduler: a key of `OPTIONS`.
        queue: the scheduler's name of the queue, or None for its default.
        more: what the site asks for besides (`--account=…`).
    """
    options = OPTIONS[scheduler]
    # Without a batch system there is nobody to name a queue to.
    named = [options.queue.format(queue)] if queue and options.scheduler != "local" else []
    return [*more, *named, *options.exclusive]


def with_mpi_types(environments: list[dict[str, Any]], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """ReFrame's environments with what `srun` must speak to their MPI.

    Without it MPICH's ranks each believe to be alone, and Open MPI's end at once.

    Args:
        types: feature of an environment (`openmpi`, `mpich`) to a plugin of `srun --mpi=list`; empty where
            Slurm's own default fits.
    """
    known = [
        (environment, next((kind for mpi, kind in types.items() if mpi in environment["features"]), None))
        for environment in environments
    ]
    return [
        {**environment, "env_vars": [["SLURM_MPI_TYPE", kind]]} if kind else environment
        for environment, kind in known
    ]
