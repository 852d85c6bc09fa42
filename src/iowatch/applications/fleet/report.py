"""The report of a centre's Darshan logs: its document, and its text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.applications.fleet import production, tables, targets
from iowatch.core import format_number, format_size, make_table
from iowatch.findings import Finding

# Applications and patterns that are listed.
_LISTED = 20


@dataclass(frozen=True)
class LogReport:
    """What the logs of a system show: the document of `iowatch logs report --json`, and the series behind it."""

    document: dict[str, Any]
    series: Sequence[production.ApplicationSeries]
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
        selection = production.application_series(store, database)
        target_history = targets.target_history(database)
    for pattern in patterns:
        pattern["remedies"] = [asdict(remedy) for remedy in production.remedies(pattern)]
    # What applications have in common, and whether they changed with the finding.
    changes = production.find_changes(selection.series)
    common_changes = production.common_changes(changes, since_s)
    answer = None
    if finding is not None:
        felt = production.felt_by_production(finding, changes, selection.series)
        answer = {"id": finding.id, **felt.to_json(system)}
    document = {
        "system": system,
        "logs": counts,
        "applications": applications,
        "patterns": patterns,
        "series": {"compared": len(selection.series), "too_few_runs": selection.too_short_count},
        "changes": [change.to_json(system) for change in common_changes],
        "targets": target_history.to_json(system, since_s),
        "finding": answer,
    }
    return LogReport(document, selection.series, common_changes)


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
    slow_targets = [*document["targets"]["slow"], *document["targets"]["slow_in_logs"]]
    for slow_target in slow_targets:
        yield slow_target["text"]
    for change in document["changes"]:
        yield change["text"]
    series = document["series"]
    if not document["changes"]:
        yield f"no change that applications have in common: {series['compared']} series compared"
    yield f"{series['too_few_runs']} more series have too few runs or days"
    if not slow_targets:
        yield targets.format_target_summary(document["targets"])
    yield _amount_line(document["logs"])


def _amount_line(counts: Mapping[str, Any]) -> str:
    """How many logs there are, of what time, and what they moved."""
    line = f"{counts['logs']} logs of {counts['applications']} applications"
    if counts["logs"]:
        line += f", {counts['first_day']} to {counts['last_day']}"
    line += f": {format_size(counts['bytes_written'])} written, {format_size(counts['bytes_read'])} read"
    if counts["partial"]:
        line += f"; of {counts['partial']} Darshan has kept a part only"
    return line


def _pattern_table(patterns: list[dict[str, Any]]) -> Table:
    right = ("runs", "ranks", "I/O s", "written", "read")
    table = make_table("application", "on", "files", "through", *right, "what would help", right=right)
    for pattern in patterns:
        ranks = str(pattern["min_ranks"])
        if pattern["min_ranks"] != pattern["max_ranks"]:
            ranks = f"{pattern['min_ranks']}-{pattern['max_ranks']}"
        table.add_row(
            pattern["application"],
            pattern["file_system"],
            pattern["layout"],
            pattern["interface"],
            str(pattern["runs"]),
            ranks,
            format_number(pattern["io_time_s"]),
            format_size(pattern["bytes_written"]),
            format_size(pattern["bytes_read"]),
            "; ".join(remedy["text"] for remedy in pattern["remedies"]),
        )
    return table


def _application_table(applications: list[dict[str, Any]], counts: Mapping[str, Any]) -> Table:
    right = ("runs", "written", "read", "share", "I/O s")
    table = make_table("application", *right, "on", right=right)
    moved_by_all = max(1, counts["bytes_read"] + counts["bytes_written"])
    for application in applications:
        share = (application["bytes_read"] + application["bytes_written"]) / moved_by_all
        table.add_row(
            application["application"],
            str(application["runs"]),
            format_size(application["bytes_written"]),
            format_size(application["bytes_read"]),
            f"{100 * share:.1f} %",
            format_number(application["io_time_s"]),
            ", ".join(application["file_systems"]),
        )
    return table
