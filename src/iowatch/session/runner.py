"""The life cycle of a session, from the lock of its system to its end.

A session is started on disk and in the history, executed, filled case by case from the spool, and closed, also after
an exception. If it is killed, the next session of the system recovers it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from iowatch import checks
from iowatch.core import format_count, missing_results, settings
from iowatch.darshan import DarshanReader
from iowatch.session import conditions
from iowatch.session.directory import close_session, recover_sessions, start_session
from iowatch.session.file_systems import LockedSession
from iowatch.session.ingest import ingest_case, ingest_spool
from iowatch.site import System
from iowatch.store import (
    ALL_SESSIONS,
    ExpectedResult,
    History,
    HistoryUnavailableError,
    SessionFacts,
    SessionRecord,
    SessionStatus,
    locks,
)

_LOG = logging.getLogger(__name__)


@contextmanager
def lock_system(history: History, system: System) -> Iterator[tuple[str, ...]]:
    """Hold the locks of a system; yields the UUIDs of interrupted sessions, which are recovered first.

    Raises:
        MachineError: another session is running; the clock is wrong; the default file system is another one than
            before.
    """
    with (
        locks.hold_lock(settings.var_directory() / "lock" / f"{system.name}.lock"),
        history.locks.hold(ALL_SESSIONS, shared=True),
        history.locks.hold(f"system {system.name}"),
    ):
        recovered = recover_sessions(history, system.name)
        for uuid in recovered:
            _LOG.info("recovered the results of the interrupted session %s", uuid)
        conditions.check_clock(history, system.name)
        conditions.check_default_file_system(history, system)
        yield tuple(recovered)


class SessionRunner(ABC):
    """A running session: started on disk and in the history, executed, completely ingested, closed.

    A kind of session is a class with `execute`.

    Attributes:
        expected: expected set at the start.
        status: final status of the session, set by `execute`.
        directory, reader: available from the start on.
    """

    status: SessionStatus = "incomplete"
    directory: Path
    reader: DarshanReader
    _is_postponing = False

    def __init__(
        self, history: History, session: LockedSession, record: SessionRecord, expected: Sequence[ExpectedResult]
    ) -> None:
        self.history = history
        self.session = session
        self.context = session.context
        self.record = record
        self.expected = expected

    def run(self) -> None:
        """Execute the session; its results are ingested and it is closed also after an exception.

        Raises:
            HistoryUnavailableError: at the end, too; the results stay in the spool for the next session.
        """
        self.directory = start_session(self.history, self.record, self.expected)
        try:
            with DarshanReader() as self.reader:
                try:
                    self.execute()
                finally:
                    self.ingest_all()
                    close_session(self.history, self.directory, self.status)
                    self.session.remove_scratch(self.record.uuid)
        except HistoryUnavailableError as error:
            waiting = format_count(len(checks.finished_case_directories(self.directory)), "finished case")
            raise HistoryUnavailableError(
                f"{error.message}; {waiting} in {self.directory / 'cases'} not yet stored",
                hint=f"Nothing is lost: the next session of {self.record.system} stores them and closes this one, once "
                "the database is available.",
            ) from error

    @abstractmethod
    def execute(self) -> None:
        """Start ReFrame for all runs."""

    def ingest(self) -> list[checks.SpooledCase]:
        """Move finished cases to the history; while it is unavailable, they wait in the spool without an error."""
        stored: list[checks.SpooledCase] = []
        try:
            for case_directory in checks.finished_case_directories(self.directory):
                case = ingest_case(self.history, case_directory, self.reader)
                if case is not None:
                    stored.append(case)
                self._is_postponing = False
            if stored:
                self._check_locks()
        except HistoryUnavailableError as error:
            if not self._is_postponing:
                _LOG.warning("%s; finished cases wait in %s", error.message, self.directory / "cases")
            self._is_postponing = True
        return stored

    def _check_locks(self) -> None:
        """Take locks again whose connection was lost; a session that took one meanwhile is a problem of this one."""
        conflicts = self.history.locks.check()
        if conflicts:
            problems = self.history.session(self.record.uuid).facts.problems
            self.history.add_facts(self.record.uuid, SessionFacts(problems=(*problems, *conflicts)))

    def ingest_all(self) -> None:
        """Move all finished cases to the history.

        Raises:
            HistoryUnavailableError: some cases are still in the spool.
        """
        self.ingest()
        ingest_spool(self.history, self.directory, self.reader)

    def missing(self) -> list[ExpectedResult]:
        """Expected results that were not received."""
        received = set(self.history.received(self.record.uuid))
        return missing_results(self.history.expected(self.record.uuid), received)
