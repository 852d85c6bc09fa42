"""Conditions on case parameters: what a rule may be made of, how it reads, and how willingly it is believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from iowatch.model import Scalar
from iowatch.units import MIB, format_size

Parameters = Mapping[str, Scalar]
Operator = Literal["=", "!=", "in", ">=", "<"]

# HDF5, NetCDF-4 and PnetCDF write a shared file through MPI-IO.
_OVER_MPIIO = {"HDF5", "NETCDF4", "PNETCDF"}

# Bits that a condition costs: a prior on what an event of a machine acts on. Interfaces, file layout and
# alignment are code paths of a file system; a benchmark's name or a size as such hardly ever is a cause.
_BITS: dict[str, float] = {
    "mpiio": 1.0,
    "file": 1.1,
    "operation": 1.2,
    "aligned": 1.2,
    "file_system": 1.2,
    "stack": 1.3,
    "partition": 1.3,
    "api": 1.5,
    "stripe_count": 1.6,
    "collective": 1.6,
    "pattern": 2.0,
    "nodes": 2.2,
    "layout": 2.2,
    "ranks": 2.5,
    "transfer_bytes": 2.5,
    "benchmark": 2.6,
    "total_bytes": 5.0,
    "block_bytes": 5.0,
    "segments": 5.0,
    "local_size": 5.0,
    "global_size": 5.0,
}
_OTHER_BITS = 3.5
# `POSIX` or `file per process` says more than `not MPI-IO`.
_VALUE_BITS: dict[tuple[str, Scalar], float] = {("mpiio", False): 0.6}
# Numbers have an order: `ranks >= 64` is the plainer remark than `ranks != 16` or `ranks in 64, 256`.
_NO_ORDER_BITS = 0.6
_SIZES = ("transfer_bytes", "block_bytes", "total_bytes", "stripe_bytes", "alignment_bytes")

# Order in which conditions are read out: "unaligned MPI-IO shared file reads".
_ORDER = ["file_system", "partition", "stack", "benchmark", "aligned", "mpiio", "api", "file", "operation"]
_WORDS: dict[tuple[str, Scalar], str] = {
    ("mpiio", True): "MPI-IO",
    ("mpiio", False): "not MPI-IO",
    ("file", "shared"): "shared file",
    ("file", "per-process"): "file per process",
    ("file", "per-node"): "file per node",
    ("aligned", True): "aligned",
    ("aligned", False): "unaligned",
    ("collective", True): "collective",
    ("collective", False): "independent",
    ("stripe_count", -1): "full striping",
    ("stripe_count", 0): "default striping",
    ("operation", "write"): "writes",
    ("operation", "read"): "reads",
}
_BARE = ("operation", "api", "benchmark", "stack", "partition", "file_system", "pattern")


# A parameter with more values than this is compared for equality and order only.
_MOST_VALUES = 24


def derive(parameters: Parameters) -> dict[str, Scalar]:
    """Parameters with what follows from them and means something to a file system.

    `aligned`: whole MiB transfers (Lustre's and GPFS's blocks are multiples of 2^20 bytes, or divide it);
    `mpiio`: the file is reached through MPI-IO, directly or below HDF5, NetCDF-4, PnetCDF.
    """
    derived = dict(parameters)
    transfer = parameters.get("transfer_bytes")
    if isinstance(transfer, int) and transfer > 0:
        derived["aligned"] = transfer % MIB == 0
    api = parameters.get("api")
    if isinstance(api, str):
        over = api in _OVER_MPIIO and parameters.get("file") == "shared"
        derived["mpiio"] = api == "MPIIO" or over
    return derived


def bits_of(parameter: str) -> float:
    """Prior cost of a condition on a parameter; the more meaningful to a file system, the less."""
    return _BITS.get(parameter, _OTHER_BITS)


@dataclass(frozen=True, slots=True)
class Condition:
    """One parameter compared with one value (`in`: with several).

    A case without the parameter meets no condition on it: what a tool does not have cannot be the cause.
    """

    parameter: str
    operator: Operator
    values: tuple[Scalar, ...]

    def holds(self, derived: Parameters) -> bool:
        """Whether `derived` parameters meet the condition."""
        found = derived.get(self.parameter)
        if found is None:
            return False
        if self.operator == "!=":
            return found not in self.values
        if self.operator in ("=", "in"):
            return found in self.values
        assert isinstance(found, (int, float))
        limit = self.values[0]
        assert isinstance(limit, (int, float))
        return found >= limit if self.operator == ">=" else found < limit

    @property
    def bits(self) -> float:
        """Cost of believing in it: the parameter's prior, more for anything but plain equality."""
        extra = {"=": 0.0, "!=": 0.9, "in": 0.4 * len(self.values), ">=": 1.0, "<": 1.0}[self.operator]
        if self.operator in ("!=", "in") and _is_number(self.values[0]):
            extra += _NO_ORDER_BITS
        return bits_of(self.parameter) + extra + _VALUE_BITS.get((self.parameter, self.values[0]), 0.0)

    @property
    def words(self) -> str:
        """The condition for people: `MPI-IO`, `unaligned`, `ranks >= 64`."""
        if self.operator == "=" and (self.parameter, self.values[0]) in _WORDS:
            return _WORDS[self.parameter, self.values[0]]
        values = [shown(self.parameter, v) for v in self.values]
        if self.parameter in _BARE and self.operator in ("=", "in"):
            return " or ".join(values)
        if self.parameter in _BARE and self.operator == "!=":
            return f"not {values[0]}"
        return f"{self.parameter} {self.operator} {', '.join(values)}"


