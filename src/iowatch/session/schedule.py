"""When a verdict says what to enter so that iowatch runs every night."""

from __future__ import annotations

from iowatch.core import DAY_S
from iowatch.findings import MIN_OBSERVATIONS
from iowatch.session.last_sessions import own_sessions
from iowatch.site import NightlySchedule, nightly_schedule
from iowatch.store import History, SessionRow


def suggest_schedule(history: History, session: SessionRow) -> NightlySchedule | None:
    """Return what starts the next sessions of a system every night; None once it is done or known.

    It is said in the first seven days with sessions, until one of them came from a scheduler. An experiment is no
    session of its suite.
    """
    days: set[int] = set()
    for earlier in own_sessions(history, session.system):
        if earlier.facts.scheduler is not None:
            return None
        days.add(earlier.started_at // DAY_S)
        if len(days) >= MIN_OBSERVATIONS:
            return None
    return nightly_schedule(session.system)
