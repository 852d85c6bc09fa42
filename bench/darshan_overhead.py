"""Cost of tracing: a program without Darshan, with it, and with DXT, alternating; ratios of their times.

    python bench/darshan_overhead.py LIBDARSHAN ROUNDS -- mpirun -np 4 PROGRAM ARGUMENT…

The library is preloaded into the processes only, as `src/iowatch/checks/tracing.py` does it: `env` precedes
PROGRAM, which is the first word after the launcher that names an executable file. On a busy machine use the
processor time.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("untraced", "traced", "dxt")


def _words(kind: str, library: str, place: Path, command: list[str]) -> list[str]:
    at = next(i for i, word in enumerate(command) if i and Path(word).is_file() and os.access(word, os.X_OK))
    settings = [f"LD_PRELOAD={library}", f"DARSHAN_LOGFILE={place}/{kind}.darshan"]
    if kind == "dxt":
        settings.append("DXT_ENABLE_IO_TRACE=1")
    return command if kind == "untraced" else [*command[:at], "env", *settings, *command[at:]]


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(kind: str, library: str, place: Path, command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    (place / f"{kind}.darshan").unlink(missing_ok=True)
    started, used = time.monotonic(), _processor_s()
    subprocess.run(_words(kind, library, place, command), check=True, capture_output=True)
    return time.monotonic() - started, _processor_s() - used


def _ratios(times: dict[str, list[tuple[float, float]]], kind: str, which: int) -> str:
    ratios = sorted(b[which] / a[which] for a, b in zip(times["untraced"], times[kind], strict=True))
    return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def main() -> None:
    """Measure and print one line a kind."""
    library, rounds, command = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        _run("untraced", library, place, command)
        for n in range(rounds):
            for kind in KINDS if n % 2 else reversed(KINDS):
                times[kind].append(_run(kind, library, place, command))
        sizes = {kind: (place / f"{kind}.darshan").stat().st_size for kind in KINDS[1:]}
    wall_s, processor_s = (statistics.median(row[i] for row in times["untraced"]) for i in (0, 1))
    print(f"untraced: wall {wall_s:.3f} s, processor {processor_s:.3f} s, medians of {rounds}")
    for kind in KINDS[1:]:
        wall, processor = _ratios(times, kind, 0), _ratios(times, kind, 1)
        print(f"{kind}: wall x {wall}, processor x {processor}, log {sizes[kind]} bytes")


if __name__ == "__main__":
    main()
