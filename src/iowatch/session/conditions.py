"""Conditions that must hold from session to session: file system of scratch, clock, and the series of each case."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from iowatch.core import MachineError, Scalar, format_time, utc_now
from iowatch.session.reframe import ReframePartition
from iowatch.site import FileSystemIdentity, System, storage
from iowatch.store import ExpectedResult, History, SessionRow

# In `expected_file_systems`: the host that starts the session.
HOST = ""
_SESSIONS = 20


def _run_sessions(history: History, system: str) -> list[SessionRow]:
    """The newest sessions that measured on this system."""
    return [row for row in history.sessions(system) if row.origin == "run"][:_SESSIONS]


def expected_file_systems(
    history: History | None, system: System, partitions: Sequence[ReframePartition], file_system: str | None = None
) -> dict[str, FileSystemIdentity]:
    """What the directory of a file system must be on, by partition and for `HOST`: as declared, else as last recorded.

    Only successful runs count: the file system of a run that failed for it is not expected from then on.

    Args:
        file_system: None for the default one.
    """
    places = [HOST, *(part.name for part in partitions)]
    measured = next((one for one in system.measured_file_systems if one.parameter == file_system), None)
    declared = measured.declared.declared if measured else {}
    found: dict[str, Mapping[str, str]] = {}
    only_declared = bool(measured and measured.directory.declared)
    for row in _run_sessions(history, system.name) if history and not only_declared else ():
        if here := session_identities(row).get(file_system):
            found.setdefault(HOST, here)
        if all(place in found for place in places):
            break
        for run in history.runs(row.uuid) if history else ():
            identity = run.facts.scratch_file_system
            if run.status == "ok" and run.facts.file_system == file_system and identity is not None:
                found.setdefault(run.partition, identity)
    return {place: FileSystemIdentity(**{**found.get(place, {}), **declared}) for place in places}


def session_identities(session: SessionRow) -> dict[str | None, Mapping[str, str]]:
    """Declared fields of the identity of each file system that a session used on its host, None for the default one."""
    identities: dict[str | None, Mapping[str, str]] = {}
    if session.facts.scratch_file_system:
        identities[None] = session.facts.scratch_file_system
    for name, used in session.facts.file_systems.items():
        identities[name] = used.identity
    return identities


def check_clock(history: History, system: str) -> None:
    """Check that this session is not before the newest one: results are ordered by time.

    `IOWATCH_WRONG_CLOCK` lists UUIDs of sessions whose own clock was wrong; they do not count.

    Raises:
        MachineError: the clock is more than `storage.CLOCK_TOLERANCE_S` behind the start of the newest session.
    """
    wrong = os.environ.get("IOWATCH_WRONG_CLOCK", "").split()
    newest = next((row for row in _run_sessions(history, system) if row.uuid not in wrong), None)
    now = utc_now()
    if newest is None or now.timestamp() >= newest.started_at - storage.CLOCK_TOLERANCE_S:
        return
    raise MachineError(
        f"the clock of this machine ({format_time(now)}) is before the newest session of '{system}' "
        f"({newest.uuid}, {format_time(datetime.fromtimestamp(newest.started_at, UTC))}): results are ordered by time",
        hint=f"Set the clock. If it is right and that session's was wrong: IOWATCH_WRONG_CLOCK={newest.uuid}.",
    )


def check_default_file_system(history: History, system: System) -> None:
    """Check that the default file system is the one of the last session: its series do not contain its name.

    Raises:
        MachineError: it has another name, after a change of system.yaml.
    """
    known = system.measured_file_systems
    rows = _run_sessions(history, system.name) if len(known) > 1 else []
    names = (row.facts.default_file_system for row in rows)
    before = next((name for name in names if name is not None), None)
    if before is not None and before != known[0].name:
        raise MachineError(
            f"the default file system of '{system.name}' is '{known[0].name}', and was '{before}' in its last session: "
            "its results would continue the series of the other one",
            hint=f"Make '{before}' the default one in system.yaml again (`scratch`, or the first with a directory).",
        )


_COMPARED_SESSIONS = 5


def ended_series(history: History, session: SessionRow) -> list[str]:
    """Return one sentence per change of case parameters that ended series although their cases ran.

    Without this the results would be in other series, where no earlier observation shows a change. Compared with the
    last sessions of the suite; after as many sessions the new series is the usual one.
    """
    wanted = set(history.expected(session.uuid))
    now: dict[ExpectedResult, list[Mapping[str, Scalar]]] = {}
    for item, case in history.received_cases(session.uuid):
        if item in wanted:
            now.setdefault(item, []).append(case)
    rows = (row for row in history.sessions(session.system) if row.origin == "run" and row.suite == session.suite)
    earlier = [row for row in rows if (row.started_at, row.id) < (session.started_at, session.id)]
    ended: dict[str, set[ExpectedResult]] = {}
    for row in earlier[:_COMPARED_SESSIONS]:
        for item, case in history.received_cases(row.uuid):
            if (found := now.get(item)) and case not in found:
                ended.setdefault(_format_changes(case, found[0]), set()).add(item)
    return [_format_ended(items, changes) for changes, items in ended.items()]


def _format_changes(before: Mapping[str, Scalar], now: Mapping[str, Scalar]) -> str:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {now.get(name, 'none')} instead of {before.get(name, 'none')}" for name in names)


def _format_ended(items: set[ExpectedResult], changes: str) -> str:
    first = min(items, key=lambda item: (item.stack, item.run_name, item.operation))
    count = "the series" if len(items) == 1 else f"{len(items)} series"
    more = "" if len(items) == 1 else ", …"
    name = f"{first.stack} {first.run_name} {first.operation} {first.metric}{more}"
    return f"{count} of cases that ran ended ({name}): they now produce {changes}"
