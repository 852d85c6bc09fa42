"""`iowatch workload check`, `add`, `list` and `show`."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from iowatch.applications.workloads.memory import MemoryUse, nearest_memory
from iowatch.benchmarks.suites import load_suite
from iowatch.site import suite_on_system
from tests.conftest import ROOT
from tests.darshan.conftest import LogSpec, build

Cli = Callable[..., Result]
PLACE = {"offset": 0, "size": 100}
DOCUMENT: dict[str, Any] = {
    "name": "tiny-solver",
    "source": "[lawrence2017], Table 1",
    "parameters": {"traced_ranks": 2},
    "files": {"file1": {"api": "posix", "layout": "per-process", "bytes": 100}},
    "phases": [
        {"name": "write", "actions": [{"create": "file1"}, {"write": "file1", **PLACE}, {"close": "file1"}]},
        {"name": "read", "actions": [{"open": "file1"}, {"read": "file1", **PLACE}, {"close": "file1"}]},
    ],
}  # fmt: skip


def log_of(path: str, size: int = 100, opens: int = 2, write_s: float = 0.1, read_s: float = 0.2) -> bytes:
    """Two ranks write a file each and read it."""
    counters = {"POSIX_OPENS": opens, "POSIX_WRITES": 1, "POSIX_READS": 1, "POSIX_MODE": 0o644}
    files = [path.format(rank=rank) for rank in range(2)]
    posix = [(file, rank, counters) for rank, file in enumerate(files)]
    dxt = [
        (file, rank, [(0, size, 1.0, 1.0 + write_s)], [(0, size, 2.0, 2.0 + read_s)]) for rank, file in enumerate(files)
    ]
    return build(LogSpec(ranks=2, posix=posix, dxt=dxt, exe="/home/alice/x"))


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Callable[..., Result]:
    """Check a workload with a launcher that leaves a given log in the place of a run of benchio."""
    (tmp_path / "libdarshan.so").touch()
    programs = {
        "darshan-config": f'echo "-L{tmp_path} -ldarshan"',
        "launcher": 'for w; do case "$w" in DARSHAN_LOGFILE=*) log=${w#*=};; --workload=*) file=${w#*=};; esac; done\n'
        "kind=$(sed -n 's/^memory: {read: \\([a-z0-9]*\\).*/-\\1/p' \"$file\")\n"
        'grep -q "halo: true" "$file" && kind=$kind-halo\n'
        f'cp {tmp_path}/replay$kind "$log" || cp {tmp_path}/replay "$log"\n'
        f"exit $(cat {tmp_path}/rc)",
        "benchio": "exit 1",
    }  # fmt: skip
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "original").write_bytes(log_of("/home/alice/own.{rank}"))
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(DOCUMENT))

    def check(log: bytes, *options: str, rc: int = 0) -> Result:
        (tmp_path / "replay").write_bytes(log)
        (tmp_path / "rc").write_text(str(rc))
        words = ("workload", "check", tmp_path / "w.yaml", tmp_path / "original", "--dir", tmp_path)
        return cli(*words, "--launcher", "launcher -n", *options)

    return check


def test_a_replay_that_does_the_same_is_equal(replay: Callable[..., Result]) -> None:
    """benchio opens a file once more before a phase that reads it, which is not an operation of the workload."""
    result = replay(log_of("/s/benchio-1/data.file1.0.{rank}", opens=3), "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["equal"]) == (0, True)
    rows = {(row["api"], row["name"]): (row["original"], row["replay"]) for row in document["rows"]}
    assert rows["posix", "opens"] == (4, 4)
    assert rows["posix", "files of one rank"] == (2, 2)
    assert rows["posix", "sizes read"] == ([[100, 2]], [[100, 2]])
    assert rows["", "I/O s of phase 2"][0] == pytest.approx(0.2)


def test_a_replay_has_as_many_phases_as_its_description(replay: Callable[..., Result], tmp_path: Path) -> None:
    """The first phase writes 0.1 s and reads 0.2 s; after a pause the second one writes 0.4 s, in the replay 0.5 s."""

    def log(path: str, last_s: float) -> bytes:
        counters = {"POSIX_OPENS": 3, "POSIX_WRITES": 2, "POSIX_READS": 1, "POSIX_MODE": 0o644}
        writes = [(0, 100, 1.0, 1.1), (0, 100, 5.0, 5.0 + last_s)]
        files = [(path.format(rank=rank), rank) for rank in range(2)]
        posix = [(*file, counters) for file in files]
        dxt = [(*file, writes, [(0, 100, 1.2, 1.4)]) for file in files]
        return build(LogSpec(ranks=2, posix=posix, dxt=dxt, exe="/home/alice/x"))

    write, read = (phase["actions"] for phase in DOCUMENT["phases"])
    phases = [{"name": "both", "actions": [*write, *read]}, {"name": "again", "actions": write}]
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({**DOCUMENT, "phases": phases}))
    (tmp_path / "original").write_bytes(log("/home/alice/own.{rank}", 0.4))
    result = replay(log("/s/benchio-1/data.file1.0.{rank}", 0.5), "--json")
    rows = {row["name"]: (row["original"], row["replay"]) for row in json.loads(result.stdout)["rows"]}
    assert rows["I/O s of phase 1"] == pytest.approx((0.3, 0.3))
    assert rows["I/O s of phase 2"] == pytest.approx((0.4, 0.5))
    assert "I/O s of phase 3" not in rows


def test_memory_of_transfers_is_fitted_to_the_times_of_the_log(replay: Callable[..., Result], tmp_path: Path) -> None:
    """The log has 0.1 s of writes and 0.2 s of reads; writes of new memory do not exist."""
    path = "/s/benchio-1/data.file1.0.{rank}"
    kept = [(str(100 // turns), 0.15, 0.12) for turns in (2, 3, 4, 8)]
    for kind, write_s, read_s in (("rotating", 0.15, 0.1), ("reused", 0.11, 0.05), ("new", 0.15, 0.21), *kept):
        log = log_of(path, opens=3, write_s=write_s, read_s=read_s)
        (tmp_path / f"replay-{kind}").write_bytes(log)
    before = (tmp_path / "w.yaml").read_text()
    result = replay(log_of(path, opens=3), "--fit-memory")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "w.yaml").read_text()
    assert before.startswith("files:")
    assert text == "memory: {read: new, write: reused}\n" + before
    assert replay(log_of(path, opens=3), "--fit-memory").exit_code == 0
    assert (tmp_path / "w.yaml").read_text() == text


@pytest.mark.slow
def test_memory_that_is_kept_is_fitted(replay: Callable[..., Result], tmp_path: Path) -> None:
    """Each rank reads 100 bytes in 0.2 s, which only a fourth of them as memory that is kept explains."""
    path = "/s/benchio-1/data.file1.0.{rank}"
    for kind, read_s in (
        ("rotating", 0.1),
        ("reused", 0.05),
        ("new", 0.3),
        ("50", 0.25),
        ("33", 0.22),
        ("25", 0.19),
        ("12", 0.15),
    ):
        (tmp_path / f"replay-{kind}").write_bytes(log_of(path, opens=3, read_s=read_s))
    result = replay(log_of(path, opens=3), "--fit-memory")
    assert result.exit_code == 0, result.output
    assert "memory of transfers: read 25, write " in result.output
    assert yaml.safe_load((tmp_path / "w.yaml").read_text())["memory"]["read"] == 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves_parts", "with_halo"), [(True, (0.101, 0.199)), (True, (0.2, 0.4)), (False, (0.1, 0.2))]
)
def test_a_halo_is_fitted_where_parts_of_arrays_move(
    replay: Callable[..., Result], tmp_path: Path, moves_parts: bool, with_halo: tuple[float, float]
) -> None:
    """The log has 0.1 s of writes and 0.2 s of reads, and reused memory without a halo comes near them."""
    path = "/s/benchio-1/data.file1.0.{rank}"
    box: dict[str, Any] = {"offset": 0, "collective": True}
    box |= {"shape": [8, 8], "start": [0, 0], "count": [2, 2]} if moves_parts else {"size": 4}
    never = {"repeat": 0, "actions": [{"write": "array", **box}]}
    first, *rest = DOCUMENT["phases"]
    files = {**DOCUMENT["files"], "array": {"api": "mpiio", "bytes": 64}}
    phases = [{**first, "actions": [*first["actions"], never]}, *rest]
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({**DOCUMENT, "files": files, "phases": phases}))
    (tmp_path / "replay-reused").write_bytes(log_of(path, opens=3, write_s=0.11, read_s=0.19))
    for kind in ("rotating", "reused", "new", "50", "33", "25", "12"):
        log = log_of(path, opens=3, write_s=with_halo[0], read_s=with_halo[1])
        (tmp_path / f"replay-{kind}-halo").write_bytes(log)
    result = replay(log_of(path, opens=3, write_s=0.3, read_s=0.6), "--fit-memory")
    assert result.exit_code == 0, result.output
    memory = yaml.safe_load((tmp_path / "w.yaml").read_text())["memory"]
    is_nearer = moves_parts and with_halo[0] < 0.11
    assert memory == ({"read": "rotating", "write": "rotating", "halo": True} if is_nearer else
                      {"read": "reused", "write": "reused"})  # fmt: skip


@pytest.mark.slow
def test_the_median_of_several_runs_is_fitted(replay: Callable[..., Result], tmp_path: Path) -> None:
    """One of three runs met other work; a log of other operations is refused."""
    path, own = "/s/benchio-1/data.file1.0.{rank}", "/home/alice/own.{rank}"
    for kind, read_s in (("rotating", 0.2), ("reused", 0.1), ("new", 0.4)):
        (tmp_path / f"replay-{kind}").write_bytes(log_of(path, opens=3, read_s=read_s))
    (tmp_path / "original").write_bytes(log_of(own, read_s=0.4))
    for name, read_s, size in (("second", 0.19, 100), ("third", 0.21, 100), ("other", 0.2, 99)):
        (tmp_path / name).write_bytes(log_of(own, read_s=read_s, size=size))
    further = [str(tmp_path / name) for name in ("second", "third")]
    assert replay(log_of(path, opens=3), *further).exit_code == 2
    result = replay(log_of(path, opens=3), *further, "--fit-memory")
    assert "memory of transfers: read rotating, write" in result.output
    result = replay(log_of(path, opens=3), str(tmp_path / "other"), "--fit-memory")
    assert result.exit_code == 2
    assert f"{tmp_path / 'other'}: other operations than {tmp_path / 'original'}" in result.output


def mpi_log_of(path: str, seconds: float, below: float, verb: str = "WRITE") -> bytes:
    """Two ranks write or read a file each through MPI-IO; so much of the time they are in POSIX."""
    counters = {"MPIIO_INDEP_OPENS": 1, f"MPIIO_INDEP_{verb}S": 1, "MPIIO_MODE": 5, f"MPIIO_F_{verb}_TIME": seconds}
    under = {"POSIX_OPENS": 1, f"POSIX_{verb}S": 1, "POSIX_MODE": 0o644, f"POSIX_F_{verb}_TIME": below * seconds}
    # The write time of an input file that benchio makes before is not that of a transfer of MPI-IO.
    other = {"POSIX_OPENS": 1, "POSIX_MODE": 0o644, "POSIX_F_WRITE_TIME": 50.0}
    files = [path.format(rank=rank) for rank in range(2)]
    access, none = [(0, 100, 1.0, 1.0 + seconds)], list[tuple[int, int, float, float]]()
    pair = (access, none) if verb == "WRITE" else (none, access)
    trace = [(file, rank, *pair) for rank, file in enumerate(files)]
    return build(
        LogSpec(
            ranks=2,
            mpiio=[(file, rank, counters) for rank, file in enumerate(files)],
            posix=[*((file, rank, under) for rank, file in enumerate(files)), ("/s/other", 0, other)],
            dxt_mpiio=trace,
            dxt=trace,
            exe="/home/alice/x",
        )
    )


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("below", "with_halo"), [(0.8, True), (0.95, False)])
def test_what_mpi_io_takes_itself_says_whether_there_is_a_halo(
    replay: Callable[..., Result], tmp_path: Path, below: float, with_halo: bool
) -> None:
    """The machine was twice as slow in the replays; with a halo POSIX takes 75 % of the time (new: 40 %), else 99 %."""
    part = {"offset": 0, "collective": True, "shape": [10, 10], "start": [0, 0], "count": [10, 10]}
    actions = [{"create": "file1"}, {"write": "file1", **part}, {"close": "file1"}]
    file = {"api": "mpiio", "layout": "per-process", "bytes": 100}
    document = {**DOCUMENT, "files": {"file1": file}, "phases": [{"name": "write", "actions": actions}]}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "original").write_bytes(mpi_log_of("/home/alice/own.{rank}", 0.1, below))
    path = "/s/benchio-1/data.file1.0.{rank}"
    for kind in ("rotating", "reused", "new"):
        (tmp_path / f"replay-{kind}").write_bytes(mpi_log_of(path, 0.2, 0.99))
        (tmp_path / f"replay-{kind}-halo").write_bytes(mpi_log_of(path, 0.25, 0.4 if kind == "new" else 0.75))
    result = replay(mpi_log_of(path, 0.1, below), "--fit-memory")
    assert "memory of transfers: write rotating" in result.output
    memory = yaml.safe_load((tmp_path / "w.yaml").read_text())["memory"]
    assert memory == {"write": "rotating", **({"halo": True} if with_halo else {})}


@pytest.mark.slow
def test_memory_of_reads_is_fitted_among_those_with_the_same_share_of_posix(
    replay: Callable[..., Result], tmp_path: Path
) -> None:
    """The machine was slow when the program ran: other memory, with which POSIX takes another share, took as long."""
    part = {"offset": 0, "collective": True, "shape": [10, 10], "start": [0, 0], "count": [10, 10]}
    actions = [{"open": "file1"}, {"read": "file1", **part}, {"close": "file1"}]
    file = {"api": "mpiio", "layout": "per-process", "bytes": 100, "input": True}
    document = {**DOCUMENT, "files": {"file1": file}, "phases": [{"name": "read", "actions": actions}]}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "original").write_bytes(mpi_log_of("/home/alice/own.{rank}", 0.2, 0.74, "READ"))
    path = "/s/benchio-1/data.file1.0.{rank}"
    for kind, seconds, below in (("rotating", 0.13, 0.77), ("reused", 0.11, 0.75), ("new", 0.2, 0.55)):
        (tmp_path / f"replay-{kind}-halo").write_bytes(mpi_log_of(path, seconds, below, "READ"))
    replay(mpi_log_of(path, 0.2, 0.99, "READ"), "--fit-memory")
    assert yaml.safe_load((tmp_path / "w.yaml").read_text())["memory"] == {"read": "rotating", "halo": True}


def test_the_share_of_posix_in_writes_says_nothing_about_reads() -> None:
    """Only writes differ in their share; the program read into the same memory, and wrote from others."""

    def profile(read: float, write: float, of_reads: float, of_writes: float) -> dict[str, Any]:
        durations = {verb: [(100, s, [s] * 9)] for verb, s in (("read", read), ("write", write))}
        return {"durations": durations, "below": {"read": of_reads, "write": of_writes}}

    tried = {
        MemoryUse(False, "rotating"): [profile(0.2, 0.2, 0.95, 0.8)],
        MemoryUse(False, "reused"): [profile(0.1, 0.2, 0.95, 0.9)],
        MemoryUse(False, 50): [profile(0.3, 0.2, 0.95, 0.8)],
    }
    assert nearest_memory(tried, [profile(0.1, 0.2, 0.95, 0.8)]) == {"read": "reused", "write": "rotating"}
    assert nearest_memory(tried, [profile(0.3, 0.2, 0.95, 0.9)]) == {"read": 50, "write": "reused"}


@pytest.mark.slow
def test_fitted_memory_replaces_one_line_or_nothing(replay: Callable[..., Result], tmp_path: Path) -> None:
    log, rest = log_of("/s/benchio-1/data.file1.0.{rank}", opens=3), (tmp_path / "w.yaml").read_text()
    (tmp_path / "w.yaml").write_text(f"memory: {{read: new}}  # by hand\n{rest}")
    assert replay(log, "--fit-memory").exit_code == 0
    assert (tmp_path / "w.yaml").read_text() == f"memory: {{read: rotating, write: rotating}}\n{rest}"
    several = f"memory:\n  read: new\n{rest}"
    (tmp_path / "w.yaml").write_text(several)
    result = replay(log, "--fit-memory")
    assert (result.exit_code, (tmp_path / "w.yaml").read_text()) == (2, several)
    assert "Write it: memory: {read: rotating, write: rotating}" in result.output


def test_memory_is_not_fitted_without_times(replay: Callable[..., Result], tmp_path: Path) -> None:
    counters = {"POSIX_OPENS": 1, "POSIX_WRITES": 1, "POSIX_MAX_BYTE_WRITTEN": 99, "POSIX_BYTES_WRITTEN": 100,
                "POSIX_SIZE_WRITE_0_100": 1}  # fmt: skip
    spec = LogSpec(ranks=2, posix=[("/home/alice/a", rank, counters) for rank in range(2)], exe="/home/alice/x")
    (tmp_path / "original").write_bytes(build(spec))
    result = replay(log_of("/s/data.file1.0.{rank}"), "--fit-memory")
    assert result.exit_code == 2
    assert "no times of accesses" in result.output
    assert "memory" not in (tmp_path / "w.yaml").read_text()


def test_a_replay_with_other_sizes_differs(replay: Callable[..., Result]) -> None:
    result = replay(log_of("/s/benchio-1/data.file1.0.{rank}", size=99, opens=3))
    assert result.exit_code == 1
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("posix bytes written"))
    assert row.split()[-3:] == ["200", "198", "differs"]
    # Bytes, both lists of sizes, and no file is as it was.
    assert "5 figures differ" in result.stdout
    (files,) = (line for line in result.stdout.splitlines() if "same operations and bytes" in line)
    assert files.split()[-3:] == ["2", "0", "differs"]


def log_with_header(path: str, *, traced: bool = True, header: bool = True) -> bytes:
    """Rank 0 writes 50 bytes by POSIX, then both ranks 100 each collectively: MPI-IO, and POSIX below it."""
    counters = {"POSIX_OPENS": 3, "POSIX_WRITES": 3, "POSIX_FSYNCS": 1, "POSIX_BYTES_WRITTEN": 250, "POSIX_MODE": 0o644}
    direct = [(0, 50, 1.0, 1.1)] if header else []
    if not header:
        counters |= {"POSIX_OPENS": 2, "POSIX_WRITES": 2, "POSIX_FSYNCS": 0, "POSIX_BYTES_WRITTEN": 200}
    mpiio = {"MPIIO_COLL_OPENS": 2, "MPIIO_COLL_WRITES": 2, "MPIIO_BYTES_WRITTEN": 200, "MPIIO_MODE": 5,
             "MPIIO_SIZE_WRITE_AGG_0_100": 2, "MPIIO_ACCESS1_ACCESS": 100, "MPIIO_ACCESS1_COUNT": 2,
             "MPIIO_F_OPEN_START_TIMESTAMP": 1.5, "MPIIO_F_WRITE_START_TIMESTAMP": 2.0,
             "MPIIO_F_WRITE_END_TIMESTAMP": 2.5}  # fmt: skip
    spec = LogSpec(ranks=2, posix=[(path, -1, counters)], mpiio=[(path, -1, mpiio)], exe="/home/alice/x")
    if traced:
        places = [(50 + 100 * rank, 100) for rank in range(2)]
        spec.dxt_mpiio = [(path, rank, [(*places[rank], 2.0, 2.5)], []) for rank in range(2)]
        spec.dxt = [(path, rank, [*(direct if rank == 0 else []), (*places[rank], 2.1, 2.4)], []) for rank in range(2)]
    return build(spec)


@pytest.fixture
def header_workload(tmp_path: Path, replay: Callable[..., Result], cli: Cli) -> Callable[..., Result]:
    """Describe a log of `log_with_header`, and check a replay of it."""

    def check(traced: bool, replayed: bytes) -> Result:
        original = tmp_path / "original"
        original.write_bytes(log_with_header("/home/alice/a", traced=traced))
        assert cli("workload", "from-darshan", original, "-o", tmp_path / "w.yaml").exit_code == 0
        return replay(replayed)

    return check


def test_posix_accesses_to_a_file_of_mpiio_are_compared(header_workload: Callable[..., Result]) -> None:
    """A replay without the header is not what the application did: 50 of 250 bytes are missing."""
    result = header_workload(True, log_with_header("/s/data.file1.0.0"))
    assert result.exit_code == 0, result.output
    assert "the replay does what the application did" in result.stdout
    result = header_workload(True, log_with_header("/s/data.file1.0.0", header=False))
    assert result.exit_code == 1
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("posix bytes written"))
    assert row.split()[-3:] == ["50", "0", "differs"]


def test_bytes_beyond_mpiio_without_dxt_are_no_equal_replay(
    header_workload: Callable[..., Result], tmp_path: Path
) -> None:
    result = header_workload(False, log_with_header("/s/data.file1.0.0", header=False))
    assert result.exit_code == 1
    (row,) = (line for line in result.stdout.splitlines() if "beyond MPI-IO" in line)
    assert row.split()[-3:] == ["50", "0", "differs"]
    description = yaml.safe_load((tmp_path / "w.yaml").read_text())["description"]
    assert "POSIX read 0 bytes and wrote 50 bytes more than MPI-IO" in description


def test_a_replay_that_fails_is_an_error(replay: Callable[..., Result]) -> None:
    result = replay(b"", rc=1)
    assert result.exit_code == 2
    assert "benchio cannot run it on 2 ranks" in result.stderr


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (("------", "mpirun: not enough slots", "Aborting."), "mpirun: not enough slots"),
        (
            ("mpirun: a process ended", "benchio: /s: no such directory", "benchio: ended"),
            "benchio: /s: no such directory",
        ),
        ((), "exit 1"),
    ],
)
def test_the_first_message_is_the_reason_of_a_failed_replay(
    replay: Callable[..., Result], tmp_path: Path, messages: tuple[str, ...], reason: str
) -> None:
    """Of benchio if it wrote one, else of the launcher; lines without a word are rules."""
    lines = "".join(f"echo '{message}' >&2\n" for message in messages)
    (tmp_path / "bin" / "launcher").write_text(f"#!/bin/sh\n{lines}exit 1\n")
    result = replay(b"", rc=1)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert not any(message in result.stderr for message in messages if message != reason)


def write_workload(path: Path, **changed: Any) -> Path:
    path.write_text(yaml.safe_dump({**DOCUMENT, **changed}, sort_keys=False))
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    return tmp_path / "site"


def test_an_added_workload_is_a_case_of_the_nightly_suite(site: Path, tmp_path: Path, cli: Cli) -> None:
    before = {case.run_name for case in load_suite("nightly")}
    file = write_workload(tmp_path / "any.yaml")
    result = cli("workload", "add", file, "--system", "local")
    assert result.exit_code == 0, result.stderr
    found = {case.run_name: case for case in suite_on_system("nightly", "local")}
    assert found.keys() - before == {"benchio:tiny-solver"}
    case = found["benchio:tiny-solver"]
    assert (case.suite, case.ranks) == ("nightly", 2)
    assert ("write", "bandwidth") in case.expects
    assert {one.run_name for one in suite_on_system("nightly", "archer")} == before
    assert yaml.safe_load((site / "workloads" / "tiny-solver.yaml").read_text()) == DOCUMENT
    again = cli("workload", "add", file, "--system", "local")
    assert (again.exit_code, "local has this workload already" in again.stderr) == (2, True)
    assert cli("workload", "add", file, "--system", "archer").exit_code == 0
    assert "benchio:tiny-solver" in {one.run_name for one in suite_on_system("nightly", "archer")}


@pytest.mark.parametrize(
    ("changed", "options", "reason"),
    [
        ({"phases": []}, [], "phases"),
        ({"files": {"file1": {"api": "posix", "bytes": "nx"}}}, [], "unknown name 'nx'"),
        ({}, ["--ranks", "2000"], "local cannot run tiny-solver"),
    ],
)
def test_a_workload_that_cannot_run_is_not_added(
    changed: dict[str, Any], options: list[str], reason: str, site: Path, tmp_path: Path, cli: Cli
) -> None:
    result = cli("workload", "add", write_workload(tmp_path / "any.yaml", **changed), "--system", "local", *options)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert [path for path in site.rglob("*.yaml") if path.name != "site.yaml"] == []


def test_workloads_are_listed_and_shown(site: Path, tmp_path: Path, cli: Cli) -> None:
    (site / "workloads").mkdir()
    write_workload(site / "workloads" / "tiny-solver.yaml")
    listed = json.loads(cli("workload", "list", "--json").stdout)["workloads"]
    shipped = {path.stem for path in (ROOT / "benchmarks" / "benchio" / "workloads").glob("*.yaml")}
    assert {row["name"] for row in listed} == shipped | {"tiny-solver"}
    assert "[lawrence2017], Table 1" in cli("workload", "list").stdout
    shown = cli("workload", "show", "tiny-solver", "--ranks", "3").stdout
    assert "write: 0 B read, 300 B written; 3 close, 3 create, 3 write" in shown
    assert "Did you mean 'tiny-solver'?" in cli("workload", "show", "tiny-solvr").stderr
