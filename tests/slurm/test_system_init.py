"""`iowatch system init` on a real terminal and a real Slurm of one node."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iowatch.site import trial

from .conftest import Cluster

# In front of Slurm's own: jobs without this account are refused, as by a Slurm with accounting.
SBATCH = """#!/bin/sh
grep -q -- '--account=abc' "$1" && exec {} "$@"
echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2
exit 1
"""


def talk(words: list[str], answers: list[str], environment: dict[str, str], place: Path) -> tuple[int, str]:
    """Run a program on a terminal and type an answer whenever a line ends with `: `; return exit code and output."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(place)
        os.execve(words[0], words, environment)
    shown, asked, end = "", 0, time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 4096).decode()
        except OSError:  # the program has ended
            break
        if answers and shown[asked:].endswith(": "):
            asked = len(shown)
            os.write(terminal, f"{answers.pop(0)}\n".encode())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.replace("\r\n", "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An empty repository of a site."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").write_text("title: Ours\n")
    return tmp_path / "site"


@pytest.mark.slow
def test_three_answers_describe_a_cluster(cluster: Cluster, site: Path, tmp_path: Path) -> None:
    """A wrong scratch directory, the right one, and the account that the scheduler asks for."""
    (tmp_path / "sbatch").write_text(SBATCH.format(shutil.which("sbatch")))
    (tmp_path / "sbatch").chmod(0o755)
    environment = {**cluster.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}", "IOWATCH_SITE": str(site)}
    for name in ("SCRATCH", "WORK", "IOWATCH_ROOT", "IOWATCH_TIMEZONE"):
        environment.pop(name, None)
    program = str(Path(sys.executable).with_name("iowatch"))
    scratch = tmp_path / "scratch"
    answers = ["/no/such/io", str(scratch), "abc"]
    code, shown = talk([program, "system", "init", "mine"], answers, environment, site)
    assert (code, answers) == (0, []), shown
    assert "No such file or directory: /no/such" in shown
    assert (
        "partition node: refused\n"
        "  submitted: --no-requeue --partition=node --exclusive\n"
        "  answer: sbatch: error: Batch job submission failed: Invalid account"
    ) in shown
    assert f"partition node: a job ran, and wrote and removed a file in {scratch}" in shown
    settings = (site / "systems" / "mine" / "reframe.py").read_text()
    assert 'ACCESS = ["--account=abc"]' in settings
    assert (
        "# Verified: partition node: a job ran with --no-requeue --account=abc --partition=node --exclusive."
        in settings
    )
    assert list(scratch.iterdir()) == []
    assert list(cluster.var.glob("trial-*")) == []
    assert cluster.query("squeue", "--noheader") == ""
    done = subprocess.run([program, "system", "show", "mine"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def paid(cluster: Cluster) -> Iterator[str]:
    """A second partition of the node, for an account that nobody has."""
    cluster.query("scontrol", "create", "PartitionName=paid", "Nodes=ALL", "AllowAccounts=abc")
    yield "paid"
    cluster.query("scontrol", "delete", "PartitionName=paid")


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process uses the cluster."""
    for name in ("SLURM_CONF", "IOWATCH_VAR"):
        monkeypatch.setenv(name, cluster.environment[name])


@pytest.mark.usefixtures("here")
def test_job_that_does_not_see_the_scratch_directory_is_reported(tmp_path: Path) -> None:
    (found,) = trial.try_partitions("squeue", ["node"], [], tmp_path / "not" / "here")
    assert found.status == "no scratch"
    assert "No such file or directory" in found.answer


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_job_that_is_never_started_is_refused(tmp_path: Path, paid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm accepts it and leaves it in the queue with this reason."""
    monkeypatch.setattr(trial, "QUEUE_S", 8)  # Slurm takes seconds until it states the reason
    (found,) = trial.try_partitions("squeue", [paid], [], tmp_path / "io")
    assert found.status == "refused"
    assert "account not known" in found.answer


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_job_that_only_waits_is_not_refused(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is busy with a job of somebody else."""
    monkeypatch.setattr(trial, "QUEUE_S", 2)
    other = cluster.query("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap", "sleep 60")
    try:
        (waiting,) = trial.try_partitions("squeue", ["node"], [], tmp_path / "io")
    finally:
        cluster.query("scancel", other)
    assert waiting.status == "waiting"
    # The reason that Slurm states depends on how far its scheduler is.
    assert re.search(r"did not start within 2 s \((Resources|Priority|None)\)", waiting.answer)
    assert cluster.query("squeue", "--noheader", "--states=pending") == ""
