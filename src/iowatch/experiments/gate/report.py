"""Reports of `iowatch gate`: text, Markdown for a merge request, JSON with its schema, JUnit, a picture and a badge."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from junitparser import Failure, JUnitXml, Skipped, TestCase
from junitparser.junitparser import FinalResult
from pydantic import TypeAdapter
from rich.console import Console

from iowatch.core import METRICS, Scalar, format_count, format_number, make_table
from iowatch.experiments.common.text import format_change
from iowatch.experiments.gate.run import GateOutcome, MeasuredResult
from iowatch.findings import short_case_names
from iowatch.output.dashboard.drawing import AxisScale, svg_line, svg_text
from iowatch.output.report import escape_markdown, junit_case, junit_suite, valid_xml
from iowatch.statistics.gate import GateDecision

_COLUMNS = ("change", "interval", "pairs", "decision")


@dataclass(frozen=True)
class GatedResult:
    """One result of both builds.

    Attributes:
        run, case, metric, unit: what was measured.
        base, head: medians of the runs.
        change: of the performance, -0.1 is 10 % slower; the median of the pairs.
        interval: of `change`; each end misses with at most `missed`. Ends that are not known are null.
        noise: robust standard deviation of ln(head / base) of a pair.
    """

    name: str
    run: str
    case: dict[str, Scalar]
    metric: str
    unit: str
    base: float
    head: float
    change: float
    interval: tuple[float | None, float | None]
    noise: float
    pairs: int
    decision: Literal["within", "slower", "open", "left out"]


@dataclass(frozen=True)
class CountDocument:
    """A count of one run that differs between the builds."""

    run: str
    name: str
    base: int
    head: int


@dataclass(frozen=True)
class ReasonDocument:
    """What failed or was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class GateDocument:
    """The document of `iowatch gate --json`.

    Attributes:
        format: increased when a key changes its meaning or goes.
        summary: the decision in one sentence.
        missed, false_alarm: error rates (docs/gate.md).
        counts: null if nothing was counted.
        seconds: of the whole gate; `seconds_left` is an estimate for an undecided one.
        load: of the machine at the start.
    """

    format: Literal[1]
    decision: GateDecision
    summary: str
    system: str
    suite: str
    base: str
    head: str
    libraries: list[str]
    margin: float
    missed: float
    false_alarm: float
    results: list[GatedResult]
    failed: list[ReasonDocument]
    left_out: list[ReasonDocument]
    counts: list[CountDocument] | None
    counts_refused: str
    seconds: float
    seconds_left: float
    load: float
    session: str


