"""A workload beside the log that it was made from: benchio runs it under Darshan, and both logs are counted."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.applications.workloads.profile import profile_log
from iowatch.benchmarks.workloads import Workload
from iowatch.core import InputError, MachineError, settings
from iowatch.darshan import DarshanReader
from iowatch.site.stack import probe as stack_probe

_TIMEOUT_S = 3600
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
        original, replay: values.
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

    def to_json(self) -> dict[str, Any]:
        """Return the row in the document of `iowatch workload check --json`."""
        return {
            "api": self.api,
            "name": self.name,
            "original": self.original,
            "replay": self.replay,
            "equal": self.is_equal,
            "compared": self.compared,
        }


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
        return {"ranks": self.ranks, "equal": self.is_equal, "rows": [row.to_json() for row in self.rows]}


@dataclass(frozen=True)
class Benchio:
    """How benchio is run.

    Attributes:
        directory: where it writes.
        launcher: starts MPI programs; the number of ranks is appended.
        program: benchio; None for the one on PATH, else the newest that a session built.
    """

    directory: Path
    launcher: str
    program: str | None = None


def check_replay(file: Path, document: Mapping[str, Any], log: Path, benchio: Benchio) -> Replay:
    """Run a workload under Darshan on the ranks of a log, and compare.

    Args:
        file, document: the description.
        log: of the application.
        benchio: how it is run.

    Raises:
        InputError: the log is unreadable, or the workload failed. MachineError: a program or library is missing.
    """
    with DarshanReader() as reader:
        original = reader.call(profile_log, log, phases=len(document["phases"]))
        workload = Workload(document, original["ranks"])
        replay = replay_profile(reader, file, workload, benchio)
    return Replay(original["ranks"], workload.phases, list(_compare(original, replay)))


def replay_profile(reader: DarshanReader, file: Path, workload: Workload, benchio: Benchio) -> dict[str, Any]:
    """The profile of one replay."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "replay.darshan")
        _run_traced(file, workload.ranks, log, benchio)
        profile: dict[str, Any] = reader.call(
            profile_log, log, prepared=preparations(workload), phases=len(workload.phases)
        )
        return profile


def _compare(original: Mapping[str, Any], replay: Mapping[str, Any]) -> Iterator[ReplayRow]:
    """Yield the figures of two profiles."""
    for api in ("mpiio", "posix"):
        original_layer = dict(original["layers"][api])
        replay_layer = dict(replay["layers"][api])
        original_sizes = original_layer.pop("sizes", {})
        replay_sizes = replay_layer.pop("sizes", {})
        for name in sorted({*original_layer, *replay_layer}):
            yield ReplayRow(api, name, original_layer.get(name, 0), replay_layer.get(name, 0))
        for verb in ("read", "write"):
            sizes = [original_sizes.get(verb, []), replay_sizes.get(verb, [])]
            if any(sizes):
                yield ReplayRow(api, f"sizes {verb}", *sizes)
        matched = sum((Counter(original["files"][api]) & Counter(replay["files"][api])).values())
        if original["files"][api] or replay["files"][api]:
            files = max(len(original["files"][api]), len(replay["files"][api]))
            yield ReplayRow(api, "files with the same operations and bytes", files, matched)
    # Data sieving is that of MPI; bytes that may be accesses of the application are compared.
    for verb in ("read", "written"):
        original_bytes = original["bytes_beyond"].get(verb, 0)
        replay_bytes = replay["bytes_beyond"].get(verb, 0)
        if original_bytes or replay_bytes:
            may_be_direct = original["unassigned_bytes"].get(verb, 0) > 0
            name = f"bytes {verb} by POSIX beyond MPI-IO"
            yield ReplayRow("mpiio", name, original_bytes, replay_bytes, compared=may_be_direct)
    phase_times = zip(original["phases"], replay["phases"], strict=False)
    for number, (original_s, replay_s) in enumerate(phase_times, start=1):
        yield ReplayRow("", f"I/O s of phase {number}", original_s, replay_s, compared=False)


