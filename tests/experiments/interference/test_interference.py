"""Interference runs: real aggressor processes, the victim and its ReFrame replaced; levels, limits, faults, report."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as CliResult
from rich.console import Console

from iowatch import checks
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import UsageError
from iowatch.experiments.interference import aggressors as jobs
from iowatch.experiments.interference import jobs as aggressors
from iowatch.experiments.interference import page as page
from iowatch.experiments.interference import plan, report
from iowatch.experiments.interference import run as interference
from iowatch.experiments.interference.effects import LevelNodes, interference_effects
from iowatch.findings.series import monitored_series
from iowatch.output.dashboard.build import build_site
from iowatch.session import reframe
from iowatch.session.context import CaseSelection, SessionContext
from iowatch.session.file_systems import LockedSession
from iowatch.session.options import SessionOptions
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.statistics.interleaving import AbSchedule, StopRule
from iowatch.store import History, SeriesFilter
from tests.builders import build_output, build_planned_run, build_result, build_spooled_case
from tests.checks.orders import order_of

Cli = Callable[..., CliResult]
# Record of one start of the case `op=write` of the suite on ext4; benchio printed the mean of its ten repetitions.
CAPTURED = Path(__file__).parent / "data" / "aggressor.json"
MEAN = 893.43
START_BYTES = 10 * (64 << 20)  # of one start of it
RUN = ("interference", "--suite", "interference", "victim=op=write", "aggressor=op=write")


def turn_of(environment: dict[str, str]) -> tuple[int, int]:
    (turn,) = order_of(environment).turns
    return turn.pair, int(turn.side)


@dataclass
class FakeSlurm:
    """Three nodes that jobs have whole, each used by one job at most.

    Attributes:
        states: by name, as `sinfo` abbreviates them.
        taken: a turn, and the node that another job takes after it.
        victims: nodes that the order of each turn required, those where it ran.
        avoided: nodes that the order of each start of the aggressors avoided.
    """

    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("n1", "n2", "n3"), "idle"))
    taken: tuple[tuple[int, int], str] | None = None
    victims: list[tuple[list[str], str]] = field(default_factory=list)
    avoided: list[list[str]] = field(default_factory=list)

    def query(self, *words: str, **_: object) -> str:
        """Output of `sinfo`."""
        if "--Node" not in words:
            return f"all* {len(self.states)} 0/12/0/12\n"
        return "".join(f"all* {name} {state} 0/4/0/4 (null)\n" for name, state in self.states.items())

    def start_aggressors(self, order: checks.RunOrder, count: int) -> str:
        (run,) = order.runs or ()
        self.avoided.append([*run.avoided_nodes])
        nodes = [name for name, state in self.states.items() if state == "idle" and name not in run.avoided_nodes]
        self.states |= dict.fromkeys(nodes[:count], "alloc")
        return ",".join(nodes[:count])

    def start_victim(self, order: checks.RunOrder) -> str:
        (run,) = order.runs or ()
        idle = [name for name, state in self.states.items() if state == "idle"]
        node = (*run.required_nodes, *idle)[0]
        assert self.states[node] == "idle", "it would wait for another job"
        self.victims.append(([*run.required_nodes], node))
        return node

    def end_turn(self, turn: tuple[int, int]) -> None:
        if self.taken is not None and self.taken[0] == turn:
            self.states[self.taken[1]] = "alloc"


class Machine:
    """A stand-in for ReFrame, because nothing is measured: aggressors are processes that last until the victim ended.

    Attributes:
        turns: (pair, level) of the victims.
        kill: during this turn the first aggressor is killed.
        fails: in this turn the victim fails.
        exit_code: of every start of an aggressor.
        busy: largest number of aggressors that a victim met, by level.
        slurm: chooses the nodes of the jobs; without it they are on this one.
        launcher: with it the victim is started.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.turns = place, list[tuple[int, int]]()
        self.kill: tuple[int, int] | None = None
        self.fails: tuple[int, int] | None = None
        self.exit_code = 0
        self.busy: dict[int, set[int]] = {}
        self.jobs: Path | None = None
        self.slurm: FakeSlurm | None = None
        self.launcher = "mpirun -np 1"
        self.processes: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def started(self, words: list[str], directory: Path, environment: dict[str, str]) -> Iterator[object]:
        assert "--skip-sanity-check" in words
        order = order_of(environment)
        request = order.extensions["aggressor"]
        assert not order.is_traced
        self.jobs = directory
        ended = f"until [ -e {directory}/ended-$serial ]; do sleep 0.05; done; cp {CAPTURED} benchio.json"
        commands = [
            aggressors.AggressorCommands(
                [], self.place / "own" / str(n), {}, f"{ended}; (exit {self.exit_code})", {}, ("benchio.json",)
            )
            for n in range(request["count"])
        ]
        aggressors.write_aggressor_files(directory, commands)
        variables = dict(os.environ)
        if self.slurm is not None:
            variables["SLURM_JOB_NODELIST"] = self.slurm.start_aggressors(order, request["count"])
        process = subprocess.Popen(["sh", str(directory / aggressors.START)], env=variables, start_new_session=True)
        self.processes.append(process)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()

    def run(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        (place / "report.json").write_text("{}")
        pair, level = turn_of(environment)
        self.turns.append((pair, level))
        began = time.time()
        if self.jobs and level:
            control = (self.jobs / aggressors.CONTROL).read_text().split()
            running = [path for path in self.jobs.glob("job-*/running") if path.read_text().split()[0] == control[0]]
            self.busy.setdefault(level, set()).add(len(running))
            if (pair, level) == self.kill:
                os.kill(int((self.jobs / "job-1" / "job").read_text().split()[0]), signal.SIGKILL)
        self._leave(environment, [began, time.time()])
        if self.jobs and level:
            (self.jobs / f"ended-{control[0]}").touch()
        if self.slurm is not None:
            self.slurm.end_turn((pair, level))
        each_poll()
        return 0

    def _leave(self, environment: dict[str, str], measured: list[float]) -> None:
        """Each aggressor takes as much as the victim, and 1 % of noise per pair."""
        order, (pair, level) = order_of(environment), turn_of(environment)
        assert order.spool is not None
        samples = tuple(1000 * (1 + 0.01 * pair) / (1 + level) * factor for factor in (0.98, 1.0, 1.02))
        case = {"api": "POSIX", **order.turns[0].parameters}
        assert case["aggressors"] == level
        output = build_output(build_result(*samples, case=case), tool="benchio")
        if (pair, level) == self.fails:
            output = build_output(tool="benchio", status="failed", reason="no space left")
        facts: dict[str, Any] = {"pair": pair, "side": str(level), "measured": measured}
        facts |= {"nodes": [os.uname().nodename], "reframe": {"launcher": self.launcher}}
        if self.slurm is not None:
            facts["nodes"] = [self.slurm.start_victim(order)]
        victim = build_spooled_case(
            name=checks.turn_run_name("benchio:op=write", facts),
            stack="one",
            started_at=int(time.time()),
            output=output,
            facts=facts,
        )
        checks.spool_case(order.spool, victim, {})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> Machine:
    fake = Machine(tmp_path)
    monkeypatch.setattr(reframe, "run_reframe", fake.run)
    monkeypatch.setattr(reframe, "started_reframe", fake.started)
    monkeypatch.setattr(reframe, "load_site", lambda _: site_of(tmp_path, "local"))
    for module, name in ((jobs, "_POLL_S"), (jobs, "_ASK_S"), (aggressors, "_POLL_S")):
        monkeypatch.setattr(module, name, 0.05)
    return fake


def site_of(place: Path, scheduler: str, *access: str) -> ReframeSite:
    partition = ReframePartition("default", scheduler, ("one",), place / "scratch", access)
    return ReframeSite("local", place / "reframe.py", (partition,), {"one": frozenset({"mpi"})})


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes limits of the system."""

    def change(**values: object) -> None:
        make_context = plan.make_context

        def make_limited_context(selection: CaseSelection) -> SessionContext:
            context = make_context(selection)
            return replace(context, limits=context.limits.model_copy(update=values))

        monkeypatch.setattr(plan, "make_context", make_limited_context)

    return change


def interference_context() -> plan.InterferenceContext:
    """The case `op=write` as victim of one aggressor of the same case."""
    return plan.make_interference_context(
        SessionOptions(system="local", suite="interference"), "op=write", "op=write", (0, 1)
    )


# Levels


@pytest.mark.parametrize(
    ("text", "levels"), [("0,1,2,4", (0, 1, 2, 4)), ("4, 2", (0, 2, 4)), ("1", (0, 1)), ("8,0", (0, 8))]
)
def test_reference_is_added_to_levels(text: str, levels: tuple[int, ...]) -> None:
    assert plan.parse_levels(text) == levels


@pytest.mark.parametrize(
    ("text", "message"),
    [("0", "nothing interferes"), ("0,-1", "numbers of aggressors >= 0"), ("1,1", "named twice"), ("", "numbers of"),
     ("0,1.5", "numbers of"), ("0,two", "numbers of"), ("²", "numbers of")],
)  # fmt: skip
def test_invalid_levels_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan.parse_levels(text)


# A whole session


def test_slowdown_is_measured_with_all_aggressors_of_each_level(
    machine: Machine, cli: Cli, history: History, tmp_path: Path
) -> None:
    """The victim has 1 / (1 + level) of its bandwidth, so its slowdown is 1 + level."""
    result = cli(*RUN, "--levels", "0,1,3", "--pairs", 3, "--seed", 5, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert machine.busy == {1: {1}, 3: {3}}
    assert machine.turns[0] == (0, 0)  # one warm-up, without aggressors
    orders = [[level for pair, level in machine.turns if pair == number] for number in (1, 2)]
    assert sorted(orders[0]) == [0, 1, 3]
    assert orders[1] == orders[0][::-1]
    found = {one["level"]: one for one in document["levels"]}
    assert set(found) == {1, 3}
    for level, one in found.items():
        assert one["slowdown"] == pytest.approx(1 + level)
        assert (one["pairs"], len(one["samples"])) == (3, 9)
        assert min(one["samples"]) == pytest.approx((1 + level) / 1.02)
        # Tables 11 and 12 of [lawrence2017]: the aggregate is the sum of the mean bandwidths of all instances.
        assert one["aggressors"] == {"write": pytest.approx(level * MEAN, rel=1e-4)}
    session = document["run"]["session"]
    assert history.session(session).status == "ok"
    assert len(history.runs(session)) == 9 + 6  # victims, and the aggressors of the levels above 0
    rows = history.series(SeriesFilter(system="local"))
    assert {row.case.parameters.get("aggressors") for row in rows} == {0, 1, 3}
    assert monitored_series(rows) == []
    assert all(process.returncode is not None for process in machine.processes)
    assert not [*(machine.place / "own").glob("*")]
    check_page(history, session, tmp_path / "site")


def check_page(history: History, uuid: str, place: Path) -> None:
    """Every sample is drawn, every interval, and the session is linked."""
    text = (build_site(history, place, pages=[page.PAGE]).index.parent / "interference.html").read_text()
    pictures = re.findall(r"<svg.*?</svg>", text)
    effects = interference_effects(history, uuid).effects
    (picture,) = pictures
    assert picture.count('r="1.8"') == sum(len(one.samples) for one in effects) == 18
    assert [one.ci is not None and one.ci[0] <= 1 + one.level <= one.ci[1] for one in effects] == [True, True]
    assert "3 aggressors: ×4 (" in picture
    assert picture.count('class="interval') == 2
    assert f'href="session/{uuid}.html"' in text


# Nodes of the jobs


@pytest.fixture
def slurm(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The machine with a Slurm whose jobs have whole nodes."""
    machine.slurm = FakeSlurm()
    monkeypatch.setattr(reframe, "load_site", lambda _: site_of(machine.place, "squeue", "--exclusive"))
    monkeypatch.setattr("iowatch.site.schedulers.query_command", machine.slurm.query)
    return machine.slurm


def test_victim_stays_on_its_nodes_and_aggressors_avoid_them(
    slurm: FakeSlurm, machine: Machine, cli: Cli, history: History, tmp_path: Path
) -> None:
    """Slurm gives every job the first free node: level 0 would be on n1, the other level beside an aggressor on n2."""
    result = cli(*RUN, "--levels", "0,1", "--pairs", 2, "--seed", 0, "--json")
    assert result.exit_code == 0, result.stderr
    assert machine.turns == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 0)]
    assert slurm.victims == [([], "n1")] + [(["n1"], "n1")] * 4
    assert slurm.avoided == [["n1"]]
    document = json.loads(result.stdout)
    assert document["run"]["warnings"] == []
    assert document["levels"][0]["nodes"] == {
        "reference": ["n1"],
        "victim": ["n1"],
        "aggressors": ["n2"],
        "pairs_with_known_nodes": 2,
        "pairs_on_other_nodes": 0,
        "pairs_with_shared_nodes": 0,
    }
    page_text = (
        build_site(history, tmp_path / "site", pages=[page.PAGE]).index.parent / "interference.html"
    ).read_text()
    assert "nodes" not in re.sub(r"<[^>]*>", "", page_text.partition("Newest session")[2])


