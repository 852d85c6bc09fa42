"""Seconds of I/O of programs and of the workloads that `iowatch workload from-darshan` made of them, in pairs.

    python bench/workload_times.py --directory /tmp/times --file-system tmpfs=/dev/shm --file-system ext4=/tmp \
        --program 's3d=s3d_io.x 96 48 48 2 2 1 0 F {}' --program 'h5=benchio --api hdf5 … --dir {}' --grid h5=1x2x2
    python bench/workload_times.py … --program 'vpic=h5bench_write /etc/vpic.cfg {}/x.h5' --shipped vpic=vpic-io
                                                  # against a workload of iowatch in the place of a description
    python bench/workload_times.py --directory /tmp/times --throttled …    # also on a disk, and on one of half the rate
    python bench/workload_times.py --directory /tmp/times --summary

Needs benchio, mpirun, and darshan-runtime on PATH; `--throttled` also root, libfuse3-dev and a C compiler. `{}` is the
directory of the run. On each file system the first run of a program is traced with DXT and described, and four more
serve to fit the memory of its transfers; in each pair both are traced alike, in alternating order. Each runs three
times in a row (once on the slow disk), and the fastest counts: a virtual machine may return free memory to its host
after two seconds (free page reporting), and a run that gets such memory takes up to five times as long. Counted are
the seconds in which at least one rank reads or writes, at the level of the program's interface and at that of POSIX:
the difference is what MPI-IO does itself. Each pair is a line of `pairs.jsonl` as soon as it is measured; repeated,
the script goes on. The slow disk is that of bench/layers_planted.py, with ext4 mounted `sync`, so that the page cache
does not hide it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from layers_planted import DISK, run

sys.path.pop(0)  # bench/darshan.py is not PyDarshan

from iowatch.benchmarks.workload_cases import find_description, requested_values
from iowatch.benchmarks.workloads import Workload, format_description, read_description
from iowatch.darshan import DarshanReader, describe_workload, log
from iowatch.session.workload_memory import fit_memory, write_memory
from iowatch.session.workloads import preparations
from iowatch.site import stack_probe

FULL, HALF = 80 << 20, 40 << 20
RUNS = 3
CONFIGURATION = "MODMEM 64\nNAMEMEM 4\nMAX_RECORDS 8192 POSIX,MPI-IO,STDIO\nNAME_INCLUDE ^{directory} *\n"


def find_darshan() -> str:
    words = stack_probe.query_tool("darshan-config", "--dyn-ld-flags").partition("-L")[2].split()
    library = stack_probe.find_library(words[0], "darshan") if words else None
    return library or sys.exit("darshan-config is not on PATH, or its library is missing")


def launched(command: str, directory: Path, ranks: int, settings: Iterable[str] = ()) -> list[str]:
    """Words that start a command on ranks, with environment variables."""
    words = [*shlex.split(os.environ.get("LAUNCHER", "mpirun --oversubscribe -n")), str(ranks), "env", *settings]
    return [*words, *shlex.split(command.replace("{}", str(directory)))]


def trace(command: str, directory: Path, target: Path, ranks: int, input_by: str = "") -> None:
    """Run a program under Darshan with DXT in a new directory, after the command that writes its input, if any."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    configuration = target.with_suffix(".conf")
    configuration.write_text(CONFIGURATION.format(directory=directory))
    variables = {"DXT_ENABLE_IO_TRACE": "1", "DARSHAN_LOGFILE": target, "DARSHAN_CONFIG_PATH": configuration,
                 "DARSHAN_LOGHINTS": "", "LD_PRELOAD": find_darshan()}  # fmt: skip
    target.unlink(missing_ok=True)
    if input_by:
        subprocess.run(launched(input_by, directory, ranks), cwd=directory, capture_output=True, check=True)
    os.sync()  # what earlier runs left to write would be written during this one
    settings = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(
        launched(command, directory, ranks, settings),
        cwd=directory, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    shutil.rmtree(directory)
    if done.returncode or not target.is_file():
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def posix_seconds(path: Path) -> float:
    """Seconds in which at least one rank is in read or write; a workload that reads writes its input in them, too."""
    parts = [
        np.concatenate([record[kind][["start", "end"]] for kind in ("write", "read")])
        for _, _, record in log.read_dxt_records(path, log.read_header(path), "DXT_POSIX")
    ]
    rows = np.sort(np.concatenate(parts), order="start")
    ends = np.maximum.accumulate(np.concatenate([[0.0], rows["end"]]))
    return float(np.maximum(rows["end"] - np.maximum(rows["start"], ends[:-1]), 0.0).sum())


def measure(
    side: str,
    command: str,
    workload: Workload,
    directory: Path,
    place: Path,
    reader: DarshanReader,
    input_by: str,
    runs: int,
) -> Any:
    """Seconds of the fastest of some runs at both levels. A workload writes its input itself."""
    targets = [place / f"{side}-{number}.darshan" for number in range(runs)]
    for target in targets:
        trace(command, directory, target, workload.ranks, input_by if side == "program" else "")
    prepared = {"prepared": preparations(workload)} if side == "workload" else {}
    # benchio writes an input with data sets through the library: a phase of its own, before the first one that reads.
    inputs = any(file.get("input") and "datasets" in file for file in workload.document["files"].values())
    first = 1 if prepared and inputs else 0
    measured = []
    for target in targets:
        phases = reader.request("profile", target, **prepared)["phases"]
        if len(phases) <= first:
            sys.exit(f"{command}: the input that benchio writes, and what it reads, are not apart in {target}")
        measured.append({"io_s": sum(phases[first:]), "posix_s": posix_seconds(target)})
    return min(measured, key=itemgetter("io_s"))


def describe(name: str, command: str, directory: Path, place: Path, ranks: int, grid: str, input_by: str) -> Workload:
    """The workload of a program, made from its first run, as `workload from-darshan` and `check --fit-memory` do it."""
    described = place / f"{name}.yaml"
    if not described.is_file():
        logs = [place / f"{name}{number}.darshan" for number in ("", "-2", "-3", "-4", "-5")]
        for target in logs:
            trace(command, directory, target, ranks, input_by)
        document, losses = describe_workload(logs[0], name, grid=[int(n) for n in grid.split("x") if n])
        described.write_text(format_description(document))
        launcher = os.environ.get("LAUNCHER", "mpirun --oversubscribe -n")
        directory.mkdir(parents=True)
        memory = fit_memory(described, document, logs, directory, launcher, None)
        write_memory(described, document, memory)
        print(f"{name}: {memory}; {'; '.join(losses) or 'nothing lost'}", flush=True)
    return Workload(read_description(described), ranks)


def shipped(text: str, ranks: int) -> tuple[Workload, str]:
    """A workload of iowatch with parameters (`flash-io:api=pnetcdf+cells=16`), and the command that runs it."""
    name, _, chosen = text.partition(":")
    path = find_description(name)
    document = read_description(path)
    values = requested_values(chosen, document)
    options = " ".join(f"--set {key}={value}" for key, value in values.items())
    return Workload(document, ranks, changed=values), f"benchio --workload {path} {options} --repeat 1 --dir {{}}"


@contextmanager
def slow_disk(place: Path) -> Iterator[Path]:
    """A file system on a disk of a set rate; `place/disk/rate` sets it."""
    (place / "slow-disk.c").write_text(DISK)
    fuse = run("pkg-config", "--cflags", "--libs", "fuse3").stdout.split()
    run("cc", "-O2", "-o", place / "slow-disk", place / "slow-disk.c", *fuse)
    for name in ("disk", "mnt"):
        (place / name).mkdir(exist_ok=True)
    run(place / "slow-disk", "-s", place / "disk")
    device = ""
    try:
        device = run("losetup", "-f", "--show", place / "disk" / "image").stdout.strip()
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        run("mount", "-o", "sync", device, place / "mnt")
        yield place / "mnt"
    finally:
        run("umount", place / "mnt", check=False)
        if device:
            run("losetup", "-d", device, check=False)
        run("umount", place / "disk", check=False)


def measure_pairs(arguments: argparse.Namespace, system: str, directory: Path, reader: DarshanReader) -> None:
    """Add pairs of each program until there are as many as wanted, or its time is over."""
    place = arguments.directory
    runs = 1 if system in ("full", "half") else RUNS  # on the slow disk memory does not matter
    for name, command in arguments.programs.items():
        grid, input_by = arguments.grids.get(name, ""), arguments.inputs.get(name, "")
        title = f"{name}-{'full' if system == 'half' else system}"
        if name in arguments.shipped:
            workload, replay = shipped(arguments.shipped[name], arguments.ranks)
        else:
            workload = describe(title, command, directory, place, arguments.ranks, grid, input_by)
            replay = f"benchio --workload {place / title}.yaml --repeat 1 --dir {{}}"
        stop = time.monotonic() + 60 * arguments.minutes
        done = sum(one["name"] == name and one["system"] == system for one in read_pairs(place))
        for turn in range(done, arguments.pairs):
            if time.monotonic() > stop:
                break
            sides = [("program", command), ("workload", replay)]
            found = {
                side: measure(side, words, workload, directory, place, reader, input_by, runs)
                for side, words in (sides if turn % 2 else sides[::-1])
            }
            with (place / "pairs.jsonl").open("a") as stream:
                stream.write(json.dumps({"name": name, "system": system, **found}) + "\n")


def read_pairs(place: Path) -> list[dict[str, Any]]:
    path = place / "pairs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def summarize(place: Path) -> None:
    """Medians of each program and file system, and the factors that half the rate of the disk costs."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in read_pairs(place):
        groups.setdefault((one["name"], one["system"]), []).append(one)
    print("| file system | program | pairs | program, s | workload, s | ratio, median and quartiles "
          "| of it POSIX: program, workload, s |\n|---|---|---|---|---|---|---|")  # fmt: skip
    middle = {}
    for (name, system), pairs in sorted(groups.items(), key=lambda group: group[0][::-1]):
        seconds = {side: [one[side]["io_s"] for one in pairs] for side in ("program", "workload")}
        below = [median(one[side]["posix_s"] for one in pairs) for side in ("program", "workload")]
        ratios = np.percentile(np.divide(seconds["workload"], seconds["program"]), [25, 50, 75])
        middle[name, system] = {side: median(found) for side, found in seconds.items()}
        own = middle[name, system]
        print(f"| {system} | {name} | {len(pairs)} | {own['program']:.3f} | {own['workload']:.3f} "
              f"| {ratios[1]:.2f} ({ratios[0]:.2f} to {ratios[2]:.2f}) | {below[0]:.3f}, {below[1]:.3f} |")  # fmt: skip
    for name in sorted({name for name, system in middle if system == "half"}):
        if (name, "full") in middle:
            factors = {s: middle[name, "half"][s] / middle[name, "full"][s] for s in ("program", "workload")}
            print(f"{name}: half the rate: program x {factors['program']:.2f}, workload x {factors['workload']:.2f}, "
                  f"workload / program {factors['workload'] / factors['program']:.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True, help="logs, descriptions and pairs.jsonl")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--file-system", action="append", default=[], metavar="NAME=DIRECTORY")
    parser.add_argument("--grid", action="append", default=[], metavar="NAME=1x2x2", help="of `workload from-darshan`")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=COMMAND", help="runs before the program, untraced"
    )
    parser.add_argument("--shipped", action="append", default=[], metavar="NAME=WORKLOAD:PARAMETER=VALUE+…")
    parser.add_argument("--throttled", action="store_true")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=1, help="per program and file system")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    arguments.directory = arguments.directory.resolve()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    arguments.programs, arguments.grids, arguments.inputs, arguments.shipped = (
        dict(one.split("=", 1) for one in given)
        for given in (arguments.program, arguments.grid, arguments.input, arguments.shipped)
    )
    if not arguments.summary:
        with DarshanReader() as reader:
            for system, directory in (one.split("=", 1) for one in arguments.file_system):
                measure_pairs(arguments, system, Path(directory, "iowatch-workload-times"), reader)
            if arguments.throttled:
                with slow_disk(arguments.directory) as mounted:
                    for system, rate in (("full", FULL), ("half", HALF)):
                        (arguments.directory / "disk" / "rate").write_text(f"{rate:<31}\n")
                        measure_pairs(arguments, system, mounted / "run", reader)
    summarize(arguments.directory)


if __name__ == "__main__":
    main()
