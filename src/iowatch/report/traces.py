"""What Darshan saw of the two sides of a comparison, for programs and for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from iowatch.darshan.diff import Change
from iowatch.darshan.text import plain
from iowatch.explain import names
from iowatch.sides import Outcome
from iowatch.units import counted

_MOST_LINES = 12


def document(outcome: Outcome) -> dict[str, Any] | None:
    """`cases` (each with `case`, `logs`, `changes`) and `left_out`; None where no case has logs on both."""
    found = outcome.traced
    if not found.cases:
        return None
    cases = [
        {
            "case": {"benchmark": one.case.benchmark, **one.case.parameters},
            "logs": dict(zip(("left", "right"), one.logs, strict=True)),
            "changes": [asdict(change) for change in one.changes],
        }
        for one in found.cases
    ]
    return {"cases": cases, "left_out": found.left_out}


def lines(outcome: Outcome) -> Iterator[str]:
    """How the I/O differs: one line a counter, with the case that shows it most; nothing without logs."""
    found = outcome.traced
    if not found.cases:
        return
    looked = (
        f"{counted(len(found.cases), 'case')}, up to {max(max(one.logs) for one in found.cases)} logs a side"
    )
    rest = f"; {found.left_out} more not looked at" if found.left_out else ""
    changes = _by_name(outcome)
    if not changes:
        yield f"Darshan ({looked}{rest}): the sides do their I/O in the same way."
        return
    yield f"Darshan ({looked}{rest}), what differs by more than it does from run to run of a side:"
    for told in list(changes.values())[:_MOST_LINES]:
        yield f"  {_line(told, len(found.cases))}"
    if len(changes) > _MOST_LINES:
        yield f"  and {len(changes) - _MOST_LINES} more figures (--json has all)"


_Told = list[tuple[str, Change]]


def _by_name(outcome: Outcome) -> dict[str, _Told]:
    """Changes with the names of their cases, by what changed."""
    found = outcome.traced
    called = names([{"benchmark": one.case.benchmark, **one.case.parameters} for one in found.cases])
    changes: dict[str, _Told] = {}
    for name, one in zip(called, found.cases, strict=True):
        for change in one.changes:
            changes.setdefault(change.name, []).append((name, change))
    return changes


def _line(told: _Told, cases: int) -> str:
    name, most = max(told, key=lambda row: _size(row[1]))
    where = "" if cases == 1 else f" ({name}; in {len(told)} of {cases} cases)"
    return f"{plain(most.text)}{where}"


def _size(change: Change) -> float:
    """How large a change is; from or to nothing is the largest."""
    if change.ratio is None or change.ratio <= 0:
        return float("inf")
    return max(change.ratio, 1 / change.ratio)
