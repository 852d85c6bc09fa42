"""Whether a system is as fast after an event as before: a sequential decision over all series together.

After a maintenance the same runs are repeated within an hour and compared with the nights before. However often they
are repeated, they are *one* night: its load is drawn once. So the noise is that of nights (`night_noise.py`), of which
repetitions remove only what scatters within a night.

**Not fit** needs evidence that a group of series lost performance. The evidence is the log likelihood ratio of "a group
of at least three series that share conditions on their case, or any set of series, lost by one factor" against "nothing
changed", averaged over groups (less the prior cost of their conditions) and sizes. For normal noise such an average of
likelihood ratios is a test martingale: it ever exceeds 1 / error with a probability of at most `error`, however often
it is looked at (Ville; Wald, Sequential Analysis, 1947; Robbins, Annals of Mathematical Statistics 41, 1970). Nights
of a shared file system are not normal, so the same evidence is computed for every night before, and the limit is their
quantile, too, with as many nights as they are worth (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random
World, 2005, for the rank). A single series that fell further than any series in any night before is evidence alone.

**Fit** needs that a loss of at least the margin is excluded in every group of at least three series that share a
condition: an intersection-union test (Berger, Technometrics 24, 1982), whose error is that of one test. A difference
smaller than the margin is no reason against it.

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
from iowatch.statistics.night_noise import GroupScores, NightNoise, effective_nights
from iowatch.statistics.panel_table import PanelSeries, PanelTable
from iowatch.statistics.rules import Condition, format_conditions
from iowatch.statistics.vocabulary import ParameterVocabulary

FitnessDecision = Literal["fit", "not fit", "undecided"]
SeriesState = Literal["within", "lower", "higher", "open", "not measured", "no baseline"]
FitnessReason = Literal["group", "series", "margin", "open", "no baseline", "not measured"]

MIN_NIGHTS = 8
"""Nights with residuals without which nothing is known of the noise of nights; each series needs five nights more."""

# Losses (natural logarithm) of a group, equally probable: x0.95 to x0.15.
_LOSSES = np.array([0.05, 0.08, 0.12, 0.17, 0.25, 0.4, 0.7, 1.2, 1.9])
# Probability that a series of a free set lost, and cost of such a set (nats): as for events of nights.
_FREE, _FREE_COST = 0.15, 2.0
# Groups that are compared; those with the lowest cost.
_MOST_GROUPS = 600
# A series alone must fall so many times further than the furthest of all nights before, and so many scatters.
_BEYOND, _LEAST_DEPTH = 1.25, 6.0
# Nights by which that limit is raised: it is twice as far with so many.
_DEPTH_NIGHTS = 10
# Weight of the scatter within a night as earlier runs show it, in repetitions.
_PRIOR_REPETITIONS = 3
# Repeating cannot help if it would reduce no series' own variance by more than this share.
_HARDLY = 0.1
# Series of the deciding group beyond this many standard deviations lost, and others beyond the second number.
_INSIDE, _OUTSIDE = 1.0, 2.5
# Groups and nights of a table of power, and the losses in it.
_POWER_GROUPS, _POWER_NIGHTS = 8, 100
_POWER_LOSSES = -np.log([0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2])


@dataclass(frozen=True, slots=True)
class FitnessSettings:
    """What is decided, and how often it may be wrong.

    Attributes:
        margin: share of the performance whose loss matters; 0.1 is 10 %.
        false_alarm: probability of "not fit" although nothing changed.
        missed: probability of "fit" although a group lost the margin or more.
        group: series of the smallest group that is compared.
    """

    margin: float = 0.10
    false_alarm: float = 0.05
    missed: float = 0.05
    group: int = 3

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
        rule: what the compared group shares, as text; `any series` for a free set.
        members: positions of the series that changed.
        log_gain: of the group, without swings that look like those of earlier nights.
        standard_error: of `log_gain`.
        evidence: log likelihood ratio (nats) against "nothing changed", averaged over all groups.
        limit: evidence from which on it decides.
        nights_alike: nights before with at least this evidence.
    """

    rule: str
    members: tuple[int, ...]
    log_gain: float
    standard_error: float
    evidence: float
    limit: float
    nights_alike: int

    @property
    def decides(self) -> bool:
        """Whether the evidence suffices."""
        return self.evidence > self.limit


