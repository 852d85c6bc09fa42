"""A Darshan log as an output: its chosen counters as results. The log is read in a process of its own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from iowatch.darshan import Trace, read_trace
from iowatch.darshan.results import results
from iowatch.errors import InputError
from iowatch.model import Output, Scalar, Status
from iowatch.parsers.draft import Evidence
from iowatch.parsers.lines import Source

_STATUS: dict[str, Status] = {"ok": "ok", "partial": "incomplete", "unreadable": "failed"}


def _read(source: Source) -> Trace:
    """The library wants a file: what is not one is put into one."""
    try:
        name = getattr(source, "name", None)
        if isinstance(name, str | Path) and Path(name).is_file():
            return read_trace(Path(name))
        data = source if isinstance(source, str | bytes) else source.read()
        with TemporaryDirectory() as directory:
            path = Path(directory) / "log.darshan"
            path.write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
            return read_trace(path)
    except InputError as error:
        return Trace("unreadable", error.message)


def parse(source: Source, evidence: Evidence) -> Output:
    """A log's status and chosen counters.

    Args:
        source: the log.
        evidence: `ranks` that were asked for: another number in the log is a failure.
    """
    trace = _read(source)
    status, reason = _STATUS[trace.status], trace.reason
    ranks = trace.job.get("ranks")
    if evidence.ranks is not None and ranks is not None and ranks != evidence.ranks:
        status, reason = "failed", f"the log is of {ranks} ranks, {evidence.ranks} were asked for"
    case: dict[str, Scalar] = {} if ranks is None else {"ranks": ranks}
    facts: dict[str, Any] = {"job": dict(trace.job), "missing": dict(trace.missing)}
    return Output("darshan", trace.job.get("darshan_version"), status, reason, results(trace, case), facts)
