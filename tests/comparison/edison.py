"""Two consecutive periods of Edison's year as null comparisons of real data, for tests and
bench/statistics/compare.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from iowatch.benchmarks.tables import read_table
from iowatch.core import Case
from iowatch.statistics import Pair, SideSamples, detect_many
from tests.datasets import ROOT

_TABLE = ROOT / "reference/series/edison/edison.csv.xz"
_MAP = _TABLE.with_name("edison.yaml")
_DAY_S = 86_400
_FEWEST = 100  # observations per series
_PRESENT = 0.6  # of the observations of a period


@cache
def _year() -> list[tuple[Case, list[tuple[float, float]], list[float]]]:
    """Each series: its case, its observations (time, MiB/s), the times of its changes."""
    points: dict[Case, list[tuple[float, float]]] = defaultdict(list)
    for run in read_table(_TABLE, str(_MAP)).runs:
        for result in run.output.results:
            points[result.full_case(str(run.output.tool))].append((float(run.started_at), result.samples[0]))
    long = {case: sorted(found) for case, found in points.items() if len(found) >= _FEWEST}
    detected = detect_many([([t for t, _ in found], [v for _, v in found]) for found in long.values()])
    return [
        (case, found, [change.time for change in detection.changes])
        for (case, found), detection in zip(long.items(), detected, strict=True)
    ]


def _by_day(found: list[tuple[float, float]], start: float, end: float) -> dict[str, tuple[float, ...]]:
    """Values of a period; those of one day are one session, as in an import."""
    sessions: dict[str, tuple[float, ...]] = {}
    for time, value in found:
        if start <= time < end:
            day = f"day {time // _DAY_S:.0f}"
            sessions[day] = (*sessions.get(day, ()), value)
    return sessions


def windows(days: int) -> Iterator[list[Pair]]:
    """Null comparisons: a number of days against the next ones, every half period, of the series in which the detector
    finds no change in that time."""
    year = _year()
    start, end = (pick(found[edge][0] for _, found, _ in year) for pick, edge in ((min, 0), (max, -1)))
    while start + 2 * days * _DAY_S <= end:
        cut, stop = start + days * _DAY_S, start + 2 * days * _DAY_S
        pairs = []
        for case, found, changes in year:
            if not any(start < time < stop for time in changes):
                left, right = _by_day(found, start, cut), _by_day(found, cut, stop)
                if min(len(left), len(right)) >= _PRESENT * days:
                    pairs.append(Pair(case, "bandwidth", SideSamples(left), SideSamples(right), sign=1))
        if len(pairs) > 2:
            yield pairs
        start += days * _DAY_S / 2
