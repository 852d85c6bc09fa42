"""The series that bench/detect_search.py assesses: the shown ones, simulated ones, and the year of Edison."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

import numpy as np
from detect import DATA, load_scorer
from detect_edison import DAY, year
from detect_fit import FAMILIES, RATIOS, Floats, Known, Noise, bare, blocks, draw, residuals
from detect_graph import Change, State, assess, roots

from iowatch.statistics import DetectorSettings

Figures = dict[str, Any]

EVENTS = (
    ("2017-02-24", "down", "* per-process write scratch3 *"),
    ("2017-02-24", "up", "IOR shared write scratch1 *"),
    ("2017-03-11", "up", "* per-process * scratch3 *"),
    ("2017-04-24", "down", "* per-process read scratch3 *"),
    ("2017-06-16", "down", "* per-process * scratch3 *"),
    ("2017-07-05", "up", "* per-process * scratch3 *"),
    ("2017-08-04", "down", "IOR shared read *"),
    ("2017-08-04", "up", "IOR shared write *"),
    ("2017-08-04", "up", "IOR per-process * scratch[12] *"),
    ("2017-08-11", "up", "hacc-io per-process * scratch2 *"),
    ("2017-10-10", "up", "* per-process write scratch1 *"),
)
"""Of the year of Edison (docs/detection-scores.md): date, direction, series; found within `SLACK` seconds."""
SLACK = 6 * DAY


def plateaus(rng: np.random.Generator, n: int) -> Floats:
    """Inliers, and bursts of several observations at a level of their own."""
    logs = 0.05 * rng.standard_t(5, size=n)
    for start in np.flatnonzero(rng.random(n) < rng.uniform(0.01, 0.05)):
        side = rng.choice([-1, -1, 1])
        logs[start : start + rng.geometric(1 / rng.uniform(2, 7))] += side * rng.uniform(0.1, 0.4)
    return logs


def mixed_noise(rng: np.random.Generator, n: int) -> Floats:
    """Noise of one of the tests' families or plateaus, of random size."""
    families = [*FAMILIES.values(), plateaus]
    logs: Floats = families[rng.integers(len(families))](rng, n)
    return logs * float(np.exp(rng.uniform(-0.9, 1.4)))


def kinds() -> dict[str, Noise]:
    """The noise of the simulated series."""
    return {
        "weekly": blocks(residuals(51), lambda rng: 7),
        "long": blocks(residuals(31), lambda rng: int(rng.integers(10, 41))),
        "mixed": mixed_noise,
    }


def draw_nightly(rng: np.random.Generator, noise: Noise) -> Known:
    """A series to be assessed after every observation: 30 to 70, a step and 45 more; or 120 without a step."""
    if rng.random() < 0.4:
        return replace(bare(noise(rng, 120)), kind="online_none")
    start, size = int(rng.integers(30, 71)), float(np.log(rng.choice(RATIOS[:-2])))
    known = replace(bare(noise(rng, start + 45)), kind="online_step", steps=[(start, size)])
    known.logs[start:] += size
    return known


def truth(known: Known) -> dict[str, Any]:
    """The description of a series that the scorer in changes.tar.xz needs."""
    natural = known.bursts[:-1] if known.kind == "temp" else known.bursts
    edges = [0, *(start for start, _ in known.steps), len(known.logs)]
    changes = []
    for before, (start, size), end in zip(edges, known.steps, edges[2:], strict=False):
        snr = abs(size) / known.spread
        z = snr / math.sqrt(1 / (start - before) + 1 / (end - start))
        changes.append({"index": start, "factor": math.exp(size), "z": z, "snr": snr})
    return {
        "system": "simulated",
        "flavour": "simulated",
        "n": len(known.logs),
        "kind": known.kind,
        "changes": changes,
        "outliers": known.outliers,
        "ignore": _borders(natural),
        "temp_ignore": _borders(known.bursts[len(natural) :]),
    }


def _borders(bursts: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"index": i, "direction": side} for burst in bursts for i in burst for side in ("up", "down")]


