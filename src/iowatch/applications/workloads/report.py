"""Workloads in a terminal: the list, one description, and a replay beside the application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iowatch.applications.workloads.replay import Replay, ReplayRow
from iowatch.benchmarks.workloads import Operation, Workload, default_ranks, read_description
from iowatch.core import escape_controls, format_count, format_size, settings

_SHOWN_SIZES = 4


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
    moved: Counter[str] = Counter()
    for one in operations:
        counts[f"collective {one.verb}" if one.collective else one.verb] += 1
        moved[one.verb] += one.size
    return PhaseSummary(name, dict(sorted(counts.items())), moved["read"], moved["write"])


def summarise_phases(workload: Workload) -> list[PhaseSummary]:
    """Count the operations of all ranks in each phase.

    Raises:
        InputError: an expression has no value.
    """
    phases = []
    for number, name in enumerate(workload.phases):
        found = (one for rank in range(workload.ranks) for one in workload.operations(number, rank))
        phases.append(summarise_operations(name, found))
    return phases


def list_workloads() -> list[dict[str, Any]]:
    """Return name, file, ranks, phases, description and source of each workload."""
    rows = []
    for name, path in workload_files().items():
        document = read_description(path)
        texts = {field: document.get(field, "") for field in ("description", "source")}
        counts = {"ranks": default_ranks(document), "phases": len(document["phases"])}
        rows.append({"name": name, "file": str(path), **counts, **texts})
    return rows


def render_list(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line per workload."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("workload", "phases", "source"):
        table.add_column(title, overflow="fold", justify="right" if title == "phases" else "left")
    for row in rows:
        table.add_row(
            row["name"], str(row["phases"]), escape(escape_controls(row["source"] or row["description"])[:100])
        )
    console.print(table) if rows else console.print("no workloads")


def render_workload(document: Mapping[str, Any], workload: Workload, console: Console) -> None:
    """Print what a workload does, on so many ranks."""
    console.print(
        escape_controls(f"{document['name']} on {format_count(workload.ranks, 'rank')}"), style="bold", markup=False
    )
    for field in ("description", "source"):
        if text := document.get(field):
            console.print(escape_controls(text), markup=False)
    for name, file in document["files"].items():
        layout = workload.text(file.get("layout", f"group {file['group']}" if "group" in file else "shared"))
        words = [workload.text(file["api"]), layout, *(["input"] if file.get("input") else [])]
        console.print(f"  {name}: {', '.join(words)}", markup=False)
    for phase in summarise_phases(workload):
        counts = ", ".join(f"{number} {verb}" for verb, number in phase.operations.items())
        moved = f"{format_size(phase.read_bytes)} read, {format_size(phase.written_bytes)} written"
        console.print(f"  {phase.name}: {moved}; {counts}", markup=False)


def render_replay(found: Replay, console: Console) -> None:
    """Print both sides of a replay; rows that differ are marked."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "application", "replay", ""):
        table.add_column(title, justify="right" if title else "left")
    for row in found.rows:
        left, right = (_format_figure(row, value) for value in (row.original, row.replay))
        mark = "" if row.is_equal else "differs"
        table.add_row(f"{row.api} {row.name}".strip(), left, right, mark, style=None if row.is_equal else "bold red")
    console.print(table)
    differ = sum(not row.is_equal for row in found.rows)
    console.print(
        "the replay does what the application did" if not differ else f"{format_count(differ, 'figure')} differ"
    )


def _format_figure(row: ReplayRow, value: Any) -> str:
    if row.name.startswith("sizes"):
        shown = [f"{count} x {size}" for size, count in value[:_SHOWN_SIZES]]
        return ", ".join(shown) + (f", {len(value) - _SHOWN_SIZES} more" if len(value) > _SHOWN_SIZES else "")
    return f"{value:.4f}" if isinstance(value, float) else str(value)
