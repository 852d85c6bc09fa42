"""A slow target among many, on real directories: how often it is named on the first morning, and how often another one.

    python bench/targets.py [--nights 40] [--targets 24] [--store shim|disk] [--size 8m]

Each night starts the target probe once, without any history, and names the slow targets of the run as iowatch does. In
planted nights one directory, another one each time, is slow: by a preloaded library that delays its writes, reads and
flushes (`shim`), or because it is on a disk in memory that keeps a rate (`disk`: FUSE; root, libfuse3-dev). Control
nights have no slow directory, and common load: dd writes and syncs files on the same file system all the time.

Aims: the slow target, and no other, in at least 38 of 40 nights; none in 40 of 40 control nights. What is printed
besides: how much slower the slow target was, and the time of a night.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests import slow_storage  # noqa: E402

from iowatch.benchmarks.parsing import RunContext  # noqa: E402
from iowatch.benchmarks.registry import parse_output  # noqa: E402
from iowatch.core import MIB, TargetRates, format_number, parse_size  # noqa: E402
from iowatch.findings import slow_targets_of_run  # noqa: E402
from iowatch.store import RunFacts  # noqa: E402

_REPETITIONS, _SECONDS = 3, 2
_LOAD_MIB = 64


@dataclass(frozen=True)
class Programs:
    """The target probe, and the library that makes a directory slow."""

    probe: Path
    shim: Path


@dataclass(frozen=True)
class Night:
    """What a night named, by target; `ratio` is how much longer the slow target took to write."""

    named: frozenset[str]
    ratio: float | None
    seconds: float


def build_programs(directory: Path) -> Programs:
    """Compile both."""
    programs = Programs(directory / "target_probe", directory / "slow_target.so")
    probe = ROOT / "benchmarks" / "target_probe" / "src" / "target_probe.c"
    shim = ROOT / "tests" / "benchmarks" / "slow_target.c"
    subprocess.run(["cc", "-std=c11", "-O2", "-pthread", "-o", programs.probe, probe], check=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", programs.shim, shim, "-ldl"], check=True)
    return programs


def run_night(
    programs: Programs,
    folder: Path,
    directories: Sequence[Path],
    size: int,
    slow: int | None,
    variables: dict[str, str],
) -> Night:
    """Start the probe once and name the slow targets.

    Args:
        directories: directory of each target.
        slow: number of the planted target; None without one.
        variables: of the environment of the probe.
    """
    lines = [f"t{number:03}\t{directory}\t{directory}/.target\n" for number, directory in enumerate(directories)]
    listed = folder / "targets"
    listed.write_text("".join(lines))
    words = [programs.probe, listed, size, _REPETITIONS, _SECONDS]
    begun = time.monotonic()
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env={**os.environ, **variables}, check=False
    )
    spent = time.monotonic() - begun
    output = parse_output("target_probe", done.stdout, RunContext(rc=done.returncode, stderr=done.stderr))
    rates = RunFacts.from_document(output.facts).target_rates
    if output.status != "ok" or rates is None:
        sys.exit(f"the probe failed: {output.reason}")
    named = frozenset(target.target for target in slow_targets_of_run(rates))
    return Night(named, None if slow is None else _ratio(rates, slow), spent)


def _ratio(rates: TargetRates, slow: int) -> float:
    """Median rate of the others / that of a target, for writes."""
    typical = [median(of_target) for of_target in rates.write]
    return median(typical[:slow] + typical[slow + 1 :]) / typical[slow]


@contextmanager
def common_load(directory: Path) -> Iterator[None]:
    """Write and sync a file again and again on the same file system."""
    path = directory / "load"
    command = f"while :; do dd if=/dev/zero of='{path}' bs=1M count={_LOAD_MIB} conv=fsync status=none; done"
    load = subprocess.Popen(["bash", "-c", command], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(load.pid, 15)
        load.wait()
        path.unlink(missing_ok=True)


@contextmanager
def slow_disk(directory: Path, bytes_per_s: int) -> Iterator[Path]:
    """A mounted disk of this rate."""
    directory.mkdir()
    try:
        disk = slow_storage.mount_paced_disk(directory)
        disk.set_rate(bytes_per_s)
        yield disk.mount_point
    finally:
        slow_storage.unmount_paced_disk(directory)


def planted_nights(arguments: argparse.Namespace, programs: Programs, folder: Path, directories: list[Path]) -> None:
    """Print in how many nights the slow target, and no other, was named."""
    dice = np.random.default_rng(arguments.seed)
    rights: list[bool] = []
    ratios: list[float] = []
    seconds: list[float] = []
    for _ in range(arguments.nights):
        slow = int(dice.integers(len(directories)))
        if arguments.store == "disk":
            with slow_disk(folder / "paced", int(arguments.rate_mib * MIB)) as mount_point:
                used = [*directories[:slow], mount_point, *directories[slow + 1 :]]
                night = run_night(programs, folder, used, arguments.size, slow, {})
            shutil.rmtree(folder / "paced")
        else:
            variables = {"LD_PRELOAD": str(programs.shim), "SLOW_PATH": f"{directories[slow]}/"}
            variables["SLOW_US"] = str(arguments.delay_us)
            night = run_night(programs, folder, directories, arguments.size, slow, variables)
        rights.append(night.named == {f"t{slow:03}"})
        if night.ratio is not None:
            ratios.append(night.ratio)
        seconds.append(night.seconds)
    span = f"{format_number(min(ratios))} to {format_number(max(ratios))}"
    print(f"planted ({arguments.store}): the slow target, and no other, in {sum(rights)} of {len(rights)} nights")
    print(f"  it took {span} times as long to write as the others; {median(seconds):.1f} s per night")


def control_nights(arguments: argparse.Namespace, programs: Programs, folder: Path, directories: list[Path]) -> None:
    """Print in how many nights under common load no target was named."""
    rights: list[bool] = []
    seconds: list[float] = []
    with common_load(folder):
        for _ in range(arguments.nights):
            night = run_night(programs, folder, directories, arguments.size, None, {})
            rights.append(not night.named)
            seconds.append(night.seconds)
            if night.named:
                print(f"  named without reason: {', '.join(sorted(night.named))}")
    count = f"none in {sum(rights)} of {len(rights)} nights"
    print(f"controls with common load: {count}; {median(seconds):.1f} s per night")


def main() -> None:
    """Print how many nights were right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=40)
    parser.add_argument("--targets", type=int, default=24)
    parser.add_argument("--store", choices=("shim", "disk"), default="shim")
    parser.add_argument("--size", type=parse_size, default="8m")
    parser.add_argument("--delay-us", type=int, default=3000, help="of each call of the shim [3000]")
    parser.add_argument("--rate-mib", type=float, default=20, help="MiB/s of the disk [20]")
    parser.add_argument("--seed", type=int, default=65)
    parser.add_argument("--dir", type=Path, default=ROOT / "var", help="on the file system of the directories [var]")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-targets-", dir=arguments.dir))
    try:
        programs = build_programs(folder)
        directories = [folder / f"t{number:03}" for number in range(arguments.targets)]
        for directory in directories:
            directory.mkdir()
        planted_nights(arguments, programs, folder, directories)
        control_nights(arguments, programs, folder, directories)
    except slow_storage.SlowStorageError as error:
        sys.exit(f"no slow disk here: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
