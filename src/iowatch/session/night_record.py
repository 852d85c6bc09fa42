"""How the last night of a system ended, in `var/night/<system>.json`.

A night may fail before it has a session: the scratch directory is not mounted, a file of the site is damaged, the clock
is wrong. Without this record nobody would be notified, because notices are composed from sessions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from iowatch.core import parse_json, settings, utc_now, write_atomically

# Exit codes with which no session was assessed: wrong use or bad input, and an internal or system error.
_ERROR_CODES = (2, 3)


@dataclass(frozen=True)
class NightRecord:
    """The end of the last night.

    Attributes:
        ended_s: epoch seconds.
        exit_code: of `iowatch run --night`.
        message: of the error that ended it; empty without one.
        failed_before: number of nights in succession before it that ended with an error.
    """

    ended_s: int
    exit_code: int
    message: str
    failed_before: int

    @property
    def failed(self) -> bool:
        """Whether the night ended with an error, before a verdict."""
        return self.exit_code in _ERROR_CODES


def _record_path(system: str) -> Path:
    return settings.var_directory() / "night" / f"{system}.json"


def read_night_record(system: str) -> NightRecord | None:
    """The record of the last night; None before the first one, and if it cannot be read: the next night replaces it."""
    try:
        document = parse_json(_record_path(system).read_text(encoding="utf-8"))
        return NightRecord(**document)
    except (OSError, ValueError, TypeError):
        return None


def write_night_record(system: str, exit_code: int, message: str = "") -> None:
    """Record how a night ended.

    Raises:
        MachineError: the file cannot be written.
    """
    before = read_night_record(system)
    failed_before = 0
    if before is not None and before.failed:
        failed_before = before.failed_before + 1
    record = NightRecord(int(utc_now().timestamp()), exit_code, message, failed_before)
    write_atomically(_record_path(system), json.dumps(asdict(record), ensure_ascii=False))
