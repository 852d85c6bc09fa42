"""`iowatch run`: run a suite, store its results and assess them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Literal

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_benchmark, complete_stack, complete_suite
from iowatch.core import format_count, utc_now, write_atomically
from iowatch.output import comparison, report
from iowatch.session import ab_run, plan, run, session, verdict
from iowatch.statistics.interleaving import AbSchedule, StopRule
from iowatch.store import History


def run_and_compare(
    context: ab_run.AbContext,
    stop_rule: StopRule,
    seed: int | None,
    markdown: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """A/B run and its comparison; exit code 1 if runs failed or are missing."""
    ab_run.request_allocation(context, stop_rule)
    context.plans()  # refuses wrong names before a history is created or a lock of another session is reported
    with History.open(db) as history:
        schedule = AbSchedule(stop_rule, secrets.randbelow(2**31) if seed is None else seed)
        finished = ab_run.run_ab(history, context, schedule)
        outcome = ab_run.compare_ab_run(history, finished)
    if markdown:
        write_atomically(markdown, comparison.comparison_markdown(outcome))
    document = {**comparison.comparison_document(outcome), "ab_run": finished.to_json()}
    common.print_report(as_json, document, lambda console: comparison.print_comparison(outcome, console))
    if not as_json:
        common.print_message(
            f"session {finished.session}: {format_count(finished.pairs, 'pair')}, ended by {finished.stopped}; "
            f"{format_count(len(finished.missing), 'run')} failed or missing"
        )
    return 1 if finished.missing else 0


def run_and_report(
    context: session.SessionContext, junit: Path | None, markdown: Path | None, db: str | None, as_json: bool
) -> int:
    """Run, assess, print, write reports; the verdict's exit code, 0 if a blackout excludes the session."""
    policy = context.policy
    reason = policy and plan.wait_for_start(policy, context.system_name, utc_now())
    if reason:
        document = {"system": context.system_name, "status": "none", "reason": reason, "exit_code": 0}
        common.print_json(document) if as_json else common.print_message(reason)
        return 0
    run.check_plan(context, db)
    with History.open(db) as history:
        found = verdict.assess_session(history, run.run_suite(history, context))
        # Printed first: a report that cannot be written must not cost the verdict.
        common.print_report(as_json, found.to_json(), lambda console: report.render_verdict(found, console))
        if junit:
            write_atomically(junit, report.junit_document(history, found))
        if markdown:
            write_atomically(markdown, report.verdict_markdown(found))
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
@click.option("--scratch", type=common.ANY_PATH, help="Directory of the default file system [default: the system's].")
@click.option("--junit", type=common.OUTPUT_FILE, metavar="FILE", help="Also write the verdict as JUnit XML.")
@click.option(
    "--markdown", type=common.OUTPUT_FILE, metavar="FILE",
    help="Also write the verdict, or with --ab the comparison, as Markdown.",
)  # fmt: skip
@common.history_options
def command(
    system: str,
    stacks: tuple[str, ...],
    suite: str,
    scratch: Path | None,
    ab: tuple[str, str] | None,
    pairs: int | None,
    until_ci: float | None,
    budget: float | None,
    benchmarks: tuple[str, ...],
    cases: tuple[str, ...],
    file_systems: tuple[str, ...],
    seed: int | None,
    night: bool,
    darshan: Literal["on", "off"] | None,
    no_jitter: bool,
    dry_run: bool,
    junit: Path | None,
    markdown: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Run a suite on a system with all usable stacks.

    With --night, the block `night` of the system's system.yaml applies (docs/operations.md).
    The result of each case is stored when the case ends. The session is then compared with what was expected, with
    references and with the history.
    """
    is_interleaved = any(value is not None for value in (pairs, until_ci, budget, seed))
    refused = {
        "--ab names both stacks: leave --stack out": ab and stacks,
        "--junit reports a verdict; --ab gives a comparison": ab and junit,
        "--dry-run measures nothing: leave --ab, --junit and --markdown out": dry_run and (ab or junit or markdown),
        "--night and --ab exclude each other; --ab has its own --budget": ab and night,
        "--pairs, --until-ci, --budget and --seed are for --ab": is_interleaved and not ab,
        "--no-jitter is for --night": no_jitter and not night,
    }
    for message, is_wrong in refused.items():
        if is_wrong:
            raise click.UsageError(message)
    if ab:
        ab_context = ab_run.AbContext(system, suite, ab, benchmarks, scratch, None, darshan, cases, file_systems)
        stop_rule = ab_run.make_stop_rule(pairs, until_ci, budget)
        return run_and_compare(ab_context, stop_rule, seed, markdown, db, as_json)
    policy = session.nightly_policy(system, jitter=not no_jitter) if night else None
    context = session.SessionContext(system, suite, stacks, benchmarks, scratch, policy, darshan, cases, file_systems)
    if dry_run:
        prepared = run.prepare_dry_run(context, db)
        common.print_report(
            as_json, report.plan_document(prepared), lambda console: report.render_plan(prepared, console)
        )
        return 0
    return run_and_report(context, junit, markdown, db, as_json)
