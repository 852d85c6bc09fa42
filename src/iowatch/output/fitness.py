"""The report after a maintenance, on one page: text, Markdown, HTML to sign, JSON and JUnit.

All forms have the same parts: the decision in one sentence, what it rests on, one line per series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from junitparser import Failure, JUnitXml, Skipped, TestCase
from junitparser.junitparser import FinalResult
from rich.console import Console

from iowatch.core import METRICS, escape_controls, format_count, format_local_time, format_number, make_table
from iowatch.findings import AssessedSeries
from iowatch.output.report import escape_markdown, junit_case, junit_suite, valid_xml
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


@dataclass(frozen=True)
class _Section:
    """A title, and lines below it; it is left out without lines."""

    title: str
    lines: Sequence[str]


def summary(outcome: MaintenanceOutcome) -> str:
    """The decision in one sentence."""
    if outcome.decision == "not fit" and outcome.assessment.decision != "not fit":
        runs = format_count(len(outcome.failed), "run")
        return f"{outcome.system} is not fit: {runs} that earlier sessions completed failed or are missing."
    minutes = format_count(math.ceil(outcome.wall_s / 60), "minute")
    return assessment_sentence(outcome.system, outcome.assessment, f"in {minutes}")


def _sections(outcome: MaintenanceOutcome) -> list[_Section]:
    """What the report says beside the series."""
    assessment = outcome.assessment
    lower, higher = assessment.lower, assessment.higher
    lower_title = "Lost" if assessment.decision == "not fit" else "Most like a loss (does not decide)"
    failed = [f"{problem.run}, {problem.stack}: {problem.kind}, {problem.reason}" for problem in outcome.failed]
    sections = [
        _Section("Decision", list(evidence_lines(assessment))),
        _Section("Failed or missing", failed),
        _Section(lower_title, list(group_lines(lower))),
    ]
    if higher is not None and higher.decides:
        sections.append(_Section("Improved", list(group_lines(higher))))
    nodes = [
        f"{node.node}: {node.ratio:.1f} times the time of the other nodes, in {node.slow_runs} of {node.runs} runs"
        for node in assessment.slow_nodes
    ]
    sections += [
        _Section("Slow nodes", nodes),
        _Section("Meant changes", [format_expectation(result) for result in assessment.expectations]),
        _Section("Not measured, no time", outcome.unmeasured),
        _Section(PUBLISHED_TITLE, [format_published(figure) for figure in outcome.published]),
        _Section("Results without a baseline", list(_headline_lines(outcome))),
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


def _title(outcome: MaintenanceOutcome) -> str:
    return f"{outcome.system} after '{outcome.request.title}': {_DECISION_WORDS[outcome.decision]}"


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


def render_outcome(outcome: MaintenanceOutcome, console: Console) -> None:
    """Print the report."""
    console.print(_title(outcome), markup=False, emoji=False, soft_wrap=True)
    console.print(summary(outcome), markup=False, emoji=False, soft_wrap=True)
    for section in _sections(outcome):
        for line in (f"{section.title}:", *(f"  {line}" for line in section.lines)):
            console.print(line, markup=False, emoji=False, soft_wrap=True)
    rows = list(series_rows(outcome.assessment))
    if rows:
        table = make_table(*SERIES_COLUMNS, right=RIGHT_ALIGNED)
        for cells in rows:
            table.add_row(*cells)
        console.print(table)
    for fact in _facts(outcome):
        console.print(fact, markup=False, emoji=False, soft_wrap=True)


def outcome_markdown(outcome: MaintenanceOutcome) -> str:
    """The report as Markdown."""
    paragraphs = [f"## {escape_markdown(_title(outcome))}", escape_markdown(summary(outcome))]
    for section in _sections(outcome):
        lines = "\n".join(f"- {escape_markdown(line)}" for line in section.lines)
        paragraphs.append(f"### {section.title}\n\n{lines}")
    rows = list(series_rows(outcome.assessment))
    if rows:
        rule = ["---:" if column in RIGHT_ALIGNED else "---" for column in SERIES_COLUMNS]
        table = [f"| {' | '.join(SERIES_COLUMNS)} |", f"|{'|'.join(rule)}|"]
        for cells in rows:
            table.append(f"| {' | '.join(map(escape_markdown, cells))} |")
        paragraphs.append("\n".join(table))
    paragraphs += [escape_markdown(fact) for fact in _facts(outcome)]
    return "\n\n".join(paragraphs) + "\n"


_STYLE = """
body { font: 10.5pt/1.4 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #111; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.05em; margin: 1em 0 .2em; }
ul { margin: 0; padding-left: 1.2em; } table { border-collapse: collapse; margin-top: 1em; font-size: .85em; }
td, th { padding: .15em .6em; border-bottom: 1px solid #ccc; text-align: left; } .n { text-align: right; }
.decision { display: inline-block; padding: .1em .6em; color: #fff; background: #555; }
.decision.fit { background: #1b6e3c; } .decision.not { background: #a3231f; }
.signed { margin-top: 2.5em; display: flex; gap: 2em; } .signed p { flex: 1; border-top: 1px solid #111; }
.facts { color: #444; font-size: .85em; } @media print { body { margin: 0; } }
"""


def outcome_html(outcome: MaintenanceOutcome) -> str:
    """The report as one page without scripts, to print and to sign."""
    title, word = _html(_title(outcome)), _DECISION_WORDS[outcome.decision]
    style = {"fit": "fit", "not fit": "not", "undecided": "open"}[outcome.decision]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_html(outcome.system)} after ‘{_html(outcome.request.title)}’</h1>",
        f'<p><strong class="decision {style}">{word}</strong> {_html(summary(outcome))}</p>',
    ]
    for section in _sections(outcome):
        items = "".join(f"<li>{_html(line)}</li>" for line in section.lines)
        parts.append(f"<h2>{_html(section.title)}</h2><ul>{items}</ul>")
    rows = list(series_rows(outcome.assessment))
    if rows:
        parts.append(_html_table(rows))
    facts = "<br>".join(_html(fact) for fact in _facts(outcome))
    parts.append(f'<p class="facts">{facts}</p>')
    parts.append('<div class="signed"><p>Name</p><p>Date</p><p>Signature</p></div></body></html>')
    return "\n".join(parts) + "\n"


def _html(text: str) -> str:
    return escape(escape_controls(text))


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of the series."""
    lines: list[str] = []
    for tag, cells in (("th", SERIES_COLUMNS), *(("td", row) for row in rows)):
        line = ""
        for column, cell in zip(SERIES_COLUMNS, cells, strict=True):
            style = ' class="n"' if column in RIGHT_ALIGNED else ""
            line += f"<{tag}{style}>{_html(cell)}</{tag}>"
        lines.append(f"<tr>{line}</tr>")
    return f"<table>{''.join(lines)}</table>"


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
