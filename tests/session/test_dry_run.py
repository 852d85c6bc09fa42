"""`iowatch run --dry-run`: the planned runs and their cost; nothing is started or written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.benchmarks.suites import load_suite
from iowatch.core import Output
from iowatch.core import Result as Measured
from iowatch.session import reframe
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site.system import NightlyPolicy
from iowatch.store import History
from tests.builders import build_output, build_run, build_session

TINY = load_suite("tiny")


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two stacks; one has no HDF5. Starting ReFrame fails the test."""
    features = {"gnu": frozenset({"mpi", "hdf5"}), "bare": frozenset({"mpi"})}
    made = ReframeSite(
        "local", tmp_path / "reframe.py", (ReframePartition("default", "local", ("gnu", "bare"), None),), features
    )
    monkeypatch.setattr(reframe, "load_site", lambda _name: made)
    monkeypatch.delattr(reframe, "run_reframe")


def dry_run(cli: Callable[..., Result], *words: str) -> dict[str, object]:
    done = cli("run", "--dry-run", "--suite", "tiny", "--json", *words)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_dry_run_without_history_creates_nothing(cli: Callable[..., Result], var: Path) -> None:
    done = cli("run", "--dry-run", "--suite", "tiny")
    assert done.exit_code == 0, done.output
    assert "tiny on local: " in done.stdout
    assert "never ran" in done.stdout
    assert done.stderr.startswith("there is no history at ")
    assert done.stderr.endswith(": durations are the time limits of the cases.\n")
    assert not var.exists()


@pytest.mark.parametrize("words", [("--suite", "tinny"), ("--system", "locl"), ("--stack", "gnuu"), ("--case", "x")])
@pytest.mark.parametrize("dry", [True, False])
def test_wrong_name_creates_no_history(
    cli: Callable[..., Result], var: Path, words: tuple[str, str], dry: bool
) -> None:
    """Else the next command would find an empty history: "no data", exit code 0."""
    done = cli("run", "--suite", "tiny", *words, *(["--dry-run"] if dry else []))
    assert (done.exit_code, words[1] in done.stderr) == (2, True)
    assert not (var / "iowatch.db").exists()


def test_dry_run_lists_runs_and_cost_of_the_suite(cli: Callable[..., Result], var: Path) -> None:
    document = dry_run(cli)
    able = {name: [c for c in TINY if set(c.requires) <= have] for name, have in (
        ("gnu", {"mpi", "hdf5"}), ("bare", {"mpi"}))}  # fmt: skip
    expected = [(name, f"{case.benchmark}:{case.name}") for name, cases in able.items() for case in cases]
    runs = document["runs"]
    assert isinstance(runs, list)
    assert [(one["stack"], one["run"]) for one in runs] == expected
    assert document["volume_bytes"] == sum(
        case.tool.volume_bytes(case.options) for cases in able.values() for case in cases
    )
    assert document["expected_results"] == sum(len(case.expects) for cases in able.values() for case in cases)
    # Cases that the stack without HDF5 cannot run are listed with the reason.
    missing = len(TINY) - len(able["bare"])
    assert missing > 0
    assert document["not_available_here"] == [
        {"stack": "bare", "runs": missing, "reason": "the stack does not provide hdf5"}
    ]


@pytest.mark.parametrize("full", [True, False])
def test_chosen_cases_are_planned_only(cli: Callable[..., Result], var: Path, full: bool) -> None:
    first, last = TINY[0], TINY[-1]
    names = [f"{case.benchmark}:{case.name}" if full else case.name for case in (first, last)]
    words = [word for name in names for word in ("--case", name)]
    runs = dry_run(cli, "--stack", "gnu", "--benchmark", first.benchmark, *words)["runs"]
    assert isinstance(runs, list)
    assert [one["run"] for one in runs] == [f"{case.benchmark}:{case.name}" for case in (first, last)]


def test_dry_run_uses_the_run_history_and_lists_deferred_runs(
    cli: Callable[..., Result], var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs without history are first, with their limit (60 s each): a case of 90 s exceeds the two minutes."""
    first = TINY[0]
    with History.open() as history:
        session = build_session("s", suite="tiny", started_at=1_000_000)
        history.begin_session(session, [])
        record = build_run(name=first.run_name, started_at=1_000_000, output=_output(), wall_s=90.0)
        history.record_runs("s", [record])
        history.end_session("s", "ok", 1_000_100)
    document = dry_run(cli, "--stack", "gnu")
    runs = document["runs"]
    assert isinstance(runs, list)
    assert [one["longest_s"] for one in runs] == [90.0] + [None] * (len(runs) - 1)
    monkeypatch.setattr("iowatch.cli.commands.run.nightly_policy", lambda *_, **__: NightlyPolicy(minutes=2))
    nightly = dry_run(cli, "--stack", "gnu", "--night")
    left = nightly["deferred"]
    assert isinstance(left, list)
    assert [one["reason"] for one in left] == ["exceeds the budget of 2 minutes"]
    assert len(nightly["runs"]) + left[0]["runs"] == len(runs)  # type: ignore[arg-type]


def _output() -> Output:
    return build_output(Measured("write", "bandwidth", "MiB/s", (1.0,), {}), tool="benchio")


def test_scratch_of_the_environment_is_used_and_the_option_has_precedence(
    cli: Callable[..., Result], var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler's job sets the variable; without it the session would silently measure another file system."""
    monkeypatch.setenv("IOWATCH_SCRATCH", str(tmp_path / "of-environment"))
    done = cli("run", "--dry-run", "--suite", "tiny")
    assert f"scratch {tmp_path / 'of-environment'}" in done.stdout
    done = cli("run", "--dry-run", "--suite", "tiny", "--scratch", tmp_path / "of-option")
    assert f"scratch {tmp_path / 'of-option'}" in done.stdout
