"""Figures of `iowatch maintenance end`: losses planted into the nights of real systems, and nights without any.

    python bench/maintenance.py replay [TABLE …] [--trials 40] [--losses 1 0.85 0.7 0.5]
        each trial takes a night of a year of NERSC/tokio-abcutils (summaries/*.csv.gz) as the night after the
        maintenance, and all nights before it as the baseline [default: Edison's year in the repository]
    python bench/maintenance.py within FOLDER
        share of the variance of a result that is scatter within a job, from repeated writes of benchio: FOLDER is
        synth/benchio/results/ARCHER_baseline of ARCHER-CSE/archer-benchmarks (tests: IOWATCH_TEST_DATA)

The years have one value per series and night, so repetitions within the night after are drawn. A result e (less the
level before) is the sum of what its night has, n, and of scatter within the night, w, with the share `WITHIN` of the
variance of nights. For normal noise n given e has the mean (1 - WITHIN) e and the variance WITHIN (1 - WITHIN); each
repetition is n plus a new w. So an outlier of the real night stays in all repetitions, only a fifth smaller.

Lasting changes that detection finds in the whole year are removed first; slow wandering and bad nights stay.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "bench" / "statistics")

from detect_edison import DATA, year  # noqa: E402

from iowatch.core import Scalar  # noqa: E402
from iowatch.findings import CASE_PARAMETERS  # noqa: E402
from iowatch.statistics.fitness import Fitness, FitnessSettings, FitnessTest  # noqa: E402
from iowatch.statistics.panel_table import PanelSeries, session_starts  # noqa: E402

Floats = NDArray[np.float64]

# Share of the variance of one result that is scatter within a job (`within`): median of 11 sizes of ARCHER's jobs.
WITHIN = 0.21
# Runs of each series that 45 minutes give: 24 to 32 series, two of a run, of some 40 s with the smallest sizes.
REPETITIONS = 4
# Nights before the earliest night after, and observations of a series without which it is left out.
FEWEST_NIGHTS, FEWEST_OBSERVATIONS = 60, 40
# Share of the series that the night after must have.
MEASURED = 0.8
GROUP = 3


@dataclass(frozen=True)
class SystemYear:
    """The nights of a system without its lasting changes.

    Attributes:
        starts: epoch seconds of each night, shape (T,).
        logs: natural logarithm of the bandwidth, shape (S, T); NaN without a run.
    """

    name: str
    starts: Floats
    logs: Floats
    cases: tuple[Mapping[str, Scalar], ...]


def load_system_year(table: Path) -> SystemYear:
    """Load a year; what was before a lasting change moves to the level after it."""
    series = year(table)
    starts = session_starts([np.asarray(of_series.times) for of_series in series])
    logs = np.full((len(series), len(starts)), np.nan)
    for row, of_series in zip(logs, series, strict=True):
        times, values = np.asarray(of_series.times), np.log(of_series.values)
        for change in of_series.found.changes:
            values[times < change.time] += math.log(change.ratio)
        columns = np.searchsorted(starts, times, side="right") - 1
        # In reverse, so that the first observation of a night stays.
        row[columns[::-1]] = values[::-1]
    names = ("benchmark", "file", "operation", "file_system", "ranks")
    cases: list[Mapping[str, Scalar]] = []
    for of_series in series:
        case: dict[str, Scalar] = dict(zip(names, of_series.name.split(), strict=False))
        cases.append({**case, "ranks": int(case["ranks"])})
    return SystemYear(table.name.partition("-")[0], starts, logs, tuple(cases))


@dataclass(frozen=True)
class Trial:
    """A maintenance: the nights before, and what the runs after it measure.

    Attributes:
        before: shape (S, nights); after: shape (S, repetitions), natural logarithms, NaN without a run.
        members: positions of the series that lost; empty without a loss.
    """

    starts: Floats
    before: Floats
    after: Floats
    cases: tuple[Mapping[str, Scalar], ...]
    members: tuple[int, ...]


def draw_trial(of_system: SystemYear, loss: float, seed: int) -> Trial:
    """Draw a maintenance; the nights and members of one seed are the same for each loss.

    Args:
        loss: factor of the performance of the members; 1 without one.
    """
    rng = np.random.default_rng([65, seed])
    measured = np.isfinite(of_system.logs).mean(axis=0)
    nights = np.flatnonzero(measured >= MEASURED)
    night = int(rng.choice(nights[nights >= FEWEST_NIGHTS]))
    before = of_system.logs[:, :night]
    rows = np.flatnonzero(np.isfinite(before).sum(axis=1) >= FEWEST_OBSERVATIONS)
    before = before[rows]
    cases = tuple(of_system.cases[i] for i in rows)
    # The night after, as residuals of the level and scatter of the 30 nights before it.
    level = np.nanmedian(before[:, -30:], axis=1)
    scatter = 1.4826 * np.nanmedian(np.abs(before - np.nanmedian(before, axis=1, keepdims=True)), axis=1)
    residual = of_system.logs[rows, night] - level
    of_night = (1 - WITHIN) * residual + math.sqrt(WITHIN * (1 - WITHIN)) * scatter * rng.standard_normal(len(rows))
    within = math.sqrt(WITHIN) * scatter[:, None] * rng.standard_normal((len(rows), REPETITIONS))
    after = (level + of_night)[:, None] + within
    members = tuple(draw_members(cases, rng))
    if loss == 1:
        members = ()
    after[list(members)] += math.log(loss)
    return Trial(of_system.starts[:night], before, after, cases, members)


def draw_members(cases: Sequence[Mapping[str, Scalar]], rng: np.random.Generator) -> list[int]:
    """Three or more series, not all: of a rule of one or two conditions (80 %), or any; as for the panels."""
    conditions = sorted({item for case in cases for item in case.items()}, key=str)
    rules: list[tuple[tuple[str, Scalar], ...]] = [(condition,) for condition in conditions]
    rules += [pair for pair in combinations(conditions, 2) if pair[0][0] != pair[1][0]]
    groups: list[list[int]] = []
    for rule in rules:
        members = [i for i, case in enumerate(cases) if all(case[name] == value for name, value in rule)]
        if GROUP <= len(members) < len(cases):
            groups.append(members)
    if groups and rng.random() < 0.8:
        return groups[int(rng.integers(len(groups)))]
    size = int(rng.integers(GROUP, max(GROUP + 1, len(cases) // 2 + 1)))
    return sorted(int(i) for i in rng.choice(len(cases), size, replace=False))


@dataclass(frozen=True)
class Outcome:
    """What the assessment of a trial says, after so many rounds of runs; `detectable` as a factor, None if nothing."""

    fitness: Fitness
    rounds: int
    detectable: float | None


def assess_trial(trial: Trial, settings: FitnessSettings, *, with_power: bool = False) -> Outcome:
    """Assess a trial round by round, until it is decided or the time is over."""
    series: list[PanelSeries] = []
    for case, logs in zip(trial.cases, trial.before, strict=True):
        is_measured = np.isfinite(logs)
        series.append(PanelSeries(trial.starts[is_measured], logs[is_measured], case))
    test = FitnessTest(series, CASE_PARAMETERS, settings)
    rounds = 0
    for values in trial.after.T:
        rounds += 1
        for position in np.flatnonzero(np.isfinite(values)):
            test.record(int(position), float(values[position]))
        fitness = test.assess()
        if fitness.decision != "undecided":
            break
    detectable = test.detectable_loss() if with_power else None
    return Outcome(fitness, rounds, None if detectable is None else math.exp(-detectable))


def replay(tables: Sequence[Path], trials: int, losses: Sequence[float], settings: FitnessSettings) -> None:
    """Print how often each loss is "not fit", "fit" or undecided."""
    print(f"margin {settings.margin:.0%}; not fit by error at most {settings.false_alarm:.1%}; {trials} trials each")
    print(f"{'system':8} {'loss':>6} {'not fit':>8} {'fit':>5} {'undecided':>10} {'rounds':>7}  detectable (median)")
    for table in tables:
        of_system = load_system_year(table)
        for loss in losses:
            outcomes = [
                assess_trial(draw_trial(of_system, loss, seed), settings, with_power=loss == 1)
                for seed in range(trials)
            ]
            counts = Counter(outcome.fitness.decision for outcome in outcomes)
            rounds = float(np.mean([outcome.rounds for outcome in outcomes]))
            text = ""
            if loss == 1:
                factors = sorted(outcome.detectable or 0.0 for outcome in outcomes)
                median = factors[len(factors) // 2]
                text = f"x{median:.2f}" if median else "nothing"
            print(
                f"{of_system.name:8} {'x' + format(loss, 'g'):>6} {counts['not fit']:>8} {counts['fit']:>5} "
                f"{counts['undecided']:>10} {rounds:>7.1f}  {text}",
                flush=True,
            )


def within(folder: Path) -> None:
    """Print the share of the variance of a write that is scatter within its job, by number of processes."""
    shares: list[float] = []
    for ranks, jobs in sorted(_writes_by_ranks(folder).items()):
        variance_within = float(np.mean([np.var(job, ddof=1) for job in jobs]))
        # Medians of ten writes scatter by more than the jobs themselves do.
        error = math.pi / 2 * variance_within / len(jobs[0])
        between = max(float(np.var([np.median(job) for job in jobs], ddof=1)) - error, 0.0)
        shares.append(variance_within / (variance_within + between))
        print(f"{ranks:6} processes, {len(jobs)} jobs: {shares[-1]:.2f}")
    print(f"median {np.median(shares):.2f}")


def _writes_by_ranks(folder: Path) -> dict[int, list[Floats]]:
    """ln of the bandwidth of the writes of each job, by number of processes; sizes of at least three jobs."""
    jobs: dict[int, list[Floats]] = {}
    for path, ranks in _outputs(folder):
        text = path.read_text(errors="replace").partition("striped/mpiio.dat")[2].partition("Deleting")[0]
        rates = [math.log(float(rate)) for rate in re.findall(r"(?m)^\s*time =.*rate =\s*(\S+)", text)]
        if len(rates) >= 5:
            jobs.setdefault(ranks, []).append(np.asarray(rates))
    return {ranks: of_size for ranks, of_size in jobs.items() if len(of_size) >= 3}


def _outputs(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in sorted(folder.glob("*.dat")):
        name = re.search(r"_c(\d+)_", path.name)
        if name is not None:
            yield path, int(name[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    replaying = commands.add_parser("replay")
    replaying.add_argument("tables", type=Path, nargs="*", default=[DATA])
    replaying.add_argument("--trials", type=int, default=40)
    replaying.add_argument("--losses", type=float, nargs="+", default=[1.0, 0.85, 0.7, 0.5])
    replaying.add_argument("--margin", type=float, default=0.1)
    replaying.add_argument("--false-alarm", type=float, default=0.05)
    scatter = commands.add_parser("within")
    scatter.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "within":
        within(given.folder)
        return
    settings = FitnessSettings(margin=given.margin, false_alarm=given.false_alarm)
    replay(given.tables or [DATA], given.trials, given.losses, settings)


if __name__ == "__main__":
    main()
