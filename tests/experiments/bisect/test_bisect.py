"""`iowatch bisect` with ReFrame replaced: what is measured, stored, repeated after an interruption, and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import Result as CliResult

from iowatch import checks
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import Scalar
from iowatch.demo.scenarios import Scenario, SimulatedSeries, generate_sessions
from iowatch.experiments.bisect.run import group_parts
from iowatch.experiments.common import commits as commit_builds
from iowatch.experiments.common import hybrids
from iowatch.findings import update_findings
from iowatch.session import ab_run, plan, reframe
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site import Stack, StackPart
from iowatch.site.stack import probe as stack_probe
from iowatch.store import History, StackRecord
from tests.builders import build_result, build_spooled_case
from tests.checks.orders import order_of
from tests.experiments.bisect.test_commits import Repository

Cli = Callable[..., CliResult]
FEATURES = ("benchio", "h5bench", "hdf5", "ior", "mdtest", "netcdf4", "openmpi", "pnetcdf")
SITE = {
    "systems": [
        {"name": "local", "hostnames": [".*"], "partitions": [{"name": "default", "environs": ["good", "bad"]}]}
    ],
    "environments": [{"name": "good", "features": ["mpi"]}, {"name": "bad", "features": ["mpi"]}],
}
# With this error rate a test takes five pairs if there is hardly any noise.
WORDS = ("bisect", "good", "bad", "--benchmark", "ior", "--error-rate", "90%", "--seed", 1)


class FakeReframe:
    """A stand-in for the program ReFrame, because tests measure nothing.

    Writes one case of `ior` per execution; `slow` modules cost 20 %, together with all others of the set.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.case = ""
        self.slow: set[str] = {"io/2"}
        self.turns: list[str] = []
        self.unusable: str | None = None
        self.interrupted_at: int | None = None

    def follow(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        (place / "report.json").write_text("{}")
        order = order_of(environment)
        assert order.spool is not None
        for turn in order.turns:
            self.turns.append(turn.stack)
            if len(self.turns) == self.interrupted_at:
                raise KeyboardInterrupt
            modules = self.modules(turn.stack)
            if self.unusable not in modules or turn.stack == "bad":
                self._leave(order.spool, turn.facts, turn.stack, modules)
            each_poll()
        return 0

    def modules(self, stack: str) -> list[str]:
        folder = self.root / stack if stack in ("good", "bad") else self.root / "var" / "stacks" / "local" / stack
        return list(yaml.safe_load((folder / "modules.yaml").read_text())["modules"])

    def _leave(self, session: Path, facts: dict[str, object], stack: str, modules: list[str]) -> None:
        level = 800 if self.slow and self.slow <= set(modules) else 1000
        rng = np.random.default_rng(len(self.turns))
        best = level * float(np.exp(rng.normal(0, 0.004)))
        # Others slow most repetitions down: only the best ones tell the stacks apart.
        samples = (best, *(best * rng.uniform(0.2, 0.9, 2)).tolist())
        name = checks.turn_run_name(self.case, facts)
        case = build_spooled_case(
            build_result(*samples, case={"api": "POSIX"}), name=name, stack=stack, started_at=1_700_000_000, facts=facts
        )
        checks.spool_case(session, case, {})


@pytest.fixture
def reframe_(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> FakeReframe:
    """ReFrame and the probes of modules replaced; `good` and `bad` differ in two modules and a setting."""
    fake = FakeReframe(tmp_path)
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "var"))
    for name, version in (("good", 1), ("bad", 2)):
        (tmp_path / name).mkdir()
        document = {"modules": ["mpi/5", f"io/{version}", f"hdf5/{version}"], "settings": {"A": f"{version}"}}
        (tmp_path / name / "modules.yaml").write_text(yaml.safe_dump(document))
    path = tmp_path / "reframe.py"
    path.write_text(f"site_configuration = {SITE!r}\n")

    def read(system: str, path: Path, _programs: object = ()) -> Stack:
        document, parts = yaml.safe_load(path.read_text()), (StackPart("openmpi", "4.1.4"),)
        return Stack(
            path.parent.name, system, "modules", "installed", parts, FEATURES, document.get("settings", {}),
            modules=tuple(document["modules"]),
        )  # fmt: skip

    monkeypatch.setattr(hybrids, "load_module_stack", read)
    monkeypatch.setattr(hybrids, "manifest_directory", lambda _, name: tmp_path / name)
    monkeypatch.setattr(hybrids, "load_stack", lambda name, system: read(system, tmp_path / name / "modules.yaml"))
    features = {name: frozenset({"mpi", *FEATURES}) for name in ("good", "bad")}
    site = ReframeSite("local", path, (ReframePartition("default", "local", ("good", "bad"), None),), features)
    monkeypatch.setattr(reframe, "run_reframe", fake.follow)
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    full = plan.make_session_plan

    def one_case(*arguments: object, **options: object) -> object:
        found = full(*arguments, **options)  # type: ignore[arg-type]
        runs = [run for run in found.runs if run.case.expects[0][0] == "write"][:1]
        fake.case = runs[0].name
        return type(found)(tuple(runs), ())

    monkeypatch.setattr(ab_run, "make_session_plan", one_case)
    return fake


