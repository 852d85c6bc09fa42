"""`iowatch run`: run a suite, keep everything, judge it."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options
from iowatch.cli.options import PERCENT


@click.command(
    epilog="Examples:\n  iowatch run --system local --suite smoke\n  iowatch run --suite survey --dry-run\n"
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
@click.option("--dry-run", is_flag=True, help="Only tell what would run, what it costs, and what cannot run.")
@click.option(
    "--junit", "junit_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the verdict as JUnit XML.",
)  # fmt: skip
@click.option(
    "--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the verdict, or with --ab the comparison, as Markdown.",
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
    dry_run: bool,
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
    fair_only = (pairs, until_ci, budget, seed, *benchmarks)
    reports = (junit_file, markdown_file)
    _refuse_mixed(ab is not None, stacks, reports, night, no_jitter, dry_run, fair_only)
    if ab is not None:
        from iowatch.cli.fair import run_and_compare

        end = (pairs, until_ci, budget)
        return run_and_compare(system, suite, ab, end, benchmarks, seed, scratch, markdown_file, db, as_json)
    from iowatch.cli.watched import policy, rehearse, run_and_judge

    kept = policy(system, not no_jitter) if night else None
    if dry_run:
        return rehearse(system, suite, stacks, scratch, kept, db, as_json)
    return run_and_judge(system, suite, stacks, scratch, kept, reports, db, as_json)


def _refuse_mixed(
    ab: bool,
    stacks: tuple[str, ...],
    reports: tuple[Path | None, Path | None],
    night: bool,
    no_jitter: bool,
    dry_run: bool,
    fair_only: tuple[object, ...],
) -> None:
    """Options that would be ignored are refused."""
    if ab and stacks:
        raise click.UsageError("--ab names both stacks: leave --stack out")
    if ab and reports[0]:
        raise click.UsageError("--junit reports a verdict; --ab gives a comparison")
    if dry_run and (ab or any(reports)):
        raise click.UsageError("--dry-run measures nothing: leave --ab, --junit and --markdown out")
    if ab and night:
        raise click.UsageError("--night watches; --ab compares, and has its own --budget")
    if not ab and any(value is not None for value in fair_only):
        raise click.UsageError("--pairs, --until-ci, --budget, --benchmark and --seed are for --ab")
    if no_jitter and not night:
        raise click.UsageError("--no-jitter is for --night")
