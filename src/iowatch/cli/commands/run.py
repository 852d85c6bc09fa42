"""`iowatch run`: run a suite, store its results and assess them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_benchmark, complete_stack, complete_suite
from iowatch.cli.report_files import ReportFiles, message_of, report_files
from iowatch.core import IowatchError, format_count, settings, utc_now
from iowatch.output import comparison, report
from iowatch.output.text.verdict import verdict_document
from iowatch.session import ab_run, blackouts, last_sessions, run, verdict
from iowatch.session.context import make_context, select_cases
from iowatch.session.night_record import write_night_record
from iowatch.session.options import SessionOptions, nightly_policy
from iowatch.site import NightlyPolicy
from iowatch.statistics.interleaving import AbSchedule
from iowatch.store import History, NoHistoryError


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `iowatch run`, under the names of its parameters."""

    system: str
    stacks: tuple[str, ...]
    suite: str
    scratch: Path | None
    ab: tuple[str, str] | None
    pairs: int | None
    until_ci: float | None
    budget: float | None
    benchmarks: tuple[str, ...]
    cases: tuple[str, ...]
    file_systems: tuple[str, ...]
    seed: int | None
    night: bool
    darshan: Literal["on", "off"] | None
    no_jitter: bool
    dry_run: bool
    junit: Path | None
    markdown: Path | None
    db: str | None
    as_json: bool

    def session_options(self) -> SessionOptions:
        """What is asked of the session."""
        return SessionOptions(
            system=self.system,
            suite=self.suite,
            stacks=self.ab or self.stacks,
            benchmarks=self.benchmarks,
            case_names=self.cases,
            file_systems=self.file_systems,
            scratch=self.scratch,
            darshan=self.darshan,
            policy=nightly_policy(self.system, jitter=not self.no_jitter) if self.night else None,
        )


def refuse_contradictions(options: RunOptions) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: of click.
    """
    is_interleaved = any(value is not None for value in (options.pairs, options.until_ci, options.budget, options.seed))
    has_report = options.ab or options.junit or options.markdown
    rules = (
        (options.ab and options.stacks, "--ab names both stacks: leave --stack out"),
        (options.ab and options.junit, "--junit reports a verdict; --ab gives a comparison"),
        (options.dry_run and has_report, "--dry-run measures nothing: leave --ab, --junit and --markdown out"),
        (options.ab and options.night, "--night and --ab exclude each other; --ab has its own --budget"),
        (is_interleaved and not options.ab, "--pairs, --until-ci, --budget and --seed are for --ab"),
        (options.no_jitter and not options.night, "--no-jitter is for --night"),
    )
    for is_wrong, message in rules:
        if is_wrong:
            raise click.UsageError(message)


def reports_of(options: RunOptions) -> AbstractContextManager[ReportFiles]:
    """The files into which the command reports, without those of an earlier call."""
    name = f"{options.suite} on {options.system}"
    return report_files(
        {
            options.junit: partial(report.junit_error_document, name),
            options.markdown: partial(report.error_markdown, f"Session of suite {name}"),
        }
    )


@dataclass
class Night:
    """What is known of a night before it has ended."""

    exit_code: int | None = None


@contextmanager
def recorded_night(options: RunOptions) -> Iterator[Night]:
    """With `--night`, record how the block ends: `iowatch notify` reports nights that ended without a verdict."""
    night = Night()
    try:
        yield night
    except BaseException as error:
        if options.night:
            exit_code = error.exit_code if isinstance(error, IowatchError) else 3
            write_night_record(options.system, exit_code, message_of(error))
        raise
    if options.night and night.exit_code is not None:
        write_night_record(options.system, night.exit_code)


def run_and_compare(options: RunOptions, files: ReportFiles) -> int:
    """A/B run and its comparison; exit code 1 if runs failed or are missing."""
    stop_rule = ab_run.make_stop_rule(options.pairs, options.until_ci, options.budget)
    context = ab_run.make_ab_context(options.session_options())
    ab_run.request_allocation(context, stop_rule)
    context.plan_sides()  # refuses wrong names before a history is created or a lock of another session is reported
    with History.open(options.db) as history:
        seed = secrets.randbelow(2**31) if options.seed is None else options.seed
        finished = ab_run.run_ab(history, context, AbSchedule(stop_rule, seed))
        outcome = ab_run.compare_ab_run(history, finished)
    if options.markdown:
        files.write(options.markdown, comparison.comparison_markdown(outcome))
    document = {**comparison.comparison_document(outcome), "ab_run": finished.to_json()}
    common.print_report(options.as_json, document, lambda console: comparison.print_comparison(outcome, console))
    if not options.as_json:
        common.print_message(
            f"session {finished.session}: {format_count(finished.pairs, 'pair')}, ended by {finished.stopped}; "
            f"{format_count(len(finished.missing), 'run')} failed or missing"
        )
    return 1 if finished.missing else 0


def show_plan(options: RunOptions) -> int:
    """Show what would run."""
    context = make_context(select_cases(options.session_options()))
    prepared = run.prepare_dry_run(context, options.db)
    document = report.plan_document(prepared)
    common.print_report(options.as_json, document, lambda console: report.render_plan(prepared, console))
    return 0


def report_no_session(options: RunOptions, policy: NightlyPolicy, reason: str, files: ReportFiles) -> int:
    """Report that no session took place; exit code 1 if the blackouts last too long."""
    problem = blackouts.too_long_unmeasured(policy, options.system, utc_now(), _last_measured(options))
    exit_code = 0
    if problem is not None:
        reason = f"{reason}; {problem}"
        exit_code = 1
    document = {"system": options.system, "status": "none", "reason": reason, "exit_code": exit_code}
    if options.as_json:
        common.print_json(document)
    else:
        common.print_message(reason)
    name = f"{options.suite} on {options.system}"
    if options.junit and problem is not None:
        files.write(options.junit, report.junit_error_document(name, reason))
    elif options.junit:
        files.write(options.junit, report.junit_skipped_document(name, reason))
    if options.markdown:
        files.write(options.markdown, report.error_markdown(f"Session of suite {name}", reason))
    return exit_code


def _last_measured(options: RunOptions) -> datetime | None:
    """Start of the last session of the system that measured something; None without one, or without a history."""
    try:
        with History.existing(options.db) as history:
            started_s = last_sessions.last_measured_s(history, options.system)
    except NoHistoryError:
        return None
    return None if started_s is None else datetime.fromtimestamp(started_s, UTC)


def run_and_report(options: RunOptions, files: ReportFiles) -> int:
    """Run, assess, print, write reports; the verdict's exit code, 0 if a blackout excludes the session."""
    session_options = options.session_options()
    selection = select_cases(session_options)
    if session_options.policy is not None:
        reason = blackouts.wait_for_start(session_options.policy, options.system, utc_now())
        if reason is not None:
            return report_no_session(options, session_options.policy, reason, files)
    # After the wait: stacks may have changed meanwhile.
    context = make_context(selection)
    run.check_plan(context, options.db)
    with History.open(options.db) as history:
        found = verdict.assess_session(history, run.run_suite(history, context))
        # Printed first: a report that cannot be written must not cost the verdict.
        common.print_report(
            options.as_json, verdict_document(found), lambda console: report.render_verdict(found, console)
        )
        if options.junit:
            files.write(options.junit, report.junit_document(history, found))
        if options.markdown:
            files.write(options.markdown, report.verdict_markdown(found))
    return found.exit_code


