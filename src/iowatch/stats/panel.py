"""Evidence of many series together: an event of the newest sessions, its series, and the probability that it lasts.

A lasting change of one series is certain only after some observations, but an event moves many series at once. Each
morning this module asks, for every session of the newest `NEWEST_SESSIONS` and both directions, which series left
their level in that session and stay away:

1. Observations become a table of series by sessions. The level of a series before a session is the median of its last
   observations; its scatter is robust, and shrunk towards that of the other series where the history is short.
2. The evidence of one series is the log likelihood ratio of a shift of unknown size against none, under heavy-tailed
   noise. A series that left its level earlier is no evidence for a later session.
3. The evidence of a group is the sum over the series of a rule of at most two conditions on the case parameters, or of
   a free set of series, less the cost of the rule (the prior costs of `iowatch.stats.rules`).
4. Sessions of a shared file system are bad together, so the evidence cannot be taken at its face value: it is compared
   with that of every earlier session of the same system, and so is the size of the shift of the same series. Two
   logistic models turn these comparisons into the probability that the series moved by more than the usual bad
   sessions, and that the change lasts. Their weights were fitted to events planted in Edison's year
   (bench/panel_fit.py); docs/detection.md has the scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, Scalar
from iowatch.stats.method import Adjustment, StepDirection
from iowatch.stats.panel_models import model_of, probability
from iowatch.stats.rules import (
    Condition,
    candidate_conditions,
    condition_coverage,
    derive_parameters,
    format_conditions,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEWEST_SESSIONS = 10
"""Sessions in which an event can have begun; older ones are left to the detection in single series."""

# Observations before a session whose median is the level, and the least number of them.
_LEVEL_OBSERVATIONS, _MIN_LEVEL_OBSERVATIONS = 30, 5
# Sessions of the past that are compared with the newest ones.
_MAX_SESSIONS = 400
# A pause of this length, or this time since its first run, ends a session.
_PAUSE_S, _SESSION_S = DAY_S / 3, DAY_S * 2 / 3
# Smallest scatter (ln), that of series without a past, and weight of the median scatter of all series in observations.
_MIN_SCATTER, _USUAL_SCATTER, _PRIOR_OBSERVATIONS = 0.012, 0.1, 10

# Sizes |ln ratio| that a shift may have, equally likely.
_SIZES = np.exp(np.linspace(math.log(0.06), math.log(1.6), 10))
# Noise: t distribution of inliers; share, width (in units of the scatter) and share below the level of outliers.
_FREEDOM, _OUTLIERS, _OUTLIER_WIDTH, _OUTLIERS_BELOW = 4.0, 0.1, 5.0, 0.8
_T_PEAK = math.gamma((_FREEDOM + 1) / 2) / (math.sqrt(_FREEDOM * math.pi) * math.gamma(_FREEDOM / 2))
# Evidence (nats) of one series is limited to this range, because noise has tails that no model knows.
_LEAST_EVIDENCE, _MOST_EVIDENCE = -6.0, 12.0

# Probability that a series inside a rule, outside of it, or of a free set moves; cost (nats) of a free set.
_INSIDE, _OUTSIDE, _FREE, _FREE_COST = 0.93, 0.02, 0.15, 2.0
_PAIR_BITS = 0.75
# The probability inside a rule that decides on membership: what a rule selects belongs to it unless it stayed.
_MEMBER_INSIDE = 0.97
# A series whose evidence for an earlier session is larger by this (nats), and above the second value, moved earlier.
_EARLIER, _MOVED = 1.0, 1.5
# Least evidence (nats) of a group, and least shift (ln) of its members.
_MIN_EVIDENCE, _MIN_SHIFT = 1.0, 0.02
# Sessions of the past windows that a group is compared with; the mean of the largest values is its limit.
_WINDOW_SESSIONS, _LARGEST = 4, 4
# Scatters to which the distance of a member is limited in the mean of its group: one wild series is no group.
_CLIP = 12.0
# After fewer sessions than these, levels are so uncertain that evidence counts less.
_LONG_PAST = 40
# A session is unusual for a series beyond this number of scatters.
_FAR = 3.0
# Observations of a series whose median is where it is now.
_NEWEST_OBSERVATIONS = 3

_DIRECTIONS: tuple[StepDirection, StepDirection] = ("down", "up")


@dataclass(frozen=True, slots=True)
class PanelSeries:
    """One series; `steps` are established changes, which are removed.

    Attributes:
        times: epoch seconds, ascending, shape (n,).
        logs: natural logarithm of the performance (higher is better), shape (n,).
        parameters: of the case, and the axes of the series.
        steps: time of the first observation of the new level, and natural logarithm of after / before.
    """

    times: NDArray[np.int64] | Floats
    logs: Floats
    parameters: Mapping[str, Scalar]
    steps: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PanelMember:
    """One series of a group.

    Attributes:
        series: its position among the series of the panel.
        last_before, first_after: epoch seconds of its last observation before the event and its first after it.
        before: level before the event (ln).
        log_gain: median of the observations since the event, less `before`.
        distance: the same in units of the scatter of the series.
    """

    series: int
    last_before: int
    first_after: int
    before: float
    log_gain: float
    distance: float


@dataclass(frozen=True, slots=True)
class PanelGroup:
    """Series that moved in one direction; `rule` is what selects them, None if nothing does."""

    direction: StepDirection
    members: tuple[PanelMember, ...]
    rule: str | None


@dataclass(frozen=True, slots=True)
class PanelEvent:
    """An event that began in one of the newest sessions.

    Attributes:
        last_before, first_after: epoch seconds of the start of the session before the event, and of its first run.
        groups: at most one per direction, the larger one first.
        sessions: number of sessions since the event, the first one included.
        probability_real: that this is more than the usual bad sessions of the system.
        probability_lasting: that the change stays; at most `probability_real`.
        is_open: whether it can be treated as a lasting change already.
        similar, over_next: earlier sessions in the same direction with as much evidence, and how many of these were
            over in the next session.
        new_load: covariate that changed with the event, and whose effect is not known yet.
    """

    last_before: int
    first_after: int
    groups: tuple[PanelGroup, ...]
    sessions: int
    probability_real: float
    probability_lasting: float
    is_open: bool
    similar: int
    over_next: int
    new_load: str | None = None


@dataclass(frozen=True, slots=True)
class PanelReport:
    """State of the newest session.

    Attributes:
        session: epoch seconds of its first run; None without observations.
        measured: number of series with an observation in it and a known level.
        unusual: positions of the series that are more than three scatters from their level in it.
        events: the most probable first.
        newest: median of the newest three observations (ln) of each series, NaN without any.
        adjustment: the covariate whose effect was removed from the series before.
    """

    session: int | None
    measured: int
    unusual: tuple[int, ...]
    events: tuple[PanelEvent, ...]
    newest: tuple[float, ...] = ()
    adjustment: Adjustment | None = None


def assess_panel(
    series: Sequence[PanelSeries], known: Sequence[tuple[int, StepDirection]] = (), lasted: int = 0, ended: int = 0
) -> PanelReport:
    """Assess the newest sessions of all series of a system together.

    Args:
        series: all monitored series, in any order.
        known: epoch seconds of the first run and direction of events that are reported already; less evidence is
            enough to keep them than to report a new one.
        lasted, ended: earlier events of this system that lasted, and that were over after some sessions; they correct
            the base rate of the probability that an event lasts.
    """
    if not any(len(one.times) for one in series):
        return PanelReport(None, 0, (), ())
    table = PanelTable(series)
    found: list[tuple[Candidate, float, float]] = []
    rated = [(one, *_probabilities(table, one, lasted, ended)) for one in find_candidates(table)]
    for direction in (0, 1):
        mine = [one for one in rated if one[0].direction == direction]
        found += _choose(mine, [table.session_of(time) for time, side in known if side == _DIRECTIONS[direction]])
    found += _companions(found, rated)
    events = tuple(sorted(_merge_events(table, found), key=lambda event: -event.probability_lasting))
    newest = (table.logs[:, -1] - table.levels[:, -2]) / table.scatter
    measured = np.isfinite(newest)
    unusual = tuple(int(i) for i in np.flatnonzero(np.abs(np.where(measured, newest, 0.0)) > _FAR))
    known_logs = [row[np.isfinite(row)][-_NEWEST_OBSERVATIONS:] for row in table.logs]
    levels = tuple(float(np.median(one)) if len(one) else math.nan for one in known_logs)
    return PanelReport(int(table.starts[-1]), int(measured.sum()), unusual, events, levels)


def _choose(
    rated: Sequence[tuple[Candidate, float, float]], known: Sequence[int]
) -> list[tuple[Candidate, float, float]]:
    """The candidates of one direction to report: those of known events, and the most probable new ones."""
    kept: list[tuple[Candidate, float, float]] = []
    for session in known:
        near = [one for one in rated if abs(one[0].session - session) <= 1 and one[1] >= _KEEP and not _is_over(*one)]
        if near:
            best = max(near, key=lambda one: one[1] + (_SAME_DATE if one[0].session == session else 0.0))
            kept += [best] if best not in kept else []
    dated = sorted(
        (one for one in rated if one[0].is_dated and one[1] >= model_of(one[0].sessions).report and not _is_over(*one)),
        key=lambda one: -one[1],
    )
    for new in dated[:_MAX_NEW]:
        if not any(_is_same(one[0], new[0]) for one in kept):
            kept.append(new)
    return kept


def _companions(
    found: Sequence[tuple[Candidate, float, float]], rated: Sequence[tuple[Candidate, float, float]]
) -> Iterator[tuple[Candidate, float, float]]:
    """Groups of the other direction that began with a chosen one: less evidence is enough than for one alone."""
    for one in found:
        if not any(c.direction != one[0].direction and abs(c.session - one[0].session) <= 1 for c, _, _ in found):
            same = [c for c in rated if c[0].direction != one[0].direction and c[0].session == one[0].session]
            yield from (other for other in same if other[1] >= _KEEP and not _is_over(*other))


def _is_over(candidate: Candidate, _real: float, lasting: float) -> bool:
    """Whether the series of an event returned in the newest session and will hardly leave again."""
    features, sessions = candidate.features, candidate.sessions
    if sessions > _NEWEST_OBSERVATIONS and features["newest sessions"] < _BACK:
        return True
    return sessions > 1 and features["newest session"] < _RETURNED and lasting < _HARDLY


def _is_same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates of one direction are one event."""
    return abs(one.session - other.session) <= _SAME_EVENT_SESSIONS and bool(set(one.members) & set(other.members))


