"""`iowatch gate --record`, the order of commits and their levels, and `iowatch bisect --from-gates`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result as CliResult

from iowatch.core import UsageError
from iowatch.experiments.bisect import command as bisect_command
from iowatch.experiments.bisect.gated_commits import find_gated_range
from iowatch.experiments.bisect.run import BisectOptions
from iowatch.experiments.common.commits import CommitRange
from iowatch.experiments.common.gate_records import (
    RECORD,
    LevelChains,
    RecordedGate,
    gates_by_commit,
    read_recorded_gates,
)
from iowatch.experiments.gate import record as gate_record
from iowatch.experiments.gate import run as gate
from iowatch.experiments.gate.record import RecordOptions, find_recorded_commits
from iowatch.experiments.gate.run import GateOptions
from iowatch.store import History, SessionFacts
from tests.builders import build_session_row
from tests.experiments.gate.recorded import PlannedGate, commit_facts, planned_record, record_gates
from tests.experiments.gate.test_gate import WORDS, FakeReframe, reframe_

__all__ = ["reframe_"]  # a fixture

Cli = Callable[..., CliResult]
HDF5_WRITE = {"hdf5": (-0.1, "slower")}


class Repository:
    """A repository with commits in order, whose branch can be replaced."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.git("init", "-q", "-b", "main")
        self.commits = [self.commit(subject) for subject in ("First", "Second", "Third")]

    def git(self, *words: str) -> str:
        names = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"}
        command = ["git", "-C", str(self.directory), *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "hdf5")


def record(cli: Cli, repository: Repository, *words: object) -> CliResult:
    return cli(*WORDS, "--no-counts", "--record", "--repository", repository.directory, *words)


def test_gate_is_kept_with_its_commits(
    reframe_: FakeReframe, cli: Cli, history: History, repository: Repository
) -> None:
    """The document of `--json`, the head's branch, and how many commits there are up to each."""
    first, second, third = repository.commits
    reframe_.gain = 0.8
    printed = record(cli, repository, "--base-commit", first, "--json")
    assert printed.exit_code == 1
    document = json.loads(printed.stdout)
    (recorded,) = read_recorded_gates(history.sessions()).gates
    assert recorded.session.uuid == document["session"]
    assert (recorded.record.package, recorded.record.branch, recorded.decision) == ("hdf5", "main", "regression")
    assert (recorded.record.head.commit, recorded.record.head.ancestors) == (third, 3)
    assert recorded.record.head.subject == "Third"
    assert recorded.record.base is not None
    assert (recorded.record.base.commit, recorded.record.base.ancestors) == (first, 1)
    assert recorded.results[0].change == document["results"][0]["change"]
    # Without --record nothing is kept.
    cli(*WORDS, "--no-counts")
    assert len(read_recorded_gates(history.sessions()).gates) == 1
    assert second != third


def test_commits_after_a_forced_push_are_missing_and_older_ones_are_not(
    reframe_: FakeReframe, cli: Cli, history: History, repository: Repository
) -> None:
    first, second, third = repository.commits
    record(cli, repository)
    # An older commit that is gated later is contained in the one before: nothing is missing.
    record(cli, repository, "--head-commit", second, "--branch", "main")
    assert read_recorded_gates(history.sessions()).gates[0].record.missing_commits == ()
    # The third commit is replaced, and removed from the repository.
    repository.git("reset", "-q", "--hard", second)
    fourth = repository.commit("Another third")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    record(cli, repository)
    gates = read_recorded_gates(history.sessions()).gates
    assert gates[0].record.missing_commits == (third,)
    commits = gates_by_commit(gates)
    assert [(commit.newest.commit, commit.is_missing) for commit in commits[:1]] == [(second, False)]
    assert {commit.newest.commit: commit.is_missing for commit in commits[1:]} == {third: True, fourth: False}
    assert first not in {commit.newest.commit for commit in commits}


