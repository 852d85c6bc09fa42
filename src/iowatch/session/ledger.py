"""What this checkout knows of the sessions that it ran: `var/sessions/<system>.jsonl`, one line per session.

The history has the sessions, too. After the restore of an older backup, with another database or with deleted sessions
it does not, and nothing in the history itself would show it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from iowatch.core import MachineError, canonical_json, settings
from iowatch.store import ChainedSession

_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A session that this checkout ran.

    Attributes:
        session: its UUID.
        number, digest: in the chain of the history (`iowatch.store.chain`).
        started_at: epoch seconds.
        history: URL of the history that has it, without a password.
    """

    session: str
    number: int
    digest: str
    started_at: int
    history: str


_ENTRY = TypeAdapter(LedgerEntry)


def _ledger_directory() -> Path:
    return settings.var_directory() / "sessions"


def _ledger_path(system: str) -> Path:
    return _ledger_directory() / f"{system}{_SUFFIX}"


def systems_in_ledger() -> list[str]:
    """Systems of which this checkout ran sessions."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _ledger_directory().glob(f"*{_SUFFIX}"))


def read_ledger(system: str) -> list[LedgerEntry]:
    """The sessions of a system that this checkout ran, in the order in which they began.

    A line that a full disk cut off is left out: the session after it is in the next line.

    Raises:
        MachineError: the file cannot be read.
    """
    path = _ledger_path(system)
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise MachineError(
            f"{path} cannot be read: {error.strerror}", hint="Check its owner and its rights."
        ) from error
    entries: list[LedgerEntry] = []
    for line in lines:
        try:
            entries.append(_ENTRY.validate_json(line))
        except ValidationError:
            continue
    return entries


def record_session(session: ChainedSession, history: str) -> None:
    """Add a session to what this checkout knows; one that it knows already is not added again.

    Args:
        history: URL of its history, without a password.

    Raises:
        MachineError: the file cannot be written.
    """
    if session.uuid in {entry.session for entry in read_ledger(session.system)}:
        return
    entry = LedgerEntry(session.uuid, session.number, session.digest, session.started_at, history)
    path = _ledger_path(session.system)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line that was cut off must not damage this one: blank lines are left out.
        line = f"\n{canonical_json(_ENTRY.dump_python(entry))}\n"
        with path.open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        hint = "Check its owner, its rights and its free space."
        raise MachineError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def entries_missing_from(entries: Iterable[LedgerEntry], sessions: dict[str, ChainedSession]) -> list[LedgerEntry]:
    """The entries whose session is not in the history, or is another one there.

    Args:
        sessions: all sessions of the system in the history, by UUID.
    """
    missing: list[LedgerEntry] = []
    for entry in entries:
        session = sessions.get(entry.session)
        if session is None or session.digest != entry.digest:
            missing.append(entry)
    return missing
