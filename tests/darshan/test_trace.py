"""Generated logs are read exactly; damaged logs are never reported as complete and never crash the reader."""

from __future__ import annotations

import bz2
import gzip
import random
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import InputError, MachineError
from iowatch.darshan import DarshanReader, Trace, diff_trace_groups, diff_traces, read_trace, render_trace
from iowatch.darshan.figures import combine_counters, derive_figures, find_mount, rank_imbalance
from iowatch.darshan.log import MAGIC, MODULES
from iowatch.site import machine
from tests.builders import build_module_records, build_trace

MakeLog = Callable[..., Path]

POSIX = [
    ("/lus/a", -1, {"POSIX_WRITES": 10, "POSIX_BYTES_WRITTEN": 1000, "POSIX_SIZE_WRITE_0_100": 4,
                    "POSIX_F_WRITE_TIME": 2.0, "POSIX_F_SLOWEST_RANK_TIME": 1.5, "POSIX_SLOWEST_RANK": 3,
                    "POSIX_F_WRITE_END_TIMESTAMP": 7.0, "POSIX_F_CLOSE_END_TIMESTAMP": 9.5}),
    ("/home/b", 1, {"POSIX_READS": 6, "POSIX_BYTES_READ": 600, "POSIX_F_READ_TIME": 0.5,
                    "POSIX_F_META_TIME": 0.5, "POSIX_FILE_NOT_ALIGNED": 4}),
    ("/home/b", 2, {"POSIX_READS": 2, "POSIX_BYTES_READ": 200, "POSIX_F_READ_TIME": 0.75}),
]  # fmt: skip


def test_totals_and_files_match_the_generated_log(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(posix=POSIX), reader)
    assert trace.status == "ok"
    assert trace.counter("POSIX_WRITES") == 10
    assert trace.counter("POSIX_READS") == 8
    assert [row["path"] for row in trace.files] == ["/lus/a", "/home/b"]
    first, second = trace.files
    assert (first["ranks"], first["shared"], first["file_system"]) == (4, True, "lustre")
    assert first["slowest"] == {"module": "POSIX", "rank": 3, "time_s": 1.5}
    assert (second["ranks"], second["shared"], second["mount"]) == (2, True, "/")
    assert second["slowest"] == {"module": "POSIX", "rank": 1, "time_s": 1.0}
    assert second["counters"]["POSIX_BYTES_READ"] == 800


def test_modules_that_are_not_read_are_listed(make_log: MakeLog, reader: DarshanReader) -> None:
    """Their presence is a fact about the run; they have no counters."""
    trace = read_trace(make_log(posix=POSIX, others=["APMPI", "MDHIM"]), reader)
    assert (trace.status, trace.reason) == ("ok", None)
    assert sorted(trace.modules) == ["APMPI", "MDHIM", "POSIX"]
    assert trace.modules["APMPI"] == trace.modules["MDHIM"] == {}


def test_file_of_one_rank_is_not_shared(make_log: MakeLog, reader: DarshanReader) -> None:
    (row,) = read_trace(make_log(posix=[("/lus/a", 2, {"POSIX_WRITES": 1, "POSIX_F_WRITE_TIME": 1.0})]), reader).files
    assert (row["ranks"], row["shared"], row["slowest"]["rank"]) == (1, False, 2)


def test_derived_figures_of_a_log(make_log: MakeLog, reader: DarshanReader) -> None:
    derived = read_trace(make_log(posix=POSIX), reader).derived
    assert derived["bytes_written"] == 1000
    assert derived["bytes_read"] == 800
    assert derived["write_time_share"] == pytest.approx(2.0 / 3.75)
    assert derived["metadata_time_share"] == pytest.approx(0.5 / 3.75)
    assert derived["small_write_share"] == pytest.approx(0.4)
    assert derived["unaligned_share"] == pytest.approx(4 / 18)
    assert derived["close_tail_s"] == pytest.approx(2.5)
    assert derived["close_tail_share_of_run"] == pytest.approx(0.25, rel=0.2)
    assert derived["collective_write_share"] is None
    # Darshan: slowest rank in its own files (rank 1: 1.0 s) plus the slowest in every shared file (1.5 s).
    assert derived["performance"]["POSIX"]["time_by_slowest_s"] == pytest.approx(2.5)
    assert derived["performance"]["POSIX"]["imbalance"] == pytest.approx(2.5 / (3.75 / 4))


