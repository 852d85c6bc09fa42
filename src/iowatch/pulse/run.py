"""Takes a pulse of the file systems of a system: times the operations, stores them, and assesses the newest three."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.core import IowatchError, UsageError, settings, utc_now
from iowatch.pulse import probe
from iowatch.pulse.assess import StallChanges, assess_pulse
from iowatch.pulse.probe import ProbeResult, Reading
from iowatch.pulse.probe_program import OPERATIONS
from iowatch.pulse.store import CLIENT_NAME, PulseStore, open_store, store_path
from iowatch.site import MeasuredFileSystem, load_system, storage, system_zone

_LOG = logging.getLogger(__name__)
DEFAULT_CLIENT = "login"
# Of a timer; pulses of one interval use the same files of the tree.
_INTERVAL_S = 600
# In the scratch directory; sessions remove only directories that begin with `iowatch-`.
_TREE_DIRECTORY = "pulse"
# Fact of a store: the file system that the tree was made on.
_IDENTITY = "file_system"


@dataclass(frozen=True)
class FileSystemPulse:
    """A pulse of one file system.

    Attributes:
        result: what was timed, or why nothing was.
        changes: stalls that began and ended with it.
        store_bytes: size of the file with all pulses.
    """

    file_system: str
    directory: Path
    result: ProbeResult
    changes: StallChanges
    store_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return all values in JSON's types."""
        return {
            "file_system": self.file_system,
            "directory": str(self.directory),
            "reason": self.result.reason,
            "readings": [dict(reading.__dict__) for reading in self.result.readings],
            "begun": [stall.__dict__ for stall in self.changes.begun],
            "ended": [stall.__dict__ for stall in self.changes.ended],
            "stalls": [stall.__dict__ for stall in self.changes.lasting],
            "store_bytes": self.store_bytes,
        }


@dataclass(frozen=True)
class PulseReport:
    """A pulse of a system.

    Attributes:
        time: epoch seconds.
        in_session: whether a session of iowatch measured at the same time; such a pulse is stored and not assessed.
        wall_s: seconds from the start of the measurement to the end of the assessment.
        processor_s: processor time of this process and of those that it started, their start included.
    """

    system: str
    client: str
    time: int
    in_session: bool
    wall_s: float
    processor_s: float
    file_systems: tuple[FileSystemPulse, ...]

    @property
    def is_stalled(self) -> bool:
        """Whether an operation of a file system is stalled."""
        return any(pulse.changes.lasting for pulse in self.file_systems)

    @property
    def has_failed(self) -> bool:
        """Whether a file system could not be measured at all."""
        return any(pulse.result.reason for pulse in self.file_systems)

    def to_json(self) -> dict[str, Any]:
        """Return all values in JSON's types."""
        return {**self.__dict__, "file_systems": [pulse.to_json() for pulse in self.file_systems]}


