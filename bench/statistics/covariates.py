"""Adjustment for covariates: scatter and injected changes on Edison's year, and time.

    python bench/statistics/covariates.py                    Edison
    python bench/statistics/covariates.py FILE SYSTEM        another table of TOKIO, for example of Cori; no time

Scatter: effects estimated in the first half of each series, applied in the second; all observations are compared with
the levels that the detector finds without covariates. "Own traffic allowed" also uses covariates that rise with the
speed of the run itself: they contain the run's own traffic, so they would remove changes, too. "Fitted in the second
half" is what no estimate from the past can exceed, and "from another month" the same with covariates moved by 30
observations, which is chance.
Injected changes: steps added to 120 observations, of blocks of 14 in random order of the second half, without its own
levels: changes that nobody recorded would count as false alarms. The covariates stay with their observations.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
# In the place of bench/, where files have the names of modules.
sys.path[0] = str(ROOT)

from tests.datasets import EDISON  # noqa: E402

from iowatch.findings.detections import load_covariates  # noqa: E402
from iowatch.findings.series import headline_series, headline_values, load_observations  # noqa: E402
from iowatch.session.imports import import_files  # noqa: E402
from iowatch.statistics import ChangePoint, CovariateTable, Detection, detect_many  # noqa: E402
from iowatch.statistics.covariates import fit_covariate  # noqa: E402
from iowatch.store import History  # noqa: E402

Floats = NDArray[np.float64]
DAY_S = 86400.0
FEWEST = 200
LENGTH, BLOCK, STEPS = 120, 14, (0.08, 0.12, 0.18, 0.25)


@dataclass(frozen=True)
class Nights:
    """One series: ln of the values, ln of the detected levels, inliers, and covariates; arrays of shape (n,)."""

    name: str
    logs: Floats
    levels: Floats
    good: NDArray[np.bool_]
    table: CovariateTable


def read_year(table: Path, system: str) -> list[Nights]:
    """The series of a table with at least 200 observations, as `iowatch import tokio` stores them."""
    with tempfile.TemporaryDirectory() as place, History.open(f"{place}/year.db") as history:
        import_files(history, "tokio", [table], system=system)
        rows = [row for row in headline_series(history, system) if row.n >= FEWEST]
        points = load_observations(history, rows)
        tables = load_covariates(history, rows, {number: one.run_id for number, one in points.items()})
        values = [headline_values(row, points[row.id]) for row in rows]
        times = [points[row.id].time for row in rows]
        found = detect_many(list(zip(times, values, strict=True)))
    series = zip(rows, values, found, tables, strict=True)
    return [_nights(row.case.canonical, np.log(v), one, table) for row, v, one, table in series if table]


def _nights(name: str, logs: Floats, found: Detection, table: CovariateTable) -> Nights:
    levels = np.zeros(len(logs))
    for level in found.levels:
        levels[level.index : level.last_index + 1] = math.log(level.value)
    return Nights(name, logs, levels, np.abs(logs - levels) < 4 * float(found.noise or 0), table)


Half = NDArray[np.bool_]


def scatter_ratio(one: Nights, fit: Callable[[Nights, Half], Floats | None]) -> float:
    """Scatter of the inliers of the second half, adjusted / not adjusted; 1 if the series is not adjusted.

    Args:
        fit: the joint effect of the covariates of each observation, shape (n,), from a series and its second half.
    """
    late = np.arange(len(one.logs)) >= len(one.logs) // 2
    load = fit(one, late)
    if load is None:
        return 1.0
    before, after = (_scatter(one, rest, late & one.good) for rest in (one.logs, one.logs - load))
    return after / before


def _scatter(one: Nights, logs: Floats, chosen: Half) -> float:
    """Standard deviation around the medians of the detected levels."""
    rest = np.concatenate(
        [logs[m] - np.median(logs[m]) for v in np.unique(one.levels) if (m := chosen & (one.levels == v)).any()]
    )
    return float(rest.std())


def from_past(one: Nights, late: Half) -> Floats | None:
    found = fit_covariate(one.logs[~late], replace(one.table, values=one.table.values[~late]))
    return None if found is None else found.load(one.table.values)


def with_own_traffic(one: Nights, late: Half) -> Floats | None:
    free = replace(one.table, signs=np.zeros_like(one.table.signs))
    return from_past(replace(one, table=free), late)


def from_same_half(one: Nights, late: Half, shift: int = 0) -> Floats | None:
    """Least squares on the inliers of the half on which it is assessed; own traffic is left out."""
    direction = {"read": "read", "write": "written"}[one.name.split('"operation":"')[1].split('"')[0]]
    own = (f"fs_ave_gibs_{direction}_per_sec", "fs_ave_oss_cpu")
    used = [i for i, name in enumerate(one.table.names) if name not in own]
    values = np.roll(np.nan_to_num(one.table.values[:, used]), shift, axis=0)
    chosen = late & one.good
    for level in np.unique(one.levels):
        part = one.levels == level
        values[part] -= np.median(values[part & chosen], axis=0) if (part & chosen).any() else 0.0
    effects = np.linalg.lstsq(values[chosen], (one.logs - one.levels)[chosen], rcond=None)[0]
    found: Floats = values @ effects
    return found


def from_another_month(one: Nights, late: Half) -> Floats | None:
    return from_same_half(one, late, shift=30)


def print_scatter(year: list[Nights]) -> None:
    print(f"scatter of the inliers of the second half, adjusted / not adjusted, {len(year)} series")
    for label, fit in {
        "estimated in the first half": from_past,
        "the same, own traffic allowed": with_own_traffic,
        "fitted in the second half": from_same_half,
        "the same, from another month": from_another_month,
    }.items():
        ratios = np.array([scatter_ratio(one, fit) for one in year])
        used = int((ratios != 1).sum())
        mean = float(np.exp(np.log(ratios).mean()))
        print(f"  {label:32} {mean:.3f}; best {ratios.min():.2f}, worst {ratios.max():.2f}; {used} series adjusted")


@dataclass(frozen=True)
class Trial:
    """A series with a step at `start` (0 for none) of `size` (natural logarithm)."""

    logs: Floats
    table: CovariateTable
    start: int
    size: float


def trials(year: list[Nights], rng: np.random.Generator, per_series: int) -> list[Trial]:
    """Every second one has a step."""
    found = []
    for one in year:
        values = _centre_by_level(one)
        late = np.arange(len(one.logs) // 2, len(one.logs) - BLOCK)
        for number in range(per_series):
            chosen = np.concatenate(
                [np.arange(first, first + BLOCK) for first in rng.choice(late, -(-LENGTH // BLOCK))]
            )
            logs = (one.logs - one.levels)[chosen[:LENGTH]]
            table = replace(one.table, values=values[chosen[:LENGTH]])
            start = int(rng.integers(10, LENGTH - 9)) if number % 2 else 0
            size = float(rng.choice(STEPS)) * float(rng.choice((-1, 1))) if start else 0.0
            logs[start:] += size
            found.append(Trial(logs, table, start, size))
    return found


def _centre_by_level(one: Nights) -> Floats:
    """The covariates without their medians at each level of the series, whose levels are removed, too."""
    values = one.table.values.copy()
    for level in np.unique(one.levels):
        part = values[one.levels == level]
        recorded = np.isfinite(part).any(axis=0)
        part[:, recorded] -= np.nanmedian(part[:, recorded], axis=0)
        values[one.levels == level] = part
    return values


def print_injected(year: list[Nights], per_series: int = 160) -> None:
    known = trials(year, np.random.default_rng(20261123), per_series)
    series = [(DAY_S * np.arange(LENGTH), np.exp(one.logs)) for one in known]
    plain = detect_many(series)
    adjusted = detect_many(series, covariates=[one.table for one in known])
    used = [i for i, one in enumerate(adjusted) if one.adjustment is not None]
    ratios = [math.log(float(adjusted[i].noise or 1) / float(plain[i].noise or 1)) for i in used] or [0.0]
    print(
        f"injected changes: {sum(one.start > 0 for one in known)} steps, {sum(one.start == 0 for one in known)} without"
    )
    print(
        f"  {len(used)} of {len(known)} series adjusted; their scatter {math.exp(np.mean(ratios)):.2f} of that before"
    )
    for label, chosen in (("all", range(len(known))), ("those that are adjusted", used)):
        if not chosen:
            continue
        scores = [_scores([known[i] for i in chosen], [one[i] for i in chosen]) for one in (plain, adjusted)]
        print(f"  {label}: share found with at most these false alarms per series-year, without and with adjustment")
        for budget in (0.35, 0.15, 0.06, 0.03):
            best = [max(hits for hits, false in one if false <= budget) for one in scores]
            print(f"    {budget:<4}  {best[0]:.3f}  {best[1]:.3f}")


def _scores(known: list[Trial], answers: list[Detection]) -> list[tuple[float, float]]:
    """Share of the steps found, and false alarms per series-year, for each smallest confidence."""
    years = len(known) * LENGTH / 365
    steps = sum(one.start > 0 for one in known)
    found = [(0.0, 0.0)]
    for least in np.arange(0.63, 1.0, 0.005):
        hits = false = 0
        for one, answer in zip(known, answers, strict=True):
            right = [_is_right(one, change) for change in answer.changes if change.confidence >= least]
            hits += any(right)
            false += len(right) - any(right)
        found.append((hits / steps, false / years))
    return found


def _is_right(one: Trial, change: ChangePoint) -> bool:
    return one.start > 0 and abs(change.index - one.start) <= 5 and (change.ratio > 1) == (one.size > 0)


def print_time(series: int = 1000, nights: int = 365, covariates: int = 8) -> None:
    """Processor time of detection without covariates, with unrelated ones, and with one that predicts every series."""
    rng = np.random.default_rng(7)
    times = DAY_S * np.arange(nights)
    values = rng.normal(0, 1, (nights, covariates))
    noise = 0.08 * rng.standard_t(3, (series, nights))
    table = CovariateTable(tuple(map(str, range(covariates))), values, np.zeros(covariates))
    kinds = {"none": (0.0, None), "unrelated": (0.0, [table] * series), "predicting": (0.1, [table] * series)}
    taken: dict[str, list[float]] = {label: [] for label in kinds}
    for _ in range(3):  # alternately, because the speed of a shared machine varies
        for label, (effect, tables) in kinds.items():
            data = [(times, np.exp(7 + one + effect * values[:, 0])) for one in noise]
            start = time.process_time()
            detect_many(data, covariates=tables)
            taken[label].append(time.process_time() - start)
    for label, seconds in taken.items():
        print(f"{series} series x {nights}, {covariates} covariates, {label:10}: {min(seconds):.2f} s")


if __name__ == "__main__":
    year = read_year(Path(sys.argv[1]), sys.argv[2]) if sys.argv[2:] else read_year(EDISON, "edison")
    print_scatter(year)
    print_injected(year)
    if not sys.argv[2:]:
        print_time()
