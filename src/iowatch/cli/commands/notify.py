"""`iowatch notify`: tell people what is new."""

from __future__ import annotations

from dataclasses import asdict

import click

from iowatch.cli import options


@click.command(
    epilog="Example: iowatch notify --system local --dry-run",
    short_help="Tell people what is new: chat, mail, issue.",
)
@options.system(required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send and remember nothing.")
@options.database
@options.as_json
def command(system: str, dry_run: bool, db: str | None, as_json: bool) -> int:
    """Send what is new through the channels of systems/<name>/notify.yaml (docs/operations.md).

    One notice a new or changed finding, one when nothing ran, one digest a week. Each goes out once;
    what a server does not take is sent the next time. `ci/nightly` calls this after every night. Exit code 1:
    something waits because a channel failed.
    """
    from iowatch import notify
    from iowatch.cli.output import messages, page, print_json
    from iowatch.store import History

    settings = notify.load(system)
    if settings is None:
        messages().print(f"systems/{system} has no notify.yaml: nobody is told (docs/operations.md).")
        if as_json:
            print_json({"system": system, "channels": []})
        return 0
    with History.existing(db) as history:
        if dry_run:
            planned = notify.rehearse(history, system, settings)
            document = {name: [notice.to_json() for notice in queue] for name, queue in planned.items()}
            lines = [f"{name}: {notice.title}" for name, queue in planned.items() for notice in queue]
        else:
            outcomes = notify.tell(history, system, settings)
    if dry_run:
        if as_json:
            print_json({"system": system, "would_send": document})
        else:
            page().print("\n".join(lines or ["Nothing to tell."]), markup=False, soft_wrap=True)
        return 0
    if as_json:
        print_json({"system": system, "channels": [asdict(outcome) for outcome in outcomes]})
    for outcome in outcomes:
        late = f"; {outcome.waiting} wait for the next time: {outcome.reason}" if outcome.reason else ""
        messages().print(f"{outcome.channel}: {len(outcome.sent)} sent{late}", markup=False, soft_wrap=True)
    return 1 if any(outcome.reason for outcome in outcomes) else 0