def take_pulse(system: str, names: Sequence[str] = (), client: str = DEFAULT_CLIENT) -> PulseReport:
    """Take a pulse of the file systems of a system.

    Args:
        names: of measured file systems; empty for all but those of which each node has its own.
        client: what kind of node this is; each has its own series.

    Raises:
        UsageError: unknown system or file system; the client cannot be part of a path.
        InputError: a file of the site or of pulses is damaged. MachineError: a file of pulses cannot be written.
    """
    if not CLIENT_NAME.fullmatch(client):
        raise UsageError(
            f"'{client}' cannot name a client", hint="Expected lower-case letters, digits and '-', such as login."
        )
    file_systems = _choose_file_systems(system, names)
    begin_s = time.monotonic()
    now_s = int(utc_now().timestamp())
    in_session = is_session_running(system)
    zone = system_zone(system)
    directories = [file_system.path() / _TREE_DIRECTORY for file_system in file_systems]
    pulses: list[FileSystemPulse] = []
    with ExitStack() as stack:
        stores = []
        for file_system in file_systems:
            path = store_path(system, client, file_system.name)
            stores.append(stack.enter_context(open_store(path, create=True)))
        results = _probe(file_systems, directories, stores, now_s // _INTERVAL_S)
        for file_system, directory, store, result in zip(file_systems, directories, stores, results, strict=True):
            store.add_pulse(now_s, result.readings, in_session, result.reason)
            store.summarise_hours(now_s)
            changes = StallChanges(lasting=tuple(store.stalls(now_s)))
            if not in_session:
                changes = assess_pulse(store, now_s, zone)
            pulses.append(FileSystemPulse(file_system.name, directory, result, changes, store.size_bytes()))
    used = os.times()
    processor_s = used.user + used.system + used.children_user + used.children_system
    return PulseReport(
        system, client, now_s, in_session, time.monotonic() - begin_s, round(processor_s, 3), tuple(pulses)
    )


def _choose_file_systems(system: str, names: Sequence[str]) -> list[MeasuredFileSystem]:
    described = load_system(system)
    if names:
        return [described.measured(name) for name in dict.fromkeys(names)]
    described.measured(None)  # an error where the system measures none
    return [file_system for file_system in described.measured_file_systems if not file_system.node_local]


def _probe(
    file_systems: Sequence[MeasuredFileSystem], directories: Sequence[Path], stores: Sequence[PulseStore], number: int
) -> list[ProbeResult]:
    """Time the operations on all file systems at the same time; results in their order."""
    results: dict[int, ProbeResult] = {}
    # No second process waits for a file system that does not answer.
    for index, store in enumerate(stores):
        left = store.left_process()
        if left is not None and left.host == os.uname().nodename and left.exists:
            results[index] = probe.result_of_left_process(left)
    free = [index for index in range(len(stores)) if index not in results]
    for index, result in zip(free, probe.probe_file_systems([directories[i] for i in free], number), strict=True):
        results[index] = result
    # The first pulse makes the tree; so does one after a purge of the scratch file system.
    for index in free:
        if not results[index].missing_tree:
            continue
        reason = _make_tree(file_systems[index], directories[index], stores[index], results[index].missing_tree)
        if not reason:
            (results[index],) = probe.probe_file_systems([directories[index]], number)
            reason = results[index].missing_tree and f"no fixed tree: {results[index].missing_tree}"
        if reason:
            failure = Reading(OPERATIONS[0], 0, outcome="failed", reason=reason)
            results[index] = ProbeResult((failure,), reason=reason)
    for index, store in enumerate(stores):
        store.set_left_process(results[index].left_process)
    return [results[index] for index in range(len(stores))]


def _make_tree(file_system: MeasuredFileSystem, directory: Path, store: PulseStore, missing: str) -> str:
    """Make the fixed tree; return why it could not be made, empty if it was.

    It is not made on another file system than before: below a mount point where nothing is mounted it would be one on
    the disk of this node, which is always fast.
    """
    try:
        identity = storage.prepare_scratch(file_system.path(), file_system.declared)
    except IowatchError as error:
        return error.message
    present = "unknown" if identity is None else f"{identity.type} on {identity.mount}"
    before = store.fact(_IDENTITY)
    if before is not None and before != present:
        return f"the fixed tree is missing, and {directory} is on another file system: {present}, before {before}"
    _LOG.info("%s: the fixed tree in %s is made (missing: %s)", file_system.name, directory, missing)
    reason = probe.make_tree(directory)
    if reason:
        return f"cannot make the fixed tree in {directory}: {reason}"
    store.set_fact(_IDENTITY, present)
    return ""


def is_session_running(system: str) -> bool:
    """Whether a session of this host measures the system: it holds the lock in `var/lock`.

    The lock is looked up in the table of the kernel; to try it would refuse a session that starts at this moment.
    """
    lock = settings.var_directory() / "lock" / f"{system}.lock"
    try:
        inode, holder = lock.stat().st_ino, lock.read_text(encoding="ascii").strip()
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    # `1: FLOCK  ADVISORY  WRITE 2133 08:01:1049082 0 EOF`: process, then device and inode. The device is left out: some
    # file systems show another one than `stat` does.
    return re.search(rf" FLOCK .* {re.escape(holder)} \S+:{inode} ", table) is not None
