"""A description (docs/workloads.md) of the workload that a Darshan log shows. Called in a worker process.

    log ──> accesses: per file and rank ──> streams: per rank in order of time ──> phases: steps, repeats ──> actions

No name of the log goes into the description: files are file1, file2, … in the order of their first use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iowatch.applications.workloads.accesses import LogUse, read_use
from iowatch.applications.workloads.actions import ActionWriter
from iowatch.applications.workloads.families import group_files
from iowatch.applications.workloads.phases import describe_phases
from iowatch.applications.workloads.scaling import make_scalable
from iowatch.applications.workloads.streams import Streams
from iowatch.core import format_count

_NO_DXT = (
    "no DXT: order, offsets and pauses are not in the log; each rank accesses its part of a file from beginning to end"
)


def describe_log(path: Path, name: str, phases: int | None = None, grid: Sequence[int] = ()) -> dict[str, Any]:
    """Return the description of the workload in a log.

    Args:
        path: the log.
        name: of the workload.
        phases: how many; None: one for each change of what is read or written.
        grid: into how many parts the ranks divide the last dimensions of arrays; empty: what the log says.

    Returns:
        `description`, and `losses`: sentences about what it does not have.

    Raises:
        InputError: the log is unreadable or incomplete, or it has fewer pauses than are needed for so many phases.
    """
    use = read_use(path, grid)
    losses = list(use.losses)
    if not use.traced:
        losses.insert(0, _NO_DXT)
    families = group_files(use)
    writer = ActionWriter({family.name: family for family in families}, use.ranks)
    # What a description does not have of the order of the actions is added to the losses.
    streams = Streams(use, families, keys=[], losses=losses)
    described_phases = []
    for phase in describe_phases(streams, phases):
        described_phases.append({"name": phase.name, "actions": writer.write(phase.nodes)})
    tables = _Tables()
    described_phases = tables.replace_in(described_phases)
    # A log without all of its accesses does not say what other ranks would do.
    is_complete = use.traced and not losses
    holds_for_any_ranks = is_complete and make_scalable(families, described_phases, use.ranks)
    document: dict[str, Any] = {
        "name": name,
        "description": _summary(use, losses, holds_for_any_ranks),
        "source": f"log of Darshan {use.version or '(unknown version)'}, {use.ranks} ranks, {use.run_time_s:.3f} s",
    }
    if not holds_for_any_ranks:
        document["ranks"] = use.ranks
    document["parameters"] = {"traced_ranks": use.ranks}
    if tables.names:
        document["variables"] = {name: table for table, name in tables.names.items()}
    document["files"] = {family.name: family.document for family in families}
    document["phases"] = described_phases
    return {"description": document, "losses": losses}


# Some steps of an expression of the rank (`rank_expressions.describe_ranks`).
_TABLE = re.compile(r"\((?:\(rank >= \d+\) \+ ){3,}\(rank >= \d+\)\)")


@dataclass
class _Tables:
    """Tables of steps in expressions; `names` are those of the variables that stand for them."""

    names: dict[str, str] = field(default_factory=dict)

    def replace_in(self, value: Any) -> Any:
        """Return the same actions with variables in the place of tables."""
        if isinstance(value, str):
            return _TABLE.sub(self._name_of, value)
        if isinstance(value, list):
            return [self.replace_in(item) for item in value]
        if isinstance(value, dict):
            return {key: self.replace_in(item) for key, item in value.items()}
        return value

    def _name_of(self, match: re.Match[str]) -> str:
        return self.names.setdefault(match[0], f"steps{len(self.names) + 1}")


def _summary(use: LogUse, losses: Sequence[str], holds_for_any_ranks: bool) -> str:
    """What the description was made from, for which ranks it holds, and what it does not have."""
    method = "every access (DXT)" if use.traced else "counters"
    scope = "for any number" if holds_for_any_ranks else "for these only"
    sentences = [f"Made from {method} of {format_count(use.ranks, 'rank')}, {scope}."]
    sentences += [f"{loss[0].upper()}{loss[1:]}." for loss in losses]
    return " ".join(sentences)
