"""`iowatch logs`: the Darshan logs of all jobs of a system."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

import click

from iowatch.applications.fleet.intake import add_logs
from iowatch.applications.fleet.report import build_log_report, print_log_report
from iowatch.cli.common import (
    ANY_PATH,
    DATE,
    SuggestingGroup,
    examples,
    history_options,
    json_option,
    print_json,
    print_lines,
    print_message,
    print_report,
    system_option,
)
from iowatch.core import UsageError, start_of_day
from iowatch.findings import find_finding
from iowatch.session.workers import dask_workers
from iowatch.site import system_names, system_zone
from iowatch.store import History


@click.group(cls=SuggestingGroup, epilog=examples("iowatch logs add /darshan/2026/11 --system local"))
def command() -> None:
    """Darshan logs of all jobs of a system (docs/fleet.md)."""


@command.command(
    "add",
    short_help="Add the Darshan logs below a directory.",
    epilog=examples("iowatch logs add /darshan/2026/11 --system local --workers 2"),
)
@click.argument("directory", type=ANY_PATH)
@system_option(required=True)
@click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler [default: workers on this host].")
@click.option("--workers", type=click.IntRange(1), help="Workers on this host [default: one per core].")
@json_option
def add(directory: Path, system: str, scheduler: str | None, workers: int | None, as_json: bool) -> int:
    """Add the Darshan logs below DIRECTORY that are new; each is counted once, whatever its name.

    Damaged and foreign files are counted by reason and stop nothing. After an interruption the same command continues.
    Exit code 1: a directory could not be listed, or no file below DIRECTORY is a log that is or was counted.
    """
    if system not in system_names():
        print_message(f"note: '{system}' is not in systems/, so file systems have the names of their types")
    summary = add_logs(directory, system, partial(dask_workers, scheduler, workers))
    if as_json:
        print_json(summary.to_json())
    else:
        print_lines(*summary.format_lines())
    problems = summary.problems()
    for problem in problems:
        print_message(problem)
    return 1 if problems else 0


@command.command(
    "report",
    short_help="Report who moves how much.",
    epilog=examples("iowatch logs report --system local --since 2026-11-01"),
)
@system_option(required=True)
@click.option("--since", type=DATE, help="Count jobs from this day on [default: all].")
@click.option("--finding", "finding_id", metavar="ID", help="Whether applications changed with this finding.")
@history_options
def report(system: str, since: datetime | None, finding_id: str | None, db: str | None, as_json: bool) -> int:
    """Report who moves how much, the heaviest patterns, slow targets, and what changed for several applications.

    Exit code 1: applications changed, with the finding or since the day; or a target is slow.
    """
    finding = None
    if finding_id is not None:
        with History.existing(db) as history:
            finding = find_finding(history, finding_id)
        if finding.system != system:
            raise UsageError(f"{finding_id} is a finding of '{finding.system}', not of '{system}'")
    since_s = start_of_day(since.date(), system_zone(system)) if since else 0.0
    document = build_log_report(system, since_s, finding).document
    print_report(as_json, document, partial(print_log_report, document=document))
    if finding:
        return int(bool(document["finding"]["applications_changed"]))
    is_slow = any(not slow_target["has_ended"] for slow_target in document["targets"]["slow"])
    # One application alone may have a slow node or its own habits.
    is_slow = is_slow or any(slow_target["applications"] > 1 for slow_target in document["targets"]["slow_in_logs"])
    return int(is_slow or bool(document["changes"]))
