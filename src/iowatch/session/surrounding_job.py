"""A session that runs in a job of Slurm itself: which runs wait for the nodes of that job, and so for their own end."""

from __future__ import annotations

import os
from collections.abc import Iterable

from iowatch.core import RunKey, format_count
from iowatch.session.plan import PlannedRun
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site import Allocation, current_allocation, is_slurm, schedulers
from iowatch.store import fold_node_names


def runs_that_wait_for_this_job(site: ReframeSite, runs: Iterable[PlannedRun]) -> dict[RunKey, str]:
    """Return why runs can never start: too few nodes of their partition are outside of the job around this session.

    Raises:
        MachineError: Slurm does not report the nodes of the job.
    """
    if not schedulers.job_variables(os.environ):
        return {}
    allocation = current_allocation()
    if allocation is None:
        return {}
    partitions = {partition.name: partition for partition in site.partitions}
    free_nodes: dict[str, int | None] = {}
    reasons: dict[RunKey, str] = {}
    for run in runs:
        if run.partition not in free_nodes:
            free_nodes[run.partition] = _free_node_count(partitions[run.partition], allocation)
        count = free_nodes[run.partition]
        if count is not None and run.case.nodes > count:
            reasons[run.key] = (
                f"the job of this session ({allocation.job}) has {fold_node_names(allocation.nodes)}, which leaves "
                f"{format_count(count, 'node')} of {run.partition}: start iowatch outside of it"
            )
    return reasons


def _free_node_count(partition: ReframePartition, allocation: Allocation) -> int | None:
    """How many nodes of a partition a job can get beside an allocation; None if the allocation does not matter."""
    # Other jobs can share the nodes of the allocation.
    is_exclusive = any(option.startswith("--exclusive") for option in partition.access)
    if not is_slurm(partition.scheduler) or not is_exclusive:
        return None
    names = {node.name for node in schedulers.partition_nodes(partition.queue)}
    if not names & set(allocation.nodes):
        return None
    return len(names - set(allocation.nodes))
