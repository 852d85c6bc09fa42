"""Each node of a job on several nodes: what it has is recorded and compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from iowatch.checks import JobScript, RunOrder, nodes
from iowatch.checks.job import compose_job
from iowatch.checks.nodes import differences_between_nodes, each_node_fact, node_commands
from iowatch.checks.outputs import read_output, spool_run
from iowatch.checks.run import FinishedJob
from iowatch.site import storage
from tests.builders import build_checked_run, build_output

LUSTRE, ROOT_DISK = "/work lustre 10.0.0.1@tcp:/work", "/ ext4 /dev/sda1"
OPEN_MPI, OTHER = "/opt/ompi/lib/libmpi.so.40.30.4 (1200000 bytes)", "/usr/lib/libmpi.so.40.10.3 (900000 bytes)"


def test_job_on_one_node_asks_no_others(tmp_path: Path) -> None:
    assert node_commands(build_checked_run()) == []
    assert differences_between_nodes(build_checked_run(tmp_path)) == []


def test_node_tells_its_scratch_and_its_mpi(tmp_path: Path) -> None:
    """The line of the job's script, as the shell and the launcher of a job start it."""
    scratch = tmp_path / "scratch of x"
    scratch.mkdir()
    program = tmp_path / "program"
    program.touch()
    library = tmp_path / "libmpi.so.40"
    library.write_text("12345")
    (tmp_path / "ldd").write_text(f"#!/bin/sh\necho '\tlibmpi.so.40 => {library} (0x00007f)'\n")
    (tmp_path / "ldd").chmod(0o755)
    run = build_checked_run(tmp_path, options={"nodes": 2}, launcher="env", scratch_base=scratch)
    (line,) = node_commands(run)
    assert line in compose_job(run, JobScript()).before
    subprocess.run(
        ["bash", "-c", f"_iowatch_program={program}\n{line}"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
    )
    identity = storage.find_identity(scratch)
    assert identity is not None
    facts = each_node_fact(tmp_path)["each_node"][platform.node()]
    assert facts["scratch"] == f"{identity.mount} {identity.type} {identity.source}"
    assert facts["mpi"] == f"{library} (5 bytes)"
    # Independent of the script: Python's view of this node.
    assert facts["kernel"] == platform.release()
    listed = f"{hashlib.sha256(b'12345').hexdigest()}  {library}\n"
    assert facts["libraries"] == hashlib.sha256(listed.encode()).hexdigest()[:12]
    assert f"ratio={Path('/proc/sys/vm/dirty_ratio').read_text().strip()}" in facts["writeback"].split(",")
    assert facts["mount_options"].split(",")[0] in ("rw", "ro")
    assert 0 <= float(facts["load_1m"]) < 10_000
    meminfo = dict(row.split(":") for row in Path("/proc/meminfo").read_text().splitlines())
    available = 1024 * int(meminfo["MemAvailable"].split()[0])
    assert int(facts["memory_available_bytes"]) == pytest.approx(available, rel=0.3)
    # The node is the first one itself: its clock is between the two looks at it.
    assert float(facts["clock_ahead_min_s"]) <= 0 <= float(facts["clock_ahead_max_s"])
    assert len((tmp_path / "iowatch.nodes").read_text()) < 1000


def test_node_tells_what_its_client_of_glusterfs_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lists only its own options; `.meta` of the mount has the others, as GlusterFS 10.3 writes them."""
    mount = tmp_path / "mount"
    (mount / ".meta").mkdir(parents=True)
    (mount / ".meta" / "version").write_text('{ \n  "Package Version": "10.3"\n}')
    command = f"/usr/sbin/glusterfs --attribute-timeout=0 --process-name fuse --volfile-server=s1 {mount}"
    (mount / ".meta" / "cmdline").write_text(f'{{ \n  "Cmdlinestr": "{command}"\n}}')
    # The temporary directory seems to be on such a mount.
    mount_id = next(row.split()[1] for row in _fdinfo_of(tmp_path).splitlines() if row.startswith("mnt_id:"))
    options = "rw,user_id=0,group_id=0,max_read=131072"
    table = tmp_path / "mountinfo"
    table.write_text(f"{mount_id} 1 0:75 / {mount} rw,relatime shared:1 - fuse.glusterfs s1:/scratch {options}\n")
    monkeypatch.setattr(nodes, "_SCRIPT", nodes._SCRIPT.replace("/proc/self/mountinfo", str(table)))
    run = build_checked_run(tmp_path, options={"nodes": 2}, launcher="env", scratch_base=tmp_path)
    (line,) = node_commands(run)
    subprocess.run(["bash", "-c", f"_iowatch_program=/bin/sh\n{line}"], cwd=tmp_path, check=True)
    facts = each_node_fact(tmp_path)["each_node"][platform.node()]
    assert facts["scratch"] == f"{mount} fuse.glusterfs s1:/scratch"
    assert facts["file_system_client"] == "GlusterFS 10.3"
    assert facts["mount_options"] == "rw,relatime,max_read=131072,--attribute-timeout=0"


def _fdinfo_of(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("variable", ["SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"])
def test_one_task_of_a_node_answers(tmp_path: Path, variable: str) -> None:
    run = build_checked_run(tmp_path, options={"nodes": 2}, launcher=f"env {variable}=1", scratch_base=tmp_path)
    (line,) = node_commands(run)
    subprocess.run(["bash", "-c", f"_iowatch_program=/bin/sh\n{line}"], cwd=tmp_path, check=True)
    assert (tmp_path / "iowatch.nodes").read_text() == ""


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        ([("n1", LUSTRE, OPEN_MPI), ("n2", LUSTRE, OPEN_MPI)], []),
        # A launcher that does not number its tasks starts one answer for each.
        ([("n1", LUSTRE, ""), ("n2", LUSTRE, ""), ("n2", LUSTRE, "")], []),
        (
            [("n1", LUSTRE, OPEN_MPI), ("n2", ROOT_DISK, OPEN_MPI)],
            [f"scratch is on '{ROOT_DISK}' on node n2, on '{LUSTRE}' on n1"],
        ),
        ([("n1", LUSTRE, OPEN_MPI), ("n2", LUSTRE, OTHER)], [f"node n2 loads the MPI '{OTHER}', n1 '{OPEN_MPI}'"]),
        (
            [("n1", LUSTRE, OPEN_MPI), ("n1", LUSTRE, OPEN_MPI)],
            ["of 2 nodes only these reported their scratch and MPI: n1 (see prepare.err)"],
        ),
        ([], ["of 2 nodes only these reported their scratch and MPI: none (see prepare.err)"]),
    ],
)
def test_nodes_that_differ_are_a_failure(tmp_path: Path, lines: list[tuple[str, str, str]], reasons: list[str]) -> None:
    (tmp_path / "iowatch.nodes").write_text("".join("\t".join(line) + "\n" for line in lines))
    assert differences_between_nodes(build_checked_run(tmp_path, options={"nodes": 2})) == reasons


def test_differing_node_explains_a_program_that_fails(tmp_path: Path) -> None:
    """Without the directory on n2 the program fails with a message about a file."""
    run = build_checked_run(tmp_path, options={"nodes": 2})
    job = FinishedJob(None, (), tmp_path / "rfm_job.sh")
    (tmp_path / "iowatch.nodes").write_text(f"n1\t{LUSTRE}\t\nn2\t{ROOT_DISK}\t\n")
    reason = read_output(run, job).reason
    assert reason is not None
    assert reason.startswith(
        f"scratch is on '{ROOT_DISK}' on node n2, on '{LUSTRE}' on n1; the program was not started"
    )
    (tmp_path / "iowatch.nodes").unlink()
    assert read_output(run, job).reason == "the program was not started or did not end"


def test_clock_is_told_as_far_as_the_answers_allow(tmp_path: Path) -> None:
    """The nodes were asked at 100.0, the last answer was there at 100.5 by the first node's clock."""
    (tmp_path / "iowatch.nodes.times").write_text("100.0\n100.5\n")
    rest = "\t6.1\t\tab12\trw,relatime,addr=10.0.0.2\t\tratio=20\t0.5\t4096 2048 1024\t1.5\n"
    (tmp_path / "iowatch.nodes").write_text(f"n1\t{LUSTRE}\t\t100.2{rest}n2\t{LUSTRE}\t\t142.3{rest}")
    recorded = each_node_fact(tmp_path)["each_node"]
    assert (recorded["n1"]["clock_ahead_min_s"], recorded["n1"]["clock_ahead_max_s"]) == ("-0.30", "0.20")
    assert (recorded["n2"]["clock_ahead_min_s"], recorded["n2"]["clock_ahead_max_s"]) == ("41.80", "42.30")
    assert recorded["n2"]["mount_options"] == "rw,relatime"
    assert recorded["n2"]["memory_available_bytes"] == str(2 * 2**20)
    assert recorded["n2"]["memory_available"] == "50"
    assert "file_system_client" not in recorded["n2"]


def test_node_without_times_has_no_clock(tmp_path: Path) -> None:
    (tmp_path / "iowatch.nodes").write_text(f"n1\t{LUSTRE}\t\t100.2\t6.1\t\t\t\t\t\t\t\t\n")
    assert each_node_fact(tmp_path) == {"each_node": {"n1": {"scratch": LUSTRE, "mpi": "", "kernel": "6.1"}}}


@pytest.mark.parametrize(
    ("listed", "recorded"),
    [
        (["n7", "n8"], ["n7", "n8"]),
        # Slurm 22.05, while the job ends: n8 is done with it.
        (["n7"], ["n7.example.org", "n8.example.org"]),
    ],
)
def test_nodes_of_a_job_that_is_ending_are_all_recorded(tmp_path: Path, listed: list[str], recorded: list[str]) -> None:
    lines = [f"{name}\t{LUSTRE}\t{OPEN_MPI}\n" for name in ("n8.example.org", "n7.example.org")]
    (tmp_path / "iowatch.nodes").write_text("".join(lines))
    spool = tmp_path / "spool"
    run = build_checked_run(tmp_path, options={"nodes": 2}, order=RunOrder(session="s1", spool=spool))
    spool_run(run, FinishedJob("1", listed, tmp_path / "job.sh"), build_output())
    (document,) = spool.glob("**/case.json")
    assert json.loads(document.read_text())["facts"]["nodes"] == recorded
