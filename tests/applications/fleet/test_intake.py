"""`iowatch logs add`: each log counted once and exactly, whatever happens to files, readers and workers."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import Result

from iowatch.applications.fleet import rows as log_rows
from iowatch.applications.fleet.batch import REJECTIONS, close_reader, log_schema, read_batch
from iowatch.applications.fleet.intake import add_logs
from iowatch.applications.fleet.rows import read_log_row
from iowatch.applications.fleet.tables import LogStore
from iowatch.core import MachineError
from iowatch.darshan import DarshanReader, read_trace, worker
from iowatch.darshan import log as darshan_log
from iowatch.session.workers import Engine, dask_workers
from tests.conftest import ROOT
from tests.darshan.conftest import LogSpec, build

DATA = ROOT / "tests" / "data" / "darshan"
LOGS = len([*DATA.glob("*.darshan")])
MakeLog = Callable[..., Path]


class _Now(Executor):
    """Runs a task when it is submitted; `limit` tasks, then the workers are gone, or the scheduler is."""

    def __init__(self, limit: int, scheduler: bool = False) -> None:
        self.left, self.scheduler = limit, scheduler

    def submit(self, task: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left -= 1
        if self.left < 0 and self.scheduler:
            future.cancel()
            future.set_running_or_notify_cancel()
        elif self.left < 0:
            future.set_exception(RuntimeError("KilledWorker"))
        else:
            future.set_result(task(*words, **options))
        return future


def engine(limit: int = 1000, scheduler: bool = False) -> Engine:
    @contextmanager
    def opened() -> Iterator[tuple[Executor, int]]:
        yield _Now(limit, scheduler), 1

    return opened


def no_engine() -> AbstractContextManager[tuple[Executor, int]]:
    raise AssertionError("there is nothing to read")


@pytest.fixture(scope="module", autouse=True)
def stop_reader() -> Iterator[None]:
    yield
    close_reader()


def counts(directory: Path, workers: Engine = engine()) -> dict[str, int]:  # noqa: B008 has no state
    document = add_logs(directory, "here", workers).to_json()
    found = {"counted": document["counted"], "copy": document["copies"], **document["rejected"]}
    return {outcome: number for outcome, number in found.items() if number}


def query(sql: str) -> list[tuple[Any, ...]]:
    with LogStore("here").connect() as database:
        return database.execute(sql).fetchall()


def identity(path: Path, reader: DarshanReader) -> str:
    return str(reader.call(read_log_row, path, file_systems={})["log"])


def test_a_row_has_the_totals_of_its_log(var: Path, reader: DarshanReader) -> None:
    """Sums over file systems and layouts equal those of Darshan's own code (test_totals compares it with its tools)."""
    counts(DATA)
    assert query("SELECT count(*) FROM logs") == [(LOGS,)]
    for path in DATA.glob("*.darshan"):
        trace = read_trace(path, reader)
        rows = query(
            "SELECT layer, sum(bytes_written), sum(bytes_read), sum(writes), sum(reads), sum(opens), sum(meta_time_s), "
            f"sum(unaligned), sum(slowest_s) FROM layers WHERE log = '{identity(path, reader)}' GROUP BY layer"
        )
        assert {row[0] for row in rows} == {
            name for name in trace.modules if name not in ("HEATMAP", "DXT_POSIX", "DXT_MPIIO")
        }
        for layer, written, read, writes, reads, opens, meta, unaligned, slowest in rows:
            name, total = layer.replace("-", ""), trace.modules[layer]
            kinds = ("", "INDEP_", "COLL_", "SPLIT_", "NB_")  # the latter of MPI-IO and PnetCDF
            for word, value in (("WRITES", writes), ("READS", reads), ("OPENS", opens)):
                assert value == sum(total.get(f"{name}_{kind}{word}", 0) for kind in kinds), (path.name, layer, word)
            assert written == total.get(f"{name}_BYTES_WRITTEN", 0)
            assert read == total.get(f"{name}_BYTES_READ", 0)
            assert unaligned == total.get(f"{name}_FILE_NOT_ALIGNED", 0)
            assert meta == pytest.approx(total.get(f"{name}_F_META_TIME", 0))
            # Each layout has a slowest path of its own, so that the sum is at least that of the whole.
            whole = trace.estimate(layer, "time_by_slowest_s")
            assert whole is None or whole * (1 - 1e-9) <= slowest <= 2 * whole + 1e-9


