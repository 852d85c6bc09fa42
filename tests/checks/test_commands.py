"""Commands of a site through the real path: suite, session, ReFrame, launcher, record, history, A/B run and gate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iowatch.store import History
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun; ci/setup names the package"),
]
Iowatch = Callable[..., subprocess.CompletedProcess[str]]
# The program takes 0.1 s and prints what it copied; the other one prints nothing that the pattern matches.
SUITE = """\
format: 1
summary: a copy that prints its rate, and one that prints none
time_limit: 60
commands:
  copy:
    program: copy_file
    arguments: ["{directory}/input", "{scratch}/out"]
    prepare: [[touch, "{scratch}/out"]]
    metrics:
      copy: {pattern: 'copied at ([0-9.]+) MiB/s', unit: MiB/s}
  silent:
    program: echo
    arguments: [nothing to see]
    metrics:
      copy: {pattern: 'copied at ([0-9.]+) MiB/s', unit: MiB/s}
defaults: {repeat: 2}
matrix:
  - {command: [copy, silent]}
"""
PROGRAM = """\
#!/bin/sh
sleep 0.1
[ -e "$2" ] || exit 1
cp "$1" "$2" && echo "copied at 12.5 MiB/s"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands") / "site"


@pytest.fixture(scope="module")
def iowatch(site: Path) -> Iowatch:
    """The command line in the repository of a site that has the suite, and its program on PATH."""
    programs = site.parent / "bin"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IOWATCH_")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "iowatch", *words],
            env=environment,
            cwd=site if site.exists() else site.parent,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    run("init", str(site))
    suite = site / "suites" / "command" / "copy.yaml"
    suite.parent.mkdir(parents=True)
    suite.write_text(SUITE)
    (suite.parent / "input").write_text("words")
    programs.mkdir()
    (programs / "copy_file").write_text(PROGRAM)
    (programs / "copy_file").chmod(0o755)
    return run


@pytest.fixture(scope="module")
def stack(iowatch: Iowatch) -> str:
    stacks = json.loads(iowatch("stack", "list", "--json").stdout)["stacks"]
    return next(str(entry["name"]) for entry in stacks if entry["status"] == "installed")


def test_command_is_run_and_stored_with_its_output(iowatch: Iowatch, site: Path, stack: str) -> None:
    session = iowatch("run", "--suite", "copy", "--stack", stack, "--json", code=1)
    verdict: dict[str, Any] = json.loads(session.stdout)
    # Of two cases with two results each, one case failed.
    assert (verdict["expected"], verdict["received"]) == (4, 2)
    with History.open(str(site / "var" / "iowatch.db")) as history:
        (row,) = history.sessions()
        runs = {run.name: run for run in history.runs(row.uuid)}
        samples = {}
        for series in history.series():
            ((_time, _run, values),) = history.samples(series.id)
            samples[series.metric] = values
        kept_files = {
            name: {artefact.kind: artefact.size_bytes for artefact in history.artefacts(run.id)}
            for name, run in runs.items()
        }
    assert samples["bandwidth"] == (12.5, 12.5)
    # Two starts of at least 0.1 s each.
    assert [0.1 <= seconds < 5 for seconds in samples["time"]] == [True, True]
    failed = runs["command:command=silent"]
    assert "matches nothing in the output; searched was 'nothing to see'" in str(failed.reason)
    for files in kept_files.values():
        assert files["stdout"] > 0
        assert files["configuration"] > 0


def test_command_is_measured_in_pairs(iowatch: Iowatch, stack: str) -> None:
    """No command knows the benchmark: an A/B run needs nothing more than a session."""
    words = ("--suite", "copy", "--case", "command:command=copy", "--pairs", "2", "--json")
    report = json.loads(iowatch("run", "--ab", stack, stack, *words).stdout)
    assert {pair["metric"] for pair in report["pairs"]} == {"bandwidth", "time"}
