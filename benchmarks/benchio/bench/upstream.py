#!/usr/bin/env python3
"""Two programs side by side, as Darshan sees their files: opens, reads, writes, bytes, access sizes, sharing.

    upstream.py --darshan libdarshan.so --ranks 4 -- 'ORIGINAL PROGRAM' 'BENCHIO --workload …'

Each runs in a directory of its own. PyDarshan reads the logs. What differs is marked, and the exit
code is 1 then.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import shlex
import subprocess
import sys
import tempfile

import darshan

# In the order of the table.
COUNTERS = {
    "POSIX": tuple(f"POSIX_{name}" for name in "OPENS READS WRITES BYTES_READ BYTES_WRITTEN FSYNCS".split()),
    "MPI-IO": tuple(
        f"MPIIO_{name}"
        for name in "INDEP_OPENS COLL_OPENS INDEP_READS INDEP_WRITES COLL_READS COLL_WRITES SYNCS BYTES_READ "
        "BYTES_WRITTEN".split()
    ),
}
MOST_FREQUENT = 8


def run(command: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run a command in a new directory and return what Darshan has of its files there."""
    with tempfile.TemporaryDirectory(dir=arguments.dir) as name, tempfile.TemporaryDirectory(dir="/tmp") as logs:
        environment = [f"LD_PRELOAD={arguments.darshan}", f"DARSHAN_LOGPATH={logs}", "DXT_ENABLE_IO_TRACE=1"]
        environment.append("DARSHAN_LOGHINTS=")  # with its own hints OMPIO writes damaged logs now and then
        words = [
            *shlex.split(arguments.mpiexec),
            "-n",
            str(arguments.ranks),
            "env",
            *environment,
            *shlex.split(command),
        ]
        done = subprocess.run(words, cwd=name, capture_output=True, text=True, check=False, timeout=600)
        found = list(pathlib.Path(logs).rglob("*.darshan"))
        if done.returncode != 0 or len(found) != 1:
            raise SystemExit(f"{command}: exit code {done.returncode}, {len(found)} logs\n{done.stdout}{done.stderr}")
        return read(found[0], name)


def is_data(name: str, directory: str) -> bool:
    """Whether a file is one of the program's own: no table, record or description."""
    return name.startswith(directory) and not name.endswith((".json", ".csv", ".yaml"))


def read(log: pathlib.Path, directory: str) -> dict[str, object]:
    """Return counters, numbers of files by sharing, and access sizes by frequency."""
    report = darshan.DarshanReport(str(log), read_all=True)
    counters: dict[str, object] = {}
    for module in ("POSIX", "MPI-IO"):
        records = report.records.get(module, [])
        ours = [one for one in records if is_data(report.name_records[one["id"]], directory)]
        shared = sum(one["rank"] == -1 for one in ours)
        counters[f"{module} files of all ranks, of one"] = (
            shared,
            len({one["id"] for one in ours if one["rank"] >= 0}),
        )
        for name in COUNTERS[module]:
            counters[name] = sum(
                int(dict(zip(report.counters[module]["counters"], one["counters"]))[name]) for one in ours
            )
        traced = [
            one
            for one in report.records.get(f"DXT_{module.replace('-', '')}", ())
            if is_data(report.name_records[one["id"]], directory)
        ]
        for kind in ("read", "write"):
            lengths = collections.Counter(
                int(segment["length"]) for one in traced for segment in one[f"{kind}_segments"]
            )
            frequent = sorted(lengths.most_common(MOST_FREQUENT), key=lambda pair: -pair[0])
            counters[f"{module} {kind} sizes"] = " ".join(f"{n}x{size}" for size, n in frequent)
    return counters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darshan", required=True, help="libdarshan.so")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--dir", default="/tmp", help="not under /dev, which Darshan leaves out")
    parser.add_argument("--reads", action="store_true", help="only what reads: a workload writes its input itself")
    parser.add_argument("commands", nargs=2)
    arguments = parser.parse_args()
    left, right = (run(command, arguments) for command in arguments.commands)
    names = [name for name in {**left, **right} if left.get(name) or right.get(name)]
    if arguments.reads:
        names = [name for name in names if "READ" in name or "read" in name]
    different = [name for name in names if left.get(name) != right.get(name)]
    print("| counter | original | workload | |\n|---|---|---|---|")
    for name in names:
        print(f"| {name} | {left.get(name)} | {right.get(name)} | {'differs' if name in different else ''} |")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
