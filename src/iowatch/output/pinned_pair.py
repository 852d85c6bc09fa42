"""Report of `iowatch demo netcdf`: which measurement it shows, its conditions, and the paper's figures beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from iowatch.comparison import Outcome
from iowatch.core import format_number
from iowatch.demo.pinned_pair import PairSource, PublishedPair, RecordedConditions
from iowatch.output.comparison import comparison_document

# Characters of the longest bar.
_BAR_WIDTH = 30
_CITATION = "Lawrence et al. 2017, section 6, NetCDF Performance"


def source_line(source: PairSource, conditions: RecordedConditions | None) -> str:
    """Which of both is shown, and why."""
    if conditions is None:
        return "Measured now, on this machine: an A/B run of both stacks."
    return f"Recorded measurement of {conditions.measured}, not measured now: {source.reason}."


def condition_lines(conditions: RecordedConditions) -> Iterator[str]:
    """Conditions of the recorded measurement, one line each."""
    parts = [f"{name} {version}" for name, version in conditions.parts.items()]
    versions = "; ".join(f"{stack}: netcdf-c {version}" for stack, version in conditions.versions.items())
    yield f"Libraries: {', '.join(parts)} on both sides; {versions}."
    yield f"Machine: {conditions.machine}; {conditions.file_system}; {conditions.load}."
    yield f"Method: {conditions.method}. iowatch at commit {conditions.commit}."


def published_lines(pair: PublishedPair, here: str) -> Iterator[str]:
    """The paper's figure as a table with bars: 4.4.0 over writers beside the limit of 4.3.3.1.

    Args:
        here: what the measurement above cannot show.
    """
    yield f"The paper ({_CITATION}): maximum write bandwidth on ARCHER's Lustre, MiB/s"
    highest = max(max(point.default_striping or 0.0, point.maximum_striping or 0.0) for point in pair.points)
    yield f"{'writers':>8}  {'4.3.3.1':>8}  {'4.4.0, default':>14}  {'4.4.0, maximum striping':>23}"
    limit = f"~{format_number(pair.limit_mib_per_s)}"
    for point in pair.points:
        bar = "#" * round(_BAR_WIDTH * (point.maximum_striping or 0.0) / highest)
        default, maximum = format_number(point.default_striping), format_number(point.maximum_striping)
        yield f"{point.writers:>8,}  {limit:>8}  {default:>14}  {maximum:>23}  {bar}"
    limit_bar = "|".rjust(max(1, round(_BAR_WIDTH * pair.limit_mib_per_s / highest)))
    yield f"{'':>8}  {'':>8}  {'':>14}  {'limit of 4.3.3.1':>23}  {limit_bar}"
    yield f"Not comparable number by number: {here}."


def pair_document(
    source: PairSource, conditions: RecordedConditions | None, outcome: Outcome, pair: PublishedPair
) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "source": "measured" if conditions is None else "recorded",
        "reason": source.reason or None,
        "conditions": None if conditions is None else conditions.model_dump(mode="json"),
        "comparison": comparison_document(outcome),
        "published": {"cited": _CITATION, **asdict(pair)},
    }
