"""What goes into the history and what comes out of it: plain frozen records, no SQLAlchemy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from iowatch.model import Case, Output, canonical_json

Origin = Literal["run", "import", "demo"]
SessionStatus = Literal["running", "ok", "failed", "incomplete"]


@dataclass(frozen=True, slots=True)
class StackRecord:
    """A stack's name and its stack.json; `{}` where nothing is known (imports)."""

    name: str
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the name and the canonical document."""
        text = canonical_json({"name": self.name, "document": dict(self.document)})
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it begins.

    Attributes:
        uuid: its identity; beginning the same session twice is the same as once.
        started_at: epoch seconds, UTC.
        attributes: anything worth keeping: command, versions, host.
    """

    uuid: str
    system: str
    suite: str
    origin: Origin
    started_at: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpectedResult:
    """One (run, operation, metric) that a session set out to measure."""

    run_name: str
    partition: str
    stack: str
    operation: str
    metric: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A kept file: `kind` is `stdout`, `stderr`, `record` or `darshan`; `sha256` finds it in var/artefacts."""

    kind: str
    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class RunRecord:
    """One execution of a benchmark with everything it left.

    Attributes:
        name: unique within the session, partition and stack; the name in the expected set.
        fingerprint: identity of the measurement; a run with a known fingerprint is not stored again.
        started_at: epoch seconds, UTC.
        wall_s: wall time of the job, if known.
        output: what the parser read.
        facts: hosts, directory, file system and other facts beside `output.facts`.
    """

    name: str
    partition: str
    stack: StackRecord
    fingerprint: str
    started_at: int
    output: Output
    wall_s: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    artefacts: tuple[Artefact, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the history has it; times in epoch seconds UTC."""

    id: int
    uuid: str
    system: str
    suite: str
    origin: str
    status: str
    started_at: int
    ended_at: int | None
    attributes: Mapping[str, Any]
    runs: int


@dataclass(frozen=True)
class RunRow:
    """A run as the history has it."""

    id: int
    session_uuid: str
    system: str
    name: str
    partition: str
    stack: str
    stack_document: Mapping[str, Any]
    tool: str
    version: str | None
    status: str
    reason: str | None
    started_at: int
    wall_s: float | None
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class SeriesRow:
    """A series' identity and extent: number of results, times of first and last (epoch s; None if empty)."""

    id: int
    system: str
    partition: str
    stack: str
    case: Case
    metric: str
    n: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """Which series: every field that is set must match."""

    system: str | None = None
    partition: str | None = None
    stack: str | None = None
    benchmark: str | None = None
    metric: str | None = None
    case_key: str | None = None


@dataclass(frozen=True)
class SeriesPoints:
    """One series in time order: arrays of shape (n,); values in the metric's unit, time in epoch seconds."""

    series_id: int
    time: NDArray[np.int64]
    max: NDArray[np.float64]
    median: NDArray[np.float64]
    min: NDArray[np.float64]
    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    run_id: NDArray[np.int64]
