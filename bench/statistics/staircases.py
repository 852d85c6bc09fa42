"""Score the detector on staircases, and on dates beside bursts of outliers.

    python bench/statistics/staircases.py simulated [--series 40]
    python bench/statistics/staircases.py histories FILES… [--list]

A staircase is a level of 4 to 13 observations between two others. FILES are CSV with the columns series, time and value
(`public_histories.py`).

The true steps of a history are not known. They are compared with those of an exact segmentation with a cost per
observation of at most nine squared noises (Fearnhead and Rigaill 2019, biweight loss): outliers have no more weight
than that, and a step costs so much that a level needs four observations. docs/detection-scores.md, Staircases, has the
figures.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics import detect_many

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.statistics.series import FAMILIES

Floats = NDArray[np.float64]

DAY_S = 86_400.0
AROUND = 40
"""Observations before and after the middle level of a simulated staircase."""
MIDDLE_LENGTHS = (4, 5, 6, 7, 8, 10, 13)
NOISES = (0.01, 0.03, 0.05)
SIZES = (4.0, 6.0, 8.0, 12.0, 20.0, 40.0)
"""Distances of the middle level from both others, in units of the noise."""
SHAPES = {"same direction": (1.0, 2.0), "partly back": (2.0, 1.0)}
"""Middle and last level in units of the smallest distance; the first level is 0."""

CLEAR_STEP = 6.0
"""Levels differ clearly by this many noises (issue 66, Staircases)."""
STEP_COST, MOST_COST = 30.0, 9.0
"""Of the exact segmentation, in squared noises: of a step, and of an observation at most."""
FLOOR = 0.006
"""Smallest noise (ln) of a history, as in the detector."""
QUIET = 0.02
"""Largest noise (ln) of a quiet history."""
NEAR = 14
"""Observations on each side of a step in which its obvious place is looked for, and its detected date."""


@dataclass(frozen=True, slots=True)
class DetectedSteps:
    """First observations of new levels, and their directions (1 or -1)."""

    dates: list[int]
    signs: list[int]

    def dates_of(self, sign: int) -> list[int]:
        """First observations of the new levels in one direction."""
        return [date for date, direction in zip(self.dates, self.signs, strict=True) if direction == sign]

    def has(self, date: int, sign: int, tolerance: int) -> bool:
        """Whether a step in this direction is dated at most `tolerance` observations away."""
        return any(abs(detected - date) <= tolerance for detected in self.dates_of(sign))


def detected_steps(series: list[Floats]) -> list[DetectedSteps]:
    """Confirmed changes of series of ln values with one observation per day."""
    columns = [(DAY_S * np.arange(len(logs)), np.exp(logs)) for logs in series]
    answers: list[DetectedSteps] = []
    for detection in detect_many(columns):
        dates = [change.index for change in detection.changes]
        signs = [1 if change.direction == "up" else -1 for change in detection.changes]
        answers.append(DetectedSteps(dates, signs))
    return answers


def share(hits: int, total: int) -> str:
    return f"{hits / total:.2f}" if total else "-"


# Simulated series


def staircase(rng: np.random.Generator, shape: str, length: int, noise: float, size: float) -> tuple[Floats, list[int]]:
    """Ln values of a staircase, and the directions of its two steps."""
    middle, last = SHAPES[shape]
    side = int(rng.choice([-1, 1]))
    levels = np.repeat([0.0, side * middle, side * last], [AROUND, length, AROUND])
    logs = noise * (size * levels + rng.normal(size=len(levels)))
    return logs, [side, side if last > middle else -side]


def print_staircases(series: int) -> None:
    """Share of staircases of which both steps are found, within an observation."""
    for shape in SHAPES:
        print(f"{shape}: both steps found within one observation, by length of the middle level and size / noise")
        print("length " + "".join(f"{size:7g}" for size in SIZES))
        for length in MIDDLE_LENGTHS:
            row = [found_staircases(shape, length, size, series) for size in SIZES]
            print(f"{length:6} " + "".join(f"{hits:>7}" for hits in row))


def found_staircases(shape: str, length: int, size: float, series: int) -> str:
    """Share found of staircases of all noises."""
    rng = np.random.default_rng([66, length, int(size), list(SHAPES).index(shape)])
    drawn = []
    for noise in NOISES:
        drawn += [staircase(rng, shape, length, noise, size) for _ in range(series)]
    hits = 0
    for (_, signs), steps in zip(drawn, detected_steps([logs for logs, _ in drawn]), strict=True):
        is_first_found = steps.has(AROUND, signs[0], 1)
        is_second_found = steps.has(AROUND + length, signs[1], 1)
        hits += is_first_found and is_second_found
    return share(hits, len(drawn))


def print_short_ends(series: int) -> None:
    """Share found of steps to the double or half after a first, or before a last, level of few observations."""
    print("a step to x2 or x0.5 found at its date, by noise:")
    for observations in (3, 4, 5, 7, 10):
        for name, lengths in (("first", (observations, AROUND)), ("last", (AROUND, observations))):
            row = [f"{noise:.0%} {found_doublings(lengths, noise, series)}" for noise in NOISES]
            print(f"  {name} level of {observations:2} observations: " + ", ".join(row))


def found_doublings(lengths: tuple[int, int], noise: float, series: int) -> str:
    """Share found of steps to the double or half between levels of these lengths."""
    rng = np.random.default_rng([67, *lengths, round(1000 * noise)])
    drawn = []
    signs = []
    for _ in range(series):
        signs.append(int(rng.choice([-1, 1])))
        levels = np.repeat([0.0, signs[-1] * np.log(2)], lengths)
        drawn.append(levels + noise * rng.normal(size=len(levels)))
    hits = 0
    for steps, sign in zip(detected_steps(drawn), signs, strict=True):
        hits += steps.has(lengths[0], sign, 0)
    return share(hits, series)


def print_controls(series: int) -> None:
    """False changes where there is no step, one step, or a departure that is no level."""
    print("controls: false changes per 100 series")
    rng = np.random.default_rng(68)
    for family, draw in FAMILIES.items():
        flat = [draw(rng, 2 * AROUND + 10) for _ in range(10 * series)]
        print(f"  flat, {family}: {per_hundred(detected_steps(flat), [None] * len(flat)):.1f}")
    for name, draw_control in CONTROLS.items():
        drawn = []
        dates: list[int | None] = []
        for size in SIZES:
            for noise in NOISES:
                for _ in range(series):
                    logs, date = draw_control(rng, size)
                    drawn.append(noise * logs)
                    dates.append(date)
        print(f"  {name}: {per_hundred(detected_steps(drawn), dates):.1f}")


def per_hundred(answers: list[DetectedSteps], dates: list[int | None]) -> float:
    """Changes per 100 series, without one within five observations of the true date of each series that has one."""
    false = 0
    for steps, date in zip(answers, dates, strict=True):
        near = 0
        if date is not None:
            near = sum(abs(detected - date) <= 5 for detected in steps.dates)
        false += len(steps.dates) - min(near, 1)
    return 100 * false / len(answers)


def single_step(rng: np.random.Generator, size: float) -> tuple[Floats, int | None]:
    """One step, in units of the noise."""
    logs = rng.normal(size=2 * AROUND)
    logs[AROUND:] += size * rng.choice([-1, 1])
    return logs, AROUND


def spell(rng: np.random.Generator, size: float) -> tuple[Floats, int | None]:
    """A level of 5 to 13 observations, after which the series is back."""
    logs = rng.normal(size=2 * AROUND)
    length = int(rng.integers(5, 14))
    logs[AROUND : AROUND + length] += size * rng.choice([-1, 1])
    return logs, None


def scattered_burst(rng: np.random.Generator, size: float) -> tuple[Floats, int | None]:
    """5 to 13 outliers of different depths right before a step."""
    logs, _ = single_step(rng, size)
    length = int(rng.integers(5, 14))
    logs[AROUND - length : AROUND] -= 3 * size * rng.uniform(0.2, 1.5, size=length)
    return logs, AROUND


def gradual_step(rng: np.random.Generator, size: float) -> tuple[Floats, int | None]:
    """A step that takes 5 to 13 observations, each at another height."""
    logs, _ = single_step(rng, 0)
    length = int(rng.integers(5, 14))
    ramp = np.arange(1, length + 1) / (length + 1)
    heights = np.concatenate([np.zeros(AROUND), ramp, np.ones(AROUND - length)])
    return logs + 2 * size * heights, AROUND + length // 2


CONTROLS = {
    "one step": single_step,
    "a level of 5 to 13 observations and back": spell,
    "scattered outliers before a step": scattered_burst,
    "a slope of 5 to 13 observations between two levels": gradual_step,
}


@dataclass(slots=True)
class DateScores:
    """Number of dated steps by what is right about their dates.

    Attributes:
        steps: steps with an obvious place that are found at most `NEAR` observations away.
        exact, near: … dated there, and at most one observation away.
        old_in_new: … dated so early that the last run of the old level is in the new one.
        missed: steps with an obvious place that are not found.
    """

    steps: int = 0
    exact: int = 0
    near: int = 0
    old_in_new: int = 0
    missed: int = 0

    def add(self, dates: list[int], first: int, last: int) -> None:
        """Count a step whose obvious place is `first` … `last`, given the detected dates in its direction."""
        distances = [max(first - date, date - last, 0) for date in dates]
        if not distances or min(distances) > NEAR:
            self.missed += 1
            return
        nearest = dates[int(np.argmin(distances))]
        self.steps += 1
        self.exact += min(distances) == 0
        self.near += min(distances) <= 1
        self.old_in_new += nearest < first

    def __str__(self) -> str:
        shares = f"exact {share(self.exact, self.steps)}, within one {share(self.near, self.steps)}"
        return f"{self.steps} found: {shares}; old run in the new level {self.old_in_new}; {self.missed} not found"


def print_burst_dates(series: int) -> None:
    """Dates of steps of 10 to 40 noises in quiet series with a burst of outliers near them."""
    print("dates of steps in quiet series (noise 1 %) beside a burst of 1 to 5 outliers:")
    for distance in range(5):
        for side in ("before", "after"):
            rng = np.random.default_rng([69, distance, side == "after"])
            scores = DateScores()
            drawn = [step_beside_burst(rng, distance, side) for _ in range(5 * series)]
            for (_, sign, first, last), steps in zip(drawn, detected_steps([logs for logs, *_ in drawn]), strict=True):
                dates = steps.dates_of(sign)
                scores.add(dates, first, last)
            print(f"  {distance} usual observations between, burst {side} the step: {scores}")


def step_beside_burst(rng: np.random.Generator, distance: int, side: str) -> tuple[Floats, int, int, int]:
    """Ln values, direction of the step, and the first and last date that its obvious place allows."""
    sign = int(rng.choice([-1, 1]))
    logs = rng.normal(size=2 * AROUND)
    logs[AROUND:] += sign * rng.uniform(10, 40)
    length = int(rng.integers(1, 6))
    # Bursts have one side, mostly below, and each outlier its own depth.
    depths = rng.choice([-1, 1], p=[0.8, 0.2]) * rng.uniform(6, 60, size=length)
    if side == "before":
        burst = slice(AROUND - distance - length, AROUND - distance)
    else:
        burst = slice(AROUND + distance, AROUND + distance + length)
    logs[burst] += depths
    # Outliers right at the step are of neither level.
    first = AROUND - length if side == "before" and distance == 0 else AROUND
    last = AROUND + length if side == "after" and distance == 0 else AROUND
    return 0.01 * logs, sign, first, last


# Histories


def read_histories(files: list[Path]) -> dict[str, Floats]:
    """Ln of the values of each series in time order; values of the same time are one observation, their median."""
    values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for file in files:
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                values[row["series"]][float(row["time"])].append(float(row["value"]))
    histories: dict[str, Floats] = {}
    for name, samples in values.items():
        medians = [float(np.median(samples[time])) for time in sorted(samples)]
        histories[name] = np.log(medians)
    return histories


@dataclass(frozen=True, slots=True)
class Level:
    """Observations first … end-1 at a level (ln)."""

    first: int
    end: int
    level: float

    @property
    def length(self) -> int:
        return self.end - self.first


def usual_noise(logs: Floats) -> float:
    """Robust standard deviation of the noise (ln) from consecutive differences."""
    return max(1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2), FLOOR)


def exact_levels(logs: Floats, noise: float) -> list[Level]:
    """The levels of lowest cost, over levels half a noise apart."""
    grid = np.unique(np.round(logs / (0.5 * noise))) * 0.5 * noise
    costs = np.minimum(((logs[:, None] - grid) / noise) ** 2, MOST_COST)
    # Lowest cost of all levels that end with each candidate, and the candidate before each step.
    total = costs[0].copy()
    came_from = np.tile(np.arange(len(grid)), (len(logs), 1))
    for now in range(1, len(logs)):
        best = int(total.argmin())
        is_step = total > total[best] + STEP_COST
        came_from[now, is_step] = best
        total = np.where(is_step, total[best] + STEP_COST, total) + costs[now]
    # Back from the last observation.
    path = np.empty(len(logs), dtype=int)
    path[-1] = total.argmin()
    for now in range(len(logs) - 1, 0, -1):
        path[now - 1] = came_from[now, path[now]]
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(logs)]
    return [Level(first, end, float(np.median(logs[first:end]))) for first, end in pairwise(borders)]


def scatter_of(logs: Floats, levels: list[Level]) -> float:
    """Robust standard deviation (ln) around levels."""
    residuals = [logs[level.first : level.end] - level.level for level in levels]
    return 1.4826 * float(np.median(np.abs(np.concatenate(residuals))))


def staircases_of(logs: Floats, levels: list[Level], noise: float) -> Iterator[tuple[Level, Level, Level]]:
    """Levels of 5 to 13 observations between two others, all three clearly different."""
    for before, middle, after in zip(levels, levels[1:], levels[2:], strict=False):
        clear = CLEAR_STEP * max(noise, scatter_of(logs, [before, middle, after]))
        distances = np.abs(np.subtract.outer(*2 * [[before.level, middle.level, after.level]]))
        is_clear = bool((distances[np.triu_indices(3, 1)] > clear).all())
        if 5 <= middle.length <= 13 and min(before.length, after.length) >= 5 and is_clear:
            yield before, middle, after


def obvious_place(logs: Floats, before: Level, after: Level, noise: float) -> tuple[int, int] | None:
    """First and last date between the last usual observation of the old and the first one of the new level.

    None if the two levels alternate near the step, if one has less than two usual observations there, or if they do not
    differ clearly.
    """
    if abs(after.level - before.level) <= CLEAR_STEP * max(noise, scatter_of(logs, [before, after])):
        return None
    start, end = max(before.first, before.end - NEAR), min(after.end, after.first + NEAR)
    near = logs[start:end]
    old = start + np.flatnonzero(np.abs(near - before.level) < 3 * noise)
    new = start + np.flatnonzero(np.abs(near - after.level) < 3 * noise)
    if min(len(old), len(new)) < 2 or new[0] < old[-1]:
        return None
    return int(old[-1]) + 1, int(new[0])


@dataclass(slots=True)
class HistoryScores:
    """What of the exact levels of histories the detector finds."""

    staircases: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    quiet: DateScores = field(default_factory=DateScores)
    noisy: DateScores = field(default_factory=DateScores)
    changes: int = 0


def score_history(name: str, logs: Floats, steps: DetectedSteps, scores: HistoryScores) -> list[str]:
    """Add a history to the scores; return a line for each staircase that is merged and each date that is off."""
    lines = []
    noise = usual_noise(logs)
    levels = exact_levels(logs, noise)
    scores.changes += len(steps.dates)
    for before, middle, after in staircases_of(logs, levels, noise):
        signs = [1 if middle.level > before.level else -1, 1 if after.level > middle.level else -1]
        shape = "same direction" if signs[0] == signs[1] else "partly back"
        is_found = steps.has(middle.first, signs[0], 2) and steps.has(middle.end, signs[1], 2)
        scores.staircases[shape] += 1
        scores.hits[shape] += is_found
        if not is_found:
            near = [date for date in steps.dates if middle.first - NEAR <= date <= middle.end + NEAR]
            heights = [round(level.level / noise - before.level / noise) for level in (middle, after)]
            lines.append(f"merged, {shape}: {name} {middle.first}..{middle.end} heights {heights} dated {near}")
    for before, after in pairwise(levels):
        interval = obvious_place(logs, before, after, noise)
        if interval is None or min(before.length, after.length) < 5:
            continue
        sign = 1 if after.level > before.level else -1
        dates = steps.dates_of(sign)
        date_scores = scores.quiet if noise <= QUIET else scores.noisy
        near_before = date_scores.near
        date_scores.add(dates, *interval)
        if date_scores.near == near_before:
            near = [date for date in dates if interval[0] - NEAR <= date <= interval[1] + NEAR]
            lines.append(f"date: {name} noise {noise:.3f}, interval {interval[0]}..{interval[1]}, dated {near}")
    return lines


def print_histories(files: list[Path], is_listed: bool) -> None:
    """What is found of staircases and obvious dates in histories of at least 20 observations."""
    histories = {name: logs for name, logs in read_histories(files).items() if len(logs) >= 20}
    scores = HistoryScores()
    answers = detected_steps(list(histories.values()))
    for (name, logs), steps in zip(histories.items(), answers, strict=True):
        lines = score_history(name, logs, steps, scores)
        if is_listed and lines:
            print(*lines, sep="\n")
    observations = sum(map(len, histories.values()))
    print(f"{len(histories)} series, {observations} observations: {scores.changes} changes")
    for shape in SHAPES:
        print(f"staircases, {shape}: both steps of {scores.hits[shape]} of {scores.staircases[shape]}")
    print(f"dates in quiet series (noise up to {QUIET:.0%}): {scores.quiet}")
    print(f"dates in other series: {scores.noisy}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="mode", required=True)
    simulated = commands.add_parser("simulated")
    simulated.add_argument("--series", type=int, default=40)
    histories = commands.add_parser("histories")
    histories.add_argument("files", nargs="+", type=Path)
    histories.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.mode == "histories":
        print_histories(options.files, options.list)
        return
    print_staircases(options.series)
    print_short_ends(options.series)
    print_controls(options.series)
    print_burst_dates(options.series)


if __name__ == "__main__":
    main()
