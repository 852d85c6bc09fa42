"""A night with ReFrame replaced: what is chosen, repeated, ended early, and what the detection makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from iowatch import findings, spool
from iowatch.cli.watched import run_and_judge
from iowatch.errors import MachineError
from iowatch.findings import detection
from iowatch.findings.again import nights_repeated, without_first_runs
from iowatch.model import Output, Result
from iowatch.runner import execution, lock, lost, reframe, run
from iowatch.runner.site import Partition, Site
from iowatch.selection import VARIABLE
from iowatch.stacks import Stack
from iowatch.store import History, RunRecord, SessionRecord, StackRecord
from iowatch.suites import SuiteCase, load
from iowatch.systems.model import Night
from iowatch.units import utc_now
from iowatch.verdict import judge

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

    def follow(
        self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]
    ) -> int:
        chosen = json.loads(Path(environment[VARIABLE]).read_text())
        turn = environment.get("IOWATCH_TURN", "")
        self.starts.append((turn, [name for _, _, name in chosen]))
        cases = {f"{case.benchmark}:{case.name}": case for case in load("tiny")}
        facts = {"again": True} if turn else {}
        if turn:  # a job starts some seconds after ReFrame; times in the history are whole seconds
            time.sleep(1.1)
        for number, (partition, stack, name) in enumerate(chosen):
            output = output_of(cases[name], self.levels.get(turn, 1000.0), number)
            case = spool.SpooledCase(
                spool.name_in_turn(name, facts),
                *("benchio", partition, stack, {}, int(time.time()), 1.0, output.to_json(), facts),
            )
            spool.put(Path(environment["IOWATCH_SESSION_DIR"]), case, {})
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
    site = Site(
        "local",
        tmp_path / "reframe.py",
        (Partition("default", "local", ("gnu",), None),),
        {"gnu": frozenset({"mpi", "hdf5"})},
    )
    monkeypatch.setattr(reframe, "follow", made.follow)
    monkeypatch.setattr(run, "load_site", lambda _: site)
    monkeypatch.setattr(lost, "discover", lambda _: [])
    # The host's file systems may be as full as they like.
    monkeypatch.setattr(run.scratch, "check", lambda *_: None)
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
                for number, case in enumerate(load("tiny"))
            ],
        )
        history.end_session(session.uuid, "ok", moment + 60)
    return history


def tonight(history: History, night: Night | None, said: list[str] | None = None) -> run.Finished:
    return run.run_suite(
        history, "local", "tiny", night=night, say=said.append if said is not None else lambda _: None
    )


def suspected(history: History) -> int:
    findings.update(history, "local")
    return len(findings.suspected_series(history, "local"))


def test_a_quiet_night_runs_everything_once(past: History, fake: FakeReframe) -> None:
    done = tonight(past, Night())
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3)]
    assert (done.status, done.repeated, done.left_out, done.stopped) == ("ok", 0, (), None)


def test_one_bad_run_is_cleared_by_the_second(past: History, fake: FakeReframe) -> None:
    """500 then 1000 MiB/s in one night: the second is the night's, and the first is kept."""
    fake.levels = {"": 500.0, "again": 1000.0}
    said: list[str] = []
    done = tonight(past, Night(), said)
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3), ("again", 3)]
    assert (done.status, done.repeated) == ("ok", 3)
    assert any("once more" in line for line in said)
    verdict = judge(past, done)
    assert (verdict.expected, verdict.received, verdict.suspected, verdict.exit_code) == (12, 12, (), 0)
    assert suspected(past) == 0
    runs = past.runs(done.uuid)
    assert sorted(one.name.endswith("#again") for one in runs) == [False] * 3 + [True] * 3
    assert {series.n for series in detection.headline_series(past, "local")} == {NIGHTS + 2}


def test_a_real_change_stays_suspected_and_is_no_second_night(past: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0, "again": 500.0}
    tonight(past, Night())
    assert suspected(past) == 6
    rows = detection.headline_series(past, "local")
    points = past.points([row.id for row in rows])
    for one in without_first_runs(points, nights_repeated(past, "local")).values():
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

    fake.levels = {"": 500.0, "again": 1000.0}
    with monkeypatch.context() as patch:
        patch.setattr(execution.session, "end", killed)
        with pytest.raises(Killed):
            tonight(past, Night())
    assert len(execution.session.recover(past, "local")) == 1
    points = past.points([row.id for row in detection.headline_series(past, "local")])
    for one in without_first_runs(points, nights_repeated(past, "local")).values():
        assert len(one.time) == NIGHTS + 1
        assert one.max[-1] > 900


def test_without_a_night_nothing_is_repeated(past: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0}
    assert tonight(past, None).repeated == 0
    assert tonight(past, Night(repeat_suspected=False)).repeated == 0
    assert len(fake.starts) == 2
    # Two sessions of their own are two points.
    rows = detection.headline_series(past, "local")
    points = past.points([row.id for row in rows])
    assert not nights_repeated(past, "local")
    assert {len(one.time) for one in points.values()} == {NIGHTS + 2}


