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
from typing import NamedTuple

import numpy as np

from iowatch.statistics.method import Adjustment, StepDirection
from iowatch.statistics.panel_candidates import NEWEST_OBSERVATIONS, Candidate, find_candidates
from iowatch.statistics.panel_models import expit, logit, model_of, probability
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
# Where less than this part of the usual share is bad, the odds of a real event are larger by a power of the ratio:
# exponent, weight of the usual share in windows, and part, by direction and length. Exponents are less than 1, because
# the features compare with the past of the system, too; for the same reason nothing is subtracted where more are bad
# (docs/detection-scores.md has the log loss).
_QUIETNESS = (((0.5, 5.0, 0.5), (0.5, 20.0, 1.0), (0.5, 20.0, 1.0), (0.75, 20.0, 1.0)), ((0.25, 20.0, 1.0),) * 4)
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
    if not any(len(one.times) for one in series):
        return PanelReport(None, 0, (), ())
    table = PanelTable(series, vocabulary)
    found: list[_Rated] = []
    rated = [_Rated(one, *_probabilities(table, one, lasted, ended)) for one in find_candidates(table)]
    for direction, side in enumerate(_DIRECTIONS):
        mine = [one for one in rated if one.candidate.direction == direction]
        found += _choose(mine, [table.session_of(time) for time, known_side in known if known_side == side])
    found += _companions(found, rated)
    events = tuple(sorted(_merge_events(table, found), key=lambda event: -event.probability_lasting))
    newest = (table.logs[:, -1] - table.levels[:, -2]) / table.scatter
    measured = np.isfinite(newest)
    unusual = tuple(int(i) for i in np.flatnonzero(np.abs(np.where(measured, newest, 0.0)) > _FAR))
    known_logs = [row[np.isfinite(row)][-NEWEST_OBSERVATIONS:] for row in table.logs]
    levels = tuple(float(np.median(one)) if len(one) else math.nan for one in known_logs)
    since = int(table.starts[-table.assessed]) if table.assessed else None
    return PanelReport(int(table.starts[-1]), int(measured.sum()), unusual, events, levels, since)


class _Rated(NamedTuple):
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


def _choose(rated: Sequence[_Rated], known: Sequence[int]) -> list[_Rated]:
    """The candidates of one direction to report: those of known events, and the most probable new ones."""
    kept: list[_Rated] = []
    left = [one for one in rated if not one.is_over]
    for session in known:
        near = [one for one in left if abs(one.candidate.session - session) <= 1 and one.real >= _KEEP]
        if near:
            best = max(near, key=lambda one: one.real + (_SAME_DATE if one.candidate.session == session else 0.0))
            kept += [best] if best not in kept else []
    dated = [one for one in left if one.candidate.is_dated and one.real >= _least_real(one.candidate)]
    for new in sorted(dated, key=lambda one: -one.real)[:_MAX_NEW]:
        if not any(_is_same(one.candidate, new.candidate) for one in kept):
            kept.append(new)
    return kept


def _least_real(candidate: Candidate) -> float:
    return model_of(candidate.sessions).report[candidate.direction]


def _companions(found: Sequence[_Rated], rated: Sequence[_Rated]) -> Iterator[_Rated]:
    """Groups of the other direction that began with a chosen one: less evidence is enough than for one alone."""
    enough = [one for one in rated if one.real >= _ADD and one.candidate.sessions <= _ADD_SESSIONS and not one.is_over]
    for chosen, _, _ in found:
        others = [one.candidate for one in found if one.candidate.direction != chosen.direction]
        if not any(abs(one.session - chosen.session) <= 1 for one in others):
            for new in enough:
                begins_with_it = new.candidate.direction != chosen.direction and new.candidate.session == chosen.session
                if begins_with_it and not any(_is_same(one, new.candidate) for one in others):
                    yield new


def _is_same(known: Candidate, new: Candidate) -> bool:
    """Whether a candidate is the event of a known one of its direction.

    It is if it began near it with a series of it, or if most of its series are in it: after a change, these are far
    from the level before in every later session, too.
    """
    common = len(set(known.members) & set(new.members))
    is_near = abs(known.session - new.session) <= _SAME_EVENT_SESSIONS
    return (is_near and common > 0) or 2 * common > len(new.members)


def _merge_events(table: PanelTable, found: Sequence[_Rated]) -> Iterator[PanelEvent]:
    """Events: groups of both directions that began in about the same session are one."""
    left = sorted(found, key=lambda one: -one.candidate.evidence)
    while left:
        first = left.pop(0)
        pair = [first]
        main = first.candidate
        for other in left:
            if other.candidate.direction != main.direction and abs(other.candidate.session - main.session) <= 1:
                pair.append(other)
                left.remove(other)
                break
        similar, over = table.similar_sessions(main.direction, main.first_evidence)
        lasting, surest = _lasting_together(pair), max(one.real for one in pair)
        beside = [lasting if one.real == surest else probability_beside(lasting, one.real) for one in pair]
        yield PanelEvent(
            last_before=int(table.starts[main.session - 1]),
            first_after=int(table.starts[main.session]),
            groups=tuple(_make_group(table, one.candidate, p) for one, p in zip(pair, beside, strict=True)),
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
    lasting = max(one.lasting for one in groups)
    if len(groups) == 1 or groups[0].candidate.observed > _SUREST_SESSIONS:
        return lasting
    surest, other = sorted(groups, key=lambda one: -one.real)
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
    members = []
    start = candidate.session
    for i in candidate.members:
        times, before = table.times[i], float(table.levels[i, start])
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
    return real, real * (min(lasting, _SUREST) if candidate.observed <= _SUREST_SESSIONS else lasting)


def _quietness(table: PanelTable, candidate: Candidate) -> float:
    """Log odds to add on a system with fewer bad sessions (for gains: good ones) than usual; not negative."""
    direction, length = candidate.direction, min(candidate.observed, len(_BAD_SHARES[0]))
    exponent, weight, part = _QUIETNESS[direction][length - 1]
    usual, past = _BAD_SHARES[direction][length - 1], table.past_evidence(length)[direction]
    bad = ((past > _BAD).sum() + weight * usual) / (len(past) + weight)
    return max(0.0, exponent * math.log(part * usual / bad))
