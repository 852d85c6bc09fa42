"""README, "To add": one entry, one check and one suite add a benchmark to all commands; tested in a copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(
        shutil.which("mpicc") is None or shutil.which("mpirun") is None,
        reason="needs an MPI compiler (mpicc); ci/setup names the package",
    ),
]

ENTRY = '''
"""madeup: a benchmark of one line."""

import re

from iowatch.benchmarks.benchmark import Benchmark, ProgramProbe, repetitions
from iowatch.benchmarks.options import RANKS, declare_options, repeat_option
from iowatch.benchmarks.parsing import FailureSignature

_LINE = re.compile(r"write ([0-9.]+) MiB/s on ([0-9]+) ranks")


def parse_madeup(builder, lines, context):
    found = [match for line in lines if (match := _LINE.fullmatch(line))]
    for match in found:
        builder.add_samples("write", "bandwidth", [float(match[1])], {"api": "POSIX", "ranks": int(match[2])})
    if not found:
        builder.add_truncation("no bandwidth was printed")


MADEUP = Benchmark(
    name="madeup",
    title="MadeUp",
    check="MadeupCheck",
    parse=parse_madeup,
    signatures=(FailureSignature("the made-up disk is broken", "madeup reports an error"),),
    banner="^madeup begins",
    package="madeup",
    probe=ProgramProbe("madeup", ("madeup", "--version"), "madeup ([0-9.]+)", uses_mpi=False),
    options=declare_options(RANKS, repeat_option(1, "repetitions")),
    program=lambda options: "madeup",
    arguments=lambda options, scratch: [str(options.number("repeat")), scratch],
    requires=lambda options: ("mpi", "madeup"),
    expects=lambda options: (("write", "bandwidth"),),
    samples=repetitions,
    file_bytes=lambda options: 1024,
    volume_bytes=lambda options: 1024,
)
'''
CHECK = """
import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class MadeupCheck(BenchmarkCheck):
    benchmark = "madeup"
    entry = parameter(entries("madeup"))
"""
SUITE = """
format: 1
summary: one write of MadeUp
reference: optional
time_limit: 60
defaults: {ranks: 1, repeat: 3}
matrix:
  - {}
"""
PROGRAM = """#!/bin/sh
[ "$1" = --version ] && { echo madeup 1.2; exit; }
echo madeup begins
for i in $(seq "$1"); do echo "write 12$i.5 MiB/s on 1 ranks"; done
"""

Iowatch = Callable[..., subprocess.CompletedProcess[str]]


def _add_benchmark(checkout: Path) -> None:
    """The three steps of README's table, and one row in the registry."""
    (checkout / "src/iowatch/benchmarks/madeup.py").write_text(ENTRY)
    registry = checkout / "src/iowatch/benchmarks/registry.py"
    text = re.sub(r"(return \(BENCHIO, .*)\)\n", r"\1, MADEUP)\n", registry.read_text(), count=1)
    text = text.replace("import MDTEST\n", "import MDTEST\n    from iowatch.benchmarks.madeup import MADEUP\n", 1)
    registry.write_text(text)
    (checkout / "reframe_tests/madeup.py").write_text(CHECK)
    (checkout / "benchmarks/madeup/suites").mkdir(parents=True)
    (checkout / "benchmarks/madeup/suites/added.yaml").write_text(SUITE)


