"""Recorded gates: what `iowatch gate --record` keeps with the session of its pairs (docs/gate.md).

    gate --record ──> record of a gate: commits, branch, document of --json ──> session in the history
                                                                                   │
         page gates.html (relative levels over commits) <── read_recorded_gates <──┤
         iowatch bisect --from-gates                    <──────────────────────────┘

A commit may be gated several times: every gate is kept, and the newest one is shown.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from iowatch.core import Scalar, canonical_json
from iowatch.store import SessionRow

_LOG = logging.getLogger(__name__)

# Key of the record among the facts of a session.
RECORD = "gate_record"


class CommitFacts(BaseModel):
    """A commit when it was gated; it may be missing from its repository later.

    Attributes:
        commit: hash.
        subject: first line of its message.
        committed_s: epoch seconds of the committer.
        ancestors: number of commits that it contains, itself included; None in a shallow clone, which lacks some.
    """

    model_config = ConfigDict(frozen=True)

    commit: str
    subject: str
    committed_s: int
    ancestors: int | None = None


class _Document(BaseModel):
    """A part of the document of `iowatch gate --json`: fields that are read here; further ones are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")


class RecordedResult(_Document):
    """One result of both builds; numbers are None where there are none.

    Attributes:
        base, head: medians in the unit.
        change: of the performance, -0.1 is 10 % slower.
        decision: `within`, `slower`, `erratic`, or a word for an undecided one.
    """

    name: str
    run: str
    case: dict[str, Scalar]
    metric: str
    unit: str
    base: float | None = None
    head: float | None = None
    change: float | None = None
    interval: tuple[float | None, float | None] = (None, None)
    pairs: int = 0
    decision: str

    @cached_property
    def key(self) -> str:
        """Identity of the result across gates: its run, case and metric."""
        return canonical_json({"run": self.run, "case": self.case, "metric": self.metric})


class RecordedCount(_Document):
    """A count of one run that differs between the builds."""

    run: str
    name: str
    base: int
    head: int


class RecordedReason(_Document):
    """What failed or was left out, and why."""

    name: str
    reason: str


class RecordedDocument(_Document):
    """The document of `iowatch gate --json`; `counts` is None if nothing was counted."""

    decision: str
    summary: str
    base: str
    head: str
    margin: float
    seconds: float = 0.0
    libraries: tuple[str, ...] = ()
    results: tuple[RecordedResult, ...] = ()
    failed: tuple[RecordedReason, ...] = ()
    left_out: tuple[RecordedReason, ...] = ()
    counts: tuple[RecordedCount, ...] | None = None
    counts_refused: str = ""


