"""The report after a maintenance, on one page: text, Markdown, HTML to sign, JSON and JUnit.

All forms have the same parts: the decision in one sentence, what it rests on, one line per series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from junitparser import Failure, JUnitXml, Skipped, TestCase
from junitparser.junitparser import FinalResult

from iowatch.core import METRICS, format_count, format_local_time, format_number
from iowatch.findings import AssessedSeries
from iowatch.output.report import junit_case, junit_suite, valid_xml
from iowatch.output.sheet import Sheet, SheetDecision, SheetSection, SheetTable
from iowatch.output.text.changes import format_change
from iowatch.output.text.fitness import (
    RIGHT_ALIGNED,
    SERIES_COLUMNS,
    assessment_document,
    assessment_sentence,
    evidence_lines,
    format_expectation,
    group_lines,
    series_rows,
)
from iowatch.output.text.verdict import PUBLISHED_TITLE, format_percentage, format_published
from iowatch.session.repeated_runs import MaintenanceOutcome
from iowatch.site import system_zone

_DECISION_WORDS = {"fit": "FIT", "not fit": "NOT FIT", "undecided": "UNDECIDED"}
_DECISION_STYLES = {"fit": "good", "not fit": "bad", "undecided": "open"}


def summary(outcome: MaintenanceOutcome) -> str:
    """The decision in one sentence."""
    if outcome.decision == "not fit" and outcome.assessment.decision != "not fit":
        runs = format_count(len(outcome.failed), "run")
        return f"{outcome.system} is not fit: {runs} that earlier sessions completed failed or are missing."
    minutes = format_count(math.ceil(outcome.wall_s / 60), "minute")
    return assessment_sentence(outcome.system, outcome.assessment, f"in {minutes}")


def _sections(outcome: MaintenanceOutcome) -> list[SheetSection]:
    """What the report says beside the series."""
    assessment = outcome.assessment
    lower, higher = assessment.lower, assessment.higher
    lower_title = "Lost" if assessment.decision == "not fit" else "Most like a loss (does not decide)"
    failed = [f"{problem.run}, {problem.stack}: {problem.kind}, {problem.reason}" for problem in outcome.failed]
    sections = [
        SheetSection("Decision", list(evidence_lines(assessment))),
        SheetSection("Failed or missing", failed),
        SheetSection(lower_title, list(group_lines(lower))),
    ]
    if higher is not None and higher.decides:
        sections.append(SheetSection("Improved", list(group_lines(higher))))
    nodes = [
        f"{node.node}: {node.ratio:.1f} times the time of the other nodes, in {node.slow_runs} of {node.runs} runs"
        for node in assessment.slow_nodes
    ]
    sections += [
        SheetSection("Slow nodes", nodes),
        SheetSection("Meant changes", [format_expectation(result) for result in assessment.expectations]),
        SheetSection("Not measured, no time", outcome.unmeasured),
        SheetSection(PUBLISHED_TITLE, [format_published(figure) for figure in outcome.published]),
        SheetSection("Results without a baseline", list(_headline_lines(outcome))),
    ]
    return [section for section in sections if section.lines]


def _headline_lines(outcome: MaintenanceOutcome) -> Iterator[str]:
    for headline in outcome.headlines:
        value = f"{format_number(headline.value)} {headline.unit}"
        text = (
            f"{headline.run}, {headline.stack}: {headline.operation} {METRICS[headline.metric].label.lower()} {value}"
        )
        proportion = headline.percent_of_peak
        if proportion is not None:
            text += f", {format_percentage(proportion)} of peak"
        elif headline.percent_of_raw_disk is not None:
            text += f", {format_percentage(headline.percent_of_raw_disk)} of raw disk (fio)"
        yield text


def _facts(outcome: MaintenanceOutcome) -> list[str]:
    """Which maintenance, suite and session."""
    zone = system_zone(outcome.system)
    facts: list[str] = []
    if outcome.request.begun_s is not None:
        begin = format_local_time(outcome.request.begun_s, zone)
        end = "now" if outcome.request.ended_s is None else format_local_time(outcome.request.ended_s, zone)
        facts.append(f"maintenance from {begin} to {end}")
    if outcome.assessment.baseline is not None:
        first, last = (format_local_time(moment, zone) for moment in outcome.assessment.baseline)
        facts.append(f"nights before: {first} to {last}")
    rounds = format_count(outcome.rounds, "round")
    facts.append(f"suite {outcome.suite}, {rounds} in {outcome.wall_s / 60:.1f} minutes, session {outcome.session}")
    return facts


def outcome_sheet(outcome: MaintenanceOutcome) -> Sheet:
    """The report: the decision in one sentence, what it rests on, one line per series."""
    word = _DECISION_WORDS[outcome.decision]
    series = SheetTable(SERIES_COLUMNS, list(series_rows(outcome.assessment)), RIGHT_ALIGNED)
    return Sheet(
        title=f"{outcome.system} after '{outcome.request.title}': {word}",
        heading=f"{outcome.system} after ‘{outcome.request.title}’",
        summary=summary(outcome),
        parts=[*_sections(outcome), series],
        facts=_facts(outcome),
        decision=SheetDecision(word, _DECISION_STYLES[outcome.decision]),
        is_signed=True,
    )


def outcome_document(outcome: MaintenanceOutcome) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "format": 1,
        "system": outcome.system,
        "suite": outcome.suite,
        "session": outcome.session,
        "title": outcome.request.title,
        "begun_s": outcome.request.begun_s,
        "ended_s": outcome.request.ended_s,
        "decision": outcome.decision,
        "summary": summary(outcome),
        "rounds": outcome.rounds,
        "wall_s": round(outcome.wall_s, 1),
        "failed": [
            {"run": run.run, "partition": run.partition, "stack": run.stack, "kind": run.kind, "reason": run.reason}
            for run in outcome.failed
        ],
        "unmeasured": list(outcome.unmeasured),
        "results_without_baseline": list(_headline_lines(outcome)),
        "published": [format_published(figure) for figure in outcome.published],
        "assessment": assessment_document(outcome.assessment),
    }


def outcome_junit(outcome: MaintenanceOutcome) -> str:
    """The report as JUnit: the decision is one case, and each series and failed run; undecided is skipped."""
    root = JUnitXml("iowatch")
    result: FinalResult | None = None
    if outcome.decision == "not fit":
        result = Failure(valid_xml(summary(outcome)), "not fit")
    elif outcome.decision == "undecided":
        result = Skipped(valid_xml(summary(outcome)))
    cases = [junit_case("maintenance", f"{outcome.system} is as fast as before", result, outcome.wall_s)]
    lost = set(outcome.assessment.fell_alone)
    if outcome.assessment.lower is not None and outcome.assessment.decision == "not fit":
        lost |= set(outcome.assessment.lower.members)
    cases += [_series_case(of_series, of_series.name in lost) for of_series in outcome.assessment.series]
    for problem in outcome.failed:
        failure = Failure(valid_xml(problem.reason), problem.kind)
        cases.append(junit_case(f"{problem.partition}.{problem.stack}", problem.run, failure))
    junit_suite(root, f"{outcome.suite} on {outcome.system}", cases, outcome.wall_s)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def _series_case(of_series: AssessedSeries, is_lost: bool) -> TestCase:
    """A series: failed if it lost, skipped if it was not compared."""
    result: FinalResult | None = None
    if is_lost and of_series.gain is not None:
        result = Failure(valid_xml(format_change(of_series.gain)), "slower")
    elif of_series.gain is None:
        result = Skipped(valid_xml(of_series.state))
    return junit_case(f"{of_series.partition}.{of_series.stack}", of_series.name, result)
