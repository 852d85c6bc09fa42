"""A control chart of losses: is the newest observation of a series below what is usual for this very series?

The chart answers in the first session, without regard to whether the loss lasts (that is `iowatch.statistics.panel`):

1. *Level* of a series before a session: median of its last 30 usual observations. *Scatter*: 1.4826 times the median
   absolute deviation of its last 100 usual observations from the levels before them. Nothing of it is taken from other
   series.
2. An observation is *outside* if it is below the level by five times the scatter, and by the smallest loss worth a
   message; with few observations by more (quantiles of Student's t). Several sessions in a row need three times the
   scatter. From there until it is back the series is in an *excursion*, and neither level nor scatter learn from it.
3. A *group* (the series of one file system, or all) has a chart of its own: that of the median of the deviations of
   its series, without those that are unusual already. So the bad sessions that a file system has in common are learnt
   as such.
4. An excursion is *unusual* if one, two, or four of its sessions in a row are all so far off that excursions about as
   bad (60 % of this loss, as logarithm) came less than once in 90 sessions, in any series of the system; for a group,
   in any group. One that never occurred before is always unusual. An unusual one stays so until the series is back.
5. The effect of a recorded load is removed before. The record is a look before and one after each run, which may miss
   a load: what is lost in one session alone must be outside even if the load was as large as it ever was on record.
   In several sessions in a row the loss counts in full.

A larger loss is never less unusual than a smaller one: what it is compared with ended before its excursion began.
Scatter of other series takes no part; their excursions do, so that a system on which single series fall to a tenth
every second week does not report each of them. Control charts: Montgomery, Introduction to Statistical Quality Control,
8th edition, sections 6.4 (individual values) and 5.3 (runs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy  # its modules are loaded when they are used: scipy.stats would take half a second
from numpy.typing import NDArray

from iowatch.statistics.constants import LEAST_SCATTER, MAD_TO_SD, Floats
from iowatch.statistics.panel_table import (
    LEVEL_OBSERVATIONS,
    MIN_LEVEL_OBSERVATIONS,
    PAST_SESSIONS,
    PanelSeries,
    session_starts,
)

# The sessions that are compared, and the observations whose median is the level, are those of the panel; with twice as
# many observations no figure changes by more than 4.
# What doubling the constants here does is measured on the years of Edison, Cori and Mira, which have 8, 13 and 12
# unusual losses with them, and on 300 simulated falls, of which 208 of 213 to a half and less are found, and 58 of 87
# to 80 % (docs/detection-scores.md).
# Usual observations that give the scatter. Twice as many change no figure by more than 4.
_SCATTER_OBSERVATIONS = 100
# Limits in scatters, of one session and of several in a row; as in the usual chart of individual values, but wider by
# two for one session, because I/O has heavier tails than the normal distribution. With ten and three 40 of the 87
# falls to 80 % are found, with five and six 53.
_ONE_SESSION, _SEVERAL_SESSIONS = 5.0, 3.0
# With few observations limits grow as this one-sided quantile of Student's t does. Ten times as much changes nothing.
_TAIL = 1e-4
# Numbers of sessions in a row that are tested. With one session only, half of the losses of the years are left.
_LENGTHS = (1, 2, 4)
# An excursion goes on while this share of its largest loss is left, even if that is no longer outside. With twice as
# much 47 of the 87 falls to 80 % are found.
_RETURNED = 0.5
# Earlier excursions with this share of the loss are about as bad. With 100 % the years have 28, 19 and 25 unusual
# losses, nearly all of them over in the next session.
_ABOUT_AS_BAD = 0.6
# Excursions that are about as bad are usual if they come once in so many sessions. With twice as many the years have 6,
# 11 and 10 unusual losses.
_RETURN_SESSIONS = 90
# Series of a group that must be measured in a session.
_MIN_GROUP = 3
# A series of an unusual group is named with it from this share of the group's loss on.
_NAMED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class UnusualLoss:
    """A series that is below what is usual for it, up to its newest observation.

    Attributes:
        series: its position among the series.
        last_before: epoch seconds of its last observation before the excursion.
        times: epoch seconds of its observations in the excursion, shape (n,).
        level: level before the excursion (ln).
        log_gains: its observations in the excursion, less the level (ln, negative), shape (n,).
        lowest: smallest earlier observation, less the level before it (ln); of `earlier` observations.
        limit: loss (ln, positive) from which on an observation is outside.
        similar: number of earlier excursions in the system that were about as bad.
        is_alone: whether the series is unusual by itself, and not only its group.
    """

    series: int
    last_before: int
    times: tuple[int, ...]
    level: float
    log_gains: tuple[float, ...]
    lowest: float
    earlier: int
    limit: float
    similar: int
    is_alone: bool


@dataclass(frozen=True, slots=True)
class UsualRange:
    """What is usual for a series, and its newest observation.

    Attributes:
        series: its position among the series.
        level: before the newest session (ln).
        limit: distance from the level, on either side, from which on an observation is outside (ln).
        log_gain: newest observation, less the level (ln).
        earlier: number of observations before.
    """

    series: int
    level: float
    limit: float
    log_gain: float
    earlier: int


@dataclass(frozen=True, slots=True)
class ChartReport:
    """State of the control chart after the newest session.

    Attributes:
        losses: the series that are unusual in their newest observation.
        ranges: of each series that was measured in the newest session and is assessed.
        starts: epoch seconds of the first run of each session, shape (T,).
        begun: number of series and groups that became unusual in each session, shape (T,).
        unusual: number of series and groups that were unusual after each session, shape (T,).
    """

    losses: tuple[UnusualLoss, ...]
    ranges: tuple[UsualRange, ...]
    starts: Floats = field(default_factory=lambda: np.zeros(0))
    begun: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unusual: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class NewLevel:
    """A level that is known to be a new one: an established step, or a level that a person accepted.

    Attributes:
        start: epoch seconds of its first observation.
        known_until: epoch seconds; observations before it belong to the level. Later ones may be another loss.
    """

    start: float
    known_until: float = math.inf


def chart_losses(
    series: Sequence[PanelSeries],
    groups: Sequence[str],
    smallest_loss: float = 0.2,
    new_levels: Sequence[Sequence[NewLevel]] = (),
    load_margins: Sequence[Floats] = (),
) -> ChartReport:
    """Assess every session of the series of a system, in order of time, and return the state after the newest one.

    Args:
        series: observations; their steps are not used.
        groups: of each series the name of its group, usually its file system, shape (S,).
        smallest_loss: share of the performance (0 to 1) from which on the loss of a calm series is worth a message.
        new_levels: of each series, shape (S,); empty: none has any.
        load_margins: of each series what the largest load on record would take from each observation beyond the
            recorded load (ln, 0 or positive), shape (n,); empty: no series was adjusted for a load.
    """
    if not any(len(observed.times) for observed in series):
        return ChartReport((), ())
    levels = new_levels or [()] * len(series)
    margins = load_margins or [np.zeros(len(observed.times)) for observed in series]
    chart = _Chart(series, groups, levels, margins, -math.log(1 - smallest_loss))
    for session in range(len(chart.starts)):
        chart.assess(session)
    return chart.report()


class _Usual:
    """The newest usual values of each row in a ring: levels or deviations. NaN where there are fewer.

    Attributes:
        counts: number of values that were ever added, shape (rows,).
    """

    def __init__(self, rows: int, size: int) -> None:
        self.values = np.full((rows, size), np.nan)
        self.counts = np.zeros(rows, dtype=np.int64)

    def add(self, rows: NDArray[np.intp], values: Floats) -> None:
        """Add one value to each of these rows."""
        self.values[rows, self.counts[rows] % self.values.shape[1]] = values
        self.counts[rows] += 1

    @property
    def held(self) -> NDArray[np.int64]:
        """Number of values in the ring, shape (rows,)."""
        return np.minimum(self.counts, self.values.shape[1])

    def medians(self) -> Floats:
        """Median of each row, shape (rows,)."""
        return _row_medians(self.values, self.held)

    def scatter(self) -> Floats:
        """Robust scatter of each row, shape (rows,)."""
        distances = np.abs(self.values - self.medians()[:, None])
        return np.maximum(LEAST_SCATTER, MAD_TO_SD * _row_medians(distances, self.held))


def _row_medians(values: Floats, counts: NDArray[np.int64]) -> Floats:
    """Median of the values of each row that are not NaN; `np.nanmedian` takes ten times as long.

    Args:
        counts: number of values that are not NaN, shape (rows,); a row without any has the median NaN.
    """
    ordered = np.sort(values, axis=1)  # NaN last
    rows = np.arange(len(values))
    lower = ordered[rows, np.maximum(counts - 1, 0) // 2]
    upper = ordered[rows, counts // 2 % values.shape[1]]
    return np.asarray(np.where(counts % 2 == 1, lower, (lower + upper) / 2))


@dataclass(slots=True)
class _Excursion:
    """A series or group that is outside.

    Attributes:
        start: first session.
        sessions, losses: sessions of its observations, and the losses (ln, positive).
        level: before the excursion (ln); 0 for a group.
        similar: number of earlier excursions that were about as bad, once it is unusual; else None.
    """

    start: int
    level: float
    sessions: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    similar: int | None = None

    def worst_of_last(self, length: int) -> float:
        """Loss that the last `length` observations reach, all of them; 0 with fewer observations."""
        return min(self.losses[-length:]) if len(self.losses) >= length else 0.0


class _Chart:
    """Series by sessions; the rows after the series are those of the groups."""

    def __init__(
        self,
        series: Sequence[PanelSeries],
        groups: Sequence[str],
        new_levels: Sequence[Sequence[NewLevel]],
        load_margins: Sequence[Floats],
        least: float,
    ) -> None:
        moments = [np.asarray(observed.times, dtype=np.float64) for observed in series]
        self.starts = session_starts(moments)[-PAST_SESSIONS:]
        self.least = least
        self.series = len(series)
        self.times = _tabulate(moments, moments, self.starts)
        self.logs = _tabulate(moments, [observed.logs for observed in series], self.starts)
        self.load_margins = _tabulate(moments, load_margins, self.starts)
        self.new_levels = self._seeds(new_levels)
        self.members = _group_members(groups)
        rows = self.series + len(self.members)
        self.usual_levels = _Usual(self.series, LEVEL_OBSERVATIONS)
        self.usual_deviations = _Usual(rows, _SCATTER_OBSERVATIONS)
        # Of each observation from the level before it.
        self.past_deviations = np.full((rows, len(self.starts)), np.nan)
        self.excursions: dict[int, _Excursion] = {}
        # Loss that so many sessions in a row reached at the end of each session: lengths by rows by sessions.
        self.depths = np.zeros((len(_LENGTHS), rows, len(self.starts)))
        self.begun = np.zeros(len(self.starts), dtype=np.int64)
        self.unusual = np.zeros(len(self.starts), dtype=np.int64)
        self.levels = np.full(self.series, np.nan)
        self.limits = np.full(rows, np.nan)
        self.limits_several = np.full(rows, np.nan)
        self.deviations = np.full(rows, np.nan)

    def _seeds(self, new_levels: Sequence[Sequence[NewLevel]]) -> dict[int, list[tuple[int, float]]]:
        """Rows whose level is a new one from a session on, with what is known of the level (ln), by session."""
        seeds: dict[int, list[tuple[int, float]]] = {}
        for row, levels in enumerate(new_levels):
            for level in levels:
                of_level = (self.times[row] >= level.start) & (self.times[row] < level.known_until)
                sessions = np.flatnonzero(of_level & np.isfinite(self.logs[row]))[:MIN_LEVEL_OBSERVATIONS]
                if len(sessions):
                    value = float(np.median(self.logs[row, sessions]))
                    seeds.setdefault(int(sessions[0]), []).append((row, value))
        return seeds

    def assess(self, session: int) -> None:
        """Continue the chart with the observations of one session."""
        # A level that is known to be new begins in this session.
        for row, level in self.new_levels.get(session, ()):
            # The scatter stays. The level is learnt from its own observations, beginning with what is known of it.
            self.usual_levels.values[row] = np.nan
            self.usual_levels.values[row, :MIN_LEVEL_OBSERVATIONS] = level
            self.usual_levels.counts[row] = MIN_LEVEL_OBSERVATIONS
            self.excursions.pop(row, None)
        # What is measured is compared with what was known before the session, which then learns from it.
        self._learn_first_observations(session)
        self._measure(session)
        self.limits, self.limits_several = self._limits()
        is_assessed = np.isfinite(self.deviations) & np.isfinite(self.limits)
        for assessed in np.flatnonzero(is_assessed):
            self._update_excursion(int(assessed), session)
        measured = np.isfinite(self.deviations)
        self.past_deviations[measured, session] = self.deviations[measured]
        self._learn(session)
        self._decide(session)

    def _learn_first_observations(self, session: int) -> None:
        """The first observations of a series are usual by definition: nothing is known to compare them with."""
        young = np.flatnonzero(np.isfinite(self.logs[:, session]) & (self.usual_levels.counts < MIN_LEVEL_OBSERVATIONS))
        self.usual_levels.add(young, self.logs[young, session])
        complete = young[self.usual_levels.counts[young] == MIN_LEVEL_OBSERVATIONS]
        first = self.usual_levels.values[complete, :MIN_LEVEL_OBSERVATIONS]
        for deviations in (first - np.median(first, axis=1, keepdims=True)).T:
            self.usual_deviations.add(complete, deviations)
        for row, values in zip(complete, first, strict=True):
            measured = np.flatnonzero(np.isfinite(self.times[row, : session + 1]))[-MIN_LEVEL_OBSERVATIONS:]
            self.past_deviations[row, measured] = values - np.median(values)
        self.logs[young, session] = np.nan

    def _measure(self, session: int) -> None:
        """Deviation of each series from its level, and of each group: the median of its series.

        Series that are unusual already say nothing of a new loss of the group.
        """
        has_level = self.usual_levels.counts >= MIN_LEVEL_OBSERVATIONS
        self.levels = np.where(has_level, self.usual_levels.medians(), np.nan)
        self.deviations = np.full(len(self.limits), np.nan)
        self.deviations[: self.series] = self.logs[:, session] - self.levels
        without_unusual = self.deviations[: self.series].copy()
        for row in self._unusual_excursions():
            if row < self.series:
                without_unusual[row] = np.nan
        for number, members in enumerate(self.members):
            measured = without_unusual[members]
            measured = measured[np.isfinite(measured)]
            if len(measured) >= _MIN_GROUP:
                self.deviations[self.series + number] = np.median(measured)

    def _limits(self) -> tuple[Floats, Floats]:
        """Loss from which an observation is outside: one alone, and several in a row; NaN for rows without a past."""
        held = self.usual_deviations.held
        has_scatter = held >= MIN_LEVEL_OBSERVATIONS
        quantiles = scipy.special.stdtrit(np.maximum(held - 1, 1), _TAIL)  # of Student's t
        widened = quantiles / scipy.special.stdtrit(1e6, _TAIL)
        scatter = np.where(has_scatter, self.usual_deviations.scatter() * widened, np.nan)
        limits = np.maximum(_ONE_SESSION * scatter, self.least)
        limits_several = np.maximum(_SEVERAL_SESSIONS * scatter, self.least)
        return limits, limits_several

    def _limits_of(self, length: int) -> Floats:
        """Limits of so many sessions in a row, shape (rows,)."""
        return self.limits if length == 1 else self.limits_several

    def _update_excursion(self, row: int, session: int) -> None:
        """Begin, continue or end the excursion of a row that was measured."""
        loss = -float(self.deviations[row])
        excursion = self.excursions.get(row)
        least = float(self.limits_several[row])
        if excursion is not None:
            least = min(least, _RETURNED * max(excursion.losses))
        if loss < least:
            self.excursions.pop(row, None)
            return
        if excursion is None:
            level = float(self.levels[row]) if row < self.series else 0.0
            excursion = self.excursions[row] = _Excursion(session, level)
        excursion.sessions.append(session)
        excursion.losses.append(loss)
        for position, length in enumerate(_LENGTHS):
            reached = excursion.worst_of_last(length)
            if reached >= self._limits_of(length)[row]:
                self.depths[position, row, session] = reached

    def _learn(self, session: int) -> None:
        """Add what is usual to what is known: not observations in an excursion, and no deviations of large gains."""
        frozen = np.zeros(len(self.deviations), dtype=bool)
        frozen[list(self.excursions)] = True
        # The level of the members of an unusual group is that of before.
        for row in self._unusual_excursions():
            if row >= self.series:
                frozen[self.members[row - self.series]] = True
        usual = np.flatnonzero(np.isfinite(self.deviations) & ~frozen)
        series = usual[usual < self.series]
        self.usual_levels.add(series, self.logs[series, session])
        # Groups have no limit before their first deviations.
        limits = np.where(np.isfinite(self.limits[usual]), self.limits[usual], np.inf)
        near = usual[np.abs(self.deviations[usual]) < limits]
        self.usual_deviations.add(near, self.deviations[near])

    def _decide(self, session: int) -> None:
        """Which excursions are unusual after this session."""
        for row, excursion in self.excursions.items():
            if excursion.similar is None and excursion.sessions[-1] == session:
                excursion.similar = self._similar_if_unusual(row, excursion, session)
                if excursion.similar is not None:
                    self.begun[session] += 1
        self.unusual[session] = len(self._unusual_excursions())

    def _unusual_excursions(self) -> dict[int, _Excursion]:
        """Those that are unusual, by row."""
        return {row: excursion for row, excursion in self.excursions.items() if excursion.similar is not None}

    def _similar_if_unusual(self, row: int, excursion: _Excursion, session: int) -> int | None:
        """Number of earlier excursions that were about as bad, if the excursion is unusual; else None."""
        rows = slice(0, self.series) if row < self.series else slice(self.series, None)
        for position, length in enumerate(_LENGTHS):
            depth = self.depths[position, row, session]
            if depth == 0:
                continue
            # The record of the load may have missed it in one session, but hardly in several.
            if length == 1 and depth - self._load_margin(row, session) < self.limits[row]:
                continue
            past = self.depths[position, rows, : excursion.start]
            # What was outside when a series was young may be its usual noise.
            limits = self._limits_of(length)[rows, None]
            is_about_as_bad = (past >= _ABOUT_AS_BAD * depth) & (past >= limits)
            similar = _count_runs(is_about_as_bad.any(axis=0))
            # Half an excursion more, and half the time: what never occurred is unusual after any time.
            if (similar + 0.5) * _RETURN_SESSIONS <= excursion.start + _RETURN_SESSIONS / 2:
                return similar
        return None

    def _load_margin(self, row: int, session: int) -> float:
        """What the largest load on record would take from a row beyond the recorded load; of a group the median."""
        if row < self.series:
            return float(self.load_margins[row, session])
        margins = self.load_margins[self.members[row - self.series], session]
        return float(np.nanmedian(margins))

    def report(self) -> ChartReport:
        """State after the newest session."""
        losses: dict[int, UnusualLoss] = {}
        # Series by themselves come before groups, whose rows are the last ones.
        for row, excursion in sorted(self._unusual_excursions().items()):
            if row < self.series:
                losses[row] = self._loss(row, excursion, is_alone=True)
                continue
            for member in map(int, self.members[row - self.series]):
                with_group = self._excursion_with_group(member, excursion)
                if with_group is not None and member not in losses:
                    losses[member] = self._loss(member, with_group, is_alone=False)
        in_order = tuple(losses[row] for row in sorted(losses))
        return ChartReport(in_order, self._ranges(), self.starts, self.begun, self.unusual)

    def _excursion_with_group(self, row: int, group: _Excursion) -> _Excursion | None:
        """Observations of a series since its group is outside, if the series moved with it."""
        excursion = _Excursion(group.start, float(self.levels[row]), similar=group.similar)
        for session in range(group.start, len(self.starts)):
            if np.isfinite(self.logs[row, session]):
                excursion.sessions.append(session)
                excursion.losses.append(float(self.levels[row] - self.logs[row, session]))
        if not excursion.losses:
            return None
        # In the newest session, and since the group is outside.
        has_fallen = excursion.losses[-1] >= _NAMED_SHARE * group.losses[-1]
        stayed_low = np.median(excursion.losses) >= _NAMED_SHARE * np.median(group.losses)
        return excursion if has_fallen and stayed_low else None

    def _loss(self, row: int, excursion: _Excursion, is_alone: bool) -> UnusualLoss:
        first = excursion.sessions[0]
        times_before = self.times[row, :first]
        times_before = times_before[np.isfinite(times_before)]
        last_before = times_before[-1]  # an assessed series was measured before
        earlier = self._deviations_before(row, first)
        return UnusualLoss(
            series=row,
            last_before=int(last_before),
            times=tuple(int(self.times[row, session]) for session in excursion.sessions),
            level=excursion.level,
            log_gains=tuple(-loss for loss in excursion.losses),
            lowest=float(np.min(earlier)) if len(earlier) else 0.0,
            earlier=len(earlier),
            limit=float(self.limits[row]),
            similar=int(excursion.similar or 0),
            is_alone=is_alone,
        )

    def _deviations_before(self, row: int, session: int) -> Floats:
        """Earlier observations, each less the level before it (ln); of the first five, less their median."""
        earlier = self.past_deviations[row, :session]
        return np.asarray(earlier[np.isfinite(earlier)])

    def _ranges(self) -> tuple[UsualRange, ...]:
        ranges = []
        for row in range(self.series):
            if np.isfinite(self.deviations[row]) and np.isfinite(self.limits[row]):
                level, limit, log_gain = self.levels[row], self.limits[row], self.deviations[row]
                earlier = len(self._deviations_before(row, len(self.starts) - 1))
                ranges.append(UsualRange(row, float(level), float(limit), float(log_gain), earlier))
        return tuple(ranges)


def _tabulate(times: Sequence[Floats], values: Sequence[Floats], starts: Floats) -> Floats:
    """Value of the last observation of each series in each session, shape (S, T); NaN without one.

    The last one, because a suite that is repeated after a repair shows the state of now.

    Args:
        times: epoch seconds of the observations of each series, ascending, shapes (n,).
        values: a number of each observation, shapes (n,).
        starts: epoch seconds of the first run of each session, shape (T,).
    """
    table = np.full((len(times), len(starts)), np.nan)
    for row, (moments, numbers) in enumerate(zip(times, values, strict=True)):
        session = np.searchsorted(starts, moments, side="right") - 1
        # Those before the first session are left out; of several in one session NumPy keeps the last.
        in_session = session >= 0
        table[row, session[in_session]] = np.asarray(numbers, dtype=np.float64)[in_session]
    return table


def _group_members(groups: Sequence[str]) -> list[NDArray[np.intp]]:
    """Positions of the series of each group with enough series, and of all series where these are several groups."""
    names = np.asarray(groups)
    groups_of_series: list[NDArray[np.intp]] = []
    for name in dict.fromkeys(groups):
        members = np.flatnonzero(names == name)
        if len(members) >= _MIN_GROUP:
            groups_of_series.append(members)
    has_group_of_all = any(len(members) == len(groups) for members in groups_of_series)
    if len(groups) >= _MIN_GROUP and not has_group_of_all:
        groups_of_series.append(np.arange(len(groups)))
    return groups_of_series


def _count_runs(marks: NDArray[np.bool_]) -> int:
    """Number of runs of true values: an excursion of several sessions counts once."""
    return int((marks[1:] & ~marks[:-1]).sum()) + int(len(marks) > 0 and marks[0])