def test_gate_without_a_pair_is_recorded_too(
    reframe_: FakeReframe, cli: Cli, history: History, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time that is over before the first pair: undecided, in a session without runs that is no run of its suite."""
    monkeypatch.setattr(gate, "measure_pairs", lambda *_: SimpleNamespace(stopped="budget"))
    printed = record(cli, repository)
    assert printed.exit_code == 4
    (recorded,) = read_recorded_gates(history.sessions()).gates
    assert (recorded.decision, recorded.session.runs, recorded.session.status) == ("undecided", 0, "incomplete")
    assert recorded.session.is_interleaved


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--head-commit", "nosuch"), "no commit 'nosuch' in "),
        (("--base-commit", "nosuch"), "no commit 'nosuch' in "),
        (("--head-commit", "HEAD~1"), "'HEAD~1' names no branch of "),
    ],
)
def test_commits_that_cannot_be_recorded_are_refused_before_anything_starts(
    words: tuple[str, ...], message: str, reframe_: FakeReframe, cli: Cli, repository: Repository
) -> None:
    printed = record(cli, repository, *words)
    assert printed.exit_code == 2
    assert message in printed.stderr
    assert reframe_.starts == []


def test_options_of_a_record_need_record(cli: Cli) -> None:
    printed = cli(*WORDS, "--branch", "main")
    assert printed.exit_code == 2
    assert "about --record, which is missing" in printed.stderr


def test_git_builds_name_their_commits(repository: Repository) -> None:
    first, _, third = repository.commits
    options = GateOptions("local", "gate", f"git:{repository.directory}@{first}", f"git:{repository.directory}@main")
    commits = find_recorded_commits(options, RecordOptions())
    assert commits.base is not None
    assert (commits.base.commit, commits.head.commit, commits.branch) == (first, third, "main")


def test_shallow_clone_knows_no_order(repository: Repository, tmp_path: Path) -> None:
    """git counts only the commits that a shallow clone has, so the number would be wrong."""
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.directory}", str(clone))
    options = GateOptions("local", "gate", "old", "new")
    assert find_recorded_commits(options, RecordOptions(repository=clone)).head.ancestors is None


def test_numbers_that_json_lacks_are_null() -> None:
    stored = gate_record._storable({"noise": float("inf"), "results": [(float("nan"), 1.5)]})
    assert stored == {"noise": None, "results": [[None, 1.5]]}


def test_commits_are_in_their_order_and_the_newest_gate_counts(history: History) -> None:
    """Gated out of order, one of them twice, and one with a date after that of the commits that contain it."""
    uuids = record_gates(
        history,
        [
            PlannedGate(3, 8, HDF5_WRITE, "regression"),
            PlannedGate(1, None, HDF5_WRITE),
            PlannedGate(8, 1, HDF5_WRITE, ancestors=2),
            PlannedGate(3, 8, {"hdf5": (0.0, "within")}),
        ],
    )
    commits = gates_by_commit(read_recorded_gates(history.sessions()).gates)
    assert [commit.newest.commit[:7] for commit in commits] == ["0000001", "0000008", "0000003"]
    assert commits[2].newest.decision == "pass"
    assert [earlier.session.uuid for earlier in commits[2].earlier] == [uuids[0]]


def test_order_is_by_date_where_a_clone_was_shallow(history: History) -> None:
    gates = [PlannedGate(7, None, HDF5_WRITE, ancestors=None), PlannedGate(5, None, HDF5_WRITE, ancestors=90)]
    record_gates(history, gates)
    commits = gates_by_commit(read_recorded_gates(history.sessions()).gates)
    assert [commit.newest.commit[:7] for commit in commits] == ["0000005", "0000007"]


def levels(history: History) -> dict[int, tuple[float, str]]:
    """Level and origin of the result `hdf5` by the number of the commit."""
    gates = read_recorded_gates(history.sessions()).gates
    chains = LevelChains(gates)
    by_commit: dict[int, tuple[float, str]] = {}
    for gate_of_commit in gates:
        (key,) = {result.key for result in gate_of_commit.results}
        level = chains.level(gate_of_commit, key)
        if level is not None:
            by_commit[int(gate_of_commit.commit[:7])] = (round(level.value, 6), level.origin)
    return by_commit


def test_levels_multiply_along_bases(history: History) -> None:
    """Small losses add up to 0.9 ** 3; another base begins a chain of its own, and so does a gate without a number."""
    record_gates(
        history,
        [
            PlannedGate(2, 1, HDF5_WRITE),
            PlannedGate(3, 2, HDF5_WRITE),
            PlannedGate(9, 3, HDF5_WRITE, branch="feature"),
            PlannedGate(4, None, HDF5_WRITE),
            PlannedGate(5, 3, {"hdf5": (None, "open")}),
            PlannedGate(6, 5, HDF5_WRITE),
        ],
    )
    first = f"commit {commit_facts(1).commit}"
    fifth = f"commit {commit_facts(5).commit}"
    assert levels(history) == {
        2: (0.9, first), 3: (0.81, first), 9: (0.729, first), 4: (0.9, "build 1a2b3c4d"), 6: (0.9, fifth),
    }  # fmt: skip


def test_gates_in_both_directions_are_no_endless_chain(history: History) -> None:
    record_gates(history, [PlannedGate(2, 1, HDF5_WRITE), PlannedGate(1, 2, {"hdf5": (0.1, "within")})])
    assert set(levels(history)) == {1, 2}


def test_chain_of_thousands_of_commits_has_a_level() -> None:
    """Longer than Python's recursion limit (1,000)."""
    gates: list[RecordedGate] = []
    for number in range(1, 3_001):
        planned = PlannedGate(number, number - 1, {"hdf5": (-0.001, "within")})
        gates.insert(0, RecordedGate(build_session_row(number, uuid=str(number)), planned_record(planned)))
    level = LevelChains(gates).level(gates[0], gates[0].results[0].key)
    assert level is not None
    assert level.value == pytest.approx(0.999**3_000)


def test_record_that_cannot_be_read_is_reported(history: History) -> None:
    (uuid, other) = record_gates(history, [PlannedGate(1, None, HDF5_WRITE), PlannedGate(2, 1, HDF5_WRITE)])
    history.add_facts(uuid, SessionFacts.from_document({RECORD: {"format": 2}}))
    records = read_recorded_gates(history.sessions())
    assert [gate.session.uuid for gate in records.gates] == [other]
    assert records.faults == (f"gate of session {uuid}: field format: Input should be 1",)


# Bisection


def test_bisection_starts_from_two_gated_commits(history: History) -> None:
    """The build, suite and directory are those of the gate; the result is the one that lost most."""
    recorded = {"stack": "system-openmpi", "build_command": "sh build.sh", "scratch": "/dev/shm/x"}
    changes = {"hdf5": (-0.05, "open"), "netcdf4": (-0.2, "slower"), "mpiio": (0.3, "within")}
    record_gates(history, [PlannedGate(1, None, changes), PlannedGate(4, 1, changes, "regression", record=recorded)])
    gated = find_gated_range(history, None, "hdf5", "0000001", commit_facts(4).commit)
    assert gated.range_text == f"{commit_facts(1).commit}..{commit_facts(4).commit}"
    assert (gated.system, gated.suite, gated.scratch) == ("local", "gate", Path("/dev/shm/x"))
    assert gated.stack_name(None) == "system-openmpi"
    assert gated.stack_name("other") == "other"
    loss = gated.largest_loss()
    assert (loss.run, loss.operation, loss.metric) == ("benchio:api=netcdf4", "write", "bandwidth")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("netcdf", "0000001", "0000002"), "no recorded gate of package 'netcdf'"),
        (("hdf5", "0000001", "0000009"), "no recorded gate has the commit '0000009'"),
        (("hdf5", "0000002", "0000001"), "no recorded gate has the commit '0000001'"),
        (("hdf5", "0000", "0000002"), "'0000' begins 2 gated commits"),
        (("hdf5", "000", "0000002"), "'000' is too short for a commit"),
        (("hdf5", "0000001", "0000002"), "the gate of 0000002aaaaa recorded no stack to build for"),
        (("hdf5", "0000001"), "--from-gates PACKAGE takes two commits"),
    ],
)
def test_commits_that_cannot_be_bisected_are_refused(
    words: tuple[str, ...], message: str, history: History, cli: Cli
) -> None:
    """Commit 1 was a base only, so nothing is known about how it was built."""
    record_gates(history, [PlannedGate(2, 1, HDF5_WRITE, "regression")])
    printed = cli("bisect", "--from-gates", *words)
    assert printed.exit_code == 2
    assert message in printed.stderr


