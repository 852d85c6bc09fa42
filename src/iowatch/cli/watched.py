"""`iowatch run` without `--ab`: the suite, its verdict, and what is written of it."""

from __future__ import annotations

from pathlib import Path

from iowatch.cli.output import messages, page, print_json
from iowatch.files import write_whole
from iowatch.report.junit import junit
from iowatch.report.markdown import markdown
from iowatch.report.plan import render as render_plan
from iowatch.report.plan import to_json
from iowatch.report.verdict import render
from iowatch.runner.night import Budget, budget, wait
from iowatch.runner.run import in_service, prepare, run_suite
from iowatch.store import History
from iowatch.store.engine import NoHistoryError
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


def rehearse(
    system: str,
    suite: str,
    stacks: tuple[str, ...],
    scratch: Path | None,
    night: Night | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Tell what a run would do now; a history that is not there yet is none to learn from. The exit code.

    Raises:
        IowatchError: as `prepare`.
    """
    limit = budget(night, utc_now()) if night else Budget()
    try:
        with History.existing(db) as history:
            prepared = prepare(history, system, suite, stacks, scratch, limit)
    except NoHistoryError as error:
        _say(f"{error}; nothing is known of earlier runs")
        prepared = prepare(None, system, suite, stacks, scratch, limit)
    print_json(to_json(prepared)) if as_json else render_plan(prepared, page())
    return 0


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
