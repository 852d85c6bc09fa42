"""The report of `iowatch reproduce`: text and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from iowatch.core import format_count
from iowatch.experiments.common.text import format_change
from iowatch.experiments.reproduce.run import Reproduction


def reproduction_lines(found: Reproduction) -> Iterator[str]:
    """The report of `iowatch reproduce`, the answer first."""
    change, low, high = found.change, *found.interval
    recorded = format_change(math.expm1(change.log_gain))
    measured = "nothing measured"
    if found.gain is not None:
        known = "" if not 0 < low < high < math.inf else f" ({format_change(low - 1)} to {format_change(high - 1)})"
        measured = f"measured {format_change(found.gain - 1)}{known}"
    operation = f" {change.operation}" if change.operation else ""
    yield f"{found.answer}: {change.run}{operation} {change.metric}: recorded {recorded}, {measured}"
    yield (
        f"{change.source}, runs {change.before.id} and {change.after.id}; {format_count(found.pairs, 'pair')} in "
        f"{found.seconds / 60:.1f} minutes, session {found.session}"
    )
    yield from found.notes


def reproduction_document(found: Reproduction) -> dict[str, Any]:
    """The document of `iowatch reproduce --json`."""
    change = found.change
    return {
        "answer": found.answer,
        "source": change.source,
        "system": change.system,
        "suite": change.suite,
        "run": change.run,
        "operation": change.operation,
        "metric": change.metric,
        "runs": {"before": change.before.id, "after": change.after.id},
        "recorded_change": math.expm1(change.log_gain),
        "change": None if found.gain is None else found.gain - 1,
        "interval": [end - 1 if 0 < end < math.inf else None for end in found.interval],
        "pairs": found.pairs,
        "seconds": round(found.seconds, 1),
        "session": found.session,
        "notes": list(found.notes),
    }
