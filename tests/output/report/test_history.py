"""`iowatch history show`: the paths of outputs and Darshan logs of runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import Result as Measured
from iowatch.core import artefacts
from iowatch.store import Artefact, History, RunRecord
from tests.builders import build_output, build_run, build_session

Cli = Callable[..., Result]
BEGIN = 1_767_225_600


@pytest.fixture
def session(var: Path, tmp_path: Path) -> str:
    """A session with a successful and a failed run, with an output and a log each."""
    with History.open() as history:
        history.begin_session(build_session("s", suite="smoke", started_at=BEGIN))
        history.record_runs("s", [_run("good", "ok", tmp_path), _run("[bad]", "failed", tmp_path)])
        history.end_session("s", "incomplete", BEGIN + 60)
    return "s"


def _run(name: str, status: str, place: Path) -> RunRecord:
    kept = []
    for kind in ("stdout", "darshan"):
        (place / kind).write_text(f"{kind} of {name}")
        kept.append(Artefact(kind, f"rfm.{kind}", *astuple(artefacts.store_artefact(place / kind))))
    ok = status == "ok"
    results = (Measured("write", "bandwidth", "MiB/s", (100.0,), {"api": "POSIX"}),) if ok else ()
    output = build_output(*results, status="ok" if ok else "failed", reason=None if ok else "killed")
    return build_run(name=name, partition="compute", started_at=BEGIN, output=output, artefacts=tuple(kept))


def _shown(text: str) -> dict[str, list[str]]:
    """Contents of the files that are listed below each run."""
    found: dict[str, list[str]] = {}
    run = ""
    for line in text.splitlines():
        if line.startswith("files of "):
            run = line.split()[2]
        elif line.startswith("  ") and run:
            found.setdefault(run, []).append(Path(line.split()[-1]).read_text())
    return found


def test_files_of_failed_runs_are_listed(cli: Cli, session: str) -> None:
    shown = cli("history", "show", session)
    assert shown.exit_code == 0, shown.output
    assert _shown(shown.stdout) == {"[bad]": ["darshan of [bad]", "stdout of [bad]"]}
    assert "all runs lie: --files" in shown.stdout


def test_files_option_lists_the_files_of_all_runs(cli: Cli, session: str) -> None:
    shown = cli("history", "show", session, "--files")
    assert set(_shown(shown.stdout)) == {"good", "[bad]"}
    assert "--files" not in shown.stdout


def test_json_has_paths_and_missing_files(cli: Cli, session: str) -> None:
    missing = next(
        path for path in (artefacts.artefact_path("0" * 64).parents[1]).glob("*/*") if "log" not in path.name
    )
    missing.unlink()
    document = json.loads(cli("history", "show", session, "--json").stdout)
    files = [one for run in document["runs"] for one in run["files"]]
    assert len(files) == 4
    assert [one["sha256"] for one in files if one["path"] is None] == [missing.name]
    assert {Path(one["path"]).name for one in files if one["path"]} == {one["sha256"] for one in files} - {missing.name}
    assert f"{missing.name} no longer kept" in cli("history", "show", session, "--files").stdout


def test_run_option_shows_one_run(cli: Cli, session: str) -> None:
    with History.open() as history:
        number = next(run.id for run in history.runs(session) if run.name == "good")
    shown = cli("history", "show", "--run", number)
    assert _shown(shown.stdout) == {"good": ["darshan of good", "stdout of good"]}
    assert "[bad]" not in shown.stdout
    assert [run["id"] for run in json.loads(cli("history", "show", "--run", number, "--json").stdout)["runs"]] == [
        number
    ]
    for words in ((), (session, "--run", number), ("--run", 99)):
        assert cli("history", "show", *words).exit_code == 2
