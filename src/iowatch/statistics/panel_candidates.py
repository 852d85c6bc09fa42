"""Groups of series that left their level in one of the newest sessions (for `iowatch.statistics.panel`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.panel_models import logit
from iowatch.statistics.panel_table import (
    FREE,
    LEAST_EVIDENCE,
    MOST_EVIDENCE,
    OUTSIDE,
    Bools,
    Floats,
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
    deviations = {k: table.deviations(table.sessions - k, k) for k in range(1, table.assessed + 1)}
    evidence = {k: shift_evidence(one, table.scatter) for k, one in deviations.items()}
    groups: dict[tuple[int, int], _Group] = {}
    for direction in (0, 1):
        earlier = np.full(len(table.scatter), -math.inf)
        for k in range(table.assessed, 0, -1):
            own = limited_evidence(evidence[k][direction])
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
                direction,
                start,
                k,
                group.observed,
                members,
                group.rule,
                group.evidence,
                group.first_evidence,
                features,
                dated,
            )


class _Group:
    """The series that one rule, or none, selects as moved since a session, and how this compares with the past.

    Attributes:
        own: evidence (nats) of each series without bounds, shape (S,).
        members: series that left their level in the session; they are the evidence.
        series: those that are stated as members; also those of the rule that left it a little earlier and are still
            away.
    """

    def __init__(self, table: PanelTable, direction: int, deviations: Floats, evidence: Floats, fresh: Bools) -> None:
        self.table, self.direction, self.fresh = table, direction, fresh
        self.deviations, self.own = deviations, evidence
        self.sign = (-1.0, 1.0)[direction]
        evidence = limited_evidence(evidence)
        best, position = table.best_rule(np.where(fresh, evidence, 0.0)[:, None], fresh[:, None])
        self.evidence = float(best[0])
        rule = int(position[0])
        self.rule = table.rules[rule] if rule >= 0 else ()
        self.covered = table.cover[rule].astype(bool) if rule >= 0 else np.zeros(len(fresh), dtype=bool)
        outside = logit(OUTSIDE if rule >= 0 else FREE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # series without observations
            self.shift = self.sign * np.nanmedian(deviations, axis=1)
        shifted = np.nan_to_num(self.shift) > _MIN_SHIFT
        moved, stated = (
            shifted & (evidence + np.where(self.covered, logit(inside), outside) > 0)
            for inside in (_MOVED_INSIDE, _MEMBER_INSIDE)
        )
        self.members = np.flatnonzero(moved & fresh)
        # An event that one session leaves uncertain keeps its series.
        stated = stated if (stated & fresh).sum() >= 2 else moved
        self.series = np.flatnonzero(stated & (fresh | self.covered))

    @property
    def observed(self) -> int:
        """Sessions since this one, without as many as its members missed on average: these say nothing of it."""
        return max(1, math.ceil(float(np.isfinite(self.deviations[self.members]).sum(axis=1).mean())))

    @property
    def first_evidence(self) -> float:
        """Evidence of the first session alone."""
        first = self.deviations[:, :1]
        measured = np.isfinite(first).any(axis=1) & self.fresh
        own = limited_evidence(shift_evidence(first, self.table.scatter)[self.direction])
        return float(self.table.best_rule(np.where(measured, own, 0.0)[:, None], measured[:, None])[0][0])

    def features(self, opposite: float, neighbour: float) -> dict[str, float]:
        """Inputs of the models, by name.

        Args:
            opposite: evidence of the group of the other direction.
            neighbour: larger evidence of the sessions beside this one.
        """
        table, members, k = self.table, self.members, self.observed
        shift = self.shift[members]
        size = max(float(shift.mean()), 0.03)
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
            start = table.sessions - self.deviations.shape[1]
            before = float(np.nanmean(self.sign * (table.logs[members, start - 1] - table.levels[members, start])))
            far = np.abs(np.nanmedian(self.deviations, axis=1) / table.scatter)
        others = np.asarray(np.isfinite(self.deviations).any(axis=1))
        others[members] = False
        distance = float(np.clip(shift / table.scatter[members], -_CLIP, _CLIP).mean())
        whole = np.clip(self.own[members], LEAST_EVIDENCE, MOST_EVIDENCE * k)  # the upper limit is that of a session
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
            "opposite": (min(max(opposite, _LEAST_OPPOSITE), _MOST_OPPOSITE) - _LEAST_OPPOSITE) / 10,
            "opposite, limited": (min(max(opposite, _LEAST_OPPOSITE), _MOST_OPPOSITE_LASTING) - _LEAST_OPPOSITE) / 10,
            "session before": float(np.clip(np.nan_to_num(np.clip(before, -1, 1)) / size, -0.5, 1)),
            "newest session": float(np.clip(newest / size, -0.5, 1.5)),
            "newest sessions": float(np.nanmean(recent)) / size,
            "others far off": float((far[others] > 2.5).mean()) if others.any() else 0.0,
        }


def _largest(past: Floats, default: float) -> float:
    """Mean of the largest values of the past; the default with a short past."""
    past = past[np.isfinite(past)]
    return float(np.sort(past)[-_LARGEST:].mean()) if len(past) >= 2 * _LARGEST else default
