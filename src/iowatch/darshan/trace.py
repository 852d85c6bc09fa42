"""The record of one Darshan log (`Trace`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from iowatch.core import InputError, artefacts
from iowatch.darshan.summary import summarise_log
from iowatch.darshan.targets import FileSystemTargets, read_targets
from iowatch.darshan.worker import DarshanReader

TraceStatus = Literal["ok", "partial", "unreadable"]


@dataclass(frozen=True)
class Trace:
    """The summary of one log.

    Attributes:
        status: `ok`; `partial` (parts are missing, see `reason`); `unreadable` (all of it).
        reason: None if `ok`.
        job: `ranks`, `exe`, `start`, `end` (UTC), `run_time_s`, `darshan_version`, `log_version`, `jobid`,
            `uid`, `metadata`.
        modules: module to Darshan's counter names to values, combined over records (docs/darshan.md, "Totals").
        derived: figures derived from them (docs/darshan.md, "Derived figures").
        files: one row per file, in descending order of time.
        missing: part of the log (module, `names`) to the cause.
    """

    status: TraceStatus
    reason: str | None
    job: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    derived: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Mapping[str, Any]] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def counter(self, name: str) -> float | None:
        """Return a counter of any module by Darshan's name; None if the log has not counted it (absent, or -1)."""
        for counters in self.modules.values():
            if name in counters:
                value = counters[name]
                return None if value == -1 else value
        return None

    def figure(self, name: str) -> Any:
        """Return a value by name: counter (upper case), derived figure, or field of the job; None if absent."""
        if name.isupper():
            return self.counter(name)
        if name in self.derived:
            return self.derived[name]
        return self.job.get(name)

    def estimate(self, module: str, name: str) -> Any:
        """Return Darshan's own estimate for a module (`bandwidth_mib_per_s`, `imbalance`, …); None if absent."""
        return self.derived["performance"].get(module, {}).get(name)

    @property
    def targets(self) -> list[FileSystemTargets]:
        """What the files show about the targets of each file system on Lustre; empty if the log has none."""
        return read_targets(self.derived)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch darshan LOG --json`."""
        return asdict(self)


def read_trace(path: Path, reader: DarshanReader | None = None) -> Trace:
    """Summarise one log.

    Args:
        path: the log.
        reader: a running reader to use; None starts one for this log (about 0.4 s).

    Raises:
        InputError: the log is unreadable.
    """
    if reader is None:
        with DarshanReader() as new_reader:
            return read_trace(path, new_reader)
    return Trace(**reader.call(summarise_log, path))


def read_first_kept_trace(digests: Iterable[str], reader: DarshanReader) -> Trace | None:
    """Return the trace of the first log of a run that is still stored; None if there is none or it is incomplete.

    A program that is started several times has several equivalent logs.

    Args:
        digests: SHA-256 of the logs of the run.
    """
    for digest in digests:
        path = artefacts.artefact_path(digest)
        if path.is_file():
            return _read_complete_trace(path, reader)
    return None


def _read_complete_trace(path: Path, reader: DarshanReader) -> Trace | None:
    with contextlib.suppress(InputError):
        trace = read_trace(path, reader)
        if trace.status == "ok":
            return trace
    return None
