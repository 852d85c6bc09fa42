"""Fit the facts of simulated steps to whether they are true, and score the detector on fresh series.

    python bench/detect_fit.py

Steps, outliers and bursts at known positions are put on two kinds of noise: the residuals of the real series in
tests/data/changes.tar.xz, recombined from random blocks, and six families of noise (tests/detect).
Every step that the detector considers becomes one row: its facts, and whether it is true (within 5 observations).
Prints the weights that predict this best (least log loss) next to those in use, and the scores of the detector
on fresh series of each kind.

The weights in use are others: bench/detect_search.py finds them by the scores of whole series. They differ,
even in sign, because steps are dropped one after the other, because the newest level is assessed after every
observation, and because faults of a real system are repaired, whereas steps of simulated series are undone by
chance only: a step that is soon undone weighs less in use than in this fit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from iowatch.statistics import DetectorSettings, detect_many
from iowatch.statistics.segments import SeriesFit, segment_many, step_penalty
from iowatch.statistics.steps import StepFeatures, date_step, refine_segments, step_features

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.datasets import unpacked
from tests.statistics.series import FAMILIES

DATA = unpacked("changes")

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]
RATIOS = [0.5, 0.7, 0.8, 0.9, 0.95, 1.1, 1.25, 2.0, 3.0, 50.0]
LENGTHS = [20, 40, 60, 120, 200, 300]
TOLERANCE = 5


@dataclass
class Known:
    """A series of ln values with the inserted changes, and what counts neither way.

    Attributes:
        spread: robust standard deviation of the noise.
        steps: first observation and ln ratio of each.
        bursts: first observation and end of each; an inserted one is the last.
        kind: what was inserted, in the terms of the scorer in changes.tar.xz.
    """

    logs: Floats
    spread: float
    steps: list[tuple[int, float]]
    bursts: list[tuple[int, int]]
    kind: str = "none"
    outliers: list[int] = field(default_factory=list)


def about_five(rng: np.random.Generator) -> int:
    """A length of 1 to 15 observations, five on average."""
    return min(int(rng.geometric(0.2)), 15)


def blocks(residuals: list[Floats], length: Callable[[np.random.Generator], int] = about_five) -> Noise:
    """Noise from random blocks of one of the residual series, each of a drawn length (observations)."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        source = residuals[rng.integers(len(residuals))]
        parts: list[Floats] = []
        while sum(map(len, parts)) < n:
            nights = length(rng)
            start = int(rng.integers(len(source) - nights + 1))
            parts.append(source[start : start + nights])
        return np.concatenate(parts)[:n]

    return draw


def residuals(width: int = 31) -> list[Floats]:
    """The real series less their running median."""
    half, found = width // 2, []
    for case in json.loads((DATA / "real_shown.json").read_text())["cases"]:
        logs = np.log([value for _, value in case["series"]])
        padded = np.pad(logs, half, mode="reflect")
        medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
        found.append(logs - medians)
    return found


def bare(noise: Floats) -> Known:
    """A series of noise only. Its own bursts count neither way.

    They are runs of four observations and more that are two robust standard deviations off, on one side.
    """
    deviation = noise - np.median(noise)
    spread = max(1.4826 * float(np.median(np.abs(deviation))), 1e-3)
    found = []
    for side in (-1, 1):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], side * deviation > 2 * spread, [0]]).astype(int)))
        found += [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a >= 4]
    return Known(noise.copy(), spread, [], found)


