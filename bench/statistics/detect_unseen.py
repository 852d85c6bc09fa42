"""Score the detector on systems that it was not developed on.

    python bench/statistics/detect_unseen.py SUMMARIES… [--seeds 1 2 3]

SUMMARIES are tables of TOKIO, one per system (`summaries/` of NERSC/tokio-abcutils, for example of Cori and Mira); see
docs/detection-scores.md, Other machines. Of each seed and system the noise of all series of at least 100 observations
gives 220 series with known changes and 42 to be assessed at every prefix, in the manner of tests/data/changes.tar.xz:
kinds, lengths and ratios as there, three quarters of them from random blocks and a quarter from contiguous stretches.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from detect import load_scorer
from simulated_series import LENGTHS, RATIOS, Floats, Noise, PlantedSeries, bare, blocks, draw_nightly, truth

from iowatch.benchmarks.tables import read_table
from iowatch.statistics import detect_many

KINDS = {"step": 160, "none": 100, "multi": 40, "temp": 40, "outlier": 40, "stepout": 30, "drift": 30}
"""Number of series of each kind in the development set."""
FEWEST = 100
WINDOW = 61
"""Width of the running median that is subtracted, in observations."""
COLUMNS = {
    "f1": ("F1", ".4f"),
    "precision": ("prec", ".3f"),
    "recall_detectable": ("det", ".4f"),
    "fa_per_series_year": ("FA/y", ".3f"),
    "outlier_reported": ("outl", ".3f"),
    "temp_flagged": ("temp", ".3f"),
    "drift_reports_per_series": ("drift", ".2f"),
    "delay_median_snr2": ("delay", ".0f"),
    "never_snr2": ("never", ".3f"),
    "online_fa_per_series_year": ("online FA/y", ".2f"),
}
"""Figures of the scorer, with their names and forms in print."""


def line(figures: dict[str, Any]) -> str:
    """The figures with their names; `delay` (observations) and `never` are of steps of at least twice the scatter."""
    return " ".join(f"{title} {figures[name]:{form}}" for name, (title, form) in COLUMNS.items() if name in figures)


def residuals(table: Path) -> list[Floats]:
    """ln values less their running median, of each series."""
    series: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for run in read_table(table, "tokio").runs:
        for result in run.output.results:
            name = (run.output.tool, result.operation, *(result.case[k] for k in ("file", "file_system", "ranks")))
            series[name].append((float(run.started_at), result.samples[0]))
    logs = [np.log([value for _, value in sorted(points)]) for points in series.values() if len(points) >= FEWEST]
    windows = [np.lib.stride_tricks.sliding_window_view(np.pad(y, WINDOW // 2, mode="reflect"), WINDOW) for y in logs]
    return [y - np.median(window, axis=1) for y, window in zip(logs, windows, strict=True)]


def real_noise(sources: list[Floats]) -> Noise:
    """Three quarters random blocks of a series, a quarter contiguous stretches."""
    shuffled = blocks(sources)

    def draw(rng: np.random.Generator, n: int) -> Floats:
        long = [one for one in sources if len(one) >= n]
        if not long or rng.random() < 0.75:
            return shuffled(rng, n)
        source = long[rng.integers(len(long))]
        start = int(rng.integers(len(source) - n + 1))
        return source[start : start + n]

    return draw


def draw_series(rng: np.random.Generator, noise: Noise) -> PlantedSeries:
    """One series with known changes."""
    kind = str(rng.choice(list(KINDS), p=np.array(list(KINDS.values())) / sum(KINDS.values())))
    n = int(rng.choice(LENGTHS))
    n = max(n, {"multi": 120, "drift": 60}.get(kind, 0))
    known = replace(bare(noise(rng, n)), kind=kind)
    if kind in ("step", "stepout"):
        known.steps = [(int(rng.integers(6, n - 5)), float(np.log(rng.choice(RATIOS))))]
    elif kind == "multi":
        starts = [n * k // 4 + int(rng.integers(-8, 9)) for k in (1, 2, 3)]
        known.steps = [(start, float(np.log(rng.choice(RATIOS[:-1])))) for start in starts]
    elif kind == "temp":
        length = int(rng.integers(3, 11))
        start = int(rng.integers(4, n - length - 3))
        known.logs[start : start + length] += np.log(rng.choice([0.3, 0.5, 0.7, 0.8]))
        known.bursts.append((start, start + length))
    elif kind == "drift":
        known.logs += np.log(rng.choice([0.7, 0.75, 1.25, 1.4])) * np.arange(n) / n
    if kind in ("outlier", "stepout"):
        known.outliers = rng.integers(1, n - 1, max(1, n // 60)).tolist()
        known.logs[known.outliers] += np.log(rng.choice([0.03, 0.1, 0.3, 3, 10], size=len(known.outliers)))
    for start, size in known.steps:
        known.logs[start:] += size
    return known


def changes(logs: dict[str, Floats]) -> dict[str, list[dict[str, Any]]]:
    """What is detected, in the form of the scorer."""
    found = detect_many([(86400.0 * np.arange(len(y)), np.exp(y)) for y in logs.values()])
    return {
        name: [{"index": c.index, "direction": c.direction, "magnitude": c.ratio} for c in one.changes]
        for name, one in zip(logs, found, strict=True)
    }


def prefixes(nightly: dict[str, PlantedSeries]) -> Iterator[tuple[str, Floats]]:
    for name, known in nightly.items():
        first = known.steps[0][0] + 1 if known.steps else 20
        for end in range(first, len(known.logs) + 1):
            yield f"{name}@{end}", known.logs[:end]


def near_an_end(whole: dict[str, PlantedSeries], found: dict[str, list[dict[str, Any]]]) -> tuple[int, int]:
    """Steps with fewer than ten observations on the shorter side: found, all."""
    hits = []
    for name, known in whole.items():
        edges = [0, *(start for start, _ in known.steps), len(known.logs)]
        for before, (start, size), after in zip(edges, known.steps, edges[2:], strict=False):
            if min(start - before, after - start) < 10:
                side = "up" if size > 0 else "down"
                hits.append(any(abs(c["index"] - start) <= 5 and c["direction"] == side for c in found[name]))
    return sum(hits), len(hits)


def figures(scorer: Any, whole: dict[str, PlantedSeries], nightly: dict[str, PlantedSeries]) -> dict[str, Any]:
    found = changes({name: known.logs for name, known in whole.items()})
    scores: dict[str, Any] = scorer.score({name: truth(known) for name, known in whole.items()}, found)
    online = scorer.online({name: truth(known) for name, known in nightly.items()}, changes(dict(prefixes(nightly))))
    return {**scores, **online, "near_an_end": near_an_end(whole, found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summaries", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    given = parser.parse_args()
    noises = [real_noise(residuals(table)) for table in given.summaries]
    scorer = load_scorer()
    every_whole: dict[str, PlantedSeries] = {}
    every_nightly: dict[str, PlantedSeries] = {}
    for seed in given.seeds:
        whole: dict[str, PlantedSeries] = {}
        nightly: dict[str, PlantedSeries] = {}
        for system, noise in enumerate(noises):
            rng = np.random.default_rng([seed, system])
            whole |= {f"{seed}-{system}-{i}": draw_series(rng, noise) for i in range(220)}
            nightly |= {f"{seed}-{system}-{i}": draw_nightly(rng, noise) for i in range(42)}
        print(f"seed {seed}", line(figures(scorer, whole, nightly)), flush=True)
        every_whole |= whole
        every_nightly |= nightly
    pooled = figures(scorer, every_whole, every_nightly)
    found, steps = pooled["near_an_end"]
    print("all", line(pooled), f"recall {pooled['recall']:.4f}")
    print("F1 by length", {n: round(part["f1"] or 0.0, 3) for n, part in pooled["by_length"].items()})
    print(f"steps with fewer than 10 observations on the shorter side: {found} of {steps} found")


if __name__ == "__main__":
    main()
