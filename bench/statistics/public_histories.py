"""Write benchmark histories of public repositories as CSV with the columns series, time and value.

    python bench/statistics/public_histories.py github-pages CLONE > s3.csv
    python bench/statistics/public_histories.py warpx TABLE > summit.csv

CLONE is a clone of awslabs/mountpoint-s3 with the branch gh-pages, TABLE `logs_csv/summit.csv` of ECP-WarpX/perf_logs.
`staircases.py histories` and `iowatch detect --csv` read such files. github-action-benchmark keeps only the newest
runs in its `data.js`; the older ones are in earlier versions of that file.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

BRANCH = "gh-pages"
RUNS_PER_FILE = 30
"""Runs in one version of `data.js` of mountpoint-s3."""


@dataclass(frozen=True, slots=True, order=True)
class HistoryPoint:
    """A value of a series at a time (epoch seconds)."""

    series: str
    time: float
    value: float


def git_output(clone: Path, *arguments: str) -> str:
    """What git prints for a repository.

    Raises:
        subprocess.CalledProcessError: git fails.
    """
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def points_of_github_pages(clone: Path) -> Iterator[HistoryPoint]:
    """Points of all `data.js` of a branch, but of those about memory, in all versions."""
    files = git_output(clone, "ls-tree", "-r", "--name-only", BRANCH).splitlines()
    for file in files:
        if not file.endswith("/data.js") or "peak_mem" in file:
            continue
        commits = git_output(clone, "log", "--format=%H", BRANCH, "--", file).splitlines()
        # Each version has the runs of the versions before it, so a part of them has all runs.
        for commit in [*commits[:: RUNS_PER_FILE // 2], commits[-1]]:
            yield from points_of_data_file(file, git_output(clone, "show", f"{commit}:{file}"))


def points_of_data_file(file: str, text: str) -> Iterator[HistoryPoint]:
    """Points of one version of a `data.js`, which assigns a JSON document to a variable."""
    document = json.loads(text.partition("=")[2].strip().rstrip(";"))
    for title, runs in document["entries"].items():
        for run in runs:
            for bench in run["benches"]:
                name = f"{Path(file).parent} {title} {bench['name']}"
                yield HistoryPoint(name, run["date"] / 1000, float(bench["value"]))


def points_of_warpx(table: Path) -> Iterator[HistoryPoint]:
    """Seconds per step of each test and number of nodes; the repetitions of a session have the same time."""
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines):
            # Some rows have a test only.
            if not row["start_date"]:
                continue
            name = f"{row['input_file']} {row['n_node']} nodes"
            start = datetime.strptime(row["start_date"], "%Y_%m_%d_%H_%M_%S").replace(tzinfo=UTC)
            yield HistoryPoint(name, start.timestamp(), float(row["step_time"] or "nan"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=["github-pages", "warpx"])
    parser.add_argument("source", type=Path)
    options = parser.parse_args()
    if options.format == "warpx":
        # Repetitions may have equal values.
        points = sorted(points_of_warpx(options.source))
    else:
        # A run is in many versions.
        points = sorted(set(points_of_github_pages(options.source)))
    writer = csv.writer(sys.stdout)
    writer.writerow(["series", "time", "value"])
    for point in points:
        if point.value > 0:
            writer.writerow([point.series, point.time, point.value])


if __name__ == "__main__":
    main()
