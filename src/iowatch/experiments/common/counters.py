"""Counts of one run: instructions, system calls on the benchmark's files, and calls of MPI-IO and HDF5 (docs/gate.md).

`perf stat` counts the instructions of each process in user mode where the processor's counters are available (they
are not in most virtual machines and containers); valgrind counts them anywhere, and takes seconds to do so. `strace`
counts system calls where ptrace is allowed; Darshan counts the calls above them where both builds have it. All in
one run: that they slow the program down does not change what it executes. A counted run is no measurement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# How `run_profile` is asked for a counted run (`counts:valgrind`), and the directory of the counts in that of the job.
COUNTS = "counts"
_STRACE, _INSTRUCTIONS, _REFUSED = "strace", "instructions", "refused"
# How instructions are counted: a trial that prints or succeeds only where it can be used, and the command.
_PERF = "perf stat -x, -e instructions:u"
INSTRUCTION_COUNTERS = {
    "perf": (f'{_PERF} true 2>&1 > /dev/null | grep -q "^[0-9]"', f"{_PERF} -o $out"),
    "valgrind": (
        "valgrind --version > /dev/null 2>&1",
        "valgrind -q --tool=cachegrind --cache-sim=no --cachegrind-out-file=$out.%p",
    ),
    "off": ("false", ""),
}
# System calls that take a path or a file descriptor; of waiting and polling processes their number is chance.
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
_WITH_BYTES = re.compile(r"p?(?:read|write)(?:64|v|v2)?|sendfile|copy_file_range")
# Fewer instructions than this share of all are no difference: addresses and the environment change some.
MIN_INSTRUCTIONS_RATIO = 1.01
INSTRUCTIONS = "instructions"


@dataclass(frozen=True)
class CounterReadings:
    """Counts of one run, all processes together.

    Attributes:
        calls, transferred_bytes: by name of the system call; only calls on files in the scratch directory.
        instructions: in user mode; None if the processor's counters are not available.
        has_calls: whether system calls could be counted.
        refused: why something could not be counted, or empty.
        operations: calls and bytes above POSIX by Darshan's name (`MPIIO_COLL_WRITES`), other than 0; None if no log
            has them.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    transferred_bytes: Mapping[str, int] = field(default_factory=dict)
    instructions: int | None = None
    has_calls: bool = False
    refused: str = ""
    operations: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def values(self) -> dict[str, int]:
        """All counts by name: `write calls`, `write bytes`, `MPIIO_COLL_WRITES`, `instructions`."""
        counts = {f"{name} calls": count for name, count in self.calls.items()}
        counts |= self.operations or {}
        counts |= {f"{name} bytes": count for name, count in self.transferred_bytes.items()}
        if self.instructions is not None:
            counts[INSTRUCTIONS] = self.instructions
        return counts


@dataclass(frozen=True, slots=True)
class CountDifference:
    """A count that differs between two builds in all of their runs."""

    name: str
    base: int
    head: int

    @property
    def text(self) -> str:
        """For example `pwrite64 calls 24 -> 31`."""
        change = f" ({100 * (self.head / self.base - 1):+.1f} %)" if self.base else ""
        return f"{self.name} {self.base:,} -> {self.head:,}{change}"


def wrapper_script(counter: str) -> str:
    """Return a shell script that runs its arguments under the counters that can be used.

    Args:
        counter: of instructions, one of `INSTRUCTION_COUNTERS`.
    """
    trial, command = INSTRUCTION_COUNTERS[counter]
    # Each process has files of its own, named by host and process. `set --` puts a counter before the arguments.
    return f"""#!/bin/sh
mkdir -p {COUNTS}
own=$(uname -n).$$
if {trial}; then
  out={COUNTS}/{_INSTRUCTIONS}.$own
  set -- {command} "$@"
else
  echo "no instructions: {counter} cannot be used" > {COUNTS}/{_REFUSED}.$own
fi
if strace -o /dev/null -e trace=close true > /dev/null 2>&1; then
  set -- strace -ff --seccomp-bpf -y -s 0 -e trace=%file,%desc -o {COUNTS}/{_STRACE}.$own "$@"
else
  echo "no system calls: strace is not installed, or ptrace is not allowed" >> {COUNTS}/{_REFUSED}.$own
fi
exec "$@"
"""


