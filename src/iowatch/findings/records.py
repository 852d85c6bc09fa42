"""A finding: the changes of many series that belong to one event; frozen, and the same again from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from iowatch.explain import Cause, Explanation
from iowatch.model import Scalar

State = Literal["suspected", "open", "acknowledged", "accepted", "dismissed", "resolved"]
Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Member:
    """One series' change; times in epoch seconds UTC, levels in the metric's unit.

    Attributes:
        name: short, unique among the series of the finding where possible.
        ratio: after / before of the metric as stored.
        gain: the same as performance: above 1 is better, also for times.
        confidence: of the detector, 0 to 1.
        run_before, run_after: runs on both sides of the change: their outputs, logs, stacks are the evidence.
    """

    series_id: int
    name: str
    partition: str
    stack: str
    case_key: str
    parameters: Mapping[str, Scalar]
    metric: str
    unit: str
    last_before: int
    first_after: int
    before: float
    after: float
    ratio: float
    gain: float
    confidence: float
    suspected: bool
    run_before: int | None
    run_after: int | None


@dataclass(frozen=True)
class Difference:
    """Something that differs between the runs before and after: a part of the stack, a Darshan counter."""

    where: str
    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Ruling:
    """The decision in force, or the last that expired."""

    decision: str
    by: str
    reason: str
    date: str
    until: str | None
    expired: bool = False


@dataclass(frozen=True)
class Finding:
    """One event as the history shows it.

    Attributes:
        id: stable from night to night.
        direction: `up` is better performance, `down` worse, whatever the metric.
        date: the night of the change (ISO, UTC); the change lies between `last_before` and `first_after`.
        size: geometric mean of the members' gains.
        line: the whole finding in one line.
        explanation: its positions (members of magnitudes, control, misfits) index `compared`.
        compared: names of the series that were compared, changed ones first.
        without_data: how many series of the system have no runs on both sides: nothing is known of them.
        moved_otherwise: how many moved then, too, but the other way or not surely: they are not compared.
        causes: what happened near the date, best fit first; evidence, not proof.
        news: what nobody was told before this update: "new", "confirmed", "2 series joined", …
        untold: of the news, what still waits for somebody to tell it.
        told_members: how many members people were told of.
        anchor: `first_after` when it was first seen; its date may settle near it, but not wander off.
        missed_since: newest run when detection first did not see it any more.
        seen_since: newest run when detection first saw it again after it was resolved.
        resolution: why it is resolved, if it is.
        basis: digest of what it follows from; an old finding with the same basis is not worked out again.
        label: what the sessions say of their origin ("reconstructed from published figures"), or None.
    """

    id: str
    system: str
    state: State
    direction: Direction
    date: str
    last_before: int
    first_after: int
    size: float
    line: str
    members: tuple[Member, ...]
    explanation: Explanation
    compared: tuple[str, ...]
    without_data: int
    moved_otherwise: int
    causes: tuple[Cause, ...]
    differences: tuple[Difference, ...]
    first_seen_at: int
    updated_at: int
    news: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    told_members: int = 0
    anchor: int = 0
    missed_since: int | None = None
    seen_since: int | None = None
    resolution: str | None = None
    ruling: Ruling | None = None
    notes: tuple[Ruling, ...] = ()
    label: str | None = None
    basis: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back. The rule comes with its precision and recall."""
        document = asdict(self)
        rule = self.explanation.rule
        if rule is not None:
            document["explanation"]["rule"] |= {"precision": rule.precision, "recall": rule.recall}
        return document


@cache
def _adapter() -> TypeAdapter[Finding]:
    return TypeAdapter(Finding)


def from_json(document: Mapping[str, Any]) -> Finding:
    """A finding of the document that `Finding.to_json` made."""
    return _adapter().validate_python(document)


NEEDS_ACTION: tuple[State, ...] = ("open",)