@click.command(
    epilog=common.examples(
        "iowatch run --system local --suite smoke",
        "iowatch run --suite survey --benchmark ior --dry-run",
        "iowatch run --ab system-openmpi system-mpich --case benchio:api=mpiio,file=shared",
    )
)
@common.system_option(default="local")
@click.option(
    "--stack",
    "stacks",
    shell_complete=complete_stack,
    multiple=True,
    metavar="STACK",
    help="Only this stack (may be repeated).",
)
@click.option(
    "--suite",
    shell_complete=complete_suite,
    default="smoke",
    show_default=True,
    help="Parameter set: smoke, nightly, survey, ….",
)
@click.option(
    "--benchmark",
    "benchmarks",
    shell_complete=complete_benchmark,
    multiple=True,
    metavar="NAME",
    help="Only cases of this (may be repeated).",
)
@click.option(
    "--case", "cases", multiple=True, metavar="NAME", help="Only this case, as --dry-run lists it (may be repeated)."
)
@click.option(
    "--file-system", "file_systems", multiple=True, metavar="NAME",
    help="Only on this file system of system.yaml, or all (may be repeated) [default: those of the suite].",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Dry run: show what would run, its cost, and what cannot run.")
@click.option(
    "--night", is_flag=True,
    help="Nightly session: apply jitter, blackouts and budgets of system.yaml; repeat suspected runs.",
)  # fmt: skip
@click.option(
    "--darshan", type=click.Choice(["on", "off"]),
    help="Trace every run, or none [default: where the stack has darshan-runtime; --ab: on both sides or none].",
)  # fmt: skip
@click.option("--no-jitter", is_flag=True, help="With --night: start immediately.")
@click.option(
    "--ab", nargs=2, metavar="STACK STACK", shell_complete=complete_stack,
    help="Interleaved A/B run of two stacks, with comparison (docs/comparison.md).",
)  # fmt: skip
@click.option("--pairs", type=click.IntRange(min=1), help="With --ab: end after so many pairs.")
@click.option(
    "--until-ci",
    type=common.PERCENT,
    help="With --ab: end when every interval is within this of its ratio [default: 10%].",
)
@click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES",
    help="With --ab: end in this time [default without --pairs: 60].",
)  # fmt: skip
@click.option("--seed", type=int, help="With --ab: seed of the order [default: random].")
@click.option(
    "--scratch", type=common.ANY_PATH, envvar=settings.SCRATCH_VARIABLE, show_envvar=True,
    help="Directory of the default file system [default: the system's].",
)  # fmt: skip
@click.option("--junit", type=common.OUTPUT_FILE, metavar="FILE", help="Also write the verdict as JUnit XML.")
@click.option(
    "--markdown", type=common.OUTPUT_FILE, metavar="FILE",
    help="Also write the verdict, or with --ab the comparison, as Markdown.",
)  # fmt: skip
@common.history_options
def command(**given: Any) -> int:
    """Run a suite on a system with all usable stacks.

    With --night, the block `night` of the system's system.yaml applies (docs/operations.md).
    The result of each case is stored when the case ends. The session is then compared with what was expected, with
    references and with the history.
    """
    options = RunOptions(**given)
    if options.dry_run:
        refuse_contradictions(options)
        return show_plan(options)
    with reports_of(options) as files, recorded_night(options) as night:
        refuse_contradictions(options)
        if options.ab:
            return run_and_compare(options, files)
        night.exit_code = run_and_report(options, files)
        return night.exit_code
