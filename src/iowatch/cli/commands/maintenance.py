"""`iowatch maintenance`: whether a system is fit after a maintenance."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_suite
from iowatch.cli.report_files import report_files
from iowatch.core import UsageError
from iowatch.findings import reported_as
from iowatch.output import fitness, report
from iowatch.output.sheet import print_sheet, sheet_markdown, sheets_html
from iowatch.reference import events
from iowatch.session import maintenance, repeated_runs, run
from iowatch.session.context import make_context, select_cases
from iowatch.session.options import SessionOptions, load_active_system
from iowatch.statistics.fitness import FitnessSettings
from iowatch.store import History

_UNDECIDED = 4
_EXIT_CODES = {"fit": 0, "not fit": 1, "undecided": _UNDECIDED}


@click.group(cls=common.SuggestingGroup, epilog=common.examples("iowatch maintenance begin --system local"))
def command() -> None:
    """Record a maintenance, and decide afterwards whether the system is as fast as before (docs/maintenance.md)."""


@command.command(
    "begin",
    short_help="Record that a maintenance begins.",
    epilog=common.examples("iowatch maintenance begin --system local --note 'Lustre 2.15.5'"),
)
@common.system_option(required=True)
@click.option("--note", help="What is done; the title of the event [default: maintenance].")
@common.json_option
def begin(system: str, note: str | None, as_json: bool) -> None:
    """Record the event in the calendar; the nights until now are those that `end` compares with."""
    load_active_system(system)
    record = maintenance.begin_maintenance(system, note)
    if as_json:
        document = {"system": system, "title": record.title, "begun_s": record.begun_s, "date": str(record.first_day)}
        common.print_json(document)
        return
    common.print_lines(
        f"maintenance of {system} has begun: {record.title}; written to {events.event_file_path(system)}",
        f"`iowatch maintenance end --system {system}` measures when it is over",
    )


@command.command(
    "end",
    short_help="Measure, and decide whether the system is fit.",
    epilog=common.examples(
        "iowatch maintenance end --system local --html maintenance.html",
        "iowatch maintenance end --system local --expect improvement:api=MPIIO --minutes 30",
    ),
)
@common.system_option(required=True)
@click.option(
    "--suite", shell_complete=complete_suite, default="nightly", show_default=True, help="Parameter set of the nights."
)
@common.stacks_option
@common.benchmarks_option
@common.cases_option
@common.file_systems_option
@click.option("--scratch", type=common.ANY_PATH, help="Directory to write in [default: of system.yaml].")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), default=45.0, show_default=True, help="End in this time."
)
@click.option(
    "--margin", type=common.PERCENT, default="10%", show_default=True, help="Loss of performance that matters."
)
@click.option("--baseline", metavar="FROM..TO", help="Nights to compare with [default: until `begin`].")
@click.option(
    "--expect", "expected", multiple=True, metavar="improvement:NAME=VALUE",
    help="Change that was meant, or loss:NAME=VALUE (may be repeated).",
)  # fmt: skip
@click.option("--markdown", type=common.OUTPUT_FILE, metavar="FILE", help="Report as Markdown.")
@click.option("--html", type=common.OUTPUT_FILE, metavar="FILE", help="Report as one page to print and to sign.")
@click.option("--junit", type=common.OUTPUT_FILE, metavar="FILE", help="Report for CI systems.")
@common.history_options
def end(
    system: str,
    suite: str,
    stacks: tuple[str, ...],
    benchmarks: tuple[str, ...],
    cases: tuple[str, ...],
    file_systems: tuple[str, ...],
    scratch: Path | None,
    minutes: float,
    margin: float,
    baseline: str | None,
    expected: tuple[str, ...],
    markdown: Path | None,
    html: Path | None,
    junit: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Repeat the cases of the nights until it is decided whether the system is as fast as before.

    Exit code 0: fit. 1: not fit. 4: not decidable in the time. A maintenance that was not begun needs --baseline.
    """
    name = f"{system} after a maintenance"
    error_reports = {
        markdown: partial(report.error_markdown, name),
        html: None,
        junit: partial(report.junit_error_document, name),
    }
    with report_files(error_reports) as files:
        options = SessionOptions(
            system=system,
            suite=suite,
            stacks=stacks,
            benchmarks=benchmarks,
            case_names=cases,
            file_systems=file_systems,
            scratch=scratch,
        )
        # Wrong names and conditions are refused before the maintenance is recorded as over.
        selection = select_cases(options)
        request = _request(system, baseline, expected, minutes, margin)
        context = make_context(selection)
        run.check_plan(context, db)
        with History.open(db) as history:
            outcome = repeated_runs.measure_fitness(history, context, request)
        sheet = fitness.outcome_sheet(outcome)
        # The files first: a reader that closes the pipe of the text must not lose them.
        if markdown:
            files.write(markdown, sheet_markdown(sheet))
        if html:
            files.write(html, sheets_html([sheet]))
        if junit:
            files.write(junit, fitness.outcome_junit(outcome))
    document = fitness.outcome_document(outcome)
    common.print_report(as_json, document, lambda console: print_sheet(sheet, console))
    return _EXIT_CODES[outcome.decision]


def _request(
    system: str, baseline: str | None, expected: tuple[str, ...], minutes: float, margin: float
) -> repeated_runs.FitnessRequest:
    """What is asked, with the maintenance that has begun; it is over from now on."""
    expectations = tuple(maintenance.parse_expectation(text) for text in expected)
    with reported_as(UsageError):
        settings = FitnessSettings(margin=margin)
    nights = maintenance.parse_baseline(baseline, system) if baseline else None
    record = maintenance.read_maintenance(system) if nights else maintenance.require_maintenance(system)
    if record is not None:
        record = maintenance.end_maintenance(record)
        nights = nights or maintenance.nights_before(record)
    assert nights is not None
    return repeated_runs.FitnessRequest(
        title="a change" if record is None else record.title,
        begun_s=None if record is None else record.begun_s,
        ended_s=None if record is None else record.ended_s,
        baseline=nights,
        settings=settings,
        budget_s=60 * minutes,
        expectations=expectations,
    )
