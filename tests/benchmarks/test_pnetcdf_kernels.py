"""S3D-IO and FLASH-IO: captured outputs (tests/data/PROVENANCE.md), with values read off by hand, and their options."""

from __future__ import annotations

from typing import Any

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.pnetcdf_kernels import FLASH_IO, S3D_IO
from iowatch.benchmarks.registry import BENCHMARKS, parse_output, parse_output_file
from iowatch.core import InputError
from iowatch.site.doctor import install_commands
from iowatch.site.stack.probe import features_of_parts
from iowatch.site.stack.records import StackPart
from iowatch.site.system import System
from tests.benchmarks.corpus import DATA

# File -> options of the run, and the printed bandwidths.
CAPTURED: dict[str, tuple[dict[str, Any], dict[tuple[str, str], float]]] = {
    "s3d_io-1.2.1-blocking.txt": (
        {"points": "96x80x128", "grid": "2x2x1"},
        {("write", "raw_bandwidth"): 115.53, ("write", "bandwidth"): 114.67},
    ),
    "s3d_io-1.2.1-restart.txt": (
        {"points": "96x80x128", "nonblocking": True, "restart": True},
        {("read", "raw_bandwidth"): 126.79, ("write", "raw_bandwidth"): 101.10},
    ),
    "flash_io-1.15-blocking.txt": ({"blocks": 1200}, {("write", "bandwidth"): 31.91}),
    "flash_io-1.15-independent.txt": (
        {"blocks": 1200, "nonblocking": True, "independent": True},
        {("write", "bandwidth"): 52.78},
    ),
}


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.parametrize("fresh", [True, False])
def test_outputs_have_the_printed_bandwidths_and_show_their_options(name: str, fresh: bool) -> None:
    values, printed = CAPTURED[name]
    tool = BENCHMARKS[name.partition("-")[0]]
    options = tool.read_options({**values, "ranks": 4, "repeat": 1})
    output = parse_output_file(tool.name, DATA / name, ranks=4, fresh=fresh)
    assert (output.status, output.reason) == ("ok", None)
    assert {(one.operation, one.metric): one.samples for one in output.results} == {
        key: (value,) for key, value in printed.items()
    }
    assert set(tool.expects(options)) == printed.keys()
    shown = {key: value for key, value in tool.shows(options).items() if key != "cache"}
    assert all(shown.items() <= one.case.items() for one in output.results)
    # 5 x 16 doubles per point; a checkpoint and two plot files of 4803 blocks (the amount of both runs: 543.05 MiB).
    written = next(one.case["total_bytes"] for one in output.results if one.operation == "write")
    assert written == (5 * 16 * 8 * 192 * 160 * 128 if tool is S3D_IO else 569_424_468)
    assert 0 < tool.file_bytes(options) - written < 1 << 20


def test_short_run_is_read_in_a_session_only() -> None:
    """Its read has 23.03 MiB: the header is read in a piece of 256 KiB."""
    path = DATA / "s3d_io-1.2.1-small.txt"
    output = parse_output_file("s3d_io", path, ranks=4, fresh=True)
    assert [(one.operation, one.samples) for one in output.results] == [("read", (93.94,)), ("write", (131.24,))]
    assert "too few digits" in str(parse_output_file("s3d_io", path).reason)


@pytest.mark.parametrize(
    ("name", "old", "new", "status", "reason"),
    [
        ("s3d_io-1.2.1-blocking.txt", "115.53", "118.53", "incomplete", "contradict each other"),
        ("s3d_io-1.2.1-blocking.txt", "192 x", "182 x", "incomplete", "contradict each other"),
        ("s3d_io-1.2.1-blocking.txt", "     20    per", "    20    per", "incomplete", "write calls"),
        ("s3d_io-1.2.1-blocking.txt", "Global array", "Global  array", "incomplete", "points"),
        ("s3d_io-1.2.1-restart.txt", "       4    per", "       0    per", "incomplete", "numbers of calls"),
        ("flash_io-1.15-blocking.txt", "31.91", "32.91", "incomplete", "contradict each other"),
        ("flash_io-1.15-blocking.txt", "    4     8 x", "    6     8 x", "incomplete", "contradict the amount"),
        ("flash_io-1.15-blocking.txt", "1200", "1300", "incomplete", "contradict the amount"),
        ("flash_io-1.15-blocking.txt", "   543.05", "**********", "incomplete", "amount"),
    ],
)
def test_changed_numbers_are_refused(name: str, old: str, new: str, status: str, reason: str) -> None:
    text = (DATA / name).read_text()
    output = parse_output(name.partition("-")[0], text.replace(old, new, 1), RunContext())
    assert output.status == status
    assert reason in (output.reason or "")


