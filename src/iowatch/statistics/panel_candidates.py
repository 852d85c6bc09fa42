"""Groups of series that left their level in one of the newest sessions (for `iowatch.statistics.panel`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.constants import Bools, Floats
from iowatch.statistics.logistic import logit
from iowatch.statistics.panel_table import (
    FREE,
    LEAST_EVIDENCE,
    MOST_EVIDENCE,
    OUTSIDE,
    PanelTable,
    limited_evidence,
    shift_evidence,
)
from iowatch.statistics.rules import Condition

NEWEST_OBSERVATIONS = 3
"""Observations of a series whose median is where it is now."""

# Probability inside a rule by which a series counts as moved: for the evidence of the group, what a rule selects counts
# unless it clearly stayed; as a member it is stated if it more probably moved.
_MOVED_INSIDE, _MEMBER_INSIDE = 0.97, 0.5
# A series whose evidence for an earlier session is larger by this (nats), and above the second value, moved earlier.
_EARLIER, _MOVED = 1.0, 1.5
# Least evidence (nats) of a group, and least shift (ln) of its members.
_MIN_EVIDENCE, _MIN_SHIFT = 1.0, 0.02
# Sessions of the past windows that a group is compared with; the mean of the largest values is its limit.
_WINDOW_SESSIONS, _LARGEST = 4, 4
# Scatters to which the distance of a member is limited in the mean of its group: one wild series is no group.
_CLIP = 12.0
# Evidence of the other direction (nats) counts from the first value on, up to the second in whether an event is real,
# and up to the third in whether it lasts.
_LEAST_OPPOSITE, _MOST_OPPOSITE, _MOST_OPPOSITE_LASTING = 4, 24, 12
# Smallest size (ln) of a shift in the features, and the scatters from which on a series of no group is far off.
_SMALLEST_SIZE, _FAR_OFF = 0.03, 2.5
# Largest evidence (nats) and distance (scatters) of the past that are assumed where the past is short.
_ASSUMED_EVIDENCE, _ASSUMED_DISTANCE = 12.0, 2.5
# After fewer sessions than these, levels are so uncertain that evidence counts less.
_LONG_PAST = 40


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A possible event: direction (0 down, 1 up), its first session, and the series that left their level in it.

    Attributes:
        sessions: since the event, the first one included.
        observed: the same without as many as its members missed on average; at least 1.
        is_dated: no session beside the first one fits the members better.
    """

    direction: int
    session: int
    sessions: int
    observed: int
    members: tuple[int, ...]
    rule: tuple[Condition, ...]
    evidence: float
    first_evidence: float
    features: Mapping[str, float]
    is_dated: bool


def find_candidates(table: PanelTable) -> Iterator[Candidate]:
    """The best group for each direction and each of the newest sessions."""
    # Deviations and evidence of each series by the number of sessions since a possible event, k.
    deviations = {k: table.deviations(table.sessions - k, k) for k in range(1, table.assessed + 1)}
    evidence = {k: shift_evidence(since, table.scatter) for k, since in deviations.items()}
    groups: dict[tuple[int, int], _Group] = {}
    for direction in (0, 1):
        # From the oldest session on: a series that left its level earlier is no evidence for a later session.
        earlier = np.full(len(table.scatter), -math.inf)
        for k in range(table.assessed, 0, -1):
            of_session = limited_evidence(evidence[k][direction])
            moved_earlier = (earlier > of_session + _EARLIER) & (earlier > _MOVED)
            fresh = np.isfinite(deviations[k]).any(axis=1) & ~moved_earlier
            groups[direction, k] = _Group(table, direction, deviations[k], evidence[k][direction], fresh)
            earlier = np.maximum(earlier, of_session)
    for (direction, k), group in groups.items():
        if group.evidence < _MIN_EVIDENCE or len(group.members) < 2:
            continue
        opposite = groups[1 - direction, k].evidence
        beside = [groups[direction, q].evidence for q in (k - 1, k + 1) if (direction, q) in groups]
        # The date is that of the largest evidence of the members, without bounds.
        by_date: dict[int, float] = {}
        for q in (k - 1, k, k + 1):
            if q in evidence:
                by_date[q] = float(evidence[q][direction, group.members].sum())
        yield Candidate(
            direction=direction,
            session=table.sessions - k,
            sessions=k,
            observed=group.observed,
            members=tuple(int(i) for i in group.series),
            rule=group.rule,
            evidence=group.evidence,
            first_evidence=group.first_evidence,
            features=group.features(opposite, max(beside, default=0.0)),
            is_dated=max(by_date, key=lambda q: by_date[q]) == k,
        )


