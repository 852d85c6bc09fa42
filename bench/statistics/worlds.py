"""Findings in years of noise without any lasting change, morning by morning.

    python bench/statistics/worlds.py WORLD SEED [MORNINGS]
        WORLD    own, common, long or wander (see `World`)
        SEED     one, or several with commas between them
        MORNINGS of each seed, after 60 nights without an update [default: 365]
    python bench/statistics/worlds.py shifts [SEEDS]
        share of planted steps that a movement of the level explains (`statistics.moving_level`) [default: 20 seeds]

24 series of three file systems are measured every night (3 % of the results and 4 % of the nights are missing), and
every morning the findings are updated as `iowatch run` does it. A finding that needs action is a false one in own,
common and wander. In long the spells are true losses of 5 to 14 nights: what counts there is how they are closed, and
that nothing else needs action. A morning is red if a finding needs action (exit code 1 of `iowatch findings`).
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from iowatch.core import Output, Result  # noqa: E402
from iowatch.findings import Finding, update_findings  # noqa: E402
from iowatch.statistics.moving_level import assess_shift  # noqa: E402
from iowatch.store import History, RunRecord, SessionRecord, StackRecord  # noqa: E402

DAY_S = 86400
START = 1_735_689_600 + 2 * 3600
SYSTEM = "world"
SERIES = 24
# Nights before the first morning that counts.
BURN_IN = 60
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

World = Literal["own", "common", "long", "wander"]
"""What the noise of a file system consists of:

- own: noise of each series only: t distributed, wider below, with a lag-1 autocorrelation of 0.3 and outliers below.
- common: and what the series of a file system share: a factor of the night (autocorrelation 0.6, 4 %), spells in
  which a part of the series is at x0.3 to x0.9 (5 % of the nights begin one, 1.7 nights on average), and nights that
  are bad for the whole system (1 %).
