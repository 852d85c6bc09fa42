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
    """Sessions of a system before a time.

    Attributes:
        until: the time, epoch s.
        file: path of the file with their names in the site.
        digest: of all that is in them. Runs and results are only added to a session, never changed.
    """

    until: int
    file: str
    digest: str

    def samples_file(self, series: data.SeriesEntry, observations: int) -> str:
        """Path of the file with the older observations of a series, and how many these are."""
        row = series.row
        return _file_name([self.digest, row.partition, row.stack, row.case.canonical, row.metric, observations])


def write_older_sessions(site: data.SiteBuild, machine: data.SystemEntry) -> OlderSessions | None:
    """Write or link the names of the sessions before 1 January of the year of 60 days ago; None if there are none."""
    newest = max((session.started_at for session in machine.sessions), default=0)
    year = datetime.fromtimestamp(newest - _MIN_RECENT * DAY_S, UTC).year
    until = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    sessions = [session for session in machine.sessions if session.started_at < until]
    if not sessions:
        return None
    # The path contains a digest of what the file is made of, so that a later build recognises an equal one.
    identities = [(session.id, session.uuid, session.runs) for session in sessions]
    contents = [_FORMAT, machine.name, until, identities]
    older = OlderSessions(until, _file_name(contents), _digest(contents))
    if not site.writer.reuse(older.file):
        names = {session.id: session_name(session) for session in sessions}
        _write_script(site, older.file, "olderSessions", names)
    return older


def session_name(row: SessionRow) -> list[str]:
    """UUID of a session, and the path of its page if that does not follow from the UUID."""
    page = data.session_page_path(row)
    uuid = row.uuid[:80]
    if page == f"session/{uuid}.html":
        return [uuid]
    return [uuid, page]


def plot_arrays(
    series: data.SeriesEntry, samples: SeriesSamples, session_of: NDArray[np.int64], shown: NDArray[np.bool_]
) -> dict[str, str]:
    """Observations for the plot (static/series.js): base64 of little-endian arrays.

    Args:
        session_of: number of the session of each observation, shape (n,).
        shown: which observations, shape (n,).
    """
    shown_samples = samples.only(shown)
    return {
        "time": base64_array(shown_samples.time, "<u4"),
        "headline": base64_array(levels.sample_headlines(series, shown_samples), "<f4"),
        "count": base64_array(shown_samples.count, "<u2"),
        "samples": base64_array(shown_samples.samples, "<f4"),
        "run": base64_array(shown_samples.run_id, "<u4"),
        "session": base64_array(session_of[shown], "<u4"),
    }


