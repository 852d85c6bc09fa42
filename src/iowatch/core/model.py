"""Frozen records of the vocabulary (docs/glossary.md): case, sample, summary, result, output.

They carry no behaviour beyond their own identity; parsers make them, the history keeps them, statistics and
reports read them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Literal

from iowatch.core.errors import InputError

Scalar = str | int | float | bool
OutputStatus = Literal["ok", "failed", "incomplete"]


def canonical_json(document: Mapping[str, Any]) -> str:
    """JSON that is the same on every machine: sorted keys, no blanks, no NaN, UTF-8 kept.

    Raises:
        InputError: a value that JSON cannot hold (NaN, infinity, an object).
    """
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"not representable as JSON: {error}") from error


def _normalise_number(value: Scalar) -> Scalar:
    """Whole floats become integers, so that 4.0 from one tool and 4 from another are the same case."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


@dataclass(frozen=True)
class Case:
    """A benchmark and all its parameters; equal cases have equal keys on every machine and in every release.

    Attributes:
        benchmark: `benchio`, `ior`, `mdtest`, `h5bench`…
        parameters: names of docs/architecture.md ("Case parameters") to scalars; None and absent are the same.
    """

    benchmark: str
    parameters: Mapping[str, Scalar]

    @property
    def canonical(self) -> str:
        """Canonical JSON: `{"benchmark": …, "parameters": {…}}`."""
        kept = {k: _normalise_number(v) for k, v in self.parameters.items() if v is not None}
        return canonical_json({"benchmark": self.benchmark, "parameters": kept})

    @property
    def key(self) -> str:
        """The first 16 hexadecimal digits of the canonical JSON's SHA-256."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    def without(self, *names: str) -> Case:
        """The same case with some parameters taken out (to pair cases along one axis)."""
        return Case(self.benchmark, {k: v for k, v in self.parameters.items() if k not in names})

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.canonical == other.canonical


@dataclass(frozen=True, slots=True)
class Summary:
    """max, median, min, mean and n of one result's samples, in the metric's unit."""

    n: int
    max: float
    median: float
    min: float
    mean: float


def summarise_samples(samples: Sequence[float]) -> Summary:
    """Summary of at least one sample.

    Raises:
        InputError: no samples, or one that is not finite.
    """
    if not samples or not all(math.isfinite(s) for s in samples):
        raise InputError("a summary needs at least one sample, all finite")
    return Summary(len(samples), max(samples), median(samples), min(samples), fmean(samples))


@dataclass(frozen=True)
class Result:
    """All samples of one metric of one operation of one case.

    Attributes:
        operation: `write`, `read`, `create`, `stat`…
        metric: a name in `iowatch.metrics`.
        unit: the metric's unit, repeated so that the record can be read alone.
        samples: one value a repetition, in the order measured.
        case: parameters without the operation.
    """

    operation: str
    metric: str
    unit: str
    samples: tuple[float, ...]
    case: Mapping[str, Scalar] = field(default_factory=dict)

    def full_case(self, benchmark: str) -> Case:
        """The case with its operation, as the history identifies it."""
        return Case(benchmark, {**self.case, "operation": self.operation})

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "samples": list(self.samples), "case": dict(self.case)}


@dataclass(frozen=True)
class Output:
    """What a strict parser gets from one output of one tool.

    Attributes:
        tool: `benchio`, `ior`, `mdtest`, `h5bench`.
        version: as printed, or None.
        status: `ok`; `failed` (the run reported or betrayed an error); `incomplete` (it was cut off).
        reason: why it is not ok; None when it is.
        results: only samples that were printed whole, finite, positive and below the metric's ceiling.
        facts: what else was printed and does not identify the case (hosts, library versions, times).
    """

    tool: str
    version: str | None
    status: OutputStatus
    reason: str | None
    results: tuple[Result, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document of `iowatch parse --json`."""
        return {**vars(self), "results": [result.to_json() for result in self.results], "facts": dict(self.facts)}
