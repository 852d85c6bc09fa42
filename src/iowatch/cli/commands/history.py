"""`iowatch history`: sessions and series, export, and maintenance of the history."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, BinaryIO

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_benchmark, complete_stack
from iowatch.core import (
    DAY_S,
    UsageError,
    artefacts,
    files,
    format_count,
    format_size,
    format_time,
    parse_size,
    parse_time,
)
from iowatch.output.history import PrintedRun, artefact_location, print_series, print_session, print_sessions
from iowatch.site import shared_zone
from iowatch.store import (
    ALL_SESSIONS,
    ROLES_FILE,
    Artefact,
    History,
    ResultFilter,
    RunRow,
    SeriesFilter,
    SeriesRow,
    SessionRow,
    database_url,
    locks,
)

# Modules that only one subcommand uses are imported by it: `list` would take three times as long.


# What people type for the commands of a history -> its name here, and what it does.
_OTHER_NAMES = {
    "restore": ("copy", "`iowatch history copy BACKUP var/iowatch.db` restores a backup"),
    "merge": ("copy", "It adds what another history has"),
    "verify": ("check", "It looks for damage"),
    "dump": ("export", "It writes results for other programs"),
    "delete": ("prune", "It removes old files; results are kept"),
    "clean": ("prune", "It removes old files; results are kept"),
}


class _HistoryGroup(common.SuggestingGroup):
    """Names the command that a person means who calls it by another word."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _OTHER_NAMES:
            name, effect = _OTHER_NAMES[args[0]]
            ctx.fail(f"no command '{args[0]}'. Did you mean '{name}'? {effect}.")
        return super().resolve_command(ctx, args)


@click.group(cls=_HistoryGroup, epilog=common.examples("iowatch history list --system local"))
def command() -> None:
    """List, show and export results of the history; check, back up and copy the database; prune old files."""


@command.command("check", epilog=common.examples("iowatch history check"))
@common.history_options
def check(db: str | None, as_json: bool) -> int:
    """Check the history for damage and lost sessions.

    Exit code 1 if there are any.
    """
    from iowatch.session import continuity
    from iowatch.store import maintenance

    is_of_checkout = database_url(db) == database_url()
    with History.existing(db) as history:
        report = maintenance.check_history(history)
        lost = continuity.continuity_faults(history, with_ledger=is_of_checkout)
    report = replace(report, faults=(*report.faults, *lost))
    if as_json:
        common.print_json(asdict(report))
    else:
        counts = _format_counts(session=report.sessions, run=report.runs, result=report.results)
        faults = format_count(len(report.faults), "fault") if report.faults else "no fault"
        common.print_lines(f"{counts}, {format_size(report.size_bytes)}: {faults}.")
        common.print_lines(*(f"  fault: {text}" for text in report.faults))
        common.print_lines(*(f"  note: {text}" for text in report.notes))
    return 1 if report.faults else 0


def _format_counts(**numbers: int) -> str:
    return ", ".join(format_count(number, name) for name, number in numbers.items())


@command.command(
    "backup",
    short_help="Write the whole history into a new SQLite file.",
    epilog=common.examples("iowatch history backup /backup/iowatch-2026-11-21.db"),
)
@click.argument("file", type=common.ANY_PATH)
@common.database_option
def backup(file: Path, db: str | None) -> None:
    """Write the whole history into a new SQLite FILE, while others use it; `iowatch history copy` restores it."""
    from iowatch.store import maintenance

    with History.existing(db) as history:
        size = maintenance.backup_history(history, file)
    common.print_message(f"{file}: {format_size(size)}")


@command.command("copy", epilog=common.examples("iowatch history copy var/iowatch.db postgresql://iowatch@db/iowatch"))
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@common.system_option()
@common.json_option
def copy(source: str, target: str, system: str | None, as_json: bool) -> None:
    """Copy what TO lacks of FROM; each is a path or a URL. Copying twice has the same effect as once.

    To restore a backup, copy it into a history that does not exist yet. No session of this checkout can run while
    its own history is TO, and none of any host that uses a PostgreSQL history while that is TO.
    """
    from iowatch.store import maintenance

    lock = locks.exclusive_lock() if database_url(target) == database_url() else nullcontext()
    with History.existing(source) as left, lock, History.open(target) as right, right.locks.hold(ALL_SESSIONS):
        done = maintenance.copy_history(left, right, system)
    if as_json:
        common.print_json(asdict(done))
    else:
        new = _format_counts(run=done.runs, result=done.results, finding=done.findings)
        common.print_message(f"{format_count(done.sessions, 'session')} compared; new: {new}")


