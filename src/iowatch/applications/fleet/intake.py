"""A directory of Darshan logs into the tables of a system: listed, read by Dask workers, committed here.

Only this process writes, so that a worker can be killed at any time: its batch is read again by another one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iowatch.applications.fleet import LOG_EXECUTABLES
from iowatch.applications.fleet.batch import COPY, COUNTED, REJECTIONS, import_engines, read_batch
from iowatch.applications.fleet.tables import LogStore
from iowatch.core import MachineError, UsageError, settings
from iowatch.darshan import site_key
from iowatch.session.workers import Engine
from iowatch.site import load_system, system_names

if TYPE_CHECKING:
    from pyarrow import Table

_LOGGER = logging.getLogger(__name__)
# Logs per task: some tenths of a second, so that little is read again after a kill.
_BATCH_LOGS = 100
# Batches per worker that are under way; the rest of a year of logs waits here as names.
_BATCHES_PER_WORKER = 3
# A commit writes at most this much again if this process is killed, and a part is not written for every batch.
_COMMIT_LOGS, _COMMIT_S = 5000, 30.0
# Files that are listed and compared with the ledger at once.
_LISTED_FILES = 250_000
# Between two messages of progress.
_PROGRESS_S = 10.0
_CONTINUE = "What was committed is kept; the same command reads the rest."


@dataclass
class IntakeSummary:
    """What `iowatch logs add` did.

    Attributes:
        offered: regular files in the directory.
        known: of these, files that were read before and did not change.
        outcomes: `counted`, `copy` (the log of another file) or the key of a rejection to number of files.
        links: symbolic links, which are not followed.
        unlisted: directories that could not be listed, with the reason.
    """

    system: str
    directory: str
    offered: int = 0
    known: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    links: int = 0
    unlisted: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Why the call did not do what it was meant to, one sentence each; empty if it did."""
        problems = [f"not listed: {text}" for text in self.unlisted]
        counted = self.outcomes[COUNTED] + self.outcomes[COPY] + self.known
        if self.offered == 0:
            text = f"{self.directory} has no files: is its file system mounted?"
            if self.links:
                text = f"{self.directory} has no files, but {self.links} symbolic links, which are not followed"
            problems.append(text)
        elif counted == 0:
            problems.append(f"none of the {self.offered} files below {self.directory} is a log that can be read")
        return problems

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch logs add --json`; `rejected` names every reason.

        `known` are logs of an earlier call, `copies` logs with the content of another file.
        """
        return {
            "system": self.system,
            "directory": self.directory,
            "offered": self.offered,
            "known": self.known,
            "seconds": self.seconds,
            "counted": self.outcomes[COUNTED],
            "copies": self.outcomes[COPY],
            "rejected": {key: self.outcomes[key] for key in REJECTIONS},
            "problems": self.problems(),
        }

    def format_lines(self) -> Iterator[str]:
        """Yield the counts, then one line per reason for which files were not counted."""
        added = f"{self.outcomes[COUNTED]} logs counted, {self.outcomes[COPY]} copies"
        yield f"{self.system}: {added}, {self.known} known of {self.offered} files"
        for key, rejection in REJECTIONS.items():
            if self.outcomes[key]:
                yield f"  {self.outcomes[key]} not counted: {rejection.text}"


def add_logs(
    directory: Path, system: str, engine: Engine, clock: Callable[[], float] = time.monotonic
) -> IntakeSummary:
    """Read the logs below a directory that are new or changed, and add them to the tables of a system.

    Args:
        directory: is searched with all directories below it; symbolic links are not followed.
        system: name of the system that ran the jobs.
        engine: opens an executor that reads batches, with its number of workers; only if there is something to read.
        clock: seconds.

    Raises:
        UsageError: not a directory, or an impossible name. MachineError: workers or the scheduler are lost; what was
            committed remains, the rest is read by the next call.
    """
    if not directory.exists():
        raise UsageError(f"{directory}: no such directory")
    if not directory.is_dir():
        raise UsageError(f"{directory}: not a directory")
    store = LogStore(system)
    start_s = clock()
    summary = IntakeSummary(system, str(directory))
    with store.adding(), ExitStack() as resources:
        # Workers start when there is something to read, once.
        workers: _Workers | None = None
        for listing in _list_files(directory.absolute(), summary):
            intake = _Intake(store, listing, summary, clock)
            summary.offered += len(listing.paths)
            summary.known += len(listing.paths) - len(intake.unread)
            if not intake.unread:
                continue
            if workers is None:
                workers = _Workers(*resources.enter_context(engine()))
            try:
                intake.read(workers)
            finally:
                intake.commit()
    summary.seconds = round(clock() - start_s, 3)
    return summary


@dataclass(frozen=True)
class _Workers:
    """Where batches are read, and the number of workers there."""

    executor: Executor
    number: int


@dataclass(frozen=True)
class _FileListing:
    """Files of the directory: n paths, and a table with the columns of the ledger (`file`, `size`, `mtime_ns`)."""

    paths: list[str]
    table: Table


@dataclass(frozen=True, slots=True)
class _File:
    """A regular file."""

    mtime_ns: int
    size: int
    path: str


def _list_files(directory: Path, summary: IntakeSummary) -> Iterator[_FileListing]:
    """Yield the regular files below a directory, many at a time; those of each listing in order of time.

    Args:
        summary: receives the directories and files that cannot be read.
    """

    def add_error(error: OSError) -> None:
        # What went away since its directory was read is no error: jobs end and logs are moved.
        if not isinstance(error, FileNotFoundError):
            summary.unlisted.append(f"{error.filename}: {error.strerror}")

    files: list[_File] = []
    for folder, subfolders, names in os.walk(directory, onerror=add_error):
        subfolders.sort()
        summary.links += sum(Path(folder, name).is_symlink() for name in subfolders)
        for name in names:
            path = f"{folder}/{name}"
            try:
                status = os.lstat(path)
            except OSError as error:
                add_error(error)
                continue
            if stat.S_ISREG(status.st_mode):
                files.append(_File(status.st_mtime_ns, status.st_size, path))
            elif stat.S_ISLNK(status.st_mode):
                summary.links += 1
        if len(files) >= _LISTED_FILES:
            yield _make_listing(files)
            files = []
    yield _make_listing(files)


def _make_listing(files: list[_File]) -> _FileListing:
    # In order of time, so that a commit concerns few days.
    ordered = sorted(files, key=lambda file: (file.mtime_ns, file.size, file.path))
    # The tables have no names of files, only hashes with the key of the site.
    key = site_key()
    hashed_paths: list[bytes] = []
    for file in ordered:
        digest = hashlib.blake2b(os.fsencode(file.path), key=key, digest_size=16)
        hashed_paths.append(digest.digest())
    pyarrow = import_engines().pyarrow
    columns = {
        "file": pyarrow.array(hashed_paths, pyarrow.binary(16)),
        "size": pyarrow.array([file.size for file in ordered], pyarrow.int64()),
        "mtime_ns": pyarrow.array([file.mtime_ns for file in ordered], pyarrow.int64()),
    }
    return _FileListing([file.path for file in ordered], pyarrow.table(columns))


class _Intake:
    """One listing that is being read; `unread` are the positions of its files that are to be read."""

    def __init__(
        self, store: LogStore, listing: _FileListing, summary: IntakeSummary, clock: Callable[[], float]
    ) -> None:
        self.store = store
        self.listing = listing
        self.summary = summary
        self.clock = clock
        self.unread = store.unknown(listing.table)
        self.file_systems = _file_system_names(store.system)
        # Rows that were received and are not in the tables yet.
        self._uncommitted: list[Table] = []
        self._uncommitted_logs = 0
        self._read_logs = 0
        self._started_s = self._progress_s = self._committed_s = clock()

    def read(self, workers: _Workers) -> None:
        """Read all unread files, a few batches per worker at a time, and commit what is there now and then."""
        batches = (self.unread[start : start + _BATCH_LOGS] for start in range(0, len(self.unread), _BATCH_LOGS))
        batch_of_future: dict[Future[Any], list[int]] = {}
        while True:
            # As many new batches as others have ended.
            for batch in islice(batches, workers.number * _BATCHES_PER_WORKER - len(batch_of_future)):
                paths = [self.listing.paths[position] for position in batch]
                batch_of_future[workers.executor.submit(read_batch, paths, self.file_systems)] = batch
            if not batch_of_future:
                return
            ended = wait(batch_of_future, _PROGRESS_S, return_when=FIRST_COMPLETED).done
            # Those that failed come last: their error ends the intake, and what others have read is received before.
            for future in sorted(ended, key=_is_lost):
                self._receive(batch_of_future.pop(future), _result(future))
            if self._uncommitted_logs >= _COMMIT_LOGS or self.clock() - self._committed_s >= _COMMIT_S:
                self.commit()
            self._report_progress()

    def _receive(self, batch: list[int], rows: Table) -> None:
        """Keep the rows of a batch for the next commit, with the columns of the ledger."""
        for column in self.listing.table.column_names:
            position = rows.schema.get_field_index(column)
            values = self.listing.table[column].take(batch)
            rows = rows.set_column(position, rows.schema.field(position), values)
        self._uncommitted.append(rows)
        self._uncommitted_logs += len(rows)
        self._read_logs += len(rows)

    def commit(self) -> None:
        """Store what was received; files that could not be opened are left out, so that they are read again."""
        if not self._uncommitted:
            return
        pyarrow = import_engines().pyarrow
        rows = _name_applications(pyarrow.concat_tables(self._uncommitted))
        self._uncommitted = []
        self._uncommitted_logs = 0
        self._committed_s = self.clock()
        # The summary counts all files, the tables have only those with a final outcome.
        has_final_outcome: list[bool] = []
        for outcome in rows["outcome"].to_pylist():
            rejection = REJECTIONS.get(outcome)
            is_final = rejection is None or rejection.is_final
            has_final_outcome.append(is_final)
            if not is_final:
                self.summary.outcomes[outcome] += 1
        final_rows = rows.filter(pyarrow.array(has_final_outcome))
        self.summary.outcomes.update(self.store.commit(final_rows))

    def _report_progress(self) -> None:
        now_s = self.clock()
        if now_s - self._progress_s < _PROGRESS_S:
            return
        self._progress_s = now_s
        logs_per_s = self._read_logs / (now_s - self._started_s)
        progress = f"{self._read_logs} of {len(self.unread)} logs read, {logs_per_s:.0f} per second"
        if logs_per_s:
            minutes_left = (len(self.unread) - self._read_logs) / logs_per_s / 60
            progress += f", {minutes_left:.0f} min left"
        _LOGGER.info("%s", progress)


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
    description = load_system(system)
    names = {}
    for measured in description.measured_file_systems:
        names[os.path.expandvars(measured.directory.path)] = measured.name
    for file_system in description.file_systems:
        if file_system.mount:
            names[file_system.mount] = file_system.name
    return names


def _name_applications(rows: Table) -> Table:
    """Replace names of executables by keyed hashes, unless the site shows them."""
    if settings.capability_setting(LOG_EXECUTABLES.name) == "name":
        return rows
    pyarrow = import_engines().pyarrow
    key = site_key()
    names = rows["application"].to_pylist()
    hashed_name: dict[str | None, str | None] = {None: None}
    for name in set(names) - {None}:
        digest = hashlib.blake2b(name.encode(), key=key, digest_size=6)
        hashed_name[name] = f"exe-{digest.hexdigest()}"
    position = rows.schema.get_field_index("application")
    hashed_names = pyarrow.array([hashed_name[name] for name in names], pyarrow.string())
    return rows.set_column(position, rows.schema.field(position), hashed_names)
