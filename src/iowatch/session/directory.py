"""The directory of a session, `var/runs/<uuid>`: started, closed, recovered after a kill, removed.

A session is written to disk first and to the history then. So a session that was killed at any time can be recovered:
`session.json` describes it, `cases/` is the spool of its finished cases, and `ended` marks a closed session.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from iowatch import checks
from iowatch.core import InputError, UsageError, clean_text, settings, utc_now
from iowatch.darshan import privacy_mode
from iowatch.session import ledger
from iowatch.session.ingest import ingest_spool
from iowatch.store import ExpectedResult, History, SessionFacts, SessionRecord, SessionStatus, engine_place

_SESSION_FILE = "session.json"
_ENDED_MARK = "ended"


def session_runs_directory() -> Path:
    """`var/runs`: one directory per session."""
    return settings.var_directory() / "runs"


def start_session(history: History, record: SessionRecord, expected: Sequence[ExpectedResult]) -> Path:
    """Start a session, first on disk, so that it is recoverable after a kill at any time, then in the history.

    Raises:
        UsageError: a setting is invalid, or ReFrame does not support the path of `var/`.
    """
    privacy_mode()
    directory = session_runs_directory() / record.uuid
    if any(character.isspace() for character in str(directory.absolute())):
        raise UsageError(
            f"ReFrame does not support '{settings.var_directory()}': there is a blank in the path",
            hint="Set IOWATCH_VAR to a directory without blanks.",
        )
    (directory / "cases").mkdir(parents=True)
    document = {**record.to_json(), "expected": [asdict(result) for result in expected]}
    checks.write_json_atomically(directory / _SESSION_FILE, document)
    history.begin_session(record, expected)
    _record_in_ledger(history, record)
    return directory


def _record_in_ledger(history: History, record: SessionRecord) -> None:
    """Note beside the history that it has this session: it may be restored from an older backup later."""
    session = history.chained_sessions(record.system)[record.uuid]
    ledger.record_session(session, engine_place(history.engine))


def close_session(history: History, directory: Path, status: SessionStatus) -> None:
    """Close the session and mark its directory, so that later sessions skip it."""
    history.end_session(directory.name, status, int(utc_now().timestamp()))
    (directory / _ENDED_MARK).touch()


def recover_sessions(history: History, system: str) -> list[str]:
    """Ingest the results of killed sessions of this system and close them as incomplete; returns their UUIDs.

    A process may also be killed between the end of a session and its mark, and a job of a killed run may end after
    its session was closed; these cases are ingested, too.
    """
    recovered: list[str] = []
    for path in sorted(session_runs_directory().glob(f"*/{_SESSION_FILE}")):
        directory = path.parent
        if (directory / _ENDED_MARK).exists() and not checks.finished_case_directories(directory):
            continue
        try:
            record, expected = _read_session_file(path)
            if record.system != system:
                continue
            # It may have been killed before the history had it.
            history.begin_session(record, expected)
            _record_in_ledger(history, record)
        except InputError as error:
            checks.quarantine(directory, directory.name, error.message)
            continue
        ingest_spool(history, directory)
        if history.session(record.uuid).status == "running":
            close_session(history, directory, "incomplete")
            recovered.append(record.uuid)
        else:
            (directory / _ENDED_MARK).touch()
    return recovered


def _read_session_file(path: Path) -> tuple[SessionRecord, list[ExpectedResult]]:
    """Read the record of a session, and its expected set at the start.

    Raises:
        InputError: the file is damaged, or describes another session.
    """
    try:
        document = clean_text(json.loads(path.read_text(encoding="utf-8")))
        expected = TypeAdapter(list[ExpectedResult]).validate_python(document.pop("expected"))
        facts = SessionFacts.from_document(TypeAdapter(dict[str, Any]).validate_python(document.pop("attributes")))
        record = TypeAdapter(SessionRecord).validate_python({**document, "facts": facts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} does not describe a session: {error}") from error
    if record.uuid != path.parent.name:
        raise InputError(f"{path} describes another session, {record.uuid}")
    return record, expected


def remove_old_session_files(max_age_s: float, *, dry_run: bool = False) -> list[str]:
    """Remove the directories of closed sessions (log, stage and output of ReFrame); the history has the results.

    Args:
        max_age_s: seconds; sessions that were closed longer ago are removed.
        dry_run: remove nothing.

    Returns:
        UUIDs of the removed sessions. A session with cases that are not in the history is kept.
    """
    latest = utc_now().timestamp() - max_age_s
    removed: list[str] = []
    for mark in sorted(session_runs_directory().glob(f"*/{_ENDED_MARK}")):
        directory = mark.parent
        if mark.stat().st_mtime >= latest or checks.finished_case_directories(directory):
            continue
        removed.append(directory.name)
        if not dry_run:
            shutil.rmtree(directory, ignore_errors=True)
    return removed
