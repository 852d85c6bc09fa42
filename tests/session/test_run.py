"""A nightly session with ReFrame replaced: selection, retests, early end, and the resulting findings."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result as CliResult

from iowatch import checks
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import MachineError, Output, OutputStatus, Result, Scalar, utc_now
from iowatch.findings import series, state
from iowatch.findings.series import load_observations
from iowatch.output.report import verdict_markdown
from iowatch.output.text.verdict import format_retested_run
from iowatch.session import accepted_plan, budget, conditions, file_systems, ingest, options, reframe, run, runner
from iowatch.session.context import SessionContext, make_context, select_cases
from iowatch.session.directory import recover_sessions
from iowatch.session.missing_reasons import recorded_reasons
from iowatch.session.options import SessionOptions
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.session.verdict import assess_session
from iowatch.site import load_system, schedulers, storage, suite_on_system
from iowatch.site.file_system import Scratch
from iowatch.site.schedulers import PartitionLimits
from iowatch.site.system import NightlyPolicy
from iowatch.store import History, RunRecord, locks
from tests.builders import build_output, build_result, build_run, build_session, build_spooled_case, store_session
from tests.checks.orders import order_of
from tests.faults.places import small

DAY = 86400
SESSIONS = 40


def output_of(case: SuiteCase, level: float, seed: int, **others: Scalar) -> Output:
    """Both operations of a case of `tiny`, around a level, 1 % noise."""
    noise = np.random.default_rng(seed).standard_normal((2, 5))
    name = case.name.removesuffix(f",file_system={case.file_system}")
    where = {"file_system": case.file_system} if case.file_system else {}
    parameters = {"name": name, **where, **others}
    results: list[Result] = []
    for operation, row in zip(("write", "read"), noise, strict=True):
        samples = level * np.exp(0.01 * row)
        results.append(build_result(*samples.tolist(), operation=operation, case=parameters))
    return build_output(*results, tool="benchio", version="1")


@dataclass(frozen=True)
class ClockWithoutWaiting:
    """A stand-in for the module `time`, because the test would wait for half an hour: `sleep` only moves the clock.

    Attributes:
        waited: seconds of each call of `sleep`.
    """

    waited: list[float]

    def monotonic(self) -> float:
        """Seconds of the clock, with those waited."""
        return time.monotonic() + sum(self.waited)

    def time(self) -> float:
        """Epoch seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.waited.append(seconds)


@dataclass
class FakeReframe:
    """A stand-in for the program ReFrame, because tests measure nothing.

    Writes the selected cases at `level`, or at the level of a start (`""`, `retest`).

    `achieved` are further parameters of every case; `nodes` are those of a start, `avoided` those that it must not use.
    `slow_s` is how long each start continues after its results; `starts` lists the selection of each start.
    """

    levels: dict[str, float] = field(default_factory=dict)
    achieved: dict[str, Scalar] = field(default_factory=dict)
    slow_s: float = 0.0
    starts: list[tuple[str, list[str]]] = field(default_factory=list)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    avoided: dict[str, list[list[str]]] = field(default_factory=dict)
    site: ReframeSite | None = None

    def partition(self, scheduler: str, access: tuple[str, ...]) -> None:
        """Use another scheduler than `local`."""
        assert self.site is not None
        (part,) = self.site.partitions
        self.site = replace(self.site, partitions=(replace(part, scheduler=scheduler, access=access),))

    def follow(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        order = order_of(environment)
        assert order.runs is not None
        assert order.spool is not None
        chosen = [run.key for run in order.runs]
        turn = "retest" if order.is_retest else ""
        self.starts.append((turn, [name for _, _, name in chosen]))
        cases = {case.run_name: case for case in suite_on_system("tiny", "local", ("all",))}
        facts = {"retest": True} if turn else {}
        self.avoided[turn] = [list(run.avoided_nodes) for run in order.runs if run.avoided_nodes]
        if turn:  # a job starts some seconds after ReFrame; times in the history are whole seconds
            time.sleep(1.1)
        for number, (partition, stack, name) in enumerate(chosen):
            # No two runs measure the same.
            seed = 1_000_000 * len(self.starts) + number
            output = output_of(cases[name], self.levels.get(turn, 1000.0), seed, **self.achieved)
            case = build_spooled_case(
                name=checks.turn_run_name(name, facts),
                partition=partition,
                stack=stack,
                started_at=int(time.time()),
                output=output,
                facts={**facts, "nodes": self.nodes.get(turn, [])},
            )
            checks.spool_case(order.spool, case, {})
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
    made.site = site
    monkeypatch.setattr(reframe, "load_site", lambda _: made.site)
    monkeypatch.setattr(accepted_plan, "discover_stacks", lambda _: [])
    # Independent of the free space of this machine.
    monkeypatch.setattr(storage, "check_scratch_space", lambda *_: None)
    return made


@pytest.fixture
def history_with_sessions(history: History) -> History:
    """Forty sessions without change at 1000 MiB/s before this one."""
    now = int(utc_now().timestamp())
    for day in range(SESSIONS):
        moment = now - (SESSIONS - day) * DAY
        runs: list[RunRecord] = []
        for number, case in enumerate(load_suite("tiny")):
            output = output_of(case, 1000.0, 100 * day + number)
            runs.append(build_run(name=case.run_name, started_at=moment + number, output=output, wall_s=2.0))
        session = build_session(f"night-{day}", suite="tiny", started_at=moment)
        store_session(history, session, runs, duration_s=60)
    return history


def tiny_context(policy: NightlyPolicy | None = None, scratch: Path | None = None) -> SessionContext:
    asked = SessionOptions(system="local", suite="tiny", policy=policy, scratch=scratch)
    return make_context(select_cases(asked))


def run_session(history: History, policy: NightlyPolicy | None) -> run.SessionSummary:
    return run.run_suite(history, tiny_context(policy))


def suspected(history: History) -> int:
    state.update_findings(history, "local")
    return len(state.suspected_series_ids(history, "local"))


def test_session_without_changes_runs_every_case_once(history_with_sessions: History, fake: FakeReframe) -> None:
    done = run_session(history_with_sessions, NightlyPolicy())
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3)]
    assert history_with_sessions.session(done.uuid).status == "ok"
    assert (done.retest_count, done.deferred_runs, done.stop_reason) == (0, (), None)


