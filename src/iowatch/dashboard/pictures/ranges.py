"""Printed values that belong to no axis: a row each, the mean as a dot, a line from lowest to highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from iowatch.dashboard.drawing import Scale, line, nice_top, picture, text, value_ticks
from iowatch.units import format_number

_WIDTH, _RIGHT, _TOP, _BOTTOM, _ROW = 620, 14, 10, 40, 20
# Width of a letter, and most room for the names of rows.
_LETTER, _MOST_LEFT = 7.2, 380


@dataclass(frozen=True)
class Range:
    """One row; `low` and `high` are None where only one value was printed."""

    name: str
    value: float
    low: float | None
    high: float | None


def ranges_picture(rows: Sequence[Range], unit: str, label: str) -> Markup:
    """Draw rows from top to bottom over an axis that starts at zero."""
    left = min(_MOST_LEFT, 12 + _LETTER * max(len(row.name) for row in rows))
    bottom = _TOP + _ROW * len(rows)
    top = nice_top(max(row.high or row.value for row in rows))
    x = Scale(0.0, top, left, _WIDTH - _RIGHT)
    most = int(_MOST_LEFT / _LETTER)
    parts = [
        line("grid", x(v), _TOP, x(v), bottom) + text("date", x(v), bottom + 16, format_number(v))
        for v in value_ticks(top)
    ]
    parts.append(text("date", (left + _WIDTH - _RIGHT) / 2, bottom + 33, unit))
    for number, row in enumerate(rows):
        y = _TOP + _ROW * (number + 0.5)
        if row.low is not None and row.high is not None:
            parts.append(line("spread", x(row.low), y, x(row.high), y))
        parts.append(text("tick", left - 8, y + 4, row.name[:most]))
        parts.append(f'<circle class="dot c0" cx="{x(row.value):.1f}" cy="{y:.1f}" r="4"/>')
    return picture(_WIDTH, bottom + _BOTTOM, label, parts, "picture curves")
