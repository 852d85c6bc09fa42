"""Work of a session besides its measurements: its turn, its cost, and its part in the reason of a failure."""

from __future__ import annotations

from collections import Counter

from iowatch.benchmarks.suites import load_suite
from iowatch.session.budget import RunHistory, SessionBudget, fit_to_budget
from iowatch.session.extra_work import ROTATION_SESSIONS, add_extra_work
from iowatch.session.plan import PlannedRun
from iowatch.session.reframe import ReframeFailure
from iowatch.session.run import _name_extra_work
from tests.builders import build_planned_run

RUNS = tuple(build_planned_run(case, stack=stack) for stack in ("bare", "traced") for case in load_suite("nightly"))
WALL_S = 20.0
HISTORY = {run.key: RunHistory(1, WALL_S) for run in RUNS}


def extended(number: int, *, verify: bool = True, total_bytes: int | None = None) -> tuple[PlannedRun, ...]:
    options = {"traced_stacks": ["traced"], "verify": verify, "total_bytes": total_bytes}
    return add_extra_work(RUNS, HISTORY, number, **options)  # type: ignore[arg-type]


def kinds(run: PlannedRun) -> list[str]:
    return [one.kind for one in run.extra_work]


def test_every_run_is_verified_once_in_seven_sessions() -> None:
    """All cases of benchio and IOR, except those that compare their data in the timed part already."""
    for first in (0, 5, 100):
        sessions = range(first, first + ROTATION_SESSIONS)
        turns = Counter(run.key for n in sessions for run in extended(n) if "verification" in kinds(run))
        wanted = [r for r in RUNS if r.case.benchmark in ("benchio", "ior") and not r.case.options.get("verify")]
        assert turns == {run.key: 1 for run in wanted}


def test_verification_takes_less_than_a_twentieth_of_the_time() -> None:
    """Expected seconds of seven sessions of the nightly suite, where each run takes as long as it moves bytes."""
    sessions = [extended(n) for n in range(ROTATION_SESSIONS)]
    work = [one for runs in sessions for run in runs for one in run.extra_work if one.kind == "verification"]
    verified = sum(one.volume_bytes for one in work)
    assert 0 < verified < 0.05 * ROTATION_SESSIONS * sum(run.volume_bytes for run in RUNS)


def test_overhead_is_measured_on_one_traced_run_of_every_seventh_session() -> None:
    for number in range(16):
        found = [run for run in extended(number, verify=False) if run.extra_work]
        assert [run.stack for run in found] == (["traced"] if number in (1, 8, 15) else [])
    # Ten starts that take and move as much as the measurement, and may take twice as long.
    (run,) = (run for run in extended(8, verify=False) if run.extra_work)
    (work,) = run.extra_work
    measured = run.case.tool.volume_bytes(run.case.options)
    assert (work.volume_bytes, work.expected_s, work.limit_s) == (10 * measured, 10 * WALL_S, 20 * WALL_S)
    assert run.volume_bytes == 11 * measured


def test_extra_work_is_left_out_where_it_exceeds_the_budget() -> None:
    (run,) = (run for run in extended(8, verify=False) if run.extra_work)
    measured = run.case.tool.volume_bytes(run.case.options)
    for budget, expected in (
        (SessionBudget(bytes=11 * measured, seconds=220), 1),
        (SessionBudget(bytes=11 * measured - 1), 0),
        (SessionBudget(seconds=219), 0),
    ):
        fitted = fit_to_budget([run], HISTORY, budget)
        assert ([len(one.extra_work) for one in fitted.kept], fitted.deferred) == ([expected], ())
    total = sum(run.volume_bytes for run in RUNS)
    assert not any(run.extra_work for run in extended(8, total_bytes=total))


def test_reason_of_a_timeout_names_the_extra_work() -> None:
    (run,) = (run for run in extended(8, verify=False) if run.extra_work)
    failure = ReframeFailure(run.reframe_test, "traced", "run", "job timed out", "TaskExit")
    assert _name_extra_work(failure, [run]).reason == (
        "job timed out (after the measurement its job also had 10 starts for the overhead of Darshan (400 s))"
    )
    other = ReframeFailure(run.reframe_test, "bare", "run", "job timed out", "TaskExit")
    assert _name_extra_work(other, [run]) == other
