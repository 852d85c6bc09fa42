"""ReFrame's names of stacks, and the reports of ReFrame failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iowatch.checks import RunOrder, ordered_runs
from iowatch.core import InputError, settings
from iowatch.session import reframe
from iowatch.session.plan import make_session_plan
from iowatch.session.reframe import ReframeSite, load_site
from iowatch.site import machine
from tests.builders import build_suite_case

CONFIGURATION = """
site_configuration = {
    "systems": [
        {
            "name": "here",
            "hostnames": ["^$"],
            "partitions": [
                {
                    **{"name": "work", "scheduler": "local", "launcher": "mpirun"},
                    **{"environs": ["n_4_4_0"], "time_limit": "1h"},
                }
            ],
        }
    ],
    "environments": [{"name": "n_4_4_0", "features": ["mpi"], "extras": {"stack": "n-4.4.0"}}],
}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReframeSite:
    place = tmp_path / "systems" / "here"
    place.mkdir(parents=True)
    (place / "reframe.py").write_text(CONFIGURATION)
    monkeypatch.setattr(settings, "product_root", lambda: tmp_path)
    return load_site("here")


def test_stacks_keep_their_names_with_reframe_environment_names(
    site: ReframeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_session_plan(site, [build_suite_case("api=posix", api="posix", local="8x8x8", ranks=2)])
    assert [run.stack for run in plan.runs] == ["n-4.4.0"]
    monkeypatch.setattr(reframe, "check_path", lambda name: tmp_path / f"{name}.py")
    order = RunOrder(suite="smoke", runs=ordered_runs(run.key for run in plan.runs))
    words = reframe.reframe_command(site, order, tmp_path)
    assert words[words.index("-p") + 1] == "^n_4_4_0$"


@pytest.mark.parametrize(
    ("logging", "level", "files"),
    [("", "info", 0), ('"logging": [{"level": "debug", "handlers": [{"type": "file", "name": "x"}]}],', "debug", 1)],
)
def test_sessions_have_no_debug_log_unless_the_system_has_one(
    site: ReframeSite, tmp_path: Path, logging: str, level: str, files: int
) -> None:
    """ReFrame shows its settings; with its own ones it writes a debug log, at a cost greater than that of its work."""
    text = site.configuration.read_text().replace("site_configuration = {", "site_configuration = {" + logging)
    site.configuration.write_text(text.replace('"^$"', '".*"'))
    words = reframe.reframe_command(site, RunOrder(suite="smoke", runs=()), tmp_path)[:-1]
    done = subprocess.run([*words, "--show-config=logging"], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)[0]
    assert (shown["level"], len(shown["handlers"])) == (level, files)


def test_partition_with_undefined_environment_is_reported(site: ReframeSite) -> None:
    configuration = site.configuration.read_text()
    site.configuration.write_text(configuration.replace('"environs": ["', '"environs": ["builtin", "'))
    with pytest.raises(InputError, match=r"reframe\.py: no environment is called 'builtin'"):
        load_site("here")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("class IorCheck\n", "expected ':'"),
        ("class IorTest: ...\n", "no class 'IorCheck'; it defines IorTest"),
        ("class IorCheck: ...\n", None),
    ],
)
def test_check_that_cannot_run_is_refused(site: ReframeSite, tmp_path: Path, text: str | None, problem: str) -> None:
    (tmp_path / "reframe_tests").mkdir()
    if text:
        (tmp_path / "reframe_tests" / "ior.py").write_text(text)
    if problem is None:
        assert reframe.check_path("ior").is_file()
        return
    with pytest.raises(InputError, match=problem):
        reframe.check_path("ior")


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: failed to load configuration: why",
        "WARNING: check path '/x/ior.py' does not exist",
        "WARNING: skipping test 'IorCheck': value error: why",
        "SyntaxError: invalid syntax",
    ],
)
def test_startup_failure_has_the_cause(tmp_path: Path, line: str) -> None:
    """Lines of ReFrame 4.10; other lines follow them."""
    (tmp_path / "reframe.log").write_text(
        f"[ReFrame Setup]\n{line}\n| /x/ior.py:1\n[  PASSED  ] Ran 0/0\nLog file(s)\n"
    )
    assert line in str(reframe.startup_failure_reason(tmp_path))


