"""`systems/_template` as a PBS and as a Flux machine: complete sessions, with mock-ups of the schedulers.

The mock-ups follow the manuals (PBS Professional Reference Guide 2022.1, "qsub", "qstat"; flux-run(1)): scripts are
made by ReFrame, jobs run on this machine, MPI is real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from iowatch.site.trial import try_partitions
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(
        shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc); ci/setup names the package"
    ),
]

# Runs the job at once and writes its files as the options require; the script is kept. The job whose number
# is in the file `killed` is ended by the server before it writes output.
QSUB = """#!/bin/bash
number=$(ls "$JOBS" | grep -c script); number=$((number + 1))
while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; -e) err=$2 ;; esac; shift 2; done
cp "$1" "$JOBS/$number.script"
if [ "$(cat "$JOBS/killed" 2>/dev/null)" != "$number" ]; then bash "$1" >"$out" 2>"$err"; fi
echo "$number.server"
"""
QSTAT = """#!/bin/bash
id=${@: -1}
if [ "$2 $3" = "-F json" ]; then
  printf '{"Jobs": {"%s": {"job_state": "F", "Exit_status": 0, "exec_host": "n1/0*2"}}}\\n' "$id"
else
  printf 'Job Id: %s\\n    job_state = F\\n    comment = exceeded resource walltime\\n' "$id"
  printf '    Exit_status = -29\\n'
fi
"""
# `flux run -n 2 [-N 1] [--exclusive] program …`: ranks on this machine instead of on the allocation's nodes.
FLUX = """#!/bin/bash
echo "$*" >> "$JOBS/flux"
shift
while [ $# -gt 0 ]; do
  case $1 in -n) ranks=$2; shift 2 ;; -N) shift 2 ;; --exclusive) shift ;; *) break ;; esac
done
exec mpirun -np "$ranks" "$@"
"""


@pytest.fixture(scope="module")
def stack() -> str:
    """The name of one installed stack."""
    from iowatch.site.stack.load import discover_stacks

    return next(found.name for found in discover_stacks("local") if found.status == "installed")


@pytest.fixture(scope="module")
def var(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that benchio is built once."""
    return tmp_path_factory.mktemp("batch") / "var"


def machine(place: Path, scheduler: str, **programs: str) -> tuple[Path, dict[str, str]]:
    """A checkout whose only system is the template with another scheduler; the environment to run it in."""
    root, bin_, jobs = place / "checkout", place / "bin", place / "jobs"
    for directory in (root / "systems" / "cluster", bin_, jobs):
        directory.mkdir(parents=True)
    for name in ("benchmarks", "reference", "reframe_tests", "spack.yaml"):
        (root / name).symlink_to(ROOT / name)
    template = ROOT / "systems" / "_template"
    text = (template / "reframe.py").read_text()
    for setting, value in (
        ("SCHEDULER", scheduler),
        ("PARTITIONS", [{"name": "work", "queue": "long", "cores": 4, "time_limit": "5m"}]),
        ("ACCESS", ["-A project"] if scheduler == "pbs" else []),
    ):
        text, found = re.subn(rf"^{setting} = (\[\n(?:    .*\n)*\]|.*)$", f"{setting} = {value!r}", text, flags=re.M)
        assert found == 1, setting
    (root / "systems" / "cluster" / "reframe.py").write_text(text)
    facts = (template / "system.yaml").read_text().replace("name: template", "name: cluster")
    (root / "systems" / "cluster" / "system.yaml").write_text(facts.replace("free_bytes: 10g", "free_bytes: 1m"))
    for name, program in programs.items():
        (bin_ / name).write_text(program)
        (bin_ / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IOWATCH_")}
    path = f"{bin_}:{os.environ['PATH']}"
    return jobs, {**kept, "IOWATCH_ROOT": str(root), "PATH": path, "JOBS": str(jobs)}


def run(environment: dict[str, str], var: Path, stack: str) -> tuple[int, dict[str, object]]:
    # A machine without a past: of earlier sessions, only the built benchio stays.
    for path in [*var.glob("iowatch.db*"), *var.glob("sessions/*")]:
        path.unlink()
    words = [str(ROOT / ".venv" / "bin" / "iowatch"), "run", "--system", "cluster", "--suite", "tiny", "--json"]
    done = subprocess.run(
        [*words, "--stack", stack],
        env={**environment, "IOWATCH_VAR": str(var)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_session_runs_on_a_pbs_system(tmp_path: Path, var: Path, stack: str) -> None:
    jobs, environment = machine(tmp_path, "pbs", qsub=QSUB, qstat=QSTAT)
    code, verdict = run(environment, var, stack)
    assert (code, verdict["status"], verdict["received"]) == (0, "ok", 6), verdict
    scripts = [path.read_text() for path in sorted(jobs.glob("*.script"))]
    assert len(scripts) == 3
    for script in scripts:
        options = re.findall(r"^#PBS (.*)$", script, re.MULTILINE)
        assert {"-A project", "-q long", "-l place=excl", "-l walltime=0:1:0"} <= set(options)
        assert "-l select=1:mpiprocs=2:ncpus=2" in options
        assert "mpirun -np 2 " in script


@pytest.mark.slow
def test_job_ended_by_pbs_is_reported_with_its_reason(tmp_path: Path, var: Path, stack: str) -> None:
    jobs, environment = machine(tmp_path, "pbs", qsub=QSUB, qstat=QSTAT)
    (jobs / "killed").write_text("2")
    code, verdict = run(environment, var, stack)
    assert (code, verdict["status"], verdict["received"]) == (1, "incomplete", 4), verdict
    (failed,) = verdict["failed"]
    assert "job 2.server: state F, reason exceeded resource walltime, exit status -29" in failed["reason"]


@pytest.mark.slow
def test_session_runs_on_a_flux_system(tmp_path: Path, var: Path, stack: str) -> None:
    jobs, environment = machine(tmp_path, "flux", flux=FLUX)
    code, verdict = run(environment, var, stack)
    assert (code, verdict["status"], verdict["received"]) == (0, "ok", 6), verdict
    started = (jobs / "flux").read_text().splitlines()
    # With Darshan, the first case is started more often, to measure the overhead of tracing.
    assert len({re.findall(r" --dir=(\S+)", line)[0] for line in started}) == 3
    assert all(line.startswith("run -n 2 -N 1 --exclusive ") for line in started)


@pytest.mark.parametrize(
    ("qsub", "status", "answer"),
    [
        (QSUB, "ran", ""),
        ("#!/bin/sh\necho 'qsub: Unauthorized Request' >&2; exit 159\n", "refused", "qsub: Unauthorized Request"),
    ],
)
def test_new_pbs_system_is_tried_with_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qsub: str, status: str, answer: str
) -> None:
    """As `iowatch system init` does."""
    _, environment = machine(tmp_path, "pbs", qsub=qsub, qstat=QSTAT)
    for name in ("PATH", "JOBS"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "var"))
    (found,) = try_partitions("pbs", ["long"], ["-A project"], tmp_path / "scratch")
    assert (found.status, found.answer) == (status, answer)
    assert found.submitted == "-r n -A project -q long -l place=excl"
