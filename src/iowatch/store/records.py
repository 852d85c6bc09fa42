"""Frozen records that the history stores and returns; independent of SQLAlchemy.

Times are epoch seconds, UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Case, Output, RunKey, canonical_json
from iowatch.store.facts import NO_RUN_FACTS, NO_SESSION_FACTS, RunFacts, SessionFacts

Origin = Literal["run", "import", "demo", "profile"]
SessionStatus = Literal["running", "ok", "failed", "incomplete"]


@dataclass(frozen=True, slots=True)
class StackRecord:
    """Name and stack.json of a stack; `{}` if unknown (imports)."""

    name: str
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of name and canonical document."""
        text = canonical_json({"name": self.name, "document": dict(self.document)})
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session at its start.

    Attributes:
        uuid: identity; starting the same session twice has no further effect.
    """

    uuid: str
    system: str
    suite: str
    origin: Origin
    started_at: int
    facts: SessionFacts = NO_SESSION_FACTS

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "uuid": self.uuid,
            "system": self.system,
            "suite": self.suite,
            "origin": self.origin,
            "started_at": self.started_at,
            "attributes": dict(self.facts.document),
        }


@dataclass(frozen=True, slots=True)
class Artefact:
    """A stored file: `kind` is `stdout`, `stderr`, `record` or `darshan`; `sha256` names it in var/artefacts."""

    kind: str
    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class RunRecord:
    """One execution of a benchmark with its output, facts and files.

    Attributes:
        name: unique within the session, partition and stack; the name in the expected set.
        fingerprint: identity of the measurement; a run with a known fingerprint is not stored again.
        wall_s: wall time of the job, if known.
        output: result of the parser.
        facts: document of `RunFacts`, besides `output.facts`.
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
    """A session in the history; `runs` is the number of its runs."""

    id: int
    uuid: str
    system: str
    suite: str
    origin: str
    status: str
    started_at: int
    ended_at: int | None
    facts: SessionFacts
    runs: int

    @property
    def is_interleaved(self) -> bool:
        """Whether it repeats some cases, and is no run of its suite: A/B, interference, or after a maintenance."""
        facts = self.facts
        return facts.ab_run is not None or facts.maintenance is not None or bool(facts.interference)

    @property
    def is_of_suite(self) -> bool:
        """Whether iowatch ran its suite, as each night: no import and no experiment."""
        return self.origin == "run" and not self.is_experiment

    @property
    def is_experiment(self) -> bool:
        """Whether it repeats some cases, or is a step of an experiment: it is no night."""
        return self.is_interleaved or self.facts.experiment is not None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "id": self.id,
            "uuid": self.uuid,
            "system": self.system,
            "suite": self.suite,
            "origin": self.origin,
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "attributes": dict(self.facts.document),
            "runs": self.runs,
        }


@dataclass(frozen=True)
class RunRow:
    """A run in the history."""

    id: int
    session_uuid: str
    system: str
    name: str
    partition: str
    stack: str
    tool: str
    version: str | None
    status: str
    reason: str | None
    started_at: int
    wall_s: float | None
    stack_document: Mapping[str, Any] = field(default_factory=dict)
    facts: RunFacts = NO_RUN_FACTS

    @property
    def key(self) -> RunKey:
        """The run in its session."""
        return RunKey(self.partition, self.stack, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**asdict(self), "facts": dict(self.facts.document)}


@dataclass(frozen=True)
class RunWithFact:
    """A run that recorded a certain fact.

    Attributes:
        session_start: of its session, epoch seconds.
        status: `ok`, `failed`, `incomplete`.
        facts: that fact and the name of the file system, no others.
    """

    id: int
    session: str
    session_start: int
    partition: str
    status: str
    facts: RunFacts


@dataclass(frozen=True)
class SeriesRow:
    """Identity and extent of a series: number of results, times of the first and last (None if empty)."""

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
class SeriesExtent:
    """Extent of a series: number of results, and times of the first and last.

    Attributes:
        newest: highest id of a run of any series when the extent was read; later results have higher ones.
    """

    n: int
    first: int
    last: int
    newest: int


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """Selects series: every field that is set must match."""

    system: str | None = None
    partition: str | None = None
    stack: str | None = None
    benchmark: str | None = None
    metric: str | None = None
    case_key: str | None = None


ALL_SERIES = SeriesFilter()


