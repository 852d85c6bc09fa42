"""Jobs of a real Slurm, with and without workers of Dask, as in docs/scale.md: findings, pages, logs of jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.findings import load_findings
from iowatch.store import History
from tests.darshan.conftest import LogSpec, build
from tests.session.test_systems import NAMES, record
from tests.slurm.conftest import Cluster


@pytest.fixture(scope="module")
def address(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a scheduler whose two workers are jobs."""
    from dask_jobqueue import SLURMCluster

    logs = tmp_path_factory.mktemp("dask")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        # The jobs of two workers share the node of the tests, which has two processors.
        with SLURMCluster(
            cores=1,
            processes=1,
            memory="1GiB",
            walltime="00:10:00",
            job_directives_skip=["--mem"],
            python=sys.executable,
            interface="lo",
            log_directory=str(logs),
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
        ) as workers:
            workers.scale(jobs=2)
            yield workers.scheduler_address


def test_findings_and_sites_of_systems_are_made_in_jobs(
    address: str, cluster: Cluster, postgresql_url: str, var: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    """The planted loss of each system is found by a worker, and so is its site; the command itself only submits."""
    del var
    words = ("--scheduler", address, "--db", postgresql_url, "--json")
    with History.open(postgresql_url) as history:
        for name in NAMES:
            record(history, name)
        updated = cli("findings", "update", *words)
        assert (updated.exit_code, updated.stderr) == (1, "")
        assert [(one["system"], one["need_action"]) for one in json.loads(updated.stdout)["systems"]] == [
            (name, 1) for name in NAMES
        ]
        found = load_findings(history)
        assert sorted(one.system for one in found) == sorted(NAMES)
        assert [one.size for one in found] == [pytest.approx(0.5, abs=0.05)] * 2
    assert cluster.query("squeue", "--noheader", "--format=%j", "--states=running").split() == ["dask-worker"] * 2
    built = cli("dashboard", "build", "--each-system", "--output", tmp_path / "sites", *words)
    assert (built.exit_code, built.stderr) == (0, "")
    assert all(one["written"] > 60 for one in json.loads(built.stdout)["systems"])
    assert all((tmp_path / "sites" / name / "index.html").exists() for name in NAMES)


def test_findings_of_systems_are_updated_by_an_array_of_jobs(
    cluster: Cluster, postgresql_url: str, var: Path, tmp_path: Path
) -> None:
    """One task per system, as in docs/scale.md; the exit code is the highest one: a finding needs action."""
    with History.open(postgresql_url) as history:
        for name in NAMES:
            record(history, name)
        (tmp_path / "systems.txt").write_text("\n".join(NAMES))
        update = f"{sys.executable} -m iowatch findings update --db '{postgresql_url}'"
        name = f"$(sed -n ${{SLURM_ARRAY_TASK_ID}}p {tmp_path}/systems.txt)"
        words = ["--wait", f"--array=1-{len(NAMES)}", f"--output={tmp_path}/%a.log", f"--wrap={update} --system {name}"]
        environment = {**cluster.environment, "IOWATCH_VAR": str(var)}
        done = subprocess.run(["sbatch", *words], env=environment, cwd=tmp_path, check=False, timeout=120)
        assert done.returncode == 1, [path.read_text() for path in tmp_path.glob("*.log")]
        assert sorted(one.system for one in load_findings(history)) == sorted(NAMES)


def test_logs_are_read_in_jobs(
    address: str, history: History, var: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    del history, var
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(30):
        spec = LogSpec(start_s=1_700_000_000 + number, posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 10})])
        (logs / f"{number}.darshan").write_bytes(build(spec))
    added = cli("logs", "add", logs, "--system", "local", "--scheduler", address, "--json")
    assert (added.exit_code, added.stderr) == (0, "")
    document = json.loads(added.stdout)
    assert (document["offered"], document["counted"]) == (30, 30)
