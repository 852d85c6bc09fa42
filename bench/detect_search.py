"""Search the weights of the detector's confidence and its drift penalty for the best scores of whole series.

    python bench/detect_search.py [--minutes 20] [--seed 1] [--from now|weights.json] [--out weights.json]

CMA-ES (Hansen 2016, arXiv:1604.00772; `pip install cma`, used by nothing else) minimises the shortfall
from the aims of docs/detection-scores.md, each with a margin: on the series of tests/data/changes.tar.xz, offline
and at every nightly prefix; on three kinds of simulated series; on short histories; and on the events of the
year of Edison that must be found (all in bench/detect_sets.py). The figures are counts, so they jump: the
shown series are assessed with slightly shifted intercepts as well, so that a result does not depend on the third
decimal of a weight.

Prints the figures of the current mean every ten generations; at the end the weights as settings.py has them,
and the figures of the weights in use and of those found: on the shown series, the simulated ones of the search,
and fresh ones that it did not use. The seed generates the simulated series, too. Fresh series show whether to keep
a result; to choose among several results, use other fresh series. Preparing the series takes two minutes more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from detect_fit import Floats
from detect_sets import Edison, Figures, Group, kinds, shown, simulated

from iowatch.statistics import DetectorSettings


@dataclass(frozen=True)
class Aim:
    """Target of a figure. A shortfall as large as `scale` costs 1."""

    figure: str
    limit: float
    scale: float
    at_least: bool = False

    def cost(self, figures: Figures) -> float:
        """At most 100, so that a figure without a value (infinity) leaves something to compare."""
        excess = float(figures[self.figure]) - self.limit
        return min(max(0.0, -excess if self.at_least else excess) / self.scale, 100.0)


SHOWN = (
    Aim("f1", 0.8925, 0.002, at_least=True),
    Aim("precision", 0.96, 0.005, at_least=True),
    Aim("recall_detectable", 0.9435, 0.004, at_least=True),
    Aim("fa_per_series_year", 0.04, 0.01),
    Aim("outlier_reported", 0.004, 0.002),
    Aim("temp_flagged", 0.05, 0.02),
    Aim("drift_reports_per_series", 0.28, 0.03),
    Aim("delay_median_snr2", 4, 0.5),
    Aim("never_snr2", 0.025, 0.02),
    Aim("online_fa_per_series_year", 0.92, 0.12),
)
SHORT = Aim("short_fa", 0.28, 0.25)
"""Of each kind of simulated series."""
MEAN_OF_KINDS = (
    Aim("precision", 0.957, 0.004, at_least=True),
    Aim("fa_per_series_year", 0.045, 0.02),
    Aim("online_fa_per_series_year", 0.6, 0.1),
    Aim("never_snr2", 0.03, 0.01),
    Aim("delay_median_snr2", 4, 0.4),
)
LOST_EVENT = 3.0
"""What one of `EVENTS` costs."""
LOST_F1, GAINED_F1 = 0.004, 0.03
"""Of a kind of simulated series, against the start: what costs 1, and what is worth 1."""
GAINED_ALARMS = 0.6
"""Online false alarms per series-year on simulated series: what is worth 1, also beyond the aim."""
SHIFTS = (-0.12, 0.12)
"""Of the intercepts: where the shown series are assessed as well, for a quarter of the cost each."""


class Objective:
    """Cost of weights: less is better."""

    def __init__(self, start: DetectorSettings, seed: int) -> None:
        self.shown = shown(start)
        self.kinds = [
            simulated(name, noise, [seed, 1, i], 1200, start) for i, (name, noise) in enumerate(kinds().items())
        ]
        self.edison = Edison(start)
        self.start_f1 = {kind.name: kind.figures(start)["f1"] for kind in self.kinds}

    def __call__(self, settings: DetectorSettings) -> float:
        cost = _shortfall(SHOWN, self.shown.figures(settings)) + LOST_EVENT * len(self.edison.lost(settings))
        for shift in SHIFTS:
            cost += 0.25 * _shortfall(SHOWN, self.shown.figures(_shifted(settings, shift)))
        every = {kind.name: kind.figures(settings) for kind in self.kinds}
        for name, figures in every.items():
            gain = figures["f1"] - self.start_f1[name]
            cost += SHORT.cost(figures) + max(0.0, -gain) / LOST_F1 - gain / GAINED_F1
        mean = {a.figure: float(np.mean([f[a.figure] for f in every.values()])) for a in MEAN_OF_KINDS}
        return cost + _shortfall(MEAN_OF_KINDS, mean) + mean["online_fa_per_series_year"] / GAINED_ALARMS


def _shortfall(aims: tuple[Aim, ...], figures: Figures) -> float:
    return sum(aim.cost(figures) for aim in aims)


def _shifted(settings: DetectorSettings, shift: float) -> DetectorSettings:
    (settled, *facts), (newest, *others) = settings.settled_weights, settings.newest_weights
    return replace(settings, settled_weights=(settled + shift, *facts), newest_weights=(newest + shift, *others))


class Space:
    """The settings around a start as vectors whose elements matter about alike."""

    def __init__(self, start: DetectorSettings, groups: list[Group]) -> None:
        self.start = start
        self.origin = np.array([*start.settled_weights, *start.newest_weights, start.drift_penalty])
        self.scale = np.array([*_fact_scales(groups, False), *_fact_scales(groups, True), 5.0])

    def settings(self, x: Floats) -> DetectorSettings:
        """Rounded as they are written down, so that the figures are those of what is printed.

        The drift penalty is rounded to a quarter, because slopes are cached by it.
        """
        *weights, drift = (self.origin + self.scale * x).tolist()
        rounded = [round(weight, 2) for weight in weights]
        settled = len(self.start.settled_weights)
        return replace(
            self.start,
            settled_weights=tuple(rounded[:settled]),
            newest_weights=tuple(rounded[settled:]),
            drift_penalty=max(0.0, round(4 * drift) / 4),
        )


def _fact_scales(groups: list[Group], newest: bool) -> Floats:
    """How much of each weight moves the odds by 1 where its fact is one standard deviation off."""
    assessed = [j for group in groups for j in (group.whole, group.nightly)]
    steps = [step for j in assessed for root in j.roots.values() for step in root.facts]
    spread = np.array([facts for facts, young in steps if facts and young == newest]).std(axis=0)
    return np.where(spread > 0, 1 / np.maximum(spread, 0.05), 1.0)


def search(
    cma: Any,
    objective: Objective,
    start: DetectorSettings,
    minutes: float,
    seed: int,
    keep: Callable[[DetectorSettings], None],
) -> DetectorSettings:
    """The best settings that were met within the time; each better ones are kept at once."""
    space = Space(start, objective.kinds)
    options = {"seed": seed, "popsize": 16, "verbose": -9}
    evolution = cma.CMAEvolutionStrategy(np.zeros(len(space.origin)), 0.08, options)
    best, best_cost = start, objective(start)
    print(f"start: cost {best_cost:.2f}", flush=True)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        vectors = evolution.ask()
        tried = [space.settings(x) for x in vectors]
        costs = [objective(settings) for settings in tried]
        # The pull towards the start keeps weights without effect near it.
        evolution.tell(vectors, [c + 0.01 * float(x @ x) for c, x in zip(costs, vectors, strict=True)])
        if evolution.countiter % 10 == 0:
            tried.append(space.settings(evolution.mean))
            costs.append(objective(tried[-1]))
            figures = line(objective.shown.figures(tried[-1]))
            print(f"{evolution.countiter}: least {best_cost:.2f}, mean {costs[-1]:.2f}; {figures}", flush=True)
        if min(costs) < best_cost:
            best_cost = min(costs)
            best = tried[costs.index(best_cost)]
            keep(best)
    print(f"best: cost {best_cost:.2f}")
    return best


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
    "short_fa": ("7-20 obs. FA/y", ".2f"),
}


def line(figures: Figures) -> str:
    """The figures with their names; `delay` (observations) and `never` are of steps of at least twice the scatter."""
    return " ".join(f"{title} {figures[name]:{form}}" for name, (title, form) in COLUMNS.items() if name in figures)


def comparison(objective: Objective, columns: dict[str, DetectorSettings], seed: int) -> Iterator[str]:
    """The figures of several settings, on the series of the search and on fresh ones."""
    fresh = [
        simulated(f"fresh {name}", noise, [seed, 2, i], 440, columns["now"])
        for i, (name, noise) in enumerate(kinds().items())
    ]
    for group in (objective.shown, *objective.kinds, *fresh):
        for title, settings in columns.items():
            yield f"{group.name:14} {title:6} {line(group.figures(settings))}"
    for title, settings in columns.items():
        yield f"Edison         {title:6} lost events: {'; '.join(objective.edison.lost(settings)) or 'none'}"


WEIGHTS = ("settled_weights", "newest_weights", "drift_penalty")


def read_weights(source: str) -> DetectorSettings:
    """The settings in use, or those with the weights of a file that `--out` has written."""
    if source == "now":
        return DetectorSettings()
    now, weights = DetectorSettings(), json.loads(Path(source).read_text())
    for name in ("settled_weights", "newest_weights"):
        weights[name] = tuple(weights[name])
        if len(weights[name]) != len(getattr(now, name)):
            sys.exit(f"{source}: {len(weights[name])} {name}, but steps have {len(getattr(now, name))} facts")
    return replace(now, **weights)


def write(weights: DetectorSettings, out: Path | None) -> None:
    """As `read_weights` reads them; a search that is ended early leaves the best so far."""
    if out:
        out.write_text(json.dumps({name: getattr(weights, name) for name in WEIGHTS}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of the search only")
    parser.add_argument("--seed", type=int, default=1, help="of the search and of the simulated series")
    parser.add_argument("--from", dest="start", default="now", help="`now`, or a file that --out wrote")
    parser.add_argument("--out", type=Path, help="where to write better weights, as JSON, once found")
    given = parser.parse_args()
    try:
        import cma
    except ModuleNotFoundError:
        sys.exit("detect_search needs CMA-ES: pip install cma")
    start = read_weights(given.start)
    objective = Objective(start, given.seed)
    found = search(cma, objective, start, given.minutes, given.seed, lambda better: write(better, given.out))
    for name in WEIGHTS:
        print(f"    {name}: {DetectorSettings.__annotations__[name]} = {getattr(found, name)}")
    print(*comparison(objective, {"now": DetectorSettings(), "found": found}, given.seed), sep="\n")


if __name__ == "__main__":
    main()