def test_commit_that_a_forced_push_removed_is_refused(history: History, repository: Repository) -> None:
    record_gates(history, [PlannedGate(2, 1, HDF5_WRITE, "regression")])
    gated = find_gated_range(history, None, "hdf5", "0000001", "0000002")
    with pytest.raises(UsageError, match=r"has no commit 0000001aaaaa, which was gated by .*forced push"):
        gated.require_commits(repository.directory)
    with pytest.raises(UsageError, match="does not exist on this host"):
        gated.repository_directory(None)


def test_search_is_for_what_is_slower_not_for_noise(history: History) -> None:
    """A result that was left out lost more, by noise."""
    changes = {"hdf5": (-0.12, "slower"), "netcdf4": (-0.3, "left out"), "mpiio": (-0.15, "slower")}
    undecided = {"hdf5": (-0.04, "open"), "mpiio": (-0.08, "open")}
    record_gates(history, [PlannedGate(2, 1, changes, "regression"), PlannedGate(3, 1, undecided, "undecided")])
    loss = find_gated_range(history, None, "hdf5", "0000001", "0000002").largest_loss()
    assert (loss.run, loss.operation, loss.metric) == ("benchio:api=mpiio", "write", "bandwidth")
    # Without a slower one, as of an undecided gate, the largest loss.
    assert find_gated_range(history, None, "hdf5", "0000001", "0000003").largest_loss().run == "benchio:api=mpiio"


