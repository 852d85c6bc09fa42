"""Make panels with planted events from the year of a system, for the scorer of tests/data/panels.tar.xz.

    python bench/statistics/panels_fresh.py SUMMARIES SEED FOLDER [--panels 100]
    python bench/statistics/panels.py FOLDER

SUMMARIES is a table of TOKIO (`summaries/` of NERSC/tokio-abcutils; reference/series/edison has that of Edison). Scores
on a seed that no choice has used are proof. README.md in the archive describes the files; noise and events are those of
`simulated_panels.py`, and a system whose year served to fit the models is not an unseen one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from simulated_panels import Floats, Planted, load_year, plant

from iowatch.core import Scalar

HOUR = 3600
MORNINGS, BEFORE = 14, 4
"""Mornings of a panel, and those before an event, the first of which serves to learn what stood already."""
FAR, SHARE, LEAST = 3.0, 0.2, 3
"""A shared bad or good session: this share of the series, and this number, beyond so many scatters on one side."""


def scatters(noise: Floats) -> Floats:
    """Robust standard deviation of each series, shape (S,)."""
    centre = np.nanmedian(noise, axis=1, keepdims=True)
    return 1.4826 * np.asarray(np.nanmedian(np.abs(noise - centre), axis=1))


def shared_sessions(one: Planted, sigma: Floats) -> list[tuple[int, int, str, float]]:
    """Runs of shared bad or good sessions of the noise: first and last (epoch seconds), direction, largest share."""
    away = (one.noise - np.nanmedian(one.noise, axis=1, keepdims=True)) / sigma[:, None]
    measured = np.maximum(np.isfinite(away).sum(axis=0), 1)
    found = []
    for side, direction in ((-1, "down"), (1, "up")):
        number = (side * away > FAR).sum(axis=0)
        is_shared = np.concatenate([[False], (number >= LEAST) & (number >= SHARE * measured), [False]])
        edges = np.flatnonzero(np.diff(is_shared.astype(int))).reshape(-1, 2)
        for begin, end in edges:
            share = round(float((number / measured)[begin:end].max()), 2)
            found.append((int(one.starts[begin]), int(one.starts[end - 1]), direction, share))
    return sorted(found)


def describe_groups(one: Planted, sigma: Floats) -> list[dict[str, Any]]:
    """The planted groups as the scorer reads them."""
    if one.first is None:
        return []
    found = []
    for direction, members in one.groups.items():
        rows = sorted(members)
        shifts = [float(np.nanmax(np.abs(one.logs[i] - one.noise[i]))) for i in rows]
        measured = [np.flatnonzero(np.isfinite(one.logs[i, one.first :])) for i in rows]
        found.append(
            {
                "direction": ("down", "up")[direction],
                "members": [f"s{i:02}" for i in rows],
                "rule": None,
                "snr": [round(shift / float(sigma[i]), 2) for i, shift in zip(rows, shifts, strict=True)],
                "measured_by": [int(at[0]) + 1 if len(at) else None for at in measured],
            }
        )
    return found


def build_panel(one: Planted, system: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panel and its truth, in the formats of the archive."""
    sigma = scatters(one.noise)
    last = one.first - 1 if one.first is not None else int(rng.integers(49, len(one.starts) - 14))
    columns = range(last - BEFORE + 1, last - BEFORE + 1 + MORNINGS)
    mornings = [int(np.nanmax(one.times[:, column])) + HOUR for column in columns]
    levels = np.exp(rng.uniform(np.log(300), np.log(60_000), len(one.cases)))
    series = []
    for i, (case, level) in enumerate(zip(one.cases, levels, strict=True)):
        kept = np.flatnonzero(np.isfinite(one.logs[i]))
        points = sorted((int(one.times[i, k]), float(level * np.exp(one.logs[i, k]))) for k in kept)
        typed: dict[str, Scalar] = {**case, "ranks": int(str(case["ranks"]))}
        series.append({"id": f"s{i:02}", "case": typed, "points": points})
    truth: dict[str, Any] = {
        "system": system,
        "kind": one.kind.partition(",")[0],
        "groups": describe_groups(one, sigma),
        "natural": shared_sessions(one, sigma),
        "length": one.length,
        "mornings": mornings,
        "night_starts": [int(start) for start in one.starts],
        "first_night": None,
        "last_night": None,
    }
    if one.first is not None:
        truth |= {"event_morning": BEFORE, "first_night": int(one.starts[one.first])}
        if one.length is not None:
            truth["last_night"] = int(one.starts[min(one.first + one.length, len(one.starts)) - 1])
    return {"system": system, "mornings": mornings, "series": series}, truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summaries", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--panels", type=int, default=100)
    given = parser.parse_args()
    known, system = load_year(given.summaries), given.summaries.name.partition("-")[0]
    (given.folder / "panels").mkdir(parents=True, exist_ok=True)
    truths = {}
    for number in range(given.panels):
        rng = np.random.default_rng([given.seed, number])
        name = f"{system}-{given.seed}-{number:03}"
        panel, truths[name] = build_panel(plant(known, rng), system, rng)
        (given.folder / "panels" / f"{name}.json").write_text(json.dumps(panel))
    (given.folder / "truth.json").write_text(json.dumps(truths))


if __name__ == "__main__":
    main()
