"""`iowatch run`: run a suite, keep everything, judge it."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options
from iowatch.cli.options import PERCENT


@click.command(
    epilog="Examples:\n  iowatch run --system local --suite smoke\n"
    "  iowatch run --suite tiny --benchmark benchio --ab system-openmpi system-mpich --until-ci 5%",
    short_help="Run a suite, keep everything it measures, judge it.",
)
@options.system(default="local")
@click.option("--stack", "stacks", multiple=True, metavar="STACK", help="Only this stack (may be repeated).")
@click.option("--suite", default="smoke", show_default=True, help="Parameter set: smoke, nightly, survey, ….")
@click.option(
    "--scratch", type=click.Path(path_type=Path), help="Directory to write in [default: the system's]."
)
@click.option(
    "--ab",
    nargs=2,
    metavar="STACK STACK",
    help="Let two stacks take turns and compare them (docs/comparison.md).",
)
@click.option("--pairs", type=click.IntRange(min=1), help="With --ab: end after so many pairs.")
@click.option(
    "--until-ci",
    type=PERCENT,
    help="With --ab: end when every interval is within this of its ratio [default: 10%].",
)
@click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES",
    help="With --ab: end in this time [default without --pairs: 60].",
)  # fmt: skip
@click.option("--benchmark", "benchmarks", multiple=True, metavar="NAME", help="With --ab: only its cases.")
@click.option("--seed", type=int, help="With --ab: of the order of turns [default: random].")
@click.option(
    "--night", is_flag=True,
    help="Keep to the system's night: jitter, blackouts, budgets; repeat what is suspected.",
)  # fmt: skip
@click.option("--no-jitter", is_flag=True, help="With --night: begin at once.")
@click.option(
    "--junit", "junit_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the verdict as JUnit XML.",
)  # fmt: skip
@click.option(
    "--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the verdict as Markdown.",
)  # fmt: skip
@options.database
@options.as_json
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
    seed: int | None,
    night: bool,
    no_jitter: bool,
    junit_file: Path | None,
    markdown_file: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Run a suite on a system with every stack that it finds.

    With --night it does as the block `night` of the system's system.yaml says (docs/operations.md).
    Results are committed case by case as they end; then they are judged against what was expected, against
    references and against the history.
    """
    if ab is not None:
        if stacks:
            raise click.UsageError("--ab names both stacks: leave --stack out")
        if junit_file or markdown_file:
            raise click.UsageError("--junit and --markdown report a verdict; --ab gives a comparison")
        if night:
            raise click.UsageError("--night watches; --ab compares, and has its own --budget")
        from iowatch.cli.fair import run_and_compare

        end = (pairs, until_ci, budget)
        return run_and_compare(system, suite, ab, end, benchmarks, seed, scratch, db, as_json)
    if any(value is not None for value in (pairs, until_ci, budget, seed)) or benchmarks:
        raise click.UsageError("--pairs, --until-ci, --budget, --benchmark and --seed are for --ab")
    if no_jitter and not night:
        raise click.UsageError("--no-jitter is for --night")
    from iowatch.cli.output import messages, page, print_json
    from iowatch.files import write_whole
    from iowatch.report.junit import junit
    from iowatch.report.markdown import markdown
    from iowatch.report.verdict import render
    from iowatch.runner.night import wait
    from iowatch.runner.run import in_service, run_suite
    from iowatch.store import History
    from iowatch.units import utc_now
    from iowatch.verdict import judge

    console = messages()

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    policy = in_service(system).night if night else None
    if policy is not None:
        kept = policy.model_copy(update={"jitter_minutes": None}) if no_jitter else policy
        closed = wait(kept, system, utc_now(), say)
        if closed is not None:
            if as_json:
                print_json({"system": system, "status": "none", "reason": closed, "exit_code": 0})
            else:
                say(closed)
            return 0
    with History.open(db) as history:
        finished = run_suite(
            history,
            system,
            suite,
            stacks=stacks,
            scratch_directory=scratch,
            night=policy,
            say=say,
        )
        verdict = judge(history, finished)
        if junit_file:
            write_whole(junit_file, junit(history, verdict))
        if markdown_file:
            write_whole(markdown_file, markdown(verdict))
    if as_json:
        print_json(verdict.to_json())
    else:
        render(verdict, page())
    return verdict.exit_code