def test_commit_of_two_systems_needs_a_system(history: History) -> None:
    record_gates(history, [PlannedGate(2, 1, HDF5_WRITE), PlannedGate(2, 1, HDF5_WRITE, system="other")])
    with pytest.raises(UsageError, match="several systems: local, other"):
        find_gated_range(history, None, "hdf5", "0000001", "0000002")
    assert find_gated_range(history, "other", "hdf5", "0000001", "0000002").system == "other"


def test_search_of_the_command_uses_what_the_gate_recorded(
    history: History, cli: Cli, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command states has precedence over the gate; the search itself is replaced, as it measures."""
    first, _, third = (commit_facts(1).model_copy(update={"commit": commit}) for commit in repository.commits)
    recorded = {
        "head": third, "base": first, "stack": "system-openmpi", "build_command": "sh build.sh",
        "scratch": "/dev/shm/x", "repository": str(repository.directory),
    }  # fmt: skip
    record_gates(history, [PlannedGate(3, 1, HDF5_WRITE, "regression", record=recorded)])
    searches: list[tuple[tuple[object, ...], BisectOptions]] = []
    monkeypatch.setattr(bisect_command, "commit_source", lambda *words: words)
    monkeypatch.setattr(bisect_command, "CommitRun", lambda _, source, options: searches.append((source, options)))

    def end(_: object) -> None:
        raise UsageError("the search is replaced")

    monkeypatch.setattr(bisect_command, "_search", end)
    words = ("bisect", "--from-gates", "hdf5", first.commit[:12], third.commit[:12])
    cli(*words)
    cli(*words, "--suite", "smoke", "--stack", "other", "--case", "benchio:api=mpiio")
    (source, options), (other_source, other_options) = searches
    commits = CommitRange(repository.directory, f"{first.commit}..{third.commit}")
    assert source == ("local", "hdf5", commits, "system-openmpi", "sh build.sh")
    assert (options.suite, options.cases, options.operation) == ("gate", ("benchio:api=hdf5",), "write")
    assert (options.scratch, options.like, options.metric) == (Path("/dev/shm/x"), "system-openmpi", "bandwidth")
    assert other_source[3] == "other"
    assert (other_options.suite, other_options.cases, other_options.metric) == ("smoke", ("benchio:api=mpiio",), None)
