"""`iowatch gate` with ReFrame replaced: decisions, exit codes, reports, and what is refused."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import Result as CliResult
from jsonschema import Draft202012Validator
from junitparser import JUnitXml

from iowatch import checks
from iowatch.benchmarks.suites import load_suite
from iowatch.core import Output, UsageError
from iowatch.experiments.common import pairs
from iowatch.experiments.common.builds import Build, recorded_stack
from iowatch.experiments.common.counters import CounterReadings
from iowatch.experiments.gate import run as gate
from iowatch.experiments.reproduce import run as reproduce
from iowatch.session import reframe
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site import StackPart
from iowatch.store import History
from tests.builders import build_output, build_result, build_session, build_spooled_case, build_stack
from tests.checks.orders import order_of

Cli = Callable[..., CliResult]
FEATURES = frozenset({"mpi", "hdf5", "netcdf4"})
STACKS = {
    name: build_stack(StackPart("hdf5", version), name=name, kind="modules")
    for name, version in (("old", "1.10.8"), ("new", "1.14.5"))
}
WORDS = ("gate", "--base", "old", "--head", "prefix:/opt/new", "--seed", 1)


class FakeClock:
    """A clock that passes only when something executes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def execute(self, seconds: float, each_poll: Callable[[], None]) -> None:
        """Pass this time, with a poll per second, as while ReFrame executes something."""
        for _ in range(math.ceil(seconds)):
            self.now_s += 1
            each_poll()


