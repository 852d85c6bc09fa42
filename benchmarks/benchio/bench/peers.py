#!/usr/bin/env python3
"""Speed of benchio and of its peers on this machine: same data, pattern and sync policy, alternating launches.

A pair compares the best of --best-of repetitions of each side: on a shared machine a single repetition
measures the other users rather than the programs (use 1 on an idle machine; one launch of the original has at
most 3). Peers are found on PATH: `ior`, `benchio-original` (the Fortran benchio) and `raw`
(bench/raw.c, built by `cmake --build BUILD --target raw`). What is absent is reported. A row is the median
over all pairs of (benchio / peer) and its 95 % interval from order statistics, which assumes no distribution.

    PATH=$PATH:/where/the/peers/are bench/peers.py --benchio BUILD/benchio --dir /dev/shm --dir /var/tmp
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

MIB = 1 << 20
APIS = ("posix", "mpiio", "hdf5")


@dataclass(frozen=True)
class Setting:
    """One launch: where, how many ranks, how much."""

    mpiexec: list[str]
    directory: pathlib.Path
    ranks: int
    api: str
    sync: bool

    def launch(self, *words: str, cwd: pathlib.Path | None = None) -> str:
        command = [*self.mpiexec, "-n", str(self.ranks), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=cwd)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
        return done.stdout


def benchio(program: str, setting: Setting, repetitions: int, *options: str) -> list[float]:
    """Bytes per second of each repetition but the first, which warms up."""
    # Where rank 0 and this program see the same, also on several nodes.
    with tempfile.TemporaryDirectory(dir=setting.directory) as name:
        path = pathlib.Path(name) / "record.json"
        words = ["--api", setting.api, "--dir", str(setting.directory), "--json", str(path), "--quiet"]
        words += ["--repeat", str(repetitions + 1), *options, *(["--sync"] if setting.sync else [])]
        setting.launch(program, *words)
        rows = json.loads(path.read_text())["operations"][0]["repetitions"]
    return [row["bandwidth_bytes_per_second"] for row in rows[1:]]


def ior(program: str, setting: Setting, repetitions: int, transfer: int, block: int) -> list[float]:
    words = ["-w", "-a", setting.api.upper(), "-t", str(transfer), "-b", str(block), "-i", str(repetitions + 1)]
    words += ["-o", str(setting.directory / "ior.data"), *(["-e"] if setting.sync else [])]
    text = setting.launch(program, *words)
    rates = re.findall(r"^write +([0-9.]+) ", text, re.MULTILINE)[: repetitions + 1]
    if len(rates) != repetitions + 1:
        raise RuntimeError(f"ior printed {len(rates)} repetitions: {text[-500:]}")
    return [float(rate) * MIB for rate in rates[1:]]


def original(program: str, setting: Setting, size: tuple[int, int, int]) -> list[float]:
    """The Fortran benchio writes once for each of its three stripings, and never syncs."""
    layer = {"posix": "proc", "mpiio": "mpiio", "hdf5": "hdf5"}[setting.api]
    with tempfile.TemporaryDirectory(dir=setting.directory) as name:
        for striping in ("unstriped", "striped", "fullstriped"):
            (pathlib.Path(name) / striping).mkdir()
        text = setting.launch(program, *map(str, size), "local", layer, cwd=pathlib.Path(name))
    seconds = [float(t) for t in re.findall(r"time = +([0-9.E+-]+)", text)]
    if len(seconds) != 3:
        raise RuntimeError(f"benchio-original printed {len(seconds)} times: {text[-500:]}")
    return [math.prod(size) * 8 * setting.ranks / s for s in seconds]


def raw(program: str, setting: Setting, repetitions: int, transfer: int, block: int) -> list[float]:
    words = [
        program,
        str(setting.directory / "raw.data"),
        str(transfer),
        str(block // transfer),
        str(repetitions + 1),
    ]
    done = subprocess.run([*words, str(int(setting.sync))], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()[1:]]


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % interval of the median: order statistics k and n + 1 - k with P(Binomial(n, 1/2) < k) <= 2.5 %."""
    n, total, k = len(ratios), 0.0, 0
    while total + math.comb(n, k) / 2**n <= 0.025:
        total += math.comb(n, k) / 2**n
        k += 1
    ordered = sorted(ratios)
    return ordered[max(k - 1, 0)], ordered[min(n - k, n - 1)]


