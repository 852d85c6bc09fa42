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
from iowatch.statistics.gate import LEAST_SHARE, GateDecision, GateResult, GateState

_COLUMNS = ("change", "interval", "pairs", "decision")


@dataclass(frozen=True)
class PairCounts:
    """Number of pairs in which something happened to one build only."""

    base: int
    head: int


@dataclass(frozen=True)
class GatedResult:
    """One result of both builds.

    Attributes:
        run, case, metric, unit: what was measured.
        base, head: medians of the runs.
        change: of the performance, -0.1 is 10 % slower; the median of the pairs.
        interval: of `change`; each end misses with at most `missed`. Ends that are not known are null.
        noise: robust standard deviation of ln(head / base) of a pair; `base_noise` the same of the base with itself.
        slow_pairs: number of pairs in which each build was far slower than the other (docs/gate.md).
        failed_pairs: number of pairs in which each build failed and the other one did not; not among `pairs`.
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
    base_noise: float
    slow_pairs: PairCounts
    failed_pairs: PairCounts
    pairs: int
    decision: GateState


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


def gate_document(outcome: GateOutcome) -> GateDocument:
    """The document of a gate."""
    options = outcome.options
    # What failed, was left out before it was measured, or was measured and is too noisy.
    failed = [ReasonDocument(run, reason) for run, reason in outcome.failed.items()]
    left_out = [ReasonDocument(run, reason) for run, reason in outcome.left_out.items()]
    for name, result in zip(result_names(outcome.results), outcome.results, strict=True):
        if result.test.state == "left out":
            reason = (
                f"its pairs differ by {_percent(result.test.noise)}, runs of the base alone by "
                f"{_percent(result.test.base_noise)}: too much noise of the machine for the time"
            )
            left_out.append(ReasonDocument(name, reason))
    return GateDocument(
        format=1,
        decision=outcome.decision,
        summary=summary(outcome),
        system=options.system,
        suite=options.suite,
        base=options.base,
        head=options.head,
        libraries=list(_library_lines(outcome)),
        margin=options.settings.margin,
        missed=options.settings.missed,
        false_alarm=options.settings.false_alarm,
        results=_result_documents(outcome),
        failed=failed,
        left_out=left_out,
        counts=_count_documents(outcome),
        counts_refused=outcome.counts_refused,
        seconds=round(outcome.seconds, 1),
        seconds_left=round(outcome.seconds_left, 1),
        load=round(outcome.load, 2),
        session=outcome.session,
    )


def _count_documents(outcome: GateOutcome) -> list[CountDocument] | None:
    """The counts that differ, one per run and count; None if nothing was counted."""
    if outcome.counts is None:
        return None
    documents: list[CountDocument] = []
    for run_differences in outcome.counts:
        for difference in run_differences.differences:
            documents.append(CountDocument(run_differences.run, difference.name, difference.base, difference.head))
    return documents


def result_names(results: Sequence[MeasuredResult]) -> list[str]:
    """Short names of the results, as comparisons use them."""
    descriptions: list[dict[str, Scalar]] = []
    for measured in results:
        case = measured.result.case
        # Both builds ran the case in an A/B run, which tells no result from another.
        parameters = case.without("ab_run").parameters
        descriptions.append({"benchmark": case.benchmark, **parameters})
    return short_case_names(descriptions)


def _result_documents(outcome: GateOutcome) -> list[GatedResult]:
    """One document per result, in their order."""
    names = result_names(outcome.results)
    return [_result_document(name, result) for name, result in zip(names, outcome.results, strict=True)]


def _result_document(name: str, measured: MeasuredResult) -> GatedResult:
    result = measured.result
    test = measured.test
    # The test works with logarithms of the gain; the document has changes.
    low, high = test.interval()
    return GatedResult(
        name=name,
        run=result.run,
        case=dict(result.case.parameters),
        metric=result.metric,
        unit=METRICS[result.metric].unit,
        base=measured.base,
        head=measured.head,
        change=math.expm1(test.centre.estimate),
        interval=(_finite_change(low), _finite_change(high)),
        noise=test.noise,
        base_noise=test.base_noise,
        slow_pairs=_slow_pairs(test),
        failed_pairs=_failed_pairs(test),
        pairs=len(test.centre.log_ratios),
        decision=test.state,
    )


def _slow_pairs(test: GateResult) -> PairCounts:
    if test.erratic is None:
        return PairCounts(0, 0)
    return PairCounts(base=test.erratic.slow_bases, head=test.erratic.slow_heads)


def _failed_pairs(test: GateResult) -> PairCounts:
    if test.erratic is None:
        return PairCounts(0, 0)
    return PairCounts(base=test.erratic.failed_bases, head=test.erratic.failed_heads)


def _finite_change(log_gain: float) -> float | None:
    """The change that a log gain stands for; None for an infinite end of an interval."""
    if not math.isfinite(log_gain):
        return None
    return math.expm1(log_gain)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def summary(outcome: GateOutcome) -> str:
    """The decision in one sentence, for somebody who never read the documentation."""
    base = outcome.base.label
    head = outcome.head.label
    if outcome.failed:
        names = ", ".join(outcome.failed)
        return f"{head} does not work where {base} does: {names} fails."
    results = _result_documents(outcome)
    losses: list[str] = []
    for result in results:
        if result.decision == "slower":
            losses.append(f"{result.name} by {_percent(-result.change)}")
        elif result.decision == "erratic":
            losses.append(f"{result.name} erratic, {_erratic_text(result)}")
    if losses:
        return f"{head} is slower than {base}: {', '.join(losses)}."
    # Nothing failed and nothing is slower: all results are within the margin, or something is not known.
    within_count = sum(result.decision == "within" for result in results)
    measured = format_count(within_count, "measurement")
    margin = f"{100 * outcome.options.settings.margin:g} %"
    if outcome.decision == "pass":
        left_out_count = len(results) - within_count + len(outcome.left_out)
        exceptions = f"; {left_out_count} did not take part (below)" if left_out_count else ""
        return f"{head} is not slower than {base} by {margin} or more in any of {measured}{exceptions}."
    return f"Not decided whether {head} is slower than {base} by {margin} or more: {_missing(outcome, results)}."


def _missing(outcome: GateOutcome, results: Sequence[GatedResult]) -> str:
    """What an undecided gate needs."""
    time = f"{outcome.seconds / 60:.0f} minutes"
    if not results:
        return f"{time} were over before the first pair; more time (--minutes) or fewer cases (--case) are needed"
    within_count = sum(result.decision == "within" for result in results)
    open_results = [result for result in results if result.decision == "open"]
    if not open_results:
        needed = f"{100 * LEAST_SHARE:g} % of the results must take part"
        return f"the machine is too noisy for {time}: {within_count} of {len(results)} results took part, {needed}"
    texts = [f"in {time} {format_count(within_count, 'measurement')} within it, {len(open_results)} open"]
    # A head that fails, or is noisier than the base, is more than a lack of time.
    failing: list[str] = []
    noisy: list[str] = []
    for result in open_results:
        if result.failed_pairs.head > result.failed_pairs.base:
            failing.append(result.name)
        elif _noise_reason(result):
            noisy.append(result.name)
    if failing:
        texts.append(f"the head fails in some runs of {', '.join(failing)}")
    if noisy:
        texts.append(f"the head is noisier than the base in {', '.join(noisy)}")
    if len(failing) < len(open_results):
        texts.append(f"about {math.ceil(outcome.seconds_left / 60)} more minutes are needed")
    return "; ".join(texts)


# The noise of a pair, in that of the base with itself, from which a head is called noisier: with twice of it, a head
# with three times the noise of the base is not named.
_NOISIER_HEAD = 2.0


def _noise_reason(result: GatedResult) -> str:
    """Why an open result is not within the margin although its level may be; empty without such a reason."""
    is_slower_more_often = result.slow_pairs.head > result.slow_pairs.base
    if is_slower_more_often or result.failed_pairs.head > result.failed_pairs.base:
        return _erratic_text(result)
    if result.base_noise > 0 and result.noise > _NOISIER_HEAD * result.base_noise:
        return f"pairs differ by {_percent(result.noise)}, runs of the base by {_percent(result.base_noise)}"
    return ""


def _erratic_text(result: GatedResult) -> str:
    """In how many pairs the head failed or was far slower."""
    failed, slow = result.failed_pairs, result.slow_pairs
    texts: list[str] = []
    if failed.head:
        all_pairs = result.pairs + failed.head + failed.base
        texts.append(f"fails in {failed.head} of {all_pairs} pairs (the base in {failed.base})")
    if slow.head:
        texts.append(f"far slower in {slow.head} of {result.pairs} pairs (the base in {slow.base})")
    return ", ".join(texts)


def repeat_command(outcome: GateOutcome) -> str:
    """The command that repeats the gate, with more time if it was undecided."""
    options = outcome.options
    minutes = options.budget_s / 60
    if outcome.decision == "undecided":
        # A reserve of a fifth, because the time left is an estimate.
        needed_s = outcome.seconds + 1.2 * outcome.seconds_left
        minutes = max(math.ceil(needed_s / 60), minutes)
    words = ["iowatch", "gate", "--base", options.base, "--head", options.head, "--system", options.system]
    words += ["--suite", options.suite, "--margin", f"{100 * options.settings.margin:g}%"]
    words += ["--minutes", f"{minutes:g}"]
    # Only the options that differ from their defaults.
    for benchmark in options.benchmarks:
        words += ["--benchmark", benchmark]
    for case in options.cases:
        words += ["--case", case]
    if options.scratch:
        words += ["--scratch", str(options.scratch)]
    if options.build_command:
        words += ["--build", options.build_command]
    if options.package:
        words += ["--package", options.package]
    return shlex.join(words)


def _library_lines(outcome: GateOutcome) -> Iterator[str]:
    """In what the builds differ: `hdf5 1.10.8 -> 1.14.5`."""
    for difference in outcome.difference.differences:
        field = "" if difference.field == "version" else f" {difference.field}"
        yield f"{difference.part}{field} {difference.left or 'none'} -> {difference.right or 'none'}"
    if outcome.difference.rebuilt:
        yield f"same version, another build: {', '.join(outcome.difference.rebuilt)}"


_DECISION_WORDS: dict[GateState, str] = {
    "within": "within the margin",
    "slower": "slower",
    "erratic": "erratic",
    "open": "not decided",
    "left out": "left out: noise",
}


def _decision_text(result: GatedResult) -> str:
    """The decision of one result in words, with the pairs that are far apart."""
    words = _DECISION_WORDS[result.decision]
    reason = _erratic_text(result)
    if result.decision == "open":
        reason = _noise_reason(result)
    return f"{words}: {reason}" if reason else words


def _table_rows(document: GateDocument) -> Iterator[tuple[str, ...]]:
    """Cells of the table of results: name, base, head and `_COLUMNS`."""
    for result in document.results:
        low, high = result.interval
        interval = ""
        if low is not None or high is not None:
            interval = f"{format_change(low)} to {format_change(high)}"
        yield (
            result.name,
            f"{format_number(result.base)} {result.unit}",
            f"{format_number(result.head)} {result.unit}",
            format_change(result.change),
            interval,
            str(result.pairs),
            _decision_text(result),
        )


def _count_lines(outcome: GateOutcome) -> list[str]:
    """Counts that differ, most of which need no statistics to be believed."""
    if outcome.counts is None:
        return [outcome.counts_refused] if outcome.counts_refused else []
    lines: list[str] = []
    for run_differences in outcome.counts:
        changes = [difference.text for difference in run_differences.differences]
        lines.append(f"{run_differences.run}: {'; '.join(changes)}")
    if not lines:
        lines.append("no count differs: both builds make the same calls on the files, as far as they were counted")
    if outcome.counts_refused:
        lines.append(outcome.counts_refused)
    return lines


_ABSENCES = "Did not take part"


@dataclass(frozen=True)
class _Section:
    """Lines below the table, under their title."""

    title: str
    lines: Sequence[str]


def _sections(outcome: GateOutcome, document: GateDocument) -> list[_Section]:
    """What stands below the table, without sections that have no lines."""
    missed_percent = 100 * outcome.options.settings.missed  # one-sided error probability
    measurement = (
        f"{outcome.seconds / 60:.1f} minutes on {platform.node()}, load {outcome.load:.1f} at the start; the interval "
        f"of each change misses on either side with at most {missed_percent:g} %; session {outcome.session}"
    )
    sections = [
        _Section("Fails", _reason_lines(document.failed)),
        _Section("Counts of one repetition", _count_lines(outcome)),
        _Section(f"{outcome.base.label} -> {outcome.head.label}", document.libraries),
        _Section("Measured", [measurement]),
    ]
    return [section for section in sections if section.lines]


def _absence_lines(document: GateDocument) -> list[str]:
    """Which results did not take part in the decision, and why; what is open first."""
    lines: list[str] = []
    for result in document.results:
        if result.decision == "open":
            lines.append(f"{result.name}: {_decision_text(result)}")
    return [*lines, *_reason_lines(document.left_out)]


def _reason_lines(documents: Sequence[ReasonDocument]) -> list[str]:
    return [f"{document.name}: {document.reason}" for document in documents]


def render_gate(outcome: GateOutcome, console: Console) -> None:
    """Print the report."""
    document = gate_document(outcome)
    console.print(document.summary, markup=False, soft_wrap=True)
    _print_section(console, _Section(_ABSENCES, _absence_lines(document)))
    table = make_table("measured", outcome.base.label, outcome.head.label, *_COLUMNS, right=("change", "pairs"))
    for row in _table_rows(document):
        table.add_row(*row)
    console.print(table)
    for section in _sections(outcome, document):
        _print_section(console, section)
    console.print(f"To repeat: {repeat_command(outcome)}", markup=False, soft_wrap=True)


def _print_section(console: Console, section: _Section) -> None:
    """Print a section, if it has lines."""
    if not section.lines:
        return
    console.print(f"{section.title}:", markup=False, emoji=False, soft_wrap=True)
    for line in section.lines:
        console.print(f"  {line}", markup=False, emoji=False, soft_wrap=True)


def gate_markdown(outcome: GateOutcome, picture: str | None = None) -> str:
    """The comment for a merge request.

    Args:
        picture: name of the file of `gate_picture` beside the text.
    """
    document = gate_document(outcome)
    columns = ["measured", outcome.base.label, outcome.head.label, *_COLUMNS]
    # The decision first, then what it does not rest on, then the table of results.
    table_lines = [f"| {' | '.join(map(escape_markdown, columns))} |", "|---|---:|---:|---:|---|---:|---|"]
    for row in _table_rows(document):
        table_lines.append(f"| {' | '.join(map(escape_markdown, row))} |")
    paragraphs = [f"**{escape_markdown(document.summary)}**"]
    absence_lines = _absence_lines(document)
    if absence_lines:
        paragraphs.append(_markdown_list(_Section(_ABSENCES, absence_lines)))
    paragraphs.append("\n".join(table_lines))
    if picture:
        paragraphs.append(f"![Changes with their intervals]({picture})")
    # The sections below it are lists.
    for section in _sections(outcome, document):
        paragraphs.append(_markdown_list(section))
    paragraphs.append(f"To repeat:\n\n    {repeat_command(outcome)}")
    return "\n\n".join(paragraphs) + "\n"


def _markdown_list(section: _Section) -> str:
    items = [f"- {escape_markdown(line)}" for line in section.lines]
    return "\n".join([f"{escape_markdown(section.title)}:", "", *items])


def gate_junit(outcome: GateOutcome) -> str:
    """One test per result: slower, erratic or failing on the head is a failure, open or left out is skipped."""
    document = gate_document(outcome)
    root = JUnitXml("iowatch gate")
    class_name = f"{outcome.base.label} to {outcome.head.label}"
    name = f"gate {outcome.options.suite} on {outcome.options.system}"
    suite = junit_suite(root, name, _junit_cases(document, class_name), outcome.seconds)
    suite.add_property("decision", document.decision)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def _junit_cases(document: GateDocument, class_name: str) -> Iterator[TestCase]:
    for result in document.results:
        low, high = result.interval
        words = f"{format_change(result.change)} ({format_change(low)} to {format_change(high)})"
        test_result: FinalResult | None = None
        if result.decision in ("slower", "erratic"):
            test_result = Failure(valid_xml(f"{_decision_text(result)}: {words}"), result.decision)
        elif result.decision != "within":
            test_result = Skipped(valid_xml(f"{_decision_text(result)}: {words}"))
        yield junit_case(class_name, result.name, test_result)
    for failure in document.failed:
        yield junit_case(class_name, failure.name, Failure(valid_xml(failure.reason), "failed"))
    # Results that are too noisy are left out, but have their test already.
    result_names_with_test = {result.name for result in document.results}
    for omission in document.left_out:
        if omission.name not in result_names_with_test:
            yield junit_case(class_name, omission.name, Skipped(valid_xml(omission.reason)))


_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.grid{stroke:#ccc}.margin{stroke:#b00;stroke-dasharray:4}"
    ".interval{stroke:#555;stroke-width:2}.unit{text-anchor:middle}</style>"
)
_STATE_COLOURS = {"within": "#0072b2", "slower": "#d55e00", "erratic": "#d55e00", "open": "#888", "left out": "#ccc"}
_BADGE_COLOURS = {"pass": "#0072b2", "regression": "#d55e00", "undecided": "#777"}


def gate_picture(outcome: GateOutcome) -> str:
    """Changes with their intervals and the margin, as an SVG file."""
    results = gate_document(outcome).results
    margin = outcome.options.settings.margin
    x_scale = _picture_scale(results, margin)
    height = 22 * len(results) + 50
    # A grid with the changes below it, and the margin as a dashed line.
    elements: list[str] = []
    for tick in (x_scale.low, x_scale.low / 2, 0, x_scale.high / 2, x_scale.high):
        elements.append(svg_line("grid", x_scale(tick), 20, x_scale(tick), height - 20))
    for tick in (x_scale.low, 0, x_scale.high):
        elements.append(svg_text("unit", x_scale(tick), height - 5, format_change(tick)))
    elements.append(svg_line("margin", x_scale(-margin), 20, x_scale(-margin), height - 20))
    # One row per result: its name, the interval as a line, the change as a circle.
    for number, result in enumerate(results):
        y = 34 + 22 * number
        low, high = result.interval
        # An end that is not known reaches to the edge of the picture.
        line_start = x_scale(_clip(x_scale.low if low is None else low, x_scale))
        line_end = x_scale(_clip(x_scale.high if high is None else high, x_scale))
        circle_x = x_scale(_clip(result.change or 0.0, x_scale))
        elements.append(svg_text("name", 5, y + 4, result.name))
        elements.append(svg_line("interval", line_start, y, line_end, y))
        elements.append(f'<circle cx="{circle_x:.1f}" cy="{y}" r="5" fill="{_STATE_COLOURS[result.decision]}"/>')
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img">'
    builds = f"{escape(outcome.base.label)} to {escape(outcome.head.label)}"
    title = f"<title>Change from {builds}; dashed: the margin</title>"
    return f"{start}{title}{_STYLE}{''.join(elements)}</svg>\n"


def _picture_scale(results: Sequence[GatedResult], margin: float) -> AxisScale:
    """Changes to pixels: symmetric around no change, with all intervals and twice the margin, at most 100 %."""
    limit = 2 * margin
    for result in results:
        for change in (result.change, *result.interval):
            if change is not None:
                limit = max(limit, abs(change))
    limit = min(limit, 1.0)
    return AxisScale(-limit, limit, 420, 780)


def _clip(change: float, scale: AxisScale) -> float:
    """The change, or the end of the scale beyond which it is."""
    return min(max(change, scale.low), scale.high)


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


def gate_json(outcome: GateOutcome) -> dict[str, Any]:
    """The document of `iowatch gate --json` as plain JSON."""
    return asdict(gate_document(outcome))
