"""Made logs are read as they were made; damaged ones are never taken for whole, and never hurt the reader."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.darshan import Reader, Trace, read_trace, read_traces
from iowatch.errors import InputError

MakeLog = Callable[..., Path]

POSIX = [
    ("/lus/a", -1, {"POSIX_WRITES": 10, "POSIX_BYTES_WRITTEN": 1000, "POSIX_SIZE_WRITE_0_100": 4,
                    "POSIX_F_WRITE_TIME": 2.0, "POSIX_F_SLOWEST_RANK_TIME": 1.5, "POSIX_SLOWEST_RANK": 3,
                    "POSIX_F_WRITE_END_TIMESTAMP": 7.0, "POSIX_F_CLOSE_END_TIMESTAMP": 9.5}),
    ("/home/b", 1, {"POSIX_READS": 6, "POSIX_BYTES_READ": 600, "POSIX_F_READ_TIME": 0.5,
                    "POSIX_F_META_TIME": 0.5, "POSIX_FILE_NOT_ALIGNED": 4}),
    ("/home/b", 2, {"POSIX_READS": 2, "POSIX_BYTES_READ": 200, "POSIX_F_READ_TIME": 0.75}),
]  # fmt: skip


def test_totals_and_files_are_what_was_written(make_log: MakeLog, reader: Reader) -> None:
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


def test_derived_figures(make_log: MakeLog, reader: Reader) -> None:
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


def test_a_log_without_records_is_whole(make_log: MakeLog, reader: Reader) -> None:
    trace = read_trace(make_log(), reader)
    assert (trace.status, trace.reason, trace.modules, trace.files) == ("ok", None, {}, [])


def test_the_old_format_is_read_as_the_new(make_log: MakeLog, reader: Reader) -> None:
    old, new = (read_trace(make_log(version=version, exe="/bin/x"), reader).job for version in ("3.00", "3.41"))
    # Times in whole seconds: Darshan counts both the first and the last.
    assert {**old, "log_version": "3.41", "run_time_s": old["run_time_s"] - 1} == new


def test_what_darshan_lost_is_named(make_log: MakeLog, reader: Reader) -> None:
    trace = read_trace(make_log(posix=POSIX, partial=["POSIX"]), reader)
    assert trace.status == "partial"
    assert trace.reason == "POSIX: Darshan ran out of memory during the run: records are missing"
    assert trace.counter("POSIX_WRITES") == 10


def test_a_name_that_is_not_utf8_is_kept(make_log: MakeLog, reader: Reader) -> None:
    trace = read_trace(make_log(posix=[("/lus/\udcff", 0, {"POSIX_OPENS": 1})]), reader)
    assert trace.files[0]["path"] == "/lus/\\xff"


def answer(path: Path, reader: Reader) -> Trace:
    try:
        return read_trace(path, reader)
    except InputError as error:
        return Trace("unreadable", error.message)


def undamaged(trace: Trace, whole: Trace) -> bool:
    """What a damaged log still says is exactly what the whole one says."""
    return all(trace.modules[module] == whole.modules[module] for module in trace.modules)


def test_no_damage_goes_unnoticed(make_log: MakeLog, reader: Reader) -> None:
    """Every cut, and every changed byte behind the header, is told, and no figure is wrong."""
    mpiio = [("/lus/a", -1, {"MPIIO_COLL_WRITES": 24})]
    path = make_log(posix=POSIX, mpiio=mpiio, dxt=[("/lus/a", 0, [(0.0, 1.0)], [])])
    whole, data = read_trace(path, reader), path.read_bytes()
    dice = random.Random(9)
    damaged = path.with_name("damaged.darshan")
    for _ in range(150):
        at = dice.randrange(1328, len(data))
        flipped = data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
        damaged.write_bytes(data[:at] if dice.random() < 0.3 else flipped)
        trace = answer(damaged, reader)
        assert trace.status in ("partial", "unreadable")
        assert trace.reason
        assert undamaged(trace, whole)


def test_no_header_crashes_the_reader(make_log: MakeLog, reader: Reader) -> None:
    """The header has no checksum: changed, it may be read as something else, but there is always an answer."""
    path = make_log(posix=POSIX, mpiio=[("/lus/a", -1, {"MPIIO_COLL_WRITES": 24})])
    data = path.read_bytes()
    dice = random.Random(3)
    damaged = path.with_name("damaged.darshan")
    for _ in range(80):
        at = dice.choice([*range(40), *range(40, 1328, 7)])
        damaged.write_bytes(data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :])
        trace = answer(damaged, reader)
        assert trace.status != "unreadable" or str(damaged) in str(trace.reason)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello", "not a Darshan log"),
        (b"3.41\0\0\0\0" + bytes(92), "cut off in the header"),
        (b"2.06\0\0\0\0" + bytes(2000), "expected one of 3.00"),
        (b"3.41\0\0\0\0" + bytes(2000), "magic number"),
    ],
)
def test_what_is_no_log_is_refused(content: bytes, words: str, tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_trace(path, reader)


def test_a_directory_and_an_absent_file_are_refused(tmp_path: Path, reader: Reader) -> None:
    for path, words in ((tmp_path, "not a regular file"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=words):
            read_trace(path, reader)


def test_a_crash_of_the_library_is_told_and_survived(make_log: MakeLog) -> None:
    """An empty name makes darshan-util 3.5.0 abort on a log of format 3.00 (an assertion)."""
    bad = make_log(version="3.00", posix=[("", 0, {})])
    good = make_log(posix=POSIX)
    traces = dict(read_traces([bad, good, bad, good], workers=1))
    assert traces[bad].status == "unreadable"
    assert "crashed" in str(traces[bad].reason)
    assert traces[good].status == "ok"


def test_a_time_that_is_no_number_is_refused(make_log: MakeLog, reader: Reader) -> None:
    path = make_log(posix=[("/lus/a", 0, {"POSIX_F_WRITE_TIME": float("nan")})])
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(path, reader)


def test_a_log_that_takes_too_long_is_given_up(make_log: MakeLog) -> None:
    path = make_log(posix=POSIX)
    with Reader(timeout_s=0.001) as reader, pytest.raises(InputError, match=r"more than 0.001 s"):
        read_trace(path, reader)


def test_the_working_directory_is_not_imported_from(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_log(posix=POSIX)
    (tmp_path / "darshan.py").write_text("raise SystemExit('not PyDarshan')")
    monkeypatch.chdir(tmp_path)
    assert read_trace(path).status == "ok"


def test_many_logs_come_in_order(make_log: MakeLog) -> None:
    paths = [make_log(posix=POSIX, ranks=n) for n in range(3, 15)]
    assert [(path, trace.job["ranks"]) for path, trace in read_traces(paths)] == [
        (path, n) for n, path in enumerate(paths, start=3)
    ]
