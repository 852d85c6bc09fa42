"""`iowatch interference`: how much a case slows down while independent jobs run another one."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Literal

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_stack, complete_suite
from iowatch.core import format_count
from iowatch.experiments.interference.effects import interference_effects
from iowatch.experiments.interference.plan import check_interference, make_interference_context, parse_levels
from iowatch.experiments.interference.report import effects_document, print_effects
from iowatch.experiments.interference.run import run_interference
from iowatch.session.ab_run import make_stop_rule
from iowatch.session.options import SessionOptions
from iowatch.store import History


def parse_jobs(words: tuple[str, ...]) -> dict[str, str]:
    """Parse `victim=CASE aggressor=CASE`, in either order.

    Raises:
        UsageError: of click, if one is absent or something else is there.
    """
    jobs: dict[str, str] = {}
    for word in words:
        role, _, case = word.partition("=")
        jobs[role] = case
    if set(jobs) != {"victim", "aggressor"} or not all(jobs.values()):
        raise click.UsageError("expected victim=CASE aggressor=CASE")
    return jobs


@click.command(epilog=common.examples("iowatch interference victim=op=both aggressor=op=write --pairs 8"))
@click.argument("jobs", nargs=2, metavar="victim=CASE aggressor=CASE")
@common.system_option(default="local")
@click.option(
    "--stack",
    "stacks",
    shell_complete=complete_stack,
    multiple=True,
    metavar="STACK",
    help="Stack of both jobs [default: the first that can run them].",
)
@click.option(
    "--suite",
    shell_complete=complete_suite,
    default="interference",
    show_default=True,
    help="Parameter set with both cases.",
)
@click.option(
    "--file-system", "file_systems", multiple=True, metavar="NAME",
    help="File system of system.yaml [default: that of the suite].",
)  # fmt: skip
@click.option("--levels", default="0,1,2,4", show_default=True, help="Numbers of aggressors.")
@click.option("--pairs", type=click.IntRange(min=1), help="End after all levels were measured so many times.")
@click.option(
    "--until-ci", type=common.PERCENT, help="End when every interval is within this of its ratio [default: 10%]."
)
@click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES",
    help="End in this time [default without --pairs: 60].",
)  # fmt: skip
@click.option("--seed", type=int, help="Seed of the order [default: random].")
@click.option("--scratch", type=common.ANY_PATH, help="Directory of the default file system [default: the system's].")
@click.option("--darshan", type=click.Choice(["on", "off"]), help="Trace the victim, or not.")
@common.history_options
def command(
    jobs: tuple[str, str],
    system: str,
    stacks: tuple[str, ...],
    suite: str,
    file_systems: tuple[str, ...],
    levels: str,
    pairs: int | None,
    until_ci: float | None,
    budget: float | None,
    seed: int | None,
    scratch: Path | None,
    darshan: Literal["on", "off"] | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Measure the victim while independent jobs run the aggressor (docs/comparison.md).

    Each level is a number of aggressors; levels follow each other in random order. Exit code 1: runs failed or are
    missing.
    """
    options = SessionOptions(
        system=system, suite=suite, stacks=stacks, file_systems=file_systems, scratch=scratch, darshan=darshan
    )
    context = make_interference_context(options, levels=parse_levels(levels), **parse_jobs(jobs))
    stop_rule = make_stop_rule(pairs, until_ci, budget)
    check_interference(context, context.plan(), stop_rule.pairs)  # before a history is created
    with History.open(db) as history:
        result = run_interference(history, context, stop_rule, secrets.randbelow(2**31) if seed is None else seed)
        effects = interference_effects(history, result.session)
    document = {**effects_document(effects), "run": result.to_json()}
    common.print_report(as_json, document, lambda console: print_effects(effects, result.aggressor, console))
    if not as_json:
        common.print_message(
            f"session {result.session}: {format_count(result.pairs, 'pair')}, ended by {result.stopped}; "
            f"{format_count(len(result.failed), 'run')} failed or missing"
        )
    return 1 if result.failed else 0
