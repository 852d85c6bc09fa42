"""Summaries of Darshan logs for pages: counters, hints, timeline, report. A log that cannot be read fails no build."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from iowatch import __version__, darshan
from iowatch.core import IowatchError, MissingExtraError
from iowatch.output.dashboard import data, shorten_text
from iowatch.store import RunRow

_COUNTERS = (
    "POSIX_OPENS", "POSIX_READS", "POSIX_WRITES", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN",
    "POSIX_FILE_NOT_ALIGNED",
    "MPIIO_COLL_OPENS", "MPIIO_INDEP_READS", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_COLL_WRITES",
    "MPIIO_BYTES_READ", "MPIIO_BYTES_WRITTEN", "H5D_READS", "H5D_WRITES", "PNETCDF_VAR_COLL_WRITES",
)  # fmt: skip
_MAX_NAME_CHARACTERS = 120
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CounterRow:
    """A counter of Darshan before and after; of one log both values are equal, None without the counter."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class TracedRun:
    """A run with one of its logs.

    Attributes:
        log: path of the artefact, which is named by its SHA-256.
        log_name: file name of the log as Darshan wrote it; empty if it is not shown.
    """

    run: RunRow
    log: Path
    log_name: str = ""

    @property
    def title(self) -> str:
        """Name of the run on the page of its session."""
        return f"{shorten_text(self.run.name, _MAX_NAME_CHARACTERS)}, run {self.run.id}"


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
    titles = [f"before: {before.title}", f"after: {after.title}"]
    try:
        with darshan.DarshanReader() as reader:
            trace_before = darshan.read_trace(before.log, reader)
            trace_after = darshan.read_trace(after.log, reader)
            timeline = _write_timeline(site, [before.log, after.log], titles, reader)
    except IowatchError:
        return None
    changes = [change.text for change in darshan.diff_traces(trace_before, trace_after).changes]
    return TraceDiffSummary(timeline, _counter_rows(trace_before, trace_after), changes)


def _counter_rows(before: darshan.Trace, after: darshan.Trace) -> list[CounterRow]:
    """Counters that at least one of the traces has."""
    rows: list[CounterRow] = []
    for name in _COUNTERS:
        row = CounterRow(name, before.counter(name), after.counter(name))
        if row.before is not None or row.after is not None:
            rows.append(row)
    return rows


def summarise_trace(
    site: data.SiteBuild, traced: TracedRun, reader: darshan.DarshanReader, *, timeline: bool, report: bool
) -> TraceSummary:
    """Summarise a log of a run, if requested with timeline and PyDarshan's full report."""
    log = traced.log
    try:
        trace = darshan.read_trace(log, reader)
    except IowatchError as error:
        return TraceSummary(traced.log_name, log.name, None, error.message)
    # Drawings take seconds, so the caller chooses for which logs.
    timeline_path = report_path = None
    if timeline:
        timeline_path = _write_timeline(site, [log], [traced.title], reader)
    if report:
        write = partial(darshan.write_pydarshan_report, [log], reader=reader, name=traced.title)
        report_path = _write_once(site, [log], [traced.title], "html", write)
    return TraceSummary(
        name=traced.log_name,
        log=log.name,
        trace=trace,
        hints=darshan.derive_hints(trace),
        counters=_counter_rows(trace, trace),
        timeline=timeline_path,
        report=report_path,
    )


def _write_timeline(
    site: data.SiteBuild, logs: list[Path], titles: list[str], reader: darshan.DarshanReader
) -> str | None:
    """Path of the timelines of logs side by side, one with each title; None if they cannot be drawn."""
    write = partial(darshan.write_timeline, logs, reader=reader, titles=titles)
    return _write_once(site, logs, titles, "svg", write)


@cache
def _report_missing_extra(message: str) -> None:
    """Say once in a build why pages have no drawings of traces."""
    _LOG.info("pages without drawings of Darshan traces: %s", message)


def _write_once(
    site: data.SiteBuild, logs: Sequence[Path], titles: Sequence[str], suffix: str, write: Callable[[Path], object]
) -> str | None:
    """Path of a drawing of logs, reused from the previous site if possible; None if it cannot be drawn.

    Args:
        suffix: `svg` or `html`.
        write: draws into a file.
    """
    # Equal names mean equal content: a digest of all that the drawing is made of.
    made_from = repr((__version__, [log.name for log in logs], titles))
    digest = hashlib.sha256(made_from.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = f"darshan/{logs[0].name[:40]}-{digest}.{suffix}"
    if site.writer.reuse(name):
        return name
    path = site.writer.target(name)
    try:
        write(path)
    except MissingExtraError as error:
        path.unlink(missing_ok=True)
        _report_missing_extra(error.message)
        return None
    except IowatchError:
        # A log without times is not drawn; half a drawing is not shown.
        path.unlink(missing_ok=True)
        return None
    return name