def document_schema() -> dict[str, Any]:
    """JSON Schema of the document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(GateDocument).json_schema()}


def gate_document(found: GateOutcome) -> GateDocument:
    """The document of a gate."""
    settings, names = found.options.settings, result_names(found.results)
    noisy = [
        (name, f"its pairs differ by {_percent(one.test.noise)}: too much noise for the time")
        for name, one in zip(names, found.results, strict=True)
        if one.test.state == "left out"
    ]
    return GateDocument(
        1, found.decision, summary(found), found.options.system, found.options.suite,
        found.options.base, found.options.head, list(_library_lines(found)),
        settings.margin, settings.missed, settings.false_alarm,
        [_result_document(name, one) for name, one in zip(names, found.results, strict=True)],
        [ReasonDocument(*one) for one in found.failed.items()],
        [ReasonDocument(*one) for one in (*found.left_out.items(), *noisy)],
        None if found.counts is None
        else [CountDocument(row.run, one.name, one.base, one.head) for row in found.counts for one in row.differences],
        found.counts_refused, round(found.seconds, 1), round(found.seconds_left, 1),
        round(found.load, 2), found.session,
    )  # fmt: skip


def result_names(results: Sequence[MeasuredResult]) -> list[str]:
    """Short names of the results, as comparisons use them."""
    cases = (one.result.case for one in results)
    return short_case_names([{"benchmark": of.benchmark, **of.without("ab_run").parameters} for of in cases])


def _result_document(name: str, one: MeasuredResult) -> GatedResult:
    of, test = one.result, one.test
    low, high = (math.expm1(end) if math.isfinite(end) else None for end in test.interval())
    return GatedResult(
        name, of.run, dict(of.case.parameters), of.metric, METRICS[of.metric].unit, one.base, one.head,
        math.expm1(test.centre.estimate), (low, high), test.noise, len(test.centre.log_ratios), test.state,
    )  # fmt: skip


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def summary(found: GateOutcome) -> str:
    """The decision in one sentence, for somebody who never read the documentation."""
    base, head, margin = found.base.label, found.head.label, f"{100 * found.options.settings.margin:g} %"
    rows = [_result_document(name, one) for name, one in zip(result_names(found.results), found.results, strict=True)]
    slower = [row for row in rows if row.decision == "slower"]
    within = [row for row in rows if row.decision == "within"]
    if found.failed:
        names = ", ".join(found.failed)
        return f"{head} does not work where {base} does: {names} fails."
    if slower:
        parts = ", ".join(f"{row.name} by {_percent(-row.change)}" for row in slower)
        return f"{head} is slower than {base}: {parts}."
    measured = format_count(len(within), "measurement")
    if found.decision == "pass":
        rest = len(rows) - len(within) + len(found.left_out)
        without = f"; {rest} left out (below)" if rest else ""
        return f"{head} is not slower than {base} by {margin} or more in any of {measured}{without}."
    time = f"{found.seconds / 60:.0f} minutes"
    if not any(row.decision == "open" for row in rows):
        why = f"runs differ too much from one to the next for {time}"
        if not rows:
            why = f"{time} were over before the first pair; more time (--minutes) or fewer cases (--case) are needed"
        return f"Not decided whether {head} is slower than {base}: {why}."
    return (
        f"Not decided in {time} whether {head} is slower than {base} by {margin} or more: {measured} within it, "
        f"{sum(row.decision == 'open' for row in rows)} open; about {math.ceil(found.seconds_left / 60)} more minutes "
        "are needed."
    )


def repeat_command(found: GateOutcome) -> str:
    """The command that repeats the gate, with more time if it was undecided."""
    options = found.options
    minutes = math.ceil((found.seconds + 1.2 * found.seconds_left) / 60) if found.decision == "undecided" else 0
    words = ["iowatch", "gate", "--base", options.base, "--head", options.head, "--system", options.system]
    words += ["--suite", options.suite, "--margin", f"{100 * options.settings.margin:g}%"]
    words += ["--minutes", f"{max(minutes, options.budget_s / 60):g}"]
    words += [word for name in options.benchmarks for word in ("--benchmark", name)]
    words += [word for name in options.cases for word in ("--case", name)]
    given = {"--scratch": options.scratch, "--build": options.build_command, "--package": options.package}
    words += [word for option, value in given.items() if value for word in (option, str(value))]
    return shlex.join(words)


def _library_lines(found: GateOutcome) -> Iterator[str]:
    """In what the builds differ: `hdf5 1.10.8 -> 1.14.5`."""
    for row in found.difference.differences:
        field = "" if row.field == "version" else f" {row.field}"
        yield f"{row.part}{field} {row.left or 'none'} -> {row.right or 'none'}"
    if found.difference.rebuilt:
        yield f"same version, another build: {', '.join(found.difference.rebuilt)}"


_WORDS = {"within": "within the margin", "slower": "slower", "open": "not decided", "left out": "left out: noise"}


def _rows(found: GateOutcome, document: GateDocument) -> Iterator[tuple[str, ...]]:
    for row in document.results:
        low, high = row.interval
        yield (
            row.name,
            *(f"{format_number(value)} {row.unit}" for value in (row.base, row.head)),
            format_change(row.change),
            "" if low is None and high is None else f"{format_change(low)} to {format_change(high)}",
            str(row.pairs),
            _WORDS[row.decision],
        )


def _count_lines(found: GateOutcome) -> list[str]:
    """Counts that differ, most of which need no statistics to be believed."""
    if found.counts is None:
        return []
    lines = [f"{row.run}: {'; '.join(one.text for one in row.differences)}" for row in found.counts]
    lines = lines or ["no count differs: both builds make the same calls on the files, as far as they were counted"]
    return [*lines, *([found.counts_refused] if found.counts_refused else [])]


def _other_lines(found: GateOutcome, document: GateDocument) -> Iterator[tuple[str, list[str]]]:
    """Sections below the table: title, lines."""
    yield "Fails", [f"{one.name}: {one.reason}" for one in document.failed]
    yield "Counts of one repetition", _count_lines(found)
    yield "Left out", [f"{one.name}: {one.reason}" for one in document.left_out]
    yield f"{found.base.label} -> {found.head.label}", document.libraries
    yield (
        "Measured",
        [
            f"{found.seconds / 60:.1f} minutes on {platform.node()}, load "
            f"{found.load:.1f} at the start; the interval of each change misses on either side with at most "
            f"{100 * found.options.settings.missed:g} %; session {found.session}"
        ],
    )


def render_gate(found: GateOutcome, console: Console) -> None:
    """Print the report."""
    document = gate_document(found)
    console.print(document.summary, markup=False, soft_wrap=True)
    table = make_table("measured", found.base.label, found.head.label, *_COLUMNS, right=("change", "pairs"))
    for row in _rows(found, document):
        table.add_row(*row)
    console.print(table)
    for title, lines in _other_lines(found, document):
        for line in (f"{title}:", *(f"  {line}" for line in lines)) if lines else ():
            console.print(line, markup=False, emoji=False, soft_wrap=True)
    console.print(f"To repeat: {repeat_command(found)}", markup=False, soft_wrap=True)


def gate_markdown(found: GateOutcome, picture: str | None = None) -> str:
    """The comment for a merge request.

    Args:
        picture: name of the file of `gate_picture` beside the text.
    """
    document = gate_document(found)
    columns = ["measured", found.base.label, found.head.label, *_COLUMNS]
    table = [f"| {' | '.join(map(escape_markdown, columns))} |", "|---|---:|---:|---:|---|---:|---|"]
    table += [f"| {' | '.join(map(escape_markdown, row))} |" for row in _rows(found, document)]
    parts = [f"**{escape_markdown(document.summary)}**", "\n".join(table)]
    parts += [f"![Changes with their intervals]({picture})"] if picture else []
    for title, lines in _other_lines(found, document):
        if lines:
            parts.append("\n".join([f"{escape_markdown(title)}:", "", *(f"- {escape_markdown(one)}" for one in lines)]))
    return "\n\n".join([*parts, f"To repeat:\n\n    {repeat_command(found)}"]) + "\n"


def gate_junit(found: GateOutcome) -> str:
    """One test per result: slower or failing on the head is a failure, open or left out is skipped."""
    document, root = gate_document(found), JUnitXml("iowatch gate")
    classname = f"{found.base.label} to {found.head.label}"
    name = f"gate {found.options.suite} on {found.options.system}"
    suite = junit_suite(root, name, _junit_cases(document, classname), found.seconds)
    suite.add_property("decision", document.decision)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def _junit_cases(document: GateDocument, classname: str) -> Iterator[TestCase]:
    for row in document.results:
        result: FinalResult | None = None
        words = f"{format_change(row.change)} ({format_change(row.interval[0])} to {format_change(row.interval[1])})"
        if row.decision == "slower":
            result = Failure(valid_xml(f"slower: {words}"), "slower")
        elif row.decision != "within":
            result = Skipped(valid_xml(f"{_WORDS[row.decision]}: {words}"))
        yield junit_case(classname, row.name, result)
    for one in document.failed:
        yield junit_case(classname, one.name, Failure(valid_xml(one.reason), "failed"))
    names = {row.name for row in document.results}
    for one in document.left_out:
        if one.name not in names:
            yield junit_case(classname, one.name, Skipped(valid_xml(one.reason)))


_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.grid{stroke:#ccc}.margin{stroke:#b00;stroke-dasharray:4}"
    ".interval{stroke:#555;stroke-width:2}.unit{text-anchor:middle}</style>"
)
_STATE_COLOURS = {"within": "#0072b2", "slower": "#d55e00", "open": "#888", "left out": "#ccc"}
_BADGE_COLOURS = {"pass": "#0072b2", "regression": "#d55e00", "undecided": "#777"}


def gate_picture(found: GateOutcome) -> str:
    """Changes with their intervals and the margin, as an SVG file."""
    rows = gate_document(found).results
    shown = [end for row in rows for end in (row.change, *row.interval) if end is not None]
    limit = max([abs(end) for end in shown] + [2 * found.options.settings.margin])
    x = AxisScale(-min(limit, 1.0), min(limit, 1.0), 420, 780)
    height = 22 * len(rows) + 50
    parts = [svg_line("grid", x(tick), 20, x(tick), height - 20) for tick in (x.low, x.low / 2, 0, x.high / 2, x.high)]
    parts += [svg_text("unit", x(tick), height - 5, format_change(tick)) for tick in (x.low, 0, x.high)]
    margin = x(-found.options.settings.margin)
    parts.append(svg_line("margin", margin, 20, margin, height - 20))
    for number, row in enumerate(rows):
        y, (low, high) = 34 + 22 * number, row.interval
        ends = [
            min(max(end, x.low), x.high) for end in (x.low if low is None else low, x.high if high is None else high)
        ]
        parts += [svg_text("name", 5, y + 4, row.name), svg_line("interval", x(ends[0]), y, x(ends[1]), y)]
        at = x(min(max(row.change or 0.0, x.low), x.high))
        parts.append(f'<circle cx="{at:.1f}" cy="{y}" r="5" fill="{_STATE_COLOURS[row.decision]}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img">'
    title = f"<title>Change from {escape(found.base.label)} to {escape(found.head.label)}; dashed: the margin</title>"
    return f"{head}{title}{_STYLE}{''.join(parts)}</svg>\n"


def gate_badge(decision: GateDecision) -> str:
    """A badge of the decision, as an SVG file."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="170" height="20" role="img">'
        f"<title>I/O performance: {decision}</title>"
        '<rect width="100" height="20" fill="#444"/>'
        f'<rect x="100" width="70" height="20" fill="{_BADGE_COLOURS[decision]}"/>'
        '<g fill="#fff" font-family="sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="50" y="14">I/O performance</text><text x="135" y="14">{decision}</text></g></svg>\n'
    )


def gate_json(found: GateOutcome) -> dict[str, Any]:
    """The document of `iowatch gate --json` as plain JSON."""
    return asdict(gate_document(found))