def test_retest_and_outlier_are_one_observation(
    history_with_sessions: History, fake: FakeReframe, messages: list[str]
) -> None:
    """500 then 1000 MiB/s in one session are its observation of 707 MiB/s: neither is chosen for its value."""
    fake.levels = {"": 500.0, "retest": 1000.0}
    done = run_session(history_with_sessions, NightlyPolicy())
    assert [(turn, len(names)) for turn, names in fake.starts] == [("", 3), ("retest", 3)]
    assert (history_with_sessions.session(done.uuid).status, done.retest_count) == ("ok", 3)
    assert "3 runs differ from previous sessions; repeating 3" in messages
    verdict = assess_session(history_with_sessions, done)
    assert (verdict.expected, verdict.received) == (12, 12)
    assert len(verdict.retests) == 3
    lines = [format_retested_run(retested) for retested in verdict.retests]
    assert all("on unknown nodes, 0 min after the first run: write " in line for line in lines)
    assert re.search(r"write (49|5[01])\d\.\d then (99\d\.\d|10[012]\d) MiB/s, read ", lines[0])
    rows = series.headline_series(history_with_sessions, "local")
    for one in load_observations(history_with_sessions, rows).values():
        assert one.max[-1] == pytest.approx(np.sqrt(500 * 1000), rel=0.05)
    runs = history_with_sessions.runs(done.uuid)
    assert sorted(one.name.endswith("#retest") for one in runs) == [False] * 3 + [True] * 3
    assert {row.n for row in rows} == {SESSIONS + 2}
    fake.levels = {}
    time.sleep(1.1)  # times in the history are whole seconds
    run_session(history_with_sessions, None)  # the next session ends the suspicion
    assert suspected(history_with_sessions) == 0


def test_confirmed_retest_stays_suspected_and_counts_once(history_with_sessions: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0, "retest": 500.0}
    run_session(history_with_sessions, NightlyPolicy())
    assert suspected(history_with_sessions) == 6
    rows = series.headline_series(history_with_sessions, "local")
    for one in load_observations(history_with_sessions, rows).values():
        assert len(one.time) == SESSIONS + 1
        assert one.max[-1] < 600
    assert {row.state for row in history_with_sessions.findings("local")} <= {"suspected"}


