"""Figures of a centre's Darshan logs (`python bench/fleet.py [logs [N] | kills [N] | totals [N] | years [N]]`).

`logs` (the default, N = 2,000): time of `iowatch logs add` with two workers and with one, again with nothing new, and
the memory of each worker. `kills`: workers, readers and the command (with the scheduler) are killed at random, N = 10
times, until all logs are counted. `totals`: sums of N = 200 logs against `darshan-parser --total` (on PATH).
`years` (N = 5): simulated years without a loss, with one in all runs of 20 of 60 applications, and with one in those of
their runs that get one of the slow third of the nodes.

Logs are made from real ones by a seeded generator: job ids, times, users, executables, names, bytes and times differ.
Two in a hundred are copies, one is truncated. Aims: 100,000 logs in 30 minutes on two cores, nothing new in 30 s, two
workers 0.6 of the time of one, 1 GiB per worker, no log lost or counted twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from darshan.backend.cffi_backend import counter_names, fcounter_names  # noqa: E402
from tests.datasets import OUTSIDE  # noqa: E402

from iowatch.darshan import log  # noqa: E402

HEADER_BYTES, SLOTS = 1328, 64
START_S = 1_767_225_600  # 1 January 2026
MIB = 2**20


# Columns to the counters of darshan-parser, of whichever layer has them.
_KINDS = ("", "INDEP_", "COLL_", "SPLIT_", "NB_")
COUNTERS = {
    "bytes_read": ["BYTES_READ"],
    "bytes_written": ["BYTES_WRITTEN"],
    "stats": ["STATS"],
    "unaligned": ["FILE_NOT_ALIGNED"],
    "opens": [f"{kind}OPENS" for kind in _KINDS],
    "reads": [f"{kind}READS" for kind in _KINDS],
    "writes": [f"{kind}WRITES" for kind in _KINDS],
}


class Template:
    """A real log of format 3.41, from which others are made."""

    def __init__(self, path: Path) -> None:
        header = log.read_header(path)
        data = path.read_bytes()
        self.flags = data[17:32]
        with path.open("rb") as file:

            def content(region: log.LogRegion | None) -> bytes:
                return b"".join(log.decompress_region(file, region, header.compression)) if region else b""

            self.job, self.names = content(header.job), content(header.names)
            self.modules = {name: (part.version, content(part)) for name, part in header.modules.items()}

    def vary(self, number: int, dice: random.Random) -> tuple[bytes, int]:
        """Return another log, and the bytes that it wrote through POSIX."""
        application = dice.randrange(60)
        start, length = START_S + dice.randrange(86_400), dice.randrange(10, 3600)
        _, _, _, _, _, ranks, _ = struct.unpack_from("<7q", self.job)
        job = struct.pack("<7q", 1000 + application % 7, start, number % 10**9, start + length, 0, ranks, number)
        _, _, mounts = self.job[1080:].partition(b"\n")
        job += (
            self.job[56:1080] + f"/home/u{application % 7}/bin/app{application:02d} -i in{number}\n".encode() + mounts
        )
        size, speed = dice.uniform(0.5, 2), dice.lognormvariate(0, 0.2)
        modules = {
            name: (version, _vary_records(name, data, size, speed)) for name, (version, data) in self.modules.items()
        }
        written = _column_sum("POSIX", modules["POSIX"][1], "POSIX_BYTES_WRITTEN") if "POSIX" in modules else 0
        return self._pack(job, _vary_names(self.names, number), modules), written

    def _pack(self, job: bytes, names: bytes, modules: dict[str, tuple[int, bytes]]) -> bytes:
        regions, versions, body = [(0, 0)] * (SLOTS + 1), [0] * SLOTS, zlib.compress(job)
        for name, (version, data) in {"": (0, names), **modules}.items():
            slot = 1 + log.MODULES.index(name) if name else 0
            packed = zlib.compress(data)
            regions[slot] = (HEADER_BYTES + len(body), len(packed))
            versions[slot - 1] = version if name else versions[slot - 1]
            body += packed
        start = struct.pack("<8sqB", b"3.41", log.MAGIC, 0) + self.flags
        start += b"".join(struct.pack("<QQ", *region) for region in regions) + struct.pack(f"<{SLOTS}I", *versions)
        return start + body


def _layout(module: str) -> tuple[np.dtype[Any], list[str], list[str]]:
    integers, floats = counter_names(module), fcounter_names(module)
    fields = [("id", "<u8"), ("rank", "<i8"), ("integers", "<i8", (len(integers),)), ("floats", "<f8", (len(floats),))]
    return np.dtype(fields), integers, floats


def _vary_records(module: str, data: bytes, size: float, speed: float) -> bytes:
    if module not in ("POSIX", "MPI-IO", "STDIO"):
        return data
    layout, integers, floats = _layout(module)
    rows = np.frombuffer(data, layout).copy()
    moved = [i for i, name in enumerate(integers) if "_BYTES_" in name]
    timed = [i for i, name in enumerate(floats) if name.endswith("_TIME")]
    rows["integers"][:, moved] = (rows["integers"][:, moved] * size).astype(np.int64)
    rows["floats"][:, timed] *= size / speed
    return rows.tobytes()


def _column_sum(module: str, data: bytes, counter: str) -> int:
    layout, integers, _ = _layout(module)
    return int(np.frombuffer(data, layout)["integers"][:, integers.index(counter)].clip(0).sum())


def _vary_names(names: bytes, number: int) -> bytes:
    """Append a number to each path; the names of Darshan's own records stay."""
    found, position = b"", 0
    while position < len(names):
        end = names.index(b"\0", position + 8)
        text = names[position + 8 : end]
        found += names[position : position + 8] + text + (b".%d" % number if text.startswith(b"/") else b"") + b"\0"
        position = end + 1
    return found