def shown(parameter: str, value: Scalar) -> str:
    """One value of a parameter for people: `1 MiB`, `1,000,000 B`, `shared file`."""
    if (parameter, value) in _WORDS:
        return _WORDS[parameter, value]
    if parameter in _SIZES and isinstance(value, int):
        return format_size(value) if value % 1024 == 0 else f"{value:,} B"
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(conditions: Sequence[Condition]) -> str:
    """A conjunction for people, in the order of speech; `all cases` where there is no condition."""
    if not conditions:
        return "all cases"
    ordered = sorted(conditions, key=lambda c: _ORDER.index(c.parameter) if c.parameter in _ORDER else 99)
    return " ".join(c.words if c.parameter in _ORDER else f"with {c.words}" for c in ordered)


def candidates(derived: Sequence[Parameters], changed: NDArray[np.bool_]) -> list[Condition]:
    """Every condition that could separate the cases: the cheapest of those that cover the same cases first.

    Args:
        derived: parameters of each case, as `derive` gives them.
        changed: shape (n,), which of them changed; it orders the values of a parameter for `in`.
    """
    found: list[Condition] = []
    for name in sorted({key for parameters in derived for key in parameters}):
        values = [parameters.get(name) for parameters in derived]
        distinct = sorted({v for v in values if v is not None}, key=lambda v: (str(type(v)), v))
        found += [Condition(name, "=", (v,)) for v in distinct]
        if 2 < len(distinct) <= _MOST_VALUES:
            found += [Condition(name, "!=", (v,)) for v in distinct]
            found += _sets(name, values, distinct, changed)
        if len(distinct) > 2:
            found += _thresholds(name, distinct)
    return sorted(found, key=lambda c: (c.bits, c.parameter, str(c.values)))


def _sets(
    name: str, values: Sequence[Scalar | None], distinct: Sequence[Scalar], changed: NDArray[np.bool_]
) -> Iterable[Condition]:
    """Sets of the values that changed most: in this order a best split is a prefix (CART, 1984)."""

    def share(value: Scalar) -> float:
        return float(np.mean([c for v, c in zip(values, changed, strict=True) if v == value]))

    ordered = sorted(distinct, key=lambda v: -share(v))
    for size in range(2, min(len(distinct) - 1, 4) + 1):
        yield Condition(name, "in", tuple(sorted(ordered[:size], key=lambda v: (str(type(v)), v))))


def _thresholds(name: str, distinct: Sequence[Scalar]) -> Iterable[Condition]:
    """Splits of numbers by their order; stripe counts that stand for "default" and "all" have none."""
    named = name == "stripe_count" and any((name, v) in _WORDS for v in distinct)
    if not named and all(_is_number(v) for v in distinct):
        for limit in distinct[1:]:
            yield Condition(name, ">=", (limit,))
            yield Condition(name, "<", (limit,))


def _is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
