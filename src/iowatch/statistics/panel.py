"""Evidence of many series together: an event of the newest sessions, its series, and the probability that it lasts.

A lasting change of one series is certain only after some observations, but an event moves many series at once. Each
morning this module asks, for every session of the newest `NEWEST_SESSIONS` and both directions, which series left
their level in that session and stay away:

1. Observations become a table of series by sessions (`panel_table.py`). The level of a series before a session
   is the median of its last observations; its scatter is robust, and shrunk towards that of the other series where the
   history is short.
2. The evidence of one series is the log likelihood ratio of a shift of unknown size against none, under heavy-tailed
   noise.
3. The evidence of a group (`panel_candidates.py`) is the sum over the series of a rule of at most two conditions
   on the case parameters, or of a free set of series, less the cost of the rule (the prior costs of `rules.py`).
   A series that left its level earlier is no evidence for a later session.
4. Sessions of a shared file system are bad together, so the evidence cannot be taken at its face value: it is compared
   with that of every earlier session of the same system, and so is the size of the shift of the same series. Two
   logistic models (`panel_models.py`) turn these comparisons into the probability that the series moved by more
   than the usual bad sessions, and that the change lasts. Their weights were fitted to planted events
   (docs/weights.md); docs/detection-scores.md has the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.constants import Floats
from iowatch.statistics.logistic import expit, logit
from iowatch.statistics.method import Adjustment, StepDirection
from iowatch.statistics.panel_candidates import NEWEST_OBSERVATIONS, Candidate, find_candidates
from iowatch.statistics.panel_models import model_of, probability
from iowatch.statistics.panel_table import PanelSeries, PanelTable
from iowatch.statistics.rules import format_conditions
from iowatch.statistics.vocabulary import ParameterVocabulary

# A session is unusual for a series beyond this number of scatters.
_FAR = 3.0
# Probability (of a real event) to keep a known event, and to add a group that began with one of the other direction,
# and the sessions within which it is added: later 4 of 28 such groups were real, on 100 panels each of Edison, Cori and
# Mira and the 100 of the tests; before that 27 of 57.
_KEEP, _ADD, _ADD_SESSIONS = 0.08, 0.04, 3
# Sessions between two events.
_SAME_EVENT_SESSIONS = 3
# Log odds by which groups beside a real event are more often real than others (125 of Edison, Cori and Mira).
_BESIDE = 2.0
# A known event keeps its date unless another one is more probable by this.
_SAME_DATE = 0.15
# An event is over if this share of its size is left in the newest session, with less than this probability to last.
_RETURNED, _HARDLY = 0.3, 0.3
# It is over, too, if less than this share of it is left in the newest three sessions.
_BACK = 0.2
# New events per direction and morning.
_MAX_NEW = 2
# Probability (of lasting) and number of sessions from which an event is treated as a lasting change.
_OPEN, _MIN_OPEN_SESSIONS = 0.87, 2
# Past windows of 1 to 4 sessions with this evidence in one direction are bad (down) or good (up); their usual share, by
# direction and length, on Edison.
_BAD = 6.0
_BAD_SHARES = ((0.19, 0.163, 0.167, 0.19), (0.024, 0.05, 0.086, 0.12))


@dataclass(frozen=True, slots=True)
class _QuietnessModel:
    """How much more probable a real event is on a system with few bad windows.

    Attributes:
        exponent: the odds are larger by this power of (usual share x `part` / share of bad windows). It is less than 1,
            because the features compare with the past of the system, too.
        weight: of the usual share in the share of this system, in windows.
        part: of the usual share, below which a system is quiet.
    """

    exponent: float
    weight: float
    part: float


# By direction, and number of sessions from 1 to 4. Nothing is subtracted where more windows than usual are bad, because
# the features compare with the past (docs/detection-scores.md has the log loss).
_QUIETNESS_DOWN = (
    _QuietnessModel(0.5, 5.0, 0.5),
    _QuietnessModel(0.5, 20.0, 1.0),
    _QuietnessModel(0.5, 20.0, 1.0),
    _QuietnessModel(0.75, 20.0, 1.0),
)
_QUIETNESS_UP = (_QuietnessModel(0.25, 20.0, 1.0),) * 4
_QUIETNESS = (_QUIETNESS_DOWN, _QUIETNESS_UP)
# Largest probability that a real event lasts in its first sessions: all planted ones of both directions do, but one of
# Cori was over in a session.
_SUREST, _SUREST_SESSIONS = 0.92, 3
# Share of the events that lasted in the fit, and its weight in events.
_LASTING_SHARE, _LASTING_WEIGHT = 0.57, 8.0

_DIRECTIONS: tuple[StepDirection, StepDirection] = ("down", "up")


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
    """Series that moved in one direction.

    Attributes:
        rule: what selects them; None if nothing does.
        probability_lasting: that these series changed with the event, and that it lasts.
    """

    direction: StepDirection
    members: tuple[PanelMember, ...]
    rule: str | None
    probability_lasting: float


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
        observed: how many of `sessions` measured its series; None: all.
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
    observed: int | None = None


@dataclass(frozen=True, slots=True)
class PanelReport:
    """State of the newest session.

    Attributes:
        session: epoch seconds of its first run; None without observations.
        measured: number of series with an observation in it and a known level.
        unusual: positions of the series that are more than three scatters from their level in it.
        events: the most probable first.
        newest: median of the newest three observations (ln) of each series, NaN without any.
        since: epoch seconds of the first run of the oldest session that an event can have begun in; None if there are
            too few sessions.
        adjustment: the covariate whose effect was removed from the series before.
    """

    session: int | None
    measured: int
    unusual: tuple[int, ...]
    events: tuple[PanelEvent, ...]
    newest: tuple[float, ...] = ()
    since: int | None = None
    adjustment: Adjustment | None = None


def assess_panel(
    series: Sequence[PanelSeries],
    known: Sequence[tuple[int, StepDirection]] = (),
    lasted: int = 0,
    ended: int = 0,
    *,
    vocabulary: ParameterVocabulary,
) -> PanelReport:
    """Assess the newest sessions of all series of a system together.

    Args:
        series: all monitored series, in any order.
        known: epoch seconds of the first run and direction of events that are reported already; less evidence is
            enough to keep them than to report a new one.
        lasted, ended: earlier events of this system that lasted, and that were over after some sessions; they correct
            the base rate of the probability that an event lasts.
        vocabulary: prior costs and words of the parameters.
    """
    if not any(len(observed.times) for observed in series):
        return PanelReport(None, 0, (), ())
    table = PanelTable(series, vocabulary)
    rated: list[_Rated] = []
    for candidate in find_candidates(table):
        real, lasting = _probabilities(table, candidate, lasted, ended)
        rated.append(_Rated(candidate, real, lasting))
    # The groups to report of each direction, then those of the other direction that began with them.
    reported: list[_Rated] = []
    for number, direction in enumerate(_DIRECTIONS):
        of_direction = [group for group in rated if group.candidate.direction == number]
        known_sessions = [table.session_of(time) for time, known_direction in known if known_direction == direction]
        reported += _select_groups(of_direction, known_sessions)
    reported += _companions(reported, rated)
    events = sorted(_merge_events(table, reported), key=lambda event: -event.probability_lasting)
    # The newest session by itself.
    distances = (table.logs[:, -1] - table.levels[:, -2]) / table.scatter
    is_measured = np.isfinite(distances)
    unusual = np.flatnonzero(np.abs(np.where(is_measured, distances, 0.0)) > _FAR)
    return PanelReport(
        session=int(table.starts[-1]),
        measured=int(is_measured.sum()),
        unusual=tuple(int(i) for i in unusual),
        events=tuple(events),
        newest=tuple(_newest_level(row) for row in table.logs),
        since=int(table.starts[-table.assessed]) if table.assessed else None,
    )


def _newest_level(logs: Floats) -> float:
    """Median of the newest observations of a series; NaN without any."""
    newest = logs[np.isfinite(logs)][-NEWEST_OBSERVATIONS:]
    return float(np.median(newest)) if len(newest) else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class _Rated:
    """A candidate, the probability that it is a real event, and that it lasts."""

    candidate: Candidate
    real: float
    lasting: float

    @property
    def is_over(self) -> bool:
        """Whether the series returned in the newest session and will hardly leave again."""
        features, sessions = self.candidate.features, self.candidate.observed
        if sessions > NEWEST_OBSERVATIONS and features["newest sessions"] < _BACK:
            return True
        return sessions > 1 and features["newest session"] < _RETURNED and self.lasting < _HARDLY


def _select_groups(rated: Sequence[_Rated], known_sessions: Sequence[int]) -> list[_Rated]:
    """The groups of one direction to report: those of known events, and the most probable new ones.

    Args:
        rated: all groups of the direction.
        known_sessions: first sessions of the events of this direction that are reported already.
    """
    reported: list[_Rated] = []
    current = [group for group in rated if not group.is_over]
    for session in known_sessions:
        near = [group for group in current if abs(group.candidate.session - session) <= 1 and group.real >= _KEEP]
        if near:
            best = max(near, key=lambda group: _probability_with_date(group, session))
            if best not in reported:
                reported.append(best)
    dated = [group for group in current if group.candidate.is_dated and group.real >= _least_real(group.candidate)]
    for new in sorted(dated, key=lambda group: -group.real)[:_MAX_NEW]:
        if not any(_is_same(group.candidate, new.candidate) for group in reported):
            reported.append(new)
    return reported


def _probability_with_date(group: _Rated, session: int) -> float:
    """Probability of being real, larger for the date that is reported already."""
    return group.real + (_SAME_DATE if group.candidate.session == session else 0.0)


def _least_real(candidate: Candidate) -> float:
    """Least probability of being real of a new event that is reported."""
    limits = model_of(candidate.sessions).report
    if _DIRECTIONS[candidate.direction] == "down":
        return limits.down
    return limits.up


def _companions(reported: Sequence[_Rated], rated: Sequence[_Rated]) -> Iterator[_Rated]:
    """Groups of the other direction that began with a reported one: less evidence is enough than for one alone."""
    probable: list[_Rated] = []
    for group in rated:
        if group.real >= _ADD and group.candidate.sessions <= _ADD_SESSIONS and not group.is_over:
            probable.append(group)
    for group in reported:
        first = group.candidate
        opposite = [other.candidate for other in reported if other.candidate.direction != first.direction]
        if any(abs(candidate.session - first.session) <= 1 for candidate in opposite):
            continue
        for new in probable:
            begins_with_it = new.candidate.direction != first.direction and new.candidate.session == first.session
            if begins_with_it and not any(_is_same(candidate, new.candidate) for candidate in opposite):
                yield new


def _is_same(known: Candidate, new: Candidate) -> bool:
    """Whether a candidate is the event of a known one of its direction.

    It is if it began near it with a series of it, or if most of its series are in it: after a change, these are far
    from the level before in every later session, too.
    """
    common = len(set(known.members) & set(new.members))
    is_near = abs(known.session - new.session) <= _SAME_EVENT_SESSIONS
    return (is_near and common > 0) or 2 * common > len(new.members)


def _merge_events(table: PanelTable, reported: Sequence[_Rated]) -> Iterator[PanelEvent]:
    """Events: groups of both directions that began in about the same session are one."""
    remaining = sorted(reported, key=lambda group: -group.candidate.evidence)
    while remaining:
        # The group with most evidence dates the event.
        first = remaining.pop(0)
        main = first.candidate
        # At most one group of the other direction belongs to it.
        event_groups = [first]
        for other in remaining:
            if other.candidate.direction != main.direction and abs(other.candidate.session - main.session) <= 1:
                event_groups.append(other)
                remaining.remove(other)
                break
        # What became of earlier sessions that began like this one.
        similar, over = table.similar_sessions(main.direction, main.first_evidence)
        lasting = _lasting_together(event_groups)
        surest = max(group.real for group in event_groups)
        # The surer group is as probable as the event; the other one must belong to it, too.
        groups: list[PanelGroup] = []
        for group in event_groups:
            lasting_of_group = lasting
            if group.real != surest:
                lasting_of_group = probability_beside(lasting, group.real)
            groups.append(_make_group(table, group.candidate, lasting_of_group))
        yield PanelEvent(
            last_before=int(table.starts[main.session - 1]),
            first_after=int(table.starts[main.session]),
            groups=tuple(groups),
            sessions=main.sessions,
            probability_real=surest,
            probability_lasting=lasting,
            is_open=lasting >= _OPEN and main.observed >= _MIN_OPEN_SESSIONS,
            similar=similar,
            over_next=over,
            observed=main.observed if main.observed < main.sessions else None,
        )


def _lasting_together(groups: Sequence[_Rated]) -> float:
    """Probability that an event of one or two groups lasts.

    All planted events of both directions do, and three real ones, so one of the first sessions is as sure as its second
    group, from what it is alone up to `_SUREST`.
    """
    lasting = max(group.lasting for group in groups)
    if len(groups) == 1 or groups[0].candidate.observed > _SUREST_SESSIONS:
        return lasting
    surest, other = sorted(groups, key=lambda group: -group.real)
    alone = surest.lasting / surest.real
    together = alone + (_SUREST - alone) * probability_beside(1.0, other.real)
    return max(lasting, surest.real * together)


def probability_beside(lasting: float, real: float) -> float:
    """Probability that changes of the other direction are part of an event, and last with it.

    Args:
        lasting: that the event lasts.
        real: that the changes are real, without regard to the event.
    """
    return lasting * expit(logit(min(real, 1 - 1e-9)) + _BESIDE)


def _make_group(table: PanelTable, candidate: Candidate, lasting: float) -> PanelGroup:
    """The group of a candidate, which lasts with this probability."""
    members = []
    start = candidate.session
    for i in candidate.members:
        times, before = table.times[i], float(table.levels[i, start])
        # Observations since the event, and those before it.
        after = np.flatnonzero(np.isfinite(table.logs[i, start:])) + start
        earlier = np.flatnonzero(np.isfinite(table.logs[i, :start]))
        gain = float(np.median(table.logs[i, after])) - before
        distance = abs(gain) / float(table.scatter[i])
        members.append(PanelMember(i, int(times[earlier[-1]]), int(times[after[0]]), before, gain, distance))
    rule = format_conditions(candidate.rule, table.vocabulary) if candidate.rule else None
    return PanelGroup(_DIRECTIONS[candidate.direction], tuple(members), rule, lasting)


def _probabilities(table: PanelTable, candidate: Candidate, lasted: int, ended: int) -> tuple[float, float]:
    """Probability that a candidate is a real event, and that it lasts."""
    model = model_of(candidate.observed)
    share = (lasted + _LASTING_WEIGHT * _LASTING_SHARE) / (lasted + ended + _LASTING_WEIGHT)
    base_rate = logit(share) - logit(_LASTING_SHARE)
    real = probability(model.real, candidate.features, _quietness(table, candidate))
    lasting = probability(model.lasting, candidate.features, base_rate)
    if candidate.observed <= _SUREST_SESSIONS:
        lasting = min(lasting, _SUREST)
    return real, real * lasting


def _quietness(table: PanelTable, candidate: Candidate) -> float:
    """Log odds to add on a system with fewer bad sessions (for gains: good ones) than usual; not negative."""
    direction, length = candidate.direction, min(candidate.observed, len(_BAD_SHARES[0]))
    model = _QUIETNESS[direction][length - 1]
    usual = _BAD_SHARES[direction][length - 1]
    # The share of bad windows of this system, with the usual one as some windows more.
    past = table.past_evidence(length)[direction]
    bad = ((past > _BAD).sum() + model.weight * usual) / (len(past) + model.weight)
    return max(0.0, model.exponent * math.log(model.part * usual / bad))