# Figures of the counters below, calculated by hand: 4 ranks, a run of 20 s.
TOTALS = {
    "POSIX": {
        **{"POSIX_WRITES": 100, "POSIX_READS": 50, "POSIX_BYTES_WRITTEN": 4000, "POSIX_BYTES_READ": 1000},
        **{"POSIX_SIZE_WRITE_0_100": 1, "POSIX_SIZE_WRITE_100_1K": 2, "POSIX_SIZE_WRITE_1K_10K": 4},
        **{"POSIX_SIZE_WRITE_10K_100K": 8, "POSIX_SIZE_WRITE_100K_1M": 85},
        **{"POSIX_SIZE_READ_10K_100K": 5, "POSIX_SIZE_READ_100K_1M": 45},
        **{"POSIX_SEQ_WRITES": 60, "POSIX_CONSEC_WRITES": 30, "POSIX_SEQ_READS": 20, "POSIX_CONSEC_READS": 10},
        **{"POSIX_FILE_NOT_ALIGNED": 15, "POSIX_MEM_NOT_ALIGNED": 45},
        **{"POSIX_F_WRITE_TIME": 6.0, "POSIX_F_READ_TIME": 3.0, "POSIX_F_META_TIME": 1.0},
        **{"POSIX_F_WRITE_END_TIMESTAMP": 12.0, "POSIX_F_READ_END_TIMESTAMP": 13.0},
        "POSIX_F_CLOSE_END_TIMESTAMP": 14.0,
    },
    "STDIO": {
        **{"STDIO_BYTES_WRITTEN": 500, "STDIO_BYTES_READ": 0},
        **{"STDIO_F_WRITE_TIME": 1.0, "STDIO_F_READ_TIME": 2.0, "STDIO_F_META_TIME": 3.0},
    },
    "MPI-IO": {
        **{"MPIIO_COLL_WRITES": 20, "MPIIO_SPLIT_WRITES": 10, "MPIIO_INDEP_WRITES": 6, "MPIIO_NB_WRITES": 4},
        **{"MPIIO_COLL_READS": 3, "MPIIO_INDEP_READS": 9, "MPIIO_BYTES_WRITTEN": 4000},
        **{"MPIIO_F_META_TIME": 2.0, "MPIIO_F_WRITE_TIME": 7.0, "MPIIO_F_CLOSE_END_TIMESTAMP": 18.0},
    },
    "H5F": {"H5F_F_META_TIME": 8.0, "H5F_F_CLOSE_END_TIMESTAMP": 17.0},
}
FIGURES = {
    # POSIX and STDIO; bytes of MPI-IO are already in POSIX.
    **{"bytes_written": 4500, "bytes_read": 1000, "read_back_ratio": 1000 / 4500},
    # The first four size bins end at 100 KiB.
    **{"small_write_share": 15 / 100, "small_read_share": 5 / 50},
    **{"sequential_write_share": 0.6, "consecutive_write_share": 0.3},
    **{"sequential_read_share": 0.4, "consecutive_read_share": 0.2},
    **{"unaligned_share": 15 / 150, "unaligned_memory_share": 45 / 150},
    **{"collective_write_share": 30 / 40, "collective_read_share": 3 / 12},
    # Read 5 s, written 7 s, metadata 4 s: 16 s of 4 x 20 s.
    **{"read_time_share": 5 / 16, "write_time_share": 7 / 16, "metadata_time_share": 4 / 16},
    "io_time_share_of_run": 16 / 80,
    **{"mpiio_open_close_s_per_rank": 0.5, "hdf5_open_close_s_per_rank": 2.0},
    "hdf5_open_close_share_of_run": 8 / 80,
    # From the last read of POSIX at 13 s to the last close, that of MPI-IO, at 18 s.
    **{"close_tail_s": 5.0, "close_tail_share_of_run": 5 / 20},
}


