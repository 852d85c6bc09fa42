"""Workloads in a terminal: the list, one description, and a replay beside the application."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iowatch.applications.workloads.replay import Replay, ReplayRow
from iowatch.benchmarks.workloads import Operation, Workload, default_ranks, read_description
from iowatch.core import escape_controls, format_count, format_size, settings

# Of a list of sizes and of the source of a workload.
_SHOWN_SIZES = 4
_ORIGIN_CHARACTERS = 100


@dataclass(frozen=True)
class PhaseSummary:
    """What ranks do in one phase: operations by verb (`collective write`, …) and bytes."""

    name: str
    operations: Mapping[str, int]
    read_bytes: int
    written_bytes: int


def workload_files() -> dict[str, Path]:
    """Return all workloads by name: those of the site replace those of iowatch."""
    return {name: path for (name,), path in settings.list_files("workload").items()}


def summarise_operations(name: str, operations: Iterable[Operation]) -> PhaseSummary:
    """Count operations of one phase."""
    counts: Counter[str] = Counter()
    moved_bytes: Counter[str] = Counter()
    for operation in operations:
        verb = f"collective {operation.verb}" if operation.collective else operation.verb
        counts[verb] += 1
        moved_bytes[operation.verb] += operation.size
    return PhaseSummary(name, dict(sorted(counts.items())), moved_bytes["read"], moved_bytes["write"])


def summarise_phases(workload: Workload) -> list[PhaseSummary]:
    """Count the operations of all ranks in each phase.

    Raises:
        InputError: an expression has no value.
    """
    phases = []
    for number, name in enumerate(workload.phases):
        operations: list[Iterator[Operation]] = []
        for rank in range(workload.ranks):
            operations.append(workload.operations(number, rank))
        phases.append(summarise_operations(name, itertools.chain.from_iterable(operations)))
    return phases


def list_workloads() -> list[dict[str, Any]]:
    """Return name, file, ranks, phases, description and source of each workload."""
    rows = []
    for name, path in workload_files().items():
        document = read_description(path)
        rows.append(
            {
                "name": name,
                "file": str(path),
                "ranks": default_ranks(document),
                "phases": len(document["phases"]),
                "description": document.get("description", ""),
                "source": document.get("source", ""),
            }
        )
    return rows


def render_list(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line per workload."""
    if not rows:
        console.print("no workloads")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("workload", overflow="fold")
    table.add_column("phases", overflow="fold", justify="right")
    table.add_column("source", overflow="fold")
    for row in rows:
        origin = escape_controls(row["source"] or row["description"])
        table.add_row(row["name"], str(row["phases"]), escape(origin[:_ORIGIN_CHARACTERS]))
    console.print(table)


def render_workload(document: Mapping[str, Any], workload: Workload, console: Console) -> None:
    """Print what a workload does, on so many ranks."""
    console.print(
        escape_controls(f"{document['name']} on {format_count(workload.ranks, 'rank')}"), style="bold", markup=False
    )
    for field in ("description", "source"):
        if document.get(field):
            console.print(escape_controls(document[field]), markup=False)
    for name, file in document["files"].items():
        layout = f"group {file['group']}" if "group" in file else "shared"
        words = [workload.text(file["api"]), workload.text(file.get("layout", layout))]
        if "same_as" in file:
            words[1] = f"the same file as {file['same_as']}"
        if file.get("input"):
            words.append("input")
        console.print(f"  {name}: {', '.join(words)}", markup=False)
    for phase in summarise_phases(workload):
        counts = ", ".join(f"{number} {verb}" for verb, number in phase.operations.items())
        moved = f"{format_size(phase.read_bytes)} read, {format_size(phase.written_bytes)} written"
        console.print(f"  {phase.name}: {moved}; {counts}", markup=False)


def render_replay(replay: Replay, console: Console) -> None:
    """Print both sides of a replay; rows that differ are marked."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "application", "replay", ""):
        table.add_column(title, justify="right" if title else "left")
    different_count = 0
    for row in replay.rows:
        mark = ""
        style = None
        if not row.is_equal:
            mark = "differs"
            style = "bold red"
            different_count += 1
        name = f"{row.api} {row.name}".strip()
        table.add_row(name, _format_figure(row, row.original), _format_figure(row, row.replay), mark, style=style)
    console.print(table)
    if different_count:
        console.print(f"{format_count(different_count, 'figure')} differ")
    else:
        console.print("the replay does what the application did")


def _format_figure(row: ReplayRow, value: Any) -> str:
    if row.name.startswith("sizes"):
        words = [f"{count} x {size}" for size, count in value[:_SHOWN_SIZES]]
        if len(value) > _SHOWN_SIZES:
            words.append(f"{len(value) - _SHOWN_SIZES} more")
        return ", ".join(words)
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)
