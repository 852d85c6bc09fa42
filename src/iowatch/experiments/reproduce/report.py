"""The report of `iowatch reproduce`: text and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from iowatch.core import format_count
from iowatch.experiments.common.text import format_change
from iowatch.experiments.reproduce.run import Reproduction


def reproduction_lines(reproduction: Reproduction) -> Iterator[str]:
    """The report of `iowatch reproduce`, the answer first."""
    change = reproduction.change
    operation = f" {change.operation}" if change.operation else ""
    recorded = format_change(math.expm1(change.log_gain))
    result = f"{change.run}{operation} {change.metric}"
    yield f"{reproduction.answer}: {result}: recorded {recorded}, {_measured_change(reproduction)}"
    # Where the numbers are from.
    pairs = format_count(reproduction.pairs, "pair")
    minutes = f"{reproduction.seconds / 60:.1f} minutes"
    yield (
        f"{change.source}, runs {change.before.id} and {change.after.id}; {pairs} in {minutes}, "
        f"session {reproduction.session}"
    )
    yield from reproduction.notes


def _measured_change(reproduction: Reproduction) -> str:
    """The measured change with its interval, if that is bounded."""
    if reproduction.gain is None:
        return "nothing measured"
    text = f"measured {format_change(reproduction.gain - 1)}"
    low, high = reproduction.interval
    if 0 < low < high < math.inf:
        text += f" ({format_change(low - 1)} to {format_change(high - 1)})"
    return text


def reproduction_document(reproduction: Reproduction) -> dict[str, Any]:
    """The document of `iowatch reproduce --json`."""
    change = reproduction.change
    measured_change = None
    if reproduction.gain is not None:
        measured_change = reproduction.gain - 1
    return {
        "answer": reproduction.answer,
        "source": change.source,
        "system": change.system,
        "suite": change.suite,
        "run": change.run,
        "operation": change.operation,
        "metric": change.metric,
        "runs": {"before": change.before.id, "after": change.after.id},
        "recorded_change": math.expm1(change.log_gain),
        "change": measured_change,
        "interval": [_interval_end(end) for end in reproduction.interval],
        "pairs": reproduction.pairs,
        "seconds": round(reproduction.seconds, 1),
        "session": reproduction.session,
        "notes": list(reproduction.notes),
    }


def _interval_end(gain: float) -> float | None:
    """The end of an interval as a change; None if it is not bounded."""
    if not 0 < gain < math.inf:
        return None
    return gain - 1
