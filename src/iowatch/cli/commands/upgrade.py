"""`iowatch upgrade`: what a new version changes, before it is done; then the upgrade of the history."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli.common import history_options, print_message, print_report
from iowatch.findings import update_findings
from iowatch.output.upgrade import check_upgrade, render_upgrade
from iowatch.store import History


@click.command(
    epilog="Examples:\n  iowatch upgrade --check\n  iowatch upgrade --check --from ~/iowatch-old --json",
    short_help="Show what this version changes for a site; upgrade the history.",
)
@click.option("--check", is_flag=True, help="Only report; nothing is written.")
@click.option(
    "--from", "old", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="The old installation (virtual environment or clone), to compare files that the site replaces.",
)  # fmt: skip
@history_options
def command(check: bool, old: Path | None, db: str | None, as_json: bool) -> int:
    """Report what this version changes: schema, findings, suites, names, files; then upgrade the history.

    With --check nothing is written; run it with the new version before any other command of it. Exit code 1 if a
    person has something to do, which the report marks with an exclamation mark.
    """
    report = check_upgrade(db, old, print_message)
    print_report(as_json, report.to_json(), lambda console: render_upgrade(report, console))
    if not check:
        with History.existing(db) as history:
            for system in history.systems():
                update_findings(history, system, report=False)
        print_message("The history is upgraded.")
    return 1 if report.needs_person else 0
