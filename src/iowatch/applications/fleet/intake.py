"""A directory of Darshan logs into the tables of a system: listed, read by Dask workers, committed here.

Only this process writes, so that a worker can be killed at any time: its batch is read again by another one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iowatch.applications.fleet import tables as log_tables
from iowatch.applications.fleet.batch import COPY, COUNTED, REJECTIONS, import_engines, read_batch
from iowatch.core import MachineError, UsageError, settings
from iowatch.darshan import site_key
from iowatch.session.workers import Engine
from iowatch.site import load_system, system_names

if TYPE_CHECKING:
    from pyarrow import Table

# Logs per task: some tenths of a second, so that little is read again after a kill.
_BATCH_LOGS = 100
# Batches per worker that are under way; the rest of a year of logs waits here as names.
_BATCHES_PER_WORKER = 3
# A commit writes at most this much again if this process is killed, and a part is not written for every batch.
_COMMIT_LOGS, _COMMIT_S = 5000, 30.0
# Files that are listed and compared with the ledger at once.
_LISTED_FILES = 250_000
_REPORT_S = 10.0
_CONTINUE = "What was committed is kept; the same command reads the rest."


@dataclass
class IntakeSummary:
    """What `iowatch logs add` did.

    Attributes:
        offered: regular files in the directory.
        known: of these, files that were read before and did not change.
        outcomes: `counted`, `copy` (the log of another file) or the key of a rejection to number of files.
    """

    system: str
    directory: str
    offered: int = 0
    known: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch logs add --json`; `rejected` names every reason."""
        document = {key: value for key, value in vars(self).items() if key != "outcomes"}
        rejected = {key: self.outcomes[key] for key in REJECTIONS}
        return {**document, "counted": self.outcomes[COUNTED], "copies": self.outcomes[COPY], "rejected": rejected}

    def format_lines(self) -> Iterator[str]:
        """Yield the counts, then one line per reason for which files were not counted."""
        counted, copies = self.outcomes[COUNTED], self.outcomes[COPY]
        yield f"{self.system}: {counted} logs counted, {copies} copies, {self.known} known of {self.offered} files"
        for key, reason in REJECTIONS.items():
            if number := self.outcomes[key]:
                yield f"  {number} not counted: {reason.text}"


