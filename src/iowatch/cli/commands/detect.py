"""`iowatch detect`: lasting changes, transients and drift of series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path

import click

from iowatch.cli.common import INPUT_FILE, examples, history_options, print_json, stdout_console, system_option
from iowatch.core import PlainTable, covariate_label
from iowatch.findings import detect_csv, detect_system
from iowatch.output.history import format_case_name
from iowatch.output.text.sessions import detection_cells
from iowatch.site import system_zone
from iowatch.statistics import DEFAULT_METHOD, METHODS, Detection
from iowatch.store import History

# Those of plugins are not listed: plugins are loaded when a method is chosen, not for the help.
_METHOD_HELP = f"Method: {', '.join(METHODS)}, or the name of one that a plugin adds."


@click.command(epilog=examples("iowatch detect --csv nightly.csv --json", "iowatch detect --system local"))
@click.option("--csv", "csv_file", type=INPUT_FILE, help="Series: header series,time,value.")
@system_option()
@click.option("--method", default=DEFAULT_METHOD, show_default=True, help=_METHOD_HELP)
@history_options
@click.pass_context
def command(
    ctx: click.Context, csv_file: Path | None, system: str | None, method: str, db: str | None, as_json: bool
) -> None:
    """Print what changed in each series of a file or of a system's history, since when and by how much.

    Time is ISO 8601 or epoch seconds, values are > 0, rows in any order; values of the same time are samples of one
    observation. Exit code 1: something changed.
    A difference of only the newest one to three observations is "suspected", which is no change; fewer than 7
    observations are not assessed. With --system, accepted levels are not reported as changes.
    """
    if (csv_file is None) == (system is None):
        raise click.UsageError("give either --csv FILE or --system S")
    detections = detect_csv(csv_file, method) if csv_file else _detect_system(db, str(system), method)
    if as_json:
        print_json({"series": {name: detection.to_json() for name, detection in detections.items()}})
    else:
        _print_report(detections, UTC if system is None else system_zone(system))
    has_changes = any(detection.changes for detection in detections.values())
    ctx.exit(1 if has_changes else 0)


def _detect_system(db: str | None, system: str, method: str) -> dict[str, Detection]:
    with History.existing(db) as history:
        detected_series = detect_system(history, system, method)
    has_several_partitions = len({row.partition for row, _ in detected_series}) > 1
    detections = {}
    for row, detection in detected_series:
        name = f"{row.stack} {format_case_name(row.case)} {row.metric}"
        if has_several_partitions:
            name += f" [{row.partition}]"
        detections[name] = detection
    return detections


def _print_report(detections: Mapping[str, Detection], zone: tzinfo) -> None:
    """The answer first, then one line per change; days are in `zone`."""
    console = stdout_console()
    changed = sum(bool(detection.changes) for detection in detections.values())
    console.print(f"{changed} of {len(detections)} series changed")
    statuses = Counter(detection.status for detection in detections.values())
    del statuses["ok"]
    for status, count in statuses.items():
        console.print(f"{count} not assessed: {status}")
    adjustments = [detection.adjustment for detection in detections.values()]
    covariates = Counter(adjustment.covariate for adjustment in adjustments if adjustment is not None)
    for covariate, count in covariates.items():
        console.print(f"{count} adjusted for {covariate_label(covariate)}")
    table = PlainTable("series", "what", "since", "observations", "ratio", "before", "after", "confidence", box=None)
    for name, detection in detections.items():
        for cells in detection_cells(detection, zone):
            table.add_row(name, *cells)
    if table.row_count:
        console.print(table)
