"""One member of a finding, small: its nights around the change with the levels before and after."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.dashboard.drawing import Scale, broken_line, line, nice_top, picture, text, time_axis
from iowatch.findings import Member
from iowatch.units import format_number

_WIDTH, _HEIGHT = 300, 132
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 14, 22


def member_picture(
    member: Member,
    times: NDArray[Any],
    values: NDArray[Any],
    first: int,
    last: int,
    zone: tzinfo = UTC,
) -> Markup:
    """Draw a member; all members of a finding share the time axis from `first` to `last` (epoch s).

    Args:
        times, values: shape (n,): epoch seconds and the metric's unit.
        zone: dates stand at its midnights.
    """
    top = nice_top(max(float(values.max(initial=0.0)), member.before, member.after))
    x, y = Scale(first, last, _LEFT, _WIDTH - _RIGHT, zone=zone), Scale(0.0, top, _HEIGHT - _BOTTOM, _TOP)
    ticks = "".join(
        line("grid", _LEFT, y(v), _WIDTH - _RIGHT, y(v)) + text("tick", _LEFT - 4, y(v) + 4, format_number(v))
        for v in (0.0, top / 2, top)
    )
    parts = [
        ticks,
        time_axis(x, _HEIGHT - _BOTTOM, 3),
        broken_line("headline", times, x.array(times), y.array(values)),
        line("moment", x(member.first_after), _TOP, x(member.first_after), _HEIGHT - _BOTTOM),
        line("level", x(first), y(member.before), x(member.last_before), y(member.before)),
        line("level", x(member.first_after), y(member.after), x(last), y(member.after)),
    ]
    label = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    return picture(_WIDTH, _HEIGHT, label, parts, "picture small")
