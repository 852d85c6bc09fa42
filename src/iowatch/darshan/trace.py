"""What a Darshan log says about a run: the record that everything else here works on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from iowatch.darshan.isolate import Reader
from iowatch.errors import InputError

Status = Literal["ok", "partial", "unreadable"]


@dataclass(frozen=True)
class Trace:
    """The summary of one log.

    Attributes:
        status: `ok`; `partial` (some of it is missing, `reason` says what); `unreadable` (all of it).
        reason: None when ok.
        job: `ranks`, `exe`, `start`, `end` (UTC), `run_time_s`, `darshan_version`, `log_version`, `jobid`,
            `uid`, `metadata`.
        modules: module to Darshan's counter names to values, combined over records (docs/darshan.md, "Totals").
        derived: figures worked out from them (docs/darshan.md, "Derived figures").
        files: a row a file, most time first.
        missing: part of the log (module, `names`) to what is wrong with it.
    """

    status: Status
    reason: str | None
    job: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    derived: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Mapping[str, Any]] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def counter(self, name: str) -> float | None:
        """A counter of any module by Darshan's name; None where the log has not counted it (absent, or -1)."""
        value = next((counters[name] for counters in self.modules.values() if name in counters), None)
        return None if value is None or value == -1 else value

    def to_json(self) -> dict[str, Any]:
        """The document of `iowatch darshan LOG --json`."""
        return {
            "status": self.status,
            "reason": self.reason,
            "job": dict(self.job),
            "modules": {name: dict(counters) for name, counters in self.modules.items()},
            "derived": dict(self.derived),
            "files": [dict(row) for row in self.files],
            "missing": dict(self.missing),
        }


def read_trace(path: Path, reader: Reader | None = None) -> Trace:
    """Summarise one log.

    Args:
        path: the log.
        reader: a running reader to use; without it one is started for this log (about 0.4 s).

    Raises:
        InputError: the log is unreadable.
    """
    if reader is not None:
        return Trace(**reader.ask("summary", path))
    with Reader() as own:
        return Trace(**own.ask("summary", path))


def read_traces(paths: Iterable[Path], workers: int = 2) -> Iterator[tuple[Path, Trace]]:
    """Summarise many logs, in the order given; an unreadable one is a trace of that status, not an error.

    Args:
        paths: the logs.
        workers: how many to read at the same time.
    """
    with ExitStack() as stack:
        idle: SimpleQueue[Reader] = SimpleQueue()
        for _ in range(workers):
            idle.put(stack.enter_context(Reader()))

        def read(path: Path) -> tuple[Path, Trace]:
            reader = idle.get()
            try:
                return path, read_trace(path, reader)
            except InputError as error:
                return path, Trace("unreadable", error.message)
            finally:
                idle.put(reader)

        pool = stack.enter_context(ThreadPoolExecutor(workers))
        yield from pool.map(read, paths)
