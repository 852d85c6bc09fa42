"""The report of a centre's Darshan logs: its document, and its text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.applications.fleet import production, tables
from iowatch.core import format_number, format_size, make_table
from iowatch.findings import Finding

# Applications and patterns that are listed.
_LISTED = 20


@dataclass(frozen=True)
class LogReport:
    """What the logs of a system show: the document of `iowatch logs report --json`, and the series behind it."""

    document: dict[str, Any]
    series: list[production.ApplicationSeries]
    changes: list[production.ProductionChange]

    def answer(self) -> Iterator[str]:
        """Yield what changed, and what was read."""
        return _answer_lines(self.document)


def build_log_report(system: str, since_s: float = 0.0, finding: Finding | None = None) -> LogReport:
    """Return the report of a system.

    Args:
        since_s: epoch seconds; logs before are in the series of applications only, as what they are compared with.
        finding: of the benchmarks; its date and direction are looked for in production.

    Raises:
        InputError: no logs of this system were added.
    """
    store = tables.LogStore(system)
    with store.connect() as database:
        counts = tables.count_logs(database, since_s)
        applications = tables.list_applications(database, since_s, _LISTED)
        patterns = tables.list_patterns(database, since_s, _LISTED)
        series, short = production.application_series(store, database)
    changes = production.find_changes(series)
    answer = production.felt_by_production(finding, changes, series).to_json(system) if finding else {}
    for one in patterns:
        one["remedies"] = [asdict(remedy) for remedy in production.remedies(one)]
    common = production.common_changes(changes, since_s)
    document = {
        "system": system,
        "logs": counts,
        "applications": applications,
        "patterns": patterns,
        "series": {"compared": len(series), "too_few_runs": short},
        "changes": [one.to_json(system) for one in common],
        "finding": {"id": finding.id, **answer} if finding else None,
    }
    return LogReport(document, series, common)


def print_log_report(console: Console, document: Mapping[str, Any]) -> None:
    """Print the document: the answer about a finding or the changes first, then patterns and applications."""
    for line in _answer_lines(document):
        console.print(line, markup=False, soft_wrap=True)
    if document["patterns"]:
        console.print("\nHeaviest patterns, by time in I/O calls of all ranks", markup=False)
        console.print(_pattern_table(document["patterns"]))
    if document["applications"]:
        console.print("\nApplications, by bytes moved", markup=False)
        console.print(_application_table(document["applications"], document["logs"]))


def _answer_lines(document: Mapping[str, Any]) -> Iterator[str]:
    if document["finding"]:
        yield f"{document['finding']['id']}: {document['finding']['text']}"
    for change in document["changes"]:
        yield change["text"]
    series = document["series"]
    if not document["changes"]:
        yield f"no change that applications have in common: {series['compared']} series compared"
    logs_ = document["logs"]
    yield f"{series['too_few_runs']} more series have too few runs or days"
    period = f", {logs_['first_day']} to {logs_['last_day']}" if logs_["logs"] else ""
    moved = f"{format_size(logs_['bytes_written'])} written, {format_size(logs_['bytes_read'])} read"
    partial = f"; of {logs_['partial']} Darshan has kept a part only" if logs_["partial"] else ""
    yield f"{logs_['logs']} logs of {logs_['applications']} applications{period}: {moved}{partial}"


def _pattern_table(patterns: list[dict[str, Any]]) -> Table:
    right = ("runs", "ranks", "I/O s", "written", "read")
    table = make_table("application", "on", "files", "through", *right, "what would help", right=right)
    for one in patterns:
        ranks = (
            str(one["min_ranks"]) if one["min_ranks"] == one["max_ranks"] else f"{one['min_ranks']}-{one['max_ranks']}"
        )
        sizes = (format_size(one["bytes_written"]), format_size(one["bytes_read"]))
        table.add_row(
            *(one["application"], one["file_system"], one["layout"], one["interface"], str(one["runs"]), ranks),
            *(format_number(one["io_time_s"]), *sizes, "; ".join(remedy["text"] for remedy in one["remedies"])),
        )
    return table


def _application_table(applications: list[dict[str, Any]], counts: Mapping[str, Any]) -> Table:
    right = ("runs", "written", "read", "share", "I/O s")
    table = make_table("application", *right, "on", right=right)
    moved = max(1, counts["bytes_read"] + counts["bytes_written"])
    for one in applications:
        share = (one["bytes_read"] + one["bytes_written"]) / moved
        sizes = (format_size(one["bytes_written"]), format_size(one["bytes_read"]))
        hours = format_number(one["io_time_s"])
        places = ", ".join(one["file_systems"])
        table.add_row(one["application"], str(one["runs"]), *sizes, f"{100 * share:.1f} %", hours, places)
    return table
