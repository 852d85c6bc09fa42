"""Whether a value lies within its reference; "no reference" and "within" are two answers."""

from __future__ import annotations

from collections.abc import Sequence

from iowatch.reference.entry import Entry
from iowatch.units import format_number


def best(entry: Entry, samples: Sequence[float]) -> float:
    """What ReFrame judges of a run's samples: the best one."""
    return min(samples) if entry.metric.direction == "lower" else max(samples)


def outside(entry: Entry, value: float) -> str | None:
    """In words, how a value lies outside the bounds of its reference; None where it does not.

    A gain is told like a loss: a page cache or a smaller file looks like one.
    """
    low = entry.lower is not None and value < entry.lower
    if not low and not (entry.upper is not None and value > entry.upper):
        return None
    accepted = f"{format_number(entry.lower)} to {format_number(entry.upper)} {entry.unit}"
    return (
        f"{entry.variable} is {'low' if low else 'high'}: {format_number(value)}, accepted {accepted} "
        f"(reference {format_number(entry.value)} of {entry.provenance.date})"
    )