def test_session_killed_during_retests_is_one_observation(
    history_with_sessions: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    fake.levels = {"": 500.0, "retest": 1000.0}
    with monkeypatch.context() as patch:
        patch.setattr(runner, "close_session", killed)
        with pytest.raises(Killed):
            run_session(history_with_sessions, NightlyPolicy())
    assert len(recover_sessions(history_with_sessions, "local")) == 1
    for one in load_observations(
        history_with_sessions, series.headline_series(history_with_sessions, "local")
    ).values():
        assert len(one.time) == SESSIONS + 1
        assert one.max[-1] == pytest.approx(np.sqrt(500 * 1000), rel=0.05)


@dataclass
class IdleNodes:
    """Slurm's answer about idle nodes, and the question."""

    answer: str
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, *words: str, timeout_s: float) -> str:
        self.asked.append(words)
        return self.answer


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("idle", "where", "avoided"),
    [
        ("n1 idle\nn2 idle\n", ", 3 of them on other nodes", ["n1"]),
        # As Slurm 22.05 prints a drained, a busy and a sleeping node, and one that does not respond.
        ("n1 idle\nn2 drain\nn3 alloc\nn4 idle~\nn5 idle*\n", "", None),
        ("", "", None),
    ],
)
def test_retest_avoids_the_nodes_of_the_first_run(
    history_with_sessions: History,
    fake: FakeReframe,
    monkeypatch: pytest.MonkeyPatch,
    idle: str,
    where: str,
    avoided: list[str] | None,
    messages: list[str],
) -> None:
    """Only if other nodes are idle: a job that waits for them might never start."""
    scheduler = IdleNodes(idle)
    monkeypatch.setattr(schedulers, "query_command", scheduler)
    fake.partition("squeue", ("--partition=short",))
    fake.levels = {"": 500.0, "retest": 500.0}
    fake.nodes = {"": ["n1"], "retest": ["n2"]}
    done = run_session(history_with_sessions, NightlyPolicy())
    assert f"3 runs differ from previous sessions; repeating 3{where}" in messages
    assert "--partition=short" in scheduler.asked[0]
    assert fake.avoided["retest"] == ([avoided] * 3 if avoided else [])
    retested = assess_session(history_with_sessions, done).retests[0]
    assert "on other nodes (n2 instead of n1), 0 min" in format_retested_run(retested)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("minutes", "waits"), [(100, True), (20, False)])
