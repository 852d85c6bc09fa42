"""From the history to a reference file: `iowatch reference propose` and `check` in a separate checkout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from iowatch.cli.main import iowatch, main
from iowatch.core import IowatchError, MachineError
from iowatch.core import Result as Measurement
from iowatch.findings import proposals
from iowatch.reference import bandwidth
from iowatch.store import History, StackRecord
from tests.builders import build_output, build_run, build_session

ROOT = Path(__file__).resolve().parents[2]
DAY_S = 86400
FIRST = 1_767_225_600  # 2026-01-01
STACK = StackRecord("stack-a", {"parts": [{"name": "openmpi", "version": "4.1.4"}]})
CASE = {"api": "MPIIO", "file": "shared", "ranks": 4}
Command = Callable[..., Result]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one system and one check, and a history."""
    for folder in ("benchmarks", "reframe_tests", "reference/bandwidth", "reference/published"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "systems" / "local", tmp_path / "systems" / "local")
    (tmp_path / "reframe_tests" / "benchio.py").write_text("@test\nclass BenchioCheck: ...\n")
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    monkeypatch.setenv("IOWATCH_DB", str(tmp_path / "history.db"))
    return tmp_path


def _fill(values: Sequence[float], operation: str = "write", benchmark: str = "benchio") -> None:
    with History.open() as history:
        for number, value in enumerate(values):
            time = FIRST + number * DAY_S
            result = Measurement(operation, "bandwidth", "MiB/s", (value * 0.9, value), CASE)
            output = build_output(result, tool=benchmark)
            history.begin_session(build_session(f"night-{number}", origin="import", started_at=time))
            run = build_run(name=f"{benchmark}:{operation}", stack=STACK, started_at=time, output=output)
            history.record_runs(f"night-{number}", [run])
            history.end_session(f"night-{number}", "ok", time + 60)


def _steady_values(n: int, level: float = 1000.0, seed: int = 0) -> list[float]:
    return list(level * np.exp(np.random.default_rng(seed).normal(0, 0.03, n)))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(iowatch, ["reference", *arguments])


def _proposed() -> dict[str, object]:
    outcome = _run("propose", "--system", "local", "--json")
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert isinstance(document, dict)
    return document


def test_propose_writes_only_on_request(checkout: Path) -> None:
    observations = _steady_values(10)
    _fill(observations)
    shown = _run("propose", "--system", "local")
    assert "+++ b/local.yaml" in shown.stdout
    assert not bandwidth.reference_file_path("local").exists()
    outcome = _run("propose", "--system", "local", "--write", "--by", "me", "--why", "first nights", "--json")
    assert json.loads(outcome.stdout)["written"] is True
    (entry,) = bandwidth.load_references("local").entries
    assert entry.value == pytest.approx(np.median(observations), rel=1e-3)
    assert (entry.check, entry.partition, entry.stack) == ("BenchioCheck", "local:default", "stack-a")
    assert (entry.provenance.by, entry.provenance.why) == ("me", "first nights")
    assert entry.provenance.origin == ["night-0", "night-9"]
    assert entry.provenance.versions == {"openmpi": "4.1.4"}
    found = bandwidth.load_references("local").find("default", "stack-a", {**CASE, "extra": 1}, "write", "bandwidth")
    assert found == entry
    assert _proposed()["diff"] == ""
    assert _proposed()["written"] is False


def test_proposal_without_a_change_is_not_written(checkout: Path) -> None:
    """Neither the file nor what a script reads says that it was."""
    _fill(_steady_values(10))
    assert "nothing written; repeat with --write to accept" in _run("propose", "--system", "local").stderr
    assert "wrote " in _run("propose", "--system", "local", "--write", "--by", "me").stderr
    path = bandwidth.reference_file_path("local")
    modified_ns = path.stat().st_mtime_ns
    again = json.loads(_run("propose", "--system", "local", "--write", "--by", "me", "--json").stdout)
    assert (again["written"], again["diff"]) == (False, "")
    assert "nothing to change" in _run("propose", "--system", "local", "--write", "--by", "me").stderr
    assert path.stat().st_mtime_ns == modified_ns


def test_six_observations_are_not_enough(checkout: Path) -> None:
    _fill(_steady_values(6))
    document = _proposed()
    assert document["proposals"] == []
    assert "6 observations at the accepted level, 7 needed" in str(document["left_out"])


def test_benchmark_without_check_is_left_out(checkout: Path) -> None:
    _fill(_steady_values(8), benchmark="flash")
    document = _proposed()
    assert document["proposals"] == []
    assert document["left_out"] == ["there is no FlashCheck that could use one"]


