"""`iowatch bisect`: which part of two stacks causes their difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from iowatch.cli import common
from iowatch.cli.completion import complete_finding, complete_stack, complete_suite
from iowatch.cli.report_files import report_files
from iowatch.core import UsageError
from iowatch.experiments.bisect import report as bisection
from iowatch.experiments.bisect import run as bisect
from iowatch.experiments.bisect.commits import CommitRun
from iowatch.experiments.bisect.gated_commits import GatedRange, find_gated_range
from iowatch.experiments.bisect.run import BisectOptions
from iowatch.experiments.bisect.search import BisectionSettings
from iowatch.experiments.common.commits import CommitRange, commit_source
from iowatch.experiments.common.hybrids import compare_for_hybrids
from iowatch.output.report import error_markdown
from iowatch.store import History


@click.command(epilog=common.examples("iowatch bisect gnu-12 gnu-13 --case benchio:api=mpiio,file=shared --budget 30"))
@click.argument("sides", nargs=-1, metavar="[GOOD BAD]")
@click.option(
    "--finding",
    shell_complete=complete_finding,
    metavar="ID",
    help="Both sides, and the case, as the runs of a finding recorded them.",
)
@click.option(
    "--from-gates", "gated_package", metavar="PACKAGE",
    help="GOOD and BAD are commits of recorded gates of this package (`iowatch gate --record`).",
)  # fmt: skip
@click.option("--package", metavar="NAME", help="The commit of this package, between those of GOOD..BAD.")
@click.option("--git", "repository", type=common.ANY_PATH, metavar="DIR", help="Its repository, which is not changed.")
@click.option("--stack", shell_complete=complete_stack, metavar="NAME", help="Stack that the package is built for.")
@click.option(
    "--build", metavar="COMMAND", help="Builds and installs into $IOWATCH_PREFIX [default: CMake, configure]."
)
@common.system_option(default="local")
@click.option(
    "--suite", shell_complete=complete_suite, default="smoke", show_default=True, help="Parameter set with the cases."
)
@common.benchmarks_option
@common.cases_option
@click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES", default=60.0, show_default=True,
    help="End in this time; the same command goes on later.",
)  # fmt: skip
@click.option(
    "--difference", type=common.PERCENT, default="5%", show_default=True,
    help="A whole difference within this is not bisected.",
)  # fmt: skip
@click.option(
    "--error-rate", type=common.PERCENT, default="5%", show_default=True,
    help="Probability that any interval of the report misses.",
)  # fmt: skip
@click.option("--seed", type=int, help="Seed of the execution order [default: random].")
@click.option("--scratch", type=common.ANY_PATH, help="Directory to write in [default: the system's].")
@click.option("--markdown", type=common.OUTPUT_FILE, metavar="FILE", help="Also write the report as Markdown.")
@common.history_options
def command(
    sides: tuple[str, ...],
    finding: str | None,
    gated_package: str | None,
    package: str | None,
    repository: Path | None,
    stack: str | None,
    build: str | None,
    system: str,
    suite: str,
    benchmarks: tuple[str, ...],
    cases: tuple[str, ...],
    budget: float,
    difference: float,
    error_rate: float,
    seed: int | None,
    scratch: Path | None,
    markdown: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Find which modules, packages, settings or MPI-IO hints make the stack BAD differ from GOOD.

    Hybrids (GOOD with some of BAD's parts) are measured in turn with GOOD until the answer is known. With --package:
    which commit, as `git bisect`. Exit code 1: not decided within the budget.
    """
    options = BisectOptions(
        suite=suite,
        like=stack or "",
        benchmarks=benchmarks,
        cases=cases,
        scratch=scratch,
        budget_s=budget * 60,
        settings=BisectionSettings(error_rate=error_rate, negligible=difference),
        seed=seed,
    )
    with report_files({markdown: partial(error_markdown, "Bisection")}) as files:
        # Commits of a package, the stacks of a finding, or two stacks by their names.
        has_commit_options = any((package, repository, stack, build))
        expected_sides = 0 if finding else 2
        if gated_package:
            if len(sides) != 2 or finding or package:
                raise UsageError(
                    "--from-gates PACKAGE takes two commits, and neither --finding nor --package",
                    hint=f"For example: iowatch bisect --from-gates {gated_package} 1a2b3c4 5d6e7f8",
                )
            with History.existing(db) as history:
                chosen_system = system if _is_stated("system") else None
                gated = find_gated_range(history, chosen_system, gated_package, *sides)
                result = _search_gated(history, gated, options, _GatedChoice(repository, stack, build))
        elif finding is None and len(sides) == 1 and package and repository and stack:
            source = commit_source(system, package, CommitRange(repository, sides[0]), stack, build)
            with History.open(db) as history:
                result = _search(CommitRun(history, source, options))
        elif len(sides) != expected_sides or has_commit_options:
            raise UsageError(
                "two stacks are expected, or --finding ID, or --from-gates PACKAGE GOOD BAD, or --package NAME "
                "--git DIR --stack NAME GOOD..BAD",
                hint="For example: iowatch bisect gnu-12 gnu-13",
            )
        elif finding:
            result = _search_finding(db, finding, options)
        else:
            result = _search_stacks(db, system, sides, options)
        if markdown:
            files.write(markdown, bisection.bisection_markdown(result))
    common.print_report(
        as_json, bisection.bisection_document(result), lambda console: bisection.render_bisection(result, console)
    )
    return 1 if result.answer.kind in ("narrowed", "undecided") else 0


def _is_stated(option: str) -> bool:
    """Whether an option is on the command line, and not at its default."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


@dataclass(frozen=True)
class _GatedChoice:
    """Options that replace what the gate recorded; None: as recorded."""

    repository: Path | None
    stack: str | None
    build: str | None


def _search_gated(
    history: History, gated: GatedRange, options: BisectOptions, choice: _GatedChoice
) -> bisect.BisectResult:
    """Search between two commits of recorded gates, in the suite and cases of the gate."""
    stack = gated.stack_name(choice.stack)
    commits = CommitRange(gated.repository_directory(choice.repository), gated.range_text)
    gated.require_commits(commits.directory)
    build = choice.build or gated.record.build_command
    source = commit_source(gated.system, gated.record.package, commits, stack, build)
    # What the command states has precedence over the gate.
    suite = options.suite if _is_stated("suite") else gated.suite
    search_options = replace(options, suite=suite, like=stack, scratch=options.scratch or gated.scratch)
    if not options.cases and not options.benchmarks:
        largest_loss = gated.largest_loss()
        search_options = replace(
            search_options, cases=(largest_loss.run,), operation=largest_loss.operation, metric=largest_loss.metric
        )
    return _search(CommitRun(history, source, search_options))


def _search_finding(db: str | None, finding: str, options: BisectOptions) -> bisect.BisectResult:
    """Search between the stacks that the runs of a finding recorded."""
    with History.existing(db) as history:
        search = bisect.finding_search(history, finding, options)
        return _search(bisect.BisectRun(history, search.source, search.options))


def _search_stacks(db: str | None, system: str, sides: tuple[str, ...], options: BisectOptions) -> bisect.BisectResult:
    """Search between two stacks of the system; hybrids run in the partitions of the first one."""
    good, bad = sides
    with History.open(db) as history:
        source = compare_for_hybrids(system, good, bad)
        return _search(bisect.BisectRun(history, source, replace(options, like=good)))


def _search(search: bisect.BisectRun) -> bisect.BisectResult:
    """Run a search, and keep its answer with its session."""
    result = search.run()
    search.keep_answer(bisection.answer_lines(result))
    return result