def _merge_events(table: PanelTable, found: Sequence[tuple[Candidate, float, float]]) -> Iterator[PanelEvent]:
    """Events: groups of both directions that began in about the same session are one."""
    left = sorted(found, key=lambda one: -one[0].evidence)
    while left:
        first = left.pop(0)
        pair = [first]
        for other in left:
            if other[0].direction != first[0].direction and abs(other[0].session - first[0].session) <= 1:
                pair.append(other)
                left.remove(other)
                break
        main = first[0]
        similar, over = table.similar_sessions(main)
        lasting = max(one[2] for one in pair)
        yield PanelEvent(
            last_before=int(table.starts[main.session - 1]),
            first_after=int(table.starts[main.session]),
            groups=tuple(_make_group(table, one[0]) for one in pair),
            sessions=main.sessions,
            probability_real=max(one[1] for one in pair),
            probability_lasting=lasting,
            is_open=lasting >= _OPEN and main.sessions >= _MIN_OPEN_SESSIONS,
            similar=similar,
            over_next=over,
        )


def _make_group(table: PanelTable, candidate: Candidate) -> PanelGroup:
    members = []
    start = candidate.session
    for i in candidate.members:
        times, before = table.times[i], float(table.levels[i, start])
        after = np.flatnonzero(np.isfinite(table.logs[i, start:])) + start
        earlier = np.flatnonzero(np.isfinite(table.logs[i, :start]))
        gain = float(np.median(table.logs[i, after])) - before
        distance = abs(gain) / float(table.scatter[i])
        members.append(PanelMember(i, int(times[earlier[-1]]), int(times[after[0]]), before, gain, distance))
    rule = format_conditions(candidate.rule) if candidate.rule else None
    return PanelGroup(_DIRECTIONS[candidate.direction], tuple(members), rule)


