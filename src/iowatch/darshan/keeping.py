"""Keeping a run's log the way the site wants it: as it is, or without user names and paths."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from iowatch import artefacts
from iowatch.darshan.privacy import Mode, hide_log
from iowatch.errors import InputError, UsageError

VARIABLE = "IOWATCH_DARSHAN_PRIVACY"


def mode() -> Mode:
    """What `IOWATCH_DARSHAN_PRIVACY` asks for: `keep` (default), `hash` or `drop`.

    Raises:
        UsageError: it says something else.
    """
    asked = os.environ.get(VARIABLE) or "keep"
    for known in get_args(Mode):
        if asked == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"{VARIABLE} is '{asked}'", hint="Expected keep, hash or drop.")


def keep(log: Path) -> tuple[str, int] | None:
    """Keep a log under its content; returns SHA-256 and size.

    None where names were to be hidden and the log is damaged: half of them might stay.
    """
    if mode() == "keep":
        return artefacts.keep(log)
    with TemporaryDirectory() as directory:
        hidden = Path(directory) / log.name
        try:
            hide_log(log, hidden, mode())
        except InputError:
            return None
        return artefacts.keep(hidden)
