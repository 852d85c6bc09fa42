"""A night with ReFrame replaced: what is chosen, repeated, ended early, and what the detection makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from iowatch import handoff
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.cli.commands.run import run_and_report
from iowatch.core import MachineError, Output, Result, utc_now
from iowatch.findings import series, state
from iowatch.findings.series import load_observations
from iowatch.handoff import SELECTION_VARIABLE
from iowatch.session import plan, reframe, run, session
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.session.session import SessionContext
from iowatch.session.verdict import assess_session
from iowatch.site import storage
from iowatch.site.stack import Stack
from iowatch.site.system import NightlyPolicy
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

DAY = 86400
NIGHTS = 40


def output_of(case: SuiteCase, level: float, seed: int) -> Output:
    """Both operations of a case of `tiny`, around a level, 1 % noise."""
    noise = np.random.default_rng(seed).standard_normal((2, 5))
    results = tuple(
        Result(operation, "bandwidth", "MiB/s", tuple(level * np.exp(0.01 * row)), {"name": case.name})
        for operation, row in zip(("write", "read"), noise, strict=True)
    )
    return Output("benchio", "1", "ok", None, results)


@dataclass
class FakeReframe:
    """Leaves the chosen cases at `level`, or at the level named for a start (`""`, `again`).

    `slow_s` is how long each start goes on after its cases came; `starts` is what was chosen each time.
    """

    levels: dict[str, float] = field(default_factory=dict)
    slow_s: float = 0.0
    starts: list[tuple[str, list[str]]] = field(default_factory=list)

    def follow(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        chosen = json.loads(Path(environment[SELECTION_VARIABLE]).read_text())
        turn = environment.get("IOWATCH_TURN", "")
        self.starts.append((turn, [name for _, _, name in chosen]))
        cases = {f"{case.benchmark}:{case.name}": case for case in load_suite("tiny")}
        facts = {"retest": True} if turn else {}
        if turn:  # a job starts some seconds after ReFrame; times in the history are whole seconds
            time.sleep(1.1)
        for number, (partition, stack, name) in enumerate(chosen):
            output = output_of(cases[name], self.levels.get(turn, 1000.0), number)
            case = handoff.SpooledCase(
                handoff.turn_run_name(name, facts),
                *("benchio", partition, stack, {}, int(time.time()), 1.0, output.to_json(), facts),
            )
            handoff.spool_case(Path(environment["IOWATCH_SESSION_DIR"]), case, {})
        each_poll()
        end = time.monotonic() + self.slow_s
        while time.monotonic() < end:
            each_poll()
            time.sleep(0.01)
        (place / "report.json").write_text("{}")
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeReframe:
    made = FakeReframe()
    site = ReframeSite(
        "local",
        tmp_path / "reframe.py",
        (ReframePartition("default", "local", ("gnu",), None),),
        {"gnu": frozenset({"mpi", "hdf5"})},
    )
    monkeypatch.setattr(reframe, "run_reframe", made.follow)
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    monkeypatch.setattr(plan, "discover_stacks", lambda _: [])
    # The host's file systems may be as full as they like.
    monkeypatch.setattr(storage, "check_scratch_space", lambda *_: None)
    return made


@pytest.fixture
def past(history: History) -> History:
    """Forty quiet nights at 1000 MiB/s before this one."""
    now = int(utc_now().timestamp())
    for night in range(NIGHTS):
        moment = now - (NIGHTS - night) * DAY
        session = SessionRecord(f"night-{night}", "local", "tiny", "run", moment)
        history.begin_session(session)
        history.record_runs(
            session.uuid,
            [
                RunRecord(
                    f"benchio:{case.name}",
                    "default",
                    StackRecord("gnu"),
                    f"{night} {case.name}",
                    moment + number,
                    output_of(case, 1000.0, 100 * night + number),
                    wall_s=2.0,
                )
                for number, case in enumerate(load_suite("tiny"))
            ],
        )
        history.end_session(session.uuid, "ok", moment + 60)
    return history


def tonight(history: History, night: NightlyPolicy | None, said: list[str] | None = None) -> run.SessionSummary:
    messages = [] if said is None else said
    return run.run_suite(history, SessionContext("local", "tiny", policy=night, report_message=messages.append))


def suspected(history: History) -> int:
    state.update_findings(history, "local")
    return len(state.suspected_series_ids(history, "local"))


def test_a_quiet_night_runs_everything_once(past: History, fake: FakeReframe) -> None:
    done = tonight(past, NightlyPolicy())
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3)]
    assert past.session(done.uuid).status == "ok"
    assert (done.retest_count, done.deferred_runs, done.stop_reason) == (0, (), None)


def test_one_bad_run_is_cleared_by_the_second(past: History, fake: FakeReframe) -> None:
    """500 then 1000 MiB/s in one night: the second is the night's, and the first is kept."""
    fake.levels = {"": 500.0, "retest": 1000.0}
    said: list[str] = []
    done = tonight(past, NightlyPolicy(), said)
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3), ("retest", 3)]
    assert (past.session(done.uuid).status, done.retest_count) == ("ok", 3)
    assert "3 runs differ from previous sessions; repeating 3" in said
    verdict = assess_session(past, done)
    assert (verdict.expected, verdict.received, verdict.suspected, verdict.exit_code) == (12, 12, (), 0)
    assert suspected(past) == 0
    runs = past.runs(done.uuid)
    assert sorted(one.name.endswith("#retest") for one in runs) == [False] * 3 + [True] * 3
    assert {series.n for series in series.headline_series(past, "local")} == {NIGHTS + 2}