class PanelTable:
    """Series by sessions, with the level before each session and the scatter of each series.

    Attributes:
        starts: epoch seconds of the first run of each session, shape (T,).
        times, logs: first observation of each series in each session, shape (S, T); NaN without one.
        levels: level before each session and after the last one, shape (S, T + 1).
        scatter: shape (S,).
        rules, cover, costs: conditions, coverage (R, S) and cost in nats (R,) of the rules.
    """

    def __init__(self, series: Sequence[PanelSeries]) -> None:
        self.starts = session_starts([np.asarray(one.times, dtype=np.float64) for one in series])[-_MAX_SESSIONS:]
        shape = len(series), len(self.starts)
        self.times, self.logs = np.full(shape, np.nan), np.full(shape, np.nan)
        for i, one in enumerate(series):
            times = np.asarray(one.times, dtype=np.float64)
            logs = np.asarray(one.logs, dtype=np.float64).copy()
            for step, gain in one.steps:
                logs[times < step] += gain
            column = np.searchsorted(self.starts, times, side="right") - 1
            chosen = column >= 0
            # Written in reverse, so that the first observation of a session stays.
            self.times[i, column[chosen][::-1]] = times[chosen][::-1]
            self.logs[i, column[chosen][::-1]] = logs[chosen][::-1]
        self.levels = _levels_before(self.logs)
        self.scatter = _scatter(self.logs - self.levels[:, :-1])
        self.rules, self.cover, self.costs = _candidate_rules([one.parameters for one in series])
        self._past: dict[int, Floats] = {}

    @property
    def sessions(self) -> int:
        """Number of sessions."""
        return len(self.starts)

    def session_of(self, time: float) -> int:
        """Position of the session that a time belongs to."""
        return int(np.searchsorted(self.starts, time, side="right")) - 1

    def deviations(self, start: int, length: int) -> Floats:
        """Observations of `length` sessions from `start` on, less the level before: shape (S, length)."""
        return self.logs[:, start : start + length] - self.levels[:, start : start + 1]

    def past_windows(self, length: int, rows: Floats | NDArray[np.intp] | slice = slice(None)) -> Floats:
        """All windows of `length` sessions that end before the newest sessions, less the level before each.

        Shape (series, windows, length).
        """
        count = max(0, self.sessions - NEWEST_SESSIONS - length + 1)
        logs = self.logs[rows]
        if count == 0:
            return np.empty((len(logs), 0, length))
        windows = np.lib.stride_tricks.sliding_window_view(logs, length, axis=1)[:, :count]
        return np.asarray(windows - self.levels[rows][:, :count, None])

    def past_evidence(self, length: int) -> Floats:
        """Largest evidence of a group in each past window, shape (2, windows)."""
        if length not in self._past:
            windows = self.past_windows(length)
            measured = np.asarray(np.isfinite(windows).any(axis=2))
            evidence = _bounded(shift_evidence(windows, np.broadcast_to(self.scatter[:, None], measured.shape)))
            both = [self.best_rule(np.where(measured, one, 0.0), measured)[0] for one in evidence]
            self._past[length] = np.asarray(both)
        return self._past[length]

    def best_rule(self, evidence: Floats, measured: Bools) -> tuple[Floats, NDArray[np.intp]]:
        """Evidence of the best group and position of its rule, -1 for a free set; each of shape (windows,).

        Args:
            evidence, measured: shape (S, windows).
        """
        inside = _mixed(evidence, _INSIDE) * measured
        outside = _mixed(evidence, _OUTSIDE) * measured
        groups = self.cover @ (inside - outside) + outside.sum(axis=0) - self.costs[:, None]
        free = (_mixed(evidence, _FREE) * measured).sum(axis=0) - _FREE_COST
        best = groups.argmax(axis=0)
        top = groups.max(axis=0)
        return np.where(free > top, free, top), np.where(free > top, -1, best)

    def similar_sessions(self, candidate: Candidate) -> tuple[int, int]:
        """Past sessions that began with as much evidence as the event's first one, and how many were over next."""
        past = self.past_evidence(1)[candidate.direction]
        level = max(_SIMILAR_SHARE * candidate.first_evidence, _LEAST_SIMILAR)
        begun = np.flatnonzero((past[1:-1] >= level) & (past[:-2] < level)) + 1 if len(past) > 2 else np.zeros(0, int)
        return len(begun), int((past[begun + 1] < level / 2).sum())


