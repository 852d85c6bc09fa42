"""A session on disk and in the history: begun, filled case by case, ended; recovered after a kill."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from iowatch import artefacts, paths, spool
from iowatch.darshan import Reader, keeping
from iowatch.darshan.results import with_overhead, with_trace
from iowatch.errors import InputError, UsageError
from iowatch.model import Output
from iowatch.store import ExpectedResult, History, RunRecord, SessionRecord, StackRecord
from iowatch.store.records import Artefact, SessionStatus
from iowatch.units import utc_now

_SESSION = "session.json"
_ENDED = "ended"


def runs_directory() -> Path:
    """`var/runs`: one directory a session."""
    return paths.var() / "runs"


def begin(history: History, record: SessionRecord, expected: Sequence[ExpectedResult]) -> Path:
    """Begin a session: first on disk, so that a kill at any moment leaves it recoverable; then in history.

    Raises:
        UsageError: a setting is misspelt, or ReFrame could not work in `var/`; told before the night begins.
    """
    keeping.mode()
    place = runs_directory() / record.uuid
    if any(character.isspace() for character in str(place.absolute())):
        raise UsageError(
            f"ReFrame cannot work in '{paths.var()}': there is a blank in the path",
            hint="Set IOWATCH_VAR to a directory without blanks.",
        )
    (place / "cases").mkdir(parents=True)
    document = {
        **asdict(record),
        "attributes": dict(record.attributes),
        "expected": [asdict(e) for e in expected],
    }
    spool.write_json(place / _SESSION, document)
    history.begin_session(record, expected)
    return place


def new_record(system: str, suite: str, attributes: dict[str, object]) -> SessionRecord:
    """A session that starts now."""
    return SessionRecord(str(uuid.uuid4()), system, suite, "run", int(utc_now().timestamp()), attributes)


def ingest(history: History, place: Path, reader: Reader | None = None) -> list[spool.SpooledCase]:
    """Take all finished cases into the history, each committed by itself, and out of the spool.

    Args:
        place: `var/runs/<session>`.
        reader: reads Darshan logs; made for each log where none is given.
    """
    taken = []
    for directory in spool.finished(place):
        case = spool.get(directory)
        history.record_runs(place.name, [_run_record(place.name, directory, case, reader)])
        spool.remove(directory)
        taken.append(case)
    return taken


def _run_record(session: str, directory: Path, case: spool.SpooledCase, reader: Reader | None) -> RunRecord:
    kept = tuple(
        Artefact(kind, name, *content)
        for kind, names in case.files.items()
        for name in names
        if (content := (keeping.keep if kind == "darshan" else artefacts.keep)(directory / name)) is not None
    )
    # The directory is named after case, partition and stack, so this is the same however often it is taken in.
    identity = hashlib.sha256(f"{session}\0{directory.name}".encode()).hexdigest()
    return RunRecord(
        name=case.name,
        partition=case.partition,
        stack=StackRecord(case.stack_name, case.stack),
        fingerprint=identity,
        started_at=case.started_at,
        output=_traced(directory, case, reader),
        wall_s=case.wall_s,
        facts=case.facts,
        artefacts=kept,
    )


def _traced(directory: Path, case: spool.SpooledCase, reader: Reader | None) -> Output:
    """The case's output with what Darshan saw, and with the cost of tracing where it was measured."""
    logs = [directory / name for name in case.files.get("darshan", [])]
    output = with_trace(spool.output_of(case), logs, reader, case.stack)
    for name in case.files.get("overhead", []):
        output = with_overhead(output, directory / name)
    return output


def end(history: History, place: Path, status: SessionStatus) -> None:
    """Close the session; the mark spares later runs to look at it again."""
    history.end_session(place.name, status, int(utc_now().timestamp()))
    (place / _ENDED).touch()


def recover(history: History, system: str) -> list[str]:
    """Take in what killed sessions of this system left, and close them as incomplete; returns their UUIDs.

    A kill may also fall between the end of a session and its mark, and a job of a killed run may end after its
    session was closed: such cases are taken in, too.
    """
    recovered = []
    for path in sorted(runs_directory().glob(f"*/{_SESSION}")):
        place = path.parent
        if (place / _ENDED).exists() and not spool.finished(place):
            continue
        record, expected = _read(path)
        if record.system != system:
            continue
        history.begin_session(record, expected)
        ingest(history, place)
        if history.session(record.uuid).status == "running":
            end(history, place, "incomplete")
            recovered.append(record.uuid)
        else:
            (place / _ENDED).touch()
    return recovered


def sweep(max_age_s: float, *, rehearse: bool = False) -> list[str]:
    """Remove what ReFrame left of closed sessions (its log, stage, output); the history has all the rest.

    Args:
        max_age_s: of sessions that were closed longer ago.
        rehearse: remove nothing.

    Returns:
        UUIDs of the sessions whose directory goes. A session with cases that were not taken in stays.
    """
    latest = utc_now().timestamp() - max_age_s
    gone = []
    for mark in sorted(runs_directory().glob(f"*/{_ENDED}")):
        place = mark.parent
        if mark.stat().st_mtime < latest and not spool.finished(place):
            gone.append(place.name)
            if not rehearse:
                shutil.rmtree(place, ignore_errors=True)
    return gone


def _read(path: Path) -> tuple[SessionRecord, list[ExpectedResult]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        expected = [ExpectedResult(**item) for item in document.pop("expected")]
        return SessionRecord(**document), expected
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} does not describe a session: {error}", hint="Move its directory away."
        ) from error