def test_layers_separate_file_systems_and_layouts(var: Path, make_log: MakeLog) -> None:
    posix = [
        ("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 10, "POSIX_F_SLOWEST_RANK_TIME": 4.0, "POSIX_SLOWEST_RANK": 2}),
        ("/lus/b", 0, {"POSIX_BYTES_WRITTEN": 20, "POSIX_F_WRITE_TIME": 1.0}),
        ("/lus/c", 0, {"POSIX_BYTES_WRITTEN": 20, "POSIX_F_WRITE_TIME": 2.0}),
        ("/lus/c", 1, {"POSIX_BYTES_WRITTEN": 1, "POSIX_F_WRITE_TIME": 9.0}),
        ("/lus/d", 1, {"POSIX_BYTES_WRITTEN": -1, "POSIX_F_WRITE_TIME": 2.5}),
        ("/home/u/x", 3, {"POSIX_BYTES_WRITTEN": 7}),
    ]
    log = make_log(posix=posix, mounts=[("ext4", "/"), ("lustre", "/lus")])
    counts(log.parent)
    rows = query("SELECT file_system, layout, files, bytes_written, slowest_s, slowest_rank FROM layers ORDER BY ALL")
    # unique on lus: rank 0 needs 1 s, rank 1 2.5 s; shared: the reduced record's 4 s, and rank 1 with 9 s in /lus/c.
    assert rows == [
        ("ext4", "unique", 1, 7, 0.0, 3),
        ("lustre", "shared", 2, 31, 13.0, 1),
        ("lustre", "unique", 2, 20, 2.5, 1),
    ]


def test_a_log_is_counted_once_however_often_it_is_offered(var: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(DATA, logs, ignore=shutil.ignore_patterns("*.c", "*.json"))
    (logs / "again").mkdir()
    shutil.copy(logs / "posix.darshan", logs / "again" / os.fsdecode(b"other \xff name"))
    assert counts(logs) == {"counted": LOGS, "copy": 1}
    before = query("SELECT * FROM logs ORDER BY log")
    assert counts(logs, no_engine) == {}  # nothing new: no worker is started
    (logs / "hdf5.darshan").rename(logs / "moved.darshan")
    os.utime(logs / "mpiio.darshan", (0, 0))
    assert counts(logs) == {"copy": 2}
    assert query("SELECT * FROM logs ORDER BY log") == before


def test_recompressed_and_converted_logs_are_copies(var: Path, tmp_path: Path) -> None:
    spec = LogSpec(posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 10})])
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a").write_bytes(build(spec))
    (logs / "b").write_bytes(build(spec, level=1))
    assert (logs / "a").read_bytes() != (logs / "b").read_bytes()
    assert counts(logs) == {"counted": 1, "copy": 1}
    # A job step of the same job, second and executable is another log.
    (logs / "c").write_bytes(build(LogSpec(posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 11})])))
    assert counts(logs) == {"counted": 1}


def test_what_is_not_counted_is_counted_by_reason(var: Path, tmp_path: Path) -> None:
    logs, log = tmp_path / "logs", (DATA / "mpiio.darshan").read_bytes()
    logs.mkdir()
    middle = len(log) // 2
    contents = {
        "foreign": b"Dear reader, this is no log.",
        "empty": b"",
        "truncated": log[:middle],
        "damaged": log[:1400] + bytes(40) + log[1440:],
        "foreign.gz": gzip.compress(log),
        "crashed": build(LogSpec(version="3.00", posix=[("", 0, {})])),
    }
    for name, data in contents.items():
        (logs / name).write_bytes(data)
    (logs / "fifo").mkdir()
    os.mkfifo(logs / "fifo" / "pipe")
    (logs / "good").write_bytes(log)
    assert counts(logs) == {"counted": 1, "foreign": 2, "empty": 1, "truncated": 1, "damaged": 1, "crashed": 1}
    assert counts(logs, no_engine) == {}
    (logs / "truncated").write_bytes(log)  # the copy is complete now
    assert counts(logs) == {"copy": 1}


def test_a_reader_that_others_kill_costs_no_log(var: Path, tmp_path: Path) -> None:
    """For example the kernel, which ends the largest process when the memory of a node is full."""
    path = str(shutil.copy(DATA / "posix.darshan", tmp_path))
    read_batch([path], {})
    (child,) = (one for one in psutil.Process().children() if "worker import serve; serve(" in " ".join(one.cmdline())
                and str(2 << 30) in " ".join(one.cmdline()))  # fmt: skip
    child.kill()
    assert read_batch([path], {})["outcome"].to_pylist() == ["counted"]