def test_new_aggressors_avoid_the_victim_too(slurm: FakeSlurm, machine: Machine, cli: Cli) -> None:
    machine.kill = (1, 1)
    result = cli(*RUN, "--levels", "0,1", "--pairs", 2, "--seed", 0, "--json")
    assert result.exit_code == 1
    assert slurm.avoided == [["n1"], ["n1"]]


def test_victim_that_cannot_be_kept_is_reported(
    slurm: FakeSlurm, machine: Machine, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which nodes a reservation has is not known: the aggressors could wait for ever if they avoided one of them."""
    site = site_of(machine.place, "squeue", "--exclusive", "--reservation=io")
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    result = cli(*RUN, "--levels", "0,1", "--pairs", 1, "--seed", 0, "--json")
    assert result.exit_code == 0, result.stderr
    assert slurm.avoided == [[]]
    assert slurm.victims == [([], "n1"), ([], "n1"), ([], "n2")]
    document = json.loads(result.stdout)
    warning = (
        "the victim is not kept on n1, and aggressors may share them: which nodes of partition 'default' its options "
        "allow is not known: --exclusive --reservation=io"
    )
    assert document["run"]["warnings"] == [warning]
    assert f"warning: {warning}: part of a slowdown may not be of the file system" in result.stderr
    nodes = document["levels"][0]["nodes"]
    assert (nodes["reference"], nodes["victim"], nodes["pairs_on_other_nodes"]) == (["n1"], ["n2"], 1)


def test_victim_moves_when_another_job_has_its_node_and_the_result_says_so(
    slurm: FakeSlurm, machine: Machine, cli: Cli, history: History, tmp_path: Path
) -> None:
    """The second pair is on n3, as the reference of the first one was on n1 and its other level on n3."""
    slurm.taken = ((1, 0), "n1")
    words = (*RUN, "--levels", "0,1", "--pairs", 2, "--seed", 0)
    result = cli(*words, "--json")
    assert result.exit_code == 0, result.stderr
    assert slurm.victims == [([], "n1"), (["n1"], "n1"), ([], "n3"), (["n3"], "n3"), (["n3"], "n3")]
    assert "[pair 1] level 1: n1 not free, Slurm chooses other nodes" in result.stderr
    document = json.loads(result.stdout)
    nodes = document["levels"][0]["nodes"]
    assert (nodes["reference"], nodes["victim"], nodes["aggressors"]) == (["n1", "n3"], ["n3"], ["n2"])
    assert (nodes["pairs_with_known_nodes"], nodes["pairs_on_other_nodes"]) == (2, 1)
    remark = "level 1: in 1 of 2 pairs the reference was measured on other nodes than the victim (n1, n3; n3)"
    effects = interference_effects(history, document["run"]["session"])
    assert report.node_remarks(effects) == [remark]
    console = Console(file=io.StringIO(), width=200)
    report.print_effects(effects, "benchio:op=write", console)
    assert remark in console.file.getvalue()  # type: ignore[attr-defined]
    assert (
        remark
        in (build_site(history, tmp_path / "site", pages=[page.PAGE]).index.parent / "interference.html").read_text()
    )


@pytest.mark.parametrize(
    ("launcher", "remarks"),
    [
        ("mpirun -np 1", ["level 1: in 1 of 1 pair aggressors ran on nodes of the victim"]),
        # ReFrame only knows the node of the session, which is not that on which Flux starts the program.
        ("flux run -n 1", ["level 1: in 1 of 1 pair the nodes of the victim or of its reference are not known"]),
    ],
)
def test_nodes_without_a_batch_system_are_known_but_for_flux(
    launcher: str, remarks: list[str], machine: Machine, cli: Cli, history: History
) -> None:
    machine.launcher = launcher
    result = cli(*RUN, "--levels", "0,1", "--pairs", 1, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["run"]["warnings"] == []
    assert report.node_remarks(interference_effects(history, document["run"]["session"])) == remarks


def test_aggressor_on_the_node_of_the_victim_is_reported() -> None:
    nodes = LevelNodes(("n1",), ("n1",), ("n1", "n2"), 3, 2, 0, 3)
    assert [*report._node_remarks_of(2, nodes)] == [
        "level 2: in 1 of 3 pairs the nodes of the victim or of its reference are not known",
        "level 2: in 3 of 3 pairs aggressors ran on nodes of the victim",
    ]


# Faults while it runs


def test_level_with_a_killed_aggressor_is_failed_and_the_next_ones_are_measured(
    machine: Machine, cli: Cli, history: History
) -> None:
    machine.kill, machine.fails = (1, 2), (2, 2)
    result = cli(*RUN, "--levels", "2", "--pairs", 3, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["run"]["failed"] == ["benchio:op=write#1L2", "benchio:op=write#2L2"]
    killed, failed = [run.reason or "" for run in history.runs(document["run"]["session"]) if run.status != "ok"]
    assert re.fullmatch(r"aggressor 1: its process \d+ was ended", killed)
    assert failed == "no space left"  # the victim's own reason: its aggressors stay
    assert history.session(document["run"]["session"]).status == "incomplete"
    assert {(one["level"], one["pairs"]) for one in document["levels"]} == {(2, 1)}
    assert len(machine.processes) == 2  # all aggressors were started anew


def test_aggressors_that_always_fail_end_the_session(machine: Machine, cli: Cli, history: History) -> None:
    machine.exit_code = 7
    result = cli(*RUN, "--levels", "1", "--pairs", 9)
    assert result.exit_code == 3
    assert "failed in 3 turns in a row: aggressor 1: its start 1 ended with exit code 7" in result.stderr
    (session,) = history.sessions("local")
    assert session.status == "incomplete"
    assert [run.status for run in history.runs(session.uuid) if "L1" in run.name] == ["failed"] * 3


def test_byte_budget_counts_all_jobs(machine: Machine, cli: Cli, limits: Callable[..., None]) -> None:
    """The victim writes as much in one start as an aggressor."""
    limits(total_bytes=6 << 30)
    result = cli(*RUN, "--levels", "2", "--budget", 5, "--json")
    assert result.exit_code == 0, result.stderr
    run = json.loads(result.stdout)["run"]
    assert (run["stopped"], run["pairs"] >= 1) == ("bytes", True)
    assert machine.jobs is not None
    started = sum((machine.jobs / f"job-{n}" / "starts").read_text().count("\n") for n in (1, 2))
    assert (len(machine.turns) + started) * START_BYTES <= 6 << 30


def test_starts_are_limited_by_what_is_left_of_the_byte_budget(
    machine: Machine, limits: Callable[..., None], history: History, tmp_path: Path
) -> None:
    """Of 17 starts 2 are written, aggressors made 4, and the victim needs one: 10 are left."""
    limits(total_bytes=17 * START_BYTES)
    context = interference_context()
    session = LockedSession(context.session, {}, {})
    schedule = AbSchedule(StopRule(pairs=1), 0, sides=["0", "1"])
    runner = interference._InterferenceRunner(history, session, context, context.plan(), schedule)
    runner.aggressors = jobs.Aggressors(context.session, runner.plan.aggressor, 1, tmp_path, 3600)
    (tmp_path / "job-1").mkdir()
    (tmp_path / "job-1" / "starts").write_text("".join(f"0 {number} 0.0 1.0 0\n" for number in range(4)))
    runner._written = 2 * START_BYTES
    assert [runner._starts_left(level) for level in (1, 2, 5, 11)] == [10, 5, 2, 0]
    assert runner._starts_left(0) > 1000
    runner._written = 13 * START_BYTES
    assert [runner._starts_left(level) for level in (0, 1)] == [0, -1]


# Refused before anything is written


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("victim=op=both", "aggressor=op=append"), "no case 'op=append'"),
        (("victim=op=both", "agressor=op=write"), "expected victim=CASE aggressor=CASE"),
        (("victim=op=both", "victim=op=write"), "expected victim=CASE aggressor=CASE"),
        (("victim=op=both", "aggressor=op=write", "--levels", "0"), "nothing interferes"),
        (("victim=op=both", "aggressor=op=write", "--levels", "0,16"), "17 processes on this node; the limit of"),
        (("victim=op=both", "aggressor=op=write", "--pairs", "999"), "the byte budget of 'local' is 256 GiB"),
        (("victim=op=both", "aggressor=op=write", "--stack", "absent"), "no stack 'absent'"),
        (("victim=op=both", "aggressor=op=write", "--night"), "No such option"),
        (("victim=op=both", "aggressor=op=write", "--file-system", "all", "--file-system", "x"), "no file system"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused_before_anything_is_written(
    words: tuple[str, ...], message: str, machine: Machine, cli: Cli, var: Path
) -> None:
    result = cli("interference", "--suite", "interference", *words)
    assert result.exit_code == 2, result.stderr
    assert message in " ".join(result.stderr.split())
    assert not machine.turns
    assert not [*var.glob("runs/*")]
    assert not (var / "iowatch.db").exists()


def test_system_without_byte_budget_is_refused(machine: Machine, cli: Cli, limits: Callable[..., None]) -> None:
    limits(total_bytes=None)
    result = cli(*RUN)
    assert result.exit_code == 2
    assert "nothing limits what the aggressors write: 'local' has no limits.total_bytes" in result.stderr


def test_start_inside_a_job_and_other_schedulers_are_refused(
    machine: Machine, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reframe, "load_site", lambda _: site_of(machine.place, "pbspro"))
    assert "needs Slurm or no scheduler; partition 'default' has pbspro" in cli(*RUN).stderr
    monkeypatch.setattr(plan, "current_allocation", lambda: object())
    assert "start it outside of a job" in cli(*RUN).stderr


@pytest.mark.parametrize(
    ("access", "rows", "possible"),
    [
        ((), "node* 1 0/16/0/16", 15),  # one processor is the victim's
        (("--exclusive", "--partition=a"), "a 3 0/96/0/96", 2),  # one of three nodes is the victim's
        (("--exclusive", "--partition=a"), "a 1 0/32/0/32\na 2 64/0/0/64", 2),
        (("--partition=a",), "", None),
    ],
)
def test_more_jobs_than_slurm_can_run_at_once_are_refused(
    access: tuple[str, ...],
    rows: str,
    possible: int | None,
    machine: Machine,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reframe, "load_site", lambda _: site_of(machine.place, "slurm", *access))
    monkeypatch.setattr("iowatch.site.schedulers.query_command", lambda *_, **__: rows)
    size = aggressors.JobSize(ranks=1, nodes=1)
    found = aggressors.most_aggressors("a" if access else None, size, size, "--exclusive" in access)
    assert found == possible
    if possible is not None:
        stderr = cli(*RUN, "--levels", f"0,{possible + 1}").stderr
        assert f"can run {possible} aggressors at the same time" in " ".join(stderr.split())


def test_case_name_of_several_benchmarks_must_be_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    one = load_suite("interference")[0]
    both = [one, SuiteCase(one.suite, "ior", one.name, IOR.read_options({}), "none", 60)]
    with pytest.raises(UsageError, match="several cases 'op=both'"):
        plan._find_case(both, "interference", "op=both")
    assert plan._find_case(both, "interference", "ior:op=both").benchmark == "ior"


# The jobs


def test_covered_share_counts_only_what_is_inside() -> None:
    starts = [
        aggressors.AggressorStart(1, n, begin, end, 0) for n, (begin, end) in enumerate([(0, 4), (5, 9), (20, 30)])
    ]
    assert aggressors.covered_share(starts, 2.0, 10.0) == pytest.approx(6 / 8)
    assert aggressors.covered_share([], 2.0, 10.0) == 0


def test_level_needs_each_aggressor_during_nine_tenths_of_the_measurement(machine: Machine, tmp_path: Path) -> None:
    load = jobs.Aggressors(interference_context().session, build_planned_run(), 2, tmp_path, 3600)
    for number, end in ((1, 9.5), (2, 8.9)):
        (tmp_path / f"job-{number}").mkdir()
        rows = ["0 1 0.0 4.0 0", f"0 2 4.0 {end} 0", "7 3 0.0 10.0 0", "0 4 8.0 1"]  # another turn; half a line
        (tmp_path / f"job-{number}" / "starts").write_text("\n".join(rows))
    assert [[one.number for one in each] for each in load.check(1, 0.0, 10.0)] == [[1, 2]]
    with pytest.raises(jobs.AggressorError, match="aggressor 2 ran in 89 % of the measurement, expected 90 %"):
        load.check(2, 0.0, 10.0)


def test_aggressor_ends_when_its_session_shows_no_sign(tmp_path: Path) -> None:
    command = aggressors.AggressorCommands([], tmp_path / "own" / "1", {"A": "b c"}, 'echo "$A"; exit 1', {}, ())
    aggressors.write_aggressor_files(tmp_path, [command])
    control = tmp_path / aggressors.CONTROL
    control.write_text("1 1 5\n")
    old = time.time() - 60 * (aggressors._SILENT_MINUTES + 2)
    os.utime(control, (old, old))
    subprocess.run(["sh", str(tmp_path / aggressors.START)], check=True, timeout=30, stderr=subprocess.DEVNULL)
    job = aggressors.AggressorJob(tmp_path / "job-1")
    assert job.started
    assert (job.running, job.starts()) == (0, [])
    assert not [*(tmp_path / "own").glob("*")]