def test_failures_name_the_stack(site: ReframeSite, tmp_path: Path) -> None:
    case = {
        "result": "fail",
        "name": "t",
        "environ": "n_4_4_0",
        "fail_phase": "run",
        "fail_reason": "job error: no\n time",
        "fail_info": {"exc_type": "JobError", "exc_value": "no\n time", "traceback": []},
    }
    (tmp_path / "report.json").write_text(json.dumps({"runs": [{"testcases": [case]}]}))
    assert reframe.read_failures(tmp_path, site) == [
        reframe.ReframeFailure("t", "n-4.4.0", "run", "job error: no time", "JobError", "no time")
    ]


def test_job_cancelled_in_the_queue_names_the_limit(site: ReframeSite, tmp_path: Path) -> None:
    """The reason is that of ReFrame 4.10 with PBS and Flux; with Slurm the check reports it."""
    case = {"result": "fail", "name": "t", "environ": "n_4_4_0", "fail_phase": "run"}
    case |= {"fail_reason": "[jobid=7] maximum pending time exceeded"}
    (tmp_path / "report.json").write_text(json.dumps({"runs": [{"testcases": [case]}]}))
    (failure,) = reframe.read_failures(tmp_path, site)
    assert failure.reason.startswith("[jobid=7] cancelled by iowatch: it waited longer in the queue than queue_minutes")


def test_missing_report_is_a_failure_of_reframe(site: ReframeSite, tmp_path: Path) -> None:
    (tmp_path / "reframe.log").write_text("starting\nERROR: failed to load configuration: why\nsaved\n")
    (failure,) = reframe.read_failures(tmp_path, site)
    assert (failure.test, failure.stack) == ("ReFrame", "")
    assert "ERROR: failed to load configuration: why" in failure.reason


IGNORES_SIGTERM = """
import signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("ready").touch()
try:
    time.sleep(120)
except KeyboardInterrupt:
    Path("ended").touch()
"""


@pytest.mark.parametrize("of_the_shell", [signal.default_int_handler, signal.SIG_IGN])
def test_ended_run_kills_a_reframe_that_ignores_sigterm(tmp_path: Path, of_the_shell: Any) -> None:
    """ReFrame can ignore SIGTERM if its exception is lost; shells ignore interrupts in the background."""

    def interrupted() -> None:
        if (tmp_path / "ready").exists():
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, of_the_shell)
    try:
        with pytest.raises(KeyboardInterrupt):
            reframe.run_reframe([sys.executable, "-c", IGNORES_SIGTERM], tmp_path, {}, interrupted)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_reframe_first(tmp_path: Path, number: signal.Signals) -> None:
    """SIGHUP is that of a closed terminal."""

    def send_signal() -> None:
        if (tmp_path / "ready").exists():
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        reframe.run_reframe([sys.executable, "-c", IGNORES_SIGTERM], tmp_path, {}, send_signal)
    assert (tmp_path / "ended").exists()
    assert signal.getsignal(number) is before


def test_reframe_on_path_is_used_where_python_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spack installs each package into a directory of its own."""
    for place in ("python/bin", "reframe/bin"):
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.setattr(machine.sys, "executable", str(tmp_path / "python/bin/python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "reframe/bin"))
    assert machine.reframe_program() == str(tmp_path / "python/bin/reframe")  # named in the message that it is absent
    for place in ("reframe/bin", "python/bin"):
        program = tmp_path / place / "reframe"
        program.write_text("")
        program.chmod(0o755)
        assert machine.reframe_program() == str(program)


def test_jobs_of_a_session_in_a_job_do_not_get_the_variables_of_the_outer_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sbatch` exports them: a run would be reported as requeued, or get the tasks per node of the outer job."""
    outer = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "3", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CONF": "/etc/s.conf"}
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", "import os; print(*[n for n in os.environ if n.startswith('SLURM_')])"]
    monkeypatch.setattr(reframe, "reframe_command", lambda *_: command)
    for scheduler, names in (("slurm", ["SLURM_CONF"]), ("local", [*outer])):
        # In an allocation ReFrame's scheduler is `local`, and the launcher needs them.
        partition = reframe.ReframePartition("default", scheduler, ("gnu",), None)
        site = reframe.ReframeSite("big", tmp_path / "reframe.py", (partition,), {})
        reframe.execute_order(site, RunOrder(), tmp_path, lambda: None)
        assert sorted((tmp_path / "reframe.log").read_text().split()) == sorted(names)