def test_a_file_that_disappears_is_not_in_the_ledger(var: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(DATA / "posix.darshan", logs)

    @contextmanager
    def late() -> Iterator[tuple[Executor, int]]:
        (logs / "posix.darshan").rename(tmp_path / "posix.darshan")
        yield _Now(9), 1

    assert counts(logs, late) == {"absent": 1}
    (tmp_path / "posix.darshan").rename(logs / "posix.darshan")
    assert counts(logs) == {"counted": 1}


@pytest.mark.parametrize(("scheduler", "words"), [(False, "workers failed: KilledWorker"), (True, "connection to the")])
def test_lost_workers_lose_nothing(
    var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: bool, words: str
) -> None:
    monkeypatch.setattr("iowatch.applications.fleet.intake._BATCH_LOGS", 2)
    monkeypatch.setattr("iowatch.applications.fleet.tables._PART_ROWS", 3)
    logs = tmp_path / "logs"
    logs.mkdir()
    for i in range(11):
        (logs / f"{i}").write_bytes(build(LogSpec(posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 1 << i})])))
    with pytest.raises(MachineError, match=words):
        counts(logs, engine(2, scheduler))
    assert query("SELECT count(*) FROM logs") == [(4,)]
    assert counts(logs) == {"counted": 7}
    assert query("SELECT count(*), sum(bytes_written) FROM layers") == [(11, (1 << 11) - 1)]
    parts = sorted(path.name for path in var.rglob("day=2*/*.parquet"))
    assert parts == [f"part-{n:05d}.parquet" for n in range(1, len(parts) + 1)]


