"""Options of the sweeps: directories and contents of mdtest, further programs and settings of h5bench, hdf5_iotest."""

from __future__ import annotations

from typing import Any

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.h5bench import H5BENCH
from iowatch.benchmarks.hdf5_iotest import HDF5_IOTEST
from iowatch.benchmarks.mdtest import MDTEST
from iowatch.benchmarks.registry import BENCHMARKS, parse_output_file
from iowatch.core import InputError
from iowatch.site.stack.probe import features_of_parts
from iowatch.site.stack.records import StackPart
from tests.benchmarks.corpus import DATA

# Captured from the programs that these options start.
CAPTURED: dict[str, dict[str, Any]] = {
    "mdtest-4.0.0-directories.txt": {"items": "directories", "files": 200},
    "mdtest-4.0.0-contents.txt": {"items": "both", "write": "3901", "read": "3901", "files": 200, "sync": True},
    "h5bench-1.6-write-read.txt": {"op": "write-read", "dims": "1048576", "timesteps": 5},
    "h5bench-1.6-compressed.txt": {"op": "write", "compress": True, "chunk": "4096", "dims": "262144", "timesteps": 3},
    "h5bench-1.6-subfiling.txt": {"op": "write", "subfiling": True, "dims": "1048576", "timesteps": 3},
    "h5bench-1.6-overwrite.txt": {"op": "overwrite", "dims": "1048576", "timesteps": 3},
    "hdf5_iotest-1.6.txt": {"steps": 20, "arrays": 100, "rows": 100, "columns": 200},
}


@pytest.mark.parametrize("name", CAPTURED)
def test_output_shows_what_the_options_ask_and_has_every_expected_result(name: str) -> None:
    tool = BENCHMARKS[name.partition("-")[0]]
    options = tool.read_options({**CAPTURED[name], "ranks": 2, "repeat": 1})
    output = parse_output_file(tool.name, DATA / name, ranks=2, fresh=True)
    assert output.status == "ok", output.reason
    assert set(tool.expects(options)) <= {(one.operation, one.metric) for one in output.results}
    shown = {key: value for key, value in tool.shows(options).items() if key != "cache"}
    for result in output.results:
        assert {key: result.case.get(key) for key in shown} == shown


def test_samples_are_the_printed_numbers() -> None:
    """Read off the captured outputs."""
    output = parse_output_file("hdf5_iotest", DATA / "hdf5_iotest-1.6.txt", ranks=2, fresh=True)
    text = (DATA / "hdf5_iotest-1.6.txt").read_text().split()
    printed = [float(word[1:]) for word in text[text.index("[MiB/s]:") + 1 :][:2]]
    assert next(list(one.samples) for one in output.results if one.metric == "rank_bandwidth") == printed
    output = parse_output_file("mdtest", DATA / "mdtest-4.0.0-directories.txt", fresh=True)
    row = next(line for line in (DATA / "mdtest-4.0.0-directories.txt").read_text().splitlines() if "rename" in line)
    assert next(one.samples for one in output.results if one.operation == "directory-rename") == (
        float(row.split()[2]),
    )


