"""Whether a system is as fast after an event as before: a sequential decision over all series together.

After a maintenance the same runs are repeated within an hour and compared with the nights before. However often they
are repeated, they are *one* night: its load is drawn once. So the noise is that of nights (`night_noise.py`), of which
repetitions remove only what scatters within a night.

**Not fit** needs a group of at least three series, which share conditions on their case, that lost performance by one
factor. For a known group the likelihood ratio of such a loss grows with its size in standard errors, the *strength*
(Neyman and Pearson, 1933). Which group it is, nobody knows beforehand, and some groups are weak witnesses: the series
of one file system are slow together in many nights, those of one interface hardly ever. Hence each strength is divided
by what its group shows in its worst nights (the equal treatment of tests of Westfall and Young, Resampling-based
Multiple Testing, 1993), and the largest ratio decides. It decides if fewer nights before than the error rate allows
have as large a ratio, with as many nights as autocorrelated ones are worth. The night after counts among the nights
that say what is usual, so that its rank is exact as long as nights are exchangeable (conformal prediction: Vovk,
Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). Looks after each round hardly add errors, because
they share the draw of their night; the first is after the second round. A single series that fell further than any
series in any night before is reason enough alone.

**Fit** needs that a loss of at least the margin is excluded in every group: an intersection-union test (Berger,
Technometrics 24, 1982), whose error is that of one test. A difference smaller than the margin is no reason against it.

**Undecided** is everything else. `detectable_loss` states what could have been found: losses are planted into the
system's own nights.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy

from iowatch.statistics.constants import Floats
from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.night_noise import GroupScores, NightNoise, NoiseTails, effective_nights
from iowatch.statistics.panel_table import PanelSeries, PanelTable, robust_scatter
from iowatch.statistics.rules import Condition, format_conditions
from iowatch.statistics.vocabulary import ParameterVocabulary

FitnessDecision = Literal["fit", "not fit", "undecided"]
FitnessReason = Literal["group", "series", "margin", "open", "no baseline", "not measured"]
SeriesState = Literal["within", "lower", "higher", "open", "not measured", "no baseline"]

MIN_NIGHTS = 8
"""Nights with residuals without which nothing is known of the noise of nights; each series needs five nights more."""

# Groups that are compared, those with the lowest cost: each further group makes all others weaker.
_MOST_GROUPS = 600
# Quantile of the strength of a group that stands for its worst nights, and its least value: .95 and .99 find as much,
# .99 with more false alarms (bench/maintenance.py).
_WORST_NIGHTS, _LEAST_STRENGTH = 0.97, 1.0
# Two ways to look at the same nights: one finds small losses of a group in spite of outliers and of any common swing,
# the other large losses, also of few series or of all series that usually swing together.
_TAILS = (NoiseTails(limit=1.5, swing_variance=100.0), NoiseTails(limit=8.0, swing_variance=4.0))
# A series alone must fall so many times further than the furthest of all nights before, and so many scatters.
_BEYOND, _LEAST_DEPTH = 1.25, 6.0
# Nights with which that limit is twice as far.
_DEPTH_NIGHTS = 10
# Weight of the scatter within a night as earlier runs show it, in repetitions.
_PRIOR_REPETITIONS = 3
# Share of the variance of nights that is scatter within one, as long as no repetition shows it: that of benchio's jobs
# on ARCHER (bench/maintenance.py within).
_USUAL_WITHIN = 0.2
# Repeating cannot help if it would reduce no series' own variance by more than this share.
_HARDLY = 0.1
# Rounds before the first decision.
_FIRST_LOOK = 2
# Series of the deciding group beyond this many standard deviations changed, and others beyond the second number.
_INSIDE, _OUTSIDE = 1.0, 3.0
# Groups and nights into which losses are planted, and these losses.
_POWER_GROUPS, _POWER_NIGHTS = 8, 100
_POWER_LOSSES = -np.log([0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


@dataclass(frozen=True, slots=True)
class FitnessSettings:
    """What is decided, and how often it may be wrong.

    Attributes:
        margin: share of the performance whose loss matters; 0.1 is 10 %.
        false_alarm: probability of "not fit" although nothing changed.
        missed: probability of "fit" although a group lost the margin or more.
        group: series of the smallest group that is compared.
        first_look: runs per series before the first decision.
    """

    margin: float = 0.10
    false_alarm: float = 0.05
    missed: float = 0.05
    group: int = 3
    first_look: int = _FIRST_LOOK

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise StatisticsError(f"a margin of {self.margin} is not between 0 and 1", hint="0.1 is a loss of 10 %.")

    @property
    def log_margin(self) -> float:
        """The margin as a loss (natural logarithm, positive)."""
        return -math.log1p(-self.margin)


@dataclass(frozen=True, slots=True)
class SeriesFitness:
    """One series after the event.

    Attributes:
        position: in the series given.
        repetitions: number of runs after the event.
        log_gain: ln(after / level before), below 0 is a loss; NaN without a measurement or a level.
        interval: of `log_gain`, from the residuals of its own nights, with 95 % probability; ends may be infinite.
        nights: number of its nights before.
    """

    position: int
    repetitions: int
    log_gain: float
    interval: tuple[float, float]
    nights: int
    state: SeriesState


@dataclass(frozen=True, slots=True)
class GroupFitness:
    """Series that changed together.

    Attributes:
        rule: what the compared group shares, as text.
        members: positions of the series that changed.
        log_gain: of the group, without swings that look like those of earlier nights.
        standard_error: of `log_gain`.
        ratio: strength of the change, in units of the worst nights of this group.
        limit: ratio from which on it decides.
        nights_alike: nights before with at least this ratio, in any group.
    """

    rule: str
    members: tuple[int, ...]
    log_gain: float
    standard_error: float
    ratio: float
    limit: float
    nights_alike: int

    @property
    def decides(self) -> bool:
        """Whether the change is stronger than those of the nights before."""
        return self.ratio > self.limit


@dataclass(frozen=True)
class Fitness:
    """The state of a decision.

    Attributes:
        reason: what decides: a group of series, a series alone, all within the margin; or why it is open.
        lower, higher: the group that changed most in each direction; None without a measurement.
        fell_alone: positions of the series that fell further than any series in any night before.
        largest_possible_loss: loss (natural logarithm) of the least certain group that is not excluded; infinite
            without a baseline.
        least_certain: what the series of that group share.
        common_swing: mean swing (natural logarithm) that looks like those of earlier nights and was taken out.
        repeating_helps: whether further runs of the same night can reduce the noise.
        nights: nights before the event; `independent_nights`: what they are worth.
    """

    decision: FitnessDecision
    reason: FitnessReason
    series: tuple[SeriesFitness, ...]
    lower: GroupFitness | None = None
    higher: GroupFitness | None = None
    fell_alone: tuple[int, ...] = ()
    largest_possible_loss: float = math.inf
    least_certain: str = ""
    common_swing: float = 0.0
    repeating_helps: bool = True
    nights: int = 0
    independent_nights: float = 0.0


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Share of planted losses that are found.

    Attributes:
        losses: natural logarithm, ascending.
        shares: of the nights in which each was found.
    """

    losses: tuple[float, ...]
    shares: tuple[float, ...]

    def detectable(self, probability: float) -> float | None:
        """The smallest loss that is found with this probability, and so is every larger one; None without one."""
        detectable: float | None = None
        for loss, share in zip(reversed(self.losses), reversed(self.shares), strict=True):
            if share < probability:
                break
            detectable = loss
        return detectable


