"""The last sessions of a system: when it was measured last, and when its last session was in order.

What a second scheduler, Prometheus and the blackouts of a night need, without a page or a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from iowatch.session.faults import assess_faults
from iowatch.store import History, SessionRow

# A system whose last sessions all failed is out of order anyway: no need to look further back.
_MAX_SESSIONS = 400


def own_sessions(history: History, system: str) -> Iterator[SessionRow]:
    """Sessions of suites that iowatch itself ran, newest first; no import, and no step of an experiment."""
    for session in history.sessions(system):
        if session.is_of_suite:
            yield session


def last_measured_s(history: History, system: str) -> int | None:
    """Start (epoch seconds) of the newest session that received a run; None without one."""
    for session in own_sessions(history, system):
        if session.runs:
            return session.started_at
    return None


@dataclass(frozen=True)
class LastSession:
    """The last session of a system that is in order.

    Attributes:
        system: its name.
        session: the newest one that has ended, received runs and has no fault; None without one.
        later: number of sessions that started after it.
    """

    system: str
    session: SessionRow | None
    later: int


def last_in_order(history: History, system: str, suite: str | None = None) -> LastSession:
    """The last session of a system that is in order.

    Args:
        suite: only sessions of this one; None for any.
    """
    later = 0
    for session in own_sessions(history, system):
        if suite is not None and session.suite != suite:
            continue
        is_in_order = session.status == "ok" and session.runs and not assess_faults(history, session)
        if is_in_order:
            return LastSession(system, session, later)
        later += 1
        if later == _MAX_SESSIONS:
            break
    return LastSession(system, None, later)
