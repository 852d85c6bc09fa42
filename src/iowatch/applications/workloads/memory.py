"""The memory that the transfers of an application use, found by the durations in its logs.

    replays with each kind of memory ──> profiles ──> those with the share of POSIX of the logs ──> nearest durations

No log says which memory a transfer used; where files are in the page cache, it costs as much as the file.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from iowatch.applications.workloads.description import profile_log
from iowatch.applications.workloads.replay import replay_profile
from iowatch.benchmarks.workloads import Workload, format_description
from iowatch.core import InputError, files
from iowatch.darshan import DarshanReader

# Kinds of memory that transfers may use, and replays with each; docs/workloads.md#description.
_MEMORY_OF_WRITES, _FITTED = ("rotating", "reused"), 5
_MEMORY = (*_MEMORY_OF_WRITES, "new")
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
# Whether parts of arrays have a halo, and the memory of reads.
_Kind = tuple[bool, str | int]
# Of one profile and verb: (size, seconds of all transfers, deciles of the seconds of one).
_Durations = Sequence[tuple[int, float, Sequence[float]]]


def fit_memory(
    file: Path, document: Mapping[str, Any], logs: Sequence[Path], directory: Path, launcher: str, program: str | None
) -> dict[str, str | int | bool]:
    """Return the memory that transfers use (`memory` of a description) with which these take as long as in the logs.

    Reads and writes are chosen apart, by five replays with each kind. Memory that is kept is that of a half, a third,
    a quarter or an eighth of what a rank reads. Where parts of arrays are moved, all of it is tried with a halo, too.
    Logs of several runs of the program count by their median; they must be of this machine.

    Raises:
        InputError: a log has no times (DXT), or other operations than the first. And see `check_replay`.
    """
    with DarshanReader() as reader, tempfile.TemporaryDirectory() as place:
        originals = _read_profiles(reader, logs)
        ranks, kinds = originals[0]["ranks"], _kinds(document, originals[0])
        tried: dict[_Kind, list[_Profile]] = {kind: [] for kind in kinds}
        for turn in range(_FITTED):
            # In another order each time, and nothing left to write: what a replay leaves behind delays the next one.
            for halo, used in (kinds[at] for at in np.random.default_rng(turn).permutation(len(kinds))):
                changed = {**document, "memory": {"read": used, "write": _written(used), "halo": halo}}
                described = Path(place, file.name)
                described.write_text(format_description(changed), encoding="utf-8")
                # Of this file system only: with all of them, one that does not answer any more would block it.
                subprocess.run(["sync", "-f", directory], check=False)
                replay = replay_profile(reader, described, Workload(changed, ranks), directory, launcher, program)
                tried[halo, used].append(replay)
    return _nearest_memory(tried, originals)


def _read_profiles(reader: DarshanReader, logs: Sequence[Path]) -> list[_Profile]:
    """The profiles of runs of one program."""
    found: list[_Profile] = []
    for log in logs:
        one = reader.call(profile_log, log)
        if one["durations"] is None:
            raise InputError(f"{log}: no times of accesses", hint="Trace the program with DXT_ENABLE_IO_TRACE=1.")
        if found and (one["ranks"], one["layers"]) != (found[0]["ranks"], found[0]["layers"]):
            raise InputError(f"{log}: other operations than {logs[0]}", hint="Give logs of the same program.")
        found.append(one)
    return found


def _kinds(document: Mapping[str, Any], original: _Profile) -> list[_Kind]:
    """What is tried for a program."""
    read = sum(layer.get("bytes read", 0) for layer in original["layers"].values()) // original["ranks"]
    kept = sorted({read // turns for turns in _TURNS} - {0})
    halos = (False, True) if any(_moves_parts(phase["actions"]) for phase in document["phases"]) else (False,)
    return [*product(halos, (*_MEMORY, *kept) if original["durations"]["read"] else _MEMORY_OF_WRITES)]


def _written(used: str | int) -> str:
    """The memory of writes that is tried together with that of reads."""
    return str(used) if used in _MEMORY_OF_WRITES else "rotating"


def _nearest_memory(tried: Mapping[_Kind, Sequence[_Profile]], logs: Sequence[_Profile]) -> dict[str, str | int | bool]:
    """The kinds with the nearest durations, among those with about the same share of POSIX in the time of MPI-IO.

    MPI-IO gathers the parts of an array with a halo, which is not in the time of POSIX. The share depends less than the
    durations on how fast the machine was in the runs of the logs.
    """
    verbs = [verb for verb in _VERBS if logs[0]["durations"][verb]]
    groups: dict[str, dict[_Kind, list[_Profile]]] = {verb: defaultdict(list) for verb in verbs}
    for (halo, used), replays in tried.items():
        for verb in verbs:
            groups[verb][halo, used if verb == "read" else _written(used)] += replays
    near = {verb: _with_same_share(kinds, logs, verb) for verb, kinds in groups.items()}
    halos = {halo for halo, _ in tried if all(halo in {own for own, _ in kinds} for kinds in near.values())}
    if not halos:  # reads and writes contradict each other
        near, halos = groups, {halo for halo, _ in tried}

    def nearest(halo: bool, verb: str) -> tuple[float, str | int]:
        rated = [(_miss(logs, groups[verb][kind], verb), kind[1]) for kind in near[verb] if kind[0] == halo]
        return min(rated, key=itemgetter(0))

    found = {halo: {verb: nearest(halo, verb) for verb in verbs} for halo in sorted(halos)}
    halo = min(found, key=lambda one: sum(missed for missed, _ in found[one].values()))
    return {**{verb: used for verb, (_, used) in found[halo].items()}, **({"halo": True} if halo else {})}


def _with_same_share(
    kinds: Mapping[_Kind, list[_Profile]], logs: Sequence[_Profile], verb: str
) -> dict[_Kind, list[_Profile]]:
    """The kinds whose share of POSIX in the time of MPI-IO is that of the logs; all without MPI-IO."""

    def share(profiles: Sequence[_Profile]) -> float:
        return float(median(one["below"].get(verb, 1.0) for one in profiles))

    differences = {kind: abs(share(replays) - share(logs)) for kind, replays in kinds.items()}
    most = min(differences.values()) + _SAME_SHARE
    return {kind: replays for kind, replays in kinds.items() if differences[kind] <= most}


def _miss(logs: Sequence[_Profile], replays: Sequence[_Profile], verb: str) -> float:
    """Mean difference of the deciles of a transfer's duration (medians over the runs), relative to their mean.

    Sizes weigh by their seconds. Deciles tell more than the sum, in which the few transfers count most that had to wait
    for something else.
    """

    def deciles(runs: Sequence[_Profile], size: int) -> NDArray[np.float64]:
        own = [one for run in runs for known, _, one in run["durations"][verb] if known == size]
        return np.asarray(np.median(own, axis=0)) if own else np.full(1, np.inf)

    durations: _Durations = logs[0]["durations"][verb][:_COMPARED_SIZES]
    weights = {size: max(seconds, _SHORTEST_S) for size, seconds, _ in durations}
    found = [
        float(np.abs(deciles(replays, size) - wanted).mean() / max(wanted.mean(), _SHORTEST_S))
        for size in weights
        for wanted in [deciles(logs, size)]
    ]
    return float(np.average(found, weights=[*weights.values()]))


def _moves_parts(actions: Iterable[Any]) -> bool:
    """Whether an action moves a part of an array."""
    return any(
        "start" in action or _moves_parts(action.get("actions", ()))
        for action in actions
        if isinstance(action, Mapping)
    )


def write_memory(file: Path, document: Mapping[str, Any], memory: Mapping[str, str | int | bool]) -> dict[str, Any]:
    """Write `memory` into a description, on its line or as a new one before `files`, and return the description.

    Raises:
        InputError: the file has a `memory` of several lines, or `files` does not begin a line.
    """
    text = file.read_text(encoding="utf-8")
    line = f"memory: {{{', '.join(f'{key}: {str(value).lower()}' for key, value in memory.items())}}}\n"
    place = r"^memory:.*\n" if "memory" in document else r"^(?=files:)"
    changed = re.sub(place, line, text, count=1, flags=re.MULTILINE)
    try:
        is_done = yaml.safe_load(changed) == {**yaml.safe_load(text), "memory": memory}
    except yaml.YAMLError:
        is_done = False
    if not is_done:
        raise InputError(f"{file}: cannot put `memory` on a line before `files`", hint=f"Write it: {line.strip()}")
    files.write_atomically(file, changed)
    return {**document, "memory": memory}
