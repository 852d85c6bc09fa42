"""Findings whose shift is within what the level of their file system does by itself stay suspected, without action."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from iowatch.core.settings import Thresholds
from iowatch.findings import Finding, state
from iowatch.findings.finding import MovingLevel
from iowatch.findings.moving_levels import MovingLevels
from iowatch.output.text.findings import finding_line
from iowatch.output.text.losses import format_moving_level
from iowatch.statistics.constants import Floats
from iowatch.statistics.panel_table import PanelSeries
from tests.builders import build_finding, build_member, build_series_row
from tests.statistics.test_moving_level import CHANGE, SERIES, moving, still

DAY_S = 86_400
MOVING = MovingLevel(("scratch1",), usual=1.04, sessions=120, groups=1)


def levels_of(
    logs: Floats, *, steps: tuple[tuple[float, float], ...] = (), accepted: dict[int, int] | None = None
) -> MovingLevels:
    """Six series of one file system, a session per day."""
    times = DAY_S * np.arange(logs.shape[1])
    parameters = {"partition": "compute", "file_system": "scratch1"}
    series = [PanelSeries(times, row, parameters, steps) for row in logs]
    return MovingLevels([build_series_row(number) for number in range(SERIES)], series, accepted or {})


def loss(members: int = SERIES) -> Finding:
    """A loss of all series at CHANGE, which detection would open."""
    parameters = {"benchmark": "ior", "file_system": "scratch1"}
    of_finding = [
        build_member(number, parameters=parameters, first_after=CHANGE * DAY_S, gain=0.93) for number in range(members)
    ]
    return build_finding(*of_finding, state="suspected", first_after=CHANGE * DAY_S, anchor=CHANGE * DAY_S)


def test_movement_of_the_level_explains_a_finding() -> None:
    explained = 0
    for seed in range(20):
        attached = levels_of(moving(seed)).attach(loss(), would_act=True)
        if attached.moving_level is not None:
            explained += 1
            assert attached.moving_level.file_systems == ("scratch1",)
            assert 1.01 < attached.moving_level.usual < 1.15  # the level moves by 5 %
    assert explained >= 16


@pytest.mark.parametrize(("log_gain", "make"), [(math.log(0.5), moving), (math.log(0.9), still)])
def test_plain_losses_are_not_explained(log_gain: float, make: object) -> None:
    for seed in range(10):
        logs = moving(seed) if make is moving else still(seed)
        logs[:, CHANGE:] += log_gain
        assert levels_of(logs).attach(loss(), would_act=True).moving_level is None


def test_finding_without_action_is_not_assessed() -> None:
    assert levels_of(moving(1)).attach(loss(), would_act=True).moving_level is not None
    assert levels_of(moving(1)).attach(loss(), would_act=False).moving_level is None


def test_large_and_accepted_steps_before_are_no_movement() -> None:
    """A level that fell to a half at session 50, or whose fall by a tenth a person accepted, did not move by itself."""
    for log_gain, accepted in ((math.log(0.5), {}), (math.log(0.9), dict.fromkeys(range(SERIES), 50 * DAY_S))):
        logs = still(3)
        logs[:, 50:] += log_gain
        logs[:, CHANGE:] += math.log(0.93)
        with_steps = levels_of(logs, steps=((50.0 * DAY_S, log_gain),), accepted=accepted)
        assert with_steps.attach(loss(), would_act=True).moving_level is None
    # Without the decision of the last case the level has moved by itself before.
    undecided = levels_of(logs, steps=((50.0 * DAY_S, math.log(0.9)),))
    assert undecided.attach(loss(), would_act=True).moving_level is not None


def test_explained_finding_needs_no_action() -> None:
    """A confirmed one opens without the movement, and stays suspected with it; one that is open stays open."""
    member = replace(build_member(), observations=20, confidence=0.999)
    sure = build_finding(member, state="suspected")
    limits = Thresholds()
    opened = state.with_state(sure, None, [], date(2025, 5, 1), True, limits)
    kept = state.with_state(replace(sure, moving_level=MOVING), None, [], date(2025, 5, 1), True, limits)
    assert (opened.state, opened.needs_action) == ("open", True)
    assert (kept.state, kept.needs_action) == ("suspected", False)
    later = state.with_state(replace(sure, moving_level=MOVING), opened, [], date(2025, 5, 2), True, limits)
    assert later.state == "open"


def test_sentence_of_a_moving_level() -> None:
    finding = replace(loss(), moving_level=MOVING)
    text = "within what the level of scratch1 does by itself (±4 %, from 120 sessions before)"
    assert format_moving_level(finding) == text
    assert text in finding_line(finding)
