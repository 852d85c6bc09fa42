"""Where the turns of an A/B run are executed: on the nodes of one allocation if possible, else as jobs of their own."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iowatch.core import UsageError, write_atomically
from iowatch.session.plan import PlannedRun
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site import Allocation, SystemLimits, is_slurm
from iowatch.statistics.interleaving import StopRule
from iowatch.store import fold_node_names

# Minutes of an allocation beyond the budget: the first turn compiles programs, the last pair has to end.
_EXTRA_MINUTES = 10

_CONFIGURATION = """from iowatch.site.reframe_config import allocation_configuration

site_configuration = allocation_configuration({}, {}, {})
"""


@dataclass(frozen=True)
class RunPlacement:
    """Where the turns of an A/B run are executed.

    Attributes:
        site: in an allocation only its partition, without a scheduler.
        allocation: None if there is no scheduler, or if each case is a separate job.
    """

    site: ReframeSite
    allocation: Allocation | None

    @property
    def queued(self) -> tuple[str, ...]:
        """Schedulers that start each case of each turn as a separate job."""
        return tuple(sorted({partition.scheduler for partition in self.site.partitions} - {"local"}))

    def limits(self, system_limits: SystemLimits) -> SystemLimits:
        """Limits of the system, with no more nodes than the allocation has."""
        if self.allocation is None:
            return system_limits
        nodes = len(self.allocation.nodes)
        return system_limits.model_copy(update={"nodes": min(nodes, system_limits.nodes or nodes)})

    def configured(self, directory: Path) -> ReframeSite:
        """The site with the ReFrame configuration, which is written to the directory of the session."""
        if self.allocation is None:
            return self.site
        (partition,) = self.site.partitions
        path = directory / "in_allocation.py"
        words = (str(self.site.configuration), self.site.system, partition.name)
        write_atomically(path, _CONFIGURATION.format(*map(repr, words)))
        return replace(self.site, configuration=path)

    def environment(self) -> dict[str, str]:
        """Variables of the launchers in `iowatch.site.reframe_config`; job steps may overlap with a shell's step."""
        if self.allocation is None or not self.allocation.nodes:
            return {}
        return {"IOWATCH_NODES": ",".join(self.allocation.nodes), "SLURM_OVERLAP": "1"}

    def describe(self) -> str:
        """The end of the line that describes an A/B run; empty if there is no scheduler."""
        if self.allocation is not None:
            nodes = fold_node_names(self.allocation.nodes)
            return f"; all in job {self.allocation.job} of {self.allocation.title} on {nodes}"
        if self.queued:
            return (
                f"; each case is a separate job in {', '.join(self.queued)} and may run on other nodes; "
                "start the command inside an allocation (docs/comparison.md)"
            )
        return ""


def place_in_allocation(site: ReframeSite, allocation: Allocation | None) -> RunPlacement:
    """Place the site on this machine: in an allocation only its partition, and no case is queued.

    Raises:
        UsageError: no partition, or several, belong to the queue of the allocation.
    """
    queued = [partition for partition in site.partitions if partition.scheduler != "local"]
    if allocation is None or not queued:
        return RunPlacement(site, None)
    partition = _partition_of(site, allocation, queued)
    return RunPlacement(replace(site, partitions=(replace(partition, scheduler="local"),)), allocation)


def _partition_of(site: ReframeSite, allocation: Allocation, queued: Sequence[ReframePartition]) -> ReframePartition:
    """The partition whose jobs would be in the queue of the allocation."""
    candidates = [partition for partition in queued if partition.queue == allocation.queue]
    if not candidates:
        candidates = [partition for partition in queued if partition.queue is None or allocation.queue is None]
    if len(candidates) == 1:
        return candidates[0]
    number = "several partitions" if candidates else "no partition"
    named = ", ".join(f"{partition.name} ({partition.queue or 'any queue'})" for partition in queued)
    raise UsageError(
        f"job {allocation.job} is in {allocation.title}'s queue '{allocation.queue}', which "
        f"{number} of '{site.system}' use",
        hint=f"Partitions of {site.system}: {named}.",
    )


def salloc_command(site: ReframeSite, runs: Sequence[PlannedRun], stop_rule: StopRule) -> list[str] | None:
    """Prefix of a command that requests nodes for all these runs from Slurm.

    None if this machine has no Slurm, or the runs are of several partitions.
    """
    names = {run.partition for run in runs}
    partitions = [partition for partition in site.partitions if partition.name in names]
    if len(partitions) != 1 or not is_slurm(partitions[0].scheduler) or shutil.which("salloc") is None:
        return None
    nodes = max(run.case.nodes for run in runs)
    ranks_per_node = max(math.ceil(run.case.ranks / run.case.nodes) for run in runs)
    # An interactive job is never requeued, and salloc refuses the options of sbatch about it.
    access = [option for option in partitions[0].access if not option.endswith("requeue")]
    words = ["salloc", "--job-name=iowatch-ab", *access]
    words += [f"--nodes={nodes}", f"--ntasks-per-node={ranks_per_node}"]
    if stop_rule.budget_s is not None:
        words.append(f"--time={math.ceil(stop_rule.budget_s / 60) + _EXTRA_MINUTES}")
    return words
