"""The memory that the transfers of an application use, found by the durations in its logs.

    replays with each kind of memory ──> profiles ──> those with the share of POSIX of the logs ──> nearest durations

No log says which memory a transfer used; where files are in the page cache, it costs as much as the file.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from iowatch.applications.workloads.profile import profile_log
from iowatch.applications.workloads.replay import Benchio, replay_profile
from iowatch.benchmarks.workloads import Workload, format_description
from iowatch.core import InputError, files
from iowatch.darshan import DarshanReader

# Memory that transfers may use (docs/workloads.md#description), and replays with each.
_MEMORY_OF_WRITES = ("rotating", "reused")
_MEMORY_OF_READS = (*_MEMORY_OF_WRITES, "new")
# A file system that writes for longer delays the next replay no more than it delays every other one.
_SYNC_TIMEOUT_S = 600.0
_REPLAYS = 5
_VERBS = ("read", "write")
# Sizes of transfers whose durations are compared: those that take most of the time of the application.
_COMPARED_SIZES = 4
# Shares of POSIX in the time of MPI-IO that are the same: they differ by less from run to run, by .2 with a halo.
_SAME_SHARE = 0.05
# Of a transfer that took no time: the resolution of a clock.
_SHORTEST_S = 1e-9
# How often the application may read into the same memory; of the bytes that a rank reads, this gives the memory kept.
_TURNS = (2, 3, 4, 8)

_Profile = Mapping[str, Any]


@dataclass(frozen=True)
class MemoryUse:
    """Memory that a program may use.

    Attributes:
        halo: whether parts of arrays have a halo in memory.
        read: memory of reads: a name, or the bytes of memory that is kept.
    """

    halo: bool
    read: str | int

    @property
    def write(self) -> str:
        """The memory of writes that is tried together with that of reads."""
        if self.read in _MEMORY_OF_WRITES:
            return str(self.read)
        return "rotating"

    def of(self, verb: str) -> str | int:
        """Return the memory of reads or of writes."""
        return self.read if verb == "read" else self.write


def fit_memory(
    file: Path, document: Mapping[str, Any], logs: Sequence[Path], benchio: Benchio
) -> dict[str, str | int | bool]:
    """Return the memory that transfers use (`memory` of a description) with which these take as long as in the logs.

    Reads and writes are chosen apart, by five replays with each kind. Memory that is kept is that of a half, a third,
    a quarter or an eighth of what a rank reads. Where parts of arrays are moved, all of it is tried with a halo, too.

    Args:
        file, document: the description.
        logs: of several runs of the program on this machine; they count by their median.
        benchio: how it is run.

    Raises:
        InputError: a log has no times (DXT), or other operations than the first. And see `check_replay`.
    """
    with DarshanReader() as reader, tempfile.TemporaryDirectory() as directory:
        originals = _read_profiles(reader, logs)
        ranks = originals[0]["ranks"]
        candidates = _candidates(document, originals[0])
        replays: dict[MemoryUse, list[_Profile]] = {candidate: [] for candidate in candidates}
        for turn in range(_REPLAYS):
            # In another order each time, and nothing left to write: what a replay leaves behind delays the next one.
            for index in np.random.default_rng(turn).permutation(len(candidates)):
                candidate = candidates[index]
                memory = {"read": candidate.read, "write": candidate.write, "halo": candidate.halo}
                changed = {**document, "memory": memory}
                changed_file = Path(directory, file.name)
                changed_file.write_text(format_description(changed), encoding="utf-8")
                # Of this file system only: with all of them, one that does not answer any more would block it.
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run(["sync", "-f", benchio.directory], check=False, timeout=_SYNC_TIMEOUT_S)
                profile = replay_profile(reader, changed_file, Workload(changed, ranks), benchio)
                replays[candidate].append(profile)
    return nearest_memory(replays, originals)


def _read_profiles(reader: DarshanReader, logs: Sequence[Path]) -> list[_Profile]:
    """The profiles of runs of one program."""
    profiles: list[_Profile] = []
    for log in logs:
        profile = reader.call(profile_log, log)
        if profile["durations"] is None:
            raise InputError(f"{log}: no times of accesses", hint="Trace the program with DXT_ENABLE_IO_TRACE=1.")
        for field in ("ranks", "layers"):
            if profiles and profile[field] != profiles[0][field]:
                raise InputError(f"{log}: other operations than {logs[0]}", hint="Give logs of the same program.")
        profiles.append(profile)
    return profiles


def _candidates(document: Mapping[str, Any], original: _Profile) -> list[MemoryUse]:
    """The memory that is tried for a program."""
    memory_of_reads: list[str | int] = list(_MEMORY_OF_WRITES)
    if original["durations"]["read"]:
        # Memory that is kept is an even share of what a rank reads.
        read_bytes = sum(layer.get("bytes read", 0) for layer in original["layers"].values())
        read_per_rank = read_bytes // original["ranks"]
        kept_bytes = {read_per_rank // turns for turns in _TURNS}
        memory_of_reads = [*_MEMORY_OF_READS, *sorted(kept_bytes - {0})]
    # Only parts of arrays have a halo.
    has_array_parts = any(_moves_array_parts(phase["actions"]) for phase in document["phases"])
    halos = (False, True) if has_array_parts else (False,)
    candidates: list[MemoryUse] = []
    for halo in halos:
        candidates += [MemoryUse(halo, read) for read in memory_of_reads]
    return candidates


def _moves_array_parts(actions: Iterable[Any]) -> bool:
    """Whether an action moves a part of an array."""
    for action in actions:
        if isinstance(action, Mapping) and ("start" in action or _moves_array_parts(action.get("actions", ()))):
            return True
    return False


@dataclass(frozen=True)
class _NearestMemory:
    """The nearest memory of reads or writes, and by how much its durations differ from those of the logs."""

    memory: str | int
    difference: float


def nearest_memory(
    replays: Mapping[MemoryUse, Sequence[_Profile]], logs: Sequence[_Profile]
) -> dict[str, str | int | bool]:
    """Return the memory with the nearest durations, among that with about the same share of POSIX in MPI-IO's time.

    MPI-IO gathers the parts of an array with a halo, which is not in the time of POSIX. The share depends less than the
    durations on how fast the machine was in the runs of the logs.

    Args:
        replays: profiles of replays with each memory.
        logs: profiles of the program.

    Returns:
        `memory` of a description: of `read` and `write`, and `halo` if there is one.
    """
    verbs = [verb for verb in _VERBS if logs[0]["durations"][verb]]
    all_replays: dict[str, _ReplaysOfUse] = {}
    similar_replays: dict[str, _ReplaysOfUse] = {}
    for verb in verbs:
        all_replays[verb] = _replays_of_verb(replays, verb)
        similar_replays[verb] = _with_same_share(all_replays[verb], logs, verb)
    # Whether there is a halo is one answer for reads and writes, on which their shares of POSIX can agree.
    halos = {candidate.halo for candidate in replays}
    agreed_halos = halos
    for verb in verbs:
        agreed_halos = agreed_halos & {halo for halo, _ in similar_replays[verb]}
    if agreed_halos:
        halos = agreed_halos
    else:
        # Reads and writes contradict each other.
        similar_replays = all_replays

    # Of each halo the nearest memory; then the halo with the smaller sum of differences.
    choices_of_halo: dict[bool, dict[str, _NearestMemory]] = {}
    for halo in sorted(halos):
        choices_of_halo[halo] = {verb: _nearest(similar_replays[verb], halo, logs, verb) for verb in verbs}
    nearest_halo = min(choices_of_halo, key=lambda halo: _total_difference(choices_of_halo[halo]))
    memory: dict[str, str | int | bool] = {}
    for verb, choice in choices_of_halo[nearest_halo].items():
        memory[verb] = choice.memory
    if nearest_halo:
        memory["halo"] = True
    return memory


def _total_difference(choices: Mapping[str, _NearestMemory]) -> float:
    return sum(choice.difference for choice in choices.values())


# Halo, and memory of one verb.
_Use = tuple[bool, str | int]
_ReplaysOfUse = dict[_Use, list[_Profile]]


def _replays_of_verb(replays: Mapping[MemoryUse, Sequence[_Profile]], verb: str) -> dict[_Use, list[_Profile]]:
    """The replays by the memory of reads or of writes; several reads are tried with the same memory of writes."""
    grouped: dict[_Use, list[_Profile]] = {}
    for candidate, profiles in replays.items():
        grouped.setdefault((candidate.halo, candidate.of(verb)), []).extend(profiles)
    return grouped


def _with_same_share(replays: _ReplaysOfUse, logs: Sequence[_Profile], verb: str) -> _ReplaysOfUse:
    """The replays whose share of POSIX in the time of MPI-IO is that of the logs; all without MPI-IO."""
    share_of_logs = _median_share(logs, verb)
    differences: dict[_Use, float] = {}
    for use, profiles in replays.items():
        differences[use] = abs(_median_share(profiles, verb) - share_of_logs)
    largest = min(differences.values()) + _SAME_SHARE
    return {use: profiles for use, profiles in replays.items() if differences[use] <= largest}


def _median_share(profiles: Sequence[_Profile], verb: str) -> float:
    return float(median(profile["below"].get(verb, 1.0) for profile in profiles))


def _nearest(replays: Mapping[_Use, list[_Profile]], halo: bool, logs: Sequence[_Profile], verb: str) -> _NearestMemory:
    choices = []
    for (has_halo, memory), profiles in replays.items():
        if has_halo == halo:
            choices.append(_NearestMemory(memory, _difference(logs, profiles, verb)))
    return min(choices, key=lambda choice: choice.difference)


def _difference(logs: Sequence[_Profile], replays: Sequence[_Profile], verb: str) -> float:
    """Mean difference of the deciles of a transfer's duration (medians over the runs), relative to their mean.

    Sizes weigh by their seconds. Deciles tell more than the sum, in which the few transfers count most that had to wait
    for something else.
    """
    differences = []
    weights = []
    for size, seconds, _ in logs[0]["durations"][verb][:_COMPARED_SIZES]:
        deciles = _median_deciles(logs, verb, size)
        misses = np.abs(_median_deciles(replays, verb, size) - deciles)
        differences.append(float(misses.mean() / max(deciles.mean(), _SHORTEST_S)))
        weights.append(max(seconds, _SHORTEST_S))
    return float(np.average(differences, weights=weights))


def _median_deciles(profiles: Sequence[_Profile], verb: str, size: int) -> NDArray[np.float64]:
    """Deciles of the seconds of a transfer of one size; infinite if no run has one."""
    deciles_of_runs = []
    for profile in profiles:
        for timed_size, _, deciles in profile["durations"][verb]:
            if timed_size == size:
                deciles_of_runs.append(deciles)
    if not deciles_of_runs:
        return np.full(1, np.inf)
    return np.asarray(np.median(deciles_of_runs, axis=0))


def write_memory(file: Path, document: Mapping[str, Any], memory: Mapping[str, str | int | bool]) -> dict[str, Any]:
    """Write `memory` into a description, on its line or as a new one before `files`, and return the description.

    Raises:
        InputError: the file has a `memory` of several lines, or `files` does not begin a line.
    """
    members = ", ".join(f"{key}: {str(value).lower()}" for key, value in memory.items())
    line = f"memory: {{{members}}}\n"
    replaced = r"^memory:.*\n" if "memory" in document else r"^(?=files:)"
    text = file.read_text(encoding="utf-8")
    changed = re.sub(replaced, line, text, count=1, flags=re.MULTILINE)
    try:
        is_done = yaml.safe_load(changed) == {**yaml.safe_load(text), "memory": memory}
    except yaml.YAMLError:
        is_done = False
    if not is_done:
        raise InputError(f"{file}: cannot put `memory` on a line before `files`", hint=f"Write it: {line.strip()}")
    files.write_atomically(file, changed)
    return {**document, "memory": memory}
