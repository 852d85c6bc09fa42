"""What the thresholds for exit code 1 cost a system in a year, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from iowatch.core import format_count, format_number
from iowatch.findings import AlarmCost
from iowatch.statistics.alarm_cost import FEWEST_DECISIVE, CostCurve, ThresholdCost

_THRESHOLD_WIDTH = 30


def alarm_cost_lines(cost: AlarmCost) -> Iterator[str]:
    """What is counted, the curve over the thresholds, and which threshold is the cheapest, as far as that is known."""
    yield f"Cost of a year of {cost.system}, by {_format_counted(cost)}"
    left_out = _format_left_out(cost)
    if left_out:
        yield f"Not counted: {left_out}"
    curve = cost.curve
    if curve is None:
        yield "No cost: no finding that lasted or was over has its mornings recorded yet"
        return
    day, message = cost.prices.half_speed_day_hours, cost.prices.false_message_minutes
    yield (
        f"Prices: {format_number(day)} h of its users for a day of a file system at half speed, "
        f"{format_number(message)} min for a false message (`prices` of site.yaml)"
    )
    yield ""
    yield f"{'suspected_probability':{_THRESHOLD_WIDTH}}{'late':>10}{'false':>10}{'total':>10}"
    for rows in _equal_costs(curve):
        yield _format_row(rows, cost.in_force)
    yield ""
    yield _format_conclusion(cost, curve)
    yield f"Losses of one session (`smallest_loss`): iowatch findings messages --system {cost.system}"


def alarm_cost_document(cost: AlarmCost) -> dict[str, Any]:
    """The JSON document of `iowatch findings cost`; hours are per year."""
    document = {**asdict(cost), "prices": cost.prices.model_dump()}
    if cost.curve is not None:
        document["curve"]["has_enough_events"] = cost.curve.has_enough_events
    return document


def _format_counted(cost: AlarmCost) -> str:
    """`14 findings in 320 days: 5 losses that lasted, 3 gains, 6 that were over, not confirmed or dismissed`."""
    total = f"{format_count(cost.counted, 'finding')} in {format_count(round(cost.days), 'day')}"
    parts: list[str] = []
    if cost.lasting_losses:
        parts.append(f"{_count_losses(cost.lasting_losses)} that lasted")
    if cost.gains:
        parts.append(format_count(cost.gains, "gain"))
    if cost.over:
        parts.append(f"{cost.over} that did not last (over, not confirmed or dismissed)")
    return f"{total}: {', '.join(parts)}" if parts else total


def _count_losses(number: int) -> str:
    return "1 loss" if number == 1 else f"{number} losses"


def _format_left_out(cost: AlarmCost) -> str:
    parts: list[str] = []
    if cost.undecided:
        parts.append(f"{cost.undecided} undecided, or part of others")
    if cost.unrecorded:
        parts.append(f"{cost.unrecorded} without a recorded update of each morning")
    return ", ".join(parts)


def _equal_costs(curve: CostCurve) -> Iterator[Sequence[ThresholdCost]]:
    """Thresholds in a row that cost the same."""
    for _, costs in groupby(curve.costs, key=lambda cost: (round(cost.late, 6), round(cost.false, 6))):
        yield list(costs)


def _format_row(costs: Sequence[ThresholdCost], in_force: float) -> str:
    """`0.35 to 0.50 (in force)   12.0 h   3.5 h   15.5 h`."""
    first, last = costs[0].threshold, costs[-1].threshold
    threshold = f"{first:.2f}" if first == last else f"{first:.2f} to {last:.2f}"
    if any(cost.threshold == in_force for cost in costs):
        threshold += f" ({in_force:.2f} in force)"
    hours = "".join(f"{value:8.1f} h" for value in (costs[0].late, costs[0].false, costs[0].total))
    return f"{threshold:{_THRESHOLD_WIDTH}}{hours}"


def _format_conclusion(cost: AlarmCost, curve: CostCurve) -> str:
    """Whether these findings show which threshold is the cheapest, and which one it is."""
    if not curve.has_enough_events:
        losses = f"the delay of {_count_losses(curve.decisive_losses)}"
        messages = format_count(curve.decisive_false, "false message")
        depending = f"{losses} and {messages} depend on it, and it takes {FEWEST_DECISIVE} of each"
        return f"These findings are too few to choose a threshold: {depending}"
    cheapest = f"{curve.cheapest:.2f} costs least"
    if cost.in_force in curve.alike:
        return (
            f"{cheapest}, but the threshold in force does not differ from it beyond chance; "
            f"neither do {min(curve.alike):.2f} to {max(curve.alike):.2f}"
        )
    saved = curve.cost_of(cost.in_force).total - curve.cost_of(curve.cheapest).total
    return f"{cheapest}: {saved:.1f} h a year less than the threshold in force, beyond chance"
