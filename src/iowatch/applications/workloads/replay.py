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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from iowatch.applications.workloads.description import profile_log
from iowatch.benchmarks.suites import read_suite_file
from iowatch.benchmarks.workloads import Workload, default_ranks, read_description
from iowatch.core import InputError, IowatchError, MachineError, UsageError, files, settings
from iowatch.core.yamlfile import read_mapping
from iowatch.darshan import DarshanReader
from iowatch.site import exceeded_limits, load_system
from iowatch.site.stack import probe as stack_probe

_TIMEOUT_S = 3600
# Of a case that `add_workload` writes; people change the file.
_TIME_LIMIT_S, _REPEAT = 600, 3
# As in checks/tracing.py: memory for DXT and many files, one process writes the log.
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
        original = reader.call(profile_log, log, phases=len(document["phases"]))
        workload = Workload(document, original["ranks"])
        replay = replay_profile(reader, file, workload, directory, launcher, program)
    return Replay(original["ranks"], workload.phases, [*_compare(original, replay)])


def replay_profile(
    reader: DarshanReader, file: Path, workload: Workload, directory: Path, launcher: str, program: str | None
) -> dict[str, Any]:
    """The profile of one replay."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "replay.darshan")
        words = [*shlex.split(launcher), str(workload.ranks)]
        _run(file, workload.ranks, log, directory.resolve(), words, program)
        profile: dict[str, Any] = reader.call(
            profile_log, log, prepared=preparations(workload), phases=len(workload.phases)
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


def preparations(workload: Workload) -> dict[str, tuple[bool, int]]:
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
