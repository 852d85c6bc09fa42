"""Starts the timed operations as a process of its own, and waits for it no longer than a time limit.

A process that waits for a file system that does not answer cannot always be killed. It is then left behind: the pulse
ends in time, and the next one starts no second process while the first still waits.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from iowatch.pulse import probe_program
from iowatch.pulse.probe_program import OPERATIONS

# Seconds from the start of the process. With the start of iowatch a pulse ends within two seconds.
LIMIT_S = 1.2
# To make the tree is done once.
MAKE_LIMIT_S = 120.0
# An operation that was cut off after less says nothing: the ones before it took the time.
_SHORTEST_HANG_S = 0.3
_NS_PER_S = 1_000_000_000

Outcome = Literal["completed", "unfinished", "failed"]


@dataclass(frozen=True)
class Reading:
    """One operation in one pulse.

    Attributes:
        level_ns: mean of its samples; of an unfinished one at least the time that it had; 0 of a failed one.
        samples_ns: of the repetitions that ended.
        outcome: `unfinished`: it did not end within the time limit. `failed`: the system reported an error.
        reason: of a failed one.
    """

    operation: str
    level_ns: int
    samples_ns: tuple[int, ...] = ()
    outcome: Outcome = "completed"
    reason: str = ""


@dataclass(frozen=True)
class LeftProcess:
    """A process that could not be killed.

    Attributes:
        operation: that it waits for.
        start_ticks: when it started, from /proc: a later process may have its number.
    """

    operation: str
    host: str
    pid: int
    start_ticks: int

    @property
    def exists(self) -> bool:
        """Whether it still waits; only its own host can tell."""
        return _start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True)
class ProbeResult:
    """What a probe reported.

    Attributes:
        readings: in the order of `OPERATIONS`; those that were not reached are absent.
        missing_tree: why the fixed tree cannot be used; empty if it can.
        left_process: a process that still waits for the file system.
        reason: why there is no reading; empty otherwise.
    """

    readings: tuple[Reading, ...] = ()
    missing_tree: str = ""
    left_process: LeftProcess | None = None
    reason: str = ""


@dataclass
class _Probe:
    """A running process, and what it has reported.

    Attributes:
        running: the operation that has begun and not ended, and when, by the monotonic clock in seconds.
    """

    directory: Path
    pid: int
    stream: int
    start_s: float
    buffer: bytes = b""
    samples: dict[str, list[int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    running: tuple[str, float] | None = None
    missing_tree: str = ""
    has_ended: bool = False

    def read(self) -> None:
        """Take in what has arrived; at the end of the stream the process has ended."""
        received = os.read(self.stream, 65536)
        self.has_ended = not received
        *lines, self.buffer = (self.buffer + received).split(b"\n")
        for line in lines:
            event, _, rest = line.decode("utf-8", "replace").partition(" ")
            self._take(event, rest)

    def _take(self, event: str, rest: str) -> None:
        operation, _, value = rest.partition(" ")
        if event == "begin":
            self.running = (operation, time.monotonic())
            return
        if event == "end":
            self.samples.setdefault(operation, []).append(int(value))
        elif event == "failed":
            self.failures[operation] = value
        elif event == "no-tree":
            self.missing_tree = rest or "absent"
        self.running = None


def probe_file_systems(directories: Sequence[Path], number: int, limit_s: float = LIMIT_S) -> tuple[ProbeResult, ...]:
    """Time the operations in fixed trees, of several file systems at the same time.

    Args:
        directories: of the trees, each on another file system.
        number: of this pulse, by which it chooses files.
        limit_s: seconds for all.
    """
    probes = [_start("pulse", directory, str(number)) for directory in directories]
    _wait(probes, limit_s)
    return tuple(_result(probe) for probe in probes)


def make_tree(directory: Path, limit_s: float = MAKE_LIMIT_S) -> str:
    """Make the fixed tree, or complete it; return why it could not be made, empty if it was."""
    probe = _start("make", directory)
    _wait([probe], limit_s)
    left_process = _end(probe)
    if probe.failures:
        return next(iter(probe.failures.values()))
    if left_process is not None or not probe.has_ended:
        return f"did not end within {limit_s:g} s"
    return ""


def result_of_left_process(left: LeftProcess, limit_s: float = LIMIT_S) -> ProbeResult:
    """Result of a pulse that starts no process, because an earlier one still waits for the file system."""
    reading = Reading(left.operation, round(limit_s * _NS_PER_S), outcome="unfinished")
    return ProbeResult((reading,), left_process=left)


def _start(*words: object) -> _Probe:
    """Start the program with an isolated Python: it imports nothing of iowatch and reads no settings."""
    reading_end, writing_end = os.pipe()
    command = [sys.executable, "-I", "-S", probe_program.__file__, *(str(word) for word in words)]
    actions = [
        (os.POSIX_SPAWN_DUP2, writing_end, 1),
        (os.POSIX_SPAWN_CLOSE, reading_end),
        (os.POSIX_SPAWN_CLOSE, writing_end),
    ]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(writing_end)
    return _Probe(Path(str(words[1])), pid, reading_end, time.monotonic())


def _wait(probes: Sequence[_Probe], limit_s: float) -> None:
    """Read events until all processes have ended or the time is over."""
    deadline = time.monotonic() + limit_s
    while True:
        running = {probe.stream: probe for probe in probes if not probe.has_ended}
        remaining_s = deadline - time.monotonic()
        if not running or remaining_s <= 0:
            return
        ready, _, _ = select.select(list(running), [], [], remaining_s)
        for stream in ready:
            running[stream].read()


def _result(probe: _Probe) -> ProbeResult:
    cut_off_s = time.monotonic()
    left_process = _end(probe)
    readings: list[Reading] = []
    for operation in OPERATIONS:
        samples = tuple(probe.samples.get(operation, ()))
        level_ns = round(sum(samples) / len(samples)) if samples else 0
        if probe.running is not None and probe.running[0] == operation and not probe.has_ended:
            waited_s = cut_off_s - probe.running[1]
            if waited_s >= _SHORTEST_HANG_S:
                level_ns = max(level_ns, round(waited_s * _NS_PER_S))
                readings.append(Reading(operation, level_ns, samples, "unfinished"))
                continue
        if operation in probe.failures:
            readings.append(Reading(operation, 0, samples, "failed", probe.failures[operation]))
        elif samples:
            readings.append(Reading(operation, level_ns, samples))
    # A program that was ended by somebody else, or could not start.
    reason = "" if readings or probe.missing_tree else "the operations could not be started"
    return ProbeResult(tuple(readings), probe.missing_tree, left_process, reason)


def _end(probe: _Probe) -> LeftProcess | None:
    """Kill the process if it has not ended; return it if that had no effect within a moment."""
    os.close(probe.stream)
    if not probe.has_ended:
        with suppress(ProcessLookupError):
            os.kill(probe.pid, signal.SIGKILL)
    for _ in range(20):
        if os.waitpid(probe.pid, os.WNOHANG)[0]:
            return None
        time.sleep(0.005)
    ticks = _start_ticks(probe.pid)
    if ticks is None:
        return None
    operation = probe.running[0] if probe.running is not None else OPERATIONS[0]
    return LeftProcess(operation, os.uname().nodename, probe.pid, ticks)


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # After the name in parentheses, which may have blanks, the state is the first word and the start the 20th.
    words = text.rpartition(")")[2].split()
    # A process that has ended and was not waited for yet waits for no file system.
    if words[0] == "Z":
        return None
    return int(words[19])
