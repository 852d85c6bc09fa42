"""Figures of reading Darshan logs: time and memory, start-up included (`python bench/darshan.py [N]`).

Prints one line per log: description, size, seconds, and the peak memory of command and worker together.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In the place of bench/, where this very file would pass for PyDarshan.
sys.path[0] = str(ROOT)

from tests.darshan.conftest import LogSpec, build  # noqa: E402
from tests.datasets import OUTSIDE, unpacked  # noqa: E402

MIB = 2**20


def _posix(n: int, dice: random.Random) -> list[tuple[str, int, dict[str, float]]]:
    """`n` files as a metadata-heavy program leaves them; times keep the records from packing well."""
    return [
        (
            f"/lus/project/run-{dice.randrange(10**9):09d}/out.{i:06d}",
            i % 64,
            {
                "POSIX_OPENS": 1,
                "POSIX_WRITES": dice.randrange(1, 1000),
                "POSIX_BYTES_WRITTEN": dice.randrange(1 << 30),
                "POSIX_F_WRITE_TIME": dice.random(),
                "POSIX_F_META_TIME": dice.random(),
                "POSIX_F_OPEN_START_TIMESTAMP": dice.random(),
                "POSIX_F_CLOSE_END_TIMESTAMP": 1 + dice.random(),
            },
        )
        for i in range(n)
    ]


def _dxt(n: int, dice: random.Random) -> list[tuple[str, int, list[tuple[float, float]], list[tuple[float, float]]]]:
    """`n` accesses of each of 64 ranks."""
    starts = [[dice.random() * 10 for _ in range(n)] for _ in range(64)]
    return [("/lus/shared", rank, [(t, t + 1e-3) for t in times], []) for rank, times in enumerate(starts)]


def _peak(process: subprocess.Popen[bytes], found: list[int]) -> None:
    """Peak of the resident memory of a process and its children, in KiB, by /proc, every 5 ms."""
    while process.poll() is None:
        total = 0
        for pid in [str(process.pid), *_children(process.pid)]:
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            line = next((row for row in status.splitlines() if row.startswith("VmRSS")), "VmRSS: 0")
            total += int(line.split()[1])
        found[0] = max(found[0], total)
        time.sleep(0.005)


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _command(name: str, log: Path) -> None:
    started, used = time.monotonic(), _children_cpu_s()
    words = [Path(sys.executable).with_name("iowatch"), "darshan", log, "--json"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    peak = [0]
    watcher = threading.Thread(target=_peak, args=(process, peak))
    watcher.start()
    code = process.wait()
    seconds, cpu_s = time.monotonic() - started, _children_cpu_s() - used
    watcher.join()
    size = f"{log.stat().st_size / MIB:.2f} MiB"
    print(f"{name}: {size}, exit {code}, {seconds:.2f} s ({cpu_s:.2f} s of processor), {peak[0] / 1024:.0f} MiB")


def _many(n: int) -> None:
    from iowatch.core import InputError
    from iowatch.darshan import DarshanReader, read_trace

    def read_all(paths: list[Path]) -> list[str]:
        found = []
        with DarshanReader() as reader:
            for path in paths:
                try:
                    found.append(read_trace(path, reader).status)
                except InputError:
                    found.append("unreadable")
        return found

    found = (*unpacked("captured").rglob("*.darshan"), *(OUTSIDE / "data" / "darshan-logs").glob("*.darshan"))
    logs = sorted(path for path in found if path.stat().st_size)
    paths = [logs[i % len(logs)] for i in range(n)]
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        states = [status for part in pool.map(read_all, (paths[::2], paths[1::2])) for status in part]
    seconds = time.monotonic() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kinds = ", ".join(f"{states.count(kind)} {kind}" for kind in sorted(set(states)))
    print(f"{n} real logs on 2 workers: {seconds:.1f} s ({kinds}); the caller's peak {own:.0f} MiB")


def main() -> None:
    """Make the logs, read them, print the figures."""
    dice = random.Random(1)  # noqa: S311
    with tempfile.TemporaryDirectory() as place:
        made = {
            "POSIX records": LogSpec(ranks=64, posix=_posix(14_000, dice)),
            "DXT accesses": LogSpec(ranks=64, posix=_posix(1, dice), dxt=_dxt(1_000, dice)),
        }
        for name, spec in made.items():
            log = Path(place) / f"{name.split()[0]}.darshan"
            log.write_bytes(build(spec))
            for _ in range(3):
                _command(name, log)
    _many(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)


if __name__ == "__main__":
    main()
