"""How fast references load, and how often observations are outside the bounds that `reference propose` gives.

    python bench/references.py [--data FOLDER]

FOLDER has TOKIO's `edison-summaries_*.csv.gz`; without it only synthetic observations are used.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from iowatch.benchmarks.tables import read_table
from iowatch.reference import bandwidth, published
from iowatch.reference.propose import compute_bounds

DATA = Path(__file__).resolve().parents[1] / "reference" / "series" / "edison"
NIGHTS = (7, 14, 30, 60)
LATER = 14


def loading() -> None:
    """Times of the first and of later loads, in this process."""
    for turn in ("first", "second"):
        start = time.perf_counter()
        tables = published.load_all_tables()
        cells = sum(len(row) for table in tables for row in table.rows)
        spent = time.perf_counter() - start
        print(f"{turn} load of {len(tables)} tables, {cells} cells (aim: 0.3 s): {spent:.3f} s")
    start = time.perf_counter()
    rows = sum(len(published.table_measurements(t)) for t in tables if published.has_long_form(t))
    print(f"long form, {rows} measurements: {time.perf_counter() - start:.3f} s")
    for path in sorted(bandwidth.reference_file_path("x").parent.glob("*.yaml")):
        start = time.perf_counter()
        entries = len(bandwidth.load_references(path.stem).entries)
        print(f"references of {path.stem}, {entries} entries: {time.perf_counter() - start:.3f} s")


def edison(folder: Path) -> list[np.ndarray]:
    """Nightly bandwidths of each case on Edison, in time order."""
    series: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv.[gx]z")):
        for run in read_table(path, "tokio").runs:
            for result in run.output.results:
                name = f"{run.output.tool} {result.operation} {sorted(result.case.items())}"
                series[name].append((run.started_at, max(result.samples)))
    return [np.array([v for _, v in sorted(points)]) for points in series.values() if len(points) >= 100]


def quiet(count: int = 300) -> list[np.ndarray]:
    """Series of normal scatter, 5 %, on a logarithmic scale."""
    rng = np.random.default_rng(1)
    return [1000 * np.exp(rng.normal(0, 0.05, 200)) for _ in range(count)]


def outside(series: list[np.ndarray], nights: int) -> tuple[float, float, float]:
    """Shares of later observations below and above, and the median lower bound."""
    below = above = later = 0
    lows = []
    for values in series:
        for start in range(0, len(values) - nights - LATER, LATER):
            found = compute_bounds(list(values[start : start + nights]))
            relative = values[start + nights : start + nights + LATER] / found.value - 1
            below += int((relative < found.low).sum())
            above += int((relative > found.high).sum())
            later += LATER
            lows.append(found.low)
    return below / later, above / later, float(np.median(lows))


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    folder = parser.parse_args().data
    loading()
    kinds = {"normal scatter of 5 %": quiet()}
    if folder.is_dir():
        kinds["Edison, one run per session"] = edison(folder)
    for name, series in kinds.items():
        for nights in NIGHTS:
            below, above, low = outside(series, nights)
            shares = f"{below:.2%} below, {above:.2%} above, median lower bound {low:.0%}"
            print(f"{name}, {nights:2d} observations: {shares}")


if __name__ == "__main__":
    main()
