"""Times of nodes from the times of ranks that IOR writes, and from the ranks and nodes that the job's tasks print."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iowatch.checks import JobScript
from iowatch.checks.job import compose_job
from iowatch.checks.nodes import node_commands, nodes_of_ranks
from iowatch.checks.rank_times import ask_for_rank_times, node_times_of_ranks
from iowatch.checks.run import CheckedRun
from tests.benchmarks.test_ior_ranks import HEADER
from tests.builders import build_checked_run

OPTIONS = {"nodes": 2, "ranks": 4, "block": "1m", "segments": 2}
# The launcher filled the nodes in turn, and the tasks printed in another order; each node printed its facts, too.
NODES = "2\tn1\n0\tn1\n3\tn2\n1\tn2\nn1\t/ ext4 /dev/sda\t\nn2\t/ ext4 /dev/sda\t\n"


def build_run(stage: Path, **options: str | int | bool) -> CheckedRun:
    return build_checked_run(stage, options={**OPTIONS, **options})


def rank_file(operation: str, *repetitions: list[float]) -> str:
    """The file of IOR with these times of the ranks."""
    rows = []
    for times in repetitions:
        rows += [f"{operation},{rank},9.0,{seconds},1.0,1.0\n" for rank, seconds in enumerate(times)]
    return HEADER + "".join(rows)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The stage directory of a job that wrote two repetitions; ranks 1 and 3 are on n2."""
    (tmp_path / "iowatch.nodes").write_text(NODES)
    (tmp_path / "start-0.ior.ranks.csv").write_text(rank_file("write", [1.0, 3.0, 2.0, 4.0], [1.5, 3.5, 1.5, 3.5]))
    return tmp_path


def test_time_of_a_node_is_the_mean_of_its_ranks(finished: Path) -> None:
    times = node_times_of_ranks(build_run(finished))["node_times"]
    assert times == {
        "write": {
            "nodes": 2,
            "repetitions": 2,
            "names": ("n1", "n2"),
            # Two ranks of two blocks.
            "sizes": (2**22, 2**22),
            "seconds": ((1.5, 1.5), (3.5, 3.5)),
            "quartiles": (),
        }
    }


def test_starts_of_a_read_are_its_repetitions(finished: Path) -> None:
    for start in range(3):
        (finished / f"start-{start}.ior.ranks.csv").write_text(rank_file("read", [1.0, 3.0 + start, 1.0, 3.0 + start]))
    times = node_times_of_ranks(build_run(finished, op="read", repeat=3))["node_times"]
    assert times["read"]["seconds"] == ((1.0, 1.0, 1.0), (3.0, 4.0, 5.0))
    (finished / "start-1.ior.ranks.csv").unlink()
    assert node_times_of_ranks(build_run(finished, op="read", repeat=3)) == {}


def test_collective_run_has_none(finished: Path) -> None:
    assert node_times_of_ranks(build_run(finished, api="mpiio", collective=True, sync=False)) == {}


def test_operation_that_was_not_measured_is_left_out(finished: Path) -> None:
    (finished / "start-0.ior.ranks.csv").write_text(rank_file("read", [1.0, 1.0, 1.0, 1.0]))
    assert node_times_of_ranks(build_run(finished)) == {}


@pytest.mark.parametrize(
    "nodes",
    [
        "",
        NODES.replace("3\tn2\n", ""),
        NODES.replace("3\tn2\n", "2\tn2\n"),
        NODES + "4\tn2\n",
        # Lines of two tasks that were written into each other.
        NODES.replace("3\tn2\n1\tn2\n", "31\tn2\n\tn2\n"),
        # All ranks on one node: not what the case asks for.
        NODES.replace("\tn2\n", "\tn1\n"),
    ],
    ids=["none", "a rank is missing", "a rank twice", "too many", "mixed", "one node"],
)
def test_without_a_sure_node_for_each_rank_there_are_none(finished: Path, nodes: str) -> None:
    (finished / "iowatch.nodes").write_text(nodes)
    assert node_times_of_ranks(build_run(finished)) == {}


def test_damaged_file_of_times_gives_none(finished: Path) -> None:
    path = finished / "start-0.ior.ranks.csv"
    path.write_text(path.read_text()[:-60])
    assert node_times_of_ranks(build_run(finished)) == {}
    path.unlink()
    assert node_times_of_ranks(build_run(finished)) == {}


def test_file_with_too_few_ranks_gives_none(finished: Path) -> None:
    (finished / "start-0.ior.ranks.csv").write_text(rank_file("write", [1.0, 2.0]))
    assert node_times_of_ranks(build_run(finished)) == {}


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ("SLURM_PROCID=3", "3"),
        # mpirun in a job of Slurm: the batch script is task 0 of Slurm.
        ("OMPI_COMM_WORLD_RANK=2 SLURM_PROCID=0", "2"),
        ("PMI_RANK=1 SLURM_PROCID=0", "1"),
        ("PMIX_RANK=1 SLURM_PROCID=1", "1"),
        ("FLUX_TASK_RANK=1", "1"),
    ],
)
def test_task_tells_its_rank_and_its_node(tmp_path: Path, variables: str, rank: str) -> None:
    run = build_checked_run(tmp_path, options=OPTIONS, launcher=f"env {variables}", scratch_base=tmp_path)
    (line,) = node_commands(run)
    subprocess.run(["bash", "-c", f"_iowatch_program=/bin/sh\n{line}"], cwd=tmp_path, check=True)
    lines = (tmp_path / "iowatch.nodes").read_text().splitlines()
    assert [text.split("\t")[0] for text in lines if text.count("\t") == 1] == [rank]


def test_task_without_a_rank_tells_none(tmp_path: Path) -> None:
    run = build_checked_run(tmp_path, options=OPTIONS, launcher="env", scratch_base=tmp_path)
    (line,) = node_commands(run)
    subprocess.run(["bash", "-c", f"_iowatch_program=/bin/sh\n{line}"], cwd=tmp_path, check=True)
    assert nodes_of_ranks(tmp_path, 4) == []


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        # IOR 4.0 contains the name of the option, IOR 3.3 does not and would end with an error.
        (b"\x7fELF\0saveRankPerformanceDetailsCSV\0", "-O saveRankPerformanceDetailsCSV=ior.ranks.csv"),
        (b"\x7fELF\0summaryFile\0", ""),
        (None, ""),
    ],
    ids=["knows it", "does not know it", "not found"],
)
def test_only_a_program_that_knows_the_option_gets_it(tmp_path: Path, contents: bytes | None, expected: str) -> None:
    program = tmp_path / "ior"
    if contents is not None:
        program.write_bytes(contents)
    script = ask_for_rank_times(build_run(tmp_path), JobScript(command=("ior",)))
    lines = [*script.before, f"echo {script.command[-1]}"]
    printed = subprocess.run(
        ["bash", "-c", "\n".join([f"_iowatch_program={program}", *lines])], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == expected
    assert printed.stderr == ""


def test_job_moves_the_file_of_each_start(tmp_path: Path) -> None:
    script = compose_job(build_run(tmp_path), JobScript())
    assert "[ ! -e ior.ranks.csv ] || mv ior.ranks.csv start-0.ior.ranks.csv" in script.after
    assert script.command[-1] == "$_iowatch_rank_times"


def test_job_on_one_node_does_not_ask() -> None:
    script = compose_job(build_checked_run(), JobScript())
    assert not any("_iowatch_rank_times" in text for text in (*script.before, *script.command))
