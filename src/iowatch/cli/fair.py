"""`iowatch run --ab`: the fair run and its comparison."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from iowatch.cli.output import messages, page, print_json
from iowatch.compare.fair import Until
from iowatch.errors import MachineError, UsageError
from iowatch.files import write_whole
from iowatch.report import comparison as report
from iowatch.runner.fair import FairRun, asking, run_fair
from iowatch.sides import Options, Outcome, compare_sides, parse_spec
from iowatch.store import History
from iowatch.units import counted

# Where nothing is said: an answer that excludes differences of some 10 %, or an hour.
_HALF_WIDTH = 0.10
_BUDGET_MIN = 60.0


def run_and_compare(
    system: str,
    suite: str,
    stacks: tuple[str, str],
    end: tuple[int | None, float | None, float | None],
    benchmarks: tuple[str, ...],
    seed: int | None,
    scratch: Path | None,
    markdown: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Run, compare, print; 0 where everything came, 1 where runs failed or are absent.

    Args:
        end: pairs, half width of the intervals as a fraction, minutes; each may be None.
        markdown: a file for the comparison as Markdown.

    Raises:
        IowatchError: as `run_fair` and `compare_sides`.
    """
    import secrets

    console = messages()
    until = _until(*end)
    words = asking(system, suite, stacks, until, benchmarks)
    if words is not None:
        console.print(f"asking Slurm for one allocation: {shlex.join(words)}", markup=False, soft_wrap=True)
        return _become([*words, *_myself()])
    with History.open(db) as history:
        finished = run_fair(
            history,
            system,
            suite,
            stacks,
            until,
            seed=secrets.randbelow(2**31) if seed is None else seed,
            benchmarks=benchmarks,
            scratch_directory=scratch,
            say=lambda text: console.print(text, markup=False, soft_wrap=True),
        )
        outcome = _compared(history, finished)
    if markdown is not None:
        write_whole(markdown, report.markdown(outcome))
    if as_json:
        fair = {"session": finished.uuid, "left": stacks[0], "right": stacks[1], "pairs": finished.pairs}
        print_json(
            {
                **report.document(outcome),
                "fair": {**fair, "stopped": finished.stopped, "missing": [*finished.missing]},
            }
        )
    else:
        report.print_comparison(outcome, page())
        console.print(
            f"session {finished.uuid}: {counted(finished.pairs, 'pair')}, ended by {finished.stopped}; "
            f"{counted(len(finished.missing), 'run')} failed or absent",
            soft_wrap=True,
        )
    return 1 if finished.missing else 0


def _compared(history: History, finished: FairRun) -> Outcome:
    sides = [parse_spec(f"session:{finished.uuid},side={side}") for side in ("left", "right")]
    try:
        return compare_sides(sides[0], sides[1], lambda: history, Options())
    except UsageError as error:
        raise MachineError(
            f"the fair run measured no case on both sides: {len(finished.missing)} runs failed or are absent",
            hint=f"`iowatch history show {finished.uuid}` tells why.",
        ) from error


def _myself() -> list[str]:
    """This very command, to be started once more."""
    return [sys.executable, "-c", "from iowatch.cli.main import main; main()", *sys.argv[1:]]


def _become(words: list[str]) -> NoReturn:
    """Go on as another program, which gets the signals and gives the exit code."""
    try:
        os.execvp(words[0], words)  # noqa: S606 - arguments, no shell
    except OSError as error:
        raise MachineError(f"cannot start {words[0]}: {error}") from error


def _until(pairs: int | None, half_width: float | None, minutes: float | None) -> Until:
    if pairs is None and half_width is None:
        half_width = _HALF_WIDTH
    if pairs is None and minutes is None:
        minutes = _BUDGET_MIN
    return Until(pairs, half_width, None if minutes is None else minutes * 60)
