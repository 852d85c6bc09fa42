"""`iowatch findings`: what changed, since when, common factor, events near."""

from __future__ import annotations

import click

from iowatch.cli import options

_everything = click.option("--all", "everything", is_flag=True, help="Also what is settled.")


@click.group(
    invoke_without_command=True,
    epilog="Example: iowatch findings list --system local",
    short_help="What changed, since when, what the changed cases have in common.",
)
@options.system()
@_everything
@options.database
@options.as_json
@click.pass_context
def command(ctx: click.Context, system: str | None, everything: bool, db: str | None, as_json: bool) -> int:
    """Findings: the changes of many series that belong to one event.

    Without a subcommand: the list. Exit code 1 when a finding is open.
    """
    ctx.default_map = {
        "list": {"system": system, "db": db, "as_json": as_json, "everything": everything},
        "show": {"db": db, "as_json": as_json},
    }
    return 0 if ctx.invoked_subcommand else int(ctx.invoke(list_, **ctx.default_map["list"]))


@command.command("list", epilog="Example: iowatch findings list --all --json")
@options.system()
@_everything
@options.database
@options.as_json
def list_(system: str | None, everything: bool, db: str | None, as_json: bool) -> int:
    """One line an event; those that need nobody any more only with --all. Slow trends follow.

    Findings are brought up to date first; only series with new points cost anything. Exit code 1 when a finding
    is open.
    """
    from dataclasses import asdict

    from iowatch.cli.output import messages, page, print_json
    from iowatch.findings import NEEDS_ACTION, refreshed, unknown_decisions, watched
    from iowatch.findings.text import listing, none_told
    from iowatch.findings.trends import listing as trend_lines
    from iowatch.findings.trends import trends
    from iowatch.store import History

    with History.existing(db) as history:
        found = refreshed(history, system)
        for trouble in unknown_decisions(history, system):
            messages().print(trouble, markup=False, soft_wrap=True)
        slow = trends(history, [system] if system else history.systems())
        series, too_few = watched(history, system)
    shown = [f for f in found if everything or f.state in ("open", "suspected", "acknowledged")]
    if as_json:
        print_json(
            {
                "findings": [f.to_json() for f in shown],
                "trends": [asdict(trend) for trend in slow],
                "series": {"watched": series, "too_few_nights": too_few},
            }
        )
    else:
        nothing = [none_told(series, too_few, len(found) - len(shown))]
        for line in (*(listing(shown) if shown else nothing), *trend_lines(slow)):
            page().print(line, markup=False, soft_wrap=True)
    return 1 if any(f.state in NEEDS_ACTION for f in shown) else 0


@command.command("show", epilog="Example: iowatch findings show franklin-20090317-up")
@click.argument("finding", metavar="ID")
@options.database
@options.as_json
def show(finding: str, db: str | None, as_json: bool) -> int:
    """One finding with all that it rests on; an unambiguous ID will do. Exit code 1 when it is open."""
    from iowatch.cli.output import page, print_json
    from iowatch.findings import NEEDS_ACTION, find
    from iowatch.findings.text import page as lines
    from iowatch.findings.traces import log_differences, log_lines
    from iowatch.store import History

    with History.existing(db) as history:
        found = find(history, finding)
        logs = log_differences(history, found)
    if as_json:
        print_json({**found.to_json(), "darshan": logs and logs.to_json()})
    else:
        for line in (*lines(found), *log_lines(logs)):
            page().print(line, markup=False, soft_wrap=True)
    return 1 if found.state in NEEDS_ACTION else 0
