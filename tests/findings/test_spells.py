"""Losses of five to fourteen nights: closed as spells with their length, and what a later finding states of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.findings import Finding
from iowatch.findings.finding import EarlierSpells, Resolution
from iowatch.findings.spells import Spells
from iowatch.output.text.decisions import format_resolution
from iowatch.output.text.findings import finding_line
from iowatch.output.text.losses import format_earlier_spells
from iowatch.statistics.panel_table import PanelSeries
from iowatch.store import History
from tests.builders import build_finding, build_member, build_series_row
from tests.findings.test_losses import Factors, record, update

DAY_S = 86_400


def spells(*begun: tuple[int, int], factor: float = 0.4) -> Factors:
    """All series at a factor from each first night on, for a number of nights."""

    def of_night(night: int, number: int) -> float:
        for first, nights in begun:
            if first <= night < first + nights:
                return factor
        return 1.0

    return of_night


def mornings(history: History, nights: Sequence[int], factors: Factors) -> list[list[Finding]]:
    """The findings of each morning."""
    findings_by_morning: list[list[Finding]] = []
    for night in nights:
        record(history, [night], factors)
        findings_by_morning.append(update(history, night))
    return findings_by_morning


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("nights", [5, 9, 14])
def test_spell_is_closed_with_its_length(history: History, root: Path, nights: int) -> None:
    factors = spells((40, nights))
    record(history, range(40), factors)
    update(history, 39)
    findings_by_morning = mornings(history, range(40, 40 + nights + 8), factors)
    # True losses need action while they go on.
    assert all(any(finding.needs_action for finding in morning) for morning in findings_by_morning[2:nights])
    loss = next(finding for finding in findings_by_morning[nights - 1] if finding.needs_action)
    (last,) = [finding for finding in findings_by_morning[-1] if finding.id == loss.id]
    assert last.resolution is not None
    # Nights of the loss are 40 to 39 + nights: it is over with the session of the next one.
    session_after = history.sessions(last.system)[-1].started_at + (40 + nights) * DAY_S
    assert (last.resolution.kind, last.resolution.sessions) == ("spell", nights)
    assert last.end() == last.resolution.since
    assert last.end() == pytest.approx(session_after, abs=3600)
    assert format_resolution(last) == f"a spell of {nights} sessions, over"
    # It is over within four sessions, and its end is nothing to act on.
    for morning in findings_by_morning[nights + 3 :]:
        assert not any(finding.needs_action for finding in morning)


@pytest.mark.slow_after(4)
def test_level_that_stays_is_no_spell(history: History, root: Path) -> None:
    factors = spells((40, 100))
    record(history, range(40), factors)
    update(history, 39)
    findings_by_morning = mornings(history, range(40, 64), factors)
    assert all(finding.resolution is None for finding in findings_by_morning[-1])
    assert any(finding.state == "open" for finding in findings_by_morning[-1])


def spells_of(nights: int, lost: int = 0) -> Spells:
    """One series over some nights, the first 30 at its level; the newest `lost` are at a half."""
    logs = [0.0] * (nights - lost) + [-0.693] * lost
    times = [night * DAY_S for night in range(nights)]
    return Spells([build_series_row(1)], [PanelSeries(times, logs, {})])  # type: ignore[arg-type]


def earlier(night: int, resolution: Resolution | None, *, needed_action: bool = True) -> Finding:
    finding = build_finding(
        build_member(first_after=night * DAY_S), id=f"loss-{night}", first_after=night * DAY_S, resolution=resolution
    )
    return replace(finding, needed_action=needed_action)


PREVIOUS = (
    earlier(40, Resolution("spell", sessions=9)),
    earlier(55, Resolution("spell", sessions=6)),
    earlier(70, Resolution("returned", finding="gain", since=90 * DAY_S)),  # it lasted
    earlier(100, None),  # 50 sessions ago
    earlier(30, Resolution("transient", sessions=3)),
    earlier(31, Resolution("not confirmed")),  # not known
    earlier(32, Resolution("spell", sessions=8), needed_action=False),  # it was only shown
)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [(1, (5, 3)), (3, (5, 3)), (4, (4, 2)), (6, (4, 2)), (7, None), (14, None)],
    ids=lambda value: str(value),
)
def test_finding_states_what_became_of_earlier_losses(lost: int, expected: tuple[int, int] | None) -> None:
    """Only those count that went on for as long as this one; after seven sessions a single spell is left."""
    begun = earlier(150 - lost, None)
    finding = spells_of(150, lost).attach_experience(begun, [*PREVIOUS, begun])
    if expected is None:
        assert finding.earlier_spells is None
    else:
        assert finding.earlier_spells == EarlierSpells(*expected, within=14)


def test_sentence_of_earlier_spells() -> None:
    finding = replace(earlier(140, None), earlier_spells=EarlierSpells(9, 4, 14))
    text = "or a long spell: of 9 like it 4 ended within 14 sessions"
    assert format_earlier_spells(finding) == text
    assert text in finding_line(finding)
    assert not format_earlier_spells(replace(finding, resolution=Resolution("spell", sessions=6)))


def test_gain_that_ends_a_spell_is_its_recovery() -> None:
    """The loss of nights 140 to 146 is over since night 147; a gain of another date is none."""
    logs = [0.0] * 140 + [-0.693] * 7 + [0.0] * 5
    series = PanelSeries([night * DAY_S for night in range(152)], logs, {})  # type: ignore[arg-type]
    of_system = Spells([build_series_row(1)], [series])
    loss = earlier(140, None)
    gains = []
    for night in (147, 143):
        member = build_member(first_after=night * DAY_S, gain=2.0)
        gains.append(build_finding(member, id=f"gain-{night}", direction="up", first_after=night * DAY_S))
    closed = {finding.id: finding.resolution for finding in of_system.close([loss, *gains], [loss])}
    assert closed["loss-140"] == Resolution("spell", sessions=7, since=147 * DAY_S)
    assert closed["gain-147"] == Resolution("recovery", finding="loss-140")
    assert closed["gain-143"] is None


@pytest.mark.parametrize("nights", [4, 15])
def test_shorter_and_longer_losses_are_no_spells(nights: int) -> None:
    logs = [0.0] * 140 + [-0.693] * nights + [0.0] * 5
    series = PanelSeries([night * DAY_S for night in range(len(logs))], logs, {})  # type: ignore[arg-type]
    loss = earlier(140, None)
    (kept,) = Spells([build_series_row(1)], [series]).close([loss], [loss])
    assert kept.resolution is None
