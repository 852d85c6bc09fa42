"""Histories with recorded gates, made without measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iowatch.experiments.common.gate_records import RECORD, CommitFacts, GateRecord
from iowatch.store import AbRunFacts, History, SessionFacts, SessionRecord

DAY_S = 86_400
START_S = 1_790_000_000


def commit_facts(number: int, ancestors: int | None = -1, subject: str = "") -> CommitFacts:
    """A commit whose hash begins with its number, in seven decimal digits."""
    return CommitFacts(
        commit=f"{number:07d}" + "a" * 33,
        subject=subject or f"Change number {number}",
        committed_s=START_S + number * DAY_S,
        ancestors=number if ancestors == -1 else ancestors,
    )


def gated_result(name: str, change: float | None, decision: str) -> dict[str, Any]:
    """A result of both builds with an interval of ± 2 %."""
    interval = [None, None] if change is None else [change - 0.02, change + 0.02]
    return {
        "name": name, "run": f"benchio:api={name}", "case": {"api": name, "operation": "write"}, "metric": "bandwidth",
        "unit": "MiB/s", "base": 1000.0, "head": None if change is None else 1000.0 * (1 + change),
        "change": change, "interval": interval, "noise": 0.02, "pairs": 8, "decision": decision,
    }  # fmt: skip


@dataclass(frozen=True)
class PlannedGate:
    """A gate to be recorded.

    Attributes:
        head, base: numbers of commits; without a base it is a release.
        changes: of the results, by name; with their decision.
    """

    head: int
    base: int | None
    changes: Mapping[str, tuple[float | None, str]]
    decision: str = "pass"
    branch: str = "main"
    failed: Sequence[str] = ()
    counts: Sequence[Mapping[str, Any]] | None = ()
    missing: Sequence[int] = ()
    package: str = "hdf5"
    system: str = "local"
    ancestors: int | None = -1
    record: Mapping[str, Any] = field(default_factory=dict)


def planned_record(planned: PlannedGate) -> GateRecord:
    """What `iowatch gate --record` would keep."""
    base = None if planned.base is None else commit_facts(planned.base)
    failed = [{"name": run, "reason": "NC_EHDFERR"} for run in planned.failed]
    document = {
        "decision": planned.decision, "summary": f"The gate of {planned.head} is {planned.decision}.",
        "base": "git:hdf5@base", "head": "git:hdf5@head", "margin": 0.1, "seconds": 300.0,
        "results": [gated_result(name, *stated) for name, stated in planned.changes.items()],
        "failed": failed, "left_out": [], "counts": planned.counts, "libraries": ["hdf5 1.14.5 -> 1.14.6"],
    }  # fmt: skip
    stated = {
        "format": 1, "package": planned.package, "branch": planned.branch, "repository": "/no/such/repository",
        "head": commit_facts(planned.head, planned.ancestors), "base": base, "base_build": "1a2b3c4d",
        "missing_commits": [commit_facts(commit).commit for commit in planned.missing], "document": document,
    }  # fmt: skip
    return GateRecord.model_validate({**stated, **planned.record})


def record_gates(history: History, gates: Sequence[PlannedGate]) -> list[str]:
    """Record gates, one per hour, in this order; returns the UUIDs of their sessions."""
    uuids: list[str] = []
    for number, planned in enumerate(gates):
        uuid = f"{number:04d}" + "f" * 32
        started_at = START_S + number * 3600
        facts = SessionFacts(ab_run=AbRunFacts(left="old", right="new"))
        history.begin_session(SessionRecord(uuid, planned.system, "gate", "run", started_at, facts))
        history.end_session(uuid, "ok", started_at + 300)
        record = planned_record(planned).model_dump(mode="json")
        history.add_facts(uuid, SessionFacts.from_document({RECORD: record}))
        uuids.append(uuid)
    return uuids