def best(rates: list[float], of: int) -> list[float]:
    return [max(rates[i : i + of]) for i in range(0, len(rates), of)]


def compare(ours, theirs, pairs: int, of: int) -> tuple[list[float], float, float]:
    """Alternating launches; the side that begins alternates too; a pair is two consecutive launches."""
    ratios, left, right = [], [], []
    order = 0
    while len(ratios) < pairs:
        first, second = (ours, theirs) if order % 2 == 0 else (theirs, ours)
        a, b = best(first(), of), best(second(), of)
        mine, peer = (a, b) if order % 2 == 0 else (b, a)
        ratios += [m / p for m, p in zip(mine, peer, strict=True)]
        left += mine
        right += peer
        order += 1
    return ratios, statistics.median(left), statistics.median(right)


def report(words: str, result: tuple[list[float], float, float]) -> None:
    ratios, mine, peer = result
    low, high = interval(ratios)
    print(
        f"| {words} | {mine / MIB:.0f} | {peer / MIB:.0f} | {statistics.median(ratios):.3f} "
        f"| {low:.3f} to {high:.3f} | {len(ratios)} |",
        flush=True,
    )


def cells(arguments: argparse.Namespace, peers: dict[str, str | None]):
    """(words of the row, our launch, the peer's, repetitions a pair) of every cell that can be run here."""
    of, n = arguments.best_of, 2 * arguments.best_of
    transfer, block, size = MIB, arguments.block * MIB, (arguments.edge,) * 3
    stream = (
        "--pattern",
        "disjoint",
        "--transfer",
        str(transfer),
        "--block",
        str(block),
        "--access",
        "independent",
    )
    box = ("--local", "x".join(map(str, size)))
    mine = str(pathlib.Path(arguments.benchio).resolve())
    for directory in map(pathlib.Path, arguments.dir):
        for ranks in arguments.ranks:
            for api in arguments.api:
                s = Setting(arguments.mpiexec.split(), directory, ranks, api, True)
                plain = Setting(s.mpiexec, directory, ranks, api, False)
                if peers["raw"] and ranks == 1 and api == "posix":
                    yield (
                        f"raw pwrite + fsync | {directory} | 1 | posix",
                        lambda s=s: benchio(mine, s, n, *stream),
                        lambda s=s: raw(peers["raw"], s, n, transfer, block),
                        of,
                    )
                if peers["ior"]:
                    yield (
                        f"ior | {directory} | {ranks} | {api}",
                        lambda s=s: benchio(mine, s, n, *stream),
                        lambda s=s: ior(peers["ior"], s, n, transfer, block),
                        of,
                    )
                if peers["benchio-original"]:
                    layout = ("--file", "per-process") if api == "posix" else ()
                    yield (
                        f"benchio-original | {directory} | {ranks} | {api}",
                        lambda s=plain, layout=layout: benchio(mine, s, 3, *box, *layout),
                        lambda s=plain: original(peers["benchio-original"], s, size),
                        min(of, 3),
                    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchio", default=shutil.which("benchio") or "benchio")
    parser.add_argument("--mpiexec", default="mpiexec", help="launcher and its options, one word")
    parser.add_argument(
        "--dir", action="append", required=True, help="file system to measure on; may be repeated"
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--best-of", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--api", nargs="+", default=list(APIS), choices=APIS)
    parser.add_argument("--peer", nargs="+", default=["ior", "benchio-original", "raw"])
    parser.add_argument("--block", type=int, default=16, help="MiB per rank for ior and raw")
    parser.add_argument("--edge", type=int, default=128, help="elements in each dimension for benchio-original")
    arguments = parser.parse_args()
    peers = {
        name: shutil.which(name) if name in arguments.peer else None
        for name in ("ior", "benchio-original", "raw")
    }
    for name in arguments.peer:
        print(f"{name}: {peers[name] or 'not on PATH: its rows are missing'}", file=sys.stderr)
    print(
        "| peer | directory | ranks | api | benchio MiB/s | peer MiB/s | median ratio | 95 % interval | pairs |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for words, ours, theirs, of in cells(arguments, peers):
        report(words, compare(ours, theirs, arguments.pairs, of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
