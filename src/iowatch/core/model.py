"""Frozen records of the vocabulary (docs/glossary.md): case, sample, summary, result, output, layer.

They have no behaviour beyond their identity: parsers create them, the history stores them, statistics and
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


def parse_json(text: str, **options: Any) -> Any:
    """Return the document of a JSON text.

    Args:
        options: as for `json.loads`.

    Raises:
        ValueError: not JSON, or nested so deeply that Python cannot read it.
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def canonical_json(document: Mapping[str, Any]) -> str:
    """Return JSON that is identical on every machine: sorted keys, no blanks, no NaN, UTF-8 unescaped.

    Raises:
        InputError: a value that JSON cannot represent (NaN, infinity, an object).
    """
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"not representable as JSON: {error}") from error


def _normalise_number(value: Scalar) -> Scalar:
    """Convert whole floats to integers, so that 4.0 from one tool and 4 from another give the same case."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


@dataclass(frozen=True)
class Case:
    """A benchmark and all its parameters; equal cases have equal keys on every machine and in every release.

    Attributes:
        benchmark: `benchio`, `ior`, `mdtest`, `h5bench`…
        parameters: name (docs/case-parameters.md) to scalar; None is the same as absent.
    """

    benchmark: str
    parameters: Mapping[str, Scalar]

    @property
    def canonical(self) -> str:
        """Return canonical JSON: `{"benchmark": …, "parameters": {…}}`."""
        stated = {name: _normalise_number(value) for name, value in self.parameters.items() if value is not None}
        return canonical_json({"benchmark": self.benchmark, "parameters": stated})

    @property
    def key(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    def without(self, *names: str) -> Case:
        """Return the case without some parameters (to pair cases along one axis)."""
        return Case(self.benchmark, {name: value for name, value in self.parameters.items() if name not in names})

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.canonical == other.canonical


@dataclass(frozen=True, slots=True)
class Summary:
    """max, median, min, mean and n of the samples of one result, in the unit of the metric."""

    n: int
    max: float
    median: float
    min: float
    mean: float


def summarise_samples(samples: Sequence[float]) -> Summary:
    """Return the summary of at least one sample.

    Raises:
        InputError: no samples, or a sample that is not finite.
    """
    if not samples or not all(math.isfinite(sample) for sample in samples):
        raise InputError("a summary needs at least one sample, all finite")
    return Summary(len(samples), max(samples), median(samples), min(samples), fmean(samples))


@dataclass(frozen=True)
class Result:
    """All samples of one metric of one operation of one case.

    Attributes:
        operation: `write`, `read`, `create`, `stat`…
        metric: a name in `iowatch.metrics`.
        unit: the unit of the metric, repeated so that the record is self-contained.
        samples: one value per repetition, in the order measured.
        case: parameters without the operation.
    """

    operation: str
    metric: str
    unit: str
    samples: tuple[float, ...]
    case: Mapping[str, Scalar] = field(default_factory=dict)

    def full_case(self, benchmark: str) -> Case:
        """Return the case including its operation, which identifies it in the history.

        A workload is a benchmark of its own: its cases have its name, whichever program ran it.
        """
        rest = {name: value for name, value in self.case.items() if name != "workload"}
        return Case(str(self.case.get("workload") or benchmark), {**rest, "operation": self.operation})

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "samples": list(self.samples), "case": dict(self.case)}


@dataclass(frozen=True)
class Output:
    """The result of a strict parser for one output of one tool.

    Attributes:
        tool: `benchio`, `ior`, `mdtest`, `h5bench`.
        version: as printed, or None.
        status: `ok`; `failed` (the output reports or indicates an error); `incomplete` (truncated or damaged).
        reason: why the status is not `ok`; else None.
        results: only samples that are complete, finite, positive and below the ceiling of the metric.
        facts: other printed values that do not identify the case (hosts, library versions, times).
    """

    tool: str
    version: str | None
    status: OutputStatus
    reason: str | None
    results: tuple[Result, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch parse --json`."""
        return {**vars(self), "results": [result.to_json() for result in self.results], "facts": dict(self.facts)}


LayerWork = Literal["share", "bytes", "operations"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer between a program and the hardware, of which a finding can say that it moved (docs/layers.md).

    Attributes:
        name: in sentences.
        control: what measures it, in words; series of it are its control series.
        work: what a fault costs: a share of the time of whatever passes through, or time per byte or per operation.
        has_directions: writes and reads can change separately.
        controls_notice: probability that a control series notices a fault; lower where they are of several operations,
            of which one can be slow alone.
    """

    name: str
    control: str
    work: LayerWork = "bytes"
    has_directions: bool = True
    controls_notice: float = 0.97
