"""Workloads of a site: compared with the log that one was made from, and put into the nightly suite.

benchio runs a workload under Darshan, and both logs are counted.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from iowatch.benchmarks.suites import read_suite_file
from iowatch.benchmarks.workloads import Workload, default_ranks, format_description, read_description
from iowatch.core import InputError, IowatchError, MachineError, UsageError, files, settings
from iowatch.core.yamlfile import read_mapping
from iowatch.darshan import DarshanReader
from iowatch.site import exceeded_limits, load_system, stack_probe

_TIMEOUT_S = 3600
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
# Of a case that `add_workload` writes; people change the file.
_TIME_LIMIT_S, _REPEAT = 600, 3
# As in reframe_tests/mixins/darshan.py: memory for DXT and many files, one process writes the log.
_CONFIGURATION = """\
MODMEM 64
NAMEMEM 4
MAX_RECORDS 8192 POSIX,MPI-IO,STDIO
LOGHINTS romio_no_indep_rw=true;cb_nodes=1
NAME_INCLUDE ^{directory} *
"""


@dataclass(frozen=True)
class ReplayRow:
    """One figure of the application and of its replay.

    Attributes:
        api: `mpiio` or `posix`; empty for times.
        name: what was counted; `size read`, `size write` for (size in bytes, number) of the most frequent sizes.
        compared: whether a difference is one of the workload; times differ from run to run.
    """

    api: str
    name: str
    original: Any
    replay: Any
    compared: bool = True

    @property
    def is_equal(self) -> bool:
        """Whether both are the same, or not compared."""
        return not self.compared or bool(self.original == self.replay)


@dataclass(frozen=True)
class Replay:
    """All figures, those of MPI-IO first; `phases` are the names of the description's."""

    ranks: int
    phases: Sequence[str]
    rows: Sequence[ReplayRow]

    @property
    def is_equal(self) -> bool:
        """Whether the replay does what the application did."""
        return all(row.is_equal for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch workload check --json`."""
        rows = [{"api": r.api, "name": r.name, "original": r.original, "replay": r.replay, "equal": r.is_equal,
                 "compared": r.compared} for r in self.rows]  # fmt: skip
        return {"ranks": self.ranks, "equal": self.is_equal, "rows": rows}


def check_replay(
    file: Path, document: Mapping[str, Any], log: Path, directory: Path, launcher: str, program: str | None
) -> Replay:
    """Run a workload under Darshan on the ranks of a log, and compare.

    Args:
        file, document: the description.
        directory: where benchio writes.
        launcher: starts MPI programs; the number of ranks is appended.
        program: benchio; None for the one on PATH, else the newest that a session built.

    Raises:
        InputError: the log is unreadable, or the workload failed. MachineError: a program or library is missing.
    """
    with DarshanReader() as reader:
        original = reader.request("profile", log, phases=len(document["phases"]))
        workload = Workload(document, original["ranks"])
        replay = _replay(reader, file, workload, directory, launcher, program)
    return Replay(original["ranks"], workload.phases, [*_compare(original, replay)])


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
                replay = _replay(reader, described, Workload(changed, ranks), directory, launcher, program)
                tried[halo, used].append(replay)
    return _nearest_memory(tried, originals)


_Profile = Mapping[str, Any]
# Whether parts of arrays have a halo, and the memory of reads.
_Kind = tuple[bool, str | int]
# Of one profile and verb: (size, seconds of all transfers, deciles of the seconds of one).
_Durations = Sequence[tuple[int, float, Sequence[float]]]


def _read_profiles(reader: DarshanReader, logs: Sequence[Path]) -> list[_Profile]:
    """The profiles of runs of one program."""
    found: list[_Profile] = []
    for log in logs:
        one = reader.request("profile", log)
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


def _replay(
    reader: DarshanReader, file: Path, workload: Workload, directory: Path, launcher: str, program: str | None
) -> dict[str, Any]:
    """The profile of one replay."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "replay.darshan")
        words = [*shlex.split(launcher), str(workload.ranks)]
        _run(file, workload.ranks, log, directory.resolve(), words, program)
        profile: dict[str, Any] = reader.request(
            "profile", log, prepared=_preparations(workload), phases=len(workload.phases)
        )
        return profile


def _compare(original: Mapping[str, Any], replay: Mapping[str, Any]) -> Iterator[ReplayRow]:
    for api in ("mpiio", "posix"):
        sides = [dict(side["layers"][api]) for side in (original, replay)]
        sizes = [side.pop("sizes", {}) for side in sides]
        for name in sorted({*sides[0], *sides[1]}):
            yield ReplayRow(api, name, sides[0].get(name, 0), sides[1].get(name, 0))
        for verb in ("read", "write"):
            both = [side.get(verb, []) for side in sizes]
            if any(both):
                yield ReplayRow(api, f"sizes {verb}", *both)
    for number, pair in enumerate(zip(original["phases"], replay["phases"], strict=False), start=1):
        yield ReplayRow("", f"I/O s of phase {number}", *pair, compared=False)


def _preparations(workload: Workload) -> dict[str, tuple[bool, int]]:
    """Per file: whether benchio writes it before the first phase, and how many reading phases come after it exists.

    Before each phase that reads, benchio opens every file that exists to see whether it is in the page cache.
    """
    created: dict[str, int] = {name: -1 for name, file in workload.document["files"].items() if file.get("input")}
    reading = []
    for phase in range(len(workload.phases)):
        operations = [one for rank in range(workload.ranks) for one in workload.operations(phase, rank)]
        if any(one.verb == "read" and one.size for one in operations):
            reading.append(phase)
        for one in operations:
            if one.verb == "create":
                created.setdefault(one.file, phase)
    return {name: (first < 0, sum(phase > first for phase in reading)) for name, first in created.items()}


def _run(file: Path, ranks: int, log: Path, directory: Path, launcher: Sequence[str], program: str | None) -> None:
    config = shutil.which("darshan-config")
    libdir = stack_probe.query_tool(config, "--dyn-ld-flags").partition("-L")[2].split()[:1] if config else []
    library = stack_probe.find_library(libdir[0], "darshan") if libdir else None
    if library is None:
        raise MachineError(
            "darshan-config is not on PATH, or its library is missing", hint="`iowatch doctor` names the packages."
        )
    configuration = log.with_name("configuration")
    configuration.write_text(_CONFIGURATION.format(directory=directory), encoding="utf-8")
    settings_of_run = {
        "DXT_ENABLE_IO_TRACE": "1",
        "DARSHAN_LOGFILE": str(log),
        "DARSHAN_CONFIG_PATH": str(configuration),
        "LD_PRELOAD": library,
    }
    words = [f"{name}={value}" for name, value in settings_of_run.items()]
    replay = [_find_benchio(program), f"--workload={file.resolve()}", "--repeat=1", f"--dir={directory}"]
    try:
        done = subprocess.run(
            [*launcher, "env", *words, *replay],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise MachineError(f"{launcher[0]}: {error.strerror or error}", hint="Name another with --launcher.") from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"benchio did not end within {_TIMEOUT_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if re.search(r"\w", line)] or [f"exit {done.returncode}"]
        reason = next((line for line in lines if line.startswith("benchio:")), lines[0])
        raise InputError(f"{file}: benchio cannot run it on {ranks} ranks: {reason}")
    if not log.is_file():
        raise MachineError(f"Darshan left no log ({library})", hint="Is it built for the MPI of benchio?")


def _find_benchio(program: str | None) -> str:
    built = sorted(
        (settings.var_directory() / "build" / "benchio").glob("*/*/benchio"), key=lambda path: path.stat().st_mtime
    )
    found = program or shutil.which("benchio") or (str(built[-1].resolve()) if built else None)
    if found is None or not os.access(found, os.X_OK):
        hint = "Name it with --benchio, or run a session once (`iowatch run --suite tiny`), which builds it."
        raise MachineError(f"{found or 'benchio'}: no such program", hint=hint)
    return found


def add_workload(file: Path, system: str, suite: str, ranks: int | None, nodes: int) -> list[Path]:
    """Put a workload into a suite of the site, for one system.

    Args:
        file: the description.
        suite: for example `nightly`; the file `<suite>+<workload>.yaml` adds to it.
        ranks: None for those that it was made from.

    Returns:
        The files written, or changed.

    Raises:
        UsageError: unknown system, the workload is there already, or it exceeds the system's limits.
        InputError: an invalid description.
    """
    document, text = read_description(file), file.read_text(encoding="utf-8")
    name, machine = str(document["name"]), load_system(system)
    ranks = ranks or default_ranks(document)
    described, added = settings.site_file("workload", name), settings.site_file("suite", "benchio", f"{suite}+{name}")
    if any(path.exists() for path in settings.all_files("workload", name)[1:]):
        raise UsageError(f"'{name}' is a workload of iowatch", hint="Change `name` in the description.")
    if described.exists() and described.read_text(encoding="utf-8") != text:
        raise UsageError(f"{described} is another workload of this name", hint="Change `name` in the description.")
    entry = {"workload": name, "ranks": ranks, "nodes": nodes, "repeat": _REPEAT, "cache": "drop"}
    systems = [*read_mapping(added).get("systems", [])] if added.exists() else []
    if system in systems:
        raise UsageError(f"{added}: {system} has this workload already")
    content = {"format": 1, "summary": f"workload {name} on {ranks} ranks", "may_differ": ["cache"],
               "systems": [*systems, system], "time_limit": _TIME_LIMIT_S, "matrix": [entry]}  # fmt: skip
    before = [(path, path.read_text(encoding="utf-8") if path.exists() else None) for path in (described, added)]
    files.write_atomically(described, text)
    files.write_atomically(added, yaml.safe_dump(content, sort_keys=False))
    try:
        reasons = [reason for case in read_suite_file(added) for reason in exceeded_limits(case, machine.limits)]
        if reasons:
            raise UsageError(
                f"{system} cannot run {name}: {'; '.join(reasons)}", hint="--ranks and --nodes change its size."
            )
    except IowatchError:
        _restore(before)
        raise
    return [described, added]


def _restore(before: Sequence[tuple[Path, str | None]]) -> None:
    for path, text in before:
        if text is None:
            path.unlink()
        else:
            files.write_atomically(path, text)
