"""Panels of series with planted events, made from the year of a system, for `panels_fresh.py`.

Panels are made as tests/data/panels.tar.xz describes (README.md inside it): all series of a system over 110 to 130
sessions, less their lasting steps and slow variation, so that bad sessions, gaps and outliers stay together; half of
them with blocks of sessions in another order; 40 % with a lasting event, 30 % with one of 1 to 6 sessions.
docs/weights.md describes how the models of `iowatch.statistics.panel` were fitted to such panels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from detect_edison import DATA, DAY, year
from numpy.typing import NDArray

from iowatch.core import Scalar
from iowatch.statistics.panel_table import session_starts

Floats = NDArray[np.float64]

LASTING, TRANSIENT = 0.4, 0.3
"""Share of the panels with a lasting event, and with one that is over after 1 to 6 sessions."""
TWO_GROUPS = 0.25
"""Share of the lasting events with a group in each direction."""
LENGTHS = (0.34, 0.2, 0.15, 0.12, 0.1, 0.09)
"""Share of the transients of 1 to 6 sessions."""


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
        """`none`, `transient`, `lasting` or `lasting, two groups`."""
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
