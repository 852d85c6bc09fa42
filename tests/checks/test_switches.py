"""Switches of plain ReFrame for Darshan, on a job that is composed and not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iowatch.checks import RunOrder
from tests.checks.orders import order_variables
from tests.conftest import ROOT
from tests.reframe_server import run_reframe

SETTINGS = """
site_configuration = {{
    "systems": [{{
        "name": "here", "hostnames": [".*"],
        "partitions": [{{"name": "p", "scheduler": "local", "launcher": "mpirun", "environs": ["gnu"]}}],
    }}],
    "environments": [{{"name": "gnu", "features": {features!r}}}],
}}
"""
SUITE = "format: 1\nsummary: x\nreference: none\n{fields}\nmatrix: [{{{options}}}]\n"
FEATURES = ["mpi", "ior", "fio", "darshan"]
WRITE = "op: write, api: posix, file: per-process, ranks: 4, block: 1m, repeat: 1"


def start_of_program(
    directory: Path,
    *options: str,
    order: RunOrder | None = None,
    features: list[str] = FEATURES,
    benchmark: str = "ior",
    case: str = WRITE,
    fields: str = "",
) -> str:
    """The line of the job's script that starts the program.

    Args:
        case: options of the only case of the suite; fields: further lines of its file.
    """
    suite = directory / "root" / "benchmarks" / benchmark / "suites" / "mine.yaml"
    for folder in (suite.parent, directory / "root" / "systems"):
        folder.mkdir(parents=True, exist_ok=True)
    suite.write_text(SUITE.format(options=case, fields=fields))
    (directory / "settings.py").write_text(SETTINGS.format(features=features))
    environment = {**os.environ, "IOWATCH_ROOT": str(directory / "root"), "IOWATCH_VAR": str(directory / "var")}
    if order is not None:
        environment |= order_variables(directory / "order", order)
    words = ["-C", "settings.py", "-c", str(ROOT / "reframe_tests" / f"{benchmark}.py"), "--dry-run"]
    done = run_reframe([*words, "--prefix", "out", *options], directory, environment)
    assert done.returncode == 0, done.stdout
    (script,) = (directory / "out").rglob("rfm_job.sh")
    lines = script.read_text().splitlines()
    program = "fio" if benchmark == "fio" else "ior -"
    return next(line for line in lines if line.startswith("mpirun") and f" {program}" in line)


def test_run_on_a_stack_with_darshan_is_traced(tmp_path: Path) -> None:
    assert start_of_program(tmp_path).startswith("mpirun -np 4 env DARSHAN_LOGFILE=")


@pytest.mark.parametrize("by_session", [False, True])
def test_tracing_can_be_switched_off(by_session: bool, tmp_path: Path) -> None:
    if by_session:
        start = start_of_program(tmp_path, order=RunOrder(is_traced=False))
    else:
        start = start_of_program(tmp_path, "-S", "darshan=no")
    assert start.startswith("mpirun -np 4 ior ")


@pytest.mark.parametrize(("value", "found"), [("no", False), ("yes", True)])
def test_dxt_can_be_switched_off_and_on(value: str, found: bool, tmp_path: Path) -> None:
    """ReFrame converts the text of -S: `bool("no")` would be true."""
    start = start_of_program(tmp_path, "-S", f"darshan_dxt={value}")
    assert ("DXT_ENABLE_IO_TRACE=1" in start) == found


def test_suite_can_request_dxt(tmp_path: Path) -> None:
    assert "DXT_ENABLE_IO_TRACE=1" in start_of_program(tmp_path, fields="trace: dxt")


def test_unclear_switch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="darshan"):
        start_of_program(tmp_path, "-S", "darshan=sometimes")


def test_stack_without_darshan_runs_untraced(tmp_path: Path) -> None:
    start = start_of_program(tmp_path, features=["mpi", "ior"])
    assert start.startswith("mpirun -np 4 ior ")


def test_probe_is_not_traced(tmp_path: Path) -> None:
    """It has no I/O calls of its own that a person would look at, or none at all."""
    start = start_of_program(tmp_path, benchmark="fio", case="total: 1m")
    assert "LD_PRELOAD" not in start
    assert "DARSHAN" not in start