def session_starts(times: Sequence[Floats]) -> Floats:
    """First run of each session among the runs of all series: a session ends with a pause, or after its usual time."""
    starts: list[float] = []
    last = -math.inf
    for time in np.unique(np.concatenate(times)):
        if not starts or time - last > _PAUSE_S or time - starts[-1] > _SESSION_S:
            starts.append(float(time))
        last = time
    return np.asarray(starts)


def _levels_before(logs: Floats) -> Floats:
    """Median of the last observations before each session, shape (S, T + 1); NaN after too few observations."""
    levels = np.full((logs.shape[0], logs.shape[1] + 1), np.nan)
    for row, level in zip(logs, levels, strict=True):
        known = np.flatnonzero(np.isfinite(row))
        if len(known) < _MIN_LEVEL_OBSERVATIONS:
            continue
        padded = np.concatenate([np.full(_LEVEL_OBSERVATIONS, np.nan), row[known]])
        windows = np.lib.stride_tricks.sliding_window_view(padded, _LEVEL_OBSERVATIONS)
        medians = np.full(len(known) + 1, np.nan)
        medians[_MIN_LEVEL_OBSERVATIONS:] = np.nanmedian(windows[_MIN_LEVEL_OBSERVATIONS:], axis=1)
        level[:] = medians[np.searchsorted(known, np.arange(len(level)))]
    return levels


