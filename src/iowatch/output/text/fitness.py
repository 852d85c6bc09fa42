"""Whether a system is as fast as before, as sentences, rows of a table and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from iowatch.core import format_count, format_number
from iowatch.findings import AssessedSeries, ChangedGroup, DirectionGroup, ExpectationResult, FitnessAssessment
from iowatch.output.text.changes import format_change, format_factor, format_percentage
from iowatch.output.text.evidence import format_moved_layer
from iowatch.output.text.explanations import format_common_factor

SERIES_COLUMNS = ("series", "before", "after", "unit", "change", "95 % interval", "runs", "nights", "state")
RIGHT_ALIGNED = ("before", "after", "change", "runs", "nights")
_EXPECTATION_STATES = {
    "received": "received",
    "not received": "NOT received",
    "open": "cannot be distinguished from the noise of nights",
    "no series": "no measured series meets the condition",
}


def assessment_sentence(system: str, assessment: FitnessAssessment, when: str) -> str:
    """The decision in one sentence, for somebody who never read the documentation.

    Args:
        when: end of "not decidable …", for example `in 45 minutes`.
    """
    margin = f"{100 * assessment.settings.margin:g} %"
    nights = format_count(assessment.nights, "night")
    if assessment.decision == "not fit":
        return f"{system} is not fit: {_loss_text(assessment)}."
    if assessment.decision == "fit":
        least = assessment.settings.group
        return f"{system} is fit: no group of {least} or more series lost {margin} or more ({nights} before)."
    question = f"whether {system} is as fast as before"
    if assessment.reason == "no baseline":
        return f"Not decidable {when} {question}: no baseline, {nights} before can be compared."
    if assessment.reason == "not measured":
        return f"Not decidable {when} {question}: too few series with nights before were measured."
    possible = "any loss is possible"
    if assessment.largest_possible_loss is not None:
        possible = f"a loss of {100 * assessment.largest_possible_loss:.0f} %"
        possible += f" in {assessment.least_certain} is not excluded"
    return f"Not decidable {when} {question}: {possible}."


def _loss_text(assessment: FitnessAssessment) -> str:
    group = assessment.lower
    if assessment.reason == "series" or group is None:
        names = ", ".join(assessment.fell_alone)
        return f"{names} fell further than any series in {format_count(assessment.nights, 'night')} before"
    measured = sum(of_series.gain is not None for of_series in assessment.series)
    return f"{len(group.members)} of {format_count(measured, 'series')} {format_change(group.gain)}, " + (
        format_common_factor(_direction_group(group))
    )


def _direction_group(group: ChangedGroup) -> DirectionGroup:
    """The group as findings describe one."""
    return DirectionGroup(size=group.gain, explanation=group.explanation, compared=group.members)


def evidence_lines(assessment: FitnessAssessment) -> Iterator[str]:
    """What the decision rests on."""
    settings = assessment.settings
    yield (
        f"Error rates: 'not fit' although nothing changed {100 * settings.false_alarm:g} %, 'fit' although a group of "
        f"{settings.group} or more series lost {100 * settings.margin:g} % or more {100 * settings.missed:g} %"
    )
    if assessment.nights:
        worth = f", which are worth {assessment.independent_nights:.0f} independent ones"
        yield f"Compared with {format_count(assessment.nights, 'night')} before{worth}"
    if assessment.reason in ("no baseline", "not measured"):
        return
    if assessment.detectable is None:
        yield "Detectable with these nights: not even a loss of 90 % in a small group is found with 95 %"
    else:
        yield (
            f"Detectable with these nights: a loss of {format_percentage(1 - assessment.detectable)} in "
            f"{settings.group} series that share a condition is found with 95 %"
        )
    if abs(math.log(assessment.common_swing)) > 0.01:
        factor = format_factor(assessment.common_swing)
        yield f"Taken out: a common swing of {factor}, as nights before have had it"
    if assessment.decision == "undecided" and not assessment.repeating_helps:
        yield "More runs now would not decide, because nights differ: `iowatch nightly` adds another one"


def group_lines(group: ChangedGroup | None) -> Iterator[str]:
    """What is known of a group that changed."""
    if group is None:
        return
    low, high = (format_factor(end) for end in group.interval)
    yield f"{format_change(group.gain)}, between {low} and {high}: {', '.join(group.members)}"
    yield format_common_factor(_direction_group(group))
    if group.layer is not None:
        yield format_moved_layer(group.layer)
    nights = format_count(group.nights_alike, "night")
    yield f"strength {group.ratio:.2f} of the worst nights, decides from {group.limit:.2f}; {nights} before as far off"


def format_expectation(result: ExpectationResult) -> str:
    text = f"{result.text}: {_EXPECTATION_STATES[result.state]}"
    if result.gain is not None:
        text += f" ({format_count(result.series, 'series')}, {format_change(result.gain)})"
    return text


def series_rows(assessment: FitnessAssessment) -> Iterator[tuple[str, ...]]:
    """One row of cells per series, in the order of `SERIES_COLUMNS`: losses first."""
    order = {"lower": 0, "higher": 1}
    for of_series in sorted(assessment.series, key=lambda of_series: order.get(of_series.state, 2)):
        yield (
            of_series.name,
            "" if of_series.before is None else format_number(of_series.before),
            "" if of_series.after is None else format_number(of_series.after),
            of_series.unit,
            "" if of_series.gain is None else format_factor(of_series.gain),
            _format_interval(of_series),
            str(of_series.repetitions),
            str(of_series.nights),
            of_series.state,
        )


def _format_interval(of_series: AssessedSeries) -> str:
    low, high = of_series.interval
    if low is None or high is None:
        return ""
    return f"{format_factor(low)} to {format_factor(high)}"


def assessment_document(assessment: FitnessAssessment) -> dict[str, Any]:
    """The assessment as JSON; gains are factors of performance, losses shares of it."""
    settings = assessment.settings
    return {
        "decision": assessment.decision,
        "reason": assessment.reason,
        "margin": settings.margin,
        "false_alarm": settings.false_alarm,
        "missed": settings.missed,
        "smallest_group": settings.group,
        "nights": assessment.nights,
        "independent_nights": round(assessment.independent_nights, 1),
        "baseline_s": assessment.baseline,
        "largest_possible_loss": assessment.largest_possible_loss,
        "least_certain": assessment.least_certain,
        "detectable_loss": assessment.detectable,
        "common_swing": assessment.common_swing,
        "repeating_helps": assessment.repeating_helps,
        "fell_alone": list(assessment.fell_alone),
        "lower": _group_document(assessment.lower),
        "higher": _group_document(assessment.higher),
        "expectations": [_expectation_document(result) for result in assessment.expectations],
        "slow_nodes": [
            {"node": node.node, "ratio": node.ratio, "slow_runs": node.slow_runs, "runs": node.runs}
            for node in assessment.slow_nodes
        ],
        "series": [_series_document(of_series) for of_series in assessment.series],
    }


def _group_document(group: ChangedGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    return {
        "direction": group.direction,
        "members": list(group.members),
        "gain": group.gain,
        "interval": list(group.interval),
        "common_factor": format_common_factor(_direction_group(group)),
        "layer": None if group.layer is None else format_moved_layer(group.layer),
        "decides": group.decides,
        "ratio": group.ratio,
        "limit": group.limit,
        "nights_alike": group.nights_alike,
    }


def _expectation_document(result: ExpectationResult) -> dict[str, Any]:
    return {"text": result.text, "state": result.state, "series": result.series, "gain": result.gain}


def _series_document(of_series: AssessedSeries) -> dict[str, Any]:
    return {
        "name": of_series.name,
        "partition": of_series.partition,
        "stack": of_series.stack,
        "operation": of_series.operation,
        "metric": of_series.metric,
        "unit": of_series.unit,
        "before": of_series.before,
        "after": of_series.after,
        "gain": of_series.gain,
        "interval": list(of_series.interval),
        "repetitions": of_series.repetitions,
        "nights": of_series.nights,
        "state": of_series.state,
    }
