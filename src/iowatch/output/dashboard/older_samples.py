"""Observations of earlier years, in files that later builds link: a morning reads and writes only the recent ones."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from iowatch.core import DAY_S
from iowatch.findings import load_covariates
from iowatch.output.dashboard import data, levels
from iowatch.output.dashboard.site import OLDER_SAMPLES_FOLDER, embed_json
from iowatch.statistics import CovariateTable
from iowatch.store import RunSessions, SeriesSamples, SessionRow, bulk

# Observations that a page needs at least, for its accepted level and its table.
_MIN_RECENT = 60
# Version of the content of the files.
_FORMAT = 1


@dataclass(frozen=True)
class OlderSessions:
    """Sessions of a system before a time (epoch s).

    Attributes:
        file: path of the file with their names in the site.
        digest: of all that is in them. Runs and results are only added to a session, never changed.
    """

    until: int
    file: str
    digest: str

    def samples_file(self, series: data.SeriesEntry, observations: int) -> str:
        """Path of the file with the older observations of a series."""
        row = series.row
        return _file_name([self.digest, row.partition, row.stack, row.case.canonical, row.metric, observations])


def write_older_sessions(site: data.SiteBuild, machine: data.SystemEntry) -> OlderSessions | None:
    """Write or link the names of the sessions before 1 January of the year of 60 days ago; None if there are none."""
    newest = max((row.started_at for row in machine.sessions), default=0)
    year = datetime.fromtimestamp(newest - _MIN_RECENT * DAY_S, UTC).year
    until = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    rows = [row for row in machine.sessions if row.started_at < until]
    if not rows:
        return None
    known = [_FORMAT, machine.name, until, [(row.id, row.uuid, row.runs) for row in rows]]
    older = OlderSessions(until, _file_name(known), _digest(known))
    if not site.writer.reuse(older.file):
        _write_script(site, older.file, "olderSessions", {row.id: session_name(row) for row in rows})
    return older


def session_name(row: SessionRow) -> list[str]:
    """UUID of a session, and the path of its page if that does not follow from the UUID."""
    page, uuid = data.session_page_path(row), row.uuid[:80]
    return [uuid] if page == f"session/{uuid}.html" else [uuid, page]


def plot_arrays(
    series: data.SeriesEntry, samples: SeriesSamples, session_of: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> dict[str, str]:
    """Observations for the plot (static/series.js): base64 of little-endian arrays.

    Args:
        session_of: number of the session of each observation, shape (n,).
        chosen: which observations, shape (n,).
    """
    shown = samples.only(chosen)
    return {
        "time": base64_array(shown.time, "<u4"),
        "headline": base64_array(levels.sample_headlines(series, shown), "<f4"),
        "count": base64_array(shown.count, "<u2"),
        "samples": base64_array(shown.samples, "<f4"),
        "run": base64_array(shown.run_id, "<u4"),
        "session": base64_array(session_of[chosen], "<u4"),
    }


def base64_array(values: NDArray[Any], form: str) -> str:
    """An array as base64 of numbers such as `<f4`."""
    return base64.b64encode(values.astype(form).tobytes()).decode()


@dataclass(frozen=True)
class ShownSeries:
    """A series with the observations that its page needs: the recent ones or all.

    Attributes:
        session_of: number of the session of each observation, shape (n,).
        inline: the observations that the page itself contains, shape (n,).
        file: path of the file with the others; None if there are none.
        covariates: of each observation, or None.
    """

    series: data.SeriesEntry
    samples: SeriesSamples
    session_of: NDArray[np.int64]
    inline: NDArray[np.bool_]
    file: str | None
    covariates: CovariateTable | None


@dataclass(frozen=True)
class SeriesReader:
    """Reads series of one system for their pages; the files of older observations are written or linked."""

    site: data.SiteBuild
    session_of_run: RunSessions
    sessions: Mapping[int, SessionRow]
    older: OlderSessions | None

    def read(self, connection: Connection, chosen: Sequence[data.SeriesEntry]) -> Iterator[ShownSeries]:
        """Yield each series that has observations."""
        recent = self._samples(connection, chosen, self.older.until if self.older else None)
        files = {one.row.id: self._older_file(one, recent.get(one.row.id)) for one in chosen}
        if self.older is not None:
            with_covariates = self._with_covariates(chosen, recent)
            short = [
                one
                for one in chosen
                if one.row.id in with_covariates or self._needs_all(one, recent.get(one.row.id), files[one.row.id])
            ]
            recent |= self._samples(connection, short, None)
        shown = [one for one in chosen if one.row.id in recent]
        runs = {one.row.id: recent[one.row.id].run_id for one in shown}
        tables = load_covariates(self.site.history, [one.row for one in shown], runs, save=False)
        for one, table in zip(shown, tables, strict=True):
            samples, file = recent[one.row.id], files[one.row.id]
            session_of = self.session_of_run.of(samples.run_id)
            inline = samples.time >= (self.older.until if self.older else 0)
            if file is not None and not self.site.writer.reuse(file):
                arrays = plot_arrays(one, samples, session_of, ~inline)
                _write_script(self.site, file, "olderSamples", arrays)
            yield ShownSeries(one, samples, session_of, inline, file, table)

    def _samples(
        self, connection: Connection, chosen: Sequence[data.SeriesEntry], since: int | None
    ) -> dict[int, SeriesSamples]:
        """Observations from `since` on. Other processes may add results meanwhile: only those known are shown."""
        by_id, found = {one.row.id: one for one in chosen}, {}
        for samples in bulk.read_series_samples(connection, list(by_id), since):
            known = np.isin(self.session_of_run.of(samples.run_id), list(self.sessions))
            known &= samples.run_id <= by_id[samples.series_id].stamp.newest
            if known.any():
                found[samples.series_id] = samples.only(known)
        return found

    def _older_file(self, series: data.SeriesEntry, recent: SeriesSamples | None) -> str | None:
        observations = series.stamp.n - (len(recent.time) if recent else 0)
        return self.older.samples_file(series, observations) if self.older and observations else None

    def _needs_all(self, series: data.SeriesEntry, recent: SeriesSamples | None, file: str | None) -> bool:
        """Whether the recent observations do not suffice for the page."""
        if file is None:
            return False
        drifts = series.detection.drifts if series.detection else ()
        if recent is None or len(recent.time) < _MIN_RECENT:
            return True
        return any(one.time < recent.time[0] for one in drifts) or not self.site.writer.reuse(file)

    def _with_covariates(self, chosen: Sequence[data.SeriesEntry], recent: Mapping[int, SeriesSamples]) -> set[int]:
        """Series whose newest runs recorded covariates, which are correlated over all observations."""
        rows = [one.row for one in chosen if one.row.id in recent]
        runs = {row.id: recent[row.id].run_id for row in rows}
        tables = load_covariates(self.site.history, rows, runs, save=False)
        return {row.id for row, table in zip(rows, tables, strict=True) if table is not None}


def _digest(known: object) -> str:
    return hashlib.sha256(json.dumps(known).encode("utf-8", "surrogatepass")).hexdigest()


def _file_name(known: object) -> str:
    return f"{OLDER_SAMPLES_FOLDER}/{_digest(known)[:24]}.js"


def _write_script(site: data.SiteBuild, file: str, name: str, document: object) -> None:
    """Write a file that sets a variable: browsers load no JSON where a site is opened from a directory."""
    site.writer.write(file, f"globalThis.{name} = {embed_json(document)};\n")
