"""Darshan's logs in the site: timelines, counters, full reports. Nothing here fails a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iowatch.darshan import Reader, Trace, diff, read_trace
from iowatch.darshan.hints import hints
from iowatch.darshan.report import write_report
from iowatch.darshan.timeline import write_timeline
from iowatch.dashboard.context import Site
from iowatch.dashboard.render import brief
from iowatch.errors import IowatchError
from iowatch.store import RunRow

_COUNTERS = (
    "POSIX_OPENS", "POSIX_READS", "POSIX_WRITES", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN",
    "POSIX_FILE_NOT_ALIGNED",
    "MPIIO_COLL_OPENS", "MPIIO_INDEP_READS", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_COLL_WRITES",
    "MPIIO_BYTES_READ", "MPIIO_BYTES_WRITTEN", "H5D_READS", "H5D_WRITES", "PNETCDF_VAR_COLL_WRITES",
)  # fmt: skip


# A run and the log that it left.
Traced = tuple[RunRow, Path]
_LONGEST_NAME = 120


def before_after(site: Site, before: Traced, after: Traced) -> dict[str, Any] | None:
    """Timelines side by side and the counters of both; None where a log is unreadable."""
    titles = [f"{word}: {_title(run)}" for word, (run, _) in (("before", before), ("after", after))]
    logs = [log for _, log in (before, after)]
    try:
        with Reader() as reader:
            left, right = (read_trace(log, reader) for log in logs)
            drawn = timeline(site, f"darshan/{before[0].id}-{after[0].id}.svg", logs, titles, reader)
    except IowatchError:
        return None
    return {
        "timeline": drawn,
        "counters": counters(left, right),
        "changes": [change.text for change in diff.compare(left, right).changes],
    }


def counters(left: Trace, right: Trace) -> list[tuple[str, float | None, float | None]]:
    """Counters that one of them has, with both values."""
    rows = [(name, left.counter(name), right.counter(name)) for name in _COUNTERS]
    return [row for row in rows if row[1] is not None or row[2] is not None]


def timeline(site: Site, name: str, logs: list[Path], titles: list[str], reader: Reader) -> str | None:
    """Draw who did what when into the site; None where the logs, whose names are digests, do not say."""
    if site.writer.fresh(name, f"timelines {[log.name for log in logs]} called {titles}"):
        return name
    try:
        write_timeline(logs, site.writer.target(name), reader, titles=titles)
    except IowatchError:
        return None
    return name


def summary(log: Path, reader: Reader) -> dict[str, Any]:
    """What one log says; that it cannot be read is told instead."""
    try:
        trace = read_trace(log, reader)
    except IowatchError as error:
        return {"fault": error.message}
    return {
        "fault": None,
        "trace": trace,
        "hints": hints(trace),
        "counters": counters(trace, trace),
        "timeline": None,
        "report": None,
    }


def _title(run: RunRow) -> str:
    """What the run's session page calls it."""
    return f"{brief(run.name, _LONGEST_NAME)}, run {run.id}"


def pictures(site: Site, run: RunRow, log: Path, reader: Reader) -> dict[str, str | None]:
    """Paths of the timeline and of PyDarshan's full report of a log that can be read; None for what fails."""
    title = _title(run)
    full: str | None = f"darshan/{log.name[:40]}.html"
    if not site.writer.fresh(str(full), f"report of its content called {title}"):
        try:
            write_report([log], site.writer.target(str(full)), reader, name=title)
        except IowatchError:
            full = None
    return {"timeline": timeline(site, f"darshan/{run.id}.svg", [log], [title], reader), "report": full}
