"""`History`: the one door to the database. Writing commits run by run; reading gives records and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from iowatch.errors import MachineError, UsageError, near_miss
from iowatch.metrics import METRICS
from iowatch.store import findings, ingest, query, results
from iowatch.store.engine import HOW_TO_FILL, open_engine, told_reason
from iowatch.store.findings import DetectionRow, FindingRow
from iowatch.store.records import (
    Artefact,
    ExpectedResult,
    RunRecord,
    RunRow,
    SeriesFilter,
    SeriesPoints,
    SeriesRow,
    SessionRecord,
    SessionRow,
    SessionStatus,
)
from iowatch.store.results import ResultFilter, ResultRow


class History:
    """The history of all systems; safe to open from several processes at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, place: str | None = None) -> History:
        """Open the history at `place` (path or URL), `IOWATCH_DB`, or `var/iowatch.db`; create it if absent.

        Raises:
            InputError: the file is not a history, or is newer than this program.
            MachineError: it cannot be read or written.
        """
        return cls(open_engine(place))

    @classmethod
    def existing(cls, place: str | None = None) -> History:
        """Open a history to read what it holds: one that is not there is an error, not a quiet night.

        Raises:
            NoHistoryError: there is none.
            InputError: it is not a history, or is newer than this program.
            MachineError: it cannot be read or written.
        """
        return cls(open_engine(place, create=False))

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction, committed at the end, undone on any error.

        Raises:
            MachineError: the database refused (full disk, read-only, locked too long).
        """
        try:
            with self.engine.connect().execution_options(iowatch_write=True) as connection, connection.begin():
                yield connection
        except DBAPIError as error:
            raise self._told(error) from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction: a consistent view.

        Raises:
            MachineError: the database could not be read.
        """
        try:
            with self.engine.connect() as connection, connection.begin():
                yield connection
        except DBAPIError as error:
            raise self._told(error) from error

    def _told(self, error: DBAPIError) -> MachineError:
        place = self.engine.url.render_as_string(hide_password=True)
        return MachineError(
            f"the history {place} refused: {told_reason(error, self.engine)}",
            hint="Nothing was half written; free space or permissions there, then repeat.",
        )

    # Writing

    def begin_session(self, session: SessionRecord, expected: Iterable[ExpectedResult] = ()) -> None:
        """Record a session and what it expects; the same session twice is the same as once."""
        with self.writing() as connection:
            ingest.begin_session(connection, session, expected)

    def record_runs(self, session_uuid: str, runs: Iterable[RunRecord]) -> int:
        """Store runs of a session in one transaction; returns how many were new.

        Raises:
            InputError: the session is not known.
        """
        with self.writing() as connection:
            return sum(ingest.record_run(connection, session_uuid, run) for run in runs)

    def add_attributes(self, session_uuid: str, attributes: Mapping[str, object]) -> None:
        """Let what a session learnt of itself join its attributes."""
        with self.writing() as connection:
            ingest.add_attributes(connection, session_uuid, attributes)

    def end_session(self, session_uuid: str, status: SessionStatus, ended_at: int) -> None:
        """Close a session with its outcome; `ended_at` in epoch seconds UTC."""
        with self.writing() as connection:
            ingest.end_session(connection, session_uuid, status, ended_at)

    def save_detections(self, rows: Iterable[DetectionRow]) -> None:
        """Remember what detection said of series, replacing what was remembered of them."""
        with self.writing() as connection:
            findings.save_detections(connection, rows)

    def save_findings(self, rows: Sequence[FindingRow]) -> None:
        """Write or replace findings, all or none."""
        with self.writing() as connection:
            findings.save_findings(connection, rows)

    # Reading

    def detections(self, series_ids: Sequence[int]) -> dict[int, DetectionRow]:
        """What is remembered of detection of these series."""
        with self.reading() as connection:
            return findings.detections(connection, series_ids)

    def findings(self, system: str | None = None) -> list[FindingRow]:
        """Findings as last written, newest first; `iowatch.findings.load` gives them as records."""
        with self.reading() as connection:
            return findings.findings(connection, system)

    def sessions(self, system: str | None = None, limit: int | None = None) -> list[SessionRow]:
        """Sessions, newest first."""
        with self.reading() as connection:
            return query.sessions(connection, system, limit)

    def session(self, uuid: str) -> SessionRow:
        """One session by its UUID or an unambiguous beginning of it.

        Raises:
            UsageError: none or several match.
        """
        with self.reading() as connection:
            return query.session(connection, uuid)

    def expected(self, session_uuid: str) -> list[ExpectedResult]:
        """What the session set out to measure."""
        with self.reading() as connection:
            return query.expected(connection, session_uuid)

    def received(self, session_uuid: str) -> list[ExpectedResult]:
        """What of a session arrived, in the same terms as `expected`."""
        with self.reading() as connection:
            return query.received(connection, session_uuid)

    def runs(self, session_uuid: str) -> list[RunRow]:
        """Runs of one session in the order in which they started."""
        with self.reading() as connection:
            return query.runs(connection, session_uuid)

    def session_of_runs(self, run_ids: Sequence[int] | None = None) -> dict[int, str]:
        """The UUID of the session of these runs, or of all."""
        with self.reading() as connection:
            return query.session_of_runs(connection, run_ids)

    def run(self, run_id: int) -> RunRow:
        """One run.

        Raises:
            UsageError: there is none of that number.
        """
        with self.reading() as connection:
            return query.run(connection, run_id)

    def artefacts(self, run_id: int) -> list[Artefact]:
        """Files that a run left."""
        with self.reading() as connection:
            return query.artefacts(connection, run_id)

    def series(self, chosen: SeriesFilter | None = None) -> list[SeriesRow]:
        """Series that match, ordered by system, benchmark, case and stack."""
        with self.reading() as connection:
            return query.series(connection, chosen or SeriesFilter())

    def last_stacks(self, series_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """By series id, the document of the stack of its last run; empty series are left out."""
        with self.reading() as connection:
            return query.last_stacks(connection, series_ids)

    def points(
        self, series_ids: Sequence[int], since: int | None = None, until: int | None = None
    ) -> dict[int, SeriesPoints]:
        """Summaries in time order of each series (arrays of shape (n,)); `since` <= epoch seconds < `until`."""
        with self.reading() as connection:
            return query.points(connection, series_ids, since, until)

    def samples(self, series_id: int) -> list[tuple[int, int, tuple[float, ...]]]:
        """Every sample of a series: (time in epoch seconds, run id, samples in order measured)."""
        with self.reading() as connection:
            return query.samples(connection, series_id)

    def results(self, chosen: ResultFilter | None = None) -> Iterator[ResultRow]:
        """Results with samples, session and status, read as they are used: series by series in time order.

        Raises:
            MachineError: the database could not be read.
        """
        with self.reading() as connection:
            yield from results.results(connection, chosen or ResultFilter())

    def run_results(self, run_id: int) -> list[tuple[SeriesRow, tuple[float, ...]]]:
        """The results of one run: its series and all samples."""
        with self.reading() as connection:
            return query.run_results(connection, run_id)

    def systems(self) -> list[str]:
        """Names of systems that have history."""
        with self.reading() as connection:
            return query.systems(connection)

    def require_system(self, name: str) -> None:
        """Make sure that something of a system is here: no data is not the same as no change.

        Raises:
            UsageError: nothing is.
        """
        known = self.systems()
        if name not in known:
            hint = near_miss(name, known) if known else f"Nothing is in it yet. {HOW_TO_FILL}"
            raise UsageError(f"the history has no system '{name}'", hint=hint)

    def require_series(self, chosen: SeriesFilter) -> None:
        """Make sure that every name of a filter is one that the history has: a misspelt one fits nothing.

        Raises:
            UsageError: one is not.
        """
        if chosen.system is not None:
            self.require_system(chosen.system)
        rows = self.series(SeriesFilter(system=chosen.system))
        names = {
            "partition": {row.partition for row in rows},
            "stack": {row.stack for row in rows},
            "benchmark": {row.case.benchmark for row in rows},
            # What is not measured yet is no misspelling.
            "metric": METRICS.keys(),
        }
        for field, known in names.items():
            name = getattr(chosen, field)
            if name is not None and name not in known:
                where = "the history" if chosen.system is None else f"system '{chosen.system}'"
                raise UsageError(f"{where} has no {field} '{name}'", hint=near_miss(name, sorted(known)))