def _scatter(deviations: Floats) -> Floats:
    """Robust scatter of each series before the newest sessions, shrunk towards the median of all; shape (S,)."""
    past = deviations[:, : max(1, deviations.shape[1] - NEWEST_SESSIONS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a series without past observations has none
        centre = np.nanmedian(past, axis=1, keepdims=True)
        own = 1.4826 * np.nanmedian(np.abs(past - centre), axis=1)
    n = np.isfinite(past).sum(axis=1)
    # The deviation of one or two past observations from their own median says nothing.
    common = float(np.median(own[np.isfinite(own)])) if (n >= _MIN_LEVEL_OBSERVATIONS).any() else _USUAL_SCATTER
    own = np.where(np.isfinite(own), own, common)
    spread = np.sqrt((n * own**2 + _PRIOR_OBSERVATIONS * common**2) / (n + _PRIOR_OBSERVATIONS))
    return np.asarray(np.maximum(spread, _MIN_SCATTER))


def _candidate_rules(parameters: Sequence[Mapping[str, Scalar]]) -> tuple[list[tuple[Condition, ...]], Floats, Floats]:
    """Rules of at most two conditions that select different sets of at least two series, the cheapest of each set."""
    derived = [derive_parameters(one) for one in parameters]
    n = len(derived)
    conditions = [c for c in candidate_conditions(derived, np.zeros(n, dtype=bool)) if c.operator in ("=", ">=", "<")]
    cover = condition_coverage(conditions, derived)
    everything = np.ones(n, dtype=bool)
    cheapest: dict[bytes, tuple[float, tuple[Condition, ...], Bools]] = {everything.tobytes(): (0.0, (), everything)}

    def add(bits: float, rule: tuple[Condition, ...], covered: Bools) -> None:
        key = covered.tobytes()
        if covered.sum() >= 2 and (key not in cheapest or bits < cheapest[key][0]):
            cheapest[key] = bits, rule, covered

    for condition, covered in zip(conditions, cover, strict=True):
        add(condition.bits, (condition,), covered)
    single = [one for one in cheapest.values() if one[1]]
    for position, (bits, (first,), covered) in enumerate(single):
        for other_bits, (second,), other in single[position + 1 :]:
            if first.parameter != second.parameter:
                add(bits + other_bits + _PAIR_BITS, (first, second), covered & other)
    rules = list(cheapest.values())
    costs = np.asarray([bits for bits, _, _ in rules]) * math.log(2)
    return [rule for _, rule, _ in rules], np.asarray([covered for _, _, covered in rules], dtype=np.float64), costs


def _mixed(evidence: Floats, probability: float) -> Floats:
    """Log likelihood ratio of "moved with this probability" against "did not move"."""
    return np.asarray(np.logaddexp(math.log(probability) + evidence, math.log(1 - probability)))


def noise_density(deviations: Floats, scatter: Floats) -> Floats:
    """Density of the noise (up to 1 / scatter): inliers of a t distribution, and wide outliers, mostly below."""
    z = deviations / scatter
    inliers = _T_PEAK * (1 + z * z / _FREEDOM) ** (-(_FREEDOM + 1) / 2)
    side = np.where(z < 0, 2 * _OUTLIERS_BELOW, 2 * (1 - _OUTLIERS_BELOW))
    outliers = side / (math.pi * _OUTLIER_WIDTH * (1 + (z / _OUTLIER_WIDTH) ** 2))
    return np.asarray((1 - _OUTLIERS) * inliers + _OUTLIERS * outliers)


def shift_evidence(deviations: Floats, scatter: Floats) -> Floats:
    """Log likelihood ratio (nats) of a shift down, and up, of unknown size against none: shape (2, …).

    Args:
        deviations: observations less the level, shape (…, sessions), NaN where nothing was measured.
        scatter: shape (…).
    """
    scatter = scatter[..., None]
    still = np.log(noise_density(deviations, scatter))
    found = []
    for sign in (-1.0, 1.0):
        sizes = [
            np.nansum(np.log(noise_density(deviations - sign * size, scatter)) - still, axis=-1) for size in _SIZES
        ]
        found.append(np.logaddexp.reduce(sizes, axis=0) - math.log(len(_SIZES)))
    return np.asarray(found)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A possible event: direction (0 down, 1 up), its first session, and the series that left their level in it.

    `is_dated`: no session beside the first one fits the members better.
    """

    direction: int
    session: int
    sessions: int
    members: tuple[int, ...]
    rule: tuple[Condition, ...]
    evidence: float
    first_evidence: float
    features: Mapping[str, float]
    is_dated: bool


def find_candidates(table: PanelTable) -> Iterator[Candidate]:
    """The best group for each direction and each of the newest sessions."""
    longest = min(NEWEST_SESSIONS, table.sessions - _MIN_LEVEL_OBSERVATIONS - 1)
    deviations = {k: table.deviations(table.sessions - k, k) for k in range(1, longest + 1)}
    evidence = {k: shift_evidence(one, table.scatter) for k, one in deviations.items()}
    groups: dict[tuple[int, int], _Group] = {}
    for direction in (0, 1):
        earlier = np.full(len(table.scatter), -math.inf)
        for k in range(longest, 0, -1):
            own = _bounded(evidence[k][direction])
            fresh = np.isfinite(deviations[k]).any(axis=1) & ~((earlier > own + _EARLIER) & (earlier > _MOVED))
            groups[direction, k] = _Group(table, direction, deviations[k], evidence[k][direction], fresh)
            earlier = np.maximum(earlier, own)
    for (direction, k), group in groups.items():
        if group.evidence >= _MIN_EVIDENCE and len(group.members) >= 2:
            opposite = groups[1 - direction, k].evidence
            neighbours = [groups[direction, q].evidence for q in (k - 1, k + 1) if (direction, q) in groups]
            features = group.features(opposite, max(neighbours, default=0.0))
            members = tuple(int(i) for i in group.series)
            # The date is that of the largest evidence of the members, without bounds.
            by_date = {
                q: float(evidence[q][direction, group.members].sum()) for q in (k - 1, k, k + 1) if q in evidence
            }
            start = table.sessions - k
            dated = max(by_date, key=lambda q: by_date[q]) == k
            yield Candidate(
                direction, start, k, members, group.rule, group.evidence, group.first_evidence, features, dated
            )


class _Group:
    """The series that one rule, or none, selects as moved since a session, and how this compares with the past.

    Attributes:
        own: evidence (nats) of each series without bounds, shape (S,).
        members: series that left their level in the session; they are the evidence.
        series: also those of the rule that left it a little earlier and are still away.
    """

    def __init__(self, table: PanelTable, direction: int, deviations: Floats, evidence: Floats, fresh: Bools) -> None:
        self.table, self.direction, self.deviations, self.own, self.fresh = (
            table,
            direction,
            deviations,
            evidence,
            fresh,
        )
        self.sign = (-1.0, 1.0)[direction]
        evidence = _bounded(evidence)
        best, position = table.best_rule(np.where(fresh, evidence, 0.0)[:, None], fresh[:, None])
        self.evidence = float(best[0])
        rule = int(position[0])
        self.rule = table.rules[rule] if rule >= 0 else ()
        self.covered = table.cover[rule].astype(bool) if rule >= 0 else np.zeros(len(fresh), dtype=bool)
        odds = np.where(self.covered, _log_odds(_MEMBER_INSIDE), _log_odds(_OUTSIDE if rule >= 0 else _FREE))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # series without observations
            self.shift = self.sign * np.nanmedian(deviations, axis=1)
        moved = (evidence + odds > 0) & (np.nan_to_num(self.shift) > _MIN_SHIFT)
        self.members = np.flatnonzero(moved & fresh)
        self.series = np.flatnonzero(moved & (fresh | self.covered))

    @property
    def first_evidence(self) -> float:
        """Evidence of the first session alone."""
        first = self.deviations[:, :1]
        measured = np.isfinite(first).any(axis=1) & self.fresh
        own = _bounded(shift_evidence(first, self.table.scatter)[self.direction])
        return float(self.table.best_rule(np.where(measured, own, 0.0)[:, None], measured[:, None])[0][0])

    def features(self, opposite: float, neighbour: float) -> dict[str, float]:
        """Inputs of the models, by name.

        Args:
            opposite: evidence of the group of the other direction.
            neighbour: larger evidence of the sessions beside this one.
        """
        table, members, k = self.table, self.members, self.deviations.shape[1]
        shift = self.shift[members]
        size = max(float(shift.mean()), 0.03)
        sessions = min(k, _WINDOW_SESSIONS)
        windows = self.sign * table.past_windows(sessions, members)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # windows without observations
            usual = np.nanmedian(windows, axis=2)
            past_distance = np.nanmean(np.clip(usual / table.scatter[members, None], -_CLIP, _CLIP), axis=0)
            newest = float(np.nanmean(self.sign * self.deviations[members, -1]))
            recent = self.sign * np.nanmedian(self.deviations[members, -_NEWEST_OBSERVATIONS:], axis=1)
            recent_size = float(np.nanmean(recent)) / size
            start = table.sessions - k
            before = float(np.nanmean(self.sign * (table.logs[members, start - 1] - table.levels[members, start])))
            far = np.abs(np.nanmedian(self.deviations, axis=1) / table.scatter)
        others = np.asarray(np.isfinite(self.deviations).any(axis=1))
        others[members] = False
        distance = float(np.clip(shift / table.scatter[members], -_CLIP, _CLIP).mean())
        whole = np.clip(self.own[members], _LEAST_EVIDENCE, _MOST_EVIDENCE * k)  # the upper limit is that of a session
        past = table.past_evidence(sessions)[self.direction]
        return {
            "evidence": math.log(self.evidence + 2),
            "evidence per series": self.evidence / len(members),
            "whole evidence per series": float(whole.mean()) / math.sqrt(k),
            "evidence after a short past": self.evidence / len(members) * max(0.0, math.log(_LONG_PAST / start)),
            "evidence above past": float(np.clip((self.evidence - _largest(past, 12.0)) / 10, -2, 4)),
            "distance": distance,
            "distance above past": distance - _largest(past_distance, 2.5),
            "series": math.log(len(members)),
            "share": len(members) / max(1, int(np.isfinite(self.deviations).any(axis=1).sum())),
            "size": math.log(size),
            "up": float(self.direction),
            "sessions": math.log(k),
            "margin": float(np.clip((self.evidence - neighbour) / 5, -2, 2)),
            "opposite": min(max(opposite - 4, 0), 20) / 10,
            "session before": float(np.clip(np.nan_to_num(np.clip(before, -1, 1)) / size, -0.5, 1)),
            "newest session": float(np.clip(newest / size if math.isfinite(newest) else 1.0, -0.5, 1.5)),
            "newest sessions": recent_size if math.isfinite(recent_size) else 1.0,
            "others far off": float((far[others] > 2.5).mean()) if others.any() else 0.0,
        }


def _bounded(evidence: Floats) -> Floats:
    return np.asarray(np.clip(evidence, _LEAST_EVIDENCE, _MOST_EVIDENCE))


def _largest(past: Floats, default: float) -> float:
    """Mean of the largest values of the past; the default with a short past."""
    past = past[np.isfinite(past)]
    return float(np.sort(past)[-_LARGEST:].mean()) if len(past) >= 2 * _LARGEST else default


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


# Probability (of a real event) to keep a known event, or a group that began with one of the other direction; sessions
# between two events.
_KEEP, _SAME_EVENT_SESSIONS = 0.08, 3
# A known event keeps its date unless another one is more probable by this.
_SAME_DATE = 0.15
# An event is over if this share of its size is left in the newest session, with less than this probability to last.
_RETURNED, _HARDLY = 0.3, 0.3
# It is over, too, if less than this share of it is left in the newest three sessions.
_BACK = 0.2
# New events per direction and morning.
_MAX_NEW = 2
# Probability (of lasting) and number of sessions from which an event is treated as a lasting change.
_OPEN, _MIN_OPEN_SESSIONS = 0.8, 2
# A past session is similar with this share of the evidence, and at least this evidence.
_SIMILAR_SHARE, _LEAST_SIMILAR = 0.5, 5.0
# Sessions with this evidence in one direction are bad (down) or good (up); their usual share, by direction, on Edison,
# its weight in sessions, and by how much of its logarithm a system's own share changes the odds of a real event. Not 1:
# the features compare with the past of the system already.
_BAD, _BAD_SHARES, _BAD_WEIGHT, _BAD_EXPONENT = 6.0, (0.19, 0.024), 20.0, 0.5
# Limit of the evidence of the other direction in the probability that an event lasts.
_MAX_OPPOSITE = 0.8
# Share of the events that lasted in the fit, and its weight in events.
_LASTING_SHARE, _LASTING_WEIGHT = 0.57, 8.0


def _probabilities(table: PanelTable, candidate: Candidate, lasted: int, ended: int) -> tuple[float, float]:
    """Probability that a candidate is a real event, and that it lasts."""
    model = model_of(candidate.sessions)
    usual, past = _BAD_SHARES[candidate.direction], table.past_evidence(1)[candidate.direction]
    bad = ((past > _BAD).sum() + _BAD_WEIGHT * usual) / (len(past) + _BAD_WEIGHT)
    rarity = -_BAD_EXPONENT * math.log(bad / usual)
    share = (lasted + _LASTING_WEIGHT * _LASTING_SHARE) / (lasted + ended + _LASTING_WEIGHT)
    base_rate = _log_odds(share) - _log_odds(_LASTING_SHARE)
    real = probability(model.real, candidate.features, rarity)
    # All planted events of both directions last; real ones may be over in a session.
    features = {**candidate.features, "opposite": min(candidate.features["opposite"], _MAX_OPPOSITE)}
    return real, real * probability(model.lasting, features, base_rate)
