"""Counts of a run: what strace, perf and valgrind write, and which differences count."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from iowatch.experiments.common.counters import COUNTS, CounterReadings, differing_counts, read_counts, wrapper_script
from iowatch.experiments.gate.extension import count_operations

# Lines of strace 6.1 -ff -y, of one process of benchio in /dev/shm/x.
STRACE = """openat(AT_FDCWD</tmp/stage>, "/dev/shm/x/shared.h5", O_RDWR|O_CREAT, 0666) = 17</dev/shm/x/shared.h5>
pwrite64(17</dev/shm/x/shared.h5>, ""..., 4096, 0) = 4096
pwrite64(17</dev/shm/x/shared.h5>, ""..., 4096, 4096) = 4096
openat(AT_FDCWD</tmp/stage>, "/dev/shm/x/none", O_RDONLY) = -1 ENOENT (No such file or directory)
write(14<anon_inode:[eventfd]>, ""..., 8) = 8
close(17</dev/shm/x/shared.h5>) = 0
"""


@pytest.mark.parametrize(
    ("instructions", "known"),
    [
        ("1000,,instructions:u,5,100.00,,\n", 1500),  # perf 6.1 stat -x,
        ("events: Ir\nsummary: 1000\n", 1500),  # cachegrind of valgrind 3.19
        ("<not counted>,,instructions:u,0,0.00,,\n", None),
    ],
)
def test_only_calls_on_the_files_of_the_benchmark_count(tmp_path: Path, instructions: str, known: int | None) -> None:
    """What MPI reads and writes to start differs from run to run; two processes are added."""
    (tmp_path / COUNTS).mkdir()
    (tmp_path / COUNTS / "strace.node.1.2").write_text(STRACE)
    (tmp_path / COUNTS / "instructions.node.1").write_text(instructions)
    (tmp_path / COUNTS / "instructions.node.2").write_text("500,,instructions:u,5,100.00,,\n")
    found = read_counts(tmp_path, Path("/dev/shm/x"))
    assert found.calls == {"close": 1, "openat": 1, "pwrite64": 2}
    assert found.transferred_bytes == {"pwrite64": 8192}
    assert found.instructions == known


def test_difference_must_be_in_all_runs_and_of_instructions_one_percent() -> None:
    def runs(*counts: tuple[int, int]) -> list[CounterReadings]:
        return [CounterReadings({"write": calls}, {}, instructions, True) for calls, instructions in counts]

    more = differing_counts(runs((24, 1000)), runs((31, 1009)))
    assert [one.text for one in more] == ["write calls 24 -> 31 (+29.2 %)"]
    five = differing_counts(runs((24, 1000), (24, 1001)), runs((24, 950), (24, 951)))
    assert [one.name for one in five] == ["instructions"], "5 % fewer instructions are seen"
    assert differing_counts(runs((24, 1000), (31, 1000)), runs((31, 1000), (24, 1000))) == []
    assert differing_counts([], runs((24, 1000))) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_script_counts_a_program_and_keeps_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "count.sh").write_text(wrapper_script("off"))
    (tmp_path / "files").mkdir()
    words = ["sh", "count.sh", "sh", "-c", f"echo a > {tmp_path}/files/a; exit 3"]
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 3
    found = read_counts(tmp_path, tmp_path / "files")
    if not found.has_calls:
        pytest.skip(found.refused)
    assert found.calls["openat"] == 1
    assert found.transferred_bytes["write"] == 2


def test_counts_above_posix_are_those_of_calls_and_bytes() -> None:
    """Names of Darshan 3.4.7; times, sizes and the alignment are no counts, and -1 is not counted."""
    counters = {
        **{"MPIIO_COLL_WRITES": 8, "MPIIO_BYTES_WRITTEN": 32768, "MPIIO_SPLIT_READS": 0, "MPIIO_MODE": 9},
        **{"MPIIO_F_WRITE_TIME": 0.1, "MPIIO_SIZE_WRITE_AGG_1K_10K": 8, "MPIIO_ACCESS1_COUNT": 8, "H5D_WRITES": 4},
        **{"H5F_OPENS": 1, "H5D_CHUNK_SIZE_D1": 4, "PNETCDF_VAR_COLL_WRITES": 2, "H5D_READS": -1, "POSIX_WRITES": 8},
    }
    assert count_operations(counters) == {
        "MPIIO_COLL_WRITES": 8, "MPIIO_BYTES_WRITTEN": 32768, "H5D_WRITES": 4, "H5F_OPENS": 1,
        "PNETCDF_VAR_COLL_WRITES": 2,
    }  # fmt: skip
