"""`History`: opens the database; interface for other packages. Writing commits run by run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, text

from iowatch.core import METRICS, ExpectedResult, RunKey, Scalar, UsageError, suggest_name
from iowatch.store import bulk, read, write
from iowatch.store.engine import (
    EMPTY_HISTORY_HINT,
    NOT_PERMITTED_HINT,
    NotPermittedError,
    engine_place,
    open_engine,
    repeat_while_unavailable,
    reported_errors,
)
from iowatch.store.facts import RunFacts, SessionFacts
from iowatch.store.locks import SessionLocks
from iowatch.store.records import (
    Artefact,
    DetectionRow,
    FindingRow,
    ResultFilter,
    ResultRow,
    RunRecord,
    RunRow,
    SeriesFilter,
    SeriesPoints,
    SeriesRow,
    SessionRecord,
    SessionRow,
    SessionStatus,
)
from iowatch.store.schema import RunTable, SessionTable

P = ParamSpec("P")
T = TypeVar("T")


class History:
    """The history of all systems; several processes may open it concurrently.

    Attributes:
        locks: what excludes sessions of other checkouts and hosts that use this history.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.locks = SessionLocks(engine)

    @classmethod
    def open(cls, place: str | None = None) -> History:
        """Open the history at `place` (path or URL), `IOWATCH_DB`, or `var/iowatch.db`; create it if absent.

        Raises:
            InputError: not a history, or its schema is too old or too new.
            MachineError: the database cannot be read or written.
        """
        return cls(open_engine(place))

    @classmethod
    def existing(cls, place: str | None = None) -> History:
        """Open an existing history; `place` as for `open`.

        Raises:
            NoHistoryError: the history does not exist.
            InputError: not a history, or its schema is too old or too new.
            MachineError: the database cannot be read or written.
        """
        return cls(open_engine(place, create=False))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open one write transaction, committed at the end, rolled back on any error.

        Raises:
            HistoryUnavailableError: the database cannot be reached, or is locked.
            InputError: the data cannot be stored.
            MachineError: the database reported an error (full disk, read-only).
        """
        with reported_errors(self.engine), self.engine.execution_options(iowatch_write=True).begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open one read transaction: a consistent view.

        Raises:
            MachineError: the database could not be read.
        """
        with reported_errors(self.engine), self.engine.begin() as connection:
            yield connection

    # Transactions are repeated as a whole while the database is unavailable. Each is idempotent: the connection may
    # be lost after the server committed and before it answered.

    def _read(self, reader: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        def transaction() -> T:
            with self.reading() as connection:
                return reader(connection, *args, **options)

        return repeat_while_unavailable(transaction)

    def _write(self, writer: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        def transaction() -> T:
            with self.writing() as connection:
                return writer(connection, *args, **options)

        return repeat_while_unavailable(transaction)

    # Writing

    def begin_session(self, session: SessionRecord, expected: Iterable[ExpectedResult] = ()) -> None:
        """Store a session and its expected set; idempotent."""
        self._write(write.insert_session, session, list(expected))

    def record_runs(self, session_uuid: str, runs: Iterable[RunRecord]) -> int:
        """Store runs of a session in one transaction; return the number of new runs.

        Raises:
            InputError: unknown session; a run cannot be stored.
        """
        return self._write(write.insert_runs, session_uuid, list(runs))

    def add_facts(self, session_uuid: str, facts: SessionFacts) -> None:
        """Add facts to those of the session; those that it has already are replaced."""
        self._write(write.add_session_facts, session_uuid, facts)

    def end_session(self, session_uuid: str, status: SessionStatus, ended_at: int) -> None:
        """Close a session with its status; `ended_at` in epoch seconds UTC."""
        self._write(write.update_session_end, session_uuid, status, ended_at)

    def save_detections(self, rows: Iterable[DetectionRow]) -> None:
        """Write or replace detections of series."""
        self._write(write.save_detections, list(rows))

    def save_run_covariates(self, covariates: Mapping[int, bulk.CovariateNumbers]) -> None:
        """Write the covariates of runs, by run id; those that are stored are kept."""
        self._write(write.save_run_covariates, covariates)

    def save_findings(self, rows: Sequence[FindingRow]) -> None:
        """Write or replace findings, all in one transaction."""
        self._write(write.save_findings, rows)

    # Reading

    def require_right_to_update_findings(self) -> None:
        """Require the right that `may_update_findings` returns.

        Raises:
            NotPermittedError: the account may only read the history.
        """
        if not self.may_update_findings():
            raise NotPermittedError(
                f"this account may only read the history {engine_place(self.engine)}", hint=NOT_PERMITTED_HINT
            )

    def may_update_findings(self) -> bool:
        """Return whether the account has the right to store findings: an owner, writer or reviewer."""
        if self.engine.dialect.name != "postgresql":
            return True
        with self.reading() as connection:
            return bool(connection.execute(text("SELECT has_table_privilege('finding', 'INSERT')")).scalar())

    def detections(self, series_ids: Sequence[int]) -> dict[int, DetectionRow]:
        """Return the stored detections of these series by series id; series without one are omitted."""
        return self._read(read.load_detections, series_ids)

    def findings(self, system: str | None = None) -> list[FindingRow]:
        """Return the findings as last written, newest first."""
        return self._read(read.load_finding_rows, system)

    def sessions(
        self, system: str | None = None, limit: int | None = None, *, retested: bool = False
    ) -> list[SessionRow]:
        """Return the sessions, newest first; with `retested` only those that repeated some of their runs."""
        return self._read(read.list_sessions, system, limit, retested=retested)

    def session(self, uuid: str) -> SessionRow:
        """Return one session by its UUID or an unambiguous prefix of it.

        Raises:
            UsageError: no session or several sessions match.
        """
        return self._read(read.find_session, uuid)

    def expected(self, session_uuid: str) -> list[ExpectedResult]:
        """Return the expected set of a session."""
        return self._read(read.expected_results, session_uuid)

    def received(self, session_uuid: str) -> list[ExpectedResult]:
        """Return the results of a session in the form of `expected`."""
        return self._read(read.received_results, session_uuid)

    def received_cases(self, session_uuid: str) -> list[tuple[ExpectedResult, Mapping[str, Scalar]]]:
        """Return the results of a session with the parameters of their case, which determine the series."""
        return self._read(read.received_cases, session_uuid)

    def runs(self, session_uuid: str) -> list[RunRow]:
        """Return the runs of a session by start."""
        return self._read(read.find_runs, SessionTable.uuid == session_uuid)

    def session_of_runs(self, run_ids: Sequence[int] | None = None) -> dict[int, str]:
        """Return the UUID of the session of these runs, or of all runs, by run id."""
        return self._read(read.session_of_runs, run_ids)

    def last_run_times(self, system: str) -> dict[RunKey, int]:
        """Return the start of the last successful run by partition, stack and name."""
        return self._read(read.last_run_times, system)

    def run(self, run_id: int) -> RunRow:
        """Return one run.

        Raises:
            UsageError: no run with this id.
        """
        return self._read(read.find_run, run_id)

    def stack_of_runs(self, run_ids: Sequence[int]) -> dict[int, int]:
        """Return the number of the stack content of these runs by run id; equal numbers are equal contents."""
        return self._read(read.stack_of_runs, run_ids)

    def runs_near(self, series_id: int, moment: int, most: int) -> list[int]:
        """Return the ids of the last `most` runs of a series before `moment` (epoch s), and as many from then on."""
        return self._read(read.runs_near, series_id, moment, most)

    def run_covariates(self, run_ids: Sequence[int]) -> dict[int, bulk.CovariateNumbers]:
        """Return the covariates stored for runs, by run id; runs for which none were computed are omitted."""
        return self._read(bulk.run_covariates, run_ids)

    def run_facts(self, run_ids: Sequence[int], names: Sequence[str]) -> dict[int, RunFacts]:
        """Return the facts of runs by run id, but only those with these names; unknown runs are omitted."""
        return self._read(read.run_facts, run_ids, names)

    def artefacts(self, run_id: int) -> list[Artefact]:
        """Return the artefacts of a run."""
        return self.artefacts_of_runs([run_id]).get(run_id, [])

    def artefacts_of_runs(self, run_ids: Sequence[int]) -> dict[int, list[Artefact]]:
        """Return the artefacts of some runs by run id; runs without artefacts are omitted."""
        return self._read(read.artefacts_by_run, RunTable.id.in_(run_ids))

    def series(self, chosen: SeriesFilter | None = None) -> list[SeriesRow]:
        """Return matching series, ordered by system, benchmark, case and stack."""
        return self._read(read.find_series, chosen or SeriesFilter())

    def last_stacks(self, series_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """Return stack.json of the last run of each series by series id; series without results are omitted."""
        return self._read(read.last_stack_documents, series_ids)

    def points(
        self, series_ids: Sequence[int], since: int | None = None, until: int | None = None
    ) -> dict[int, SeriesPoints]:
        """Return summaries of each series in time order (arrays of shape (n,)); `since` <= epoch seconds < `until`."""
        return self._read(bulk.series_points, series_ids, since, until)

    def samples(self, series_id: int) -> list[tuple[int, int, tuple[float, ...]]]:
        """Return all samples of a series: (time in epoch seconds, run id, samples in the order measured)."""
        return self._read(bulk.samples_of_series, series_id)

    def results(self, chosen: ResultFilter | None = None) -> Iterator[ResultRow]:
        """Yield results with samples, session and status, read lazily: ordered by series and time.

        Raises:
            MachineError: the database could not be read.
        """
        with self.reading() as connection:
            yield from bulk.query_results(connection, chosen or ResultFilter())

    def run_results(self, run_id: int) -> list[tuple[SeriesRow, tuple[float, ...]]]:
        """Return the results of one run: series and all samples."""
        return self._read(read.run_results, run_id)

    def systems(self) -> list[str]:
        """Return the names of the systems in the history."""
        return self._read(read.system_names_in_history)

    def require_system(self, name: str) -> None:
        """Require that the history contains a system: "no data" is not the same as "no change".

        Raises:
            UsageError: unknown system.
        """
        known = self.systems()
        if name not in known:
            hint = suggest_name(name, known) if known else f"Nothing is in it yet. {EMPTY_HISTORY_HINT}"
            raise UsageError(f"the history has no system '{name}'", hint=hint)

    def require_series(self, chosen: SeriesFilter) -> None:
        """Require that the history contains every name of a filter: a misspelt name would match no series.

        Raises:
            UsageError: unknown name.
        """
        if chosen.system is not None:
            self.require_system(chosen.system)
        rows = self.series(SeriesFilter(system=chosen.system))
        names = {
            "partition": {row.partition for row in rows},
            "stack": {row.stack for row in rows},
            "benchmark": {row.case.benchmark for row in rows},
            # A known metric without results is not misspelt.
            "metric": METRICS.keys(),
        }
        for field, known in names.items():
            name = getattr(chosen, field)
            if name is not None and name not in known:
                where = "the history" if chosen.system is None else f"system '{chosen.system}'"
                raise UsageError(f"{where} has no {field} '{name}'", hint=suggest_name(name, sorted(known)))
