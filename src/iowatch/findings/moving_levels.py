"""Findings whose shift is within what the level of their file systems does by itself: they stay suspected.

`iowatch.statistics.moving_level` has the statistics; here are the series of a file system, and their observations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from iowatch.findings.finding import Finding, FindingMember, MovingLevel
from iowatch.findings.grouping import NEAR_DATE_S
from iowatch.findings.losses import file_system_key
from iowatch.statistics.constants import Floats
from iowatch.statistics.moving_level import LARGEST_SHIFT, LevelMovement, assess_shift
from iowatch.statistics.panel_table import PanelSeries, session_starts
from iowatch.store import SeriesRow


class MovingLevels:
    """The series of one system by sessions, and the file system of each.

    Args:
        rows: all headline series of the system.
        series: their observations, in the order of the rows, with the steps that single series established.
        accepted: starts of the accepted levels in epoch seconds, by series id.
    """

    def __init__(self, rows: Sequence[SeriesRow], series: Sequence[PanelSeries], accepted: Mapping[int, int]) -> None:
        self._series, self._accepted = series, accepted
        self._positions = {row.id: position for position, row in enumerate(rows)}
        self._ids = [row.id for row in rows]
        self._file_systems: dict[str, list[int]] = defaultdict(list)
        for position, observed in enumerate(series):
            self._file_systems[file_system_key(observed)].append(position)
        self._starts = np.asarray(
            session_starts([np.asarray(s.times, dtype=np.float64) for s in series] or [np.empty(0)])
        )

    def attach(self, finding: Finding, would_act: bool) -> Finding:
        """The finding with the movement that explains it; without one if none does.

        Args:
            would_act: whether it would be opened, or need action, without such a movement.
        """
        if not would_act or finding.resolution is not None:
            return replace(finding, moving_level=None)
        return replace(finding, moving_level=self._assess(finding))

    def _assess(self, finding: Finding) -> MovingLevel | None:
        """The movement of the file systems of a finding; None unless it explains the shift in each of them."""
        first = int(np.searchsorted(self._starts, finding.first_after, side="right")) - 1
        logs = self._tabulate(finding.first_after)
        groups = [logs[positions] for positions in self._file_systems.values()]
        # The members of a file system that changed in one direction share their level.
        members: dict[tuple[str, str], list[FindingMember]] = defaultdict(list)
        for member in finding.members:
            if member.series_id not in self._positions:
                return None
            observed = self._series[self._positions[member.series_id]]
            members[file_system_key(observed), member.direction].append(member)
        movements: dict[str, LevelMovement] = {}
        for (file_system, _direction), of_file_system in members.items():
            positions = [self._positions[member.series_id] for member in of_file_system]
            movement = assess_shift(logs[positions], groups, first)
            if movement is None:
                return None
            larger = movements.get(file_system)
            if larger is None or abs(movement.log_gain) > abs(larger.log_gain):
                movements[file_system] = movement
        # The one that moves most is stated.
        largest = max(movements.values(), key=lambda movement: movement.usual)
        file_systems = {member.parameters.get("file_system") for member in finding.members}
        names = tuple(sorted(str(name) for name in file_systems if name is not None))
        return MovingLevel(names, math.exp(largest.usual), largest.sessions, len(groups))

    def _tabulate(self, date: int) -> Floats:
        """Performance (ln) of each series in each session, shape (series, sessions), without what was no movement.

        Removed are steps before the date that are too large for one, and those before an accepted level.
        """
        table = np.full((len(self._series), len(self._starts)), np.nan)
        for position, observed in enumerate(self._series):
            logs = np.asarray(observed.logs, dtype=np.float64).copy()
            accepted_since = self._accepted.get(self._ids[position], 0)
            for time, log_gain in observed.steps:
                is_earlier = time < date - NEAR_DATE_S
                if is_earlier and (abs(log_gain) > LARGEST_SHIFT or abs(time - accepted_since) <= NEAR_DATE_S):
                    logs[observed.times < time] += log_gain
            columns: NDArray[np.intp] = np.searchsorted(self._starts, observed.times, side="right") - 1
            table[position, columns] = logs
        return table
