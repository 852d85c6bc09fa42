"""Sessions on a real Slurm: a complete one, failing jobs, an interrupted one; a new system from `system init`.

Also its jobs with and without workers of Dask, as in docs/scale.md: findings, pages, logs of applications.

One file, because a machine has room for one of these clusters: `pytest -n 2 --dist loadfile` keeps a file together.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.findings import load_findings
from iowatch.session.file_systems import LockedSession
from iowatch.session.options import SessionOptions
from iowatch.site.schedulers import PartitionCapacity, partition_capacity
from iowatch.store import History, RunRow
from tests.conftest import ROOT
from tests.darshan.conftest import LogSpec, build
from tests.session.test_systems import NAMES, record
from tests.slurm.conftest import Cluster, wait_until

pytestmark = pytest.mark.end_to_end

# `smoke` has cases of all benchmarks, `nightly` writes and reads tens of GiB.
SUITE = os.environ.get("IOWATCH_TEST_SUITE", "tiny")
IOWATCH = str(ROOT / ".venv" / "bin" / "iowatch")


@pytest.fixture(scope="module")
def stack() -> str:
    """The name of one installed stack."""
    from iowatch.site.stack.load import discover_stacks

    return next(found.name for found in discover_stacks("slurm-local") if found.status == "installed")


def runs_of_last_session(cluster: Cluster) -> tuple[str, list[RunRow]]:
    with History.open(str(cluster.var / "iowatch.db")) as history:
        session = history.sessions("slurm-local")[0]
        return session.status, sorted(history.runs(session.uuid), key=lambda run: run.started_at)


def test_session_submits_one_case_at_a_time(cluster: Cluster, stack: str) -> None:
    known = len(cluster.ended())
    words = [str(ROOT / "ci" / "nightly"), "--system", "slurm-local", "--suite", SUITE, "--stack", stack]
    done = subprocess.run(words, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SUITE} on slurm-local: OK" in done.stdout
    status, runs = runs_of_last_session(cluster)
    assert status == "ok"
    # ReFrame does not see the nodes of a job that ends between two queries of the queue.
    assert all(run.facts.nodes in ((), (cluster.node,)) for run in runs)
    # Counts of jobs, of which one at most is another than the run's own: that of a run before it, which still ends.
    recorded = [run.facts.covariates["before"] for run in runs]
    assert all(one["jobs_own_nodes"] in (0, 1) and one["jobs_running"] >= 0 for one in recorded)
    wait_until(lambda: len(cluster.ended()) == known + len(runs), 60)
    jobs = cluster.ended()[known:]
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    # The node could run four of them at once (16 processors, 4 ranks per case); times are in seconds.
    assert len(jobs) >= 2
    assert all(earlier["EndTime"] <= later["StartTime"] for earlier, later in pairwise(jobs))
    # The benchmarks, too, do not overlap; `started_at` is truncated to the second.
    assert all(a.started_at + (a.wall_s or 0) < b.started_at + 1 for a, b in pairwise(runs))


@contextmanager
def started_session(cluster: Cluster, stack: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a session of three short cases, each with a limit of one minute, the shortest of Slurm."""
    process = subprocess.Popen(
        [IOWATCH, "run", "--system", "slurm-local", "--suite", "tiny", "--stack", stack, "--json", *more],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        cluster.hang.unlink(missing_ok=True)
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def occupier(cluster: Cluster) -> Iterator[list[str]]:
    """Ids of jobs of other users; after the test they are cancelled and the node is resumed."""
    others: list[str] = []
    yield others
    for job in others:
        subprocess.run(["scancel", job], env=cluster.environment, check=False)
    if "DRAIN" in cluster.query("scontrol", "show", "node", cluster.node):
        cluster.query("scontrol", "update", f"nodename={cluster.node}", "state=resume")


@pytest.mark.slow
def test_time_limit_cancelled_job_and_drained_node_are_reported(
    cluster: Cluster, stack: str, occupier: list[str]
) -> None:
    cluster.hang.touch()
    with started_session(cluster, stack) as process:
        wait_until(lambda: cluster.jobs("RUNNING"), 90)
        occupy = ("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")
        occupier.append(cluster.query(*occupy))
        # The first case hangs until Slurm ends it; the other job then has the node, the second case waits.
        wait_until(lambda: cluster.jobs("PENDING"), 150)
        cluster.hang.unlink()
        (second,) = cluster.jobs("PENDING")
        cluster.query("scontrol", "update", f"nodename={cluster.node}", "state=drain", "reason=disk")
        cluster.query("scancel", *occupier, second)
        stdout, stderr = process.communicate(timeout=60)
    verdict = json.loads(stdout)
    assert (process.returncode, verdict["status"], verdict["received"]) == (1, "incomplete", 0), stderr
    reasons = {problem["run"]: problem["reason"] for problem in verdict["failed"] + verdict["missing"]}
    assert len(reasons) == 3
    slow, cancelled, drained = reasons.values()
    assert "state TIMEOUT, reason TimeLimit" in slow
    assert f"job {second}: state CANCELLED" in cancelled
    assert "ran 00:00:00" in cancelled
    assert "job cancelled because it was blocked due to reason: " in drained
    assert f"UnavailableNodes:{cluster.node}" in drained or "DRAINED" in drained
    status, runs = runs_of_last_session(cluster)
    assert status == "incomplete"
    assert {run.status for run in runs} == {"failed"}


@pytest.mark.slow
def test_job_that_waits_too_long_and_requeued_job_are_reported(
    cluster: Cluster, stack: str, occupier: list[str], tmp_path: Path
) -> None:
    """A copy of the system with half a minute in the queue and `--requeue`."""
    for folder in ("benchmarks", "reframe_tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    place = tmp_path / "systems" / "slurm-local"
    place.mkdir(parents=True)
    (place / "system.yaml").symlink_to(ROOT / "systems" / "slurm-local" / "system.yaml")
    text = (ROOT / "systems" / "slurm-local" / "reframe.py").read_text()
    text = text.replace('"--partition=node"', '"--partition=node", "--requeue"').replace(
        "_system.limits.queue_minutes", "0.5"
    )
    (place / "reframe.py").write_text(text)
    copied = replace(cluster, environment={**cluster.environment, "IOWATCH_ROOT": str(tmp_path)})
    cluster.hang.touch()
    two = ("--case", "api=posix,file=per-process", "--case", "api=mpiio,file=shared")
    with started_session(copied, stack, *two) as process:
        wait_until(lambda: cluster.jobs("RUNNING"), 90)
        (requeued,) = cluster.jobs("RUNNING")

        def job() -> str:
            return cluster.query("scontrol", "show", "job", "-o", requeued)

        assert "Requeue=1" in job()  # the site's option overrides the default
        cluster.query("scontrol", "requeue", requeued)
        wait_until(lambda: "JobState=PENDING" in job(), 60)
        cluster.hang.unlink()
        # Slurm would start it again after two minutes.
        cluster.query("scontrol", "update", f"jobid={requeued}", "starttime=now")
        occupy = ("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")
        wait_until(lambda: "JobState=RUNNING" in (shown := job()) and "Restarts=1" in shown, 60)
        occupier.append(cluster.query(*occupy))
        stdout, stderr = process.communicate(timeout=240)
    verdict = json.loads(stdout)
    assert "(the scheduler requeued its job, restart 1)" in stderr, stderr
    (reason,) = [problem["reason"] for problem in verdict["failed"]]
    assert "cancelled by iowatch after 0.5 minutes in the queue (queue_minutes); " in reason
    assert reason.endswith("the scheduler's reason: Resources")


@pytest.mark.slow
def test_terminated_session_leaves_no_job_in_slurm(cluster: Cluster, stack: str) -> None:
    cluster.hang.touch()
    with started_session(cluster, stack) as process:
        wait_until(lambda: cluster.jobs("RUNNING"), 90)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 3
        wait_until(lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"), 30)
    assert runs_of_last_session(cluster)[0] == "incomplete"
    assert cluster.ended()[-1]["JobState"] == "CANCELLED"


@pytest.mark.slow
def test_ab_run_uses_one_allocation(cluster: Cluster, stack: str) -> None:
    """Started outside of a job: it requests one allocation, and runs all cases in it without further jobs."""
    others = len(cluster.ended())
    words = [IOWATCH, "run", "--system", "slurm-local", "--suite", "tiny", "--case", "api=posix,file=per-process"]
    words += ["--ab", stack, stack, "--pairs", "2", "--budget", "10", "--json"]
    done = subprocess.run(words, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "requesting one allocation from Slurm: salloc" in done.stderr
    assert "--partition=node --nodes=1" in done.stderr
    document = json.loads(done.stdout)
    assert document["ab_run"]["pairs"] == 2
    assert document["measured"]["left"]["nodes"] == document["measured"]["right"]["nodes"] == [cluster.node]
    assert document["measured"]["on_other_nodes"]["runs"] == 0
    assert document["measured"]["on_other_nodes"]["of"] >= 2
    assert len(cluster.ended()) == others  # no job of ReFrame's
    with History.open(str(cluster.var / "iowatch.db")) as history:
        session = history.session(document["ab_run"]["session"])
    assert session.facts.document["allocation"]["nodes"] == cluster.node
    wait_until(lambda: not cluster.query("squeue", "--noheader"), 10)


@pytest.mark.slow
@pytest.mark.capability("experiments.interference")
def test_aggressors_are_tasks_of_one_array(
    cluster: Cluster, stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs that ReFrame submits, directed by their control file; one is cancelled, the other ends with the run."""
    from iowatch.experiments.interference.aggressors import AggressorError, Aggressors
    from iowatch.experiments.interference.plan import check_interference, make_interference_context

    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    known = len(cluster.ended())
    case = "api=posix,file=per-process"
    options = SessionOptions(system="slurm-local", suite="tiny", stacks=(stack,))
    context = make_interference_context(options, victim=case, aggressor=case, levels=(0, 2))
    plan = context.plan()
    assert check_interference(context, plan, 1) == []
    assert partition_capacity("node") == PartitionCapacity(nodes=1, processors=16)
    jobs = Aggressors(context.session, plan.aggressor, 2, tmp_path / "aggressors", 300)
    order = replace(LockedSession(context.session, {}, {}).order(tmp_path), session="test")
    try:
        jobs.launch(order)
        jobs.start(2, 1)
        began = time.time()
        jobs.stop()
        starts = jobs.check(2, began, began + 0.01)
        assert [jobs.output(n, each[0]).status for n, each in enumerate(starts, 1)] == ["ok", "ok"]
        assert jobs.hosts(2) == [cluster.node]
        assert len(cluster.jobs("RUNNING")) == 2
        (_, _, first) = (tmp_path / "aggressors" / "job-1" / "job").read_text().split()
        cluster.query("scancel", first)
        wait_until(lambda: "JobState=CANCELLED" in cluster.query("scontrol", "show", "job", "-o", first), 20)
        with pytest.raises(AggressorError, match=f"aggressor 1: its job {first} is CANCELLED"):
            jobs.start(2, 1)
    finally:
        jobs.cancel()
    wait_until(lambda: len(cluster.ended()) == known + 2, 20)
    assert not cluster.jobs("PENDING,RUNNING")


@pytest.mark.slow
def test_new_slurm_system_runs_a_suite(cluster: Cluster, tmp_path: Path) -> None:
    """Debian's Slurm has no default for MPI: without `MPI_TYPES` no rank of Open MPI starts."""
    for folder in ("benchmarks", "reframe_tests", "systems/_template"):
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = {**cluster.environment, "IOWATCH_ROOT": str(tmp_path), "IOWATCH_DB": str(tmp_path / "new.db")}

    def iowatch(*words: str) -> str:
        done = subprocess.run([IOWATCH, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    iowatch("system", "init", "new-one")
    facts = tmp_path / "systems" / "new-one" / "system.yaml"
    facts.write_text(facts.read_text().replace("free_bytes: 10g", "free_bytes: 100m"))
    verdict = iowatch("run", "--system", "new-one", "--suite", "tiny", "--case", "api=mpiio,file=shared")
    assert "tiny on new-one: OK" in verdict
    assert "system-" in verdict


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


@pytest.mark.slow
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
        assert updated.exit_code == 1, updated.stderr  # which has the progress, where it takes long
        assert [(one["system"], one["need_action"]) for one in json.loads(updated.stdout)["systems"]] == [
            (name, 1) for name in NAMES
        ]
        found = load_findings(history)
        assert sorted(one.system for one in found) == sorted(NAMES)
        assert [one.size for one in found] == [pytest.approx(0.5, abs=0.05)] * 2
    assert cluster.query("squeue", "--noheader", "--format=%j", "--states=running").split() == ["dask-worker"] * 2
    built = cli("dashboard", "build", "--each-system", "--output", tmp_path / "sites", *words)
    assert built.exit_code == 0, built.stderr
    assert all(one["written"] > 60 for one in json.loads(built.stdout)["systems"])
    assert all((tmp_path / "sites" / name / "index.html").exists() for name in NAMES)


@pytest.mark.slow
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
    pytest.importorskip("iowatch.applications.fleet", reason="the logs of a centre are not part of this copy")
    del history, var
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(30):
        spec = LogSpec(start_s=1_700_000_000 + number, posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 10})])
        (logs / f"{number}.darshan").write_bytes(build(spec))
    added = cli("logs", "add", logs, "--system", "local", "--scheduler", address, "--json")
    # Jobs that wait for seconds let it print how far it is.
    unexpected = [line for line in added.stderr.splitlines() if "logs read" not in line]
    assert (added.exit_code, unexpected) == (0, [])
    document = json.loads(added.stdout)
    assert (document["offered"], document["counted"]) == (30, 30)
