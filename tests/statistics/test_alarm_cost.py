"""Cost of a year over the thresholds: expected hours are worked out by hand from the prices in each test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iowatch.statistics.alarm_cost import FEWEST_DECISIVE, AlarmEvent, AlarmPrices, cost_of_thresholds
from iowatch.statistics.errors import StatisticsError

PRICES = AlarmPrices(half_speed_day=10.0, false_message=0.5)
# A file system that loses half of its performance, twice a year; suspected at once, sure after a week.
LOSS = AlarmEvent((0.0, 2.0, 7.0), (0.3, 0.6, 1.0), is_lasting=True, lost_share=0.5, end=40.0, per_year=2.0)
# A bad session every month, which is never said to last with more than 40 %.
OVER = AlarmEvent((0.0,), (0.4,), is_lasting=False, lost_share=0.0, end=1.0, per_year=12.0)


@pytest.mark.parametrize(
    ("threshold", "late", "false"),
    [
        (0.3, 0.0, 6.0),
        # Two days, twice, of 10 hours each; at .4 the bad sessions reach the threshold, at .41 they do not.
        (0.4, 40.0, 6.0),
        (0.41, 40.0, 0.0),
        (0.6, 40.0, 0.0),
        (0.61, 140.0, 0.0),
    ],
)
def test_days_until_the_message_and_false_messages_have_their_prices(
    threshold: float, late: float, false: float
) -> None:
    (cost,) = cost_of_thresholds([LOSS, OVER], [threshold], PRICES).costs
    assert (cost.late, cost.false, cost.total) == pytest.approx((late, false, late + false))


@pytest.mark.parametrize(
    ("event", "late"),
    [
        # A tenth of a file system costs a fifth of a half.
        (replace(LOSS, lost_share=0.1), 28.0),
        # A gain costs nothing.
        (replace(LOSS, lost_share=0.0), 0.0),
        # What is over, or known to a person, before any morning reaches the threshold costs until then.
        (replace(LOSS, end=5.0), 100.0),
        (replace(LOSS, mornings=(), probabilities=()), 800.0),
    ],
)
def test_cost_of_a_late_message_is_what_the_loss_takes_until_then(event: AlarmEvent, late: float) -> None:
    assert cost_of_thresholds([event], [0.9], PRICES).costs[0].late == pytest.approx(late)


def test_cheapest_threshold_is_in_the_middle_of_the_cheapest_ones() -> None:
    curve = cost_of_thresholds([LOSS, OVER], [0.1, 0.45, 0.5, 0.55, 0.7], replace(PRICES, false_message=10.0))
    # 120 hours of false messages against 40 of a late one; from .61 on 140.
    assert curve.cheapest == 0.5
    assert curve.cost_of(0.5).total == pytest.approx(40.0)
    with pytest.raises(KeyError):
        curve.cost_of(0.51)


@pytest.mark.parametrize(("number", "has_enough_events"), [(FEWEST_DECISIVE, True), (FEWEST_DECISIVE - 1, False)])
def test_few_events_are_not_enough_to_choose(number: int, has_enough_events: bool) -> None:
    """Of both kinds, and only those that some of the thresholds report earlier than others."""
    certain = replace(LOSS, mornings=(0.0,), probabilities=(1.0,))
    enough = [LOSS] * FEWEST_DECISIVE + [OVER] * number + [certain] * 20
    curve = cost_of_thresholds(enough, [0.2, 0.5, 0.7], PRICES)
    assert (curve.decisive_losses, curve.decisive_false, curve.has_enough_events) == (
        FEWEST_DECISIVE,
        number,
        has_enough_events,
    )
    other = cost_of_thresholds([LOSS] * number + [OVER] * FEWEST_DECISIVE, [0.2, 0.5, 0.7], PRICES)
    assert other.has_enough_events is has_enough_events


def test_thresholds_are_alike_unless_the_events_tell_them_apart() -> None:
    """20 losses that .7 reports late are no chance; one loss against six hours of false messages is."""
    many = cost_of_thresholds([LOSS] * 20 + [OVER] * 20, [0.2, 0.7], PRICES)
    assert (many.cheapest, many.alike) == (0.2, (0.2,))
    # In e^-1 of the draws, more than a third, the loss did not happen.
    few = cost_of_thresholds([LOSS] + [replace(OVER, per_year=1.0)] * 20, [0.2, 0.7], PRICES)
    assert (few.cheapest, few.alike) == (0.2, (0.2, 0.7))


def test_no_thresholds_are_an_error_and_no_events_cost_nothing() -> None:
    with pytest.raises(StatisticsError, match="no thresholds"):
        cost_of_thresholds([LOSS], [], PRICES)
    curve = cost_of_thresholds([], [0.2, 0.5], PRICES)
    assert [cost.total for cost in curve.costs] == [0.0, 0.0]
    assert not curve.has_enough_events
