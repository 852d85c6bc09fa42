"""Nights: what a session set out to measure and what of it came; which sessions have a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.site import slug
from iowatch.store import ExpectedResult, History, RunRow, SessionRow
from iowatch.verdict import Trouble, absent


@dataclass(frozen=True)
class Night:
    """A session: its runs, what it expected, what is missing."""

    session: SessionRow
    runs: Sequence[RunRow]
    expected: int
    received: int
    failed: Sequence[Trouble]
    absent: Sequence[Trouble]

    @property
    def fine(self) -> bool:
        """Whether everything came."""
        return not self.failed and not self.absent and self.session.status == "ok"


def page_of(session: SessionRow) -> str:
    """Path of a session's page in the site."""
    return f"session/{slug(session.uuid)}.html"


def shown_sessions(machine: Machine, nights: int) -> list[SessionRow]:
    """Sessions that have a long page: the newest, and those on both sides of what findings found."""
    evidence = evidence_sessions(machine)
    return [s for position, s in enumerate(machine.sessions) if position < nights or s.id in evidence]


def evidence_sessions(machine: Machine) -> set[int]:
    """Numbers of the sessions on both sides of what findings found."""
    runs = {f.last_before for f in machine.findings} | {f.first_after for f in machine.findings}
    return {s.id for s in machine.sessions if any(_holds(s, moment) for moment in runs)}


def _holds(session: SessionRow, moment: int) -> bool:
    end = session.ended_at if session.ended_at is not None else session.started_at + 86400
    return session.started_at <= moment <= max(end, session.started_at)


def night(history: History, session: SessionRow) -> Night:
    """One session with its runs and what did not come."""
    return judged(history, session, history.runs(session.uuid), set(history.received(session.uuid)))


def judged(history: History, session: SessionRow, runs: Sequence[RunRow], came: set[ExpectedResult]) -> Night:
    """The same from runs and received results that are known already."""
    expected = history.expected(session.uuid)
    return Night(
        session=session,
        runs=runs,
        expected=len(expected),
        received=sum(item in came for item in expected),
        failed=[Trouble(r.stack, r.name, r.reason or r.status, r.partition) for r in runs if r.status != "ok"],
        absent=absent(expected, came, runs),
    )
