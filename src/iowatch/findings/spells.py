"""Spells: losses that needed action and were over within some sessions, and how many earlier ones of a system were.

A loss of some nights looks like a lasting one while it goes on. When it is over, the finding is closed as a spell with
its length; and a later finding states how many of those that went on for as long were over soon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from iowatch.findings.finding import EarlierSpells, Finding, FindingMember, Resolution
from iowatch.statistics import DetectorSettings
from iowatch.statistics.constants import Floats
from iowatch.statistics.panel_candidates import NEWEST_OBSERVATIONS
from iowatch.statistics.panel_table import LEVEL_OBSERVATIONS, PanelSeries, session_starts
from iowatch.store import SeriesRow

LONGEST_SPELL = DetectorSettings().transient_observations
"""Sessions; a loss that goes on for longer is a level of its own, as in the detection in single series."""

# Sessions; a shorter one is a transient.
_SHORTEST_SPELL = 5
# Share of the loss (of its logarithm) below which a session is not part of the spell any more, and the share that may
# be left in the newest sessions of one that is over.
_PART_OF_SPELL, _LEFT = 0.5, 0.3
# Spells that a system must have had before a finding states them: a single one is no experience.
_SOME = 2
# Sessions after the longest spell within which it is closed: what returns later has another end.
_JUST_BACK = 2 * NEWEST_OBSERVATIONS
# Sessions between the last one of a spell and the date of the gain that ends it.
_SAME_DATE = 2


class Spells:
    """The observations of the series of one system, by which losses are over or not.

    Args:
        rows: all headline series of the system.
        series: their observations, in the order of the rows.
    """

    def __init__(self, rows: Sequence[SeriesRow], series: Sequence[PanelSeries]) -> None:
        self._series: Mapping[int, PanelSeries] = {row.id: observed for row, observed in zip(rows, series, strict=True)}
        times = [np.asarray(observed.times, dtype=np.float64) for observed in series]
        self._starts = np.asarray(session_starts(times)) if times else np.empty(0)

    def close(self, findings: Sequence[Finding], previous: Sequence[Finding]) -> list[Finding]:
        """The findings, with those closed as spells that are over; the gains that end them are their recoveries.

        Args:
            findings: with their resolution by the detection (`resolution.resolve_findings`).
            previous: findings of the last update: what needed no action is no spell.
        """
        needed_action = {finding.id for finding in previous if finding.needed_action}
        closed: list[Finding] = []
        ended: list[tuple[Finding, int]] = []
        for finding in findings:
            sessions = 0
            if finding.is_resolved_as("spell") and finding.resolution is not None:
                sessions = finding.resolution.sessions or 0
            elif finding.id in needed_action and _may_be_spell(finding):
                sessions = self._length(finding)
            if not _SHORTEST_SPELL <= sessions <= LONGEST_SPELL:
                closed.append(finding)
                continue
            outlook = finding.outlook
            if outlook is not None:
                outlook = replace(outlook, is_current=False)
            end = self._session_of(finding.first_after) + sessions
            since = int(self._starts[end]) if end < len(self._starts) else None
            resolution = Resolution("spell", sessions=sessions, since=since)
            spell = replace(finding, resolution=resolution, outlook=outlook)
            closed.append(spell)
            ended.append((spell, end))
        return [self._as_recovery(finding, ended) for finding in closed]

    def attach_experience(self, finding: Finding, previous: Sequence[Finding]) -> Finding:
        """The finding with what became of the earlier losses of the system that went on for as long as this one.

        Args:
            previous: findings of the last update.
        """
        sessions = self._sessions_since(finding.first_after)
        if finding.resolution is not None or not finding.is_loss or sessions > LONGEST_SPELL:
            return replace(finding, earlier_spells=None)
        like = ended = 0
        for earlier in previous:
            if earlier.id == finding.id or not earlier.needed_action or not earlier.is_loss:
                continue
            length = self._known_length(earlier)
            if length >= sessions:
                like += 1
                ended += length <= LONGEST_SPELL
        if ended < _SOME:
            return replace(finding, earlier_spells=None)
        return replace(finding, earlier_spells=EarlierSpells(like, ended, LONGEST_SPELL))

    def _known_length(self, finding: Finding) -> int:
        """Sessions that an earlier loss went on for, more than `LONGEST_SPELL` of one that lasted; 0 if not known."""
        resolution = finding.resolution
        if resolution is not None and resolution.kind in ("spell", "transient"):
            return resolution.sessions or 0
        if resolution is not None and resolution.since is not None:  # it lasted until another change
            return self._session_of(resolution.since) - self._session_of(finding.first_after)
        if resolution is not None:
            return 0
        since = self._sessions_since(finding.first_after)
        return since if since > LONGEST_SPELL else 0

    def _length(self, finding: Finding) -> int:
        """Number of sessions that a loss went on for, if its series are just back; else 0."""
        first = self._session_of(finding.first_after)
        if self._sessions_since(finding.first_after) > LONGEST_SPELL + _JUST_BACK:
            return 0
        left = np.full((len(finding.members), len(self._starts) - first), np.nan)
        for row, member in enumerate(finding.members):
            if member.gain < 1 and member.series_id in self._series:
                self._fill_share_left(left[row], member, first)
        measured = left[:, np.isfinite(left).any(axis=0)]
        if measured.shape[1] <= NEWEST_OBSERVATIONS:
            return 0
        shares = np.nanmedian(measured, axis=0)
        # It is over with the first sessions in a row that are back; what comes later is another loss.
        windows = np.lib.stride_tricks.sliding_window_view(shares, NEWEST_OBSERVATIONS)
        is_over = (windows.max(axis=1) < _PART_OF_SPELL) & (np.median(windows, axis=1) < _LEFT)
        # One that has fallen again is not over.
        if not is_over.any() or np.median(windows[-1]) >= _LEFT:
            return 0
        return int(np.argmax(is_over))

    def _fill_share_left(self, left: Floats, member: FindingMember, first: int) -> None:
        """Write the share of the loss of a member (of its logarithm) that is left in each session from `first` on."""
        observed = self._series[member.series_id]
        times, logs = np.asarray(observed.times), np.asarray(observed.logs, dtype=np.float64)
        before = logs[times < member.first_after][-LEVEL_OBSERVATIONS:]
        is_since = times >= member.first_after
        if not len(before) or not is_since.any():
            return
        columns = np.searchsorted(self._starts, times[is_since], side="right") - 1 - first
        is_inside = columns >= 0
        left[columns[is_inside]] = ((logs[is_since] - np.median(before)) / math.log(member.gain))[is_inside]

    def _as_recovery(self, finding: Finding, ended: Sequence[tuple[Finding, int]]) -> Finding:
        """A gain that ends a spell is its recovery.

        Args:
            ended: the spells, and the session after the last one of each.
        """
        if finding.direction != "up" or finding.opposite is not None or finding.resolution is not None:
            return finding
        session = self._session_of(finding.first_after)
        series = {member.series_id for member in finding.members}
        for spell, end in ended:
            shared = len(series & {member.series_id for member in spell.members})
            if abs(session - end) <= _SAME_DATE and 2 * shared > len(series):
                return replace(finding, resolution=Resolution("recovery", finding=spell.id))
        return finding

    def _session_of(self, time: float) -> int:
        """Position of the session that a time (epoch seconds) belongs to."""
        return int(np.searchsorted(self._starts, time, side="right")) - 1

    def _sessions_since(self, time: float) -> int:
        """Number of sessions from the one of a time (epoch seconds) on."""
        return len(self._starts) - self._session_of(time)


def _may_be_spell(finding: Finding) -> bool:
    """Whether a finding is a loss that goes on, or one that is over by the detection."""
    is_open = finding.resolution is None or finding.is_resolved_as("transient", "returned", "not confirmed")
    return finding.is_loss and is_open