@pytest.mark.parametrize("figure", FIGURES)
def test_derived_figures_match_manual_calculation(figure: str) -> None:
    assert derive_figures(TOTALS, [], ranks=4, run_time_s=20.0)[figure] == pytest.approx(FIGURES[figure])


def test_figures_without_counters_are_absent_and_not_zero() -> None:
    derived = derive_figures({}, [], ranks=4, run_time_s=20.0)
    assert (derived.pop("bytes_read"), derived.pop("bytes_written")) == (0, 0)
    assert set(derived) >= (FIGURES.keys() - {"bytes_read", "bytes_written"})
    assert {name: value for name, value in derived.items() if value is not None} == {"io_time_share_of_run": 0}


def test_imbalance_is_slowest_rank_time_over_mean_rank_time() -> None:
    """10 s of reads, writes and metadata on 4 ranks are 2.5 s per rank."""
    assert rank_imbalance(TOTALS["POSIX"], 5.0, ranks=4) == pytest.approx(2.0)
    assert rank_imbalance({}, 5.0, ranks=4) is None


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/lus/a", ("/lus", "lustre")),
        ("/lus", ("/lus", "lustre")),
        ("/lustre/a", ("/", "ext4")),
        ("/lus/scratch/a", ("/lus/scratch", "gpfs")),
        ("relative", (None, None)),
    ],
)
def test_file_belongs_to_the_longest_matching_mount_point(path: str, mount: tuple[str | None, str | None]) -> None:
    assert find_mount(path, [("/lus/scratch", "gpfs"), ("/lus", "lustre"), ("/", "ext4")]) == mount


def combined(**columns: list[float]) -> dict[str, float]:
    """Totals of three records of the module that the names begin with; each column has one value per record."""
    module = next(iter(columns)).partition("_")[0]
    return dict(combine_counters(build_module_records(module, 3, columns)))


@pytest.mark.parametrize(
    ("name", "values", "total"),
    [
        ("H5D_WRITES", [3, 0, 4], 7),
        ("H5D_BYTES_WRITTEN", [-1, -1, -1], -1),  # Darshan could not count it
        ("H5D_F_WRITE_TIME", [0.5, 1.0, 2.0], 3.5),
        ("H5D_F_OPEN_START_TIMESTAMP", [0.0, 5.0, 3.0], 3.0),  # 0 is not set
        ("H5D_F_OPEN_START_TIMESTAMP", [0.0, 0.0, 0.0], 0.0),
        ("H5D_F_CLOSE_END_TIMESTAMP", [4.0, 9.0, 8.0], 9.0),
        ("H5D_F_MAX_WRITE_TIME", [0.1, 0.3, 0.2], 0.3),
        ("POSIX_MAX_BYTE_WRITTEN", [10, 30, 20], 30),
        ("H5D_CHUNK_SIZE_D1", [64, 64, 64], 64),
        ("H5D_CHUNK_SIZE_D1", [64, 64, 32], -1),  # no chunk size is common
    ],
)
def test_counters_are_combined_over_records_by_type(name: str, values: list[float], total: float) -> None:
    """The rules of Darshan's own accumulator (`darshan-parser --total`), for modules it does not combine."""
    assert combined(**{name: values})[name] == total


def test_size_of_the_slowest_write_is_from_the_same_record() -> None:
    found = combined(H5D_MAX_WRITE_TIME_SIZE=[100, 200, 300], H5D_F_MAX_WRITE_TIME=[0.1, 0.9, 0.2])
    assert (found["H5D_MAX_WRITE_TIME_SIZE"], found["H5D_F_MAX_WRITE_TIME"]) == (200, 0.9)