class FakeReframe:
    """A stand-in for the program ReFrame, because tests measure nothing.

    Writes each selected run; the stack `new` has `gain` of the performance in cases of HDF5.

    Attributes:
        noise: of a run; 0.01 decides with the fewest pairs.
        failing: stacks on which cases of netCDF fail.
        failing_pairs: numbers of the pairs in which they do; None: in all of them, and when they are counted.
        failing_in_turn: whether they fail on `old` in the even pairs, and on `new` in the odd ones.
        hangs: whether such a run leaves nothing in the history, as one that its limit ended.
        writes: of a counted run, by stack.
        starts: runs of each batch of pairs.
        counted: stacks of each start that counted.
        clock: with it, a turn and a counted run take `turn_s` and `counter_s` seconds.
        stalls: whether half of the runs of HDF5 on `new` take five times as long.
        collective: collective writes of a counted run by Darshan, by stack; None: its log is damaged.
    """

    def __init__(self) -> None:
        self.gain, self.noise, self.failing = 1.0, 0.01, set[str]()
        self.failing_pairs: set[int] | None = None
        self.hangs, self.failing_in_turn = False, False
        self.writes = {"old": 24, "new": 24}
        self.collective: dict[str, int | None] = {"old": 8, "new": 8}
        self.starts: list[set[str]] = []
        self.counted: list[set[str]] = []
        self.clock: FakeClock | None = None
        self.turn_s, self.counter_s, self.stalls = 0.0, 0.0, False

    def follow(self, _words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        (place / "report.json").write_text("{}")
        order = order_of(environment)
        selected, spool = [run.key for run in order.runs or ()], order.spool
        assert spool is not None
        if "counter" in order.extensions:
            self.counted.append({stack for _, stack, _ in selected})
            for _, stack, run in selected:
                if self.clock:
                    self.clock.execute(self.counter_s, each_poll)
                traced = order.is_traced and self.collective[stack]
                operations = {"MPIIO_COLL_WRITES": traced} if traced else None
                counts = CounterReadings({"pwrite64": self.writes[stack]}, {}, None, True, "", operations)
                output = self._output(run, stack, [0])
                # A run that fails has counts, too: of what it did until then.
                counted = replace(output, results=(), facts={"counts": counts.to_json()})
                self._spool(spool, run, stack, {}, counted)
        else:
            if order.turns[0].pair:
                self.starts.append({run for _, _, run in selected})
            for number, turn in enumerate(order.turns):
                if self.clock:
                    self.clock.execute(self.turn_s, each_poll)
                for run in sorted({run for _, stack, run in selected if stack == turn.stack}):
                    output = self._output(run, turn.stack, [turn.pair, number])
                    if output.status == "ok" or not self.hangs:
                        self._spool(spool, run, turn.stack, turn.facts, output)
        each_poll()
        return 0

    def _output(self, run: str, stack: str, seed: list[int]) -> Output:
        fails_now = self.failing_pairs is None or seed[0] in self.failing_pairs
        fails_in_turn = self.failing_in_turn and (seed[0] % 2 == 0) == (stack == "old")
        if "netcdf4" in run and ((stack in self.failing and fails_now) or fails_in_turn):
            return build_output(tool="benchio", status="failed", reason="NC_EHDFERR")
        gain = self.gain if stack == "new" and "hdf5" in run else 1.0
        if self.stalls and stack == "new" and "hdf5" in run and np.random.default_rng([*seed, 7]).random() < 0.5:
            gain /= 5
        level = 1000 * gain * float(np.exp(np.random.default_rng([*seed, len(run)]).normal(0, self.noise)))
        case = {"api": run.partition("api=")[2], "ab_run": True}
        return build_output(build_result(*(level,) * 3, case=case), tool="benchio")

    def _spool(self, spool: Path, run: str, stack: str, facts: dict[str, object], output: Output) -> None:
        name = checks.turn_run_name(run, facts) if facts else run
        case = build_spooled_case(
            name=name, stack=stack, stack_document=STACKS[stack].to_json(), output=output, facts=facts
        )
        checks.spool_case(spool, case, {})


@pytest.fixture
def reframe_(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> FakeReframe:
    """ReFrame and builds replaced: `old` is a stack of the system, `new` a prefix with HDF5 1.14."""
    fake = FakeReframe()
    site = ReframeSite(
        "local", tmp_path / "reframe.py", (ReframePartition("default", "local", ("old", "new"), None),),
        {"old": FEATURES | {"pnetcdf"}, "new": FEATURES},
    )  # fmt: skip
    builds = [Build("old", STACKS["old"], is_made=False), Build("prefix:/opt/new", STACKS["new"], is_made=True)]
    monkeypatch.setattr(gate, "find_build", lambda _, text: next(build for build in builds if build.text == text))
    monkeypatch.setattr(reproduce, "recorded_stack", lambda _, stack: stack)
    monkeypatch.setattr(reframe, "run_reframe", fake.follow)
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    monkeypatch.setattr(pairs, "_site_with", lambda site, *_: site)
    (tmp_path / "suites" / "benchio").mkdir(parents=True)
    (tmp_path / "suites" / "benchio" / "gate.yaml").write_text(
        "format: 1\nsummary: three cases\nreference: none\ntime_limit: 60\ndefaults: {op: write}\n"
        "matrix:\n  - {api: [hdf5, netcdf4, pnetcdf], file: shared}\n"
    )
    (tmp_path / "site.yaml").write_text("title: tests\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    return fake


def test_equal_builds_pass_with_the_fewest_pairs(reframe_: FakeReframe, cli: Cli, history: History) -> None:
    """Six pairs (tests/statistics/test_gate.py has the arithmetic); a case that only one build can run is named."""
    found = cli(*WORDS, "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["decision"]) == (0, "pass")
    assert [one["pairs"] for one in document["results"]] == [6, 6]
    assert (
        document["summary"]
        == "new is not slower than old by 10 % or more in any of 2 measurements; 1 did not take part (below)."
    )
    assert document["left_out"] == [{"name": "benchio:api=pnetcdf", "reason": "new does not provide pnetcdf"}]
    assert document["libraries"] == ["hdf5 1.10.8 -> 1.14.5"]
    assert document["counts"] == []
    assert history.session(document["session"]).is_interleaved


def test_slower_build_is_stopped_and_only_open_cases_are_measured(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.gain, reframe_.writes["new"] = 0.85, 31
    found = cli(*WORDS)
    assert found.exit_code == 1
    first, *_ = found.stdout.splitlines()
    assert first.startswith("new is slower than old: benchio write hdf5 by 1")
    assert reframe_.starts[0] == {"benchio:api=hdf5", "benchio:api=netcdf4"}
    assert reframe_.starts[-1] == {"benchio:api=hdf5"}, "netCDF is decided after six pairs"
    assert "pwrite64 calls 24 -> 31 (+29.2 %)" in found.stdout


def test_base_is_counted_once_and_again_to_confirm_a_difference(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli(*WORDS)
    assert "counts of old: from session" not in first.stderr
    again = cli(*WORDS)
    assert "counts of old: from session" in again.stderr
    assert reframe_.counted == [{"old", "new"}, {"new"}]
    reframe_.writes["new"] = 31
    assert "pwrite64 calls 24 -> 31" in cli(*WORDS).stdout
    assert reframe_.counted[2:] == [{"new"}, {"old", "new"}]
    monkeypatch.setattr(gate.platform, "release", lambda: "another kernel")
    cli(*WORDS)
    assert reframe_.counted[4] == {"old", "new"}


def test_counts_of_a_failed_run_are_not_used_again(reframe_: FakeReframe, cli: Cli) -> None:
    """The next gate counts the base again: what a run did until it failed says nothing of a whole run."""
    reframe_.failing = {"old"}
    cli(*WORDS)
    reframe_.failing = set()
    again = cli(*WORDS)
    assert "counts of old: from session" not in again.stderr
    assert reframe_.counted[1] == {"old", "new"}


def test_calls_of_mpi_are_compared_where_both_builds_have_darshan(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that one build lacks, or that is damaged, is named and is not a difference to zero."""
    reframe_.collective["new"] = 31
    assert "no calls of MPI-IO and HDF5: not both builds have Darshan" in cli(*WORDS).stdout
    site = reframe.load_site("local")
    traced = replace(site, features={name: found | {"darshan"} for name, found in site.features.items()})
    monkeypatch.setattr(reframe, "load_site", lambda _: traced)
    found = cli(*WORDS).stdout
    assert "MPIIO_COLL_WRITES 8 -> 31 (+287.5 %)" in found
    assert "no calls of MPI-IO" not in found
    reframe_.collective["new"] = None
    damaged = cli(*WORDS).stdout
    assert "no calls of MPI-IO and HDF5: a Darshan log is not complete" in damaged
    assert "MPIIO_COLL_WRITES" not in damaged


def test_case_that_fails_on_the_head_only_is_a_regression(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    reframe_.failing = {"new"}
    found = cli(*WORDS, "--no-counts", "--junit", tmp_path / "junit.xml")
    assert found.exit_code == 1
    assert found.stdout.startswith("new does not work where old does: benchio:api=netcdf4 fails.")
    assert "NC_EHDFERR" in found.stdout
    (suite,) = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert (suite.failures, suite.tests) == (1, 3)


@pytest.mark.parametrize("hangs", [False, True])
def test_head_that_fails_in_one_run_does_not_pass(
    hangs: bool, reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the third of many pairs, all others of which are equal; the base never fails."""
    reframe_.failing, reframe_.failing_pairs, reframe_.hangs = {"new"}, {3}, hangs
    reframe_.clock, reframe_.turn_s = FakeClock(monkeypatch), 1
    done = cli(*WORDS, "--no-counts", "--minutes", 2, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["decision"], document["failed"]) == (4, "undecided", [])
    netcdf = next(result for result in document["results"] if "netcdf4" in result["run"])
    assert (netcdf["decision"], netcdf["failed_pairs"]) == ("open", {"base": 0, "head": 1})
    assert document["summary"].endswith("the head fails in some runs of benchio write netcdf4.")


def test_case_without_a_pair_of_both_builds_is_named(reframe_: FakeReframe, cli: Cli) -> None:
    """Each build works in some pair, but never both in one: neither has failed, and nothing is compared."""
    reframe_.failing_in_turn = True
    document = json.loads(cli(*WORDS, "--no-counts", "--json").stdout)
    assert document["failed"] == []
    assert {"name": "benchio:api=netcdf4", "reason": "no pair has results of both builds"} in document["left_out"]


def test_base_that_fails_in_one_run_is_reported_and_passes(reframe_: FakeReframe, cli: Cli) -> None:
    """Six pairs are measured beside the one in which the base failed."""
    reframe_.failing_pairs = {3}
    reframe_.failing = {"old"}
    done = cli(*WORDS, "--no-counts", "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["decision"]) == (0, "pass")
    netcdf = next(result for result in document["results"] if "netcdf4" in result["run"])
    assert (netcdf["pairs"], netcdf["failed_pairs"]) == (6, {"base": 1, "head": 0})


def test_case_that_fails_on_the_base_decides_nothing(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.failing = {"old", "new"}
    assert "not counted, because the run failed: benchio:api=netcdf4" in cli(*WORDS).stdout
    found = cli(*WORDS, "--no-counts", "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, len(document["results"])) == (0, 1)
    assert {"name": "benchio:api=netcdf4", "reason": "NC_EHDFERR"} in document["left_out"]


@pytest.mark.parametrize(("options", "code"), [((), 4), (("--undecided", "pass"), 0), (("--undecided", "fail"), 1)])
def test_time_that_does_not_suffice_is_undecided(
    options: tuple[str, ...], code: int, reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the gate passes a minute each time that it asks: none of 40 % noise is decided in four."""
    reframe_.noise = 0.4
    minutes = iter(range(0, 60_000, 60))
    monkeypatch.setattr(gate.time, "monotonic", lambda: next(minutes))
    monkeypatch.setattr(gate, "_FIRST_PAIRS", 2)
    found = cli(*WORDS, "--no-counts", "--minutes", 0.001, *options)
    assert found.exit_code == code


def test_reports_for_people_and_programs(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    """The document has the published schema, and the comment begins with the sentence of the text."""
    reframe_.gain = 0.8
    files = {name: tmp_path / name for name in ("gate.md", "gate.json", "gate.xml", "badge.svg")}
    cli(
        *WORDS, "--markdown", files["gate.md"], "--json-file", files["gate.json"], "--junit", files["gate.xml"],
        "--badge", files["badge.svg"],
    )  # fmt: skip
    document, schema = json.loads(files["gate.json"].read_text()), json.loads(cli("gate", "--schema").stdout)
    Draft202012Validator(schema).validate(document)
    assert not Draft202012Validator(schema).is_valid({**document, "decision": "perhaps"})
    text = files["gate.md"].read_text()
    assert text.startswith(f"**{document['summary']}**")
    assert "| measured | old | new |" in text
    assert "iowatch gate --base old --head prefix:/opt/new" in text
    for picture in (tmp_path / "gate.svg", files["badge.svg"]):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert "regression" in files["badge.svg"].read_text()


def test_builds_that_cannot_be_used_are_refused(var: Path, cli: Cli, tmp_path: Path) -> None:
    for text, message in (
        ("spack:", "names nothing"),
        ("perfix:/opt/x", "'perfix:' is unknown"),
        ("prefix:/no/such", "is not a directory"),
        ("prefix:relative", "is not an absolute path"),
        (f"prefix:{tmp_path}", "no directory 'lib'"),
        ("prefix:", "names nothing"),
        ("nonsense", "no stack 'nonsense'"),
        (f"git:{tmp_path}", "names no directory and revision"),
        (f"git:{tmp_path}@v1", "not a git repository"),
    ):
        found = cli("gate", "--base", text, "--head", "system-openmpi")
        assert found.exit_code == 2, text
        assert message in found.stderr, text


@pytest.mark.parametrize(("planted", "recorded"), [(0.8, -0.2), (1.25, 0.25)])
def test_change_of_a_session_is_reproduced_or_not(
    planted: float, recorded: float, reframe_: FakeReframe, cli: Cli, history: History
) -> None:
    """A gain as well as a loss; the same session when the planted change is gone, then one of equal builds."""
    reframe_.gain = planted
    cli(*WORDS, "--no-counts", "--seed", 3)
    session = history.sessions()[0].uuid
    found = cli("reproduce", session[:8], "--seed", 4, "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["answer"], document["run"]) == (0, "reproduced", "benchio:api=hdf5")
    assert document["recorded_change"] == pytest.approx(recorded, abs=0.02)
    assert document["change"] == pytest.approx(recorded, abs=0.02)
    reframe_.gain = 1.0
    gone = cli("reproduce", session[:8], "--seed", 5)
    assert gone.exit_code == 1
    assert gone.stdout.startswith("not reproduced: benchio:api=hdf5")
    equal = cli("reproduce", history.sessions()[0].uuid)
    assert equal.exit_code == 2
    assert "has no difference to reproduce" in equal.stderr


def test_recorded_stack_that_is_gone_is_refused(tmp_path: Path) -> None:
    """It names what is missing; with all files it is the stack under a name of its own."""
    library = tmp_path / "libhdf5.so"
    stack = build_stack(StackPart("hdf5", "1.10.8", files=(str(library),)), name="old")
    with pytest.raises(UsageError, match=r"no longer on this machine: .*/libhdf5\.so is missing"):
        recorded_stack("local", stack)
    library.touch()
    found = recorded_stack("local", stack)
    assert found.name.startswith("recorded-old-")
    assert found.parts == stack.parts


def test_what_cannot_be_reproduced_is_refused(cli: Cli, history: History) -> None:
    history.begin_session(build_session("a" * 36, suite="smoke", started_at=1_700_000_000))
    for name, message in (("nonsense", "no finding"), ("aaaa", "it has no pairs of two stacks")):
        found = cli("reproduce", name)
        assert found.exit_code == 2
        assert message in found.stderr


def test_wrong_case_is_refused_before_builds_with_near_names_only(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Build:
        raise AssertionError("a build was begun")

    monkeypatch.setattr(gate, "find_build", refuse)
    done = cli(*WORDS, "--case", "benchio:api=hdf6")
    assert done.exit_code == 2
    assert "suite 'gate' has no case 'benchio:api=hdf6'" in done.stderr
    assert "Did you mean benchio:api=hdf5?" in done.stderr
    assert "pnetcdf" not in done.stderr


@pytest.mark.parametrize("name", ["benchio:api=hdf5", "api=hdf5"])
def test_a_case_has_the_same_name_in_gate_and_compare(
    name: str, reframe_: FakeReframe, cli: Cli, history: History
) -> None:
    gate_document = json.loads(cli(*WORDS, "--no-counts", "--case", name, "--json").stdout)
    assert [result["run"] for result in gate_document["results"]] == ["benchio:api=hdf5"]
    cli(*WORDS, "--no-counts")
    session = history.sessions()[0].uuid
    sides = [f"session:{session},side={side}" for side in ("left", "right")]
    everything = json.loads(cli("compare", *sides, "--json").stdout)
    compared = json.loads(cli("compare", *sides, "--case", name, "--json").stdout)
    assert sorted(pair["case"]["api"] for pair in everything["pairs"]) == ["hdf5", "netcdf4"]
    assert [pair["case"]["api"] for pair in compared["pairs"]] == ["hdf5"]
    wrong = cli("compare", *sides, "--case", "api=hdf6")
    assert wrong.exit_code == 2
    assert "Did you mean benchio:api=hdf5?" in wrong.stderr


def test_quick_measures_its_own_suite_in_two_minutes(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    suites = tmp_path / "suites" / "benchio"
    (suites / "gate-quick.yaml").write_text((suites / "gate.yaml").read_text().replace("netcdf4, pnetcdf", "pnetcdf"))
    document = json.loads(cli(*WORDS, "--quick", "--json").stdout)
    assert (document["suite"], [result["run"] for result in document["results"]]) == (
        "gate-quick",
        ["benchio:api=hdf5"],
    )
    assert "--minutes 2" in cli(*WORDS, "--quick").stdout
    conflict = cli(*WORDS, "--quick", "--suite", "gate")
    assert conflict.exit_code == 2
    assert "--quick measures suite gate-quick" in conflict.stderr


def test_quick_cases_are_cases_of_the_suite_gate() -> None:
    """Under the same names, so that both have one history."""
    names = {suite: {case.run_name for case in load_suite(suite)} for suite in ("gate", "gate-quick")}
    assert len(names["gate-quick"]) == 5
    assert names["gate-quick"] < names["gate"]


def test_counts_come_after_the_pairs_and_only_in_the_time_that_is_left(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter would take longer than the budget; the decision is that of the pairs."""
    clock = FakeClock(monkeypatch)
    reframe_.clock, reframe_.counter_s = clock, 10_000
    done = cli(*WORDS, "--minutes", 6, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["decision"]) == (0, "pass")
    assert document["seconds"] <= 360
    assert document["counts_refused"].startswith("not counted, because the time was over: benchio:api=hdf5")
    assert reframe_.starts, "pairs were measured"
    assert "counts: at most" in done.stderr


@pytest.mark.parametrize("turn_s", [1, 10, 40, 90, 500])
@pytest.mark.parametrize("minutes", [1, 2, 6, 15])
def test_budget_covers_a_slow_benchmark(
    turn_s: float, minutes: float, reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 budgets: a turn of all cases takes from a second to longer than the budget."""
    reframe_.clock, reframe_.turn_s, reframe_.counter_s = FakeClock(monkeypatch), turn_s, 3 * turn_s
    done = cli(*WORDS, "--minutes", minutes, "--json")
    document = json.loads(done.stdout)
    assert document["seconds"] <= 60 * minutes
    assert document["decision"] in ("pass", "undecided")
    assert done.exit_code in (0, 4)


def test_a_head_that_the_end_of_the_time_cut_off_did_not_fail(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base was measured, the head not yet: no regression."""
    reframe_.clock, reframe_.turn_s = FakeClock(monkeypatch), 13
    done = cli(*WORDS, "--minutes", 1, "--no-counts", "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["decision"], document["failed"]) == (4, "undecided", [])


def test_builds_that_take_all_time_are_ended(reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "find_build", lambda *_: time.sleep(30))
    started = time.monotonic()
    done = cli(*WORDS, "--minutes", 0.01)
    assert time.monotonic() - started < 20
    assert done.exit_code == 3
    assert "the builds were not ready after 0.01 minutes" in done.stderr


def test_erratic_head_is_a_regression_and_says_so(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    """Half of the runs of the head take five times as long, in the cases of HDF5."""
    reframe_.stalls = True
    done = cli(*WORDS, "--no-counts", "--junit", tmp_path / "gate.xml", "--json")
    document = json.loads(done.stdout)
    (hdf5,) = [result for result in document["results"] if "hdf5" in result["run"]]
    assert (done.exit_code, document["decision"]) == (1, "regression")
    assert hdf5["decision"] == "erratic"
    assert hdf5["slow_pairs"]["head"] > 3 > hdf5["slow_pairs"]["base"]
    assert "far slower in" in (tmp_path / "gate.xml").read_text()


def test_what_did_not_take_part_is_reported_first(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    done = cli(*WORDS, "--no-counts", "--markdown", tmp_path / "gate.md")
    lines = done.stdout.splitlines()
    assert lines[1] == "Did not take part:"
    assert lines[2] == "  benchio:api=pnetcdf: new does not provide pnetcdf"
    assert (tmp_path / "gate.md").read_text().split("\n\n")[1] == "Did not take part:"
