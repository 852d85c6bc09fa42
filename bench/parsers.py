"""Speed and memory of the parsers on large outputs, made while they are read (nothing is written to disk).

    python bench/parsers.py                 1 GiB of each kind
    python bench/parsers.py --mib 128 --kind ior-rows

Kinds: `warnings`: an IOR output that begins with warnings of a launcher; `errors`: every line contains a word
of errors; `ior-rows`: repetitions of IOR without end; `mdtest-V3`: a verbose mdtest; `benchio-rows`;
`h5bench-steps`; `noise`: random bytes. Rows after the 50,000th are not read; in
`sound-ior`, `sound-benchio` and `sound-record` every row is; they are parsed repeatedly until the size is reached.
One process per kind, so that each has its own peak of memory.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import sound_outputs

MIB = 1 << 20

_IOR_HEAD = b"""IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Began               : Fri Nov 20 12:21:27 2026
Command line        : ior -a POSIX -t 1m -b 16m -i 9 -o /scratch/f
Machine             : Linux vm
TestID              : 0
StartTime           : Fri Nov 20 12:21:27 2026
Path                : /scratch/f

Options:
api                 : POSIX
apiVersion          :
test filename       : /scratch/f
access              : single-shared-file
type                : independent
segments            : 1
ordering in a file  : sequential
ordering inter file : no tasks offsets
nodes               : 1
tasks               : 1
clients per node    : 1
repetitions         : 9
xfersize            : 1 MiB
blocksize           : 16 MiB
aggregate filesize  : 16 MiB

Results:

"""
_IOR_HEAD += b"access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)\n"
_IOR_ROW = (
    "write     4746       4846       0.000206    16384      1024.00    0.000062   0.003302   0.000007   "
    "0.003371   {:<4}\n"
    "read      24573      24846      0.000040    16384      1024.00    0.000005   0.000644   0.000002   "
    "0.000651   {:<4}\n"
)
_BENCHIO_HEAD = b"""
 Simple Parallel IO benchmark
 Running on  24  process(es)
 Process grid is ( 2 ,  3 ,  4 )
 Array size is   ( 256 ,  256 ,  256 )
 Global size is  ( 512 ,  768 ,  1024 )
 Total amount of data =  3072.  MiB
 Writing to striped/mpiio.dat
"""


def _repeat(head: bytes, line: bytes) -> Iterator[bytes]:
    yield head
    block = line * (MIB // len(line))
    while True:
        yield block


def _numbered(head: bytes, line: str) -> Iterator[bytes]:
    """Lines that count; blocks of 10,000."""
    yield head
    start = 0
    while True:
        yield "".join(line.format(n, n) for n in range(start, start + 10_000)).encode()
        start += 10_000


def _noise() -> Iterator[bytes]:
    rng = random.Random(1)  # noqa: S311 - noise, not a secret
    while True:
        yield rng.randbytes(MIB)


def _benchio_rows() -> Iterator[bytes]:
    yield _BENCHIO_HEAD
    seconds = [5.2 + n * 1e-5 for n in range(60_000)]
    block = "".join(f" time =  {s!r} , rate =  {3072 / s!r}  MiB/s\n" for s in seconds).encode()
    while True:
        yield block


_WARNING = b"[vm:1234] [[INVALID],0] btl warning: hfi_userinit: assign_context command took long\n"
_ERROR = "[vm:{}] common_ucx.c:162 failed to progress, retrying after error {}; see the manual\n"
_V3 = "V-3: Rank   0 Line  2066 create_remove_items_helper (dirs create): curr_item is '/scratch/{}'\n"
_STEP = "Writing Timestep_{} ... \n    data_write_contig_contig_MD_array: Finished writing time step \n"
_STEP += "Computing...\n"
_CONFIGURED = b"Configuration file: h5bench.cfg\n\n=== Benchmark Configuration ===\nMode: SYNC\n======\n"

# kind -> tool and endless output
KINDS: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "warnings": ("ior", lambda: _repeat(b"", _WARNING)),
    "errors": ("ior", lambda: _numbered(_IOR_HEAD, _ERROR)),
    "ior-rows": ("ior", lambda: _numbered(_IOR_HEAD, _IOR_ROW)),
    "mdtest-V3": ("mdtest", lambda: _numbered(b"V-1: Entering PrintTimestamp...\n", _V3)),
    "benchio-rows": ("benchio", _benchio_rows),
    "h5bench-steps": ("h5bench", lambda: _numbered(_CONFIGURED, _STEP)),
    "noise": ("ior", _noise),
}


# kind -> tool and a sound output of some megabytes
SOUND: dict[str, tuple[str, Callable[[], bytes]]] = {
    "sound-ior": ("ior", lambda: sound_outputs.ior_text(_IOR_HEAD, 24_900)),
    "sound-benchio": ("benchio", lambda: sound_outputs.benchio_text(_BENCHIO_HEAD, 49_900)),
    "sound-record": ("benchio", lambda: sound_outputs.benchio_record(2_000)),
}


class Endless(io.RawIOBase):
    """A stream of `size` bytes from pieces made on demand; the time that making them takes is kept apart."""

    def __init__(self, pieces: Iterator[bytes], size: int) -> None:
        self._pieces, self._left, self._rest = pieces, size, b""
        self.making_s = 0.0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        began = time.process_time()
        parts, have = [self._rest], len(self._rest)
        while have < size:
            piece = next(self._pieces)
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        count = min(size, self._left)
        self._rest = data[count:]
        self._left -= count
        self.making_s += time.process_time() - began
        return data[:count]


def measure(kind: str, mib: int) -> str:
    """One line of figures for one kind."""
    from iowatch.benchmarks.parsing import RunContext
    from iowatch.benchmarks.registry import parse_output

    tool, make = KINDS[kind]
    parse_output(tool, b"", RunContext())  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stream = Endless(make(), mib * MIB)
    began = time.process_time()
    output = parse_output(tool, stream, RunContext())  # type: ignore[arg-type]
    seconds = time.process_time() - began - stream.making_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rate = mib * MIB / 1e6 / seconds
    return (
        f"{kind:<14} {tool:<8} {mib:>5} MiB {seconds:>7.2f} s {rate:>7.0f} MB/s"
        f"  peak {peak / 1024:>6.0f} MiB (before: {before / 1024:.0f} MiB)  {output.status}"
    )


def measure_sound(kind: str, mib: int) -> str:
    """One line of figures for a sound output."""
    from iowatch.benchmarks.parsing import RunContext
    from iowatch.benchmarks.registry import parse_output

    tool, make = SOUND[kind]
    data = make()
    turns = max(1, mib * MIB // len(data))
    began = time.process_time()
    for _ in range(turns):
        output = parse_output(tool, data, RunContext())
    rate = turns * len(data) / 1e6 / (time.process_time() - began)
    rows = sum(len(result.samples) for result in output.results if result.metric == "bandwidth")
    size = f"{turns} x {len(data) / 1e6:.1f} MB"
    return f"{kind:<14} {tool:<8} {size} {rate:>7.1f} MB/s  {rows} rows  {output.status}"


def main() -> None:
    """Measure all kinds, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of each output (default 1024)")
    parser.add_argument("--kind", choices=[*KINDS, *SOUND], help="only this kind, in this process")
    arguments = parser.parse_args()
    if arguments.kind:
        print((measure_sound if arguments.kind in SOUND else measure)(arguments.kind, arguments.mib))
        return
    for kind in (*KINDS, *SOUND):
        command = [sys.executable, __file__, "--kind", kind, "--mib", str(arguments.mib)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
