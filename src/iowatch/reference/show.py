"""Output of `iowatch reference`: JSON documents and terminal tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from iowatch.core import format_count, format_number
from iowatch.reference import bandwidth, published
from iowatch.reference.bandwidth import Reference
from iowatch.reference.policy import AuditRemark
from iowatch.reference.propose import ReferenceFileChange
from iowatch.site import default_file_system, load_system


def list_published_tables(source: str | None = None) -> dict[str, Any]:
    """Return all sources (or one) with their tables.

    Raises:
        UsageError: unknown source.
    """
    sources = published.load_sources()
    numbers = list(sources)
    if source is not None:
        numbers = [published.source_number(source)]
    entries = []
    for number in numbers:
        tables = [_table_summary(number, table) for table in published.published_table_names(number)]
        entries.append({**sources[number].model_dump(), "source": number, "tables": tables})
    return {"sources": entries}


def _table_summary(source: str, table: str) -> dict[str, Any]:
    loaded = published.load_published_table(source, table)
    printed = loaded.sidecar.model_dump(include={"title", "section", "notes"})
    return {"table": table, **printed, "rows": len(loaded.rows), "long": published.has_long_form(loaded)}


@dataclass(frozen=True)
class ShownTable:
    """A published table as JSON, and its notes."""

    document: dict[str, Any]
    notes: tuple[str, ...]


def show_published_table(source: str, table: str, long_form: bool) -> ShownTable:
    """Return one table as printed, or with one measurement per row.

    Raises:
        UsageError: unknown source or table, or no long form.
    """
    loaded = published.load_published_table(source, table)
    document = published.long_form_document(loaded) if long_form else loaded.to_json()
    return ShownTable(document, tuple(loaded.sidecar.notes))


def print_table_list(document: dict[str, Any], console: Console) -> None:
    """Print the citation of each document, and one line per table below it."""
    for source in document["sources"]:
        reference = f"{source['authors']}: {source['title']}. {source['venue']}"
        date = f", {source['date']}" if source["date"] else ""
        console.print(Text(f"{source['key']} ({source['source']})  {reference}{date}", style="bold"))
        for table in source["tables"]:
            console.print(Text(f"  {table['table']:>5}  {table['rows']:>3} rows  {table['title']}"))


def print_published_table(shown: dict[str, Any], console: Console, notes: Sequence[str] = ()) -> None:
    """Print a table with units in its header and notes below; columns without values are omitted."""
    where = f"{shown['source']}/{shown['table']}"
    grid = Grid(title=Text(f"{published.cite_table(where)}: {shown['title']}"), title_justify="left")
    used_columns = []
    for index, column in enumerate(shown["columns"]):
        cells = [row[index] for row in shown["rows"]]
        if all(cell is None for cell in cells):
            continue
        used_columns.append(index)
        title = column["name"]
        if column["unit"] not in (None, "1"):
            title += f" ({column['unit']})"
        is_numeric = all(isinstance(cell, int | float | None) for cell in cells)
        grid.add_column(Text(title), justify="right" if is_numeric else "left")
    for row in shown["rows"]:
        grid.add_row(*(Text("" if row[index] is None else str(row[index])) for index in used_columns))
    console.print(grid)
    for note in notes:
        console.print(Text(f"note: {note}"))


def references_with_peak(system: str) -> dict[str, Any]:
    """Return the references of a system as JSON; bandwidths with their percentage of the theoretical peak.

    Raises:
        UsageError: unknown system.
        InputError: the file is damaged.
    """
    file_systems = load_system(system).file_systems
    references = bandwidth.load_references(system)
    entries = []
    for entry in references.entries:
        parameters = dict(pair.split("=", 1) for pair in entry.parameters)
        peak = None
        if published.has_peak(entry.metric.name):
            file_system = parameters.get("file_system") or default_file_system(system)
            peak = published.peak_mib_per_s(file_systems, entry.operation, file_system)
        percent = published.percent_of_peak(entry.value, peak)
        entries.append({**entry.to_json(), "peak": peak, "percent_of_peak": percent})
    return {"system": system, "path": str(references.path), "exists": references.exists, "entries": entries}


def print_references(shown: dict[str, Any], console: Console) -> None:
    """Print one line per reference of a system, with its percentage of the theoretical peak."""
    grid = Grid("stack", "variable", "case", "value", "accepted", "unit", "% of peak", "date", "from")
    for entry in shown["entries"]:
        provenance = entry["provenance"]
        value, lower, upper, percent = (format_number(entry[n]) for n in ("value", "lower", "upper", "percent_of_peak"))
        row = (entry["stack"], entry["variable"], entry["case"].replace(",", " "), value, f"{lower} to {upper}")
        source = published.cite_table(provenance["origin"][0])
        grid.add_row(*map(Text, (*row, entry["unit"], percent, provenance["date"], source)))
    console.print(grid if grid.row_count else f"no references of {shown['system']} in {shown['path']}")


def print_proposals(change: ReferenceFileChange, console: Console) -> None:
    """Print old and new values, then the diff of the file, then the series without a reference."""
    counts = Counter(proposal.kind for proposal in change.proposals)
    grid = Grid("", "stack", "variable", "case", "old", "new", "unit", "n", "note")
    for proposal in change.proposals:
        if proposal.kind != "same":
            new = proposal.new
            row = (proposal.kind, new.stack, new.variable, new.case.replace(",", " "), _format_entry(proposal.old))
            observations = str(new.provenance.n or "")
            grid.add_row(*map(Text, (*row, _format_entry(new), new.unit, observations, proposal.note)))
    if grid.row_count:
        console.print(grid)
        console.print(Text(change.diff))
    for reason in change.left_out:
        console.print(Text(f"no reference: {reason}"), soft_wrap=True)
    console.print(", ".join(f"{counts[kind]} {kind}" for kind in ("new", "changed", "same")))


def _format_entry(entry: Reference | None) -> str:
    """Return `2000 (1700 to 2400)`."""
    if entry is None:
        return "–"
    return f"{format_number(entry.value)} ({format_number(entry.lower)} to {format_number(entry.upper)})"


def print_remarks(remarks: Sequence[AuditRemark], console: Console) -> None:
    """Print one line per remark, errors first."""
    for severity in ("error", "warning", "note"):
        for remark in remarks:
            if remark.severity == severity:
                console.print(Text(f"{severity}: {remark.where}: {remark.text}"), soft_wrap=True)
    counts = Counter(remark.severity for remark in remarks)
    console.print(", ".join(format_count(counts[severity], severity) for severity in ("error", "warning", "note")))