def test_a_real_change_stays_suspected_and_is_no_second_night(past: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0, "retest": 500.0}
    tonight(past, NightlyPolicy())
    assert suspected(past) == 6
    rows = series.headline_series(past, "local")
    for one in load_observations(past, rows).values():
        assert len(one.time) == NIGHTS + 1
        assert one.max[-1] < 600
    assert {row.state for row in past.findings("local")} <= {"suspected"}


def test_a_run_that_is_killed_in_its_repeats_is_one_night(
    past: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    fake.levels = {"": 500.0, "retest": 1000.0}
    with monkeypatch.context() as patch:
        patch.setattr(session, "close_session", killed)
        with pytest.raises(Killed):
            tonight(past, NightlyPolicy())
    assert len(session.recover_sessions(past, "local")) == 1
    for one in load_observations(past, series.headline_series(past, "local")).values():
        assert len(one.time) == NIGHTS + 1
        assert one.max[-1] > 900


def test_without_a_night_nothing_is_repeated(past: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0}
    assert tonight(past, None).retest_count == 0
    assert tonight(past, NightlyPolicy(repeat_suspected=False)).retest_count == 0
    assert len(fake.starts) == 2
    # Two sessions of their own are two points.
    rows = series.headline_series(past, "local")
    assert {len(one.time) for one in load_observations(past, rows).values()} == {NIGHTS + 2}


def test_what_the_night_has_no_room_for_is_not_expected_and_is_told(past: History, fake: FakeReframe) -> None:
    one_case = load_suite("tiny")[0]
    room = 2 * one_case.tool.volume_bytes(one_case.options)
    done = tonight(past, NightlyPolicy(bytes=room))
    assert [len(names) for _, names in fake.starts] == [2]
    verdict = assess_session(past, done)
    assert (verdict.status, verdict.expected, verdict.exit_code) == ("ok", 4, 0)
    assert [(trouble.run, trouble.reason.split()[:3]) for trouble in verdict.left_out] == [
        ("1 case", ["exceeds", "the", "budget"])
    ]
    # Tomorrow it goes first.
    left = done.deferred_runs[0].run.name
    tonight(past, NightlyPolicy(bytes=room))
    assert left in fake.starts[1][1]


def test_a_night_that_is_over_is_ended_and_not_green(
    past: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch, var: Path
) -> None:
    fake.slow_s = 600.0
    limits = plan.SessionBudget(seconds=0.3, limit_reason="the budget of 5 minutes")
    monkeypatch.setattr(run, "session_budget", lambda *_: limits)
    monkeypatch.setattr(run, "load_run_history", lambda *_: {})
    # By their time limits (60 s) nothing would fit: this night was planned with other expectations.
    monkeypatch.setattr(run, "fit_to_budget", lambda runs, *_: (tuple(runs), ()))
    monkeypatch.setattr(session, "ingest_spool", lambda *_: [])  # nothing comes
    done = tonight(past, NightlyPolicy())
    assert not list(var.rglob("report.json"))  # it did not wait for ReFrame's end
    assert done.stop_reason == "ended early: the budget of 5 minutes is used up"
    assert past.session(done.uuid).status == "incomplete"
    verdict = assess_session(past, done)
    assert verdict.exit_code == 1
    assert all(done.stop_reason in trouble.reason for trouble in verdict.absent)
    assert len(verdict.absent) == 3


def test_a_report_that_cannot_be_written_does_not_cost_the_verdict(
    past: History, fake: FakeReframe, var: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MachineError, match=r"cannot write /proc/x/junit\.xml"):
        run_and_report(SessionContext("local", "tiny"), Path("/proc/x/junit.xml"), None, None, False)
    assert "tiny on local: OK" in capsys.readouterr().out


BROKEN = Stack("site", "local", "modules", "broken", (), note="its modules do not load: no module mpi/6")


def test_a_stack_that_broke_is_absent_and_the_night_not_green(
    past: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a maintenance that renamed a module: ReFrame hears nothing of the stack, so nothing fails."""
    monkeypatch.setattr(plan, "discover_stacks", lambda _: [BROKEN])
    said: list[str] = []
    never_ran = assess_session(past, tonight(past, None, said))
    assert (never_ran.status, never_ran.expected, never_ran.exit_code) == ("ok", 6, 0)
    assert [(t.stack, t.run, t.reason) for t in never_ran.unavailable] == [
        ("site", "3 cases", f"the stack is broken: {BROKEN.note}")
    ]
    case = load_suite("tiny")[0]
    stack = StackRecord(BROKEN.name)
    when = int(utc_now().timestamp()) - DAY
    past.begin_session(SessionRecord("before", "local", "tiny", "run", when))
    before = RunRecord(f"benchio:{case.name}", "default", stack, "before", when, output_of(case, 1000.0, 9))
    past.record_runs("before", [before])
    past.end_session("before", "ok", when)
    verdict = assess_session(past, tonight(past, None, said))
    assert fake.starts[0] == fake.starts[1]
    assert (verdict.status, verdict.exit_code) == ("incomplete", 1)
    # What needs no library but MPI; the stack never told what else it had.
    plain = [one for one in load_suite("tiny") if set(one.requires) <= {"mpi"}]
    assert [(t.stack, t.partition, t.run) for t in verdict.absent] == [
        ("site", "default", f"benchio:{one.name}") for one in plain
    ]
    assert all(BROKEN.note in t.reason for t in verdict.absent if BROKEN.note)
    assert f"site: the stack is broken: {BROKEN.note}; its runs are counted as missing" in said
    assert assess_session(past, run.run_suite(past, SessionContext("local", "tiny", ["gnu"]))).exit_code == 0


def test_a_stack_that_is_gone_is_told_once(past: History, fake: FakeReframe) -> None:
    when = int(utc_now().timestamp()) - 60
    past.begin_session(SessionRecord("before", "local", "tiny", "run", when, {"stacks": ["gnu", "mpich"]}))
    past.end_session("before", "ok", when)
    past.begin_session(SessionRecord("import", "local", "ior", "import", when + 1))
    past.end_session("import", "ok", when + 1)
    told = [assess_session(past, tonight(past, None)) for _ in range(2)]
    assert [verdict.exit_code for verdict in told] == [0, 0]
    assert [[(t.stack, t.reason) for t in verdict.unavailable] for verdict in told] == [
        [("mpich", "the stack no longer exists")],
        [],
    ]


def test_two_systems_on_one_file_system_do_not_run_at_once(history: History, fake: FakeReframe, var: Path) -> None:
    with (
        session.hold_lock(session.file_system_lock_path(var / "scratch" / "not made yet")),
        pytest.raises(MachineError, match="another session is running"),
    ):
        tonight(history, None)
    assert fake.starts == []
