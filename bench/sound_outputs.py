"""Large outputs that are valid in every row, so that all rows are read: input of `bench/parsers.py`."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from iowatch.core import KIB, MIB

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))
from tests.benchmarks.sealed import sealed  # noqa: E402

_DATA = _ROOT / "tests" / "benchmarks" / "data"
_BLOCK, _TRANSFER = 16 * MIB, MIB
_COLUMNS = (
    "Operation Max(MiB) Min(MiB) Mean(MiB) StdDev Max(OPs) Min(OPs) Mean(OPs) StdDev Mean(s) Stonewall(s) "
    "Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt blksiz xsize aggs(MiB) "
    "API RefNum\n"
)


def _as_printed(value: float) -> str:
    """IOR's `PPDouble`, in its column."""
    return f"{value:<10.0f}" if value >= 3600 else f"{value:<10.2f}" if value >= 1 else f"{value:<10.6f}"


def ior_text(head: bytes, repetitions: int) -> bytes:
    """A default output of one task, `head` saying 9 repetitions."""
    rng = random.Random(1)  # noqa: S311 - material, not a secret
    rows: list[str] = []
    bandwidths: dict[str, list[float]] = {"write": [], "read": []}
    for number in range(repetitions):
        for operation, found in bandwidths.items():
            transfer, opened, closed = (rng.uniform(0.003, 0.03), rng.uniform(1e-5, 1e-4), rng.uniform(1e-6, 1e-5))
            total = transfer + opened + closed
            found.append(_BLOCK / MIB / total)
            values = [found[-1], 16 / transfer, transfer / 16, _BLOCK / KIB, _TRANSFER / KIB]
            cells = [_as_printed(value) for value in (*values, opened, transfer, closed, total)]
            rows.append(f"{operation:<10}{' '.join([*cells[:2], cells[2] + ' ', *cells[3:]])} {number:<4}\n")
    tail = "\nSummary of all tests:\n" + _COLUMNS
    for operation, found in bandwidths.items():
        numbers = f"{max(found):.2f} {min(found):.2f} {sum(found) / repetitions:.2f}"
        sizes = f"{repetitions} 0 0 1 0 0 1 {_BLOCK} {_TRANSFER} 16.0"
        tail += f"{operation} {numbers} 1 1 1 1 1 1 NA NA 0 1 1 {sizes} POSIX 0\n"
    head = head.replace(b"-i 9", f"-i {repetitions}".encode()).replace(b": 9\n", f": {repetitions}\n".encode())
    return head + "".join([*rows, tail, "Finished            : Fri Nov 20 12:21:27 2026\n"]).encode()


def benchio_text(head: bytes, repetitions: int) -> bytes:
    """The original benchio of 2018, one file of 3,072 MiB."""
    rng = random.Random(2)  # noqa: S311 - material, not a secret
    times = [rng.uniform(5, 6) for _ in range(repetitions)]
    rates = [3072 / time for time in times]
    rows = [f" time =  {t!r} , rate =  {r!r}  MiB/s\n" for t, r in zip(times, rates, strict=True)]
    rows += [f" mintime =  {min(times)!r} , maxrate =  {max(rates)!r}  MiB/s\n"]
    rows += [f" avgtime =  {sum(times) / repetitions!r} , avgrate =  {sum(rates) / repetitions!r}  MiB/s\n"]
    return head + "".join([*rows, " Deleting: striped/mpiio.dat\n", "\n Finished\n"]).encode()


def benchio_record(repetitions: int) -> bytes:
    """A record of our benchio, from a real one whose repetitions are made many."""
    rng = random.Random(3)  # noqa: S311 - material, not a secret
    record: dict[str, Any] = json.loads((_DATA / "benchio-record.json").read_text())
    record["options"]["repeat"] = repetitions
    for operation in record["operations"]:
        first = json.dumps(operation["repetitions"][0])
        operation["repetitions"] = [
            _slowed(json.loads(first), rng.uniform(1, 2), operation["bytes"]) for _ in range(repetitions)
        ]
    return sealed(record).encode()


def _slowed(repetition: dict[str, Any], factor: float, size: int) -> dict[str, Any]:
    repetition["seconds"] *= factor
    repetition["bandwidth_bytes_per_second"] = size / repetition["seconds"]
    for phase in repetition["phases"].values():
        for name in ("min", "mean", "max"):
            phase[name] *= factor
    return repetition
