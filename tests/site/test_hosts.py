"""The launcher of a system without a scheduler whose nodes ssh reaches: `HOSTS` in reframe.py."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.site.reframe_config import MpirunOnHosts, system_configuration


@dataclass(frozen=True)
class ReframeJob:
    """What a launcher uses of a job of ReFrame, whose class needs a scheduler: a stand-in for that program."""

    num_tasks: int
    num_tasks_per_node: int
    workdir: str
    sched_access: tuple[str, ...] = ("--hosts=n1,n2,n3",)


# As mpirun over ssh: a rank gets no variable of the job's shell.
_MPIRUN = """#!/bin/bash
shift 4
env --ignore-environment PATH=/usr/bin:/bin RANK=0 "$@"
"""


def test_ranks_are_on_the_first_hosts_with_the_variables_of_the_job(tmp_path: Path) -> None:
    command = MpirunOnHosts().command(ReframeJob(3, 2, str(tmp_path)))
    assert (tmp_path / "hosts").read_text().split() == ["n1", "n1", "n2"]
    assert command[:5] == ["mpirun", "-np", "3", "-machinefile", "hosts"]
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(_MPIRUN)
    mpirun.chmod(0o755)
    script = f"""export PATH={tmp_path}:$PATH LIBRARIES="/a b:/c'd"\n"""
    script += " ".join([*command, "sh", "-c", """'echo "$RANK $LIBRARIES $*"'""", "sh", "'a  b'"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "0 /a b:/c'd a  b\n", done.stderr


def test_hosts_of_a_scheduler_are_refused() -> None:
    with pytest.raises(InputError, match="HOSTS are for SCHEDULER = 'local'; the nodes of jobs are those of slurm"):
        system_configuration(
            "reframe.py",
            scheduler="slurm",
            launcher=None,
            mpi_types={},
            hostnames=[],
            modules_system="nomod",
            access=[],
            partitions=[],
            hosts=["n1"],
        )