class _Group:
    """The series that one rule, or none, selects as moved since a session, and how this compares with the past.

    Attributes:
        evidence_by_series: nats, without bounds, shape (S,).
        evidence: of the group (nats).
        rule: conditions that select it; empty for a free set of series, as for all.
        shift: median deviation of each series in the direction of the group (ln), shape (S,).
        members: series that left their level in the session; they are the evidence.
        series: those that are stated as members; also those of the rule that left it a little earlier and are still
            away.
    """

    def __init__(self, table: PanelTable, direction: int, deviations: Floats, evidence: Floats, fresh: Bools) -> None:
        self.table, self.direction, self.fresh = table, direction, fresh
        self.deviations, self.evidence_by_series = deviations, evidence
        self.sign = (-1.0, 1.0)[direction]
        # The rule, or the free set, that has most evidence.
        limited = limited_evidence(evidence)
        best, position = table.best_rule(np.where(fresh, limited, 0.0)[:, None], fresh[:, None])
        self.evidence = float(best[0])
        rule = int(position[0])
        self.rule: tuple[Condition, ...] = ()
        is_covered = np.zeros(len(fresh), dtype=bool)
        outside = logit(FREE)
        if rule >= 0:
            self.rule = table.rules[rule]
            is_covered = table.cover[rule].astype(bool)
            outside = logit(OUTSIDE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # series without observations
            self.shift = self.sign * np.nanmedian(deviations, axis=1)
        # Its series: those that moved, by their evidence and by the rule.
        shifted = np.nan_to_num(self.shift) > _MIN_SHIFT
        moved = shifted & (limited + np.where(is_covered, logit(_MOVED_INSIDE), outside) > 0)
        stated = shifted & (limited + np.where(is_covered, logit(_MEMBER_INSIDE), outside) > 0)
        self.members = np.flatnonzero(moved & fresh)
        # An event that one session leaves uncertain keeps its series.
        if (stated & fresh).sum() < 2:
            stated = moved
        self.series = np.flatnonzero(stated & (fresh | is_covered))

    @property
    def observed(self) -> int:
        """Sessions since this one, without as many as its members missed on average: these say nothing of it."""
        return max(1, math.ceil(float(np.isfinite(self.deviations[self.members]).sum(axis=1).mean())))

    @property
    def first_evidence(self) -> float:
        """Evidence of the first session alone."""
        first = self.deviations[:, :1]
        measured = np.isfinite(first).any(axis=1) & self.fresh
        by_series = limited_evidence(shift_evidence(first, self.table.scatter)[self.direction])
        best, _ = self.table.best_rule(np.where(measured, by_series, 0.0)[:, None], measured[:, None])
        return float(best[0])

    def features(self, opposite: float, neighbour: float) -> dict[str, float]:
        """Inputs of the models, by name.

        Args:
            opposite: evidence of the group of the other direction.
            neighbour: larger evidence of the sessions beside this one.
        """
        table, members, k = self.table, self.members, self.observed
        shift = self.shift[members]
        size = max(float(shift.mean()), _SMALLEST_SIZE)
        start = table.sessions - self.deviations.shape[1]
        # The same series in the past: their mean distance from their level in each window of as many sessions.
        measured = self.deviations[members]
        measured = measured[:, np.isfinite(measured).any(axis=0)]
        sessions = min(k, _WINDOW_SESSIONS)
        windows = self.sign * table.past_windows(sessions, members)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # windows without observations
            usual = np.nanmedian(windows, axis=2)
            past_distance = np.nanmean(np.clip(usual / table.scatter[members, None], -_CLIP, _CLIP), axis=0)
            newest = float(np.nanmean(self.sign * measured[:, -1]))
            recent = self.sign * np.nanmedian(measured[:, -NEWEST_OBSERVATIONS:], axis=1)
            before = float(np.nanmean(self.sign * (table.logs[members, start - 1] - table.levels[members, start])))
            far = np.abs(np.nanmedian(self.deviations, axis=1) / table.scatter)
        was_measured = np.asarray(np.isfinite(self.deviations).any(axis=1))
        is_other = was_measured.copy()
        is_other[members] = False
        share_of_others_far_off = float((far[is_other] > _FAR_OFF).mean()) if is_other.any() else 0.0
        distance = float(np.clip(shift / table.scatter[members], -_CLIP, _CLIP).mean())
        # The upper limit of the evidence is that of a session.
        whole = np.clip(self.evidence_by_series[members], LEAST_EVIDENCE, MOST_EVIDENCE * k)
        past = table.past_evidence(sessions)[self.direction]
        opposite = max(opposite, _LEAST_OPPOSITE)
        return {
            "evidence": math.log(self.evidence + 2),
            "evidence per series": self.evidence / len(members),
            "whole evidence per series": float(whole.mean()) / math.sqrt(k),
            "evidence after a short past": self.evidence / len(members) * max(0.0, math.log(_LONG_PAST / start)),
            "evidence above past": float(np.clip((self.evidence - _largest(past, _ASSUMED_EVIDENCE)) / 10, -2, 4)),
            "distance": distance,
            "distance above past": distance - _largest(past_distance, _ASSUMED_DISTANCE),
            "series": math.log(len(members)),
            "share": len(members) / max(1, int(was_measured.sum())),
            "size": math.log(size),
            "up": float(self.direction),
            "sessions": math.log(k),
            "margin": float(np.clip((self.evidence - neighbour) / 5, -2, 2)),
            "opposite": (min(opposite, _MOST_OPPOSITE) - _LEAST_OPPOSITE) / 10,
            "opposite, limited": (min(opposite, _MOST_OPPOSITE_LASTING) - _LEAST_OPPOSITE) / 10,
            "session before": float(np.clip(np.nan_to_num(np.clip(before, -1, 1)) / size, -0.5, 1)),
            "newest session": float(np.clip(newest / size, -0.5, 1.5)),
            "newest sessions": float(np.nanmean(recent)) / size,
            "others far off": share_of_others_far_off,
        }


def _largest(past: Floats, default: float) -> float:
    """Mean of the largest values of the past; the default with a short past."""
    past = past[np.isfinite(past)]
    if len(past) < 2 * _LARGEST:
        return default
    return float(np.sort(past)[-_LARGEST:].mean())
