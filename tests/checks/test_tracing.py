"""Darshan in the job script: only the processes of the benchmark load the library."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.checks import ExtraWork, OrderedRun, RunOrder
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.checks.tracing import missing_trace, trace_program
from tests.builders import build_checked_run

PROGRAM = ("/apps/bench", "-w")


def traced_run(directory: Path, **fields: object) -> CheckedRun:
    """A run on a stack with darshan-runtime."""
    library = directory / "libdarshan.so"
    library.touch()
    stack = {"parts": [{"name": "darshan-runtime", "files": [str(library)]}]}
    return build_checked_run(directory, stack=stack, is_traced=True, **fields)


def traced_command(run: CheckedRun) -> str:
    return " ".join(trace_program(run, JobScript(command=PROGRAM)).command)


def test_only_the_benchmark_loads_the_library(tmp_path: Path) -> None:
    script = trace_program(traced_run(tmp_path), JobScript(command=PROGRAM))
    settings, _, program = " ".join(script.command).removeprefix("env ").partition(" sh -c ")
    assert program.endswith(" sh /apps/bench -w")
    names = dict(setting.split("=", 1) for setting in settings.split())
    assert names["DARSHAN_LOGFILE"] == f"{tmp_path}/darshan/trace.darshan"
    assert "DXT_ENABLE_IO_TRACE" not in names
    assert "DARSHAN_ENABLE_NONMPI" not in names
    assert not any("LD_PRELOAD" in line for line in (*script.before, *script.after))


def test_library_is_appended_to_the_preload_of_the_process(tmp_path: Path) -> None:
    """A stack's own preload, set for the program by a launcher, stays first and stays in force."""
    shown = traced_command(traced_run(tmp_path)).replace("/apps/bench -w", "printenv LD_PRELOAD")
    values = {}
    for own in ("", "/stack/libdelay.so"):
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(
            ["sh", "-c", f"exec env {'LD_PRELOAD=' + own if own else ''} {shown}"],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        values[own] = done.stdout.strip()
    assert values[""].endswith("/libdarshan.so")
    assert values["/stack/libdelay.so"] == f"/stack/libdelay.so:{values['']}"


def test_run_that_is_not_traced_is_as_it_was(tmp_path: Path) -> None:
    script = JobScript(command=PROGRAM)
    assert trace_program(replace(traced_run(tmp_path), is_traced=False), script) == script


@pytest.mark.parametrize("asked", [False, True])
def test_accesses_are_kept_where_they_are_asked_for(asked: bool, tmp_path: Path) -> None:
    assert ("DXT_ENABLE_IO_TRACE=1" in traced_command(traced_run(tmp_path, traces_accesses=asked))) == asked


def test_scratch_directory_is_traced_on_any_path(tmp_path: Path) -> None:
    configuration = "\n".join(trace_program(traced_run(tmp_path), JobScript(command=PROGRAM)).before)
    assert "NAME_INCLUDE ^/var/scratch/x\\.y/iowatch\\-s1/" in configuration
    # With more than one writer, Open MPI's MPI-IO damages logs (docs/darshan.md).
    assert "LOGHINTS romio_no_indep_rw=true;cb_nodes=1" in configuration


@pytest.mark.parametrize("by_session", [False, True])
def test_overhead_is_measured_in_pairs_of_alternating_order(
    by_session: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session orders it, or the user of plain ReFrame names the case."""
    run = traced_run(tmp_path)
    if by_session:
        ordered = OrderedRun(run.key, (ExtraWork("overhead", 1, 1.0, 1.0),))
        run = replace(run, order=RunOrder(runs=(ordered,)))
    else:
        monkeypatch.setenv("IOWATCH_OVERHEAD_CASE", "ior")
    lines = trace_program(run, JobScript(command=PROGRAM)).after
    names = [line.split('"')[1].split()[0] for line in lines if line.startswith("echo")]
    assert names[:4] == ["untraced", "traced", "traced", "untraced"]
    assert names.count("traced") == names.count("untraced") == 5
    started = [line for line in lines if line.startswith("started=")]
    assert ["LD_PRELOAD" in line for line in started] == [name == "traced" for name in names]
    assert all("; mpirun -np 4 " in line for line in started)


@pytest.mark.parametrize(("traced", "starts", "reason"), [(True, 1, None), (True, 2, "start-1"), (False, 2, None)])
def test_traced_run_without_a_log_of_each_start_fails(
    tmp_path: Path, traced: bool, starts: int, reason: str | None
) -> None:
    """The first start left its log, the second did not."""
    (tmp_path / "darshan").mkdir()
    (tmp_path / "darshan" / "start-0.darshan").touch()
    found = missing_trace(build_checked_run(tmp_path, is_traced=traced), starts)
    assert found is None if reason is None else found is not None and reason in found
