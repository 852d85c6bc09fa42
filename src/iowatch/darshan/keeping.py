"""Keeping a run's log the way the site wants it: as it is, or without user names and paths."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from iowatch import artefacts
from iowatch.darshan.isolate import Reader
from iowatch.darshan.privacy import Mode, hide_log
from iowatch.darshan.trace import Trace, read_trace
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


def first_trace(digests: Iterable[str], reader: Reader) -> Trace | None:
    """What the first of a run's logs says that is still kept; None where it is not whole.

    A program that is started several times leaves several logs, each as good as the others.

    Args:
        digests: SHA-256 of the run's logs.
    """
    path = next((path for digest in digests if (path := artefacts.path_of(digest)).is_file()), None)
    try:
        trace = read_trace(path, reader) if path is not None else None
    except InputError:
        return None
    return trace if trace is not None and trace.status == "ok" else None


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
