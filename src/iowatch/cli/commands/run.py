"""`iowatch run`: run a suite, keep everything, judge it."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options


@click.command(
    epilog="Example: iowatch run --system local --suite smoke",
    short_help="Run a suite, keep everything it measures, judge it.",
)
@options.system(default="local")
@click.option("--stack", "stacks", multiple=True, metavar="STACK", help="Only this stack (may be repeated).")
@click.option("--suite", default="smoke", show_default=True, help="Parameter set: smoke, nightly, survey, ….")
@click.option(
    "--scratch", type=click.Path(path_type=Path), help="Directory to write in [default: the system's]."
)
@options.database
@options.as_json
def command(
    system: str, stacks: tuple[str, ...], suite: str, scratch: Path | None, db: str | None, as_json: bool
) -> int:
    """Run a suite on a system with every stack that it finds.

    Results are committed case by case as they end; then they are judged against what was expected, against
    references and against the history.
    """
    from iowatch.cli.output import messages, page, print_json
    from iowatch.report.verdict import render
    from iowatch.runner.run import run_suite
    from iowatch.store import History
    from iowatch.verdict import judge

    console = messages()
    with History.open(db) as history:
        finished = run_suite(
            history,
            system,
            suite,
            stacks=stacks,
            scratch_directory=scratch,
            say=lambda text: console.print(text, markup=False, soft_wrap=True),
        )
        verdict = judge(history, finished)
    if as_json:
        print_json(verdict.to_json())
    else:
        render(verdict, page())
    return verdict.exit_code