def test_part_is_named_and_everything_is_in_the_history(
    reframe_: FakeReframe, cli: Cli, history: History, tmp_path: Path
) -> None:
    """It is interrupted in a search step; started again, it repeats no pair and continues to the answer."""
    ticket = tmp_path / "ticket.md"
    reframe_.interrupted_at = 30
    assert cli(*WORDS).exit_code != 0
    reframe_.interrupted_at, before = None, len(reframe_.turns)
    result = cli(*WORDS, "--json", "--markdown", ticket)
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    (found,) = document["culprits"]
    assert [document["parts"][part]["name"] for part in found["parts"]] == ["io"]
    assert found["kind"] == "single"
    assert found["ci"][0] < 0.8 < found["ci"][1]
    assert document["candidates"] == []

    sessions = [history.session(uuid) for uuid in document["sessions"]]
    stored = sum(len(history.runs(row.uuid)) for row in sessions)
    assert stored + 2 * len(sessions) >= len(reframe_.turns) - 1  # all but the warm-ups, and what was interrupted
    assert sum(test["pairs"] for test in document["tests"]) > (len(reframe_.turns) - before) / 2
    assert sessions[0].facts.document["bisect"]["screening"]
    assert all(row.facts.ab_run for row in sessions)

    text = ticket.read_text()
    assert re.search(r"- module io: io/1 → io/2 makes good slower: 0\.(79|80)\d \(", text)
    assert "| 1 the whole difference | BAD | GOOD |" in text

    measured = len(reframe_.turns)
    again = cli(*WORDS)
    assert "module io: io/1 → io/2 makes good slower: " in again.stdout
    assert len(reframe_.turns) == measured


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("days", [0, 3])
def test_finding_is_bisected_with_both_sides_as_recorded(
    days: int, reframe_: FakeReframe, cli: Cli, history: History
) -> None:
    """The stack lost a fifth with io/2 and hdf5/2; `findings show` offers the search, and then has its answer.

    Also where the date of the change is wrong by some observations: the nearest exchange of the stack is meant.
    """
    case = next(run.case for run in _smoke_plan().runs if run.case.expects[0][0] == "write")
    stacks = [
        Stack(
            "good", "local", "modules", "installed", (StackPart("openmpi", "4.1.4"),), FEATURES,
            modules=("mpi/5", f"io/{one}", f"hdf5/{one}"),
        )
        for one in (1, 2)
    ]  # fmt: skip
    first, step = date(2025, 1, 1), date(2025, 2, 10)
    levels, exchanged = ((first, 1000.0), (step, 800.0)), (first, step + timedelta(days))
    parameters: dict[str, Scalar] = {"operation": "write", "api": "POSIX"}
    scenario = Scenario(
        "smoke", "local", "default", "planted", first, date(2025, 3, 1),
        (SimulatedSeries(case.run_name, "ior", parameters, levels, "planted", sigma=0.01),),
        tuple((day, StackRecord("good", one.to_json())) for day, one in zip(exchanged, stacks, strict=True)),
        missing_runs=0.0,
    )  # fmt: skip
    for one in generate_sessions(scenario, 5):
        history.begin_session(one.session, ())
        history.record_runs(one.session.uuid, one.runs)
        history.end_session(one.session.uuid, "ok", one.session.started_at + 60)
    (finding,) = update_findings(history, "local", datetime(2025, 3, 2, tzinfo=UTC))

    command = f"iowatch bisect --finding {finding.id}"
    assert command in cli("findings", "show", finding.id).stdout
    result = cli("bisect", "--finding", finding.id, "--error-rate", "90%", "--seed", 1)
    assert result.exit_code == 0, result.stderr
    assert "What makes after differ from before on local" in result.stdout
    answer = "module io: io/1 → io/2 makes before slower: 0."
    assert answer in result.stdout
    (shown,) = json.loads(cli("findings", "show", finding.id, "--json").stdout)["experiments"]
    assert shown["title"] == "Which part of the stack"
    assert (shown["command"], shown["answer"][0].startswith(answer)) == (command, True)
    assert shown["sessions"] > 2
    assert answer in cli("findings", "show", finding.id).stdout
    assert cli("bisect", "good", "bad", "--finding", finding.id).exit_code == 2