def base64_array(values: NDArray[Any], dtype: str) -> str:
    """An array as base64 of numbers of a type such as `<f4`."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


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
    """Reads series of one system for their pages; the files of older observations are written or linked.

    Attributes:
        session_of_run: number of the session of each run of the history.
        sessions: sessions of the system by number.
        older: the sessions whose observations are in files; None if all are recent.
    """

    site: data.SiteBuild
    session_of_run: RunSessions
    sessions: Mapping[int, SessionRow]
    older: OlderSessions | None

    def read(self, connection: Connection, series: Sequence[data.SeriesEntry]) -> Iterator[ShownSeries]:
        """Yield each series that has observations."""
        samples_by_id = self._read_samples(connection, series, self.older.until if self.older else None)
        # The files are of the observations before those read here.
        files = {entry.row.id: self._older_file(entry, samples_by_id.get(entry.row.id)) for entry in series}
        incomplete = self._find_incomplete(series, samples_by_id, files)
        if incomplete:
            samples_by_id |= self._read_samples(connection, incomplete, None)
        shown = [entry for entry in series if entry.row.id in samples_by_id]
        covariates = self._load_covariates(shown, samples_by_id)
        for entry in shown:
            samples, file = samples_by_id[entry.row.id], files[entry.row.id]
            session_of = self.session_of_run.of(samples.run_id)
            inline = samples.time >= (self.older.until if self.older else 0)
            if file is not None and not self.site.writer.reuse(file):
                arrays = plot_arrays(entry, samples, session_of, ~inline)
                _write_script(self.site, file, "olderSamples", arrays)
            yield ShownSeries(entry, samples, session_of, inline, file, covariates[entry.row.id])

    def _read_samples(
        self, connection: Connection, series: Sequence[data.SeriesEntry], since: int | None
    ) -> dict[int, SeriesSamples]:
        """Observations from `since` (epoch s) on, by series id."""
        by_id = {entry.row.id: entry for entry in series}
        session_ids = list(self.sessions)
        samples_by_id: dict[int, SeriesSamples] = {}
        for samples in bulk.read_series_samples(connection, list(by_id), since):
            # Other processes may have added results meanwhile: all pages of a build show the same sessions and runs.
            in_build = np.isin(self.session_of_run.of(samples.run_id), session_ids)
            in_build &= samples.run_id <= by_id[samples.series_id].stamp.newest
            if in_build.any():
                samples_by_id[samples.series_id] = samples.only(in_build)
        return samples_by_id

    def _older_file(self, series: data.SeriesEntry, recent: SeriesSamples | None) -> str | None:
        """Path of the file with the observations before the recent ones; None if there are none."""
        observations = series.stamp.n - (len(recent.time) if recent else 0)
        if self.older is None or observations == 0:
            return None
        return self.older.samples_file(series, observations)

    def _find_incomplete(
        self, series: Sequence[data.SeriesEntry], recent: Mapping[int, SeriesSamples], files: Mapping[int, str | None]
    ) -> list[data.SeriesEntry]:
        """Series whose pages need more than the recent observations.

        Args:
            recent: recent observations by series id.
            files: path of the file with the older observations by series id, None if there are none.
        """
        if self.older is None:
            return []
        # Covariates are correlated with all observations.
        measured = [entry for entry in series if entry.row.id in recent]
        covariates = self._load_covariates(measured, recent)
        incomplete: list[data.SeriesEntry] = []
        for entry in series:
            series_id = entry.row.id
            has_covariates = covariates.get(series_id) is not None
            if has_covariates or self._needs_all(entry, recent.get(series_id), files[series_id]):
                incomplete.append(entry)
        return incomplete

    def _needs_all(self, series: data.SeriesEntry, recent: SeriesSamples | None, file: str | None) -> bool:
        """Whether the recent observations do not suffice for the page, or for the file of the older ones."""
        if file is None:
            return False
        if recent is None or len(recent.time) < _MIN_RECENT:
            return True
        # A drift is drawn over all of its observations.
        drifts = series.detection.drifts if series.detection else ()
        if any(drift.time < recent.time[0] for drift in drifts):
            return True
        # A file that cannot be linked from the previous site is written.
        return not self.site.writer.reuse(file)

    def _load_covariates(
        self, series: Sequence[data.SeriesEntry], samples_by_id: Mapping[int, SeriesSamples]
    ) -> dict[int, CovariateTable | None]:
        """Covariates of the observations of series, by series id; None where the newest runs recorded none."""
        rows = [entry.row for entry in series]
        runs = {row.id: samples_by_id[row.id].run_id for row in rows}
        tables = load_covariates(self.site.history, rows, runs, save=False)
        return {row.id: table for row, table in zip(rows, tables, strict=True)}


def _digest(contents: object) -> str:
    return hashlib.sha256(json.dumps(contents).encode("utf-8", "surrogatepass")).hexdigest()


def _file_name(contents: object) -> str:
    """Path of a file in the site, which contains a digest of what the file is made of."""
    return f"{OLDER_SAMPLES_FOLDER}/{_digest(contents)[:24]}.js"


def _write_script(site: data.SiteBuild, file: str, variable: str, document: object) -> None:
    """Write a file that sets a variable: browsers load no JSON where a site is opened from a directory."""
    site.writer.write(file, f"globalThis.{variable} = {embed_json(document)};\n")