def templates(place: Path) -> tuple[list[Template], list[int]]:
    """Logs of this repository and, if present, published ones; old formats are converted. Weights: large is rare."""
    found, weights = [], []
    paths = [*(ROOT / "tests/data/darshan").glob("*.darshan"), *(OUTSIDE / "data/darshan-logs").glob("*.darshan")]
    for path in sorted(paths):
        chosen = path
        if log.read_header(path).version != "3.41":
            chosen = place / path.name
            if not shutil.which("darshan-convert"):
                continue
            subprocess.run(["darshan-convert", path, chosen], check=True, capture_output=True)
        found.append(Template(chosen))
        weights.append(1 if path.stat().st_size > 30_000 else 10)
    return found, weights


def make_logs(place: Path, count: int, seed: int = 1) -> dict[str, int]:
    """Write logs of one day and return what must be counted."""
    dice = random.Random(seed)  # noqa: S311
    (place / "converted").mkdir(parents=True)
    kinds, weights = templates(place / "converted")
    expected = {"counted": 0, "copies": 0, "truncated": 0, "written": 0}
    data = b""
    for number in range(count):
        folder = place / "logs" / f"{number // 5000:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        kind = dice.random()
        if data and kind < 0.02:
            expected["copies"] += 1
        else:
            data, written = dice.choices(kinds, weights)[0].vary(number, dice)
            if kind > 0.99:
                data = data[: dice.randrange(HEADER_BYTES + 8, HEADER_BYTES + 300)]
                expected["truncated"] += 1
            else:
                expected["counted"] += 1
                expected["written"] += written
        (folder / f"u{dice.randrange(7)}_app_id{number}.darshan").write_bytes(data)
        if kind > 0.99:
            data = b""
    return expected


def command(place: Path, *words: str) -> list[str]:
    program = [sys.executable, "-m", "iowatch", "-q", "logs", "add", str(place / "logs"), "--system", "fleet", "--json"]
    return [*program, *words]


def environment(var: Path) -> dict[str, str]:
    return {**os.environ, "IOWATCH_VAR": str(var)}


def check(place: Path, var: Path, expected: dict[str, int]) -> None:
    """Every log is counted, and none twice."""
    os.environ["IOWATCH_VAR"] = str(var)
    from iowatch.applications.fleet.tables import LogStore

    with LogStore("fleet").connect() as database:
        rows, logs = database.execute("SELECT count(*), count(DISTINCT log) FROM logs").fetchall()[0]
        (written,) = database.execute("SELECT sum(bytes_written) FROM layers WHERE layer = 'POSIX'").fetchall()[0]
    assert (rows, logs, int(written)) == (expected["counted"], expected["counted"], expected["written"]), (
        rows,
        logs,
        written,
    )