- long: and 15 % of the spells last 5 to 14 nights.
- wander: as common, and the level of each file system moves slowly (autocorrelation 0.97, 3 %).
"""


@dataclass(frozen=True)
class Case:
    """What one series measures."""

    operation: str
    api: str
    file: str
    file_system: str
    ranks: int

    @property
    def parameters(self) -> dict[str, str | int]:
        """As in a result, without the operation."""
        return {"api": self.api, "file": self.file, "file_system": self.file_system, "ranks": self.ranks}


def make_cases() -> list[Case]:
    """The cases of the suite: ten of each of two file systems, four of a third one."""
    interfaces = (
        ("POSIX", "per-process"),
        ("MPIIO", "shared"),
        ("HDF5", "shared"),
        ("NETCDF4", "shared"),
        ("PNETCDF", "shared"),
    )
    cases: list[Case] = []
    for file_system, operation, (api, file) in product(("scratch1", "scratch2", "work"), ("write", "read"), interfaces):
        cases.append(Case(operation, api, file, file_system, 64))
    return cases[:SERIES]


def autoregression(stream: np.random.Generator, nights: int, autocorrelation: float, deviation: float) -> Floats:
    """Draw a stationary first-order autoregression with this standard deviation, shape (nights,)."""
    innovations = stream.standard_normal(nights) * math.sqrt(1 - autocorrelation**2)
    values = innovations
    values[0] = stream.standard_normal()
    for night in range(1, nights):
        values[night] += autocorrelation * values[night - 1]
    return deviation * values


def add_spells(
    stream: np.random.Generator,
    logs: Floats,
    cases: Sequence[Case],
    file_system: str,
    sensitivity: Floats,
    world: World,
) -> None:
    """Add the bad spells of a file system to the values (ln), shape (nights, series)."""
    nights = len(logs)
    is_member = np.array([case.file_system == file_system for case in cases])
    night = 0
    while night < nights:
        if stream.random() >= 0.05:
            night += 1
            continue
        length = min(int(stream.geometric(1 / 1.7)), 6)
        if world == "long" and stream.random() < 0.15:
            length = int(stream.integers(5, 15))
        # Which series: all of the file system, its writes, its reads, its shared files, or any half of them.
        affected = is_member.copy()
        selection = stream.integers(5)
        if selection == 1:
            affected &= np.array([case.operation == "write" for case in cases])
        elif selection == 2:
            affected &= np.array([case.operation == "read" for case in cases])
        elif selection == 3:
            affected &= np.array([case.file == "shared" for case in cases])
        elif selection == 4:
            affected &= stream.random(len(cases)) < 0.5
        depth = stream.uniform(math.log(0.3), math.log(0.9))
        shape = min(length, nights - night), int(affected.sum())
        logs[night : night + length, affected] += depth * sensitivity[affected] * np.exp(stream.normal(0, 0.3, shape))
        night += length + 1


def make_world(world: World, seed: int, nights: int, cases: Sequence[Case]) -> Floats:
    """Draw the bandwidth (MiB/s) of every night and series, shape (nights, series); NaN where nothing was measured."""
    stream = np.random.default_rng([seed, 77])
    series = len(cases)
    # The noise of each series by itself.
    scatter = np.exp(stream.normal(math.log(0.05), 0.5, series)).clip(0.02, 0.15)
    heavy_tailed = stream.standard_t(4, (nights, series))
    logs = scatter * np.where(heavy_tailed < 0, 1.3, 0.7) * heavy_tailed * 0.8
    for number in range(series):
        logs[:, number] += autoregression(stream, nights, 0.3, 0.5 * scatter[number])
    logs -= (stream.random((nights, series)) < 0.02) * stream.exponential(0.4, (nights, series))
    # What the series of a file system have in common.
    if world != "own":
        sensitivity = np.exp(stream.normal(0, 0.4, series)).clip(0.2, 2)
        for file_system in sorted({case.file_system for case in cases}):
            is_member = np.array([case.file_system == file_system for case in cases])
            factor = autoregression(stream, nights, 0.6, 0.04)
            logs[:, is_member] += np.outer(factor, sensitivity[is_member])
            if world == "wander":
                logs[:, is_member] += autoregression(stream, nights, 0.97, 0.03)[:, None]
            add_spells(stream, logs, cases, file_system, sensitivity, world)
        for night in np.flatnonzero(stream.random(nights) < 0.01):
            logs[night] += stream.uniform(math.log(0.4), math.log(0.9))
    values = 2000 * np.exp(logs + stream.normal(0, 0.5, series))
    # Results and nights that are missing; the first night is complete.
    is_missing = stream.random((nights, series)) < 0.03
    is_missing[1:] |= (stream.random(nights - 1) < 0.04)[:, None]
    is_missing[0] = False
    values[is_missing] = np.nan
    return values


@dataclass
class SeenFinding:
    """The mornings of one finding.

    Attributes:
        first: number of the morning that showed it first.
        red: mornings on which it needed action.
        opened: whether it was open on one.
        newest: as of the last morning that listed it.
        ended: number of the first morning that listed it as resolved, after it had needed action.
    """

    first: int
    newest: Finding
    red: int = 0
    opened: bool = False
    ended: int | None = None

    def add(self, finding: Finding, morning: int) -> None:
        """Add a morning."""
        self.newest = finding
        self.red += finding.needs_action
        self.opened |= finding.state == "open"
        if self.red and self.ended is None and finding.state == "resolved":
            self.ended = morning

    def __str__(self) -> str:
        finding, losses = self.newest, self.newest.session_loss
        resolution = finding.resolution
        parts = [
            f"{finding.id} {len(finding.members)} series x{finding.size:.2f}, shown on morning {self.first}",
            f"red on {self.red} mornings",
            "opened" if self.opened else "never open",
            finding.state,
        ]
        if resolution is not None:
            parts.append(f"{resolution.kind} {resolution.sessions or resolution.finding or ''}")
        if losses is not None:
            parts.append("unusual loss")
        return ", ".join(parts)


@dataclass
class Year:
    """Counts of the mornings of one seed; `needed` findings have needed action in them."""

    mornings: int = 0
    red: int = 0
    seen: dict[str, SeenFinding] = field(default_factory=dict)

    def add(self, findings: Sequence[Finding], burn_in_ids: set[str]) -> None:
        """Add a morning.

        Args:
            burn_in_ids: ids of the findings of the burn-in, which do not count.
        """
        self.mornings += 1
        new = [finding for finding in findings if finding.id not in burn_in_ids]
        self.red += any(finding.needs_action for finding in findings)
        for finding in new:
            seen = self.seen.setdefault(finding.id, SeenFinding(self.mornings, finding))
            seen.add(finding, self.mornings)

    @property
    def needed(self) -> list[SeenFinding]:
        """Those that needed action, the longest first."""
        return sorted((seen for seen in self.seen.values() if seen.red), key=lambda seen: -seen.red)


def simulate_year(world: World, seed: int, mornings: int) -> Year:
    """Update the findings on every morning of one world and seed."""
    cases = make_cases()
    values = make_world(world, seed, BURN_IN + mornings, cases)
    year = Year()
    burn_in_ids: set[str] = set()
    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/history.db") as history:
        for night, of_night in enumerate(values):
            results = []
            for case, value in zip(cases, of_night, strict=True):
                if math.isfinite(value):
                    results.append(Result(case.operation, "bandwidth", "MiB/s", (float(value),), case.parameters))
            if not results:
                continue
            moment = START + night * DAY_S
            history.begin_session(SessionRecord(f"s{night}", SYSTEM, "nightly", "run", moment))
            output = Output("ior", None, "ok", None, tuple(results))
            run = RunRecord("all", "compute", StackRecord("one"), f"night-{night}", moment, output)
            history.record_runs(f"s{night}", [run])
            if night < BURN_IN - 1:
                continue
            findings = update_findings(history, SYSTEM, datetime.fromtimestamp(moment + 4 * 3600, UTC))
            if night < BURN_IN:
                burn_in_ids = {finding.id for finding in findings}
            else:
                year.add(findings, burn_in_ids)
    return year


def print_table(world: World, years: Sequence[Year]) -> None:
    """Print the counts of all seeds together, per 365 mornings."""
    mornings = sum(year.mornings for year in years)
    red = sum(year.red for year in years)
    needed: list[SeenFinding] = []
    shown = 0
    for year in years:
        needed += year.needed
        shown += len(year.seen)
    opened = sum(seen.opened for seen in needed)
    endings = Counter(seen.newest.resolution.kind for seen in needed if seen.newest.resolution is not None)
    gains = sum(seen.newest.size > 1 for seen in needed)

    def per_year(number: int) -> str:
        return f"{365 * number / mornings:.1f}"

    print(f"{world}: {mornings} mornings, {red} with exit code 1 ({red / mornings:.0%}); per 365 mornings:")
    print(f"  shown {per_year(shown)}, needed action {per_year(len(needed))} (gains {per_year(gains)}),", end=" ")
    print(f"opened {per_year(opened)}, of one series {per_year(sum(len(s.newest.members) == 1 for s in needed))}")
    ended = ", ".join(f"{kind} {number}" for kind, number in endings.most_common())
    print(f"  of {len(needed)} that needed action: {ended or 'none resolved'}", flush=True)


def shifts(seeds: int) -> None:
    """Print which share of steps of six series a movement of the level explains, by world and size of the step.

    A step of 0 is the largest difference of twenty nights that the world has by itself.
    """
    cases = make_cases()
    file_systems: list[list[int]] = []
    for file_system in ("scratch1", "scratch2", "work"):
        file_systems.append([number for number, case in enumerate(cases) if case.file_system == file_system])
    sizes = (1.0, 0.95, 0.92, 0.88, 0.82, 0.5)
    print(f"{'step':8}" + "".join(f"{f'x{size}':>8}" for size in sizes))
    for world in get_args(World):
        explained = np.zeros(len(sizes))
        for seed in range(1000, 1000 + seeds):
            logs = np.log(make_world(world, seed, 300, cases)).T
            stream = np.random.default_rng(seed)
            for members in file_systems[:2]:
                changed = members[:6]
                for position, size in enumerate(sizes):
                    night = int(stream.integers(90, 250)) if size < 1 else _largest_difference(logs[changed])
                    stepped = logs.copy()
                    stepped[changed, night:] += math.log(size)
                    groups = [stepped[of_file_system] for of_file_system in file_systems]
                    explained[position] += assess_shift(stepped[changed], groups, night) is not None
        print(f"{world:8}" + "".join(f"{share:>8.0%}" for share in explained / (2 * seeds)), flush=True)


def _largest_difference(logs: Floats) -> int:
    """The night before and after which the medians of twenty nights differ most."""
    # A night without any of them has the value of a usual one.
    deviations = logs - np.nanmedian(logs, axis=1, keepdims=True)
    deviations[:, ~np.isfinite(deviations).any(axis=0)] = 0.0
    means = np.nanmedian(deviations, axis=0)
    differences: list[float] = []
    for night in range(60, len(means) - 20):
        differences.append(
            abs(float(np.nanmedian(means[night : night + 20]) - np.nanmedian(means[night - 20 : night])))
        )
    return 60 + int(np.argmax(differences))


def main(world: World, seeds: Sequence[int], mornings: int) -> None:
    years: list[Year] = []
    for seed in seeds:
        began = time.perf_counter()
        year = simulate_year(world, seed, mornings)
        years.append(year)
        print(f"{world} {seed}: {year.mornings} mornings, {time.perf_counter() - began:.0f} s")
        for seen in year.needed:
            print(f"    {seen}", flush=True)
    print_table(world, years)


if __name__ == "__main__":
    if sys.argv[1:2] == ["shifts"]:
        shifts(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
        sys.exit()
    worlds: list[World] = [world for world in get_args(World) if world in sys.argv[1:2]]
    if len(sys.argv) < 3 or not worlds:
        sys.exit(__doc__)
    main(worlds[0], [int(seed) for seed in sys.argv[2].split(",")], int(sys.argv[3]) if len(sys.argv) > 3 else 365)
