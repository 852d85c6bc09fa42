#!/usr/bin/env python3
"""Collective and independent MPI-IO writes of one file, as Darshan counts them, by interface and ranks.

`darshan-parser` is looked for on PATH; --darshan names libdarshan.so. Only benchio's own processes load it.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROWS = {
    "mpiio": ("--api", "mpiio"),
    "mpiio independent": ("--api", "mpiio", "--access", "independent"),
    "hdf5": ("--api", "hdf5"),
    "hdf5 --collective-metadata": ("--api", "hdf5", "--collective-metadata"),
    "hdf5 independent": ("--api", "hdf5", "--access", "independent"),
    "netcdf4": ("--api", "netcdf4"),
    "netcdf4 --fill": ("--api", "netcdf4", "--fill"),
    "pnetcdf": ("--api", "pnetcdf"),
}
COUNTERS = ("MPIIO_COLL_WRITES", "MPIIO_INDEP_WRITES", "POSIX_WRITES")


def counts(arguments: argparse.Namespace, parser: str, ranks: int, options: tuple[str, ...]) -> dict[str, int]:
    """Sums over all records of the data file of one repetition."""
    with tempfile.TemporaryDirectory() as name:
        logs = pathlib.Path(name)
        command = [
            *arguments.mpiexec.split(),
            "-n",
            str(ranks),
            "env",
            f"LD_PRELOAD={arguments.darshan}",
            f"DARSHAN_LOGDIR={logs}",
            f"DARSHAN_LOGPATH={logs}",
            str(pathlib.Path(arguments.benchio).resolve()),
            "--repeat",
            "1",
            "--local",
            "32x32x32",
            "--dir",
            arguments.dir,
            "--quiet",
            *options,
        ]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        sums = dict.fromkeys(COUNTERS, 0)
        for log in logs.rglob("*.darshan"):
            text = subprocess.run([parser, str(log)], capture_output=True, text=True, check=True).stdout
            for counter, value in re.findall(
                r"^\S+\t-?\d+\t\d+\t(\w+)\t(-?\d+)\t\S*data\.000000\t", text, re.MULTILINE
            ):
                if counter in sums:
                    sums[counter] += int(value)
    if sums["POSIX_WRITES"] == 0:
        raise RuntimeError(f"Darshan saw no writes of benchio {' '.join(options)} in {arguments.dir}")
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchio", default=shutil.which("benchio") or "benchio")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--darshan", required=True, help="libdarshan.so")
    parser.add_argument("--dir", default="/tmp", help="not under /dev, which Darshan leaves out")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 24])
    arguments = parser.parse_args()
    program = shutil.which("darshan-parser")
    if program is None:
        print("darshan-parser is not on PATH", file=sys.stderr)
        return 2
    print("| options | ranks | collective writes | independent writes | POSIX writes |\n|---|---|---|---|---|")
    for words, options in ROWS.items():
        for ranks in arguments.ranks:
            try:
                sums = counts(arguments, program, ranks, options)
            except subprocess.CalledProcessError as error:
                print(f"{words}: {error.stderr[:200]}", file=sys.stderr)
                break
            print(f"| {words} | {ranks} | " + " | ".join(str(sums[c]) for c in COUNTERS) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
