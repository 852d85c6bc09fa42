"""Measures `iowatch advise`: how often a planted best value is found, false advice, coverage after selection.

    python bench/advise.py [--draws 150] [--sessions 8 10 20 40]

The same properties as tests/experiments/advice/test_advice.py at larger size; figures are in docs/advise.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path

# In the place of bench/, so that the tests' data can be imported.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.experiments.advice.planted_advice import (  # noqa: E402
    AXES,
    Level,
    collective_with_hdf5,
    flat,
    full_striping,
    planted_entries,
)

from iowatch.experiments.advice.advice import Advice, AdvicePart, advise  # noqa: E402
from iowatch.experiments.advice.choices import AdvisedWorkload  # noqa: E402

_WORKLOAD = AdvisedWorkload("write", 100 * 2**30, 512)


def _advice(level: Level, sessions: int, draws: int) -> Iterator[Advice]:
    for seed in range(draws):
        yield advise(planted_entries(seed, AXES, sessions, level), _WORKLOAD, "planted")


def _parts(one: Advice, name: str) -> tuple[AdvicePart, ...]:
    return next(choice.parts for choice in one.choices if choice.choice.name == name)


def main() -> None:
    """Print one line per property and number of sessions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--sessions", type=int, nargs="+", default=[8, 10, 20, 40])
    chosen = parser.parse_args()
    draws = chosen.draws
    print(f"{draws} histories per row, {prod(map(len, AXES.values()))} cases")
    head = ("sessions", "false", "split", "right", "covered", "depends", "s")
    print("{:>9}{:>8}{:>8}{:>8}{:>9}{:>9}{:>7}".format(*head))
    for sessions in chosen.sessions:
        start = time.perf_counter()
        false = split = right = covered = depends = 0
        for one in _advice(flat, sessions, draws):
            false += any(part.is_difference for choice in one.choices for part in choice.parts)
            split += any(len(choice.parts) > 1 for choice in one.choices)
        for one in _advice(full_striping, sessions, draws):
            part = _parts(one, "stripe_count")[0]
            right += part.is_sure and part.best == -1
            cis = [other.ci for other in part.others if other.ci is not None]
            covered += part.best == -1 and all(low <= 1.3 <= high for low, high in cis)
        for one in _advice(collective_with_hdf5, sessions, draws):
            parts = {part.where: part for part in _parts(one, "collective")}
            found = parts.get("HDF5")
            depends += found is not None and found.is_sure and found.best is True
        elapsed = (time.perf_counter() - start) / (3 * draws)
        rates = (f"{number / draws:.1%}" for number in (false, split, right, covered, depends))
        print("{:>9}{:>8}{:>8}{:>8}{:>9}{:>9}{:>7.2f}".format(sessions, *rates, elapsed), flush=True)


if __name__ == "__main__":
    main()
