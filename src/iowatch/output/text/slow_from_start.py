"""Series that are far slower than their siblings since their first session, as text."""

from __future__ import annotations

from collections.abc import Sequence

from iowatch.core import format_count
from iowatch.findings import SlowSeries, format_parameter_value
from iowatch.output.text.changes import format_factor, join_names
from iowatch.reference import cite_table

# Of more series the number is stated: `iowatch findings list --json` has them all.
_MAX_SERIES = 5


def format_slow_series(slow: SlowSeries) -> str:
    """`ior write HDF5 shared file: ×0.001 of POSIX since the first night (3 sessions): slow from the start, or …?`."""
    siblings = [format_parameter_value(slow.parameter, value) for value in slow.siblings]
    level = join_names(siblings)
    if len(siblings) > 1:
        level = f"the median of {level}"
    published = ""
    if slow.published is not None:
        lowest, highest = format_factor(slow.published.lowest), format_factor(slow.published.highest)
        published = f" (published: {lowest} to {highest}; the lowest in {cite_table(slow.published.where)})"
    since = f"since the first night ({format_count(slow.sessions, 'session')})"
    question = "slow from the start, or its configuration?"
    return f"{slow.name}: {format_factor(slow.ratio)} of {level}{published} {since}: {question}"


def slow_series_lines(slow_series: Sequence[SlowSeries]) -> list[str]:
    """One line per series, the slowest first, and the number of those that are left out."""
    lines = [format_slow_series(slow) for slow in slow_series[:_MAX_SERIES]]
    hidden = len(slow_series) - _MAX_SERIES
    if hidden > 0:
        lines.append(f"{format_count(hidden, 'further series')} far below the others since the first night")
    return lines