class Tree:
    """The processes of a running command: Dask workers and their readers."""

    def __init__(self, pid: int) -> None:
        self.main = psutil.Process(pid)

    def workers(self) -> list[tuple[psutil.Process, list[psutil.Process]]]:
        found = []
        with contextlib.suppress(psutil.Error):
            for child in self.main.children():
                with contextlib.suppress(psutil.Error):
                    if "spawn_main" in " ".join(child.cmdline()):
                        found.append((child, [c for c in child.children() if "serve(" in " ".join(c.cmdline())]))
        return found

    def cpu_s(self) -> float:
        """Processor time so far, of the command, its workers and their readers."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            for one in (self.main, *(p for worker, readers in self.workers() for p in (worker, *readers))):
                total += sum(one.cpu_times()[:2])
        return total

    def memory(self) -> list[int]:
        """Resident bytes of each worker with its reader."""
        totals = []
        for worker, readers in self.workers():
            with contextlib.suppress(psutil.Error):
                totals.append(sum(one.memory_info().rss for one in (worker, *readers)))
        return totals


def timed_add(place: Path, var: Path, *words: str) -> tuple[float, list[int], dict[str, Any]]:
    """Run the command; return seconds, the largest memory of a worker in each tenth of the run, and its document.

    The document gets `cpu_s`, the largest processor time of the processes that ran at the same moment: a lower bound,
    because readers end after some thousand logs.
    """
    start, seen, cpu_s = time.perf_counter(), [], 0.0
    with subprocess.Popen(command(place, *words), env=environment(var), stdout=subprocess.PIPE, text=True) as process:
        tree = Tree(process.pid)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                break
            seen.append(max(tree.memory(), default=0))
            cpu_s = max(cpu_s, tree.cpu_s())
        document = json.loads(process.stdout.read()) if process.stdout else {}
        document["cpu_s"] = round(cpu_s, 1)
    seconds, step = time.perf_counter() - start, max(1, len(seen) // 10)
    return seconds, [max(seen[i : i + step]) // MIB for i in range(0, len(seen), step)], document


def measure_logs(place: Path, count: int) -> None:
    expected = make_logs(place, count)
    print(f"{count} files: {expected}")
    times = {}
    for workers in (2, 1):
        var = place / f"var{workers}"
        times[workers], memory, document = timed_add(place, var, "--workers", str(workers))
        assert (document["counted"], document["copies"]) == (expected["counted"], expected["copies"])
        assert document["rejected"]["truncated"] == expected["truncated"]
        check(place, var, expected)
        rate = count / times[workers]
        print(f"{workers} worker(s): {times[workers]:.1f} s, {rate:.0f} logs per second, {document['cpu_s']} s of CPU")
        print(f"  MiB per worker: {memory}")
    print(f"two against one: {times[2] / times[1]:.2f}")
    seconds, _, document = timed_add(place, place / "var2")
    assert document["known"] == count
    size = sum(path.stat().st_size for path in (place / "var2").rglob("*.parquet"))
    print(f"nothing new: {seconds:.1f} s; tables: {size / count:.0f} bytes per file")


def measure_kills(place: Path, kills: int) -> None:
    """Kill until all is counted; the command is started again when it was killed or gave up."""
    dice = random.Random(2)  # noqa: S311
    expected, var, done = make_logs(place, 2000 * kills), place / "var", {"worker": 0, "reader": 0, "command": 0}
    starts = 0
    while True:
        starts += 1
        with subprocess.Popen(
            command(place), env=environment(var), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            tree = Tree(process.pid)
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(dice.uniform(0.5, 2))
                workers = tree.workers()
                if process.poll() is not None or not workers or sum(done.values()) >= kills:
                    continue
                worker, readers = dice.choice(workers)
                kind = dice.choice(["worker"] * 5 + ["reader"] * 5 + ["command"])
                victim = {"worker": worker, "command": tree.main}.get(kind, readers[0] if readers else worker)
                with contextlib.suppress(psutil.Error):
                    victim.kill()
                    done[kind] += 1
        if process.returncode == 0:
            break
    check(place, var, expected)
    print(f"{sum(done.values())} kills {done}, {starts} starts: {expected['counted']} logs, none lost, none twice")


def measure_totals(place: Path, count: int) -> None:
    make_logs(place, count)
    seconds, _, document = timed_add(place, place / "var")
    os.environ["IOWATCH_VAR"] = str(place / "var")
    from iowatch.applications.fleet.tables import LogStore

    sums: dict[str, int] = {}
    seen = set()
    for path in sorted((place / "logs").rglob("*.darshan")):
        done = subprocess.run(
            ["darshan-parser", "--total", "--show-incomplete", path], capture_output=True, text=True, check=False
        )
        if done.returncode or (text := re.sub(r"#.*", "", done.stdout)) in seen:
            continue
        seen.add(text)
        for name, value in re.findall(r"^total_((?:POSIX|MPIIO|STDIO)_\w+): (-?\d+)$", text, re.MULTILINE):
            sums[name] = sums.get(name, 0) + max(0, int(value))
    compared = 0
    with LogStore("fleet").connect() as database:
        rows = database.execute(f"SELECT layer, COLUMNS({[*COUNTERS]}).sum()::BIGINT FROM layers GROUP BY layer")  # noqa: S608
        names = [column[0] for column in rows.description]
        for layer, *values in rows.fetchall():
            for column, value in zip(names[1:], values, strict=True):
                parts = [f"{layer.replace('-', '')}_{counter}" for counter in COUNTERS[column]]
                if any(part in sums for part in parts):
                    assert value == sum(sums.get(part, 0) for part in parts), (
                        layer,
                        column,
                        value,
                        [(part, sums.get(part)) for part in parts],
                    )
                    compared += 1
    print(f"{document['counted']} logs: {compared} sums equal those of darshan-parser --total ({seconds:.0f} s)")


def measure_years(place: Path, count: int) -> None:
    """Without a loss, with a loss of 30 % in all runs of 20 applications, and in those that get a slow node."""
    kinds = {
        "no loss": {},
        "loss in all runs": {"planted": 200},
        "a third of the nodes": {"planted": 200, "slow_nodes": 1 / 3},
    }
    for kind, options in kinds.items():
        years = [_judge_year(place / f"{kind} {seed}", seed, options) for seed in range(count)]
        false = sum(others for _, others in years)
        print(f"{kind}, {count} years: {[len(found) for found, _ in years]} of 20 applications found; others: {false}")
        for nodes in range(4) if "slow_nodes" in options else ():
            share = sum(int(name[3:]) % 4 == nodes for found, _ in years for name in found) / (5 * count)
            print(f"  of those on {1 << nodes} nodes: {100 * share:.0f} %")


def _judge_year(place: Path, seed: int, options: dict[str, Any]) -> tuple[set[str], int]:
    """Applications with the planted loss that were found together, and the number of other findings."""
    from tests.applications.fleet.test_production import simulate_year, store_rows

    from iowatch.applications.fleet import production

    os.environ["IOWATCH_VAR"] = str(place)
    store = store_rows("here", simulate_year(seed, **options))
    with store.connect() as database:
        series = production.application_series(store, database).series
    changes = production.common_changes(production.find_changes(series))
    felt = {f"app{i:02d}" for i in range(20)} if options else set()
    true = [felt & set(one.changed) for one in changes if felt & set(one.changed)]
    return max(true, key=len, default=set()), len(changes) - len(true[:1])


MEASURES = {
    "logs": (measure_logs, 2000),
    "kills": (measure_kills, 10),
    "totals": (measure_totals, 200),
    "years": (measure_years, 5),
}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as place:
        yield Path(place)


def main() -> None:
    """Run the named measurement, or `logs`."""
    name, *number = sys.argv[1:] or ["logs"]
    measure, count = MEASURES[name]
    with scratch() as place:
        measure(place, int(number[0]) if number else count)


if __name__ == "__main__":
    main()