@dataclass
class ScoredSeries:
    """Series that are scored together; `roots` has those that may have a step."""

    truth: dict[str, Any]
    roots: dict[str, State]

    @classmethod
    def of(cls, truth: dict[str, Any], logs: dict[str, Floats], settings: DetectorSettings) -> ScoredSeries:
        states = zip(logs, roots(list(logs.values()), settings), strict=True)
        return cls(truth, {name: root for name, root in states if len(root.segments) > 1})

    def changes(self, settings: DetectorSettings) -> dict[str, list[Change]]:
        return {name: assess(root, settings).changes for name, root in self.roots.items()}


@dataclass
class Group:
    """Series of one kind: whole ones, ones assessed at every prefix, and short histories."""

    name: str
    whole: ScoredSeries
    nightly: ScoredSeries
    short: ScoredSeries | None = None
    scorer: Any = field(default_factory=load_scorer)

    def figures(self, settings: DetectorSettings) -> Figures:
        """The scores, infinity for "never"; and the false alarms per series-year of short histories."""
        figures: Figures = self.scorer.score(self.whole.truth, self.whole.changes(settings))
        figures |= self.scorer.online(self.nightly.truth, self.nightly.changes(settings))
        if figures["delay_median_snr2"] is None:
            figures["delay_median_snr2"] = math.inf
        if not any(truth["kind"] == "drift" for truth in self.whole.truth.values()):
            del figures["drift_reports_per_series"]
        if self.short:
            short = self.scorer.score(self.short.truth, self.short.changes(settings))
            figures["short_fa"] = short["fa_per_series_year"]
        return figures


def shown(settings: DetectorSettings) -> Group:
    """The series in changes.tar.xz."""

    def load(name: str) -> Any:
        return json.loads((DATA / f"{name}_shown.json").read_text())

    def scored(cases: Any, truth: Any) -> ScoredSeries:
        logs = {case["id"]: np.log([value for _, value in case["series"]]) for case in cases["cases"]}
        return ScoredSeries.of(truth, logs, settings)

    nightly = load("truth_online")
    prefixes = load_scorer().expand(load("online"), nightly)
    return Group("shown", scored(load("cases"), load("truth")), scored(prefixes, nightly))


def simulated(name: str, noise: Noise, seeds: list[int], many: int, settings: DetectorSettings) -> Group:
    """`many` whole series, an eighth as many assessed at every prefix, and `many` short histories."""
    rng = np.random.default_rng(seeds)
    whole = {str(i): draw(rng, noise) for i in range(many)}
    nightly = {str(i): draw_nightly(rng, noise) for i in range(many // 8)}
    # With few observations any report is a false alarm, also at a burst.
    short = {str(i): replace(bare(noise(rng, int(rng.integers(7, 21)))), bursts=[]) for i in range(many)}
    prefixes = {
        f"{i}@{end}": known.logs[:end]
        for i, known in nightly.items()
        for end in range(known.steps[0][0] + 1 if known.steps else 20, len(known.logs) + 1)
    }

    def scored(series: dict[str, Known], logs: dict[str, Floats] | None = None) -> ScoredSeries:
        truths = {i: truth(known) for i, known in series.items()}
        return ScoredSeries.of(truths, logs or {i: known.logs for i, known in series.items()}, settings)

    return Group(name, scored(whole), scored(nightly, prefixes), scored(short))


class Edison:
    """The year of Edison and its events."""

    def __init__(self, settings: DetectorSettings) -> None:
        self.series = year()
        self.roots = roots([np.log(s.values) for s in self.series], settings)

    def lost(self, settings: DetectorSettings) -> list[str]:
        """The events that are not among the changes: date, direction and series of each."""
        return [
            f"{date} {side} {series.name}"
            for series, root in zip(self.series, self.roots, strict=True)
            for date, side, names in EVENTS
            if fnmatch(series.name, names)
            and not any(
                change["direction"] == side and abs(series.times[change["index"]] - _seconds(date)) <= SLACK
                for change in assess(root, settings).changes
            )
        ]


def _seconds(date: str) -> float:
    return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()