@dataclass
class FitnessTest:
    """All series after an event.

    Use: `record` each run, `assess` after each round, until `decision` is not "undecided" or time is up.

    Attributes:
        series: the nights before the event, with their established steps.
        vocabulary: prior costs and words of the parameters.
        expected_losses: positions of series that were meant to become slower; they are no evidence of a fault.
        within: standard deviation (natural logarithm) of a run around the mean of its night, per series, from earlier
            runs; 0 where it is not known. Repetitions of this night are added.
    """

    series: Sequence[PanelSeries]
    vocabulary: ParameterVocabulary
    settings: FitnessSettings = field(default_factory=FitnessSettings)
    expected_losses: Collection[int] = ()
    within: Sequence[float] = ()
    _values: list[list[float]] = field(init=False)
    _table: PanelTable | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not self.series:
            raise StatisticsError("there is no series to compare", hint="Choose a suite with headline metrics.")
        self._values = [[] for _ in self.series]
        if any(len(observed.times) for observed in self.series):
            self._table = PanelTable(self.series, self.vocabulary)
            self._learn(self._table)

    def _learn(self, table: PanelTable) -> None:
        """Learn noise, groups and their worst nights from the nights before."""
        self._residuals = table.logs - table.levels[:, :-1]
        self._levels = table.levels[:, -1]
        self._noise = NightNoise.estimate(self._residuals, robust_scatter(self._residuals))
        self._fewest = min(self.settings.group, len(self.series))
        # The groups that are compared: those of enough series, the cheapest first.
        is_large = table.cover.sum(axis=1) >= self._fewest
        order = [int(i) for i in np.argsort(table.costs, kind="stable") if is_large[i]][:_MOST_GROUPS]
        self._cover = table.cover[order]
        self._rules: list[tuple[Condition, ...]] = [table.rules[i] for i in order]
        # Of the nights in which at least one group was measured.
        strength = self._strength(self._residuals, self._noise.unique)
        self._past_strength = strength[:, np.isfinite(strength).any(axis=0)]

    def _score(self, residuals: Floats, unique: Floats) -> list[GroupScores]:
        """Scores of a loss of each group, one per way to look at the nights (`_TAILS`).

        Args:
            residuals: shape (S, N).
        """
        scores: list[GroupScores] = []
        for tails in _TAILS:
            z = self._noise.limit_distances(residuals, unique, tails)
            scores.append(self._noise.score_groups(z, self._cover, unique, self._fewest, tails))
        return scores

    def _strength(self, residuals: Floats, unique: Floats) -> Floats:
        """Strength of a loss of each group, in the first way and then in the second, shape (2 * groups, N)."""
        return np.vstack([scores.strength for scores in self._score(residuals, unique)])

    @property
    def nights(self) -> int:
        """Nights before the event with residuals."""
        return 0 if self._table is None else self._past_strength.shape[1]

    @property
    def has_baseline(self) -> bool:
        """Whether the nights before suffice for a decision."""
        return self.nights >= MIN_NIGHTS

    def level(self, position: int) -> float:
        """Natural logarithm of the performance of a series before the event; NaN with too few nights."""
        return math.nan if self._table is None else float(self._levels[position])

    def record(self, position: int, log_value: float) -> None:
        """Add a run.

        Args:
            position: of its series.
            log_value: natural logarithm of its performance (higher is better).
        """
        if not math.isfinite(log_value):
            raise StatisticsError(f"the logarithm of a result is {log_value}", hint="Performance must be positive.")
        self._values[position].append(log_value)

    def information_gains(self) -> Floats:
        """How much a further run of each series adds to the precision of its shift (1 / variance), shape (S,).

        0 where a series has no level before: it cannot be compared.
        """
        if not self.has_baseline:
            return np.ones(len(self.series))
        repetitions, within = self._repetitions(), self._within_shares()
        # Before the second run of a series nothing is known of the scatter within this night.
        within = np.where(repetitions < 2, np.maximum(within, _USUAL_WITHIN), within)
        variance = self._noise.scatter**2
        now = 1 / (variance * self._noise.unique_after(repetitions, within))
        now = np.where(repetitions > 0, now, 0.0)
        later = 1 / (variance * self._noise.unique_after(repetitions + 1, within))
        return np.asarray(np.where(np.isfinite(self._levels), later - now, 0.0))

    def assess(self) -> Fitness:
        """Decide, if that is possible now."""
        if not self.has_baseline:
            return Fitness("undecided", "no baseline", self._without_baseline(), nights=self.nights)
        residuals = self._residuals_after()
        compared = residuals.copy()
        compared[list(self.expected_losses)] = np.nan
        if np.isfinite(compared).sum() < self._fewest:
            return Fitness("undecided", "not measured", self._assess_series(residuals), nights=self.nights)
        unique = self._noise.unique_after(self._repetitions(), self._within_shares())
        lower = self._assess_group(-1, compared[:, None], unique)
        bounds = self._largest_losses(compared[:, None], unique)
        worst = int(np.argmax(bounds))
        fell_alone = self._fell_alone(compared)
        decision, reason = self._decide(lower, bounds, fell_alone)
        swing = self._noise.common_swing(residuals[:, None], unique, _TAILS[-1])[np.isfinite(residuals)]
        return Fitness(
            decision=decision,
            reason=reason,
            series=self._assess_series(residuals),
            lower=lower,
            higher=self._assess_group(1, residuals[:, None], unique),
            fell_alone=fell_alone,
            largest_possible_loss=float(bounds[worst]),
            least_certain=format_conditions(self._rules[worst], self.vocabulary),
            common_swing=float(swing.mean()),
            repeating_helps=self._repeating_helps(),
            nights=self.nights,
            independent_nights=effective_nights(self._ratios(-1, self._past_strength[:, :0])),
        )

    def _decide(
        self, lower: GroupFitness, bounds: Floats, fell_alone: Sequence[int]
    ) -> tuple[FitnessDecision, FitnessReason]:
        """What all series show; nothing before the first look."""
        measured = [len(values) for values in self._values if values]
        if np.median(measured) < self.settings.first_look:
            return "undecided", "open"
        # A series alone is looked at first: a group may be within the margin although one of its series is not.
        if fell_alone:
            is_group = lower.decides and len(lower.members) >= self._fewest
            return "not fit", "group" if is_group else "series"
        # A difference within the margin is no reason against "fit".
        if bool((bounds < self.settings.log_margin).all()):
            return "fit", "margin"
        if lower.decides:
            return "not fit", "group"
        return "undecided", "open"

    def _fell_alone(self, residuals: Floats) -> tuple[int, ...]:
        """The series that fell further, in units of their scatter, than any series in any night before."""
        losses = np.nan_to_num(-residuals, nan=0.0)
        furthest = float(np.nanmax(-self._residuals / self._noise.scatter[:, None]))
        limit = max(_BEYOND * furthest, _LEAST_DEPTH) * (1 + _DEPTH_NIGHTS / self.nights)
        is_deep = (losses / self._noise.scatter > limit) & (losses >= self.settings.log_margin)
        return tuple(int(i) for i in np.flatnonzero(is_deep))

    def _ratios(self, sign: int, after: Floats) -> Floats:
        """Largest strength among the groups, each in units of its worst nights; shape (nights before + columns,).

        Args:
            sign: -1 for losses, 1 for gains.
            after: from `_strength`, of the runs after the event, shape (2 * groups, columns).
        """
        strength = -sign * np.hstack([self._past_strength, after])
        is_scored = np.isfinite(strength)
        ratios = np.where(is_scored, strength / self._worst_nights(strength)[:, None], -np.inf)
        return np.asarray(ratios.max(axis=0))

    def _worst_nights(self, strength: Floats) -> Floats:
        """Strength of each group in its worst nights, infinite for one that few nights measured.

        Args:
            strength: shape (2 * groups, nights).
        """
        worst = np.full(len(strength), np.inf)
        has_nights = np.isfinite(strength).sum(axis=1) >= MIN_NIGHTS
        worst[has_nights] = np.nanquantile(strength[has_nights], _WORST_NIGHTS, axis=1)
        return np.asarray(np.maximum(worst, _LEAST_STRENGTH))

    def _assess_group(self, sign: int, residuals: Floats, unique: Floats) -> GroupFitness:
        """The group that changed most, compared with its worst nights.

        Args:
            sign: -1 for losses, 1 for gains.
            residuals: after the event, shape (S, 1).
        """
        scores_by_tails = self._score(residuals, unique)
        strength = np.vstack([scores.strength for scores in scores_by_tails])
        ratios = self._ratios(sign, strength)
        past = ratios[:-1]
        way, best = divmod(self._strongest(sign, strength[:, 0]), len(self._cover))
        error = scores_by_tails[way].standard_error[best, 0]
        # The limits are for the decision; the size is that of the whole change.
        tails = _TAILS[way]
        z = residuals / self._noise.scatter[:, None]
        whole = self._noise.score_groups(z, self._cover, unique, self._fewest, tails)
        distance = self._noise.distances(residuals, unique, tails)[:, 0]
        is_inside = self._cover[best] > 0
        has_changed = sign * distance > np.where(is_inside, _INSIDE, _OUTSIDE)
        return GroupFitness(
            rule=format_conditions(self._rules[best], self.vocabulary),
            members=tuple(int(i) for i in np.flatnonzero(has_changed)),
            log_gain=-float(whole.loss[best, 0]),
            standard_error=float(error),
            ratio=float(ratios[-1]),
            limit=rank_limit(past, effective_nights(past), self.settings.false_alarm),
            nights_alike=int((past >= ratios[-1]).sum()),
        )

    def _strongest(self, sign: int, strength: Floats) -> int:
        """Row of the largest ratio among those of `_strength`; of equal groups the cheapest, which is the first."""
        ratios = -sign * strength / self._worst_nights(-sign * self._past_strength)
        return int(np.argmax(np.where(np.isfinite(ratios), ratios, -np.inf)))

    def _largest_losses(self, residuals: Floats, unique: Floats) -> Floats:
        """Loss (natural logarithm) of each group that is not excluded, infinite where it was not measured.

        -inf for groups of which too few series can be compared.

        Args:
            residuals: after the event, shape (S, 1).
        """
        z = residuals / self._noise.scatter[:, None]
        # With and without the limit of distances: neither an outlier above nor the limit may hide a loss.
        quantiles = self._error_quantiles().reshape(len(_TAILS), -1)
        bounds_by_way: list[Floats] = []
        for tails, robust, quantile in zip(_TAILS, self._score(residuals, unique), quantiles, strict=True):
            whole = self._noise.score_groups(z, self._cover, unique, self._fewest, tails)
            losses = np.maximum(whole.loss, robust.loss)[:, 0]
            bounds_by_way.append(losses + quantile * robust.standard_error[:, 0])
        # Either is an upper limit; the first one is useless for a group that usually swings together.
        bounds = np.fmin.reduce(bounds_by_way)
        bounds = np.where(np.isfinite(bounds), bounds, np.inf)
        # New series, and those that were meant to become slower, need not be within the margin.
        is_compared = np.isfinite(self._levels)
        is_compared[list(self.expected_losses)] = False
        is_needed = self._cover @ is_compared.astype(np.float64) >= self._fewest
        return np.asarray(np.where(is_needed, bounds, -np.inf))

    def _error_quantiles(self) -> Floats:
        """Standard errors by which the loss of each group was estimated too low in some nights, rows as `_strength`.

        In a share of `missed` of the nights before, and not less than of normal noise with so many nights.
        """
        past = self._past_strength
        quantiles = np.full(len(past), np.inf)
        has_nights = np.isfinite(past).sum(axis=1) >= MIN_NIGHTS
        quantiles[has_nights] = np.nanquantile(-past[has_nights], 1 - self.settings.missed, axis=1)
        least = float(scipy.stats.t.ppf(1 - self.settings.missed, self.nights - 1))
        return np.asarray(np.maximum(quantiles, least))

    def _repetitions(self) -> Floats:
        return np.asarray([len(values) for values in self._values], dtype=np.float64)

    def _residuals_after(self) -> Floats:
        """Mean of the runs less the level before, shape (S,); NaN without one of them."""
        means = [float(np.mean(values)) if values else math.nan for values in self._values]
        return np.asarray(np.asarray(means) - self._levels)

    def _within_shares(self) -> Floats:
        """Variance of a run around the mean of its night, as a share of that of nights, shape (S,)."""
        earlier_variances = np.zeros(len(self.series))
        if len(self.within):
            earlier_variances = np.asarray(self.within, dtype=np.float64) ** 2
        variances: list[float] = []
        for values, earlier in zip(self._values, earlier_variances, strict=True):
            if len(values) < 2:
                variances.append(float(earlier))
                continue
            weight = _PRIOR_REPETITIONS if earlier > 0 else 0
            squares = float(np.sum((np.asarray(values) - np.mean(values)) ** 2))
            variances.append((weight * float(earlier) + squares) / (weight + len(values) - 1))
        return np.asarray(np.asarray(variances) / self._noise.scatter**2)

    def _repeating_helps(self) -> bool:
        """Whether repetitions can still remove noise of a series."""
        repetitions, within = self._repetitions(), self._within_shares()
        is_comparable = np.isfinite(self._levels)
        # The second run shows the scatter within this night.
        if bool((repetitions[is_comparable] < self.settings.first_look).any()):
            return True
        now = self._noise.unique_after(repetitions, within)
        at_last = self._noise.unique_after(np.full(len(repetitions), 1e9), within)
        return bool((((now - at_last) / now)[is_comparable] > _HARDLY).any())

    def _without_baseline(self) -> tuple[SeriesFitness, ...]:
        """The series without any comparison."""
        described: list[SeriesFitness] = []
        for position, values in enumerate(self._values):
            nights = len(self.series[position].times)
            endless = (-math.inf, math.inf)
            described.append(SeriesFitness(position, len(values), math.nan, endless, nights, "no baseline"))
        return tuple(described)

    def _assess_series(self, residuals: Floats) -> tuple[SeriesFitness, ...]:
        """Each series against its own nights.

        Args:
            residuals: after the event, shape (S,).
        """
        described: list[SeriesFitness] = []
        for position, residual in enumerate(residuals):
            past = self._residuals[position]
            past = past[np.isfinite(past)]
            state: SeriesState = "open"
            interval = (-math.inf, math.inf)
            if len(past) < MIN_NIGHTS:
                state = "no baseline"
            elif not math.isfinite(residual):
                state = "not measured"
            else:
                # A night as good as the best 2.5 % before hides a loss; one as bad as the worst shows none.
                low, high = np.quantile(past, [0.025, 0.975])
                interval = float(residual - high), float(residual - low)
                state = self._state_of_series(interval)
            repetitions = len(self._values[position])
            described.append(SeriesFitness(position, repetitions, float(residual), interval, len(past), state))
        return tuple(described)

    def _state_of_series(self, interval: tuple[float, float]) -> SeriesState:
        low, high = interval
        if low > 0:
            return "higher"
        if high < 0:
            return "lower"
        if low > -self.settings.log_margin:
            return "within"
        return "open"

    def power(self) -> PowerCurve | None:
        """Share of planted losses that are found, by size; None without a baseline.

        Losses are planted into the newest nights before, with as many repetitions as were made; the shares are medians
        of some groups of the smallest size.
        """
        if not self.has_baseline:
            return None
        unique = self._noise.unique_after(self._repetitions(), self._within_shares())
        nights = self._nights_of_power(unique)
        past = self._ratios(-1, self._past_strength[:, :0])
        limit = rank_limit(past, effective_nights(past), self.settings.false_alarm)
        worst = self._worst_nights(self._past_strength)[:, None]
        shares: list[list[float]] = []
        for group in self._groups_of_power():
            shares_of_group: list[float] = []
            for loss in _POWER_LOSSES:
                planted = nights - loss * self._cover[group][:, None]
                ratios = self._strength(planted, unique) / worst
                largest = np.where(np.isfinite(ratios), ratios, -np.inf).max(axis=0)
                shares_of_group.append(float(np.mean(largest > limit)))
            shares.append(shares_of_group)
        medians = np.median(shares, axis=0)
        return PowerCurve(tuple(float(loss) for loss in _POWER_LOSSES), tuple(float(share) for share in medians))

    def detectable_loss(self) -> float | None:
        """Loss (natural logarithm) of a small group that is found with a probability of 1 - `missed`.

        None if not even a loss to a tenth is found so often, or without a baseline.
        """
        power = self.power()
        return None if power is None else power.detectable(1 - self.settings.missed)

    def _nights_of_power(self, unique: Floats) -> Floats:
        """The newest nights before, with the scatter of the repetitions made, shape (S, nights)."""
        is_measured = np.isfinite(self._residuals).sum(axis=0) >= self._fewest
        nights = self._residuals[:, is_measured][:, -_POWER_NIGHTS:]
        common = self._noise.common_swing(nights, self._noise.unique, _TAILS[-1])
        return np.asarray(common + (nights - common) * np.sqrt(unique / self._noise.unique)[:, None])

    def _groups_of_power(self) -> list[int]:
        """Positions of the smallest groups that are compared, at equal distances in the order of their costs."""
        sizes = self._cover.sum(axis=1)
        smallest = np.flatnonzero(sizes == sizes.min())
        positions = np.linspace(0, len(smallest) - 1, min(_POWER_GROUPS, len(smallest))).round()
        return [int(smallest[int(i)]) for i in positions]


def rank_limit(past: Floats, independent_nights: float, false_alarm: float) -> float:
    """Value that a further night exceeds with at most this probability, if nothing changed.

    Args:
        past: values of the nights before, shape (T,), at least one.
        independent_nights: what these nights are worth.

    With too few nights for the rank, the largest is extended: for each doubling of the nights that are missing by as
    much as two thirds of it (an exponential tail that begins at 0).
    """
    worth = max(independent_nights, 1.0)
    rank = (worth + 1) * (1 - false_alarm) / worth
    if rank <= 1:
        return float(np.quantile(past, rank, method="higher"))
    missing = math.log(1 / (false_alarm * (worth + 1)))
    return max(float(past.max()), 1.0) * (1 + missing)
