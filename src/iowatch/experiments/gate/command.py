"""`iowatch gate`: is a build of a library slower than another one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_suite
from iowatch.cli.report_files import report_files
from iowatch.core import UsageError
from iowatch.experiments.common import counters
from iowatch.experiments.gate import report as gate
from iowatch.experiments.gate.recipe import RECIPES, read_recipe
from iowatch.experiments.gate.record import RecordOptions, find_recorded_commits, record_gate
from iowatch.experiments.gate.run import GateOptions, GateRun
from iowatch.output.report import error_markdown, junit_error_document
from iowatch.statistics.gate import GateSettings
from iowatch.store import History

UNDECIDED = 4
# The suites, and minutes that suffice for them on two quiet cores (docs/gate.md). With half of the minutes most gates
# are undecided; with twice of them, results with more noise are decided.
_SUITE, _MINUTES = "gate", 15.0
_QUICK_SUITE, _QUICK_MINUTES = "gate-quick", 2.0


def _print_schema(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        common.print_json(gate.document_schema())
        context.exit()


def _print_recipe(context: click.Context, _option: click.Parameter, service: str | None) -> None:
    if service is not None and not context.resilient_parsing:
        click.echo(read_recipe(service), nl=False)
        context.exit()


@click.command(
    epilog=common.examples(
        "iowatch gate --base prefix:/opt/hdf5-release --head prefix:/opt/hdf5-mine --markdown gate.md"
    )
)
@click.option("--base", required=True, metavar="BUILD", help="Build to compare with, as --head.")
@click.option(
    "--head",
    required=True,
    metavar="BUILD",
    help="Name of a stack, modules:a,b, prefix:/opt/hdf5-mine, spack:SPEC or git:DIR@REV.",
)
@common.system_option(default="local")
@click.option("--suite", shell_complete=complete_suite, help=f"Parameter set with the cases [default: {_SUITE}].")
@click.option(
    "--quick", is_flag=True, help=f"Suite {_QUICK_SUITE}: few cases with little noise, in {_QUICK_MINUTES:g} minutes."
)
@common.benchmarks_option
@common.cases_option
@click.option(
    "--margin", type=common.PERCENT, default="10%", show_default=True, help="Loss of performance that is stopped."
)
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True),
    help=f"End in this time, with builds and counts [default: {_MINUTES:g}, with --quick {_QUICK_MINUTES:g}].",
)  # fmt: skip
@click.option(
    "--undecided", type=click.Choice(["pass", "fail"]), help=f"Exit code if undecided: 0 or 1 [default: {UNDECIDED}]."
)
@click.option("--counts/--no-counts", default=True, show_default=True, help="Count calls and instructions.")
@click.option(
    "--instructions", type=click.Choice([*counters.INSTRUCTION_COUNTERS]), default="perf", show_default=True,
    help="What counts instructions; valgrind takes seconds per case and works everywhere.",
)  # fmt: skip
@click.option(
    "--build", metavar="COMMAND",
    help="Builds git:DIR@REV in a checkout, into $IOWATCH_PREFIX [default: CMake or configure].",
)  # fmt: skip
@click.option("--package", metavar="NAME", help="Part of the stack that git:DIR@REV builds [default: name of DIR].")
@click.option("--seed", type=int, help="Seed of the execution order [default: random].")
@click.option("--scratch", type=common.ANY_PATH, help="Directory to write in [default: in memory, /dev/shm].")
@click.option("--markdown", type=common.OUTPUT_FILE, metavar="FILE", help="Comment, with its picture FILE.svg.")
@click.option("--junit", type=common.OUTPUT_FILE, metavar="FILE", help="Report for CI systems.")
@click.option("--badge", type=common.OUTPUT_FILE, metavar="FILE", help="Picture of the decision (SVG).")
@click.option("--json-file", type=common.OUTPUT_FILE, metavar="FILE", help="Also write the document of --json.")
@click.option("--record", is_flag=True, help="Keep the decision per commit, for the page Gates and for bisect.")
@click.option(
    "--repository", type=common.ANY_PATH, metavar="DIR",
    help="Checkout with the commits of --record [default: DIR of git:DIR@REV, else this directory].",
)  # fmt: skip
@click.option("--head-commit", metavar="REV", help="Recorded commit of HEAD [default: REV of git:DIR@REV, else HEAD].")
@click.option("--base-commit", metavar="REV", help="Recorded commit of BASE [default: REV of git:DIR@REV, else none].")
@click.option("--branch", metavar="NAME", help="Recorded branch of HEAD [default: the one that its revision names].")
@click.option(
    "--recipe", type=click.Choice([*RECIPES]), is_eager=True, expose_value=False, callback=_print_recipe,
    help="Print a complete CI recipe for merge requests, with its comment and required check.",
)  # fmt: skip
@click.option(
    "--schema", is_flag=True, is_eager=True, expose_value=False, callback=_print_schema,
    help="Print the JSON Schema of the document.",
)  # fmt: skip
@common.history_options
def command(
    base: str,
    head: str,
    system: str,
    suite: str | None,
    quick: bool,
    benchmarks: tuple[str, ...],
    cases: tuple[str, ...],
    margin: float,
    minutes: float | None,
    undecided: str | None,
    counts: bool,
    instructions: str,
    build: str | None,
    package: str | None,
    seed: int | None,
    scratch: Path | None,
    markdown: Path | None,
    junit: Path | None,
    badge: Path | None,
    json_file: Path | None,
    record: bool,
    repository: Path | None,
    head_commit: str | None,
    base_commit: str | None,
    branch: str | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Measure two builds of a library alternately, and decide whether HEAD is slower than BASE.

    Exit code 0: no result is slower by the margin or more. 1: a result is slower, erratic or fails. 4: undecided.
    """
    if quick and suite is not None:
        raise UsageError(
            f"--quick measures suite {_QUICK_SUITE}, so --suite {suite} has no effect",
            hint="Leave one of both out; --case limits either suite.",
        )
    if minutes is None:
        minutes = _QUICK_MINUTES if quick else _MINUTES
    options = GateOptions(
        system=system,
        suite=suite or (_QUICK_SUITE if quick else _SUITE),
        base=base,
        head=head,
        settings=GateSettings(margin=margin),
        benchmarks=benchmarks,
        cases=cases,
        scratch=scratch,
        budget_s=minutes * 60,
        counter=instructions if counts else None,
        seed=seed,
        build_command=build,
        package=package,
    )
    record_options = RecordOptions(
        repository=repository, head_commit=head_commit, base_commit=base_commit, branch=branch
    )
    if not record and not record_options.is_empty:
        raise UsageError("--repository, --head-commit, --base-commit and --branch are about --record, which is missing")
    name = f"gate of {head} against {base}"
    picture = markdown.with_suffix(".svg") if markdown else None
    error_reports = {
        markdown: partial(error_markdown, name),
        junit: partial(junit_error_document, name),
        picture: None,
        json_file: None,
        badge: None,
    }
    with report_files(error_reports) as files:
        # A commit that does not exist is refused before anything is measured.
        commits = find_recorded_commits(options, record_options) if record else None
        with History.open(db) as history:
            outcome = GateRun(history, options).run()
        # The files first: a reader that closes the pipe of the text must not lose them.
        document = gate.gate_json(outcome)
        if markdown and picture:
            files.write(picture, gate.gate_picture(outcome))
            files.write(markdown, gate.gate_markdown(outcome, picture.name))
        if json_file:
            files.write(json_file, common.format_json(document) + "\n")
        if junit:
            files.write(junit, gate.gate_junit(outcome))
        if badge:
            files.write(badge, gate.gate_badge(outcome.decision))
        if commits is not None:
            with History.open(db) as history:
                record_gate(history, commits, outcome)
    common.print_report(as_json, document, lambda console: gate.render_gate(outcome, console))
    if outcome.decision == "undecided":
        return {"pass": 0, "fail": 1, None: UNDECIDED}[undecided]
    return 0 if outcome.decision == "pass" else 1
