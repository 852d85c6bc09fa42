"""`iowatch history`: sessions and series; care of the history."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from iowatch.cli import care, options


@click.group(
    epilog="Example: iowatch history list --system local", short_help="Sessions and series; export; care."
)
def command() -> None:
    """What is in the history, and care of it over the years."""


for _command in care.COMMANDS:
    command.add_command(_command)


def _when(seconds: int | None) -> str | None:
    from iowatch.units import format_time

    return None if seconds is None else format_time(datetime.fromtimestamp(seconds, UTC))


@command.command("list", epilog="Example: iowatch history list --series --benchmark benchio")
@options.system()
@click.option("--series", "show_series", is_flag=True, help="Series instead of sessions.")
@click.option("--benchmark", help="Only series of this benchmark.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Newest sessions to show."
)
@options.database
@options.as_json
def list_(
    system: str | None, show_series: bool, benchmark: str | None, limit: int, db: str | None, as_json: bool
) -> None:
    """List sessions, or series with --series."""
    from iowatch.cli.output import page, print_json
    from iowatch.errors import UsageError
    from iowatch.report.history import print_series, print_sessions
    from iowatch.store import History, SeriesFilter

    if benchmark is not None and not show_series:
        raise UsageError("--benchmark chooses series, sessions have several", hint="Add --series.")
    with History.existing(db) as history:
        chosen = SeriesFilter(system=system, benchmark=benchmark)
        history.require_series(chosen)
        if show_series:
            rows = history.series(chosen)
            print_json([_series_json(row) for row in rows]) if as_json else print_series(page(), rows)
        else:
            sessions = history.sessions(system, limit)
            print_json([_session_json(row) for row in sessions]) if as_json else print_sessions(
                page(), sessions
            )


@command.command("show", epilog="Example: iowatch history show 3f2a --files")
@click.argument("session", required=False)
@click.option("--run", "number", type=click.IntRange(min=1), help="Only this run, by its number in findings.")
@click.option(
    "--files",
    "every_file",
    is_flag=True,
    help="Where outputs and Darshan logs of all runs lie, not only of failed ones.",
)
@options.database
@options.as_json
def show(session: str | None, number: int | None, every_file: bool, db: str | None, as_json: bool) -> None:
    """One session with its runs, or one run; SESSION is its UUID or the beginning of it."""
    from iowatch.cli.output import page, print_json
    from iowatch.errors import UsageError
    from iowatch.report.history import kept, print_session
    from iowatch.store import History, bulk

    with History.existing(db) as history:
        if (session is None) == (number is None):
            raise UsageError("expected one of SESSION and --run", hint="`iowatch history list` has sessions.")
        row = history.session(session or history.session_of_runs([history.run(number or 0).id])[number or 0])
        chosen = [run for run in history.runs(row.uuid) if number in (None, run.id)]
        runs = [(run, history.run_results(run.id)) for run in chosen]
        came = set(history.received(row.uuid))
        absent = [item for item in history.expected(row.uuid) if item not in came] if number is None else []
        with history.reading() as connection:
            files = bulk.session_artefacts(connection, row.id)
    if as_json:
        print_json(
            {
                **_session_json(row),
                "absent": [asdict(item) for item in absent],
                "runs": [
                    {
                        **asdict(run),
                        "results": [
                            {"case": dict(s.case.parameters), "metric": s.metric, "samples": list(samples)}
                            for s, samples in results
                        ],
                        "files": [
                            {**asdict(one), "path": str(path) if (path := kept(one)) else None}
                            for one in files.get(run.id, ())
                        ],
                    }
                    for run, results in runs
                ],
            }
        )
    else:
        print_session(page(), row, runs, absent, files, every_file or number is not None)


@command.command(
    "export", epilog="Example: iowatch history export --format csv --system local --output results.csv"
)
@click.option("--format", "form", default="csv", show_default=True, help="csv, parquet, json or openmetrics.")
@click.option(
    "--output", type=click.File("wb", lazy=True), default="-", help="File [default: standard output]."
)
@options.system()
@click.option("--benchmark", help="Only this benchmark.")
@click.option("--stack", help="Only this stack.")
@click.option("--metric", help="Only this metric.")
@click.option("--session", help="Only this session (UUID).")
@click.option("--since", help="Only results from this time on (ISO 8601 or epoch seconds).")
@click.option("--until", help="Only results before this time.")
@options.database
def export(
    form: str,
    output: Any,
    since: str | None,
    until: str | None,
    session: str | None,
    db: str | None,
    **chosen: Any,
) -> None:
    """Write results with every sample to a file that other programs read."""
    from iowatch.errors import UsageError
    from iowatch.store import History, SeriesFilter
    from iowatch.store.export import export as write
    from iowatch.store.results import ResultFilter
    from iowatch.units import parse_time

    def seconds(text: str | None) -> int | None:
        return None if text is None else int(parse_time(text).timestamp())

    begin, end = seconds(since), seconds(until)
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"--since {since} is not before --until {until}: no result can lie between")
    with History.existing(db) as history:
        series = SeriesFilter(**chosen)
        history.require_series(series)
        uuid = None if session is None else history.session(session).uuid
        write(history, ResultFilter(series=series, session=uuid, since=begin, until=end), form, output)


def _session_json(row: Any) -> dict[str, Any]:
    return {**asdict(row), "started_at": _when(row.started_at), "ended_at": _when(row.ended_at)}


def _series_json(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "system": row.system,
        "partition": row.partition,
        "stack": row.stack,
        "benchmark": row.case.benchmark,
        "case_key": row.case.key,
        "case": dict(row.case.parameters),
        "metric": row.metric,
        "n": row.n,
        "first": _when(row.first),
        "last": _when(row.last),
    }