@pytest.fixture(scope="module")
def iowatch(tmp_path_factory: pytest.TempPathFactory) -> Iowatch:
    """The command line of a copy of the checkout that has the new benchmark."""
    place = tmp_path_factory.mktemp("new_benchmark")
    checkout, programs = place / "checkout", place / "bin"
    for name in ("src", "reframe_tests", "benchmarks", "systems", "reference", "dashboards"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("build"))
    _add_benchmark(checkout)
    programs.mkdir()
    (programs / "madeup").write_text(PROGRAM)
    (programs / "madeup").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "IOWATCH_ROOT": str(checkout),
        "IOWATCH_VAR": str(place / "var"),
    }

    def run(*words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / ".venv" / "bin" / "iowatch"), *words]
        done = subprocess.run(
            command, env=environment, cwd=place, capture_output=True, text=True, timeout=300, check=False
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done

    return run


def _document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def stack(iowatch: Iowatch) -> str:
    stacks = _document(iowatch("stack", "list", "--json"))["stacks"]
    return str(next(found["name"] for found in stacks if found["status"] == "installed"))


@pytest.mark.slow
def test_new_benchmark_is_found_by_stacks_and_doctor(iowatch: Iowatch, stack: str) -> None:
    shown = _document(iowatch("stack", "show", stack, "--json"))
    assert "madeup" in shown["features"]
    assert next(part["version"] for part in shown["parts"] if part["name"] == "madeup") == "1.2"
    assert "madeup 1.2" in iowatch("stack", "list").stdout
    findings = _document(iowatch("doctor", "--json", code=None))["findings"]
    assert next(row["found"] for row in findings if row["title"] == "MadeUp")[0].startswith("1.2 (")


def test_new_benchmark_outputs_are_parsed(iowatch: Iowatch, tmp_path: Path) -> None:
    for command in ("parse", "import"):
        assert "madeup" in iowatch(command, "--help").stdout
    (tmp_path / "out.txt").write_text("madeup begins\nwrite 7.5 MiB/s on 4 ranks\n")
    (result,) = _document(iowatch("parse", "madeup", str(tmp_path / "out.txt"), "--json"))["results"]
    assert (result["samples"], result["case"]["ranks"]) == ([7.5], 4)
    (tmp_path / "bad.txt").write_text("write 7.5 MiB/s on 4 ranks\nthe made-up disk is broken\n")
    bad = _document(iowatch("parse", "madeup", str(tmp_path / "bad.txt"), "--json", code=1))
    assert "madeup reports an error" in bad["reason"]
    assert "'madeup'" in iowatch("parse", "madup", str(tmp_path / "bad.txt"), code=2).stderr
    mixed = _document(iowatch("parse", "mdtest", str(tmp_path / "out.txt"), "--json", code=1))
    assert "madeup also wrote into this output" in mixed["reason"]


@pytest.mark.slow
def test_new_benchmark_runs_in_a_session(iowatch: Iowatch, stack: str, tmp_path: Path) -> None:
    verdict = _document(iowatch("run", "--darshan", "off", "--suite", "added", "--stack", stack, "--json"))
    assert (verdict["expected"], verdict["received"]) == (1, 1)
    (headline,) = verdict["headlines"]
    assert (headline["run"], headline["value"], headline["samples"]) == ("madeup", 123.5, 3)
    assert "madeup" in iowatch("history", "show", verdict["session"]).stdout
    iowatch("dashboard", "build", "--output", str(tmp_path / "site"))
    assert any("madeup" in page.read_text() for page in (tmp_path / "site").rglob("*.html"))


@pytest.mark.slow
def test_new_benchmark_change_becomes_a_finding(iowatch: Iowatch, tmp_path: Path) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    files = []
    for session in range(40):
        value = (100 if session < 25 else 40) + session % 3
        path = tmp_path / f"out_{first + timedelta(days=session):%Y%m%d}.txt"
        path.write_text(f"madeup begins\nwrite {value}.5 MiB/s on 4 ranks\n")
        files.append(str(path))
    iowatch("import", "madeup", *files, "--system", "elsewhere")
    (finding,) = _document(iowatch("findings", "list", "--system", "elsewhere", "--json", code=1))["findings"]
    (member,) = finding["members"]
    assert (finding["date"], finding["direction"], member["parameters"]["benchmark"]) == (
        "2026-01-26",
        "down",
        "madeup",
    )
    assert "madeup write POSIX" in iowatch("findings", "show", finding["id"], code=None).stdout
