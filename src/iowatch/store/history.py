"""`History`: opens the database; interface for other packages. Writing commits run by run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, text

from iowatch.core import METRICS, UsageError, suggest_name
from iowatch.store import bulk, chain, damaged_results, read, repeated_results, write
from iowatch.store.engine import (
    EMPTY_HISTORY_HINT,
    NOT_PERMITTED_HINT,
    NotPermittedError,
    engine_place,
    open_engine,
    repeat_while_unavailable,
    reported_errors,
)
from iowatch.store.locks import SessionLocks
from iowatch.store.records import ResultFilter, ResultRow, SeriesFilter

P = ParamSpec("P")
T = TypeVar("T")


def _reads(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[History, P], T]:
    """Return a query of one connection as a method of `History`, which executes it in a read transaction."""

    @wraps(query)
    def method(history: History, /, *args: P.args, **options: P.kwargs) -> T:
        def transaction() -> T:
            with history.reading() as connection:
                return query(connection, *args, **options)

        return repeat_while_unavailable(transaction)

    return method


def _writes(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[History, P], T]:
    """Return a query of one connection as a method of `History`, which executes it in a write transaction.

    The query is idempotent: it is repeated while the database is unavailable, and the connection may be lost after the
    server committed and before it answered.
    """

    @wraps(query)
    def method(history: History, /, *args: P.args, **options: P.kwargs) -> T:
        def transaction() -> T:
            with history.writing() as connection:
                return query(connection, *args, **options)

        return repeat_while_unavailable(transaction)

    return method


class History:
    """The history of all systems; several processes may open it concurrently.

    Its methods are the queries of `read`, `write` and `bulk`, each in a transaction of its own. Several queries in one
    transaction take the connection of `reading` or `writing`.

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

    # Sessions
    begin_session = _writes(write.insert_session)
    end_session = _writes(write.update_session_end)
    add_facts = _writes(write.add_session_facts)
    systems = _reads(read.system_names_in_history)
    sessions = _reads(read.list_sessions)
    session = _reads(read.find_session)
    chained_sessions = _reads(chain.chained_sessions)
    expected = _reads(read.expected_results)
    received = _reads(read.received_results)
    received_cases = _reads(read.received_cases)

    # Runs
    record_runs = _writes(write.insert_runs)
    runs = _reads(read.runs_of_session)
    run = _reads(read.find_run)
    run_results = _reads(read.run_results)
    run_facts = _reads(read.run_facts)
    runs_with_fact = _reads(bulk.runs_with_fact)
    runs_near = _reads(read.runs_near)
    session_of_runs = _reads(read.session_of_runs)
    stack_of_runs = _reads(read.stack_of_runs)
    last_run_times = _reads(read.last_run_times)
    artefacts = _reads(read.artefacts_of_run)
    artefacts_of_runs = _reads(read.artefacts_of_runs)
    run_covariates = _reads(bulk.run_covariates)
    save_run_covariates = _writes(write.save_run_covariates)

    damaged_results = _reads(damaged_results.find_damaged_results)
    repeated_runs = _reads(repeated_results.find_repeated_runs)

    # Series
    series = _reads(read.find_series)
    last_stacks = _reads(read.last_stack_documents)
    points = _reads(bulk.series_points)
    samples = _reads(bulk.samples_of_series)
    detections = _reads(read.load_detections)
    save_detections = _writes(write.save_detections)

    # Findings
    findings = _reads(read.load_finding_rows)
    save_findings = _writes(write.save_findings)

    def results(self, chosen: ResultFilter | None = None) -> Iterator[ResultRow]:
        """Yield results with samples, session and status, read lazily: ordered by series and time.

        Raises:
            MachineError: the database could not be read.
        """
        with self.reading() as connection:
            yield from bulk.query_results(connection, chosen or ResultFilter())

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

    def require_system(self, name: str) -> None:
        """Require that the history contains a system: "no data" is not the same as "no change".

        Raises:
            UsageError: unknown system.
        """
        systems = self.systems()
        if name in systems:
            return
        hint = f"Nothing is in it yet. {EMPTY_HISTORY_HINT}"
        if systems:
            hint = suggest_name(name, systems)
        raise UsageError(f"the history has no system '{name}'", hint=hint)

    def require_series(self, chosen: SeriesFilter) -> None:
        """Require that the history contains every name of a filter: a misspelt name would match no series.

        Raises:
            UsageError: unknown name.
        """
        if chosen.system is not None:
            self.require_system(chosen.system)
        all_series = self.series(SeriesFilter(system=chosen.system))
        existing_names = {
            "partition": {series.partition for series in all_series},
            "stack": {series.stack for series in all_series},
            "benchmark": {series.case.benchmark for series in all_series},
            # A known metric without results is not misspelt.
            "metric": set(METRICS),
        }
        owner = "the history" if chosen.system is None else f"system '{chosen.system}'"
        for field, existing in existing_names.items():
            name = getattr(chosen, field)
            if name is not None and name not in existing:
                raise UsageError(f"{owner} has no {field} '{name}'", hint=suggest_name(name, sorted(existing)))