class GateRecord(BaseModel):
    """A gate of two commits of a package.

    Attributes:
        format: increased when a field changes its meaning.
        package: name of the library.
        branch: of the head.
        repository: directory of the repository on the host of the gate.
        head: the commit that the gate decided about.
        base: the commit with which it was compared; None if the base is another build, such as a release.
        base_build: digest of the libraries of the base: equal for equal builds.
        build_command: of `git:` builds; None for the usual one, or other builds.
        stack: stack that `git:` builds were built for; None for other builds.
        scratch: directory that was written in.
        missing_commits: earlier gated commits of the branch that it no longer contained, after a forced push.
        document: of `iowatch gate --json`.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1]
    package: str
    branch: str
    repository: str
    head: CommitFacts
    base: CommitFacts | None
    base_build: str
    build_command: str | None = None
    stack: str | None = None
    scratch: str | None = None
    missing_commits: tuple[str, ...] = ()
    document: RecordedDocument


@dataclass(frozen=True)
class RecordedGate:
    """A gate in the history, with the session of its pairs."""

    session: SessionRow
    record: GateRecord

    @property
    def commit(self) -> str:
        """Hash of the head."""
        return self.record.head.commit

    @property
    def decision(self) -> str:
        """`pass`, `regression` or `undecided`."""
        return self.record.document.decision

    @property
    def results(self) -> Sequence[RecordedResult]:
        """Its results."""
        return self.record.document.results

    @property
    def failed_runs(self) -> frozenset[str]:
        """Names of the runs that fail on the head only; `everything` if no run works."""
        return frozenset(failure.name for failure in self.record.document.failed)

    def result(self, key: str) -> RecordedResult | None:
        """The result with this key (`RecordedResult.key`), or None."""
        return self._results_by_key.get(key)

    @cached_property
    def _results_by_key(self) -> dict[str, RecordedResult]:
        return {result.key: result for result in self.results}


@dataclass(frozen=True)
class GateRecords:
    """The recorded gates among sessions.

    Attributes:
        gates: newest first.
        faults: records that cannot be read, each with its session.
    """

    gates: tuple[RecordedGate, ...]
    faults: tuple[str, ...] = ()


def read_recorded_gates(sessions: Iterable[SessionRow]) -> GateRecords:
    """The recorded gates among sessions; a record that cannot be read is reported and left out."""
    gates: list[RecordedGate] = []
    faults: list[str] = []
    for session in sessions:
        stored = session.facts.document.get(RECORD)
        if stored is None:
            continue
        try:
            gates.append(RecordedGate(session, GateRecord.model_validate(stored)))
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            field = ".".join(str(name) for name in details["loc"])
            faults.append(f"gate of session {session.uuid}: field {field}: {details['msg']}")
    for fault in faults:
        _LOG.warning("not shown: %s", fault)
    # By the time of the gate, not of the commit.
    gates.sort(key=lambda gate: (gate.session.started_at, gate.session.id), reverse=True)
    return GateRecords(tuple(gates), tuple(faults))


@dataclass(frozen=True)
class CommitGates:
    """All gates of one commit on one branch.

    Attributes:
        newest: the gate that is shown.
        earlier: the other ones, newest first.
        is_missing: whether a later gate of the branch did not find the commit in it: a forced push replaced it.
    """

    newest: RecordedGate
    earlier: tuple[RecordedGate, ...]
    is_missing: bool


def gates_by_commit(gates: Sequence[RecordedGate]) -> tuple[CommitGates, ...]:
    """The gates of a branch in the order of its commits, oldest commit first.

    Args:
        gates: of one package, system and branch, newest first.
    """
    gates_of: dict[str, list[RecordedGate]] = defaultdict(list)
    for gate in gates:
        gates_of[gate.commit].append(gate)
    has_ancestors = has_commit_order(gates)
    commits: list[CommitGates] = []
    for commit, of_commit in gates_of.items():
        newest, *earlier = of_commit
        is_missing = any(commit in gate.record.missing_commits for gate in gates if _is_newer(gate, newest))
        commits.append(CommitGates(newest, tuple(earlier), is_missing))

    def order(commit: CommitGates) -> tuple[int, int, str]:
        head = commit.newest.record.head
        ancestors = head.ancestors if has_ancestors and head.ancestors is not None else 0
        return ancestors, head.committed_s, head.commit

    return tuple(sorted(commits, key=order))


def has_commit_order(gates: Sequence[RecordedGate]) -> bool:
    """Whether the order of the commits is known: shallow clones do not know it. Else commits are ordered by date."""
    return all(gate.record.head.ancestors is not None for gate in gates)


def _is_newer(gate: RecordedGate, other: RecordedGate) -> bool:
    return (gate.session.started_at, gate.session.id) > (other.session.started_at, other.session.id)


@dataclass(frozen=True)
class RelativeLevel:
    """Performance of a result at a commit, relative to the base at which its chain of gates begins.

    Attributes:
        value: 1 is the performance of that base.
        low, high: interval of the last change, on the level of its base; None where an end is not known.
        origin: identity of the base at which the chain begins: only levels of one origin can be compared.
    """

    value: float
    low: float | None
    high: float | None
    origin: str


class LevelChains:
    """Levels over commits from changes between pairs of commits.

    Values of gates of different days cannot be compared, because the machine was another one; the change within a gate
    can. So the level of a head is that of its base times the change, and the base of the first gate is 1.
    """

    def __init__(self, gates: Sequence[RecordedGate]) -> None:
        # Newest first: the first gate of a commit is the one that counts.
        self._newest: dict[str, RecordedGate] = {}
        self._levels: dict[tuple[str, str], RelativeLevel] = {}
        self._newest_of_branch: dict[tuple[str, str], RecordedGate] = {}
        for gate in gates:
            self._newest.setdefault(gate.commit, gate)
            self._newest_of_branch.setdefault((gate.record.branch, gate.commit), gate)

    def level(self, gate: RecordedGate, key: str) -> RelativeLevel | None:
        """The level of a result (`RecordedResult.key`) at the head of a gate; None if the gate has no such change."""
        # From the gate back to the beginning of its chain, or to a gate whose level was computed before.
        chain: list[RecordedGate] = []
        visited: set[str] = set()
        origin = ""
        level: RelativeLevel | None = None
        current: RecordedGate | None = gate
        while current is not None and _has_change(current, key):
            level = self._levels.get((current.session.uuid, key))
            if level is not None:
                break
            chain.append(current)
            visited.add(current.session.uuid)
            origin = _base_identity(current)
            base_gate = self._gate_of_base(current)
            # Two commits may be gated against each other in both directions: such a chain has no beginning.
            current = base_gate
            if base_gate is not None and base_gate.session.uuid in visited:
                break
        # Then forward again: each change is multiplied with the level of its base.
        for next_gate in reversed(chain):
            level = _next_level(next_gate.result(key), level, origin)
            if level is not None:
                self._levels[next_gate.session.uuid, key] = level
        return level

    def _gate_of_base(self, gate: RecordedGate) -> RecordedGate | None:
        """The newest gate whose head is the base of a gate, on the same branch if there is one."""
        base = gate.record.base
        if base is None:
            return None
        return self._newest_of_branch.get((gate.record.branch, base.commit), self._newest.get(base.commit))


def _has_change(gate: RecordedGate, key: str) -> bool:
    result = gate.result(key)
    return result is not None and result.change is not None


def _base_identity(gate: RecordedGate) -> str:
    """Equal for gates whose bases are the same commit, or the same build where the base is no commit."""
    base = gate.record.base
    if base is None:
        return f"build {gate.record.base_build}"
    return f"commit {base.commit}"


def _next_level(result: RecordedResult | None, base: RelativeLevel | None, origin: str) -> RelativeLevel | None:
    """The level of a head from that of its base; without a base level the base is 1, and `origin` its identity."""
    if result is None or result.change is None:
        return None
    base_value = 1.0
    if base is not None:
        base_value, origin = base.value, base.origin
    low, high = result.interval
    return RelativeLevel(
        value=base_value * (1 + result.change),
        low=_level_of(base_value, low),
        high=_level_of(base_value, high),
        origin=origin,
    )


def _level_of(base_value: float, change: float | None) -> float | None:
    if change is None:
        return None
    return base_value * (1 + change)
