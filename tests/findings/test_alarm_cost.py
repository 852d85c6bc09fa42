"""`iowatch findings cost`: what the stored findings say about the cost of thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core.settings import Prices
from iowatch.findings import AlarmCost, Finding, Outlook, assess_alarm_cost
from iowatch.findings.alarm_cost import outcome_of
from iowatch.findings.document import finding_document, finding_from_document
from iowatch.findings.finding import ProbableMorning, Resolution, ResolutionKind, SessionLoss
from iowatch.findings.updates import with_probable_morning
from iowatch.output.text.alarm_cost import alarm_cost_lines
from iowatch.statistics.alarm_cost import AlarmEvent, AlarmPrices, cost_of_thresholds
from iowatch.store import History
from tests.builders import build_finding, build_member
from tests.findings.conftest import STEP, RecordAndUpdate, slower_mpiio

DAY_S = 86400
Cli = Callable[..., Result]


def suspected(probability: float | None) -> Finding:
    finding = replace(build_finding(build_member(1, gain=0.5)), state="suspected", probable_mornings=None)
    if probability is None:
        return finding
    return replace(finding, outlook=Outlook(probability, 1, False, 0, 0))


def test_only_mornings_that_are_more_probable_than_all_before_are_kept() -> None:
    before, days = None, []
    for day, probability in enumerate((0.3, 0.2, None, 0.6, 0.6)):
        before = with_probable_morning(suspected(probability), before, day)
        days.append(before.probable_mornings)
    assert days[2] == days[0] == (ProbableMorning(0, 0.3),)
    assert days[4] == days[3] == (ProbableMorning(0, 0.3), ProbableMorning(3, 0.6))


LOSS = SessionLoss("case", 1, 0.5, 0.95, earlier=40, similar=0, sessions=1, is_alone=True)


@pytest.mark.parametrize(
    ("finding", "probabilities"),
    [
        (replace(suspected(0.3), state="open"), [1.0]),
        (replace(suspected(None), state="acknowledged"), [1.0]),
        (replace(suspected(0.3), session_loss=LOSS), [1.0]),
        (replace(suspected(0.3), state="resolved", session_loss=LOSS), []),
        (replace(suspected(0.3), state="dismissed"), []),
        (suspected(None), []),
    ],
)
def test_finding_that_counts_without_a_probability_is_as_good_as_sure(
    finding: Finding, probabilities: list[float]
) -> None:
    recorded = with_probable_morning(finding, None, 7)
    assert recorded.probable_mornings is not None
    assert [morning.probability for morning in recorded.probable_mornings] == probabilities


def test_finding_of_an_older_release_gets_no_first_morning() -> None:
    """Its true first morning is not known; a document without the field is such a finding."""
    document = finding_document(suspected(0.3))
    del document["probable_mornings"]
    older = finding_from_document(document)
    assert with_probable_morning(replace(older, state="open"), older, 9).probable_mornings is None


def resolved(kind: ResolutionKind) -> Finding:
    return replace(suspected(None), state="resolved", resolution=Resolution(kind))


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (resolved("transient"), "over"),
        (resolved("not confirmed"), "over"),
        (resolved("spell"), "over"),
        (replace(suspected(None), state="dismissed"), "over"),
        (resolved("returned"), "lasting"),
        (replace(suspected(None), state="open"), "lasting"),
        (replace(suspected(None), state="accepted"), "lasting"),
        (resolved("part of another"), "undecided"),
        (resolved("recovery"), "undecided"),
        (suspected(0.9), "undecided"),
    ],
)
def test_outcome_of_a_finding(finding: Finding, outcome: str) -> None:
    assert outcome_of(finding) == outcome


@pytest.fixture
def stored_finding(record_and_update: RecordAndUpdate) -> Finding:
    """The finding after ten mornings: 2 of 8 series of a file system fall to half on STEP."""
    scenario = slower_mpiio()
    record_and_update(scenario, STEP - timedelta(days=1))
    findings: list[Finding] = []
    for day in range(11):
        until = STEP + timedelta(days=day)
        findings = record_and_update(scenario, until, until)
    (finding,) = findings
    return finding


def test_cost_is_the_delay_of_the_stored_finding_at_the_prices_of_the_site(
    history: History, stored_finding: Finding
) -> None:
    mornings = stored_finding.probable_mornings
    assert mornings is not None
    assert stored_finding.state == "open"
    assert mornings[-1].probability == 1.0
    assert sorted(mornings, key=lambda morning: morning.probability) == list(mornings)
    cost = assess_alarm_cost(history, "planted")
    assert (cost.lasting_losses, cost.gains, cost.over, cost.undecided, cost.unrecorded) == (1, 0, 0, 0, 0)
    # Eleven updates since the one before STEP, which saw the session of the night two days before STEP.
    assert cost.days == pytest.approx(11, abs=0.5)
    assert cost.curve is not None
    delay = (mornings[-1].time - stored_finding.first_after) / DAY_S
    highest = max(morning.probability for morning in mornings if morning.probability < 1)
    assert highest < 0.9
    assert cost.curve.cost_of(0.9).late == pytest.approx(
        # A quarter of the series lose half of their performance: a quarter of a day at half speed.
        delay * 0.25 * Prices().half_speed_day_hours * 365 / cost.days,
        rel=0.1,
    )
    assert cost.curve.cost_of(0.9).false == 0
    assert not cost.curve.has_enough_events


@pytest.mark.usefixtures("stored_finding")
def test_command_states_the_threshold_in_force_and_that_one_finding_cannot_tell(cli: Cli) -> None:
    answer = cli("findings", "cost", "--system", "planted")
    assert answer.exit_code == 0
    assert "1 finding in 11 days: 1 loss that lasted" in answer.output
    assert "0.50 in force" in answer.output
    assert "These findings are too few to choose a threshold: the delay of 1 loss and 0 false" in answer.output
    (document,) = json.loads(cli("findings", "cost", "--json").output)["systems"]
    assert document["curve"]["has_enough_events"] is False
    assert document["prices"] == {"half_speed_day_hours": 10.0, "false_message_minutes": 30.0}
    assert cli("findings", "cost", "--system", "plantd").exit_code == 2


def test_history_of_one_update_has_no_mornings_to_count(
    history: History, record_and_update: RecordAndUpdate, cli: Cli, root: Path
) -> None:
    """Sessions that were recorded together: what the mornings would have stated is not known."""
    record_and_update(slower_mpiio(), STEP + timedelta(days=30))
    cost = assess_alarm_cost(history, "planted")
    assert (cost.curve, cost.unrecorded) == (None, 1)
    answer = cli("findings", "cost")
    assert answer.exit_code == 0
    assert "Not counted: 1 without a recorded update of each morning" in answer.output
    assert "No cost" in answer.output


def test_finding_whose_mornings_had_no_updates_is_not_counted(
    history: History, record_and_update: RecordAndUpdate
) -> None:
    """An update on the morning before the fall, and the next one a month later: nobody asked meanwhile."""
    record_and_update(slower_mpiio(), STEP)
    record_and_update(slower_mpiio(), STEP + timedelta(days=30), STEP + timedelta(days=1))
    cost = assess_alarm_cost(history, "planted")
    assert (cost.counted, cost.unrecorded) == (0, 1)


def describe(*events: AlarmEvent, in_force: float = 0.5) -> str:
    curve = cost_of_thresholds(events, [0.2, 0.5, 0.7], AlarmPrices(10.0, 0.5))
    cost = AlarmCost("local", Prices(), in_force, 365.0, 9, 0, 9, 0, 0, curve)
    return "\n".join(alarm_cost_lines(cost))


LATE = AlarmEvent((0.0, 3.0), (0.3, 1.0), is_lasting=True, lost_share=0.5, end=9.0, per_year=1.0)
FALSE = AlarmEvent((0.0,), (0.3,), is_lasting=False, lost_share=0.0, end=1.0, per_year=1.0)


def test_text_names_the_cheapest_threshold_or_that_the_present_one_is_as_good() -> None:
    # 20 losses of 30 hours each that are late from .5 on, and 20 false messages of half an hour at .2.
    late = describe(*[LATE] * 20, *[FALSE] * 20)
    assert late.count("h a year less than the threshold in force") == 1
    assert "0.20 costs least: 590.0 h a year" in late
    assert "0.50 to 0.70 (0.50 in force)" in late
    assert "the threshold in force does not differ from it" in describe(*[LATE] * 20, *[FALSE] * 20, in_force=0.2)
