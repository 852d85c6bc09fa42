"""News of the newest sessions with stored detections: what it says before, and leaves as, the full update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

import pytest

from iowatch.core import DAY_S
from iowatch.demo.scenarios import Scenario, SimulatedSession, generate_sessions
from iowatch.findings import Finding, headline_series, update_findings
from iowatch.output.text.findings import finding_line
from iowatch.statistics.panel_table import NEWEST_SESSIONS
from iowatch.store import History, write
from tests.findings.conftest import STEP, level, scenario_of, update_time

OPERATIONS = ("write", "read", "create", "stat", "remove")
DAYS = 6


def changed(*steps: tuple[date, float]) -> Scenario:
    """Five series of MPI-IO change at each step, six others do not."""
    return scenario_of(
        *(level("MPIIO", one, *steps) for one in OPERATIONS),
        *(level(api, one) for api in ("POSIX", "HDF5") for one in OPERATIONS[:3]),
        last=STEP + timedelta(days=DAYS),
    )


SCENARIOS = {
    "loss": changed((STEP, 0.55)),
    "two bad sessions": changed((STEP, 0.55), (STEP + timedelta(days=2), 1 / 0.55)),
    "gain": changed((STEP, 1.4)),
    "nothing": changed(),
}


def record(history: History, system: str, session: SimulatedSession) -> None:
    one = replace(session.session, uuid=f"{system}-{session.session.uuid}"[:60], system=system)
    with history.writing() as connection:
        write.insert_session(connection, one, ())
        runs = [replace(run, fingerprint=f"{system} {run.fingerprint}") for run in session.runs]
        write.insert_runs(connection, one.uuid, runs)


def mornings(history: History, scenario: Scenario, seed: int) -> Iterator[tuple[list[Finding], ...]]:
    """Of each morning from STEP on: the news of one system and its full update, and two full updates of another one.

    A night is updated twice, also without news: after the session for retests, and for the verdict.
    """
    for session in generate_sessions(scenario, seed=seed):
        day = date.fromtimestamp(session.session.started_at)
        for name in ("news", "full"):
            record(history, name, session)
        if day < STEP:
            continue
        now = update_time(day + timedelta(days=1))
        yield (
            update_findings(history, "news", now, report=False, newest_only=True),
            update_findings(history, "news", now, report=True),
            update_findings(history, "full", now, report=False),
            update_findings(history, "full", now, report=True),
        )


def events(findings: list[Finding]) -> dict[str, tuple[int, float]]:
    """Time (days) and probability of the events of the newest sessions, by direction."""
    return {
        one.direction: (one.first_after / DAY_S, one.probability_lasting)
        for one in findings
        if one.probability_lasting is not None and one.resolution is None
    }


def content(findings: list[Finding]) -> list[object]:
    """All that a person reads, without the name of the system."""
    return [
        (one.id.split("-", 1)[1], one.state, one.size, one.resolution, one.updates, [m.name for m in one.members],
         one.probability_lasting, finding_line(one).replace(one.system, ""))
        for one in findings
    ]  # fmt: skip


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_news_are_those_of_the_full_update_and_leave_no_trace(history: History, name: str, seed: int) -> None:
    for news, after_news, first, second in mornings(history, SCENARIOS[name], seed):
        told, known = events(news), events(first)
        assert told.keys() == known.keys()
        for direction, expected in known.items():
            assert told[direction] == pytest.approx(expected, abs=0.01)
        assert content(after_news) == content(second)


def test_news_judge_no_series_unless_many_points_are_new(history: History) -> None:
    """Series with more new points than the newest sessions are judged at once."""
    sessions = list(generate_sessions(SCENARIOS["loss"], seed=1))
    for session in sessions[:30]:
        record(history, "news", session)
    update_findings(history, "news", report=False, newest_only=True)

    def judged() -> set[int]:
        ids = [row.id for row in headline_series(history, "news")]
        return {row.points for row in history.detections(ids).values()}

    assert judged() == {30}  # nothing was stored before
    for session in sessions[30 : 30 + NEWEST_SESSIONS]:
        record(history, "news", session)
    update_findings(history, "news", report=False, newest_only=True)
    assert judged() == {30}
    record(history, "news", sessions[30 + NEWEST_SESSIONS])
    update_findings(history, "news", report=False, newest_only=True)
    assert judged() == {31 + NEWEST_SESSIONS}
