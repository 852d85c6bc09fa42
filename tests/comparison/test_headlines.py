"""Which metric of a case is compared: the one that is monitored, as in findings (`metrics.HEADLINES`)."""

from __future__ import annotations

from iowatch.comparison import ComparisonOptions, compare_sides, parse_side
from iowatch.demo import scenarios
from iowatch.demo.scenarios import generate_sessions
from iowatch.store import History
from tests.comparison.known_ratios import DAY_S, START, record


def test_one_metric_per_case_is_compared_by_default(history: History) -> None:
    for session, stack in enumerate(("old", "new") * 4):
        for metric in ("time", "raw_bandwidth", "observed_bandwidth", "open_time"):
            samples, time = {2: (100.0 + session,)}, START + session * DAY_S
            record(history, f"n{session}", samples, stack=stack, metric=metric, time=time, suffix=metric)
    sides = parse_side("stack:old"), parse_side("stack:new")
    outcome = compare_sides(*sides, lambda: history, ComparisonOptions())
    assert [one.metric for one in outcome.compared] == ["observed_bandwidth"]
    asked = compare_sides(*sides, lambda: history, ComparisonOptions(metrics=("time", "open_time")))
    assert {one.metric for one in asked.compared} == {"time", "open_time"}


def test_first_metric_of_both_sides_is_compared(history: History) -> None:
    for session, (stack, metrics) in enumerate((("old", ("rate", "time")), ("new", ("time",))) * 4):
        for metric in metrics:
            samples, time = {2: (100.0 + session,)}, START + session * DAY_S
            record(history, f"n{session}", samples, stack=stack, metric=metric, time=time, suffix=metric)
    outcome = compare_sides(parse_side("stack:old"), parse_side("stack:new"), lambda: history, ComparisonOptions())
    assert [one.metric for one in outcome.compared] == ["time"]
    assert not outcome.matched.only_left  # the case is paired, though its rate is not


def test_franklin_change_is_concentrated_in_shared_files(history: History) -> None:
    """MADbench2 is monitored by its time; without its two cases there are too few to find the common factor."""
    for session in generate_sessions(scenarios.franklin_scenario(), 1):
        history.begin_session(session.session, session.expected)
        history.record_runs(session.session.uuid, session.runs)
        history.end_session(session.session.uuid, "ok", session.session.started_at + 3600)
    before, after = parse_side("since:..2009-03-16"), parse_side("since:2009-03-17..")
    outcome = compare_sides(before, after, lambda: history, ComparisonOptions())
    assert [one.words for one in outcome.compared if one.case.benchmark == "madbench2"][1] == "faster"
    (group,) = outcome.subgroups
    assert (group.direction, group.rule) == ("faster", "MPI-IO shared file")
    assert (group.inside, group.inside_total) == (6, 7)
