"""The fit of the models of `iowatch.statistics.panel`, on events planted in a year of a system.

    python bench/panel_fit.py SUMMARIES…    prints the weights for src/iowatch/statistics/panel_models.py

The weights in use are those of Edison; those of lasting from the fourth session on are of all systems, each with the
same weight. What lasts is fitted to candidates that begin with their event, kinds of events weighted as described.
SUMMARIES are tables of TOKIO of further systems (`summaries/` of NERSC/tokio-abcutils: Cori and Mira). The weights
without each of them are printed, too: only with these are scores on its own panels honest.

Panels are made as tests/data/panels.tar.xz describes (README.md inside it): all series of a system over 110 to 130
sessions, less their lasting steps and slow variation, so that bad sessions, gaps and outliers stay together; half of
them with blocks of sessions in another order; 40 % with a lasting event, 30 % with one of 1 to 6 sessions. Every
candidate of every morning is an input of the fit: whether it is the planted event, and whether that lasts.
Models with the input "evidence after a short past" get its weight afterwards, all others fixed, from panels with 3 to 9
of the series and 6 to 70 sessions before the event: in those above it is 0.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from detect_edison import DATA, DAY, year
from numpy.typing import NDArray
from scipy.optimize import minimize

from iowatch.core import Scalar
from iowatch.findings import CASE_PARAMETERS
from iowatch.statistics import panel_models
from iowatch.statistics.panel_candidates import find_candidates
from iowatch.statistics.panel_table import PanelSeries, PanelTable, session_starts

Floats = NDArray[np.float64]

SEEDS, PANELS_PER_SEED = (11, 12, 15), 100
LASTING, TRANSIENT = 0.4, 0.3
TWO_GROUPS = 0.25
"""Share of the lasting events with a group in each direction."""
SHARES = {
    "none": 1 - LASTING - TRANSIENT,
    "transient": TRANSIENT,
    "lasting": LASTING * (1 - TWO_GROUPS),
    "lasting, two groups": LASTING * TWO_GROUPS,
}
"""Of the panels. By chance 61 % of the events of the fit last instead of 57 %, and 31 % of these have two groups."""
LENGTHS = (0.34, 0.2, 0.15, 0.12, 0.1, 0.09)
"""Share of the transients of 1 to 6 sessions."""
PENALTY = 2.5
"""Ridge penalty of the standardised weights."""
SHORT_SEEDS = (311, 313, 315)
SHORT_PAST = "evidence after a short past"


@dataclass(frozen=True)
class Year:
    """The year of a system without its lasting changes.

    Attributes:
        starts: epoch seconds of each session, shape (T,).
        times, residuals: shape (S, T), NaN without a run; residuals in natural logarithm.
    """

    starts: Floats
    times: Floats
    residuals: Floats
    cases: tuple[Mapping[str, Scalar], ...]


@dataclass(frozen=True)
class Planted:
    """A panel and what was planted: members by direction, the first session, and its length (None: it lasts).

    `times` (epoch seconds), `logs` (natural logarithm) and `noise`, the logs without the event, have shape (S, T).
    """

    times: Floats
    logs: Floats
    noise: Floats
    starts: Floats
    cases: tuple[Mapping[str, Scalar], ...]
    groups: Mapping[int, frozenset[int]]
    first: int | None
    length: int | None

    @property
    def kind(self) -> str:
        """A key of `SHARES`."""
        if self.first is None:
            return "none"
        if self.length is not None:
            return "transient"
        return "lasting, two groups" if len(self.groups) > 1 else "lasting"


def load_year(table: Path = DATA) -> Year:
    """Residuals of a system: the running median of 30 days on both sides, between the lasting steps, is removed."""
    series = year(table)
    starts = session_starts([np.asarray(one.times) for one in series])
    shape = len(series), len(starts)
    times, residuals = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, one in enumerate(series):
        at, logs = np.asarray(one.times), np.log(one.values)
        segment = np.searchsorted([change.time for change in one.found.changes], at, side="right")
        near = (np.abs(at[:, None] - at[None, :]) <= 30 * DAY) & (segment[:, None] == segment[None, :])
        level = np.asarray([np.median(logs[row]) for row in near])
        column = np.searchsorted(starts, at, side="right") - 1
        times[i, column[::-1]], residuals[i, column[::-1]] = at[::-1], (logs - level)[::-1]
    kept = np.isfinite(residuals).sum(axis=0) >= 3
    names = ("benchmark", "file", "operation", "file_system", "ranks")
    cases = tuple(dict(zip(names, one.name.split(), strict=False)) for one in series)
    return Year(starts[kept], times[:, kept], residuals[:, kept], cases)


def plant(known: Year, rng: np.random.Generator) -> Planted:
    """A panel of the year with an event, or without one."""
    n = int(rng.integers(110, 131))
    begin = int(rng.integers(0, len(known.starts) - n + 1))
    window = slice(begin, begin + n)
    starts, logs, offsets = known.starts[window], known.residuals[:, window], known.times[:, window]
    offsets = offsets - starts
    if rng.random() < 0.5:
        order = _shuffled_blocks(n, rng)
        logs, offsets = logs[:, order], offsets[:, order]
    rows = np.flatnonzero(np.isfinite(logs).sum(axis=1) >= 40)
    noise = logs = logs[rows].copy()
    times = (starts + offsets)[rows]
    cases = tuple(known.cases[i] for i in rows)
    kind = rng.random()
    first = length = None
    groups: dict[int, frozenset[int]] = {}
    if kind < LASTING + TRANSIENT:
        first = int(rng.integers(45, n - 14))
        length = None if kind < LASTING else 1 + int(rng.choice(len(LENGTHS), p=LENGTHS))
        end = n if length is None else min(n, first + length)
        logs[rng.random(len(rows)) < 0.1, first] = np.nan
        noise = logs.copy()
        for direction, members, sizes in _draw_groups(cases, length is None, rng):
            logs[members, first:end] += sizes[:, None]
            groups[direction] = frozenset(members)
    return Planted(times, logs, noise, starts, cases, groups, first, length)


def _shuffled_blocks(n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    cuts = [0]
    while n - cuts[-1] > 40:
        cuts.append(cuts[-1] + int(rng.integers(20, 41)))
    blocks = [np.arange(a, b) for a, b in zip(cuts, [*cuts[1:], n], strict=True)]
    return np.concatenate([blocks[i] for i in rng.permutation(len(blocks))])


def _draw_groups(
    cases: tuple[Mapping[str, Scalar], ...], lasting: bool, rng: np.random.Generator
) -> Iterator[tuple[int, list[int], Floats]]:
    """Direction, members and sizes (ln) of one group, or in a quarter of the lasting events of two."""
    free = set(range(len(cases)))
    direction = int(rng.random() >= 0.55)
    for _ in range(2 if lasting and rng.random() < TWO_GROUPS else 1):
        members = _draw_members(cases, free, rng)
        if len(members) < 2:
            return
        free -= set(members)
        size = rng.uniform(math.log(1.08), math.log(4)) if direction else rng.uniform(math.log(0.25), math.log(0.93))
        even = rng.random() < 0.5
        shares = (
            rng.uniform(0.85, 1.15, len(members)) if even else np.clip(rng.lognormal(0, 0.5, len(members)), 0.3, 2.5)
        )
        yield direction, members, size * shares
        direction = 1 - direction


def _draw_members(cases: tuple[Mapping[str, Scalar], ...], free: set[int], rng: np.random.Generator) -> list[int]:
    """Series of a rule of one or two conditions (80 %), or any."""
    pairs = sorted({(name, value) for case in cases for name, value in case.items()}, key=str)
    rules = [(one,) for one in pairs] + [two for two in combinations(pairs, 2) if two[0][0] != two[1][0]]
    sets = [sorted(i for i in free if all(cases[i].get(name) == value for name, value in rule)) for rule in rules]
    sets = [one for one in sets if 2 <= len(one) < len(cases)]
    if sets and rng.random() < 0.8:
        return sets[rng.integers(len(sets))]
    size = int(rng.integers(2, max(3, len(free) // 2 + 1)))
    return sorted(int(i) for i in rng.choice(sorted(free), min(size, len(free)), replace=False))


def shorten(one: Planted, rng: np.random.Generator) -> Planted | None:
    """A few series of a panel and their last sessions before the event; None if not two of its members are left."""
    moved = sorted(set().union(*one.groups.values()))
    others = [i for i in range(len(one.cases)) if i not in moved]
    few, past = int(rng.integers(3, 10)), int(math.exp(rng.uniform(math.log(6), math.log(70))))
    kept = [*rng.permutation(moved)[: max(2, round(rng.random() * few))], *rng.permutation(others)]
    rows = sorted(int(i) for i in kept[:few])
    groups = {side: frozenset(i for i, row in enumerate(rows) if row in g) for side, g in one.groups.items()}
    groups = {side: group for side, group in groups.items() if len(group) >= 2}
    if one.groups and not groups:
        return None
    begin = one.first if one.first is not None else int(rng.integers(45, len(one.starts) - 14))
    start = max(0, begin - past)
    chosen = slice(start, begin + 14)
    first = one.first - start if one.first is not None else None
    cases = tuple(one.cases[i] for i in rows)
    times, logs, noise = (part[rows][:, chosen] for part in (one.times, one.logs, one.noise))
    return Planted(times, logs, noise, one.starts[chosen], cases, groups, first, one.length)


@dataclass(frozen=True)
class Example:
    """One candidate of one morning, and what it was.

    Attributes:
        first: whether it begins in the first session of the event.
        kind: of the panel, a key of `SHARES`.
        weight: share of such panels as described, by their share among those of the fit.
    """

    sessions: int
    features: Mapping[str, float]
    real: bool
    lasting: bool
    first: bool
    kind: str
    weight: float = 1.0


def examples(one: Planted, rng: np.random.Generator) -> Iterator[Example]:
    """The candidates of 13 mornings: three before the event and ten from it on, or 13 without an event."""
    last = len(one.starts) - 14
    begin = one.first - 3 if one.first is not None else int(rng.integers(min(45, last), last + (last <= 45)))
    for newest in range(max(begin, 5), begin + 13):
        upto = slice(0, newest + 1)
        table = PanelTable(
            [
                PanelSeries(at[upto][seen[upto]], logs[upto][seen[upto]], case)
                for at, logs, case in zip(one.times, one.logs, one.cases, strict=True)
                for seen in [np.isfinite(logs)]
            ],
            CASE_PARAMETERS,
        )
        for candidate in find_candidates(table):
            planted = one.groups.get(candidate.direction, frozenset()) if one.first is not None else frozenset()
            first = table.session_of(one.starts[one.first]) if one.first is not None and newest >= one.first else -9
            near = abs(candidate.session - first) <= 2
            real = near and 2 * len(planted & set(candidate.members)) >= len(candidate.members)
            if candidate.is_dated:
                lasting = real and one.length is None
                begins = candidate.session == first
                yield Example(candidate.sessions, candidate.features, real, lasting, begins, one.kind)


def fit_short_past(inputs: Sequence[Example], weights: Mapping[str, float]) -> float:
    """Weight of `SHORT_PAST`, all others fixed."""
    x = np.asarray([one.features[SHORT_PAST] for one in inputs])
    known = np.asarray([panel_models.log_odds(weights, one.features) for one in inputs])
    sign = np.where([one.real for one in inputs], 1.0, -1.0)
    return float(minimize(lambda w: np.logaddexp(0, -sign * (known + w * x)).sum(), 0.0).x[0])


def fit(inputs: Sequence[Sequence[Example]], names: list[str], what: str) -> dict[str, float]:
    """Weights of a ridge logistic regression by name, the constant under "".

    Args:
        inputs: examples of each system; all systems have the same weight.
        what: "real", or "lasting", for which the kinds of events have their described shares.
    """
    flat = [one for system in inputs for one in system]
    x = np.asarray([[one.features[name] for name in names] for one in flat])
    own = [np.asarray([one.weight if what == "lasting" else 1.0 for one in system]) for system in inputs]
    weight = np.concatenate([one * len(flat) / len(inputs) / one.sum() for one in own])
    mean = np.average(x, axis=0, weights=weight)
    spread = np.maximum(np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight)), 1e-9)
    z = np.column_stack([np.ones(len(x)), (x - mean) / spread])
    sign = np.where([getattr(one, what) for one in flat], 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        score = sign * (z @ weights)
        gradient = -(z * (weight * sign / (1 + np.exp(score)))[:, None]).sum(axis=0)
        ridge = np.concatenate([[0.0], weights[1:]])
        return float(weight @ np.logaddexp(0, -score) + PENALTY * ridge @ ridge), gradient + 2 * PENALTY * ridge

    found = minimize(loss, np.zeros(z.shape[1]), jac=True, method="L-BFGS-B").x
    weights = found[1:] / spread
    return {"": float(found[0] - weights @ mean)} | dict(zip(names, map(float, weights), strict=True))


def _panel_examples(known: Year, seed: int, number: int) -> list[Example]:
    rng = np.random.default_rng([seed, number])
    one: Planted | None = plant(known, rng)
    if one is not None and seed in SHORT_SEEDS:
        one = shorten(one, rng)
    return list(examples(one, rng)) if one is not None else []


def _find_examples(known: Year, seeds: tuple[int, ...]) -> list[Example]:
    panels = [(known, seed, number) for seed in seeds for number in range(PANELS_PER_SEED)]
    with Pool() as pool:
        parts = [part for part in pool.starmap(_panel_examples, panels, chunksize=10) if part]
    panels_of = Counter(part[0].kind for part in parts)
    weight = {kind: SHARES[kind] / panels_of[kind] * len(parts) for kind in panels_of}
    return [replace(one, weight=weight[one.kind]) for part in parts for one in part]


def of_model(examples: Sequence[Example], model: panel_models.PanelModel) -> list[Example]:
    """The examples that a model rates."""
    return [one for one in examples if panel_models.model_of(one.sessions) is model]


def print_fit(
    label: str, systems: Sequence[Sequence[Example]], names: Mapping[str, float], what: str
) -> dict[str, float]:
    """Fit and print the weights of inputs; return them."""
    weights = fit(systems, [name for name in names if name not in ("", SHORT_PAST)], what)
    print(f"    {label}: { ({name: round(weight, 3) for name, weight in weights.items()}) }")
    return weights


def main() -> None:
    """Print the tables of weights."""
    tables = [DATA, *map(Path, sys.argv[1:])]
    years = [load_year(table) for table in tables]
    found, short = [_find_examples(one, SEEDS) for one in years], _find_examples(years[0], SHORT_SEEDS)
    for position, model in enumerate(panel_models.MODELS):
        mine = [of_model(system, model) for system in found]
        planted = [[one for one in system if one.real and one.first] for system in mine]
        print(f"model {position}: {[len(system) for system in mine]} candidates")
        real = print_fit("real", mine[:1], model.real, "real")
        if SHORT_PAST in model.real:
            print(f"    {SHORT_PAST}: {fit_short_past(of_model(short, model), real):.3f}")
        print_fit("lasting", planted[:1], model.lasting, "lasting")
        print_fit("lasting, all systems", planted, model.lasting, "lasting")
        for held, table in enumerate(tables[1:], start=1):
            print_fit(f"lasting, without {table.name}", planted[:held] + planted[held + 1 :], model.lasting, "lasting")


if __name__ == "__main__":
    main()
