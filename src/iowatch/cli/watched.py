"""`iowatch run` without `--ab`: the suite, its verdict, and what is written of it."""

from __future__ import annotations

from pathlib import Path

from iowatch.cli.output import messages, page, print_json
from iowatch.files import write_whole
from iowatch.report.junit import junit
from iowatch.report.markdown import markdown
from iowatch.report.verdict import render
from iowatch.runner.night import wait
from iowatch.runner.run import in_service, run_suite
from iowatch.store import History
from iowatch.systems.model import Night
from iowatch.units import utc_now
from iowatch.verdict import Verdict, judge

# JUnit XML and Markdown.
Reports = tuple[Path | None, Path | None]


def run_and_judge(
    system: str,
    suite: str,
    stacks: tuple[str, ...],
    scratch: Path | None,
    night: Night | None,
    reports: Reports,
    db: str | None,
    as_json: bool,
) -> int:
    """Run, judge, write reports, print; the verdict's exit code, 0 where a night does not take place.

    Args:
        night: what to keep to; None runs the whole suite at once.

    Raises:
        IowatchError: as `run_suite` and `judge`; a report cannot be written.
    """
    closed = None if night is None else wait(night, system, utc_now(), _say)
    if closed is not None:
        nothing = {"system": system, "status": "none", "reason": closed, "exit_code": 0}
        print_json(nothing) if as_json else _say(closed)
        return 0
    with History.open(db) as history:
        finished = run_suite(
            history, system, suite, stacks=stacks, scratch_directory=scratch, night=night, say=_say
        )
        verdict = judge(history, finished)
        # First of all: a report that cannot be written must not cost the verdict of a night.
        print_json(verdict.to_json()) if as_json else render(verdict, page())
        _write(history, verdict, reports)
    return verdict.exit_code


def policy(system: str, jitter: bool) -> Night | None:
    """The block `night` of a system; None where it has none.

    Args:
        jitter: whether to wait for its minute.

    Raises:
        UsageError: an unknown or retired system.
    """
    night = in_service(system).night
    return night if night is None or jitter else night.model_copy(update={"jitter_minutes": None})


def _say(text: str) -> None:
    messages().print(text, markup=False, soft_wrap=True)


def _write(history: History, verdict: Verdict, reports: Reports) -> None:
    junit_file, markdown_file = reports
    if junit_file:
        write_whole(junit_file, junit(history, verdict))
    if markdown_file:
        write_whole(markdown_file, markdown(verdict))