def test_commits_are_built_and_bisected(
    reframe_: FakeReframe, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four commits contain the slow one; the answer names it by its subject."""
    repository = Repository(tmp_path / "repository")
    for subject in ("v1", "one", "two", "slow", "v2"):
        repository.commit(subject)

    def describe(system: str, name: str, modules: tuple[str, ...], settings: dict[str, str], paths: object) -> Stack:
        parts = (StackPart("openmpi", "4.1.4"),)
        return Stack(name, system, "modules", "installed", parts, FEATURES, settings, paths, modules)  # type: ignore[arg-type]

    def contents(stack: str) -> list[str]:
        path = tmp_path / "var" / "stacks" / "local" / stack / "modules.yaml"
        commit = yaml.safe_load(path.read_text())["settings"]["IOWATCH_COMMIT"]
        return repository.git("log", "--format=%s", commit).split()

    monkeypatch.setattr(hybrids, "describe_loaded_stack", describe)
    # The shell that builds has no command `module`.
    monkeypatch.setattr(commit_builds, "load_stack", lambda *of: replace(hybrids.load_stack(*of), modules=()))
    monkeypatch.setattr(reframe_, "modules", contents)
    reframe_.slow = {"slow"}
    words = ("bisect", "v1..v2", "--package", "tool", "--git", repository.place, "--stack", "good")
    options = ("--build", "sh build.sh", "--benchmark", "ior", "--error-rate", "90%", "--seed", 1)
    result = cli(*words, *options)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"commit [0-9a-f]+ \(slow\) makes tool@[0-9a-f]{12} slower: 0\.(79|80)\d", result.stdout)
    assert "GOOD + 1 to 3" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("good",), "two stacks are expected, or --finding ID, or --from-gates PACKAGE GOOD BAD, or --package"),
        (("v1..v2", "--package", "tool", "--stack", "good"), "two stacks are expected"),
        (("good", "bad", "--stack", "good"), "two stacks are expected"),
        (("good", "bad", "--finding", "x"), "two stacks are expected"),
        (("--finding", "none"), "no finding 'none'"),
        (("good", "good"), "do not differ"),
    ],
)
def test_wrong_use_is_refused(
    reframe_: FakeReframe, cli: Cli, history: History, words: tuple[str, ...], message: str
) -> None:
    result = cli("bisect", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_equal_performance_ends_with_nothing_to_bisect(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.slow = set()
    result = cli(*WORDS)
    assert result.exit_code == 0
    assert re.search(r"nothing to bisect: no difference above \d", result.stdout)
    assert not {name for name in reframe_.turns if name.startswith("bisect-")}


def test_hybrid_that_gives_no_result_is_skipped(reframe_: FakeReframe, cli: Cli) -> None:
    """No hybrid with io/2 works; the parts that no other hybrid separates are named together."""
    reframe_.unusable = "io/2"
    document = json.loads(cli(*WORDS, "--json").stdout)
    assert {"not usable"} <= {test["result"] for test in document["tests"]}
    (found,) = document["culprits"]
    assert "io" in {document["parts"][part]["name"] for part in found["parts"]}
    assert found["kind"] == "inseparable"
    assert document["skipped"][0].startswith("GOOD with ")


def test_hybrid_that_cannot_be_built_is_skipped_and_said(
    reframe_: FakeReframe, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hybrids can be resolved, so no parts are grouped; those with io/2 do not build."""
    read = hybrids.load_module_stack

    def build(system: str, path: Path, programs: object = ()) -> Stack:
        stack = read(system, path, programs)  # type: ignore[arg-type]
        fails = "io/2" in stack.modules and stack.name != "bad"
        return replace(stack, status="broken", note="Spack cannot build it: make failed") if fails else stack

    monkeypatch.setattr(hybrids, "load_module_stack", build)
    monkeypatch.setattr(hybrids.HybridSource, "resolved", lambda source, _: source.ends[0])
    ticket = tmp_path / "ticket.md"
    result = cli(*WORDS, "--json", "--markdown", ticket)
    document = json.loads(result.stdout)
    assert document["groups"] == [[0], [1], [2]]
    assert document["skipped"][0] == "GOOD with module io: io/1 → io/2: Spack cannot build it: make failed"
    assert len(set(document["skipped"])) == len(document["skipped"])
    assert f"skipped: {document['skipped'][0]}" in result.stderr
    assert "## Skipped" in ticket.read_text()


def test_hybrids_provide_what_no_part_is_named_for(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases with workloads of benchio need libyaml, which the compiler finds."""
    site = reframe.load_site("local")
    requires = property(lambda case: (*case.tool.requires(case.options), "libyaml"))
    monkeypatch.setattr(SuiteCase, "requires", requires)
    monkeypatch.setattr(stack_probe, "find_compiler_library", lambda *_: "/usr/lib/libyaml.so")
    more = {stack: found | {"libyaml"} for stack, found in site.features.items()}
    monkeypatch.setattr(reframe, "load_site", lambda _: replace(site, features=more))
    document = json.loads(cli(*WORDS, "--json").stdout)
    assert (document["answer"], document["skipped"]) == ("found", [])


def test_too_small_budget_is_refused_with_an_estimate(
    reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iowatch.experiments.bisect import run as bisect

    monkeypatch.setattr(bisect.BisectRun, "_pair_s", lambda _: 30.0)
    result = cli(*WORDS, "--budget", 5)
    assert result.exit_code == 2
    assert re.search(r"3 parts need at least \d+ pairs, about \d+ minutes", result.stderr)
    assert "--budget" in result.stderr


def test_case_that_one_side_lacks_is_refused(reframe_: FakeReframe, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    site = reframe.load_site("local")
    fewer = {**site.features, "bad": frozenset({"mpi"})}
    monkeypatch.setattr(reframe, "load_site", lambda _: replace(site, features=fewer))
    case = "ior:" + next(run.case.name for run in plan.make_session_plan(site, _smoke()).runs if run.stack == "good")
    result = cli(*WORDS, "--case", case)
    assert result.exit_code == 2
    assert "cannot run on 'bad': it does not provide" in result.stderr
    assert not reframe_.turns


def _smoke_plan() -> plan.SessionPlan:
    return plan.make_session_plan(reframe.load_site("local"), _smoke())


def _smoke() -> list[object]:
    from iowatch.benchmarks.suites import load_suite

    return [case for case in load_suite("smoke") if case.benchmark == "ior"]


def test_parts_that_need_each_other_are_grouped() -> None:
    """netCDF of BAD needs its HDF5, and the case needs netCDF; the third part works alone."""

    def usable(parts: frozenset[int]) -> bool:
        return (0 in parts) == (1 in parts)

    assert group_parts(3, usable) == (frozenset({0, 1}), frozenset({2}))
    assert group_parts(3, lambda _: True) == (frozenset({0}), frozenset({1}), frozenset({2}))
