"""Events of the newest sessions: reported on the first morning, with one id, until they are sure or over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from iowatch.core.settings import Thresholds
from iowatch.demo.scenarios import Scenario
from iowatch.findings import Finding, FindingState, state, update_findings
from iowatch.findings.build import _outlook
from iowatch.findings.finding import Outlook, Resolution
from iowatch.findings.grouping import ChangeGroup, group_changes
from iowatch.findings.newest import _count_outcomes, _established_steps, join_events, summarise_newest_session
from iowatch.output.text.decisions import format_updates
from iowatch.output.text.findings import finding_line
from iowatch.output.text.sessions import describe_newest_session
from iowatch.site import NightlyPolicy
from iowatch.statistics import ChangePoint, Detection
from iowatch.statistics.panel import PanelEvent, PanelReport
from iowatch.store import History, NewestSessionReport
from tests.builders import build_finding, build_member, build_panel_event, build_series_row, build_session, build_system
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of, update_time
from tests.findings.test_grouping import DAY, rows, step

OPERATIONS = ("write", "read", "create", "stat", "remove")


def slower(*steps: tuple[date, float]) -> Scenario:
    """Five series of MPI-IO change, six others do not."""
    return scenario_of(
        *(level("MPIIO", one, *steps) for one in OPERATIONS),
        *(level(api, one) for api in ("POSIX", "HDF5") for one in OPERATIONS[:3]),
    )


def mornings(record_and_update: RecordAndUpdate, scenario: Scenario, *days: int) -> Iterator[list[Finding]]:
    """The findings after the session of STEP (1), of the next day (2) and so on; sessions in between are recorded."""
    record_and_update(scenario, STEP, None)
    known = STEP
    for number in days:
        day = STEP + timedelta(days=number)
        yield record_and_update(scenario, day, known + timedelta(days=1))
        known = day


def test_night_without_results_shows_nothing_of_the_night_before(
    record_and_update: RecordAndUpdate, history: History
) -> None:
    """The night before had 5 of 11 series far off; every run of this one failed."""
    list(mornings(record_and_update, slower((STEP, 0.55)), 1))
    moment = update_time(STEP + timedelta(days=2))
    started = int(moment.timestamp()) - 3600
    history.begin_session(build_session("empty", system="planted", started_at=started))
    history.end_session("empty", "failed", started + 60)
    findings = update_findings(history, "planted", moment)
    empty, before = history.sessions("planted")[:2]
    assert empty.uuid == "empty"
    assert empty.facts.report is not None
    assert describe_newest_session(empty.facts.report, findings) == "no series with a known level was measured"
    assert empty.facts.outside_usual == ()
    assert before.facts.report is not None
    assert before.facts.report.measured == 11


def test_event_is_reported_on_the_first_morning_and_keeps_its_id(
    record_and_update: RecordAndUpdate, history: History
) -> None:
    """All five MPI-IO series fall to 55 %: suspected at once, open when later sessions confirm it."""
    found = list(mornings(record_and_update, slower((STEP, 0.55)), 1, 2, 3, 6, 20))
    (first,), (last,) = found[0], found[-1]
    assert (first.id, first.state, first.date) == ("planted-20250210-down", "suspected", STEP.isoformat())
    assert {m.parameters["api"] for m in first.members} == {"MPIIO"}
    assert len(first.members) == 5
    assert first.size == pytest.approx(0.55, rel=0.1)
    assert first.outlook is not None
    assert first.outlook.sessions == 1
    assert "lasts with a probability of" in finding_line(first)
    assert {f.id for morning in found for f in morning} == {first.id}
    assert (last.state, last.probability_lasting) == ("open", None)
    texts: list[str] = []
    for session in history.sessions("planted"):
        if session.facts.report is not None:
            texts.append(describe_newest_session(session.facts.report, found[0]))
    assert "5 of 11 series far off, MPI-IO ×0.5" in " ".join(texts)
    updates = [name for morning in found for f in morning for name in format_updates(f)]
    assert updates[0] == "new"
    assert updates.count("confirmed") == 1


def test_a_collapse_is_reported_on_the_first_morning(record_and_update: RecordAndUpdate) -> None:
    """All five MPI-IO series fall far below what bad sessions usually have: reported and opened like a fall to 55 %."""
    (first,), (fourth,) = mornings(record_and_update, slower((STEP, 0.05)), 1, 4)
    assert (first.id, first.state, len(first.members)) == ("planted-20250210-down", "suspected", 5)
    assert fourth.id == first.id
    assert (fourth.state, fourth.needs_action) == ("open", True)


def test_two_bad_sessions_are_a_transient_with_their_length(record_and_update: RecordAndUpdate) -> None:
    scenario = slower((STEP, 0.55), (STEP + timedelta(days=2), 1 / 0.55))
    found = list(mornings(record_and_update, scenario, 1, 2, 3, 4, 12))
    (bad,) = found[1]
    assert bad.outlook is not None
    assert bad.outlook.sessions == 2
    # Also if the panel was sure of it: without a confirmed change nothing is waited for.
    (over,) = (f for f in found[-2] if f.id == bad.id)
    # The session in which it is over may still be assessed with the bad ones.
    assert over.resolution in (Resolution("transient", sessions=2), Resolution("transient", sessions=3))
    assert [f.state for f in found[-1] if f.state != "resolved"] == []


def event(*members: tuple[int, float], day: int = 10, sessions: int = 1, before: float = -2.0) -> PanelEvent:
    """An event of a day: series with their log gains."""
    return build_panel_event(dict(members), day * DAY, sessions=sessions, before=before)


def report(*events: PanelEvent, unusual: tuple[int, ...] = ()) -> PanelReport:
    return PanelReport(20 * DAY, 16, unusual, events)


def joined(changes: dict[int, tuple], *events: PanelEvent) -> list[ChangeGroup]:  # type: ignore[type-arg]
    return join_events(group_changes(rows(8), changes), report(*events), rows(8))


def test_suspected_changes_of_single_series_are_no_finding() -> None:
    suspected = {n: step(10, -0.5, suspected=True) for n in range(8)}
    assert joined(suspected) == []
    assert joined({7: step(10, -0.5, confidence=0.97)}) == []  # confirmed, not sure
    (found,) = joined({**suspected, 7: step(10, -0.5, confidence=0.99)})
    assert found.event is None


@pytest.mark.parametrize(
    ("since", "confidence", "reported"),
    [
        (11, 0.9, True),  # together .9999
        (10, 0.9, False),
        (10, 0.96, True),
        (None, 0.9, True),  # too few sessions to assess all series together
    ],
)
def test_several_uncertain_changes_are_not_sure_together_in_the_newest_sessions(
    since: int | None, confidence: float, reported: bool
) -> None:
    """Series share the bad sessions of a file system; the newest sessions, from day `since` on, show no event."""
    changes = {0: step(10, -0.5, confidence=confidence), **{n: step(10, -0.5) for n in range(1, 4)}}
    seen = replace(report(), since=None if since is None else since * DAY)
    assert bool(join_events(group_changes(rows(8), changes), seen, rows(8))) is reported


@pytest.mark.parametrize(
    ("outlook", "expected"),
    [
        (Outlook(0.05, 8, False, 9, 8), "suspected"),
        (Outlook(0.2, 8, False, 9, 8), "open"),
        (Outlook(0.05, 8, False, 9, 8, is_current=False), "open"),
    ],
)
def test_single_series_do_not_open_a_finding_against_the_newest_sessions(
    suspected: Finding, outlook: Outlook, expected: str
) -> None:
    members = tuple(replace(m, suspected=False, confidence=0.99, observations=8) for m in suspected.members)
    finding = replace(suspected, members=members, outlook=outlook)
    assert state.with_state(finding, None, (), STEP, True, Thresholds()).state == expected


def event_with_rises(*rises: tuple[float, float]) -> PanelEvent:
    """An event of day 10: two series fall by 0.6 (ln); others rise, each by a gain (ln) of so many scatters."""
    gains = {0: -0.6, 1: -0.6}
    for number, (gain, _) in enumerate(rises):
        gains[4 + number] = gain
    event_of_both = build_panel_event(gains, 10 * DAY)
    down, up = event_of_both.groups
    members = [replace(member, distance=distance) for member, (_, distance) in zip(up.members, rises, strict=True)]
    return replace(event_of_both, groups=(down, replace(up, members=tuple(members))))


@pytest.mark.parametrize(
    ("third_rise", "members"),
    [
        # A rise by 0.02 is 3 % of the size of the event: no member within three scatters of its level.
        ((0.02, 1.0), {0, 1, 4, 5}),
        ((0.02, 3.5), {0, 1, 4, 5, 6}),
        # One of its size is a member, however large the noise of its series.
        ((0.5, 1.0), {0, 1, 4, 5, 6}),
    ],
)
def test_series_of_the_other_direction_within_its_usual_range_is_no_member(
    third_rise: tuple[float, float], members: set[int]
) -> None:
    (group,) = joined({}, event_with_rises((0.4, 8.0), (0.4, 8.0), third_rise))
    assert group.series_ids == members


def test_series_seen_later_or_in_the_other_direction_join_the_confirmed_group() -> None:
    """Series 0 and 1 are confirmed and keep their change; 2 and 3 are known from the newest sessions only."""
    confirmed = {n: step(10, -0.5) for n in (0, 1)}
    (found,) = joined(confirmed, event((1, -0.7), (2, -0.6), (3, 0.4)))
    assert found.event is not None
    assert [(m.row.id, m.change.suspected) for m in found.main] == [(0, False), (1, False), (2, True)]
    assert [m.row.id for m in found.opposite] == [3]
    assert {m.row.id: m.log_gain for m in found.changes}[1] == pytest.approx(-0.5)


@pytest.mark.parametrize(("day", "members"), [(13, (0, 1)), (10, (2, 3))])
def test_event_of_another_date_or_other_series_is_a_group_of_its_own(day: int, members: tuple[int, int]) -> None:
    found = joined({n: step(10, -0.5, confidence=0.99) for n in (0, 1)}, event(*((n, -0.5) for n in members), day=day))
    assert sorted((g.event is not None, g.first_after // DAY) for g in found) == [(False, 10), (True, day)]


@pytest.mark.parametrize(
    ("before", "steps", "reported"),
    [
        # As far from the level before the change of day 5 as its first session.
        (0.0, (step(5, -0.5),), False),
        # From the level after it: a second step down.
        (-0.5, (step(5, -0.5),), True),
        # The level had returned in between.
        (0.0, (step(3, -0.5), step(5, 0.5)), True),
    ],
)
def test_event_that_repeats_the_last_change_of_its_series_is_left_out(
    before: float, steps: tuple[tuple[ChangePoint, ...], ...], reported: bool
) -> None:
    """`before` is the level (ln) that the event starts from; the level before the first step is 0."""
    changes = tuple(one for number in steps for one in number)
    found = joined({0: changes, 1: changes}, event((0, -0.5), (1, -0.5), before=before))
    assert any(g.event is not None for g in found) is reported


@pytest.mark.parametrize(
    ("since", "was", "reported"), [(10, "suspected", False), (10, "open", True), (11, "suspected", True)]
)
def test_uncertain_changes_do_not_open_an_event_that_the_newest_sessions_dropped(
    since: int, was: FindingState, reported: bool
) -> None:
    """On the morning after a transient its six sessions may look like confirmed changes of single series.

    `since`: day from which on the newest sessions would show the event, of day 10; `was`: its state a morning before.
    """
    members = (build_member(0), build_member(1))
    known = build_finding(*members, state=was, outlook=Outlook(0.6, 1, False, 9, 8), first_after=10 * DAY)
    changes = {n: tuple(replace(one, observations=6) for one in step(10, -0.5, confidence=0.9)) for n in (0, 1)}
    seen = replace(report(), since=since * DAY)
    found = join_events(group_changes(rows(8), changes), seen, rows(8), [known])
    assert bool(found) is reported


def test_suspected_changes_in_the_direction_of_an_event_do_not_join_it() -> None:
    """Of those that its sessions leave out a quarter belonged to it."""
    (found,) = joined(
        {5: step(10, -0.5, suspected=True), 6: step(10, -0.5, suspected=True)}, event((0, -0.5), (1, -0.5))
    )
    assert found.series_ids == {0, 1}


@pytest.mark.parametrize(
    ("lasting", "gain", "changed", "size"),
    [(0.42, 0.3, (5, 6), 2), (0.47, 0.3, (5, 6), 4), (0.47, 0.2, (5, 6), 2), (0.47, 0.3, (5,), 2)],
)
def test_two_suspected_changes_in_the_other_direction_join_a_probable_event(
    lasting: float, gain: float, changed: tuple[int, ...], size: int
) -> None:
    """From half of the size of its series."""
    one = replace(event((0, -0.5), (1, -0.5)), probability_lasting=lasting)
    (found,) = joined({number: step(10, gain, suspected=True) for number in changed}, one)
    assert len(found.changes) == size


def test_series_of_each_direction_have_their_own_probability() -> None:
    """That of a change beside the event: .6 x 1 / (1 + exp(-2) (1 - c) / c) with its own confidence c."""
    confirmed = {n: step(10, -0.5) for n in (0, 1)}
    weak, sure = step(10, 0.5, suspected=True, confidence=0.25), step(10, 0.5, confidence=0.999)
    for beside, own in ((weak, 0.427), (sure, 0.6)):
        (found,) = joined({**confirmed, 5: beside, 6: beside}, event((0, -0.5), (1, -0.5)))
        outlook = _outlook(found)
        assert outlook is not None
        assert dict(outlook.directions) == {"down": 0.6, "up": pytest.approx(own, abs=0.001)}
    both = event((0, -0.5), (1, -0.5), (2, 0.4), (3, 0.4))
    down, up = both.groups
    (found,) = joined({}, replace(both, groups=(down, replace(up, probability_lasting=0.2))))
    assert {m.row.id: m.change.confidence for m in found.changes} == {0: 0.6, 1: 0.6, 2: 0.2, 3: 0.2}


@pytest.mark.parametrize(
    ("left", "observations", "reported"),
    [
        (1.0, 9, True),
        (0.5, 9, True),
        # Back, after so few sessions that it may have been a burst.
        (0.1, 9, False),
        # Back after a long time: for the detection in single series to decide.
        (0.1, 15, True),
    ],
)
def test_short_change_of_a_series_that_is_back_is_no_finding(left: float, observations: int, reported: bool) -> None:
    """`left`: share of the change (ln) in the newest observations."""
    changes = {
        n: tuple(replace(one, observations=observations) for one in step(10, -0.5, confidence=0.99)) for n in (0, 1)
    }
    before = math.log(changes[0][0].before)
    seen = replace(report(), newest=tuple(before - 0.5 * left for _ in range(8)))
    assert bool(join_events(group_changes(rows(8), changes), seen, rows(8))) is reported


def test_levels_of_a_time_are_in_seconds_although_the_event_is_about_performance() -> None:
    """ln performance 2.0 is a time of exp(-2) s; a gain of 0.7 halves it."""
    row = build_series_row(0, metric="time")
    (found,) = join_events([], report(event((0, 0.7), before=2.0)), [row])
    (member,) = found.changes
    assert member.change.before == pytest.approx(math.exp(-2.0))
    assert member.direction == "up"
    assert member.change.ratio == pytest.approx(math.exp(-0.7))


@pytest.fixture
def suspected(record_and_update: RecordAndUpdate) -> Finding:
    """The finding of the first morning."""
    ((found,),) = mornings(record_and_update, slower((STEP, 0.55)), 1)
    return found


@pytest.mark.parametrize(("least", "counts"), [(0.6, True), (0.61, False)])
def test_probable_suspicion_counts_as_a_finding(suspected: Finding, least: float, counts: bool) -> None:
    outlook = Outlook(0.6, 1, False, 9, 8)
    found = state.with_state(
        replace(suspected, outlook=outlook), None, (), STEP, True, Thresholds(suspected_probability=least)
    )
    assert (found.state, found.needs_action) == ("suspected", counts)
    # The next update does not find it: what it said is no current probability.
    gone = replace(found, outlook=replace(outlook, is_current=False))
    assert not state.with_state(gone, found, (), STEP, True, Thresholds(suspected_probability=least)).needs_action


def test_probability_from_which_a_suspicion_counts_is_the_site_s(
    suspected: Finding, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert suspected.outlook is not None
    probability = suspected.outlook.probability_lasting
    # The highest threshold that a site can state is 0.9.
    assert probability < 0.85
    for least, counts in ((0.01, True), (probability + 0.05, False)):
        # Without the control chart, which reports a loss of this size in its second session.
        policy = NightlyPolicy(suspected_probability=least, smallest_loss=0.9)
        monkeypatch.setattr(state, "load_system", lambda name, policy=policy: build_system(name, night=policy))
        (found,) = update_findings(history, "planted", update_time(STEP + timedelta(days=1)))
        assert found.needs_action is counts


def test_suspicion_that_becomes_probable_is_an_update_once(suspected: Finding) -> None:
    outlook = Outlook(0.3, 1, False, 9, 8)
    first = state.with_state(replace(suspected, outlook=outlook), None, (), STEP, True, Thresholds())
    probable = replace(first, outlook=replace(outlook, probability_lasting=0.7, sessions=2))
    second = state.with_state(probable, first, (), STEP, True, Thresholds())
    third = state.with_state(probable, second, (), STEP, True, Thresholds())
    over = state.with_state(
        replace(third, resolution=Resolution("transient", sessions=3)), third, (), STEP, True, Thresholds()
    )
    assert [format_updates(f) for f in (first, second, third, over)] == [
        ("new",),
        ("probably lasting",),
        (),
        ("transient: back after at most 3 sessions",),
    ]


def test_report_of_the_newest_session_has_three_answers(suspected: Finding) -> None:
    assert (
        describe_newest_session(summarise_newest_session(PanelReport(None, 0, (), ())), [])
        == "no series with a known level was measured"
    )
    assert describe_newest_session(NewestSessionReport(16, 0), []) == "nothing unusual in 16 series"
    assert (
        describe_newest_session(summarise_newest_session(report(unusual=(1, 2))), [])
        == "2 of 16 series far off, no more than usual"
    )
    found = replace(suspected, outlook=Outlook(0.35, 1, False, 9, 8), size=0.55)
    text = describe_newest_session(NewestSessionReport(16, 5), [found])
    assert text == (
        "5 of 16 series far off, MPI-IO ×0.55; lowest layer that moved: MPI-IO (file system and HDF5 did not); "
        "session 1 since 10 Feb 2025; "
        "of 9 such sessions before 8 over in the next; probability that it lasts 35 %"
    )
    beside = replace(found, outlook=Outlook(0.35, 1, False, 9, 8, directions=(("down", 0.35), ("up", 0.12))))
    assert describe_newest_session(summarise_newest_session(report()), [beside]).endswith(
        "that it lasts 35 % (series up: 12 %)"
    )


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("state_of", "before", "observations", "steps"),
    [
        # The event is established, and single series do not show it: without the step it would be reported again.
        ({}, 30, 12, [(10, -0.5)]),
        # Its first session is one of the newest: the panel finds it.
        ({}, 10, 12, []),
        ({"resolution": Resolution("recovery")}, 30, 12, []),
        # It probably was a long transient, and its end is no event.
        ({"outlook": Outlook(0.02, 11, False, 9, 8, moved=((0, -0.5),))}, 30, 4, []),
        # Nobody knows yet.
        ({"outlook": Outlook(0.02, 11, False, 9, 8, moved=((0, -0.5),))}, 30, 3, [(10, -0.5)]),
    ],
)
def test_established_events_are_steps_of_their_series(
    suspected: Finding, state_of: dict[str, Any], before: int, observations: int, steps: list[tuple[int, float]]
) -> None:
    """`observations`: of the series since the event."""
    outlook = Outlook(0.6, 11, True, 9, 8, moved=((0, -0.5),))
    known = [replace(suspected, **{"first_after": 10 * DAY, "outlook": outlook, **state_of})]
    first, other = rows(2)
    none, own = Detection(40, "ok"), Detection(40, "ok", changes=step(11, -0.6))
    times = DAY * np.arange(10 + observations)
    assert list(_established_steps(first, none, times, known, before * DAY)) == [
        (day * DAY, gain) for day, gain in steps
    ]
    assert _established_steps(other, none, times, known, before * DAY) == ()
    # The change of the series itself has the better date and size.
    if steps:
        assert [time // DAY for time, _ in _established_steps(first, own, times, known, before * DAY)] == [11]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("state_of", "counts"),
    [
        ({"state": "open"}, (1, 0)),
        ({"state": "resolved", "resolution": Resolution("returned", finding="other")}, (1, 0)),
        ({"state": "resolved", "resolution": Resolution("transient", sessions=2)}, (0, 1)),
        ({"state": "resolved", "resolution": Resolution("part of another", finding="other")}, (0, 0)),
        ({"state": "suspected"}, (0, 0)),
        # Not yet known.
        ({"state": "suspected", "outlook": Outlook(0.6, 2, False, 9, 8)}, (0, 0)),
        ({"state": "open", "outlook": None}, (0, 0)),
    ],
)
def test_outcomes_of_earlier_events_correct_the_base_rate(
    suspected: Finding, state_of: dict[str, Any], counts: tuple[int, int]
) -> None:
    over = Outlook(0.6, 10, False, 9, 8, is_current=False)
    assert _count_outcomes([replace(suspected, **{"outlook": over, **state_of})]) == counts