def test_a_failed_write_commits_nothing(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is replaced whole: with the disk full, rows and ledger are those of before."""
    counts(DATA)
    logs = tmp_path / "logs"
    logs.mkdir()
    # Of the day of the data: their part is to be replaced.
    start_s = int(query("SELECT min(start_s) FROM logs")[0][0])
    (logs / "new").write_bytes(build(LogSpec(start_s=start_s)))
    before = query("SELECT * FROM ledger ORDER BY log")

    def fail(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(MachineError, match="No space left"):
            counts(logs)
    assert query("SELECT * FROM ledger ORDER BY log") == before
    assert counts(logs) == {"counted": 1}


def test_tables_contain_no_user_name_path_or_host(
    var: Path, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(
        exe="/home/alice/bin/secret_solver --input /home/alice/x",
        posix=[("/home/alice/x", 0, {"POSIX_READS": 1})],
        mounts=[("nfs", "/home/alice"), ("ext4", "/")],
        metadata={"lib_ver": "3.5.0", "host": "node17"},
    )
    (log.parent / "logs").mkdir()
    log = log.rename(log.parent / "logs" / "alice_secret_solver_id1.darshan")
    assert counts(log.parent) == {"counted": 1}
    words = (b"alice", b"secret", b"node17", str(log.parent).encode())
    stored = [path.read_bytes() for path in (var / "fleet").rglob("*.parquet")]
    assert stored
    plain = str(query("SELECT * EXCLUDE (file) FROM logs")).encode() + b"".join(stored)
    assert [word for word in words if word in plain] == []
    assert query("SELECT DISTINCT file_system FROM layers") == [("nfs",)]
    monkeypatch.setenv("IOWATCH_LOG_EXECUTABLES", "name")
    os.utime(log, (0, 0))
    shutil.rmtree(var / "fleet")
    counts(log.parent)
    assert query("SELECT application FROM logs") == [("secret_solver",)]


def test_every_reason_of_the_reader_is_registered() -> None:
    sources = (darshan_log.__file__, worker.__file__, log_rows.__file__)
    text = "".join(Path(source).read_text() for source in sources)
    import re

    used = set(re.findall(r'reason="(\w+)"', text)) | {"foreign", "absent", "empty", "unreadable"}
    assert used == REJECTIONS.keys()


def test_rows_have_all_columns(var: Path, reader: DarshanReader) -> None:
    row = reader.call(read_log_row, DATA / "mpiio.darshan", file_systems={})
    columns = {field.name: field.type for field in log_schema()}
    assert columns.keys() == row.keys() | {"file", "size", "mtime_ns", "outcome"}
    assert all(one.keys() == {f.name for f in columns["layers"].value_type} for one in row["layers"])


def test_directory_without_a_readable_log_is_no_success(cli: Callable[..., Result], var: Path, tmp_path: Path) -> None:
    """Its file system is not mounted, it has links only, or every log is of a version that nobody knows."""
    empty, linked, foreign = tmp_path / "empty", tmp_path / "linked", tmp_path / "foreign"
    for directory in (empty, linked, foreign):
        directory.mkdir()
    for path in DATA.glob("*.darshan"):
        (linked / path.name).symlink_to(path)
    content = next(DATA.glob("*.darshan")).read_bytes()
    (foreign / "a.darshan").write_bytes(b"3.99\0\0\0\0" + content[8:])

    def add(directory: Path) -> Result:
        return cli("logs", "add", directory, "--system", "here", "--workers", "1")

    done = add(empty)
    assert (done.exit_code, "has no files: is its file system mounted?" in done.stderr) == (1, True)
    done = add(linked)
    assert (done.exit_code, f"but {LOGS} symbolic links, which are not followed" in done.stderr) == (1, True)
    done = add(foreign)
    assert (done.exit_code, "none of the 1 files below" in done.stderr) == (1, True)


def test_logs_that_are_known_are_a_success(cli: Callable[..., Result], var: Path, tmp_path: Path) -> None:
    shutil.copy(next(DATA.glob("*.darshan")), tmp_path / "a.darshan")
    codes = [cli("logs", "add", tmp_path, "--system", "here", "--workers", "1").exit_code for _ in range(2)]
    assert codes == [0, 0]


def test_directory_that_cannot_be_listed_is_named(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of the others are counted; what went away meanwhile is no error. Root may list everything: simulated."""
    shutil.copy(next(DATA.glob("*.darshan")), tmp_path / "a.darshan")
    real_walk = os.walk

    def walk(top: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        yield from real_walk(top)
        onerror(PermissionError(13, "Permission denied", "/darshan/secret"))
        onerror(FileNotFoundError(2, "No such file or directory", "/darshan/gone"))

    monkeypatch.setattr(os, "walk", walk)
    summary = add_logs(tmp_path, "here", engine())
    assert summary.to_json()["counted"] == 1
    assert summary.problems() == ["not listed: /darshan/secret: Permission denied"]


def test_wrong_use_is_explained(cli: Callable[..., Result], var: Path, tmp_path: Path) -> None:
    absent = cli("logs", "add", tmp_path / "none", "--system", "here")
    assert (absent.exit_code, "no such directory" in absent.output) == (2, True)
    named = cli("logs", "add", tmp_path, "--system", "../there")
    assert (named.exit_code, "letters, digits" in named.output) == (2, True)
    (tmp_path / "log").write_bytes(b"")
    both = cli("logs", "add", tmp_path, "--system", "here", "--scheduler", "tcp://127.0.0.1:9", "--workers", "2")
    assert (both.exit_code, "--workers is for" in both.output) == (2, True)


@pytest.mark.slow_after(1)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Dask on a busy machine: starting takes long
@pytest.mark.parametrize("number", [1, 3])
def test_as_many_workers_start_as_are_asked_for(number: int) -> None:
    """Not one per core, which is Dask's default: at least one of the numbers differs from it."""
    import distributed

    with dask_workers(None, number) as (_, workers):
        assert (workers, len(distributed.default_client().ncores())) == (number, number)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Dask on a busy machine: starting takes long
def test_a_killed_worker_is_replaced(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing: two processes of Dask on this host, one of which is killed while it reads."""
    import signal

    monkeypatch.setattr("iowatch.applications.fleet.intake._BATCH_LOGS", 5)
    logs = tmp_path / "logs"
    logs.mkdir()
    for i in range(60):
        (logs / f"{i}").write_bytes(build(LogSpec(posix=[("/lus/a", -1, {"POSIX_BYTES_WRITTEN": 1 + i})])))

    @contextmanager
    def killed() -> Iterator[tuple[Executor, int]]:
        with dask_workers(None, 2) as (executor, workers):
            os.kill(executor.submit(os.getpid).result(), signal.SIGKILL)
            yield executor, workers

    assert counts(logs, killed) == {"counted": 60}
    assert query("SELECT count(*), sum(bytes_written) FROM layers") == [(60, 60 * 61 // 2)]
    document = json.dumps(add_logs(logs, "here", no_engine).to_json())
    assert json.loads(document)["known"] == 60
