"""`iowatch notify`: send notices about findings, problems of sessions and overdue sessions, and the weekly digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from iowatch.cli.common import examples, history_options, print_json, print_lines, print_message, system_option
from iowatch.output import notice_channels, notices
from iowatch.store import History


@click.command(epilog=examples("iowatch notify --system local --dry-run"))
@system_option(required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, without sending it.")
@history_options
def command(system: str, dry_run: bool, db: str | None, as_json: bool) -> int:
    """Send new notices through the channels in systems/<name>/notify.yaml (docs/notices.md).

    Send one notice per new or changed finding, one if the newest session has problems or is overdue, and one digest
    per week. Each notice is sent once; undelivered notices are retried by the next call. `ci/nightly` runs this after
    each nightly session. Exit code 1: a channel failed and notices are pending.
    """
    settings = notice_channels.load_notify_settings(system)
    if settings is None:
        print_message(f"systems/{system} has no notify.yaml: no notices are sent (docs/notices.md).")
        if as_json:
            print_json({"system": system, "channels": []})
        return 0
    with History.existing(db) as history:
        if dry_run:
            _print_preview(system, notices.preview_notices(history, system, settings), as_json)
            return 0
        outcomes = notices.send_notices(history, system, settings)
    if as_json:
        print_json({"system": system, "channels": [asdict(outcome) for outcome in outcomes]})
    for outcome in outcomes:
        line = f"{outcome.channel}: {len(outcome.sent)} sent"
        if outcome.reason:
            line += f"; {outcome.waiting} pending until the next call: {outcome.reason}"
        print_message(line)
    return 1 if any(outcome.reason for outcome in outcomes) else 0


def _print_preview(system: str, planned: Mapping[str, Sequence[notices.Notice]], as_json: bool) -> None:
    if as_json:
        document = {}
        for channel, queue in planned.items():
            document[channel] = [notice.to_json() for notice in queue]
        print_json({"system": system, "would_send": document})
        return
    for channel, queue in planned.items():
        print_lines(*(f"{channel}: {notice.title}" for notice in queue))
    if not any(planned.values()):
        print_lines("No new notices.")
