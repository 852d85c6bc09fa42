"""The job script of DarshanMixin: only the processes of the benchmark load the library."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.reframe_server import run_reframe

MakeScript = Callable[..., list[str]]

SETTINGS = """
site_configuration = {{
    "systems": [{{
        "name": "here", "hostnames": [".*"],
        "partitions": [{{"name": "p", "scheduler": "local", "launcher": "mpirun", "environs": {environs}}}],
    }}],
    "environments": [
        {{"name": "with", "features": ["darshan"], "extras": {{"stack_json": {stack!r}}}}},
        {{"name": "without", "features": [], "extras": {{"stack_json": {stack!r}}}}},
    ],
}}
"""
CHECK = """
import sys
sys.path.insert(0, {root!r})
from types import SimpleNamespace
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function
from reframe_tests.mixins.darshan import DarshanMixin
from reframe_tests.mixins.stack import StackMixin

@rfm.simple_test
class Traced(DarshanMixin, StackMixin, rfm.RunOnlyRegressionTest):
    valid_systems, valid_prog_environs = ["*"], ["*"]
    benchmark, executable, executable_opts, num_tasks = "bench", "/apps/bench", ["-w"], 4
    case = SimpleNamespace(name="one", trace={trace!r}, tool=SimpleNamespace(probes={probes!r}))
    scratch_directory = "/var/scratch/x.y"

    @sanity_function
    def fine(self):
        return sn.assert_true(True)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> MakeScript:
    """A function that returns the lines of an environment's job script; ReFrame is started once per environment."""
    tmp_path = tmp_path_factory.mktemp("mixin")
    library = tmp_path / "libdarshan.so"
    library.touch()
    stack = tmp_path / "stack.json"
    parts = [{"name": "darshan-runtime", "files": [str(library)]}]
    stack.write_text(json.dumps({"format": 1, "parts": parts}))

    @cache
    def make(
        environment: str, trace: str = "counters", options: tuple[str, ...] = (), probes: str = "", **settings: str
    ) -> list[str]:
        (tmp_path / "settings.py").write_text(SETTINGS.format(environs=[environment], stack=str(stack)))
        (tmp_path / "check.py").write_text(CHECK.format(root=str(ROOT), trace=trace, probes=probes))
        words = ["-C", "settings.py", "-c", "check.py", "--dry-run", "--prefix", "out", *options]
        run = run_reframe(words, tmp_path, os.environ | settings)
        assert run.returncode == 0, run.stdout
        found = sorted((tmp_path / "out").rglob("rfm_job.sh"), key=lambda path: path.stat().st_mtime)
        return found[-1].read_text().splitlines()

    return make


def start(lines: list[str]) -> str:
    return next(line for line in lines if line.startswith("mpirun"))


def test_only_the_benchmark_loads_the_library(script: MakeScript) -> None:
    lines = script("with")
    launcher, _, rest = start(lines).partition(" env ")
    assert launcher == "mpirun -np 4"
    settings, _, program = rest.partition(" sh -c ")
    assert program.endswith(" sh /apps/bench -w")
    names = dict(setting.split("=", 1) for setting in settings.split())
    assert names["DARSHAN_LOGFILE"].endswith("/darshan/trace.darshan")
    assert "DXT_ENABLE_IO_TRACE" not in names
    assert "DARSHAN_ENABLE_NONMPI" not in names
    assert not any("LD_PRELOAD" in line for line in lines if not line.startswith("mpirun"))


def test_library_is_appended_to_the_preload_of_the_process(script: MakeScript, tmp_path: Path) -> None:
    """A stack's own preload, set for the program by a launcher, stays first and stays in force."""
    _, _, rest = start(script("with")).partition(" env ")
    shown = rest.replace("/apps/bench -w", "printenv LD_PRELOAD")
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


@pytest.mark.parametrize("settings", [{"options": ("-S", "darshan=no")}, {"IOWATCH_DARSHAN": "off"}])
def test_tracing_can_be_switched_off(settings: dict[str, Any], script: MakeScript) -> None:
    assert start(script("with", **settings)) == "mpirun -np 4 /apps/bench -w"


def test_dxt_can_be_switched_off_and_on(script: MakeScript) -> None:
    """ReFrame converts the text of -S: `bool("no")` would be true."""
    for value, found in (("no", False), ("yes", True)):
        lines = script("with", options=("-S", f"darshan_dxt={value}"))
        assert ("DXT_ENABLE_IO_TRACE=1" in start(lines)) == found


def test_unclear_switch_is_refused(script: MakeScript) -> None:
    with pytest.raises(AssertionError, match="darshan"):
        script("with", options=("-S", "darshan=sometimes"))


def test_scratch_directory_is_traced_on_any_path(script: MakeScript) -> None:
    configuration = "\n".join(script("with"))
    assert "NAME_INCLUDE ^/var/scratch/x\\.y *" in configuration
    # With more than one writer, Open MPI's MPI-IO damages logs (docs/darshan.md).
    assert "LOGHINTS romio_no_indep_rw=true;cb_nodes=1" in configuration


def test_suite_can_request_dxt(script: MakeScript) -> None:
    assert "DXT_ENABLE_IO_TRACE=1" in start(script("with", trace="dxt"))


def test_stack_without_darshan_runs_untraced(script: MakeScript) -> None:
    lines = script("without")
    assert start(lines) == "mpirun -np 4 /apps/bench -w"
    assert not any("darshan" in line for line in lines)


def test_probe_is_not_traced(script: MakeScript) -> None:
    """It has no I/O calls of its own that a person would look at, or none at all."""
    lines = script("with", probes="raw disk")
    assert start(lines) == "mpirun -np 4 /apps/bench -w"
    assert not any("LD_PRELOAD" in line for line in lines)


def test_overhead_is_measured_in_pairs_of_alternating_order(script: MakeScript) -> None:
    lines = script("with", IOWATCH_OVERHEAD_CASE="bench:one")
    kinds = [line.split('"')[1].split()[0] for line in lines if line.startswith("echo")]
    assert kinds[:4] == ["untraced", "traced", "traced", "untraced"]
    assert kinds.count("traced") == kinds.count("untraced")
    started = [line for line in lines if line.startswith("started=")]
    assert ["LD_PRELOAD" in line for line in started] == [kind == "traced" for kind in kinds]


@pytest.mark.parametrize(("traced", "starts", "reason"), [(True, 1, None), (True, 2, "start-1"), (False, 2, None)])
def test_traced_run_without_a_log_of_each_start_fails(
    tmp_path: Path, traced: bool, starts: int, reason: str | None
) -> None:
    """The first start left its log, the second did not."""
    from reframe_tests.mixins.darshan import DarshanMixin

    (tmp_path / "darshan").mkdir()
    (tmp_path / "darshan" / "start-0.darshan").touch()
    check: Any = SimpleNamespace(stagedir=tmp_path, is_traced=traced)
    found = DarshanMixin.missing_trace(check, starts)
    assert found is None if reason is None else found is not None and reason in found