def add_logs(
    directory: Path,
    system: str,
    engine: Engine,
    *,
    report: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> IntakeSummary:
    """Read the logs below a directory that are new or changed, and add them to the tables of a system.

    Args:
        directory: is searched with all directories below it; symbolic links are not followed.
        system: name of the system that ran the jobs.
        engine: opens an executor that reads batches, with its number of workers; only if there is something to read.
        report: receives one line of progress every ten seconds.
        clock: seconds.

    Raises:
        UsageError: not a directory, or an impossible name. MachineError: workers or the scheduler are lost; what was
            committed remains, the rest is read by the next call.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: {'not a directory' if directory.exists() else 'no such directory'}")
    store, start = log_tables.LogStore(system), clock()
    summary = IntakeSummary(system, str(directory))
    with store.adding(), ExitStack() as opened:
        running: tuple[Executor, int] | None = None
        for paths, files in _list_files(directory.absolute()):
            intake = _Intake(store, paths, files, summary, report, clock)
            summary.offered += len(paths)
            summary.known += len(paths) - len(intake.fresh)
            if intake.fresh:
                running = running or opened.enter_context(engine())
                try:
                    intake.read(*running)
                finally:
                    intake.commit()
    summary.seconds = round(clock() - start, 3)
    return summary


def _list_files(directory: Path) -> Iterator[tuple[list[str], Table]]:
    """Yield paths, and the columns of the ledger (`file`, `size`, `mtime_ns`), of regular files in order of time."""
    found: list[tuple[int, int, str]] = []
    for place, folders, names in os.walk(directory):
        folders.sort()
        for name in names:
            path = f"{place}/{name}"
            try:
                facts = os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            if facts.st_mode & 0o170000 == 0o100000:
                found.append((facts.st_mtime_ns, facts.st_size, path))
        if len(found) >= _LISTED_FILES:
            yield _make_listing(found)
            found = []
    yield _make_listing(found)


def _make_listing(found: list[tuple[int, int, str]]) -> tuple[list[str], Table]:
    """Sort by time, so that a commit concerns few days."""
    pa, _, _ = import_engines()
    found.sort()
    key, paths = site_key(), [path for _, _, path in found]
    hashes = [hashlib.blake2b(os.fsencode(path), key=key, digest_size=16).digest() for path in paths]
    columns = {
        "file": pa.array(hashes, pa.binary(16)),
        "size": pa.array([size for _, size, _ in found], pa.int64()),
        "mtime_ns": pa.array([moment for moment, _, _ in found], pa.int64()),
    }
    return paths, pa.table(columns)


class _Intake:
    """One listing that is being read; `fresh` are the positions of its files that are to be read."""

    def __init__(
        self,
        store: log_tables.LogStore,
        paths: list[str],
        files: Table,
        summary: IntakeSummary,
        report: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.store, self.paths, self.files, self.summary = store, paths, files, summary
        self.report, self.clock = report, clock
        self.fresh = store.unknown(files)
        self.file_systems = _file_system_names(store.system)
        self._waiting: list[Table] = []
        self._done = self._uncommitted = 0
        self._start = self._reported = self._committed = clock()

    def read(self, executor: Executor, workers: int) -> None:
        """Read all fresh files, a few batches per worker at a time, and commit what is there now and then."""
        batches = (self.fresh[i : i + _BATCH_LOGS] for i in range(0, len(self.fresh), _BATCH_LOGS))
        pending: dict[Future[Any], list[int]] = {}
        while True:
            while len(pending) < workers * _BATCHES_PER_WORKER and (batch := next(batches, None)):
                paths = [self.paths[i] for i in batch]
                pending[executor.submit(read_batch, paths, self.file_systems)] = batch
            if not pending:
                return
            done = wait(pending, _REPORT_S, return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=_is_lost):
                self._receive(pending.pop(future), _result(future))
            if self._uncommitted >= _COMMIT_LOGS or self.clock() - self._committed >= _COMMIT_S:
                self.commit()
            self._report_progress()

    def _receive(self, batch: list[int], rows: Table) -> None:
        for column in self.files.column_names:
            position = rows.schema.get_field_index(column)
            rows = rows.set_column(position, rows.schema.field(position), self.files[column].take(batch))
        self._waiting.append(rows)
        self._uncommitted += len(rows)
        self._done += len(rows)

    def commit(self) -> None:
        """Store what was received; files that could not be opened are left out, so that they are read again."""
        if not self._waiting:
            return
        pa, _, _ = import_engines()
        rows = _name_applications(pa.concat_tables(self._waiting))
        self._waiting, self._uncommitted, self._committed = [], 0, self.clock()
        outcomes = rows["outcome"].to_pylist()
        kept = [outcome not in REJECTIONS or REJECTIONS[outcome].is_final for outcome in outcomes]
        self.summary.outcomes.update(o for o, is_kept in zip(outcomes, kept, strict=True) if not is_kept)
        self.summary.outcomes.update(self.store.commit(rows.filter(pa.array(kept))))

    def _report_progress(self) -> None:
        now = self.clock()
        if now - self._reported < _REPORT_S:
            return
        self._reported = now
        rate = self._done / (now - self._start)
        left = f", {(len(self.fresh) - self._done) / rate / 60:.0f} min left" if rate else ""
        self.report(f"{self._done} of {len(self.fresh)} logs read, {rate:.0f} per second{left}")


def _is_lost(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def _result(future: Future[Any]) -> Any:
    """Return the result of a batch; errors of the engine are errors of the machine."""
    try:
        return future.result()
    except MachineError:
        raise
    except CancelledError as error:
        raise MachineError("the connection to the Dask scheduler is lost", hint=_CONTINUE) from error
    except Exception as error:  # of the engine, or of an installation that lacks iowatch
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise MachineError(f"the workers failed: {reason}", hint=_CONTINUE) from error


def _file_system_names(system: str) -> Mapping[str, str]:
    """Return directories and mount points to the names of file systems that `system.yaml` states."""
    if system not in system_names():
        return {}
    facts = load_system(system)
    measured = {os.path.expandvars(one.directory.path): one.name for one in facts.measured_file_systems}
    return measured | {one.mount: one.name for one in facts.file_systems if one.mount}


def _name_applications(rows: Table) -> Table:
    """Replace names of executables by keyed hashes, unless the site shows them."""
    if settings.site_settings().log_executables == "name":
        return rows
    pa, _, _ = import_engines()
    key, position = site_key(), rows.schema.get_field_index("application")
    names = rows["application"].to_pylist()
    hashed = {
        name: f"exe-{hashlib.blake2b(name.encode(), key=key, digest_size=6).hexdigest()}"
        for name in set(names) - {None}
    }
    return rows.set_column(
        position, rows.schema.field(position), pa.array([hashed.get(name) for name in names], pa.string())
    )
