"""The next step of a verdict: what runs iowatch every night, in the first sessions only."""

from __future__ import annotations

import pytest

from iowatch.core import DAY_S
from iowatch.session.schedule import suggest_schedule
from iowatch.store import NO_SESSION_FACTS, History, SessionFacts
from tests.builders import START_S, build_run, build_session, store_session


def suggest(history: History, days: int, **facts: object) -> bool:
    """Whether something is suggested after a session on each of so many days; the facts are those of the first one."""
    for day in range(days):
        session_facts = SessionFacts.from_document(facts) if day == 0 and facts else NO_SESSION_FACTS
        started = START_S + day * DAY_S
        session = build_session(f"s{day}", started_at=started, facts=session_facts)
        store_session(history, session, [build_run(started_at=started)])
    return suggest_schedule(history, history.session(f"s{days - 1}")) is not None


@pytest.mark.parametrize(("days", "is_suggested"), [(1, True), (6, True), (7, False)])
def test_next_step_is_said_in_the_first_seven_days(history: History, days: int, is_suggested: bool) -> None:
    assert suggest(history, days) == is_suggested


def test_next_step_is_not_said_once_a_scheduler_has_started_a_night(history: History) -> None:
    assert not suggest(history, 2, scheduler="cron")


def test_several_sessions_of_a_day_are_one_day(history: History) -> None:
    for number in range(9):
        started = START_S + number * 600
        store_session(history, build_session(f"s{number}", started_at=started), [build_run(started_at=started)])
    assert suggest_schedule(history, history.session("s8"))


def test_imported_days_and_those_of_other_systems_do_not_count(history: History) -> None:
    for day in range(9):
        started = START_S + day * DAY_S
        for origin, system in (("import", "local"), ("run", "other")):
            session = build_session(f"{origin}{day}", origin=origin, system=system, started_at=started)  # type: ignore[arg-type]
            store_session(history, session, [build_run(started_at=started, name=origin)])
    assert suggest(history, 1)