@pytest.mark.parametrize("name", ["s3d_io-1.2.1-blocking.txt", "flash_io-1.15-blocking.txt"])
def test_two_runs_and_other_ranks_are_failed(name: str) -> None:
    tool, text = name.partition("-")[0], (DATA / name).read_text()
    assert "more than one run" in str(parse_output(tool, text + text, RunContext()).reason)
    assert "2 ranks were requested" in str(parse_output(tool, text, RunContext(ranks=2)).reason)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("s3d_io", " Error: nfmpi_create Specified netCDF file does not exist.\n"),
        ("s3d_io", " npx*npy*npz is not equal to npes, npx =     2 npy =     2 npz =     1 npes =     2\n"),
        ("flash_io", " nfmpi_createSpecified netCDF file does not exist.\n"),
    ],
)
def test_errors_of_the_programs_are_failures(tool: str, message: str) -> None:
    """S3D-IO returns 0 after some of them."""
    assert parse_output(tool, message, RunContext(rc=0)).status == "failed"


def test_grid_is_most_nearly_a_cube() -> None:
    words = S3D_IO.arguments(S3D_IO.read_options({"points": "10x20x30", "ranks": 12, "nonblocking": True}), "/s")
    assert words == ["30", "40", "60", "3", "2", "2", "1", "F", "/s"]
    assert S3D_IO.arguments(S3D_IO.read_options({"points": "4x4x4", "ranks": 7}), "/s")[3:6] == ["7", "1", "1"]
    with pytest.raises(InputError, match="grid 2x2x2 has 8 ranks, the case 4"):
        S3D_IO.shows(S3D_IO.read_options({"ranks": 4, "grid": "2x2x2"}))
    with pytest.raises(
        InputError, match=r"option 'points' .*expected whole numbers joined by x, such as 64x64x64 \(3 of them\)"
    ):
        S3D_IO.shows(S3D_IO.read_options({"ranks": 4, "points": "36"}))


def test_restart_reads_what_a_start_before_has_written() -> None:
    options = S3D_IO.read_options({"ranks": 4, "restart": True, "repeat": 2})
    assert [words[-2:] for words in S3D_IO.prepare(options, "/s")] == [["F", "/s"]]
    assert "/s/pressure_wave_test" in S3D_IO.before(options, "/s")
    once = S3D_IO.file_bytes(options)
    assert S3D_IO.volume_bytes(options) == 3 * once + 2 * once // 5
    without = options.with_values({"restart": False})
    assert (S3D_IO.prepare(without, "/s"), S3D_IO.before(without, "/s")) == ([], "")


def test_flash_arguments_are_those_of_its_usage() -> None:
    """`flash_benchmark_io -h` of PnetCDF 1.14: -b blocking, -i independent, -f prefix."""
    assert FLASH_IO.arguments(FLASH_IO.read_options({}), "/s") == ["-b", "-f", "/s/flash_"]
    assert FLASH_IO.arguments(FLASH_IO.read_options({"nonblocking": True, "independent": True}), "/s") == [
        "-i",
        "-f",
        "/s/flash_",
    ]


def test_programs_on_path_are_features_that_no_command_installs() -> None:
    parts = [
        StackPart("s3d-io", "unknown", files=("/opt/bin/s3d_io.x",)),
        StackPart("flash-io", "unknown", files=("/opt/bin/flash_benchmark_io",)),
    ]
    assert features_of_parts(parts) == ("flash_io", "s3d_io")
    assert install_commands(System(name="here", title="Here"), ["s3d_io", "flash_io"]) == ()
