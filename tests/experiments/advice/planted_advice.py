"""Seeded histories with a known best value, for the tests of advice and bench/advise.py.

A case is benchio's, with all combinations of the given parameters. Every session measures all cases; a session has an
effect on all of them, each case one of its own, and some sessions of a case are slowed down by other users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from iowatch.comparison.sides import SideEntry
from iowatch.core import Case, Scalar
from iowatch.statistics import SideSamples

Level = Callable[[Mapping[str, Scalar]], float]
GIB = 2**30
SIZE: Mapping[str, Scalar] = {"operation": "write", "file": "shared", "ranks": 512, "total_bytes": 64 * GIB}


def planted_entries(
    seed: int, axes: Mapping[str, Sequence[Scalar]], sessions: int, level: Level, noise: float = 0.08
) -> list[SideEntry]:
    """One entry per combination of `axes`, with one value per session around `level` (a factor).

    Args:
        noise: standard deviation of the log of a case within a session; that of a session's common effect is twice.
    """
    rng = np.random.default_rng([seed, sessions])
    common = 2 * noise * rng.standard_normal(sessions)
    found = []
    for values in product(*axes.values()):
        parameters = {**SIZE, **dict(zip(axes, values, strict=True))}
        slowed = np.where(rng.random(sessions) < 0.1, np.log(rng.uniform(0.3, 0.9, sessions)), 0.0)
        logs = common + noise * rng.standard_normal(sessions) + slowed
        samples = {f"s{i:03}": (float(1000 * level(parameters) * np.exp(log)),) for i, log in enumerate(logs)}
        axes_of = {"system": "planted", "partition": "compute", "stack": "gnu"}
        found.append(SideEntry(Case("benchio", parameters), "bandwidth", axes_of, SideSamples(samples)))
    return found


AXES: Mapping[str, Sequence[Scalar]] = {
    "api": ("MPIIO", "HDF5", "NETCDF4"),
    "collective": (True, False),
    "stripe_count": (1, 4, -1),
    "stripe_bytes": (2**20, 2**23),
}


def flat(_case: Mapping[str, Scalar]) -> float:
    """No parameter has an effect."""
    return 1.0


def full_striping(case: Mapping[str, Scalar]) -> float:
    """Full striping is 30 % better than 1 or 4 stripes; nothing else has an effect."""
    return 1.3 if case["stripe_count"] == -1 else 1.0


def collective_with_hdf5(case: Mapping[str, Scalar]) -> float:
    """Collective transfers are 60 % better with HDF5, and make no difference with the others."""
    return 1.6 if case["collective"] and case["api"] == "HDF5" else 1.0