def draw(rng: np.random.Generator, noise: Noise) -> Known:
    """One series: half of them with a step, the others with several, none, outliers or a burst."""
    n = int(rng.choice(LENGTHS))
    known = bare(noise(rng, n))
    known.kind = str(rng.choice(["step", "multi", "none", "outlier", "temp"], p=[0.45, 0.1, 0.25, 0.1, 0.1]))
    if known.kind == "multi" and n >= 120:
        known.steps = [
            (n * k // 4 + int(rng.integers(-8, 9)), float(np.log(rng.choice(RATIOS[:-1])))) for k in (1, 2, 3)
        ]
    elif known.kind in ("step", "multi"):
        known.steps = [(int(rng.integers(6, n - 5)), float(np.log(rng.choice(RATIOS))))]
    elif known.kind == "outlier":
        known.outliers = rng.integers(1, n - 1, max(1, n // 60)).tolist()
        known.logs[known.outliers] += np.log(rng.choice([0.03, 0.1, 0.3, 3, 10]))
    elif known.kind == "temp":
        length = int(rng.integers(3, 11))
        start = int(rng.integers(4, n - length - 3))
        known.logs[start : start + length] += np.log(rng.choice([0.3, 0.5, 0.7, 0.8]))
        known.bursts.append((start, start + length))
    for start, size in known.steps:
        known.logs[start:] += size
    return known


def verdict(known: Known, index: int, rises: bool) -> bool | None:
    """Whether a reported step is true; None at the border of a burst."""
    if any(abs(index - start) <= TOLERANCE and (size > 0) == rises for start, size in known.steps):
        return True
    if any(abs(index - border) <= TOLERANCE for burst in known.bursts for border in burst):
        return None
    return False


def rows(series: list[Known], newest: bool) -> list[tuple[StepFeatures, bool]]:
    """Facts and truth of every step that is considered."""
    settings = replace(DetectorSettings(), min_confidence=0.0)
    found = []
    for known, (path, noise) in zip(series, segment_many([k.logs for k in series], settings), strict=True):
        work = SeriesFit(known.logs, noise, settings, np.zeros(len(known.logs), dtype=bool))
        segments, _ = refine_segments(work, work.segments(path), step_penalty(len(known.logs), settings))
        for i, (facts, young) in enumerate(step_features(work, segments)):
            before, after = segments[i : i + 2]
            truth = verdict(known, date_step(work, before, after), after.level > before.level)
            if facts and young == newest and truth is not None:
                found.append((facts, truth))
    return found


def fit(data: list[tuple[StepFeatures, bool]]) -> Floats:
    """Weights of a logistic regression with a faint pull towards zero."""
    facts = np.array([f for f, _ in data])
    scale = np.where(facts.std(axis=0) > 0, facts.std(axis=0), 1.0)
    sign = np.where([truth for _, truth in data], 1.0, -1.0)

    def loss(weights: Floats) -> float:
        return float(np.logaddexp(0, -sign * (facts / scale @ weights)).sum() + 0.02 * (weights[1:] ** 2).sum())

    return np.asarray(minimize(loss, np.zeros(facts.shape[1])).x / scale)


def young(rng: np.random.Generator, noise: Noise) -> Known:
    """A series as it is on one day: truncated 4 to 14 observations after a step, or anywhere without one."""
    n = int(rng.integers(30, 120))
    known = bare(noise(rng, n))
    if rng.random() < 0.5:
        known.steps = [(n - int(rng.integers(4, 15)), float(np.log(rng.choice(RATIOS))))]
        known.logs[known.steps[0][0] :] += known.steps[0][1]
    return known


def scores(series: list[Known]) -> str:
    """Precision, recall and F1 of the detector as it is."""
    days = 86400.0
    answers = detect_many([(days * np.arange(len(k.logs)), np.exp(k.logs)) for k in series])
    right = wrong = 0
    for known, answer in zip(series, answers, strict=True):
        verdicts = [verdict(known, c.index, c.direction == "up") for c in answer.changes]
        right += sum(v is True for v in verdicts)
        wrong += sum(v is False for v in verdicts)
    missed = sum(len(k.steps) for k in series) - right
    precision, recall = right / (right + wrong), right / (right + missed)
    f1 = 2 * precision * recall / (precision + recall)
    return f"precision {precision:.3f} recall {recall:.3f} F1 {f1:.3f}"


def main() -> None:
    rng = np.random.default_rng(1)
    real = blocks(residuals())
    noises = [real] * 6 + list(FAMILIES.values())
    settled = rows([draw(rng, noises[i % len(noises)]) for i in range(4000)], newest=False)
    newest = rows([young(rng, real) for _ in range(3000)], newest=True)
    print(
        "settled_weights", np.round(fit(settled), 2), f"({len(settled)} steps); now", DetectorSettings().settled_weights
    )
    print("newest_weights", np.round(fit(newest), 2), f"({len(newest)} steps); now", DetectorSettings().newest_weights)
    for name, noise in {"blocks of real noise": real, **FAMILIES}.items():
        print(f"{name:22}", scores([draw(rng, noise) for _ in range(400)]))


if __name__ == "__main__":
    main()