def preparations(workload: Workload) -> dict[str, tuple[bool, int]]:
    """Per file: whether benchio writes it before the first phase, and how many reading phases come after it exists.

    Before each phase that reads, benchio opens every file that exists to see whether it is in the page cache.
    """
    # The phase in which each file is created; -1 for inputs, which benchio writes before the first phase.
    creating_phase: dict[str, int] = {}
    for name, file in workload.document["files"].items():
        if file.get("input"):
            creating_phase[name] = -1
    reading_phases = []
    for phase in range(len(workload.phases)):
        has_reads = False
        for rank in range(workload.ranks):
            for operation in workload.operations(phase, rank):
                has_reads |= operation.verb == "read" and operation.size > 0
                if operation.verb == "create":
                    # What is a file of MPI-IO, too, has the name of that one.
                    file = workload.document["files"][operation.file]
                    creating_phase.setdefault(file.get("same_as", operation.file), phase)
        if has_reads:
            reading_phases.append(phase)
    prepared = {}
    for name, created in creating_phase.items():
        inspections = sum(phase > created for phase in reading_phases)
        prepared[name] = (created < 0, inspections)
    return prepared


def _run_traced(file: Path, ranks: int, log: Path, benchio: Benchio) -> None:
    """Run a workload once with Darshan, which writes the log.

    Raises:
        InputError: benchio cannot run it. MachineError: a program or library is missing.
    """
    library = _darshan_library()
    directory = benchio.directory.resolve()
    configuration = log.with_name("configuration")
    configuration.write_text(_CONFIGURATION.format(directory=directory), encoding="utf-8")
    # Only benchio gets the library: it would break the launcher.
    command = [
        *shlex.split(benchio.launcher),
        str(ranks),
        "env",
        "DXT_ENABLE_IO_TRACE=1",
        f"DARSHAN_LOGFILE={log}",
        f"DARSHAN_CONFIG_PATH={configuration}",
        f"LD_PRELOAD={library}",
        _find_benchio(benchio.program),
        f"--workload={file.resolve()}",
        "--repeat=1",
        f"--dir={directory}",
    ]
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise MachineError(f"{command[0]}: {error.strerror or error}", hint="Name another with --launcher.") from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"benchio did not end within {_TIMEOUT_S} s") from error
    if completed.returncode:
        reason = _failure_reason(completed.stderr, completed.returncode)
        raise InputError(f"{file}: benchio cannot run it on {ranks} ranks: {reason}")
    if not log.is_file():
        raise MachineError(f"Darshan left no log ({library})", hint="Is it built for the MPI of benchio?")


def _darshan_library() -> str:
    """The library that `darshan-config` on PATH belongs to."""
    library = None
    config = shutil.which("darshan-config")
    if config is not None:
        flags = stack_probe.query_tool(config, "--dyn-ld-flags")
        directories = flags.partition("-L")[2].split()
        if directories:
            library = stack_probe.find_library(directories[0], "darshan")
    if library is None:
        raise MachineError(
            "darshan-config is not on PATH, or its library is missing", hint="`iowatch doctor` names the packages."
        )
    return library


def _failure_reason(stderr: str, exit_code: int) -> str:
    """The first message of benchio, else the first line with a word."""
    lines = [line for line in stderr.splitlines() if re.search(r"\w", line)]
    for line in lines:
        if line.startswith("benchio:"):
            return line
    return lines[0] if lines else f"exit {exit_code}"


def _find_benchio(program: str | None) -> str:
    executable = program or shutil.which("benchio") or _newest_built_benchio()
    if executable is None or not os.access(executable, os.X_OK):
        hint = "Name it with --benchio, or run a session once (`iowatch run --suite tiny`), which builds it."
        raise MachineError(f"{executable or 'benchio'}: no such program", hint=hint)
    return executable


def _newest_built_benchio() -> str | None:
    built = list((settings.var_directory() / "build" / "benchio").glob("*/*/benchio"))
    if not built:
        return None
    return str(max(built, key=lambda path: path.stat().st_mtime).resolve())