@dataclass(frozen=True)
class Fitness:
    """The state of a decision.

    Attributes:
        reason: what decides: a group of series, a series alone, all within the margin; or why it is open.
        lower, higher: the group with the most evidence in each direction; None without a measurement.
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
    largest_possible_loss: float = math.inf
    least_certain: str = ""
    common_swing: float = 0.0
    repeating_helps: bool = True
    nights: int = 0
    independent_nights: float = 0.0


@dataclass(frozen=True)
class _Past:
    """What the nights before show in one direction.

    Attributes:
        evidence: of each night, shape (T,).
        limit: evidence that fewer nights exceed than the error rate allows.
        independent_nights: number of independent nights with the same information.
        scores: of each group in each night.
    """

    evidence: Floats
    limit: float
    independent_nights: float
    scores: GroupScores


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

    def __post_init__(self) -> None:
        self._values = [[] for _ in self.series]
        if not self.series:
            raise StatisticsError("there is no series to compare", hint="Choose a suite with headline metrics.")
        self._table: PanelTable | None = None
        if any(len(observed.times) for observed in self.series):
            self._table = PanelTable(self.series, self.vocabulary)
            self._learn(self._table)

    def _learn(self, table: PanelTable) -> None:
        """Learn noise and limits from the nights before."""
        self._residuals = table.logs - table.levels[:, :-1]
        self._levels = table.levels[:, -1]
        self._noise = NightNoise.estimate(self._residuals, table.scatter)
        self._fewest = min(self.settings.group, len(self.series))
        # The groups that are compared: those of enough series, the cheapest first.
        is_large = table.cover.sum(axis=1) >= self._fewest
        order = [int(i) for i in np.argsort(table.costs, kind="stable") if is_large[i]][:_MOST_GROUPS]
        self._cover, self._costs = table.cover[order], table.costs[order]
        self._rules: list[tuple[Condition, ...]] = [table.rules[i] for i in order]
        unique = self._noise.unique
        limited = self._noise.limit_distances(self._residuals, unique)
        # For a gain the residuals are mirrored, so that it is a loss, too.
        self._past = {sign: self._learn_past(-sign * limited, unique) for sign in (-1, 1)}

    def _learn_past(self, z: Floats, unique: Floats) -> _Past:
        """Evidence of each night before in one direction; `z` as in `score_groups`, with losses below 0."""
        scores = self._noise.score_groups(z, self._cover, unique, self._fewest)
        evidence = self._evidence(z, scores, unique)
        was_measured = np.isfinite(evidence)
        independent = effective_nights(evidence)
        limit = evidence_limit(evidence[was_measured], independent, self.settings.false_alarm)
        return _Past(evidence, limit, independent, scores)

    @property
    def nights(self) -> int:
        """Nights before the event with residuals."""
        return 0 if self._table is None else self._noise.nights

    @property
    def has_baseline(self) -> bool:
        """Whether the nights before suffice for a decision."""
        return self.nights >= MIN_NIGHTS

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
        variance = self._noise.scatter**2
        now = 1 / (variance * self._noise.unique_after(repetitions, within))
        now = np.where(repetitions > 0, now, 0.0)
        later = 1 / (variance * self._noise.unique_after(repetitions + 1, within))
        return np.asarray(np.where(np.isfinite(self._levels), later - now, 0.0))

    def assess(self) -> Fitness:
        """Decide, if that is possible now."""
        repetitions = self._repetitions()
        if not self.has_baseline:
            return Fitness("undecided", "no baseline", self._without_baseline(), nights=self.nights)
        residuals = self._residuals_after()
        if not np.isfinite(residuals).any():
            return Fitness("undecided", "not measured", self._assess_series(residuals), nights=self.nights)
        unique = self._noise.unique_after(repetitions, self._within_shares())
        compared = residuals[:, None].copy()
        compared[list(self.expected_losses)] = np.nan
        lower = self._assess_group(-1, compared, unique)
        higher = self._assess_group(1, residuals[:, None], unique)
        bounds = self._largest_losses(compared, unique)
        worst = int(np.argmax(bounds))
        series = self._assess_series(residuals)
        decision, reason = self._decide(lower, bounds, compared[:, 0])
        swing = self._noise.common_swing(residuals[:, None], unique)[np.isfinite(residuals)]
        return Fitness(
            decision=decision,
            reason=reason,
            series=series,
            lower=lower,
            higher=higher,
            largest_possible_loss=float(bounds[worst]),
            least_certain=format_conditions(self._rules[worst], self.vocabulary),
            common_swing=float(swing.mean()),
            repeating_helps=self._repeating_helps(),
            nights=self.nights,
            independent_nights=self._past[-1].independent_nights,
        )

    def _decide(self, lower: GroupFitness, bounds: Floats, residuals: Floats) -> tuple[FitnessDecision, FitnessReason]:
        """What the groups show together; a difference within the margin is no reason against "fit"."""
        # A series alone is looked at first: a group may be within the margin although one of its series is not.
        if self._fell_alone(residuals):
            return "not fit", "series"
        if bool((bounds < self.settings.log_margin).all()):
            return "fit", "margin"
        if lower.decides:
            return "not fit", "group"
        return "undecided", "open"

    def _fell_alone(self, residuals: Floats) -> bool:
        """Whether a series fell further, in units of its scatter, than any series in any night before."""
        depths = np.nan_to_num(-residuals / self._noise.scatter, nan=0.0)
        furthest = float(np.nanmax(-self._residuals / self._noise.scatter[:, None]))
        limit = max(_BEYOND * furthest, _LEAST_DEPTH) * (1 + _DEPTH_NIGHTS / self.nights)
        is_deep = (depths > limit) & (np.nan_to_num(-residuals, nan=0.0) >= self.settings.log_margin)
        return bool(is_deep.any())

    def _assess_group(self, sign: int, residuals: Floats, unique: Floats) -> GroupFitness:
        """The group with the most evidence of a loss (sign -1) or of a gain (1).

        Args:
            residuals: after the event, shape (S, 1).
        """
        past = self._past[sign]
        # In the direction of the sign a change is a loss of the mirrored residuals.
        mirrored = -sign * residuals
        z = self._noise.limit_distances(mirrored, unique)
        scores = self._noise.score_groups(z, self._cover, unique, self._fewest)
        evidence = float(self._evidence(z, scores, unique)[0])
        by_group = _mean_log_ratio(scores)[:, 0] - self._costs
        best = int(np.argmax(by_group))
        distance = (z / np.sqrt(unique)[:, None])[:, 0]
        is_inside = self._cover[best] > 0
        has_changed = np.where(is_inside, distance < -_INSIDE, distance < -_OUTSIDE)
        nights_alike = int((past.evidence[np.isfinite(past.evidence)] >= evidence).sum())
        return GroupFitness(
            rule=format_conditions(self._rules[best], self.vocabulary),
            members=tuple(int(i) for i in np.flatnonzero(has_changed)),
            log_gain=float(sign * scores.loss[best, 0]),
            standard_error=float(scores.standard_error[best, 0]),
            evidence=evidence,
            limit=past.limit,
            nights_alike=nights_alike,
        )

    def _largest_losses(self, residuals: Floats, unique: Floats) -> Floats:
        """Loss (natural logarithm) of each group that is not excluded; infinite where it was not measured.

        Args:
            residuals: after the event, shape (S, 1).
        """
        z = residuals / self._noise.scatter[:, None]
        limited = self._noise.limit_distances(residuals, unique)
        # With and without the limit of distances: neither an outlier above nor the limit may hide a loss.
        losses: list[Floats] = []
        for values in (z, limited):
            scores = self._noise.score_groups(values, self._cover, unique, self._fewest)
            losses.append(scores.loss[:, 0])
        errors = scores.standard_error[:, 0]
        bounds = np.maximum(*losses) + self._error_quantiles() * errors
        return np.asarray(np.where(np.isfinite(bounds), bounds, np.inf))

    def _error_quantiles(self) -> Floats:
        """Standard errors by which the loss of each group was estimated too low in some nights, shape (groups,).

        As a share of `missed` of the nights before, and not less than of normal noise with so many nights.
        """
        past = self._past[-1].scores
        with np.errstate(invalid="ignore"):
            estimates = np.where(past.information > 0, past.score / np.sqrt(past.information), np.nan)
        quantiles = np.full(len(estimates), np.nan)
        is_scored = np.isfinite(estimates).sum(axis=1) >= MIN_NIGHTS
        quantiles[is_scored] = np.nanquantile(-estimates[is_scored], 1 - self.settings.missed, axis=1)
        freedom = max(1.0, self._past[-1].independent_nights - 1)
        least = float(scipy.stats.t.ppf(1 - self.settings.missed, freedom))
        return np.asarray(np.where(is_scored, np.maximum(quantiles, least), np.inf))

    def _evidence(self, z: Floats, scores: GroupScores, unique: Floats) -> Floats:
        """Log likelihood ratio of a loss of some group against none, in each night; NaN where nothing was measured.

        Args:
            z: limited residuals in units of the scatter, shape (S, N).
        """
        with_costs = _mean_log_ratio(scores) - self._costs[:, None]
        groups = np.logaddexp.reduce(with_costs, axis=0) - np.logaddexp.reduce(-self._costs)
        free = self._evidence_of_free_sets(z, unique) - _FREE_COST
        # Groups and free sets are equally probable; their costs tell them apart.
        both = np.logaddexp(groups, free) - math.log1p(math.exp(-_FREE_COST))
        return np.asarray(np.where(np.isfinite(z).any(axis=0), both, np.nan))

    def _evidence_of_free_sets(self, z: Floats, unique: Floats) -> Floats:
        """Log likelihood ratio of "each series lost with a small probability", after common factors; shape (N,)."""
        is_measured = np.isfinite(z)
        common = self._noise.common_swing(z * self._noise.scatter[:, None], unique) / self._noise.scatter[:, None]
        distance = np.where(is_measured, (z - common) / np.sqrt(unique)[:, None], 0.0)
        by_loss: list[Floats] = []
        for loss in _LOSSES:
            shift = (loss / (self._noise.scatter * np.sqrt(unique)))[:, None]
            log_ratio = np.where(is_measured, -distance * shift - shift**2 / 2, 0.0)
            mixed = np.logaddexp(math.log(_FREE) + log_ratio, math.log1p(-_FREE))
            by_loss.append(np.where(is_measured, mixed, 0.0).sum(axis=0))
        return np.asarray(np.logaddexp.reduce(by_loss, axis=0) - math.log(len(_LOSSES)))

    def _repetitions(self) -> Floats:
        return np.asarray([len(values) for values in self._values], dtype=np.float64)

    def _residuals_after(self) -> Floats:
        """Mean of the runs less the level before, shape (S,); NaN without one of them."""
        means = [float(np.mean(values)) if values else math.nan for values in self._values]
        return np.asarray(np.asarray(means) - self._levels)

    def _within_shares(self) -> Floats:
        """Variance of a run around the mean of its night, as a share of that of nights, shape (S,)."""
        known = np.zeros(len(self.series))
        if len(self.within):
            known = np.asarray(self.within, dtype=np.float64) ** 2
        variances: list[float] = []
        for values, earlier in zip(self._values, known, strict=True):
            if len(values) < 2:
                variances.append(float(earlier))
                continue
            weight = _PRIOR_REPETITIONS if earlier > 0 else 0
            squares = float(np.sum((np.asarray(values) - np.mean(values)) ** 2))
            variances.append((weight * float(earlier) + squares) / (weight + len(values) - 1))
        return np.asarray(np.asarray(variances) / self._noise.scatter**2)

    def _repeating_helps(self) -> bool:
        """Whether a series of which nothing is repeated enough has noise that repetitions remove."""
        repetitions, within = self._repetitions(), self._within_shares()
        is_comparable = np.isfinite(self._levels)
        # The second run shows the scatter within this night.
        if bool((repetitions[is_comparable] < 2).any()):
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
            nights, repetitions = len(past), len(self._values[position])
            described.append(SeriesFitness(position, repetitions, float(residual), interval, nights, state))
        return tuple(described)

    def _state_of_series(self, interval: tuple[float, float]) -> SeriesState:
        low, high = interval
        if low > -self.settings.log_margin:
            return "higher" if low > 0 else "within"
        if high < 0:
            return "lower"
        return "open"

    def detectable_loss(self) -> float | None:
        """Loss (natural logarithm) of a small group that is found with a probability of 1 - `missed`.

        Losses are planted into the nights before, with as many repetitions as were made; the median of some groups of
        the smallest size. None if not even the largest of them, to a fifth, is found so often, or without a baseline.
        """
        power = self.power()
        return None if power is None else power.detectable(1 - self.settings.missed)

    def power(self) -> PowerCurve | None:
        """Share of planted losses that are found, by size; None without a baseline."""
        if not self.has_baseline:
            return None
        unique = self._noise.unique_after(self._repetitions(), self._within_shares())
        nights = self._nights_of_power(unique)
        shares: list[Floats] = []
        for group in self._groups_of_power():
            by_loss: list[float] = []
            for loss in _POWER_LOSSES:
                planted = nights - loss * self._cover[group][:, None]
                z = self._noise.limit_distances(planted, unique)
                scores = self._noise.score_groups(z, self._cover, unique, self._fewest)
                evidence = self._evidence(z, scores, unique)
                by_loss.append(float(np.mean(evidence > self._past[-1].limit)))
            shares.append(np.asarray(by_loss))
        return PowerCurve(tuple(float(loss) for loss in _POWER_LOSSES), tuple(map(float, np.median(shares, axis=0))))

    def _nights_of_power(self, unique: Floats) -> Floats:
        """The newest nights before, with the scatter of the repetitions made, shape (S, nights)."""
        is_measured = np.isfinite(self._residuals).sum(axis=0) >= self._fewest
        nights = self._residuals[:, is_measured][:, -_POWER_NIGHTS:]
        common = self._noise.common_swing(nights, self._noise.unique)
        return np.asarray(common + (nights - common) * np.sqrt(unique / self._noise.unique)[:, None])

    def _groups_of_power(self) -> list[int]:
        """Positions of the smallest groups that are compared, at equal distances in the order of their costs."""
        sizes = self._cover.sum(axis=1)
        smallest = np.flatnonzero(sizes == sizes.min())
        chosen = np.linspace(0, len(smallest) - 1, min(_POWER_GROUPS, len(smallest))).round()
        return [int(smallest[int(i)]) for i in chosen]


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


def _mean_log_ratio(scores: GroupScores) -> Floats:
    """Log of the mean likelihood ratio over the sizes of a loss, shape (groups, N)."""
    total = np.full(scores.score.shape, -np.inf)
    for loss in _LOSSES:
        total = np.logaddexp(total, loss * scores.score - loss**2 / 2 * scores.information)
    return np.asarray(total - math.log(len(_LOSSES)))


def evidence_limit(evidence: Floats, independent_nights: float, false_alarm: float) -> float:
    """Evidence that a night in which nothing changed exceeds with at most this probability.

    Args:
        evidence: of the nights before (nats), shape (T,), all finite.
        independent_nights: what these nights are worth.

    With too few nights for the rank, the largest is extended as far as the tail of the others is long: beyond a high
    quantile an exponential tail is assumed (Pickands, Annals of Statistics 3, 1975, with shape 0).
    """
    least = math.log(1 / false_alarm)
    if not len(evidence):
        return math.inf
    worth = max(independent_nights, 1.0)
    rank = (worth + 1) * (1 - false_alarm) / worth
    if rank <= 1:
        return max(least, float(np.quantile(evidence, rank, method="higher")))
    upper_quarter = evidence[evidence >= np.quantile(evidence, 0.75)]
    tail = max(1.0, float(np.mean(upper_quarter) - upper_quarter.min()))
    beyond = tail * math.log(1 / (false_alarm * (worth + 1)))
    return max(least, float(evidence.max()) + beyond)
