"""What `iowatch reference show` prints: documents for programs, tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from iowatch.reference import derived, longform, published
from iowatch.reference.audit import Remark
from iowatch.reference.bandwidth import Entry
from iowatch.reference.propose import Change
from iowatch.units import format_number


def listing(source: str | None = None) -> dict[str, Any]:
    """All sources (or one) with their tables.

    Raises:
        UsageError: no such source.
    """
    known = published.sources()
    wanted = known if source is None else {source: None} if published.names(source) else {}
    return {
        "sources": [
            {
                **known[name].model_dump(),
                "source": name,
                "tables": [_summary(name, t) for t in published.names(name)],
            }
            for name in wanted
        ]
    }


def _summary(source: str, table: str) -> dict[str, Any]:
    loaded = published.load(source, table)
    sidecar = loaded.sidecar
    return {
        "table": table,
        "title": sidecar.title,
        "section": sidecar.section,
        "rows": len(loaded.rows),
        "long": longform.has_long_form(loaded),
        "notes": sidecar.notes,
    }


def document(source: str, table: str, long_form: bool) -> dict[str, Any]:
    """One table as printed, or one measurement a row.

    Raises:
        UsageError: no such source or table, or no long form.
    """
    loaded = published.load(source, table)
    return longform.to_json(loaded) if long_form else loaded.to_json()


def print_listing(known: dict[str, Any], console: Console) -> None:
    """One line a table under its document."""
    for source in known["sources"]:
        authors = f"{source['authors']}, {source['date']}" if source["date"] else source["authors"]
        console.print(Text(f"{source['source']}  {source['title']} ({authors})", style="bold"))
        for table in source["tables"]:
            console.print(Text(f"  {table['table']:>5}  {table['rows']:>3} rows  {table['title']}"))


def print_table(shown: dict[str, Any], console: Console, notes: Sequence[str] = ()) -> None:
    """A table with units in its header and notes below; columns without any value are left out."""
    used = [n for n in range(len(shown["columns"])) if any(row[n] is not None for row in shown["rows"])]
    grid = Grid(title=Text(f"{shown['source']}/{shown['table']}: {shown['title']}"), title_justify="left")
    for n in used:
        column = shown["columns"][n]
        unit = f" ({column['unit']})" if column["unit"] not in (None, "1") else ""
        numeric = all(isinstance(row[n], int | float | None) for row in shown["rows"])
        grid.add_column(Text(column["name"] + unit), justify="right" if numeric else "left")
    for row in shown["rows"]:
        grid.add_row(*(Text("" if row[n] is None else str(row[n])) for n in used))
    console.print(grid)
    for note in notes:
        console.print(Text(f"note: {note}"))


def derived_facts() -> dict[str, Any]:
    """Statements of the papers beside what their tables give, and the best stripe size of each volume."""
    return {
        "facts": [{**asdict(fact), "holds": fact.holds} for fact in derived.facts()],
        "best_stripes": [asdict(stripe) for stripe in derived.best_stripes()],
    }


def print_facts(shown: dict[str, Any], console: Console) -> None:
    """One line a fact; what does not follow is in reference/ERRATA.md."""
    grid = Grid("fact", "source", "stated", "computed", "unit", "follows")
    for fact in shown["facts"]:
        stated, computed = _stated(fact), format_number(fact["computed"])
        grid.add_row(fact["name"], fact["source"], stated, computed, fact["unit"], _FOLLOWS[fact["holds"]])
    console.print(grid)
    stripes = Grid("source", "case", "writers", "MiB in all", "best stripe size", "over 1 MiB")
    for row in shown["best_stripes"]:
        place, size = f"000, Table {row['table']}", format_number(row["total_mib"])
        stripes.add_row(
            place,
            row["case"],
            str(row["writers"]),
            size,
            row["best"],
            f"+{row['gain']:.0f} %" if row["gain"] else "–",
        )
    console.print(stripes)


_FOLLOWS = {True: "yes", False: "no, see ERRATA.md", None: "not stated as a number"}


def _stated(fact: dict[str, Any]) -> str:
    if fact["stated"] is None:
        return "–"
    relation = "" if fact["relation"] == "is" else f"{fact['relation']} "
    return f"{relation}{format_number(fact['stated'])}"


def print_accepted(shown: dict[str, Any], console: Console) -> None:
    """One line a reference of a system, with its part of the theoretical peak."""
    grid = Grid("stack", "variable", "case", "value", "accepted", "unit", "% of peak", "date", "from")
    for entry in shown["entries"]:
        low, high = format_number(entry["lower"]), format_number(entry["upper"])
        came = entry["provenance"]
        row = (
            entry["stack"],
            entry["variable"],
            entry["case"].replace(",", " "),
            format_number(entry["value"]),
        )
        share = format_number(entry["percent_of_peak"])
        grid.add_row(
            *map(Text, (*row, f"{low} to {high}", entry["unit"], share, came["date"], came["origin"][0]))
        )
    console.print(grid if grid.row_count else f"no references of {shown['system']} in {shown['path']}")


def print_change(change: Change, console: Console) -> None:
    """Old against new, then the difference of the file, then what gives no reference."""
    counts = Counter(proposal.kind for proposal in change.proposals)
    grid = Grid("", "stack", "variable", "case", "old", "new", "unit", "nights", "note")
    for proposal in change.proposals:
        if proposal.kind != "same":
            new = proposal.new
            row = (proposal.kind, new.stack, new.variable, new.case.replace(",", " "))
            nights = str(new.provenance.n or "")
            grid.add_row(*map(Text, (*row, _level(proposal.old), _level(new), new.unit, nights, proposal.note)))
    if grid.row_count:
        console.print(grid)
        console.print(Text(change.diff))
    for reason in change.left_out:
        console.print(Text(f"no reference: {reason}"), soft_wrap=True)
    console.print(", ".join(f"{counts[kind]} {kind}" for kind in ("new", "changed", "same")))


def _level(entry: Entry | None) -> str:
    """`2000 (1700 to 2400)`."""
    if entry is None:
        return "–"
    return f"{format_number(entry.value)} ({format_number(entry.lower)} to {format_number(entry.upper)})"


def print_remarks(remarks: Sequence[Remark], console: Console) -> None:
    """Errors first; one line each."""
    for severity in ("error", "warning", "note"):
        for remark in remarks:
            if remark.severity == severity:
                console.print(Text(f"{severity}: {remark.where}: {remark.text}"), soft_wrap=True)
    counts = Counter(remark.severity for remark in remarks)
    console.print(
        ", ".join(f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}" for s in ("error", "warning", "note"))
    )