def read_counts(stage: Path, scratch: Path) -> CounterReadings:
    """Return the counts of a job from its directory, without those of its Darshan log.

    Args:
        scratch: only calls on files in this directory count: what MPI reads and writes to start depends on chance.
    """
    directory = stage / COUNTS
    # System calls of all processes.
    traces = sorted(directory.glob(f"{_STRACE}.*"))
    calls: Counter[str] = Counter()
    transferred_bytes: Counter[str] = Counter()
    for path in traces:
        with path.open(errors="replace") as lines:
            for name, result in _calls_on(lines, f"{scratch}/"):
                calls[name] += 1
                if _WITH_BYTES.fullmatch(name):
                    transferred_bytes[name] += result
    refused: set[str] = set()
    for path in directory.glob(f"{_REFUSED}.*"):
        refused.update(path.read_text().splitlines())
    return CounterReadings(
        calls=dict(sorted(calls.items())),
        transferred_bytes=dict(sorted(transferred_bytes.items())),
        instructions=_total_instructions(directory),
        has_calls=bool(traces),
        refused="; ".join(sorted(refused)),
    )


def _calls_on(lines: Iterable[str], directory: str) -> Iterator[tuple[str, int]]:
    """Names and results of the successful calls that name a path in the directory."""
    for line in lines:
        if directory not in line:
            continue
        call = _CALL.match(line)
        if call is not None and not call[3].startswith("-"):
            yield call[1], int(call[3])


def _total_instructions(directory: Path) -> int | None:
    """Instructions of all processes; None if those of one were not counted."""
    total = None
    for path in sorted(directory.glob(f"{_INSTRUCTIONS}.*")):
        instructions = _read_instructions(path.read_text(errors="replace"))
        if instructions is None:
            return None
        total = (total or 0) + instructions
    return total


def _read_instructions(text: str) -> int | None:
    """`1234,,instructions:u,…` of perf, `summary: 1234` of valgrind; None for `<not counted>`."""
    match = re.search(r"(?m)^(?:(\d+),[^,]*,instructions|summary:\s+(\d+))", text)
    if match is None:
        return None
    return int(match[1] or match[2])


def differing_counts(base: Iterable[CounterReadings], head: Iterable[CounterReadings]) -> list[CountDifference]:
    """Counts that are lower in all runs of one side than in all of the other: no statistics are needed for them.

    A name that a side does not have counts as 0, instructions and Darshan's counts only where all runs have them.
    """
    base_runs, head_runs = list(base), list(head)
    if not base_runs or not head_runs:
        return []
    all_runs = [*base_runs, *head_runs]
    names: set[str] = set()
    for run in all_runs:
        names.update(run.values())
    # Darshan's counts, and instructions, are compared only if all runs have them.
    if any(run.operations is None for run in all_runs):
        for run in all_runs:
            names.difference_update(run.operations or {})
    if any(run.instructions is None for run in all_runs):
        names.discard(INSTRUCTIONS)
    base_values = [run.values() for run in base_runs]
    head_values = [run.values() for run in head_runs]
    differences: list[CountDifference] = []
    for name in sorted(names):
        base_counts = [values.get(name, 0) for values in base_values]
        head_counts = [values.get(name, 0) for values in head_values]
        if _have_gap(name, base_counts, head_counts) or _have_gap(name, head_counts, base_counts):
            differences.append(CountDifference(name, base_counts[-1], head_counts[-1]))
    return differences


def _have_gap(name: str, lower: Sequence[int], higher: Sequence[int]) -> bool:
    """Whether all counts of one side are higher than all of the other, of instructions by more than some."""
    min_ratio = MIN_INSTRUCTIONS_RATIO if name == INSTRUCTIONS else 1.0
    return min(higher) > min_ratio * max(lower)