def test_retest_on_the_same_nodes_waits_if_the_budget_permits(
    history_with_sessions: History,
    fake: FakeReframe,
    monkeypatch: pytest.MonkeyPatch,
    minutes: int,
    waits: bool,
    messages: list[str],
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(run, "time", ClockWithoutWaiting(waited))
    monkeypatch.setattr(run, "_WAIT_STEP_S", 600.0)
    fake.levels = {"": 500.0, "retest": 500.0}
    policy = NightlyPolicy(retest_delay_minutes=30, minutes=minutes)
    assert run_session(history_with_sessions, policy).retest_count == 3
    assert sum(waited) == pytest.approx(1800 if waits else 0, abs=5)
    assert ("retests start in 30 minutes: not all can run on other nodes" in messages) is waits


def test_retests_need_a_nightly_policy(history_with_sessions: History, fake: FakeReframe) -> None:
    fake.levels = {"": 500.0}
    assert run_session(history_with_sessions, None).retest_count == 0
    assert run_session(history_with_sessions, NightlyPolicy(repeat_suspected=False)).retest_count == 0
    assert len(fake.starts) == 2
    # Two separate sessions are two observations.
    rows = series.headline_series(history_with_sessions, "local")
    assert {len(one.time) for one in load_observations(history_with_sessions, rows).values()} == {SESSIONS + 2}


def test_deferred_runs_are_reported_and_not_expected(history_with_sessions: History, fake: FakeReframe) -> None:
    one_case = load_suite("tiny")[0]
    byte_budget = 2 * one_case.tool.volume_bytes(one_case.options)
    done = run_session(history_with_sessions, NightlyPolicy(bytes=byte_budget))
    assert [len(names) for _, names in fake.starts] == [2]
    verdict = assess_session(history_with_sessions, done)
    assert (verdict.status, verdict.expected, verdict.exit_code) == ("ok", 4, 0)
    assert [(problem.run, problem.reason.split()[:3]) for problem in verdict.deferred] == [
        ("1 case", ["exceeds", "the", "budget"])
    ]
    # It is the first run of the next session.
    left = done.deferred_runs[0].name
    run_session(history_with_sessions, NightlyPolicy(bytes=byte_budget))
    assert left in fake.starts[1][1]


def test_session_beyond_its_budget_is_ended_and_not_ok(
    history_with_sessions: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch, var: Path
) -> None:
    fake.slow_s = 600.0
    limits = budget.SessionBudget(seconds=0.3, limit_reason="the budget of 5 minutes")
    monkeypatch.setattr(run, "session_budget", lambda *_: limits)
    monkeypatch.setattr(run, "load_run_history", lambda *_: {})
    # By their time limits (60 s) nothing would fit: plan all runs.
    monkeypatch.setattr(run, "fit_to_budget", lambda runs, *_: budget.FittedRuns(tuple(runs), ()))
    for module in (runner, ingest):  # no results
        monkeypatch.setattr(module, "ingest_case", lambda *_: None)
    done = run_session(history_with_sessions, NightlyPolicy())
    assert not list(var.rglob("report.json"))  # the session did not wait for the end of ReFrame
    assert done.stop_reason == "ended early: the budget of 5 minutes is used up"
    assert history_with_sessions.session(done.uuid).status == "incomplete"
    verdict = assess_session(history_with_sessions, done)
    assert verdict.exit_code == 1
    assert all(done.stop_reason in problem.reason for problem in verdict.missing)
    assert len(verdict.missing) == 3
    # The pages read the reasons from the session.
    reasons = recorded_reasons(history_with_sessions.session(done.uuid))
    assert [reason.reason for reason in reasons.values()] == [done.stop_reason] * 3


def test_verdict_is_printed_if_the_report_cannot_be_written(
    history_with_sessions: History, fake: FakeReframe, cli: Callable[..., CliResult]
) -> None:
    done = cli("run", "--suite", "tiny", "--junit", "/proc/junit.xml")
    assert done.exit_code == 3
    assert "cannot write /proc/junit.xml" in done.stderr
    assert "tiny on local: OK" in done.stdout


def test_systems_on_one_file_system_exclude_each_other(history: History, fake: FakeReframe, var: Path) -> None:
    with (
        locks.hold_lock(locks.file_system_lock_path(var / "scratch" / "not made yet")),
        pytest.raises(MachineError, match="another session is running"),
    ):
        run_session(history, None)
    assert fake.starts == []


@pytest.mark.parametrize(
    ("metric", "samples", "expected"),
    [
        ("bandwidth", (5.0, 7.0, 6.0), "write 7 MiB/s"),
        ("rate", (100.0, 300.0), "write 300 1/s"),
        ("time", (2.0, 1.5, 3.0), "write 1.5 s"),
        ("collective_count", (4.0,), "ok"),
    ],
)
def test_progress_shows_the_best_sample_of_the_headline_metric(
    metric: str, samples: tuple[float, ...], expected: str
) -> None:
    """The best is the lowest of times, the highest of bandwidths and rates (core.metrics)."""
    case = build_spooled_case(build_result(*samples, metric=metric))
    assert run._format_headline(case) == expected


def test_unmounted_scratch_is_refused_until_it_is_declared(
    fake: FakeReframe, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is declared: the file system of the last session is expected."""

    def run_on(scratch: Path) -> str:
        return run.run_suite(history, tiny_context(scratch=scratch)).uuid

    with small(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("needs the right to mount a tmpfs (root)")
        first = run_on(disk / "scratch")
    assert (history.session(first).facts.scratch_file_system or {})["type"] == "tmpfs"
    with pytest.raises(MachineError, match=r"found mount .*; expected mount .*/disk, type tmpfs, source tmpfs"):
        run_on(tmp_path / "disk" / "scratch")
    with pytest.raises(MachineError, match=r"found mount .*; expected mount .*/disk, type tmpfs, source tmpfs"):
        run_on(tmp_path / "another")  # its results would be in the same series
    assert [row.uuid for row in history.sessions()] == [first]
    other = storage.find_identity(tmp_path)
    assert other is not None
    declared = Scratch(path=str(tmp_path), mount=other.mount, type=other.type)
    system = load_system("local").model_copy(update={"scratch": declared})
    monkeypatch.setattr(options, "load_system", lambda _: system)
    second = run_on(tmp_path / "disk" / "scratch")
    assert history.session(second).facts.scratch_file_system == other.declared


def test_file_system_of_failed_runs_is_not_expected_later(history: History) -> None:
    """The newest successful run of each partition counts; the host that starts sessions may differ from the nodes."""
    good, bad = {"mount": "/lustre", "type": "lustre"}, {"mount": "/", "type": "ext4"}
    statuses: tuple[OutputStatus, OutputStatus] = ("ok", "failed")
    for number, (status, found) in enumerate(zip(statuses, (good, bad), strict=True)):
        record = build_session(f"s{number}", started_at=1_700_000_000 + number)
        history.begin_session(record)
        output = replace(output_of(load_suite("tiny")[0], 1.0, 0), status=status, reason="x")
        facts = {storage.IDENTITY_FACT: found}
        ended = build_run(partition="batch", started_at=record.started_at, output=output, facts=facts)
        history.record_runs(record.uuid, [ended])
    places = [ReframePartition("batch", "slurm", ("gnu",), None)]
    expected = conditions.expected_file_systems(history, load_system("local"), places)
    assert {place: found.declared for place, found in expected.items()} == {"": {}, "batch": good}


@pytest.mark.parametrize(("ahead_s", "known", "refused"), [(400, "", True), (200, "", False), (400, "ahead", False)])
def test_session_before_the_newest_one_is_refused(
    fake: FakeReframe, history: History, monkeypatch: pytest.MonkeyPatch, ahead_s: int, known: str, refused: bool
) -> None:
    """Results are ordered by time: with a clock in the past a regression would look like a gain."""
    monkeypatch.setenv("IOWATCH_WRONG_CLOCK", known)
    newest = build_session("ahead", suite="tiny", started_at=int(utc_now().timestamp()) + ahead_s)
    store_session(history, newest, [], duration_s=0)
    if not refused:
        run_session(history, None)
        return
    with pytest.raises(MachineError, match=r"clock of this machine .* is before the newest session .*ahead") as error:
        run_session(history, None)
    assert error.value.hint is not None
    assert "IOWATCH_WRONG_CLOCK=ahead" in error.value.hint
    assert [row.uuid for row in history.sessions()] == ["ahead"]


def test_series_that_end_are_reported_for_five_sessions(fake: FakeReframe, history: History) -> None:
    """The case runs as before, but its results are of another case, where nothing can be compared."""

    def problems() -> tuple[str, ...]:
        return assess_session(history, run_session(history, None)).problems

    fake.achieved = {"cache": "drop"}
    assert (problems(), problems()) == ((), ())
    fake.achieved = {"cache": "keep", "hints": "x=1"}
    first = f"gnu {min(f'benchio:{case.name}' for case in load_suite('tiny'))} read bandwidth"
    text = f"6 series of cases that ran ended ({first}, …): they now produce cache keep instead of drop, hints x=1 "
    for _ in range(5):
        assert problems() == (f"{text}instead of none",)
    assert history.sessions()[0].facts.problems == (f"{text}instead of none",)
    assert problems() == ()


def test_next_step_ends_with_the_first_night_that_a_scheduler_started(
    history: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of a person within a job of the scheduler is no night of it."""
    monkeypatch.setattr(file_systems, "current_scheduler", lambda: "cron")
    by_hand = run_session(history, None)
    assert history.session(by_hand.uuid).facts.scheduler is None
    assert assess_session(history, by_hand).next_step is not None
    of_cron = run_session(history, NightlyPolicy())
    assert history.session(of_cron.uuid).facts.scheduler == "cron"
    assert assess_session(history, of_cron).next_step is None


def test_first_session_on_two_unequal_partitions_is_ok(
    history: History, fake: FakeReframe, messages: list[str]
) -> None:
    """One node of one core, four nodes of four: what does not fit is not available; names have their partition."""
    partitions = (
        ReframePartition("fat", "slurm", ("gnu",), None, limits=PartitionLimits(nodes=1, cores=1)),
        ReframePartition("compute", "slurm", ("gnu",), None, limits=PartitionLimits(nodes=4, cores=4)),
    )
    fake.site = replace(fake.site, partitions=partitions)
    done = run_session(history, NightlyPolicy())
    verdict = assess_session(history, done)
    ranks = {case.run_name: case.ranks for case in load_suite("tiny")}
    assert {count > 1 for count in ranks.values()} == {True}, "no case fits one core"
    assert (verdict.status, verdict.exit_code, verdict.missing) == ("ok", 0, ())
    assert [(entry.partition, entry.run, entry.reason) for entry in verdict.unavailable] == [
        ("fat", "3 cases", "not available on fat (1 core per node)")
    ]
    assert {headline.partition for headline in verdict.headlines} == {"compute"}
    progress = [message for message in messages if message.startswith("[")]
    assert [message.split("] ")[1].split(" ")[:2] for message in progress] == [["compute", "gnu"]] * 3
    text = verdict_markdown(verdict)
    assert "| partition | stack | run | result | best | unit | n |" in text
    assert "- fat gnu 3 cases: not available on fat (1 core per node)" in text