def test_most_frequent_accesses_are_counted_over_all_records() -> None:
    """Accesses of 1024 bytes: 5 + 4 of two records; 4096 bytes: 6 of one; 512 bytes: 2."""
    columns = {f"H5D_ACCESS{i}_{part}": [0, 0, 0] for i in range(1, 5) for part in ("ACCESS", "COUNT")}
    columns |= {"H5D_ACCESS1_ACCESS": [1024, 4096, 512], "H5D_ACCESS1_COUNT": [5, 6, 2]}
    columns |= {"H5D_ACCESS2_ACCESS": [0, 1024, 0], "H5D_ACCESS2_COUNT": [0, 4, 0]}
    found = combined(**columns)
    assert [(found[f"H5D_ACCESS{i}_ACCESS"], found[f"H5D_ACCESS{i}_COUNT"]) for i in range(1, 5)] == [
        (1024, 9),
        (4096, 6),
        (512, 2),
        (0, 0),
    ]


@pytest.mark.parametrize(
    ("counter", "left", "right", "reported"),
    [
        ("POSIX_WRITES", 1000, 1020, False),
        ("POSIX_WRITES", 1000, 1021, True),
        # A factor of 1.5, and at least 10 ms.
        ("POSIX_F_WRITE_TIME", 10.0, 14.9, False),
        ("POSIX_F_WRITE_TIME", 10.0, 15.1, True),
        ("POSIX_F_WRITE_TIME", 0.012, 0.021, False),
        ("POSIX_F_WRITE_TIME", 0.012, 0.023, True),
        ("POSIX_ACCESS1_ACCESS", 1024, 1025, True),
    ],
)
def test_differences_are_reported_above_their_threshold(
    counter: str, left: float, right: float, reported: bool
) -> None:
    sides = [build_trace(modules={"POSIX": {counter: value}}) for value in (left, right)]
    assert [c.name for c in diff_traces(*sides).changes] == ([counter] if reported else [])
    assert [c.name for c in diff_traces(*sides[::-1]).changes] == ([counter] if reported else [])


@pytest.mark.parametrize(("left", "right", "reported"), [(0.30, 0.34, False), (0.30, 0.36, True)])
def test_shares_differ_by_five_points_up_or_down(left: float, right: float, reported: bool) -> None:
    sides = [build_trace(unaligned_share=value) for value in (left, right)]
    for both in (sides, sides[::-1]):
        assert [c.name for c in diff_traces(*both).changes] == (["unaligned_share"] if reported else [])


@pytest.mark.parametrize(
    ("left", "right", "reported"),
    [
        # The nearest values of the two sides count: 110 and 111 differ by less than 2 %, 110 and 120 by more.
        ([100, 110], [111, 200], []),
        ([100, 110], [120, 200], [(105, 160)]),
        ([120, 200], [100, 110], [(160, 105)]),
        ([111, 200], [100, 110], []),
        ([100, 120], [110, 200], []),
    ],
)
def test_sides_differ_if_their_nearest_runs_differ(
    left: list[int], right: list[int], reported: list[tuple[float, float]]
) -> None:
    """The values are the median over the runs of each side."""
    sides = [[build_trace(modules={"POSIX": {"POSIX_WRITES": n}}) for n in side] for side in (left, right)]
    assert [(change.left, change.right) for change in diff_trace_groups(*sides)] == reported


def test_log_without_records_is_ok(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(), reader)
    assert (trace.status, trace.reason, trace.modules, trace.files) == ("ok", None, {}, [])


def test_format_3_00_is_read_like_3_41(make_log: MakeLog, reader: DarshanReader) -> None:
    old, new = (read_trace(make_log(version=version, exe="/bin/x"), reader).job for version in ("3.00", "3.41"))
    # Times in whole seconds: Darshan counts both the first and the last.
    assert {**old, "log_version": "3.41", "run_time_s": old["run_time_s"] - 1} == new