@command.command(
    "roles",
    short_help="Print SQL for the roles of a PostgreSQL history.",
    epilog=common.examples("iowatch history roles | psql postgresql://iowatch@db/iowatch"),
)
def roles() -> None:
    """Print SQL for the roles of a PostgreSQL history: reader, reviewer, writer.

    The owner of the history runs it, and again after each upgrade of iowatch (docs/history.md, Several people).
    """
    click.echo(ROLES_FILE.read_text(encoding="utf-8"), nl=False)


@command.command(
    "prune",
    short_help="Remove old outputs and Darshan logs.",
    epilog=common.examples("iowatch history prune --days 400 --size 50g --dry-run"),
)
@click.option("--days", type=click.FloatRange(min=0), help="Remove files older than this many days.")
@click.option("--size", help="Then remove the oldest files until the rest is within this size (50g, 1t).")
@click.option("--delete-records", is_flag=True, help="Also delete their names and SHA-256 from the history.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@common.history_options
def prune(
    days: float | None, size: str | None, delete_records: bool, dry_run: bool, db: str | None, as_json: bool
) -> None:
    """Remove old outputs and Darshan logs from var/artefacts, and old sessions' ReFrame files from var/runs.

    Every result stays in the history, and so do files that findings refer to. Only --days applies to
    var/runs.
    """
    from iowatch.session import directory as session_directory
    from iowatch.store import maintenance

    if days is None and size is None:
        raise click.UsageError("--days or --size is required")
    with History.existing(db) as history:
        pruned = artefacts.prune_artefacts(
            max_age_s=None if days is None else days * DAY_S,
            max_bytes=None if size is None else parse_size(size),
            protected=maintenance.protected_digests(history),
            dry_run=dry_run,
        )
        if delete_records and not dry_run:
            maintenance.delete_artefact_rows(history, pruned.removed)
    session_logs: list[str] = []
    if days is not None:
        session_logs = session_directory.remove_old_session_files(days * DAY_S, dry_run=dry_run)
    if as_json:
        common.print_json({**asdict(pruned), "sessions": session_logs})
        return
    verb = "would be removed" if dry_run else "removed"
    removed = f"{format_count(len(pruned.removed), 'file')} ({format_size(pruned.freed_bytes)})"
    logs = f"the logs of {format_count(len(session_logs), 'session')}"
    text = f"{removed} and {logs} {verb}; {format_size(pruned.kept_bytes)} stay"
    if pruned.over_bytes:
        text += f"; {format_size(pruned.over_bytes)} above the limit belong to findings"
    common.print_message(text)


def _format_epoch(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    return format_time(datetime.fromtimestamp(seconds, UTC))


@command.command("list", epilog=common.examples("iowatch history list --series --benchmark benchio"))
@common.system_option()
@click.option("--series", "show_series", is_flag=True, help="Series instead of sessions.")
@click.option("--benchmark", shell_complete=complete_benchmark, help="Only series of this benchmark.")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Newest sessions to show.")
@common.history_options
def list_(
    system: str | None, show_series: bool, benchmark: str | None, limit: int, db: str | None, as_json: bool
) -> None:
    """List sessions, or series with --series."""
    if benchmark is not None and not show_series:
        raise UsageError("--benchmark chooses series, sessions have several", hint="Add --series.")
    with History.existing(db) as history:
        series_filter = SeriesFilter(system=system, benchmark=benchmark)
        history.require_series(series_filter)
        if show_series:
            series = history.series(series_filter)
            document = [_series_json(row) for row in series]
            common.print_report(as_json, document, lambda console: print_series(console, series))
        else:
            newest = history.sessions(system, limit)
            document = [_session_json(row) for row in newest]
            common.print_report(as_json, document, lambda console: print_sessions(console, newest))


@command.command(
    "show",
    short_help="One session with its runs, or one run.",
    epilog=common.examples("iowatch history show 3f2a --files"),
)
@click.argument("session", required=False)
@click.option("--run", "number", type=click.IntRange(min=1), help="Only this run, by its number in findings.")
@click.option(
    "--files",
    "every_file",
    is_flag=True,
    help="Paths of outputs and Darshan logs of all runs, not only of failed ones.",
)
@common.history_options
def show(session: str | None, number: int | None, every_file: bool, db: str | None, as_json: bool) -> None:
    """One session with its runs, or one run; SESSION is its UUID or the beginning of it."""
    from iowatch.findings import find_retests
    from iowatch.session.coverage import assess_coverage
    from iowatch.store import bulk

    with History.existing(db) as history:
        if (session is None) == (number is None):
            raise UsageError("expected one of SESSION and --run", hint="`iowatch history list` has sessions.")
        if number is not None:
            session = history.session_of_runs([history.run(number).id])[number]
        row = history.session(str(session))
        runs = [(run, history.run_results(run.id)) for run in history.runs(row.uuid) if number in (None, run.id)]
        missing = assess_coverage(history, row).missing_results if number is None else ()
        with history.reading() as connection:
            artefacts = bulk.session_artefacts(connection, row.id)
    if as_json:
        document = _session_json(row)
        document["missing"] = [asdict(result) for result in missing]
        document["runs"] = [_run_json(run, results, artefacts.get(run.id, ())) for run, results in runs]
        retests = find_retests([run for run, _ in runs])
        document["retests"] = [asdict(retest) for retest in retests]
        common.print_json(document)
    else:
        printed_runs = [PrintedRun(run, results, artefacts.get(run.id, ())) for run, results in runs]
        print_session(common.stdout_console(), row, printed_runs, missing, every_file or number is not None)


@command.command(
    "export",
    short_help="Write results for other programs.",
    epilog=common.examples("iowatch history export --format csv --system local --output results.csv"),
)
@click.option(
    "--format",
    "form",
    default="csv",
    show_default=True,
    help="csv, parquet, json or openmetrics (newest results, sessions and findings).",
)
@click.option("--output", type=common.OUTPUT_FILE, help="File [default: standard output].")
@common.system_option()
@click.option("--benchmark", shell_complete=complete_benchmark, help="Only this benchmark.")
@click.option("--stack", shell_complete=complete_stack, help="Only this stack.")
@click.option("--metric", help="Only this metric.")
@click.option("--session", help="Only this session (UUID).")
@click.option("--since", help="Only results from this time on: ISO 8601 (in the system's time zone) or epoch seconds.")
@click.option("--until", help="Only results before this time.")
@common.database_option
def export_history(
    form: str,
    output: Path | None,
    since: str | None,
    until: str | None,
    session: str | None,
    db: str | None,
    **series_fields: Any,
) -> None:
    """Write results with every sample to a file that other programs read."""
    from iowatch.output.monitoring import write_metrics
    from iowatch.store import export

    with History.existing(db) as history:
        system = series_fields["system"]
        zone = shared_zone([system] if system else history.systems())
        begin, end = _epoch_s(since, zone), _epoch_s(until, zone)
        if begin is not None and end is not None and begin >= end:
            raise UsageError(f"--since {since} is not before --until {until}: the period is empty")
        series = SeriesFilter(**series_fields)
        history.require_series(series)
        uuid = None if session is None else history.session(session).uuid
        results = ResultFilter(series=series, session=uuid, since=begin, until=end)
        with _open_output(output) as stream:
            if form == "openmetrics":
                write_metrics(history, results, stream)
            else:
                export.export_results(history, results, form, stream)


def _epoch_s(text: str | None, zone: tzinfo) -> int | None:
    if text is None:
        return None
    return int(parse_time(text, zone).timestamp())


def _open_output(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Standard output, a device or a pipe; a file is replaced when it is complete."""
    if path is None or path == Path("-"):
        return nullcontext(sys.stdout.buffer)
    if path.exists() and not path.is_file():
        return path.open("wb")
    return files.open_atomically(path)


def _session_json(row: SessionRow) -> dict[str, Any]:
    return {**row.to_json(), "started_at": _format_epoch(row.started_at), "ended_at": _format_epoch(row.ended_at)}


def _run_json(run: RunRow, results: Iterable[Any], artefacts: Iterable[Artefact]) -> dict[str, Any]:
    return {
        **run.to_json(),
        "results": [
            {"case": dict(series.case.parameters), "metric": series.metric, "samples": list(samples)}
            for series, samples in results
        ],
        "files": [_artefact_json(artefact) for artefact in artefacts],
    }


def _artefact_json(artefact: Artefact) -> dict[str, Any]:
    path = artefact_location(artefact)
    return {**asdict(artefact), "path": str(path) if path else None}


def _series_json(row: SeriesRow) -> dict[str, Any]:
    case = {"benchmark": row.case.benchmark, "case_key": row.case.key, "case": dict(row.case.parameters)}
    return {**vars(row), **case, "first": _format_epoch(row.first), "last": _format_epoch(row.last)}
