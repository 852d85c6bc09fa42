"""Command lines and volumes of the benchmarks, compared with their manuals and the papers that the suites repeat."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.h5bench import H5BENCH
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.mdtest import MDTEST
from iowatch.benchmarks.registry import BENCHMARKS


def test_ior_runs_with_fsync_reordering_and_a_json_summary() -> None:
    """IOR user guide: -e fsync, -C reorder tasks, -O summaryFormat=JSON (3.3.0 and later)."""
    words = IOR.arguments(
        IOR.read_options({"api": "mpiio", "transfer": "1000000", "block": "2000000000", "ranks": 64}), "/s"
    )
    expected = "-a MPIIO -t 1000000 -b 2000000000 -s 1 -e -C -o /s/ior -w -i 10"
    assert " ".join(words) == f"{expected} -O summaryFile=ior.json,summaryFormat=JSON"


def test_ior_read_file_is_written_before_and_dropped_from_the_page_cache() -> None:
    options = IOR.read_options({"op": "read", "api": "posix", "file": "per-process", "repeat": 3})
    assert IOR.prepare(options, "/s")[0][-2:] == ["-w", "-k"]
    assert "nocache" in IOR.before(options, "/s")
    assert IOR.runs(options) == 3
    assert IOR.case(options) == {"cache": "drop"}


@pytest.mark.parametrize(("op", "phases"), [("write", "-w -W"), ("read", "-r -k -R"), ("both", "-w -r -W -R")])
def test_ior_verify_options_and_volume(op: str, phases: str) -> None:
    """IOR user guide: -W verifies after writes, -R while reading, -G sets the pattern, the same for a later start."""
    options = IOR.read_options({"op": op, "verify": True, "block": "1m", "repeat": 2})
    assert f" -G 1 -o /s/ior {phases} -i" in " ".join(IOR.arguments(options, "/s")).replace(" -e -C", "")
    assert all("-G" in words for words in IOR.prepare(options, "/s"))
    assert IOR.shows(options)["verify"] is True
    assert "verify" not in IOR.shows(IOR.read_options({"op": op}))
    # the data read for verification are part of the volume: -W reads everything a second time
    plain = IOR.volume_bytes(options.with_values({"verify": False}))
    assert IOR.volume_bytes(options) == plain + (0 if op == "read" else 2 * 2**20)


def test_franklin_suite_has_64_processes_with_2_gb_each() -> None:
    """[antypas2009], section 3: 64 processors, 2 GB each, 1,048,576 and 1,000,000 bytes."""
    cases = [case for case in suites.load_suite("franklin") if case.benchmark == "ior"]
    assert {case.ranks for case in cases} == {64}
    assert {case.options["transfer"] for case in cases} == {"1m", "1000000"}
    assert {case.tool.file_bytes(case.options) // 64 for case in cases} == {2000 * 2**20, 2_000_000_000}


def test_franklin_suite_has_the_applications_at_the_sizes_of_the_paper() -> None:
    """[antypas2009], sections 5.1 to 5.3: processes; a checkpoint of FLASH has 10 GB, one of S3D 5.8 MB per process."""
    cases = [case for case in suites.load_suite("franklin") if case.benchmark == "benchio"]
    assert {(case.options["workload"], case.ranks) for case in cases} == {
        ("madbench2", 256), ("flash-io", 2048), ("s3d-io-files", 512), ("s3d-io", 512)
    }  # fmt: skip
    checkpoint = 24 * 8**3 * 8 * sum(49 + rank % 3 for rank in range(2048))
    assert checkpoint == pytest.approx(10e9, rel=0.01)
    s3d = next(case for case in cases if case.options["workload"] == "s3d-io-files")
    assert s3d.tool.file_bytes(s3d.options) / 512 / 5 == pytest.approx(5.8e6, rel=0.01)


def test_metadata_suite_has_the_number_of_files_of_source_002() -> None:
    """[turner2018], mdtest: 1,048,576 files."""
    cases = suites.load_suite("metadata")
    assert {case.options["files"] for case in cases} == {1_048_576}
    assert min(case.tool.inodes(case.options) for case in cases) >= 1_048_576
    words = MDTEST.arguments(cases[0].options, "/s")
    assert int(words[words.index("-n") + 1]) * cases[0].ranks >= 1_048_576


def test_h5bench_configuration_equals_the_example_of_source_004() -> None:
    """[azcarate-mn4], "Configuration": the printed example (without MODE, which is the driver's)."""
    options = H5BENCH.read_options({"op": "write", "memory": "contiguous", "pattern": "contiguous", "dims": "4194304"})
    assert H5BENCH.configuration(options)["h5bench.cfg"].split() == [
        "MEM_PATTERN=CONTIG",
        "FILE_PATTERN=CONTIG",
        "TIMESTEPS=5",
        "DELAYED_CLOSE_TIMESTEPS=2",
        "COLLECTIVE_DATA=YES",
        "COLLECTIVE_METADATA=YES",
        "EMULATED_COMPUTE_TIME_PER_TIMESTEP=100",
        "ms",
        "NUM_DIMS=1",
        "DIM_1=4194304",
        "DIM_2=1",
        "DIM_3=1",
    ]


def test_benchio_volumes_follow_its_patterns() -> None:
    assert (
        BENCHIO.file_bytes(BENCHIO.read_options({"local": "128x128x128", "ranks": 24})) == 384 * 2**20
    )  # [lawrence2017], Table 1: 24 -> 384 MiB
    assert (
        BENCHIO.file_bytes(
            BENCHIO.read_options({"pattern": "interleaved", "transfer": "1m", "segments": 20480, "ranks": 10})
        )
        == 200 * 2**30
    )
    assert BENCHIO.file_bytes(BENCHIO.read_options({"api": "null", "ranks": 4})) == 0
    # record.schema.json: a repetition is all instances, each of the global size
    assert BENCHIO.file_bytes(BENCHIO.read_options({"global": "8x8x8", "instances": 2, "ranks": 4})) == 2 * 8 * 8**3


@pytest.mark.parametrize(("pattern", "share"), [("full", 65536), ("partial", 32768), ("strided", 2 * (65536 // 66))])
def test_h5bench_volume_is_the_part_that_is_read(pattern: str, share: int) -> None:
    """Configured are TO_READ_NUM_PARTICLES, and blocks of 2 in strides of 64, as many as fit."""
    options = H5BENCH.read_options({"op": "read", "pattern": pattern, "dims": "65536", "ranks": 2, "timesteps": 3})
    assert H5BENCH.shows(options)["total_bytes"] == 32 * share * 2 * 3


def test_benchio_arguments_do_not_contain_placement() -> None:
    words = BENCHIO.arguments(
        BENCHIO.read_options({"api": "hdf5", "ranks": 4, "nodes": 2, "stripe-count": -1, "sync": True}), "/s"
    )
    assert words == ["--api=hdf5", "--sync", "--dir=/s", "--json=benchio.json"]
    assert BENCHIO.case(BENCHIO.read_options({"stripe-count": -1, "stripe-size": "4m"})) == {
        "stripe_count": -1,
        "stripe_bytes": 4 * 2**20,
    }


def test_every_tool_has_a_parser_and_a_check() -> None:
    from tests.conftest import ROOT

    for benchmark in BENCHMARKS.values():
        check = (ROOT / "reframe_tests" / f"{benchmark.name}.py").read_text()
        assert f"class {benchmark.check}(BenchmarkCheck)" in check
        assert f'benchmark = "{benchmark.name}"' in check


@pytest.mark.parametrize(
    ("file", "files"), [("shared", 2), ("per-node", 8), ("per-process", 192)], ids=lambda value: str(value)
)
def test_benchio_writes_one_file_per_instance_node_or_process(file: str, files: int) -> None:
    """One more inode is the directory of the files (docs/benchio.md)."""
    options = BENCHIO.read_options({"file": file, "ranks": 192, "nodes": 8, "instances": 2})
    assert BENCHIO.inodes(options) == files + 1


def test_importers_are_loaded_only_where_their_format_is_recognised() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from iowatch.benchmarks.registry import parse_output_file\n"
        "for tool, name in zip(sys.argv[1::2], sys.argv[2::2]): parse_output_file(tool, Path(name))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('iowatch.benchmarks.tables.')))\n"
    )
    files = ("benchio", "benchio-record.json", "benchio", "benchio-table.txt", "ior", "ior-3.2.1-json.txt")
    words = [word if n % 2 == 0 else str(Path(__file__).parent / "data" / word) for n, word in enumerate(files)]
    found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert found.stdout == "\n"
