"""The full report of one run, for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from iowatch.darshan.isolate import Reader
from iowatch.darshan.privacy import hide_log
from iowatch.errors import UsageError


def write_report(
    logs: Sequence[Path], target: Path, reader: Reader, privacy: str = "keep", name: str | None = None
) -> None:
    """Write PyDarshan's report of a log as one HTML file.

    Args:
        logs: exactly one.
        target: file to write.
        reader: to read with.
        privacy: `keep`, `hash` or `drop` user names and paths first.
        name: what the page calls the log where its file's name says nothing.

    Raises:
        UsageError: more than one log.
        InputError: the log is unreadable.
    """
    if len(logs) != 1:
        raise UsageError("a report is of one log", hint="Call it once for each log.")
    with TemporaryDirectory() as directory:
        log = logs[0]
        if privacy != "keep":
            log = Path(directory) / "hidden.darshan"
            hide_log(logs[0], log, privacy)
        reader.ask("report", log, output=str(target.absolute()), name=name)
