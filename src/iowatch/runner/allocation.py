"""Fair runs on the nodes of one allocation: a site as it is inside one, and how to ask Slurm for one."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from iowatch.compare.fair import Until
from iowatch.errors import UsageError
from iowatch.files import write_whole
from iowatch.runner.plan import PlannedRun
from iowatch.runner.site import Partition, Site
from iowatch.systems.allocation import Allocation
from iowatch.systems.model import Limits

# Slurm under ReFrame's names.
_SLURM = ("slurm", "squeue")
# Minutes of an allocation beyond the budget: the programs of the first turn are built, the last pair ends.
_SPARE_MIN = 10


@dataclass(frozen=True)
class Ground:
    """Where the turns of a fair run take place.

    Attributes:
        site: inside an allocation with the one partition that it belongs to, without its scheduler.
        allocation: None where nothing is between iowatch and the nodes, or where each case is a job of its own.
    """

    site: Site
    allocation: Allocation | None

    @property
    def queued(self) -> tuple[str, ...]:
        """Schedulers through which every case of every turn goes by itself."""
        return tuple(sorted({part.scheduler for part in self.site.partitions} - {"local"}))

    def limits(self, known: Limits) -> Limits:
        """The system's limits, and no more nodes than the allocation has."""
        if self.allocation is None:
            return known
        nodes = len(self.allocation.nodes)
        return known.model_copy(update={"nodes": min(nodes, known.nodes or nodes)})

    def configured(self, place: Path) -> Site:
        """The site with the configuration that ReFrame needs, which is written into the session's directory."""
        if self.allocation is None:
            return self.site
        (part,) = self.site.partitions
        path = place / "within.py"
        words = (str(self.site.configuration), self.site.system, part.name)
        write_whole(path, _CONFIGURATION.format(*map(repr, words)))
        return replace(self.site, configuration=path)

    def environment(self) -> dict[str, str]:
        """What the launchers of `iowatch.systems.within` are told; steps may share the job with a shell's."""
        nodes = ",".join(self.allocation.nodes) if self.allocation else ""
        return {"IOWATCH_NODES": nodes, "SLURM_OVERLAP": "1"} if nodes else {}


_CONFIGURATION = """from iowatch.systems.within import configuration

site_configuration = configuration({}, {}, {})
"""


def settle(site: Site, allocation: Allocation | None) -> Ground:
    """The site as it is here: inside an allocation its partition is this allocation, and nothing is queued.

    Raises:
        UsageError: no partition, or several, belong to the allocation's queue.
    """
    batch = [part for part in site.partitions if part.scheduler != "local"]
    if allocation is None or not batch:
        return Ground(site, None)
    chosen = [part for part in batch if _queue(part) == allocation.queue]
    if not chosen:
        chosen = [part for part in batch if _queue(part) is None or allocation.queue is None]
    if len(chosen) != 1:
        named = ", ".join(f"{part.name} ({_queue(part) or 'any queue'})" for part in batch)
        raise UsageError(
            f"job {allocation.job} is in {allocation.title}'s queue '{allocation.queue}', which "
            f"{'several partitions' if chosen else 'no partition'} of '{site.system}' use",
            hint=f"Partitions of {site.system}: {named}.",
        )
    return Ground(replace(site, partitions=(replace(chosen[0], scheduler="local"),)), allocation)


def _queue(part: Partition) -> str | None:
    """The queue that a partition's jobs ask for; None where they leave it to the scheduler."""
    found = re.search(r"(?:^|\s)(?:--partition[= ]|-p\s*|-q\s*)(\S+)", " ".join(part.access))
    return found.group(1) if found else None


def salloc(site: Site, runs: list[PlannedRun], until: Until) -> list[str] | None:
    """The beginning of a command that asks Slurm for nodes on which all these runs can take place.

    None where this machine has no Slurm, or the runs are of several partitions.
    """
    names = {run.partition for run in runs}
    parts = [part for part in site.partitions if part.name in names]
    if len(parts) != 1 or parts[0].scheduler not in _SLURM or shutil.which("salloc") is None:
        return None
    nodes = max(run.case.nodes for run in runs)
    ranks = max(math.ceil(run.case.ranks / run.case.nodes) for run in runs)
    words = ["salloc", "--job-name=iowatch-ab", *parts[0].access]
    words += [f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
    minutes = None if until.budget_s is None else math.ceil(until.budget_s / 60) + _SPARE_MIN
    return words if minutes is None else [*words, f"--time={minutes}"]
