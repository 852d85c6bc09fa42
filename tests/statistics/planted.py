"""Planted rules: cases of a wide matrix, a rule of one to three conditions, wrong labels, missing series.

Shared by the property tests and `bench/findings.py rules`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Scalar
from iowatch.findings import derive_parameters
from iowatch.statistics import SeriesResponse
from iowatch.statistics.rules import Condition, Rule
from tests.statistics.storage import explain_changes

MIB = 2**20
_AXES = tuple(
    itertools.product(
        ("POSIX", "MPIIO", "HDF5", "NETCDF4"),
        (47_008, MIB, 1_000_000, 4 * MIB),
        ("write", "read"),
        (16, 64, 256, 1024),
        (1, -1),
        ("scratch1", "scratch2"),
        ("old", "new"),
    )
)
_C = Condition
_CONDITIONS = (
    *(_C("api", "=", (api,)) for api in ("MPIIO", "HDF5", "NETCDF4")),
    *(_C("file", "=", (file,)) for file in ("shared", "per-process")),
    *(_C("aligned", "=", (truth,)) for truth in (True, False)),
    *(_C("operation", "=", (operation,)) for operation in ("write", "read")),
    _C("ranks", ">=", (64,)),
    _C("ranks", ">=", (256,)),
    _C("ranks", "<", (64,)),
    _C("transfer_bytes", ">=", (MIB,)),
    _C("transfer_bytes", "<", (MIB,)),
    _C("stripe_count", "=", (1,)),
    _C("file_system", "=", ("scratch1",)),
    _C("stack", "=", ("old",)),
)
# Parameters with the same meaning are not planted together.
_CONCEPT = {"api": "interface", "file": "interface", "aligned": "transfer", "transfer_bytes": "transfer"}
# Rules that select, or leave out, fewer series are not planted.
_LEAST = 3


@dataclass(frozen=True)
class Planted:
    """The result for a planted rule: whether it selects the `same` cases, and the number of additional conditions."""

    rule: Rule | None
    same: bool
    longer: int


def cases(n: int, stream: np.random.Generator) -> list[dict[str, Scalar]]:
    """`n` cases of the matrix, drawn without repetition: no axis is complete."""
    made: list[dict[str, Scalar]] = []
    for position in stream.choice(len(_AXES), n, replace=False):
        api, transfer, operation, ranks, stripes, file_system, stack = _AXES[position]
        made.append(
            {
                "benchmark": "ior",
                "api": api,
                "file": "per-process" if api == "POSIX" else "shared",
                "transfer_bytes": transfer,
                "block_bytes": transfer,
                "total_bytes": 100 * transfer * ranks,
                "operation": operation,
                "ranks": ranks,
                "stripe_count": stripes,
                "file_system": file_system,
                "stack": stack,
                "partition": "compute",
            }
        )
    return made


def cover(conditions: tuple[Condition, ...], known: list[dict[str, Scalar]]) -> NDArray[np.bool_]:
    """Which cases meet all conditions, shape (n,)."""
    return np.asarray([all(c.holds(derive_parameters(case)) for c in conditions) for case in known], dtype=bool)


def plant(known: list[dict[str, Scalar]], size: int, stream: np.random.Generator) -> NDArray[np.bool_]:
    """The cases that a random rule of `size` necessary conditions selects."""
    while True:
        chosen = tuple(_CONDITIONS[i] for i in stream.choice(len(_CONDITIONS), size, replace=False))
        truth = cover(chosen, known)
        concepts = {_CONCEPT.get(c.parameter, c.parameter) for c in chosen}
        needed = all((cover((*chosen[:i], *chosen[i + 1 :]), known) != truth).any() for i in range(size))
        if len(concepts) == size and needed and _LEAST <= truth.sum() <= len(known) - _LEAST:
            return truth


def trial(n: int, size: int, wrong: float, missing: float, stream: np.random.Generator) -> Planted:
    """Plant a rule and search for it.

    Args:
        n: number of cases.
        size: of the planted rule, in conditions.
        wrong: share of the series with a wrong label.
        missing: share of the series without data.
    """
    known = cases(n, stream)
    truth = plant(known, size, stream)
    labels = truth ^ (stream.random(n) < wrong)
    kept = np.flatnonzero(stream.random(n) >= missing)
    seen = [known[i] for i in kept]
    responses = [SeriesResponse(c, bool(labels[i]), math.log(0.5) * labels[i]) for i, c in zip(kept, seen, strict=True)]
    rule = explain_changes(responses).rule
    if rule is None:
        return Planted(None, False, 0)
    same = bool((cover(rule.conditions, seen) == truth[kept]).all())
    return Planted(rule, same, max(0, len(rule.conditions) - size))
