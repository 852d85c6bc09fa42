"""`var/pulse/<system>/<client>/<file system>.db`: what pulses measured, percentiles per hour, and stalls.

    level     one row per pulse and operation, 56 days: what stalls are assessed by
    sample    every repetition, two days: what the percentiles of an hour are computed from
    hour      percentiles per operation and hour, kept for ever (about 2 MB a year)
    stall     begin and end of each stall

A file has one writer, the pulses of one client, so that hosts do not wait for each other. Times are epoch seconds UTC,
durations whole nanoseconds.
"""

from __future__ import annotations

import json
import re
import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iowatch.core import DAY_S, InputError, MachineError, settings, write_atomically
from iowatch.pulse.probe import LeftProcess, Outcome, Reading

SCHEMA_VERSION = 1
HOUR_S = 3600
# Eight weeks: eight values of each hour of the week.
LEVEL_DAYS = 56
_SAMPLE_DAYS = 2
# A client is part of a path.
CLIENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE pulse (
    time INTEGER PRIMARY KEY,
    in_session INTEGER NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE level (
    time INTEGER NOT NULL,
    operation TEXT NOT NULL,
    ns INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (time, operation)
) WITHOUT ROWID;
CREATE TABLE sample (time INTEGER NOT NULL, operation TEXT NOT NULL, ns INTEGER NOT NULL);
CREATE INDEX sample_time ON sample (time);
CREATE TABLE hour (
    hour INTEGER NOT NULL,
    operation TEXT NOT NULL,
    samples INTEGER NOT NULL,
    p10_ns INTEGER,
    p50_ns INTEGER,
    p90_ns INTEGER,
    p99_ns INTEGER,
    max_ns INTEGER,
    unfinished INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (hour, operation)
) WITHOUT ROWID;
CREATE TABLE stall (
    operation TEXT NOT NULL,
    began INTEGER NOT NULL,
    event INTEGER NOT NULL,
    usual_ns INTEGER,
    level_ns INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    ended INTEGER,
    how_ended TEXT,
    PRIMARY KEY (operation, began)
) WITHOUT ROWID;
"""

HowEnded = Literal["usual again", "new usual level"]


@dataclass(frozen=True)
class HourOfOperation:
    """Percentiles of one operation in one hour.

    Attributes:
        hour: its begin.
        samples: number of repetitions that ended; the percentiles are None without any.
        unfinished, failed: number of pulses in which the operation did not end, or was refused.
    """

    hour: int
    operation: str
    samples: int
    p10_ns: int | None
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    unfinished: int
    failed: int


@dataclass(frozen=True)
class Stall:
    """An operation that takes much longer than usual, or does not end.

    Attributes:
        began: first pulse of the stall.
        event: begin of the first of the stalls that overlap or follow each other; they are reported together.
        usual_ns: usual time at this hour; None before there is one.
        level_ns: median of the first pulses; of an unfinished operation at least this.
        outcome: of the first pulses: `completed` for a slow operation.
        ended: first pulse after it; None while it lasts.
    """

    operation: str
    began: int
    event: int
    usual_ns: int | None
    level_ns: int
    outcome: Outcome
    reason: str = ""
    ended: int | None = None
    how_ended: HowEnded | None = None


@dataclass(frozen=True)
class Level:
    """One operation in one pulse, as it is assessed."""

    time: int
    operation: str
    ns: int
    outcome: Outcome
    reason: str
    in_session: bool


def pulse_directory(system: str) -> Path:
    """Return the directory of the pulses of a system, which need not exist."""
    return settings.var_directory() / "pulse" / system


def store_path(system: str, client: str, file_system: str) -> Path:
    """Return the file of the pulses of a client on a file system, which need not exist."""
    return pulse_directory(system) / client / f"{file_system}.db"


@dataclass(frozen=True, order=True)
class StoreFile:
    """A file of pulses, by what it is about."""

    file_system: str
    client: str
    path: Path


def list_stores(system: str) -> tuple[StoreFile, ...]:
    """Return the files of pulses of a system, by file system, then client."""
    files = [StoreFile(path.stem, path.parent.name, path) for path in pulse_directory(system).glob("*/*.db")]
    return tuple(sorted(files))


# Stalls that ended earlier were reported.
NEWS_DAYS = 2


# An event is over after an hour without a stall: a file system that stalls again and again is one event.
EVENT_REST_S = HOUR_S


def state_of_stalls(system: str, now_s: int) -> str:
    """Return a text that changes whenever there is something new to report about stalls; empty without a recent one.

    To compose and send notices takes longer than a pulse: most pulses compare this text with `reported_state`.
    """
    state: list[tuple[object, ...]] = []
    for file in list_stores(system):
        with open_store(file.path) as store:
            for stall in store.stalls(now_s - NEWS_DAYS * DAY_S):
                is_over = stall.ended is not None and stall.ended <= now_s - EVENT_REST_S
                state.append((file.file_system, file.client, stall.operation, stall.began, stall.ended, is_over))
    return json.dumps(state) if state else ""


def _reported_path(system: str) -> Path:
    return pulse_directory(system) / "reported.json"


def reported_state(system: str) -> str:
    """Return the `state_of_stalls` of which every notice was delivered; empty before the first."""
    try:
        return _reported_path(system).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def set_reported_state(system: str, state: str) -> None:
    """Remember that all about this state was delivered."""
    write_atomically(_reported_path(system), state)


@contextmanager
def open_store(path: Path, *, create: bool = False) -> Iterator[PulseStore]:
    """Open a file of pulses; what the block wrote is committed if it ends without an exception.

    Args:
        create: also create the file; without it the file is only read.

    Raises:
        InputError: it does not exist, is damaged, or of a newer iowatch.
        MachineError: it cannot be written, or another pulse holds it for longer than a second.
    """
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        else:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            if create:
                connection.execute("BEGIN IMMEDIATE")
            store = PulseStore(connection, path)
            store.check_schema(create)
            yield store
            if create:
                connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if not create and not path.exists():
            raise InputError(f"no pulses in {path}", hint="`iowatch pulse run` takes one.") from error
        hint = "Is its directory writable?"
        if "locked" in str(error):
            hint = "Another pulse of this client takes place; login nodes of one kind take turns (docs/pulse.md)."
        raise MachineError(f"cannot use {path}: {error}", hint=hint) from error
    except sqlite3.DatabaseError as error:
        hint = "Move it elsewhere; the next pulse begins a new file."
        raise InputError(f"{path} is damaged: {error}", hint=hint) from error
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from error


class PulseStore:
    """An open file of pulses; see `open_store`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def check_schema(self, create: bool) -> None:
        """Create the tables in a new file.

        Raises:
            InputError: the file is of a newer iowatch, or has no pulses.
        """
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and create:
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")
        elif version != SCHEMA_VERSION:
            raise InputError(f"{self._path} has version {version}; this iowatch supports {SCHEMA_VERSION}")

    def size_bytes(self) -> int:
        """Size of the file as far as it is in use."""
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * self._connection.execute("PRAGMA page_size").fetchone()[0])

    def fact(self, name: str) -> str | None:
        """A fact about the file system, for example on what its tree was made."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str | None) -> None:
        """Set a fact, or delete it."""
        if value is None:
            self._connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def left_process(self) -> LeftProcess | None:
        """The process that an earlier pulse left behind."""
        text = self.fact("left_process")
        return None if text is None else LeftProcess(**json.loads(text))

    def set_left_process(self, process: LeftProcess | None) -> None:
        """Remember a process that is left behind, so that no second one is started; None if there is none."""
        text = None if process is None else json.dumps(process.__dict__)
        self.set_fact("left_process", text)

    def add_pulse(self, time_s: int, readings: Sequence[Reading], in_session: bool, reason: str = "") -> None:
        """Add a pulse; one at the same second is replaced.

        Args:
            in_session: whether a session of iowatch was running.
            reason: why it has no readings.
        """
        execute = self._connection.execute
        execute("DELETE FROM pulse WHERE time = ?", (time_s,))
        execute("DELETE FROM level WHERE time = ?", (time_s,))
        execute("DELETE FROM sample WHERE time = ?", (time_s,))
        execute("INSERT INTO pulse VALUES (?, ?, ?)", (time_s, in_session, reason))
        for reading in readings:
            row = (time_s, reading.operation, reading.level_ns, reading.outcome, reading.reason)
            execute("INSERT INTO level VALUES (?, ?, ?, ?, ?)", row)
            samples = [(time_s, reading.operation, sample_ns) for sample_ns in reading.samples_ns]
            self._connection.executemany("INSERT INTO sample VALUES (?, ?, ?)", samples)

    def summarise_hours(self, now_s: int) -> None:
        """Compute the percentiles of hours that have ended, and delete what is older than it is needed."""
        this_hour = now_s - now_s % HOUR_S
        (newest,) = self._connection.execute("SELECT max(hour) FROM hour").fetchone()
        begin = 0 if newest is None else newest + HOUR_S
        query = "SELECT DISTINCT time - time % 3600 FROM level WHERE time >= ? AND time < ? ORDER BY 1"
        hours = [hour for (hour,) in self._connection.execute(query, (begin, this_hour))]
        for hour in hours:
            rows = [tuple(summary.__dict__.values()) for summary in self.summary_of(hour)]
            self._connection.executemany("INSERT OR REPLACE INTO hour VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
        oldest_sample, oldest_level = this_hour - _SAMPLE_DAYS * DAY_S, this_hour - LEVEL_DAYS * DAY_S
        self._connection.execute("DELETE FROM sample WHERE time < ?", (oldest_sample,))
        self._connection.execute("DELETE FROM level WHERE time < ?", (oldest_level,))
        self._connection.execute("DELETE FROM pulse WHERE time < ?", (oldest_level,))

    def summary_of(self, hour: int) -> list[HourOfOperation]:
        """Percentiles of the operations in an hour, from its samples."""
        samples: dict[str, list[int]] = {}
        query = "SELECT operation, ns FROM sample WHERE time >= ? AND time < ?"
        for operation, sample_ns in self._connection.execute(query, (hour, hour + HOUR_S)):
            samples.setdefault(operation, []).append(sample_ns)
        query = (
            "SELECT operation, sum(outcome = 'unfinished'), sum(outcome = 'failed') FROM level"
            " WHERE time >= ? AND time < ? GROUP BY operation"
        )
        summaries = []
        for operation, unfinished, failed in self._connection.execute(query, (hour, hour + HOUR_S)):
            values = sorted(samples.get(operation, ()))
            summaries.append(
                HourOfOperation(
                    hour=hour,
                    operation=operation,
                    samples=len(values),
                    p10_ns=_percentile(values, 10),
                    p50_ns=_percentile(values, 50),
                    p90_ns=_percentile(values, 90),
                    p99_ns=_percentile(values, 99),
                    max_ns=_percentile(values, 100),
                    unfinished=unfinished,
                    failed=failed,
                )
            )
        return summaries

    def hours(self, begin_s: int, end_s: int) -> list[HourOfOperation]:
        """Percentiles of the hours that have ended and begin in a period, in order of time."""
        query = "SELECT * FROM hour WHERE hour >= ? AND hour < ? ORDER BY hour, operation"
        return [HourOfOperation(*row) for row in self._connection.execute(query, (begin_s, end_s))]

    def levels(self, begin_s: int, end_s: int) -> list[Level]:
        """Levels of the pulses in a period, in order of time."""
        query = (
            "SELECT level.time, operation, ns, outcome, level.reason, in_session"
            " FROM level JOIN pulse ON pulse.time = level.time"
            " WHERE level.time >= ? AND level.time < ? ORDER BY level.time"
        )
        return [
            Level(time_s, operation, ns, outcome, reason, bool(in_session))
            for time_s, operation, ns, outcome, reason, in_session in self._connection.execute(query, (begin_s, end_s))
        ]

    def newest_pulse(self) -> int | None:
        """Time of the newest pulse; None before the first."""
        (time_s,) = self._connection.execute("SELECT max(time) FROM pulse").fetchone()
        return None if time_s is None else int(time_s)

    def newest_reason(self) -> str:
        """Why the newest pulse has no readings; empty if it has."""
        row = self._connection.execute("SELECT reason FROM pulse ORDER BY time DESC LIMIT 1").fetchone()
        return "" if row is None else str(row[0])

    def stalls(self, since_s: int = 0) -> list[Stall]:
        """Stalls that last, and those that ended since a time, in order of their begin."""
        query = (
            "SELECT operation, began, event, usual_ns, level_ns, outcome, reason, ended, how_ended FROM stall"
            " WHERE ended IS NULL OR ended >= ? ORDER BY began, operation"
        )
        return [Stall(*row) for row in self._connection.execute(query, (since_s,))]

    def save_stall(self, stall: Stall) -> None:
        """Add a stall, or replace it by its new state."""
        row = (
            *(stall.operation, stall.began, stall.event, stall.usual_ns, stall.level_ns),
            *(stall.outcome, stall.reason, stall.ended, stall.how_ended),
        )
        self._connection.execute("INSERT OR REPLACE INTO stall VALUES (?,?,?,?,?,?,?,?,?)", row)


def _percentile(values: Sequence[int], percent: int) -> int | None:
    """Percentile of sorted values, between the two nearest; None without values."""
    if not values:
        return None
    if len(values) == 1 or percent == 100:
        return values[-1]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return round(cuts[percent - 1])
