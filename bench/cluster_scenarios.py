"""What each morning says after an event on a file system of several servers: simulated nights on a cluster in a box.

    python bench/cluster_scenarios.py DIRECTORY [--baselines 1 2 3] [--nights 15] [--mornings 4] [--only NAME …]
    python bench/cluster_scenarios.py DIRECTORY --table

For each baseline a new cluster (tests/cluster) runs `--nights` sessions dated a day apart. Then, each time from a copy
of that history, an event is there and `--mornings` more nights run; at last as many quiet nights as the baseline has.
Needs root, and what `make test-cluster` needs. mdtest is measured, too, where it is on PATH.

DIRECTORY gets one line per night, `nights.jsonl` (exit code and verdict), and the histories. `--table` prints them for
docs/cluster.md: how many series an event made slower (median of its mornings / median of the baseline, best value per
night), and what each morning said.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.cluster.events import SCENARIOS, Scenario, settle
from tests.cluster.machines import Box
from tests.cluster.site import SYSTEM, ClusterSite, make_site, running_cluster

from iowatch.findings import headline_series, load_observations
from iowatch.store import History

_FIRST_NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
_CONTROL = "no event"
# Names of files decide on which server they are: a file per rank is on all servers, whatever its name.
_BENCHIO = """
format: 1
summary: Files of a rank and shared files on four nodes
reference: none
time_limit: 120
defaults: {op: both, repeat: 3, nodes: 4, ranks: 8}
matrix:
  - {api: posix, file: per-process, pattern: disjoint, transfer: [1m, 64k], block: 2m}
  - {api: mpiio, file: shared, local: 64x64x32}
"""
_MDTEST = """
format: 1
summary: Small files of two nodes
reference: none
time_limit: 120
defaults: {files: 100, ranks: 4, nodes: 2, repeat: 2}
matrix:
  - {directories: separate}
"""
_PARTITIONS = ({"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"},)
_LOSS = 0.7


@dataclass
class Night:
    """A night of one scenario.

    Attributes:
        morning: 1 is the first one after the event; of the baseline the night.
    """

    baseline: int
    scenario: str
    morning: int
    exit_code: int
    seconds: float
    verdict: Mapping[str, Any]


def _run_night(site: ClusterSite, baseline: int, scenario: str, morning: int, date: datetime) -> Night:
    began = time.monotonic()
    code, verdict = site.run(now=date.isoformat(), seconds=900)
    seconds = round(time.monotonic() - began, 1)
    night = Night(baseline, scenario, morning, code, seconds, verdict)
    said = "; ".join([*verdict["changes"], *verdict["suspected"]])
    print(f"{baseline} {scenario} {morning}: exit code {code}, {seconds} s, {verdict['status']}. {said}", flush=True)
    return night


def _restore(site: ClusterSite, kept: Path) -> None:
    """Begin with a copy of a history, under the same path."""
    shutil.rmtree(site.var)
    shutil.copytree(kept, site.var, symlinks=True)


def _run_baseline(box: Box, number: int, arguments: argparse.Namespace, output: Path) -> None:
    suites = {"benchio": _BENCHIO}
    if shutil.which("mdtest"):
        suites["mdtest"] = _MDTEST
    site = make_site(box, suites, partitions=_PARTITIONS)
    date = _FIRST_NIGHT
    for night in range(1, arguments.nights + 1):
        _keep(output, _run_night(site, number, "baseline", night, date))
        date += timedelta(days=1)
    kept = box.directory / "var-of-the-baseline"
    shutil.copytree(site.var, kept, symlinks=True)
    for scenario in SCENARIOS:
        if arguments.only and scenario.name not in arguments.only:
            continue
        _restore(site, kept)
        try:
            _run_scenario(site, number, scenario, arguments.mornings, date, output)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            # The other scenarios do not depend on it; each event ends whatever happens.
            print(f"{number} {scenario.name}: {error}", flush=True)
    if arguments.only:
        return
    _restore(site, kept)
    for morning in range(1, arguments.nights + 1):
        _keep(output, _run_night(site, number, _CONTROL, morning, date))
        date += timedelta(days=1)
    _keep_history(site, output, number, _CONTROL)


def _run_scenario(
    site: ClusterSite, number: int, scenario: Scenario, mornings: int, date: datetime, output: Path
) -> None:
    with scenario.event(site.box):
        settle(site.box)
        for morning in range(1, mornings + 1):
            night = _run_night(site, number, scenario.name, morning, date + timedelta(days=morning - 1))
            _keep(output, night)
    settle(site.box)
    _keep_history(site, output, number, scenario.name)


@dataclass(frozen=True)
class Effect:
    """What an event did to the series of a history.

    Attributes:
        lowest: smallest ratio of performance, median of the mornings / median of the baseline; None without a result.
        lost: number of series below `_LOSS`.
        missing: number of series without any result in the mornings.
    """

    lowest: float | None
    lost: int
    missing: int


def _effect(history_file: Path, first_morning: datetime) -> Effect:
    """Return the truth that the mornings are compared with."""
    ratios: list[float] = []
    missing = 0
    begin = int(first_morning.timestamp())
    with History.existing(f"sqlite:///{history_file}") as history:
        series = headline_series(history, SYSTEM)
        for row in series:
            points = load_observations(history, [row])[row.id]
            is_after = points.time >= begin
            if not is_after.any():
                missing += 1
                continue
            # Metrics of headlines are rates: the largest value is the best.
            ratios.append(float(np.median(points.max[is_after]) / np.median(points.max[~is_after])))
    return Effect(min(ratios, default=None), sum(ratio < _LOSS for ratio in ratios), missing)


def _print_table(directory: Path) -> None:
    nights: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in (directory / "nights.jsonl").read_text().splitlines():
        night = json.loads(line)
        nights[night["scenario"], night["baseline"]].append(night)
    for (scenario, baseline), mornings in nights.items():
        file = directory / f"{baseline} {scenario}.db"
        if not file.exists():
            continue
        effect = _effect(file, _first_morning(nights["baseline", baseline]))
        print(f"\n{scenario}, baseline {baseline}: {effect}")
        for night in mornings:
            verdict = night["verdict"]
            findings = [*verdict["changes"], *verdict["suspected"]]
            missing = len(verdict["failed"]) + len(verdict["missing"])
            print(f"  morning {night['morning']}: exit code {night['exit_code']}, {missing} missing; {findings}")


def _first_morning(baseline: list[dict[str, Any]]) -> datetime:
    return _FIRST_NIGHT + timedelta(days=len(baseline))


def _keep(output: Path, night: Night) -> None:
    with (output / "nights.jsonl").open("a") as file:
        file.write(json.dumps(vars(night)) + "\n")


def _keep_history(site: ClusterSite, output: Path, number: int, name: str) -> None:
    shutil.copy(site.var / "iowatch.db", output / f"{number} {name}.db")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--baselines", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--nights", type=int, default=15)
    parser.add_argument("--mornings", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        _print_table(arguments.directory)
        return
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for number in arguments.baselines:
        directory = Path(tempfile.mkdtemp(prefix="iowatch-box-", dir="/var/tmp"))
        directory.chmod(0o755)
        try:
            with running_cluster(directory) as box:
                _run_baseline(box, number, arguments, arguments.directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