def test_mdtest_arguments_follow_its_manual() -> None:
    """`mdtest --help`: -F files only, -D directories only, -w and -e bytes per file, -y fsync."""
    words = MDTEST.arguments(
        MDTEST.read_options({"items": "both", "write": "64k", "read": "3901", "sync": True, "ranks": 2}), "/s"
    )
    assert " ".join(words[:-2]) == "-n 512 -N 2 -i 1 -w 65536 -e 3901 -y"
    assert MDTEST.arguments(MDTEST.read_options({"items": "directories"}), "/s")[0] == "-D"
    assert MDTEST.arguments(MDTEST.read_options({}), "/s")[0] == "-F"
    # contents are read from the page cache of a single node
    assert MDTEST.case(MDTEST.read_options({"write": "1k", "read": "1k"})) == {"cache": "keep"}
    assert MDTEST.case(MDTEST.read_options({"write": "1k", "read": "1k", "ranks": 2, "nodes": 2})) == {}
    assert (
        MDTEST.volume_bytes(MDTEST.read_options({"write": "64k", "read": "1k", "files": 100, "ranks": 2, "repeat": 2}))
        == 2 * 100 * 65 * 1024
    )


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        (MDTEST, {"items": "directories", "write": "1k"}, "directories have no contents"),
        (MDTEST, {"write": "1k", "read": "2k"}, "read is more than write"),
        (H5BENCH, {"compress": True, "collective": False}, "collective transfers only"),
        (H5BENCH, {"subfiling": True, "collective": True}, "independent transfers"),
        (H5BENCH, {"subfiling": True, "compress": True}, "collective transfers only"),
        (H5BENCH, {"chunk": "4096"}, "chunk is for compress"),
        (H5BENCH, {"compress": True, "chunk": "64x64"}, "chunk has 2 dimensions"),
        (H5BENCH, {"pattern": "full"}, "full is for reads, expected contiguous or interleaved"),
        (
            H5BENCH,
            {"op": "read", "pattern": "interleaved"},
            "interleaved is for writes, expected full or partial or strided",
        ),
        (HDF5_IOTEST, {"rows": 1}, "a whole number of at least 2"),
        (HDF5_IOTEST, {"layout": "compact"}, "contiguous or chunked"),
        (HDF5_IOTEST, {"dataset-rank": 5}, "a whole number from 2 to 4"),
    ],
)
def test_options_that_a_program_cannot_combine_are_refused(tool: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _evaluate(tool, options)


def _evaluate(tool: Any, values: dict[str, Any]) -> None:
    options = tool.read_options(values)
    tool.shows(options)
    tool.configuration(options)


def test_h5bench_needs_the_features_of_its_options() -> None:
    assert set(H5BENCH.requires(H5BENCH.read_options({"async": True, "compress": True}))) == {
        "mpi",
        "hdf5",
        "h5bench",
        "vol-async",
        "deflate",
    }
    assert "subfiling" in H5BENCH.requires(H5BENCH.read_options({"subfiling": True}))
    # a stack may have the connector for all its programs; a synchronous case switches it off
    assert H5BENCH.environment(H5BENCH.read_options({"async": False})) == {"HDF5_VOL_CONNECTOR": ""}
    assert H5BENCH.environment(H5BENCH.read_options({"async": True}))["HDF5_VOL_CONNECTOR"].startswith("async ")


def test_write_read_starts_the_read_after_each_write() -> None:
    """[azcarate-mn4], "Unexpected Write-read behaviour": the write and read parts execute sequentially."""
    options = H5BENCH.read_options({"op": "write-read", "pattern": "partial", "dims": "4096"})
    assert H5BENCH.prepare(options, "/s") == []
    assert H5BENCH.after(options, "/s") == [["h5bench_read", "h5bench_read.cfg", "/s/h5bench.h5"]]
    assert "TO_READ_NUM_PARTICLES=2048" in H5BENCH.configuration(options)["h5bench_read.cfg"]
    assert H5BENCH.case(options)["workflow"] == "write-read"
    assert H5BENCH.volume_bytes(options.with_values({"ranks": 2, "repeat": 3})) == 2 * 3 * 2 * 5 * 32 * 4096


def test_marenostrum_has_the_ranks_of_the_drop_and_the_sizes_of_the_paper() -> None:
    """[azcarate-mn4]: 1 to 48 cores, a drop between 15 and 25; 1024x1024 to 8192x8192; "2X" sizes."""
    cases = [case for case in suites.load_suite("marenostrum") if case.options["op"] == "write-read"]
    ranks = {case.ranks for case in cases if case.options["dims"] == "4194304"}
    assert {1, 14, 15, 16, 20, 24, 25, 26, 48} <= ranks
    squares = {str(case.options["dims"]) for case in suites.load_suite("marenostrum")}
    assert {"1024x1024", "2048x2048", "4096x4096", "8192x8192", "8388608"} <= squares


def test_process_grid_of_hdf5_iotest_has_all_ranks() -> None:
    text = HDF5_IOTEST.configuration(HDF5_IOTEST.read_options({"ranks": 6}))["hdf5_iotest.ini"]
    assert "process-rows = 2\nprocess-columns = 3\n" in text
    assert all(len(line) < 200 for line in text.splitlines())  # INI_MAX_LINE of its ini.h


@pytest.mark.parametrize(("variant", "found"), [("true", True), ("false", False)])
def test_spack_package_has_hdf5_iotest_only_with_its_variant(variant: str, found: bool) -> None:
    """h5bench's package of Spack: `metadata`, off by default."""
    part = StackPart("h5bench", "1.4", {"metadata": variant}, hash="x" * 32)
    assert ("hdf5_iotest" in features_of_parts([part])) is found


def test_benchio_filters_and_drivers_are_parameters_and_needs() -> None:
    options = BENCHIO.read_options(
        {"api": "hdf5", "chunk": "64x64x16", "filter": "deflate", "filter-level": 9, "chunk-cache": "64k"}
    )
    assert "deflate" in BENCHIO.requires(options)
    shown = {"filter": "deflate", "filter_level": 9, "chunk_cache_bytes": 65536, "chunk": "64x64x16"}
    assert shown.items() <= BENCHIO.shows(options).items()
    assert {"--filter=deflate", "--filter-level=9", "--chunk-cache=64k"} <= set(BENCHIO.arguments(options, "/s"))
    assert "subfiling" in BENCHIO.requires(BENCHIO.read_options({"api": "hdf5", "vfd": "subfiling"}))
    # what is usual has no parameter, so that the series of earlier releases go on
    usual = BENCHIO.read_options({"api": "hdf5", "filter": "none", "vfd": "mpio"})
    assert not {"filter", "vfd"} & BENCHIO.shows(usual).keys()
    converted = BENCHIO.read_options({"api": "hdf5", "byte-order": "big"})
    assert BENCHIO.shows(converted)["byte_order"] == "big"
    assert "--byte-order=big" in BENCHIO.arguments(converted, "/s")
    assert "byte_order" not in BENCHIO.shows(BENCHIO.read_options({"api": "hdf5", "byte-order": "native"}))
    with pytest.raises(InputError, match="expected none, deflate, szip or zstd"):
        BENCHIO.read_options({"api": "hdf5", "filter": "gzip"})


def test_filters_and_drivers_of_hdf5_are_features() -> None:
    variants = {"mpi": "true", "szip": "true", "subfiling": "false"}
    assert set(features_of_parts([StackPart("hdf5", "1.14.5", variants, hash="x" * 32)])) == {"hdf5", "deflate", "szip"}
    # outside of Spack, HDF5 may lack even deflate
    assert features_of_parts([StackPart("hdf5", "1.14.5", {"mpi": "true"})]) == ("hdf5",)