# Times that Darshan before 3.1.7 writes as the last counters of a record.
LAST_TIMES = {
    **{"POSIX_F_META_TIME": 0.5, "POSIX_F_MAX_READ_TIME": 0.25, "POSIX_F_MAX_WRITE_TIME": 0.75},
    **{"POSIX_F_FASTEST_RANK_TIME": 1.0, "POSIX_F_SLOWEST_RANK_TIME": 1.5},
}


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("posix_version", [1, 2, 3])
def test_old_records_of_either_byte_order_are_read(
    posix_version: int, byte_order: str, make_log: MakeLog, reader: DarshanReader
) -> None:
    """darshan-util 3.5.0 leaves three times unswapped, and loses two to four (`darshan-posix-logutils.c`)."""
    counters = {"POSIX_BYTES_WRITTEN": 1000, "POSIX_F_READ_TIME": 1.0, "POSIX_F_WRITE_TIME": 0.5, **LAST_TIMES}
    posix = [("/lus/a", -1, counters)]
    path = make_log(version="3.00", posix_version=posix_version, byte_order=byte_order, posix=posix)
    trace = read_trace(path, reader)
    assert trace.status == "ok", trace.reason
    assert {name: trace.counter(name) for name in counters} == counters
    assert trace.derived["metadata_time_share"] == 0.25  # 0.5 of 0.5 + 1 + 0.5 s
    assert trace.files[0]["slowest"]["time_s"] == 1.5


@pytest.mark.parametrize("seconds", [-221.5, 5e-310])
def test_time_that_is_none_is_null_and_not_zero(seconds: float, make_log: MakeLog, reader: DarshanReader) -> None:
    """A negative one, and a denormal one: a byte order that was not swapped looks like this."""
    posix = [("/lus/a", 0, {"POSIX_F_META_TIME": seconds, "POSIX_F_WRITE_TIME": 2.0, "POSIX_BYTES_WRITTEN": 10})]
    trace = read_trace(make_log(posix=posix), reader)
    assert trace.status == "partial"
    assert "negative or denormal" in str(trace.reason)
    assert trace.modules["POSIX"]["POSIX_F_META_TIME"] == -1
    assert trace.derived["metadata_time_share"] is None
    assert trace.derived["io_time_share_of_run"] is None
    assert trace.estimate("POSIX", "bandwidth_mib_per_s") is None
    assert trace.derived["bytes_written"] == 10


def test_module_of_blue_gene_is_listed(make_log: MakeLog, reader: DarshanReader) -> None:
    """PyDarshan 3.5.0 has no names for its counters, which describe the torus and no I/O."""
    trace = read_trace(make_log(posix=POSIX, others=["BG/Q"]), reader)
    assert (trace.status, trace.modules["BG/Q"]) == ("ok", {})
    assert trace.derived["bytes_written"] == 1000


