"""Conditions that must hold from session to session: file system of scratch, clock, and the series of each case."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from iowatch.core import MachineError, Scalar, format_count, format_local_time, format_time, utc_now
from iowatch.session.reframe import ReframePartition
from iowatch.site import FileSystemIdentity, System, storage, system_zone
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
    locations = [HOST, *(partition.name for partition in partitions)]
    declared: Mapping[str, str] = {}
    is_complete = False
    for measured in system.measured_file_systems:
        if measured.parameter == file_system:
            declared = measured.declared.declared
            # Whatever the directory itself declares is all that it must be on.
            is_complete = bool(measured.directory.declared)
    recorded: dict[str, Mapping[str, str]] = {}
    if history is not None and not is_complete:
        recorded = _recorded_identities(history, system.name, file_system, locations)
    expected: dict[str, FileSystemIdentity] = {}
    for location in locations:
        expected[location] = FileSystemIdentity(**{**recorded.get(location, {}), **declared})
    return expected


def _recorded_identities(
    history: History, system: str, file_system: str | None, locations: Sequence[str]
) -> dict[str, Mapping[str, str]]:
    """What the directory of a file system was on most recently, by partition and for `HOST`, as far as it is known.

    Args:
        locations: partitions, and `HOST`; the search ends when all of them are known.
    """
    recorded: dict[str, Mapping[str, str]] = {}
    for session in _run_sessions(history, system):
        host_identity = session_identities(session).get(file_system)
        if host_identity:
            recorded.setdefault(HOST, host_identity)
        if all(location in recorded for location in locations):
            break
        for run in history.runs(session.uuid):
            identity = run.facts.scratch_file_system
            if run.status == "ok" and run.facts.file_system == file_system and identity is not None:
                recorded.setdefault(run.partition, identity)
    return recorded


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
    with_wrong_clock = os.environ.get("IOWATCH_WRONG_CLOCK", "").split()
    sessions = (row for row in _run_sessions(history, system) if row.uuid not in with_wrong_clock)
    newest = next(sessions, None)
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
    measured = system.measured_file_systems
    if len(measured) < 2:  # it cannot be mistaken for another one
        return
    default = measured[0].name
    names = (session.facts.default_file_system for session in _run_sessions(history, system.name))
    before = next((name for name in names if name is not None), None)
    if before is not None and before != default:
        raise MachineError(
            f"the default file system of '{system.name}' is '{default}', and was '{before}' in its last session: "
            "its results would continue the series of the other one",
            hint=f"Make '{before}' the default one in system.yaml again (`scratch`, or the first with a directory).",
        )


_COMPARED_SESSIONS = 5


def ended_series(history: History, session: SessionRow) -> list[str]:
    """Return one sentence per change of case parameters that ended series although their cases ran.

    Without this the results would be in other series, where no earlier observation shows a change. Compared with the
    last sessions of the suite; after as many sessions the new series is the usual one.
    """
    # The cases of this session, by result: their parameters name the series.
    expected = set(history.expected(session.uuid))
    cases_now: dict[ExpectedResult, list[Mapping[str, Scalar]]] = {}
    for result, case in history.received_cases(session.uuid):
        if result in expected:
            cases_now.setdefault(result, []).append(case)
    # The same result with other parameters before was in another series.
    ended: dict[str, set[ExpectedResult]] = {}
    for earlier in _earlier_sessions(history, session)[:_COMPARED_SESSIONS]:
        for result, case in history.received_cases(earlier.uuid):
            if result in cases_now and case not in cases_now[result]:
                changes = _format_changes(case, cases_now[result][0])
                ended.setdefault(changes, set()).add(result)
    return [_format_ended(results, changes) for changes, results in ended.items()]


def lost_references(history: History, session: SessionRow, referenced: int) -> str | None:
    """Return a sentence if fewer results were compared with a reference than in the last sessions of the suite.

    A file of references that was lost or damaged by a merge would otherwise compare nothing, without a word.

    Args:
        referenced: results of the session that were compared with a reference.
    """
    numbers = [earlier.facts.referenced for earlier in _earlier_sessions(history, session)[:_COMPARED_SESSIONS]]
    before = max((number for number in numbers if number is not None), default=0)
    if referenced >= before:
        return None
    return (
        f"{format_count(before, 'result')} had a reference in the last sessions, and {referenced} in this one: look at "
        f"reference/bandwidth/{session.system}.yaml of the site (reported for {_COMPARED_SESSIONS} sessions)"
    )


def repeated_outputs(history: History, session: SessionRow) -> list[str]:
    """Return one sentence per run of the session whose samples are those of an earlier run, to the last digit."""
    zone = system_zone(session.system)
    sentences: list[str] = []
    for run in history.repeated_runs(session.uuid):
        earlier = f"run {run.earlier_run_id} ({format_local_time(run.earlier_started_at, zone)})"
        sentences.append(
            f"{run.key.stack} {run.key.run}: all samples are those of {earlier} to the last digit: the output was not "
            "measured now; look for a program that was replaced, or a file that was left behind"
        )
    return sentences


def _earlier_sessions(history: History, session: SessionRow) -> list[SessionRow]:
    """Sessions of the same system and suite before this one, newest first."""
    earlier: list[SessionRow] = []
    for row in history.sessions(session.system):
        is_before = (row.started_at, row.id) < (session.started_at, session.id)
        if is_before and row.origin == "run" and row.suite == session.suite:
            earlier.append(row)
    return earlier


def _format_changes(before: Mapping[str, Scalar], now: Mapping[str, Scalar]) -> str:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {now.get(name, 'none')} instead of {before.get(name, 'none')}" for name in names)


def _format_ended(results: set[ExpectedResult], changes: str) -> str:
    first = min(results, key=lambda result: (result.stack, result.run_name, result.operation))
    name = f"{first.stack} {first.run_name} {first.operation} {first.metric}"
    count = "the series"
    if len(results) > 1:
        count = f"{len(results)} series"
        name += ", …"
    return f"{count} of cases that ran ended ({name}): they now produce {changes}"
