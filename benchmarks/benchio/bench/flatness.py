#!/usr/bin/env python3
"""Does the cost of benchio itself stay flat as the work grows? Set-up and memory by bytes and segments.

Set-up is the time from the start of the program (after MPI_Init) to the start of the first repetition; memory
beyond is the peak resident set less local array and transfer buffer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
EDGES = {
    "1 KiB": "8x4x4",
    "64 KiB": "32x16x16",
    "1 MiB": "64x64x32",
    "16 MiB": "128x128x128",
    "128 MiB": "256x256x256",
    "1 GiB": "512x512x512",
}


def record(arguments: argparse.Namespace, ranks: int, *options: str) -> dict:
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "record.json"
        command = [
            *arguments.mpiexec.split(),
            "-n",
            str(ranks),
            arguments.benchio,
            "--dir",
            arguments.dir,
            "--quiet",
            "--json",
            str(path),
            *options,
        ]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        return json.loads(path.read_text())


def row(words: list[str], record: dict) -> None:
    first = record["operations"][0]["repetitions"]
    parse = datetime.datetime.fromisoformat
    setup = (parse(first[0]["started"]) - parse(record["started"])).total_seconds()
    memory = record["memory"]
    beyond = memory["peak_bytes"] - memory["array_bytes"] - memory["buffer_bytes"]
    best = min(first, key=lambda repetition: repetition["seconds"])
    per_transfer = best["phases"]["transfer"]["max"] / record["geometry"]["transfers_per_rank"]
    cells = [
        *words,
        f"{setup:.3f}",
        f"{memory['array_bytes'] / MIB:.1f}",
        f"{memory['buffer_bytes'] / MIB:.1f}",
        f"{beyond / MIB:.1f}",
        f"{best['seconds']:.4g}",
        f"{per_transfer:.3g}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchio", default=shutil.which("benchio") or "benchio")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--api", nargs="+", default=["posix", "mpiio", "hdf5", "netcdf4", "pnetcdf"])
    parser.add_argument("--op", default="both")
    parser.add_argument("--segments", type=int, nargs="+", default=[1, 1000, 100_000, 1_000_000])
    parser.add_argument("--largest", default="1 GiB", choices=list(EDGES))
    arguments = parser.parse_args()
    tail = "set-up s | array MiB | buffer MiB | beyond MiB | best s | s per transfer |\n|" + "---|" * 8
    print(f"| api | bytes per rank | {tail}")
    for api in arguments.api:
        for size, edges in EDGES.items():
            row(
                [api, size],
                record(
                    arguments,
                    arguments.ranks,
                    "--api",
                    api,
                    "--local",
                    edges,
                    "--repeat",
                    "2",
                    "--op",
                    arguments.op,
                ),
            )
            if size == arguments.largest:
                break
    print(f"\n| api | segments of 64 bytes | {tail}")
    for api in ["null", *arguments.api]:
        for segments in arguments.segments:
            row(
                [api, str(segments)],
                record(
                    arguments,
                    arguments.ranks,
                    "--api",
                    api,
                    "--pattern",
                    "interleaved",
                    "--transfer",
                    "64",
                    "--segments",
                    str(segments),
                    "--access",
                    "independent",
                    "--repeat",
                    "1",
                ),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