def damage(path: Path, module: str) -> Path:
    """Set the middle of a module's region in a log of format 3.41 to zeros."""
    data = bytearray(path.read_bytes())
    offset, length = struct.unpack_from("<QQ", data, 32 + 16 * (1 + MODULES.index(module)))
    data[offset + length // 3 : offset + length] = bytes(length - length // 3)
    path.write_bytes(data)
    return path


def test_figures_that_need_a_damaged_module_are_null(make_log: MakeLog, reader: DarshanReader) -> None:
    mpiio = [("/lus/a", -1, {"MPIIO_COLL_WRITES": 24, "MPIIO_F_META_TIME": 8.0})]
    trace = read_trace(damage(make_log(posix=POSIX, mpiio=mpiio), "POSIX"), reader)
    assert trace.status == "partial"
    unknown = ("bytes_read", "bytes_written", "read_back_ratio", "io_time_share_of_run", "metadata_time_share")
    for figure in (*unknown, "close_tail_s", "slowest_file", "small_write_share"):
        assert trace.derived[figure] is None, figure
    # What MPI-IO alone says is known.
    assert trace.derived["collective_write_share"] == 1
    assert trace.derived["mpiio_open_close_s_per_rank"] == 2
    text = "\n".join(str(line) for line in render_trace(trace))
    assert "Not known: what POSIX recorded" in text


def test_log_without_an_intact_module_is_not_one_without_io(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(damage(make_log(posix=POSIX), "POSIX"), reader)
    text = "\n".join(str(line) for line in render_trace(trace))
    assert "recorded no I/O" not in text
    assert trace.derived["bytes_written"] is None


def test_counter_that_could_not_be_counted_makes_a_sum_unknown() -> None:
    totals = {**TOTALS, "STDIO": {**TOTALS["STDIO"], "STDIO_BYTES_READ": -1}}
    derived = derive_figures(totals, [], ranks=4, run_time_s=20.0)
    assert (derived["bytes_read"], derived["bytes_written"]) == (None, 4500)


def test_io_time_above_the_run_is_explained(make_log: MakeLog, reader: DarshanReader) -> None:
    """Four threads of one rank write for 8 s each in a run of 10 s."""
    trace = read_trace(make_log(ranks=1, posix=[("/lus/a", 0, {"POSIX_F_WRITE_TIME": 32.0})]), reader)
    assert trace.derived["io_time_share_of_run"] == pytest.approx(3.2)
    assert "3.2 times ranks x run time. It is the sum over the threads" in "\n".join(map(str, render_trace(trace)))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_log_of_darshan_2_is_named(compress: Callable[[bytes], bytes], tmp_path: Path, reader: DarshanReader) -> None:
    """`struct darshan_job` of Darshan 2.3.1 begins with a version of eight bytes and the magic number."""
    path = tmp_path / "old.darshan.gz"
    path.write_bytes(compress(b"2.06\0\0\0\0" + struct.pack("<q", MAGIC) + bytes(1000)))
    with pytest.raises(InputError, match=r"a log of Darshan 1 or 2, of format 2\.06") as refused:
        read_trace(path, reader)
    assert refused.value.reason == "old_format"
    path.write_bytes(compress(b"Dear reader, this is no log."))
    with pytest.raises(InputError, match="its contents are no Darshan log"):
        read_trace(path, reader)


def test_decompression_bomb_ends_after_seconds(make_log: MakeLog) -> None:
    """Two regions of 768 MiB of zeros are one log of more than half of the reader's memory."""
    path = make_log(posix=POSIX)
    data = bytearray(path.read_bytes())
    compressor = zlib.compressobj(1)
    zeros = b"".join(compressor.compress(bytes(1 << 24)) for _ in range(48)) + compressor.flush()
    for module in ("MPI-IO", "STDIO"):
        struct.pack_into("<QQ", data, 32 + 16 * (1 + MODULES.index(module)), len(data), len(zeros))
    path.write_bytes(data + zeros)
    start_s = time.monotonic()
    with DarshanReader(memory_bytes=2 << 30) as small_reader:
        with pytest.raises(InputError, match="decompresses to more than 1024 MiB in STDIO") as refused:
            read_trace(path, small_reader)
        assert refused.value.reason == "too_large"
        assert read_trace(make_log(posix=POSIX), small_reader).status == "ok"
    assert time.monotonic() - start_s < 30


def test_module_with_missing_records_is_named(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(posix=POSIX, partial=["POSIX"]), reader)
    assert trace.status == "partial"
    assert trace.reason == "POSIX: Darshan ran out of memory during the run: records are missing"
    assert trace.counter("POSIX_WRITES") == 10


def test_name_that_is_not_utf8_is_kept(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(posix=[("/lus/\udcff", 0, {"POSIX_OPENS": 1})]), reader)
    assert trace.files[0]["path"] == "/lus/\\xff"


def read_or_unreadable(path: Path, reader: DarshanReader) -> Trace:
    try:
        return read_trace(path, reader)
    except InputError as error:
        return Trace("unreadable", error.message)


def modules_are_equal(trace: Trace, whole: Trace) -> bool:
    """Whether every module read from a damaged log equals that of the intact log."""
    return all(trace.modules[module] == whole.modules[module] for module in trace.modules)


def test_damaged_log_is_detected(make_log: MakeLog, reader: DarshanReader) -> None:
    """Every truncation, and every changed byte after the header, is reported, and no figure is wrong."""
    mpiio = [("/lus/a", -1, {"MPIIO_COLL_WRITES": 24})]
    path = make_log(posix=POSIX, mpiio=mpiio, dxt=[("/lus/a", 0, [(0.0, 1.0)], [])])
    whole, data = read_trace(path, reader), path.read_bytes()
    rng = random.Random(9)
    damaged = path.with_name("damaged.darshan")
    for _ in range(150):
        at = rng.randrange(1328, len(data))
        flipped = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        damaged.write_bytes(data[:at] if rng.random() < 0.3 else flipped)
        trace = read_or_unreadable(damaged, reader)
        assert trace.status in ("partial", "unreadable")
        assert trace.reason
        assert modules_are_equal(trace, whole)


def test_damaged_header_does_not_crash_the_reader(make_log: MakeLog, reader: DarshanReader) -> None:
    """The header has no checksum: a changed header may be read differently, but the reader always returns a result."""
    path = make_log(posix=POSIX, mpiio=[("/lus/a", -1, {"MPIIO_COLL_WRITES": 24})])
    data = path.read_bytes()
    rng = random.Random(3)
    damaged = path.with_name("damaged.darshan")
    for _ in range(80):
        at = rng.choice([*range(40), *range(40, 1328, 7)])
        damaged.write_bytes(data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :])
        trace = read_or_unreadable(damaged, reader)
        assert trace.status != "unreadable" or str(damaged) in str(trace.reason)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello", "not a Darshan log"),
        (b"3.41\0\0\0\0" + bytes(92), "truncated in the header"),
        (b"2.06\0\0\0\0" + bytes(2000), "expected one of 3.00"),
        (b"3.41\0\0\0\0" + bytes(2000), "magic number"),
    ],
)
def test_files_that_are_no_logs_are_refused(content: bytes, words: str, tmp_path: Path, reader: DarshanReader) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_trace(path, reader)


