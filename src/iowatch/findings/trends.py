"""Trends: drifts of single series that extend to their newest observations.

Small ones, and gains, are only listed; slow losses from the setting `slow_loss` on are findings (`patterns`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iowatch.core import DAY_S, METRICS
from iowatch.findings.case_parameters import short_case_names
from iowatch.findings.detections import load_detections
from iowatch.findings.finding import Finding
from iowatch.findings.grouping import series_parameters
from iowatch.findings.series import headline_series
from iowatch.statistics import Detection
from iowatch.store import History, SeriesRow

# Seconds; a trend that ends earlier than this before the newest observation of its series is not current.
_MAX_AGE_S = 14 * DAY_S


@dataclass(frozen=True)
class CurrentDrift:
    """A drift that extends to the newest observation of its series.

    Attributes:
        first, last: its first and last observation, epoch seconds.
        gain: performance at its end / at its beginning.
    """

    first: int
    last: int
    gain: float


@dataclass(frozen=True)
class Trend:
    """A drift of one series that continues; fields as in `CurrentDrift`."""

    system: str
    series_id: int
    name: str
    first: int
    last: int
    gain: float


def current_drifts(row: SeriesRow, detection: Detection, newest: int) -> list[CurrentDrift]:
    """Drifts of a series that extend to its newest observation.

    Args:
        newest: epoch seconds of the newest observation.
    """
    current: list[CurrentDrift] = []
    for drift in detection.drifts:
        if drift.last_time >= newest - _MAX_AGE_S:
            gain = math.exp(METRICS[row.metric].log_gain(drift.ratio))
            current.append(CurrentDrift(int(drift.time), int(drift.last_time), gain))
    return current


def series_with_slow_losses(findings: Iterable[Finding]) -> frozenset[int]:
    """Return the ids of the series whose slow loss is a finding that is not resolved."""
    series_ids: set[int] = set()
    for finding in findings:
        if finding.pattern == "drift" and finding.resolution is None:
            series_ids |= {member.series_id for member in finding.members}
    return frozenset(series_ids)


def find_trends(history: History, systems: Sequence[str], findings: Iterable[Finding] = ()) -> list[Trend]:
    """Drifts of the monitored series that extend to their newest observations, largest first.

    They are those of the last update of findings; a series without a detection has none.

    Args:
        findings: those of the systems; series whose slow loss is one of them are left out.
    """
    with_findings = series_with_slow_losses(findings)
    trends: list[Trend] = []
    for system in systems:
        rows = headline_series(history, system)
        names = short_case_names([series_parameters(row) for row in rows])
        detections = load_detections(history, [row.id for row in rows])
        for row, name in zip(rows, names, strict=True):
            if row.id not in detections or row.id in with_findings:
                continue
            newest = row.last or 0  # None for a series without results, which has no drifts either
            for drift in current_drifts(row, detections[row.id], newest):
                trends.append(Trend(system, row.id, name, drift.first, drift.last, drift.gain))
    return sorted(trends, key=lambda trend: -abs(math.log(trend.gain)))