def test_what_the_night_has_no_room_for_is_not_expected_and_is_told(past: History, fake: FakeReframe) -> None:
    one_case = load("tiny")[0]
    room = 2 * one_case.tool.volume_bytes(one_case.options)
    done = tonight(past, Night(bytes=room))
    assert [len(names) for _, names in fake.starts] == [2]
    verdict = judge(past, done)
    assert (verdict.status, verdict.expected, verdict.exit_code) == ("ok", 4, 0)
    assert [(trouble.run, trouble.reason.split()[:3]) for trouble in verdict.left_out] == [
        ("1 case", ["no", "room", "in"])
    ]
    # Tomorrow it goes first.
    left = done.left_out[0].run.name
    tonight(past, Night(bytes=room))
    assert left in fake.starts[1][1]


def test_a_night_that_is_over_is_ended_and_not_green(
    past: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch, var: Path
) -> None:
    fake.slow_s = 600.0
    limits = run.Budget(seconds=0.3, ends="the night's 5 minutes")
    monkeypatch.setattr(run, "budget", lambda *_: limits)
    monkeypatch.setattr(run, "known_runs", lambda *_: {})
    # By their time limits (60 s) nothing would fit: this night was planned with other expectations.
    monkeypatch.setattr(run, "fit", lambda runs, *_: (tuple(runs), ()))
    monkeypatch.setattr(execution.session, "ingest", lambda *_: [])  # nothing comes
    done = tonight(past, Night())
    assert not list(var.rglob("report.json"))  # it did not wait for ReFrame's end
    assert done.stopped == "ended early: no room left in the night's 5 minutes"
    assert past.session(done.uuid).status == "incomplete"
    verdict = judge(past, done)
    assert verdict.exit_code == 1
    assert all(done.stopped in trouble.reason for trouble in verdict.absent)
    assert len(verdict.absent) == 3


def test_a_report_that_cannot_be_written_does_not_cost_the_verdict(
    past: History, fake: FakeReframe, var: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MachineError, match=r"cannot write /proc/x/junit\.xml"):
        run_and_judge("local", "tiny", (), None, None, (Path("/proc/x/junit.xml"), None), None, False)
    assert "tiny on local: OK" in capsys.readouterr().out


BROKEN = Stack("site", "local", "modules", "broken", (), note="its modules do not load: no module mpi/6")


def test_a_stack_that_broke_is_absent_and_the_night_not_green(
    past: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a maintenance that renamed a module: ReFrame hears nothing of the stack, so nothing fails."""
    monkeypatch.setattr(lost, "discover", lambda _: [BROKEN])
    said: list[str] = []
    never_ran = judge(past, tonight(past, None, said))
    assert (never_ran.status, never_ran.expected, never_ran.exit_code) == ("ok", 6, 0)
    assert [(t.stack, t.run, t.reason) for t in never_ran.unavailable] == [
        ("site", "3 cases", f"this stack is broken: {BROKEN.note}")
    ]
    case = load("tiny")[0]
    stack = StackRecord(BROKEN.name)
    when = int(utc_now().timestamp()) - DAY
    past.begin_session(SessionRecord("before", "local", "tiny", "run", when))
    before = RunRecord(f"benchio:{case.name}", "default", stack, "before", when, output_of(case, 1000.0, 9))
    past.record_runs("before", [before])
    past.end_session("before", "ok", when)
    verdict = judge(past, tonight(past, None, said))
    assert fake.starts[0] == fake.starts[1]
    assert (verdict.status, verdict.exit_code) == ("incomplete", 1)
    # What needs no library but MPI; the stack never told what else it had.
    plain = [one for one in load("tiny") if set(one.requires) <= {"mpi"}]
    assert [(t.stack, t.partition, t.run) for t in verdict.absent] == [
        ("site", "default", f"benchio:{one.name}") for one in plain
    ]
    assert all(BROKEN.note in t.reason for t in verdict.absent if BROKEN.note)
    assert f"site: this stack is broken: {BROKEN.note}; its runs count as absent" in said
    assert judge(past, run.run_suite(past, "local", "tiny", stacks=["gnu"])).exit_code == 0


def test_a_stack_that_is_gone_is_told_once(past: History, fake: FakeReframe) -> None:
    when = int(utc_now().timestamp()) - 60
    past.begin_session(SessionRecord("before", "local", "tiny", "run", when, {"stacks": ["gnu", "mpich"]}))
    past.end_session("before", "ok", when)
    past.begin_session(SessionRecord("import", "local", "ior", "import", when + 1))
    past.end_session("import", "ok", when + 1)
    told = [judge(past, tonight(past, None)) for _ in range(2)]
    assert [verdict.exit_code for verdict in told] == [0, 0]
    assert [[(t.stack, t.reason) for t in verdict.unavailable] for verdict in told] == [
        [("mpich", "this stack is gone")],
        [],
    ]


def test_two_systems_on_one_file_system_do_not_run_at_once(
    history: History, fake: FakeReframe, var: Path
) -> None:
    with (
        lock.hold(lock.of_file_system(var / "scratch" / "not made yet")),
        pytest.raises(MachineError, match="another run is going on"),
    ):
        tonight(history, None)
    assert fake.starts == []