def test_observations_after_a_change_are_used_only_once_accepted(checkout: Path) -> None:
    _fill([*_steady_values(30), *_steady_values(30, level=500.0, seed=1)])
    (before,) = _proposed()["proposals"]  # type: ignore[misc]
    assert before["new"]["value"] == pytest.approx(1000, rel=0.05)
    assert before["new"]["provenance"]["n"] == 30
    assert "2026-01-31 is not reviewed" in before["note"]
    (finding,) = json.loads(CliRunner().invoke(iowatch, ["findings", "list", "--json"]).stdout)["findings"]
    review = ["review", "accept", finding["id"], "--reason", "new disks", "--by", "me"]
    accepted = CliRunner().invoke(iowatch, review)
    assert accepted.exit_code == 0, accepted.output
    (after,) = _proposed()["proposals"]  # type: ignore[misc]
    assert after["new"]["value"] == pytest.approx(500, rel=0.05)
    assert after["new"]["provenance"]["n"] == 30


def test_check_compares_references_with_the_history(checkout: Path) -> None:
    _fill(_steady_values(8))
    _fill(_steady_values(8, seed=2), operation="read")
    _run("propose", "--system", "local", "--write")
    path = bandwidth.reference_file_path("local")
    path.write_text(path.read_text().replace("ranks=4", "ranks=8"))
    outcome = _run("check", "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.exit_code, document["ok"]) == (0, True)
    remarks_found = [(r["severity"], r["text"].split(":")[0].split(" of ")[0]) for r in document["remarks"]]
    assert sorted(remarks_found) == [("note", "no reference")] * 2 + [
        ("warning", "no case uses read_bandwidth"),
        ("warning", "no case uses write_bandwidth"),
    ]


def test_check_fails_on_a_damaged_file_and_an_unknown_system(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "reference" / "bandwidth" / "local.yaml").write_text("BenchioCheck: {here: 3}\n")
    (checkout / "reference" / "bandwidth" / "locla.yaml").write_text("")
    outcome = _run("check", "--json")
    remarks = json.loads(outcome.stdout)["remarks"]
    assert any("there is no system 'locla'" in r["text"] for r in remarks)
    assert any(r["where"].endswith("local.yaml:1:16") for r in remarks)
    assert json.loads(outcome.stdout)["ok"] is False
    monkeypatch.setattr("sys.argv", ["iowatch", "reference", "check"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1


@pytest.mark.parametrize("arguments", [("propose", "--system", "lokal"), ("check", "--system", "lokal")])
def test_unknown_system_is_a_usage_error(checkout: Path, arguments: tuple[str, ...]) -> None:
    outcome = _run(*arguments)
    assert isinstance(outcome.exception, IowatchError)
    assert outcome.exception.exit_code == 2


def test_references_are_shown_with_percent_of_peak() -> None:
    """[lawrence2017]: 15898 MiB/s of 30 GB/s, which are 28610 MiB/s."""
    entries = json.loads(_run("show", "--system", "archer", "--json").stdout)["entries"]
    (best,) = (e for e in entries if e["value"] == 15898)
    assert best["peak"] == pytest.approx(28610, abs=1)
    assert best["percent_of_peak"] == pytest.approx(55.57, abs=0.01)
    assert "% of peak" in _run("show", "--system", "archer").stdout
    assert "no references of athena" in _run("show", "--system", "athena").stdout


def test_concurrent_edit_of_the_file_is_not_overwritten(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another administrator saves the file while the history is read; these changes must not be lost."""
    _fill(_steady_values(10))
    path, levels = bandwidth.reference_file_path("local"), proposals.collect_accepted_levels

    def slowly(*arguments: Any) -> Any:
        found = levels(*arguments)
        path.write_text("# by hand\n")
        return found

    monkeypatch.setattr(proposals, "collect_accepted_levels", slowly)
    refused = _run("propose", "--system", "local", "--write", "--by", "me")
    assert isinstance(refused.exception, MachineError)
    assert "was changed in the meantime; nothing was written" in str(refused.exception)
    assert path.read_text() == "# by hand\n"


def test_only_one_of_two_concurrent_proposals_is_written(checkout: Path) -> None:
    _fill(_steady_values(10))
    with History.open() as history:
        one, other = (proposals.propose_from_history(history, "local", name, "x") for name in ("Ada", "Bob"))
    one.write()
    with pytest.raises(MachineError, match="in the meantime"):
        other.write()
    assert [entry.provenance.by for entry in bandwidth.load_references("local").entries] == ["Ada"]