@dataclass(frozen=True, slots=True)
class ResultFilter:
    """Selects results: every field that is set must match; `since` <= time < `until`."""

    series: SeriesFilter = field(default_factory=SeriesFilter)
    session: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """All samples of one metric of one run.

    Attributes:
        time: start of the run.
        run: name of the run, unique in the session, partition and stack.
        status: `ok`, `failed`, `incomplete`.
        pair: number of the pair in an A/B run, 0 for its warm-up, or None.
        side: `left` or `right` in an A/B run, where both may be the same stack, or None.
        samples: in the unit of the metric, in the order measured.
        content: id of the stack.json of the stack in this history; None for files.
        number: id of the run in this history; None for files.
    """

    session: str
    time: int
    system: str
    partition: str
    stack: str
    case: Case
    metric: str
    run: str
    status: str
    pair: int | None
    side: str | None
    samples: tuple[float, ...]
    # Specific to one history: not part of the measurement.
    content: int | None = field(default=None, compare=False)
    number: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SeriesPoints:
    """Summaries of one series in time order: arrays of shape (n,); values in the unit of the metric."""

    series_id: int
    time: NDArray[np.int64]
    max: NDArray[np.float64]
    median: NDArray[np.float64]
    min: NDArray[np.float64]
    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    run_id: NDArray[np.int64]

    def only(self, is_selected: NDArray[np.bool_]) -> SeriesPoints:
        """Return the results where `is_selected`, shape (n,), is true."""
        if is_selected.all():
            return self
        return SeriesPoints(
            series_id=self.series_id,
            time=self.time[is_selected],
            max=self.max[is_selected],
            median=self.median[is_selected],
            min=self.min[is_selected],
            mean=self.mean[is_selected],
            count=self.count[is_selected],
            run_id=self.run_id[is_selected],
        )


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """One series in time order with all samples; values in the unit of the metric.

    Attributes:
        time, run_id, max, median, min, count: shape (n,).
        samples: shape (sum of count,), result after result in the order measured.
    """

    series_id: int
    time: NDArray[np.int64]
    run_id: NDArray[np.int64]
    max: NDArray[np.float64]
    median: NDArray[np.float64]
    min: NDArray[np.float64]
    count: NDArray[np.int64]
    samples: NDArray[np.float64]

    def only(self, is_selected: NDArray[np.bool_]) -> SeriesSamples:
        """Return the results where `is_selected`, shape (n,), is true."""
        if is_selected.all():
            return self
        return SeriesSamples(
            series_id=self.series_id,
            time=self.time[is_selected],
            run_id=self.run_id[is_selected],
            max=self.max[is_selected],
            median=self.median[is_selected],
            min=self.min[is_selected],
            count=self.count[is_selected],
            samples=self.samples[np.repeat(is_selected, self.count)],
        )


@dataclass(frozen=True, slots=True)
class StackUse:
    """One version of a stack's `stack.json` on one system: times of the `first` and `last` run with it."""

    system: str
    partition: str
    name: str
    digest: str
    first: int
    last: int
    runs: int


@dataclass(frozen=True, slots=True)
class RunSessions:
    """Sorted ids of runs, and ids of their sessions; both of shape (runs,)."""

    run: NDArray[np.int64]
    session: NDArray[np.int64]

    def of(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the session ids of runs, shape (n,); -1 for runs that were written after this was read."""
        if not len(self.run):
            return np.full(len(runs), -1, dtype=np.int64)
        positions = np.minimum(np.searchsorted(self.run, runs), len(self.run) - 1)
        return np.where(self.run[positions] == runs, self.session[positions], -1)


@dataclass(frozen=True, slots=True)
class DetectionRow:
    """The last detection of one series.

    Attributes:
        points, last_time: number of points used, and the time of the last one.
        version: version of the method and its settings; detections of other versions are not reused.
        document: result as plain JSON.
    """

    series_id: int
    points: int
    last_time: int
    version: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding as last written."""

    id: str
    system: str
    first_seen_at: int
    updated_at: int
    state: str
    document: Mapping[str, Any]


def fold_node_names(names: Sequence[str]) -> str:
    """Fold node names into the notation of Slurm, sorted, each once: n3, n1, n2, n7 is `n[1-3,7]`.

    Names with special characters of that notation (commas, brackets, operators) are only joined.
    """
    # Imported here: 0.06 s that only commands that show nodes need.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        folded = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    except NodeSetException:
        return ",".join(names)
    return str(folded) if set(folded) == set(names) else ",".join(names)