def test_directory_and_missing_file_are_refused(tmp_path: Path, reader: DarshanReader) -> None:
    for path, words in ((tmp_path, "not a regular file"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=words):
            read_trace(path, reader)


def test_crash_of_the_library_is_reported_and_the_reader_continues(make_log: MakeLog) -> None:
    """An empty name makes darshan-util 3.5.0 abort on a log of format 3.00 (an assertion)."""
    bad = make_log(version="3.00", posix=[("", 0, {})])
    good = make_log(posix=POSIX)
    with DarshanReader() as reader:
        for _ in range(2):
            with pytest.raises(InputError, match="crashed"):
                read_trace(bad, reader)
            assert read_trace(good, reader).status == "ok"


def test_log_with_nan_time_is_refused(make_log: MakeLog, reader: DarshanReader) -> None:
    path = make_log(posix=[("/lus/a", 0, {"POSIX_F_WRITE_TIME": float("nan")})])
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(path, reader)


def test_log_reading_has_a_timeout(make_log: MakeLog) -> None:
    path = make_log(posix=POSIX)
    with DarshanReader(timeout_s=0.001) as reader, pytest.raises(InputError, match=r"more than 0.001 s"):
        read_trace(path, reader)


def test_modules_are_not_imported_from_the_working_directory(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_log(posix=POSIX)
    (tmp_path / "darshan.py").write_text("raise SystemExit('not PyDarshan')")
    monkeypatch.chdir(tmp_path)
    assert read_trace(path).status == "ok"


def test_missing_library_is_a_machine_error(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyDarshan fails like this on a Python for which its packages contain no libdarshan-util."""
    package = tmp_path / "packages" / "darshan"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('Could not find libdarshan-util')")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    with pytest.raises(MachineError, match="PyDarshan has no library to read logs with") as missing:
        read_trace(make_log(posix=POSIX))
    assert str(missing.value.hint) == f"Add it with: {machine.darshan_library_command()}"
