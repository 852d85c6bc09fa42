"""`iowatch review`: decisions about findings, kept in reference/reviews/."""

from __future__ import annotations

from datetime import datetime

import click

from iowatch.cli.common import DATE, history_options, print_json, print_lines
from iowatch.core import utc_now
from iowatch.findings import find_finding, update_findings
from iowatch.reference import current_author, reviews
from iowatch.store import History


@click.group(
    epilog="Example: iowatch review accept franklin-20090317-up --reason 'CLE 2.1UP01, intended'",
    short_help="Decide about findings: accept, dismiss, acknowledge, note.",
)
def command() -> None:
    """Decide about findings. Stored in reference/reviews/<system>.yaml; commit that file."""


# Subcommand, decision, options of the example, help.
_SUBCOMMANDS = (
    ("accept", "accepted", "--reason 'new striping, intended'",
     "Accept the new level: detection and references start from it."),
    ("dismiss", "dismissed", "--reason 'benchmark was misconfigured'", "Dismiss this finding, and no other."),
    ("acknowledge", "acknowledged", "--reason 'case 4711' --until 2026-12-01",
     "Mark as being handled: suppressed until the given day, then reported again."),
    ("note", "note", "--reason 'vendor asked on 3 May'", "Add a remark without changing the state."),
)  # fmt: skip


def _add_subcommand(name: str, decision: str, example: str, help_text: str) -> None:
    needs_end = decision == "acknowledged"

    @command.command(name, help=help_text, epilog=f"Example: iowatch review {name} ID {example}")
    @click.argument("finding", metavar="ID")
    @click.option("--reason", required=True, help="Reason, understandable without context.")
    @click.option("--until", type=DATE, required=needs_end, metavar="YYYY-MM-DD", help="Last day of the decision.")
    @click.option("--by", help="Author [default: git's user.name].")
    @history_options
    def record_decision(
        finding: str, reason: str, until: datetime | None, by: str | None, db: str | None, as_json: bool
    ) -> None:
        with History.existing(db) as history:
            found = find_finding(history, finding)
            entry = {
                "finding": found.id,
                "decision": decision,
                "by": by or current_author(),
                "reason": reason,
                "date": utc_now().date(),
                "until": until.date() if until else None,
            }
            reviews.add_decision(found.system, entry)
            update_findings(history, found.system, report=False)
            found = find_finding(history, found.id)
        if as_json:
            print_json(found.to_json())
        else:
            print_lines(f"{found.id} is now {found.state}; written to {reviews.review_file_path(found.system)}")


for _row in _SUBCOMMANDS:
    _add_subcommand(*_row)
