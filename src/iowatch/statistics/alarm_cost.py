"""What a threshold of messages costs a year: hours of users until a lasting loss is reported, and false messages.

An event that lasts costs from its first run until the first morning on which the probability that it lasts reaches the
threshold. An event that does not last costs one false message if any of its mornings reaches it. A lower threshold
reports more of both, earlier. Whether two thresholds differ is decided by a bootstrap over the events, because their
number in a year is random, too: each event is counted as often as a Poisson distribution with mean 1 says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.constants import Floats
from iowatch.statistics.errors import StatisticsError

# Draws of the bootstrap, and the quantile of the difference of two thresholds below which one of them is not cheaper:
# the costs differ if 95 of 100 draws agree. With half of the draws the limits move by less than one threshold.
_DRAWS, _QUANTILE, _SEED = 2000, 0.05, 12
# Delayed losses, and false messages, that some thresholds have and others do not. With five events of a kind a draw has
# none of them with e^-5, less than 1 %; with fewer the bootstrap is too sure. Doubled, a site needs twice the years.
FEWEST_DECISIVE = 5
# A loss of half of the performance is the unit of the price of a day.
_PRICED_LOSS = 0.5


@dataclass(frozen=True, slots=True)
class AlarmPrices:
    """Hours that people lose.

    Attributes:
        half_speed_day: of the users of a file system, in a day in which it has half of its performance.
        false_message: of the administrator, for a message about something that does not last.
    """

    half_speed_day: float
    false_message: float


@dataclass(frozen=True, slots=True)
class AlarmEvent:
    """An event, and what the mornings since its first run stated about it.

    Attributes:
        mornings: days since its first run, ascending: those on which it was more probable than on all before.
        probabilities: that it lasts, on these mornings; ascending.
        is_lasting: whether it lasted.
        lost_share: performance of one file system that it takes, as a share of it (0 to 1); 0 of a gain.
        end: days from which on it costs nothing more, if no morning reaches a threshold.
        per_year: number of such events in a year.
    """

    mornings: tuple[float, ...]
    probabilities: tuple[float, ...]
    is_lasting: bool
    lost_share: float
    end: float
    per_year: float

    def day_of_message(self, threshold: float) -> float | None:
        """Days from the first run to the first morning that reaches the threshold; None if none does."""
        for day, probability in zip(self.mornings, self.probabilities, strict=True):
            if probability >= threshold:
                return day
        return None


@dataclass(frozen=True, slots=True)
class ThresholdCost:
    """Cost of a year with one threshold.

    Attributes:
        late: hours of users, from the beginning of lasting losses to their messages.
        false: hours of the administrator, for messages about what does not last.
    """

    threshold: float
    late: float
    false: float

    @property
    def total(self) -> float:
        """Hours per year."""
        return self.late + self.false


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Costs of a year over the thresholds.

    Attributes:
        costs: of each threshold, in the order of the thresholds.
        cheapest: threshold with the lowest cost; of several the one in the middle.
        alike: thresholds whose cost does not differ from the lowest one beyond chance.
        decisive_losses, decisive_false: number of events whose delay, or whose false message, depends on the threshold.
    """

    costs: tuple[ThresholdCost, ...]
    cheapest: float
    alike: tuple[float, ...]
    decisive_losses: int
    decisive_false: int

    @property
    def has_enough_events(self) -> bool:
        """Whether there are enough events of both kinds to choose a threshold by."""
        return min(self.decisive_losses, self.decisive_false) >= FEWEST_DECISIVE

    def cost_of(self, threshold: float) -> ThresholdCost:
        """The cost with one of the thresholds.

        Raises:
            KeyError: it is none of them.
        """
        for cost in self.costs:
            if cost.threshold == threshold:
                return cost
        raise KeyError(threshold)


def lost_user_hours(lost_share: float, days: float, half_speed_day: float) -> float:
    """Hours that a loss costs the users of a file system.

    Args:
        lost_share: performance of one file system that it takes, as a share of it (0 to 1).
        days: how long it went on.
        half_speed_day: hours that a day with half of the performance costs.
    """
    return days * lost_share / _PRICED_LOSS * half_speed_day


def cost_of_thresholds(events: Sequence[AlarmEvent], thresholds: Sequence[float], prices: AlarmPrices) -> CostCurve:
    """The cost of a year over the thresholds of the probability that an event lasts.

    Raises:
        StatisticsError: there are no thresholds.
    """
    shape = len(events), len(thresholds)
    late, false = np.zeros(shape), np.zeros(shape)
    for row, event in enumerate(events):
        for column, threshold in enumerate(thresholds):
            day = event.day_of_message(threshold)
            if event.is_lasting:
                delay = event.end if day is None else min(day, event.end)
                hours = lost_user_hours(event.lost_share, delay, prices.half_speed_day)
                late[row, column] = event.per_year * hours
            elif day is not None:
                false[row, column] = event.per_year * prices.false_message
    return curve_of_costs(thresholds, late, false)


def curve_of_costs(thresholds: Sequence[float], late: Floats, false: Floats) -> CostCurve:
    """The curve of the costs of single events.

    Args:
        thresholds: shape (T,).
        late: hours of users per year that each event costs with each threshold, shape (E, T).
        false: hours of the administrator, likewise.

    Raises:
        StatisticsError: there are no thresholds.
    """
    if not len(thresholds):
        raise StatisticsError("no thresholds")
    costs: list[ThresholdCost] = []
    for column, threshold in enumerate(thresholds):
        costs.append(ThresholdCost(threshold, float(late[:, column].sum()), float(false[:, column].sum())))
    totals = np.asarray([cost.total for cost in costs])
    # Without an event between two thresholds their costs are equal: the middle of the flat part is farthest from both
    # of its ends.
    lowest = np.flatnonzero(np.isclose(totals, totals.min()))
    cheapest = int(lowest[len(lowest) // 2])
    differences = _resampled_totals(late + false)
    differences -= differences[:, [cheapest]]
    is_alike = np.quantile(differences, _QUANTILE, axis=0) <= 0
    return CostCurve(
        costs=tuple(costs),
        cheapest=thresholds[cheapest],
        alike=tuple(threshold for threshold, alike in zip(thresholds, is_alike, strict=True) if alike),
        decisive_losses=_count_decisive(late),
        decisive_false=_count_decisive(false),
    )


def _resampled_totals(costs: Floats) -> Floats:
    """Cost of a year over the thresholds in each draw of the bootstrap, shape (draws, T)."""
    stream = np.random.default_rng(_SEED)
    counts = stream.poisson(1.0, (_DRAWS, len(costs)))
    return np.asarray(counts @ costs, dtype=np.float64)


def _count_decisive(costs: Floats) -> int:
    """Number of events whose costs, shape (E, T), depend on the threshold."""
    if not costs.size:
        return 0
    return int((np.ptp(costs, axis=1) > 0).sum())
