"""`iowatch profile`: where one case spends the time of opening and closing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from iowatch.cli import common
from iowatch.cli.completion import complete_suite
from iowatch.experiments.common.profiled_run import run_profile
from iowatch.experiments.profile.report import print_profiles
from iowatch.session import run
from iowatch.session.context import make_context, select_cases
from iowatch.session.options import SessionOptions
from iowatch.store import History


@click.command(epilog=common.examples("iowatch profile benchio:api=hdf5,file=shared"))
@click.argument("case")
@common.system_option(default="local")
@common.stacks_option
@click.option(
    "--suite", shell_complete=complete_suite, default="smoke", show_default=True, help="Parameter set with the case."
)
@common.file_systems_option
@click.option("--scratch", type=common.ANY_PATH, help="Directory of the default file system [default: the system's].")
@click.option("--darshan", type=click.Choice(["on", "off"]), help="Trace the runs, or not.")
@common.history_options
def command(
    case: str,
    system: str,
    stacks: tuple[str, ...],
    suite: str,
    file_systems: tuple[str, ...],
    scratch: Path | None,
    darshan: Literal["on", "off"] | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Run CASE under perf or strace (docs/profile.md); name it as `iowatch run --dry-run` lists it.

    It measures nothing: its times are no results. Exit code 1: a run failed.
    """
    options = SessionOptions(
        system=system,
        suite=suite,
        stacks=stacks,
        case_names=(case,),
        file_systems=file_systems,
        scratch=scratch,
        darshan=darshan,
    )
    context = make_context(select_cases(options))
    run.check_plan(context, db)
    with History.open(db) as history:
        document = run_profile(history, context)
    common.print_report(as_json, document, lambda console: print_profiles(document, console))
    succeeded = [entry["status"] == "ok" for entry in document["runs"]]
    return 0 if all(succeeded) else 1
