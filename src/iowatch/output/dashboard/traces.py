"""Summaries of Darshan logs for pages: counters, hints, timeline, report. A log that cannot be read fails no build."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from iowatch import __version__, darshan
from iowatch.core import IowatchError
from iowatch.output.dashboard import data, shorten_text
from iowatch.store import RunRow

_COUNTERS = (
    "POSIX_OPENS", "POSIX_READS", "POSIX_WRITES", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN",
    "POSIX_FILE_NOT_ALIGNED",
    "MPIIO_COLL_OPENS", "MPIIO_INDEP_READS", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_COLL_WRITES",
    "MPIIO_BYTES_READ", "MPIIO_BYTES_WRITTEN", "H5D_READS", "H5D_WRITES", "PNETCDF_VAR_COLL_WRITES",
)  # fmt: skip


# Name, value before (or the only one) and after.
CounterRow = tuple[str, float | None, float | None]
# A run and the path of its log.
TracedRun = tuple[RunRow, Path]
_MAX_NAME_CHARACTERS = 120


@dataclass(frozen=True)
class TraceDiffSummary:
    """Counters before and after; `timeline` is the path of the drawing, None if the logs contain no times."""

    timeline: str | None
    counters: Sequence[CounterRow]
    changes: Sequence[str]


@dataclass(frozen=True)
class TraceSummary:
    """One log on the page of a session.

    Attributes:
        name: file name of the log; log: name of the artefact (its SHA-256).
        trace: None if the log cannot be read; fault: the reason.
        timeline, report: paths in the site, None if they were not drawn.
    """

    name: str
    log: str
    trace: darshan.Trace | None
    fault: str | None = None
    hints: Sequence[darshan.Hint] = ()
    counters: Sequence[CounterRow] = ()
    timeline: str | None = None
    report: str | None = None


def compare_run_traces(site: data.SiteBuild, before: TracedRun, after: TracedRun) -> TraceDiffSummary | None:
    """Compare the logs of two runs: timelines side by side and counters; None if a log is not readable."""
    titles = [f"{word}: {_run_title(run)}" for word, (run, _) in (("before", before), ("after", after))]
    logs = [log for _, log in (before, after)]
    try:
        with darshan.DarshanReader() as reader:
            left, right = (darshan.read_trace(log, reader) for log in logs)
            drawn = _write_timeline(site, logs, titles, reader)
    except IowatchError:
        return None
    changes = [change.text for change in darshan.diff_traces(left, right).changes]
    return TraceDiffSummary(drawn, _counter_rows(left, right), changes)


def _counter_rows(left: darshan.Trace, right: darshan.Trace) -> list[CounterRow]:
    """Counters that at least one of the traces has, with both values."""
    rows = [(name, left.counter(name), right.counter(name)) for name in _COUNTERS]
    return [row for row in rows if row[1] is not None or row[2] is not None]


def summarise_trace(
    site: data.SiteBuild, run: RunRow, name: str, log: Path, reader: darshan.DarshanReader, timeline: bool, report: bool
) -> TraceSummary:
    """Summarise a log of a run, if asked with timeline and PyDarshan's full report."""
    try:
        trace = darshan.read_trace(log, reader)
    except IowatchError as error:
        return TraceSummary(name, log.name, None, error.message)
    title = _run_title(run)
    write = partial(darshan.write_pydarshan_report, [log], reader=reader, name=title)
    drawing = _write_timeline(site, [log], [title], reader) if timeline else None
    page = _write_once(site, [log], [title], "html", write) if report else None
    hints, counters = darshan.derive_hints(trace), _counter_rows(trace, trace)
    return TraceSummary(name, log.name, trace, None, hints, counters, drawing, page)


def _run_title(run: RunRow) -> str:
    """Name of the run on the page of its session."""
    return f"{shorten_text(run.name, _MAX_NAME_CHARACTERS)}, run {run.id}"


def _write_timeline(
    site: data.SiteBuild, logs: list[Path], titles: list[str], reader: darshan.DarshanReader
) -> str | None:
    write = partial(darshan.write_timeline, logs, reader=reader, titles=titles)
    return _write_once(site, logs, titles, "svg", write)


def _write_once(
    site: data.SiteBuild, logs: Sequence[Path], titles: Sequence[str], kind: str, write: Callable[[Path], object]
) -> str | None:
    """Path of a drawing of logs, reused from the previous site if possible; None if it cannot be drawn."""
    made_from = repr((__version__, [log.name for log in logs], titles))
    digest = hashlib.sha256(made_from.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = f"darshan/{logs[0].name[:40]}-{digest}.{kind}"
    if not site.writer.reuse(name):
        path = site.writer.target(name)
        try:
            write(path)
        except IowatchError:
            path.unlink(missing_ok=True)
            return None
    return name
