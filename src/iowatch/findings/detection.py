"""From series to changes: what the detector says of each, remembered so that a night costs only its news."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.detect import VERSION, Detection, Drift, Level, Transient
from iowatch.detect.parallel import Answers, detecting
from iowatch.findings.again import nights_repeated, without_first_runs
from iowatch.metrics import HEADLINES, METRICS
from iowatch.store import DetectionRow, History, SeriesFilter, SeriesPoints, SeriesRow

_CHUNK = 50
# Chunks that are read, but not yet judged.
_AHEAD = 4
# Of what is remembered of a series; another number makes every memory stale.
_FORMAT = 2


@dataclass(frozen=True)
class Step:
    """A change of one series: times in epoch seconds, levels in the metric's unit.

    Attributes:
        last_before, first_after: the runs on both sides of the step.
        confidence: of the detector, 0 to 1.
        suspected: the newest nights look different, but are too few to say.
    """

    last_before: int
    first_after: int
    ratio: float
    before: float
    after: float
    confidence: float
    suspected: bool


def headline_series(history: History, system: str) -> list[SeriesRow]:
    """One series a case, partition and stack of the system: that of the headline metric."""
    return headlines(history.series(SeriesFilter(system=system)))


def headlines(rows: Iterable[SeriesRow]) -> list[SeriesRow]:
    """Of series of one system those that are watched; turns of fair runs never are."""
    chosen: dict[tuple[str, str, str], SeriesRow] = {}
    for row in rows:
        key = (row.partition, row.stack, row.case.key)
        if row.metric in HEADLINES and row.n and not row.case.parameters.get("fair"):
            known = chosen.get(key)
            if known is None or HEADLINES.index(row.metric) < HEADLINES.index(known.metric):
                chosen[key] = row
    return list(chosen.values())


def nightly(row: SeriesRow, points: SeriesPoints) -> NDArray[np.float64]:
    """The value of each night that is watched: the best of its samples (DESIGN.md, "summary"), shape (n,)."""
    return points.max if METRICS[row.metric].direction == "higher" else points.min


def steps(
    history: History, rows: Sequence[SeriesRow], level_starts: Mapping[int, int]
) -> dict[int, tuple[Step, ...]]:
    """Steps of each series; only series with new points, or another accepted level, are looked at again.

    Args:
        level_starts: epoch seconds by series id, from which on the level is the accepted one.
    """
    known = history.detections([row.id for row in rows])
    found: dict[int, tuple[Step, ...]] = {}
    stale = []
    for row in rows:
        memory = known.get(row.id)
        state = _state(row, level_starts)
        if memory is not None and (memory.points, memory.last_time, memory.version) == state:
            found[row.id] = tuple(Step(**step) for step in memory.document["steps"])
        else:
            stale.append(row)
    return found | _detect(history, stale, level_starts)


def _state(row: SeriesRow, level_starts: Mapping[int, int]) -> tuple[int, int, str]:
    return row.n, row.last or 0, f"{VERSION}/{_FORMAT} since {level_starts.get(row.id, 0)}"


def _detect(
    history: History, rows: Sequence[SeriesRow], level_starts: Mapping[int, int]
) -> dict[int, tuple[Step, ...]]:
    """Some series at a time: memory stays small, and a killed night keeps its work. What is read next is read
    while the last ones are judged."""
    found: dict[int, tuple[Step, ...]] = {}
    asked: deque[tuple[Sequence[SeriesRow], Answers]] = deque()
    repeated = nights_repeated(history, rows[0].system) if rows else ()
    with detecting(sum(row.n for row in rows)) as ask:
        for start in range(0, len(rows), _CHUNK):
            some = rows[start : start + _CHUNK]
            points = without_first_runs(history.points([row.id for row in some]), repeated)
            nights = [(points[row.id].time, nightly(row, points[row.id])) for row in some]
            asked.append((some, ask(nights, [level_starts.get(row.id) for row in some])))
            if len(asked) > _AHEAD:
                found |= _remember(history, *asked.popleft(), level_starts)
        while asked:
            found |= _remember(history, *asked.popleft(), level_starts)
    return found


def _remember(
    history: History, rows: Sequence[SeriesRow], answers: Answers, level_starts: Mapping[int, int]
) -> dict[int, tuple[Step, ...]]:
    said = answers()
    found = {row.id: _steps(detection) for row, detection in zip(rows, said, strict=True)}
    memory = [
        DetectionRow(row.id, *_state(row, level_starts), _document(found[row.id], detection))
        for row, detection in zip(rows, said, strict=True)
    ]
    history.save_detections(memory)
    return found


def _document(steps: Sequence[Step], detection: Detection) -> dict[str, Any]:
    """What is remembered: the steps, and what pages draw besides; times in epoch seconds."""

    def span(one: Level | Transient | Drift) -> dict[str, int]:
        return {"first": int(one.time), "last": int(one.last_time)}

    return {
        "steps": [asdict(step) for step in steps],
        "levels": [{**span(one), "value": float(one.value)} for one in detection.levels],
        "transients": [
            {**span(one), "ratio": float(one.ratio), "nights": int(one.nights)} for one in detection.transients
        ],
        "drifts": [{**span(one), "ratio": float(one.ratio)} for one in detection.drifts],
    }


def _steps(detection: Detection) -> tuple[Step, ...]:
    told = [(change, False) for change in detection.changes] + [(c, True) for c in detection.suspected]
    return tuple(
        Step(
            last_before=int(change.last_before),
            first_after=int(change.time),
            ratio=float(change.ratio),
            before=float(change.before),
            after=float(change.after),
            confidence=float(change.confidence),
            suspected=suspected,
        )
        for change, suspected in told
    )
