"""Reports of a comparison: JSON for programs, tables for a terminal, Markdown for tickets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from iowatch.comparison import ComparisonProvenance, Outcome, SideProvenance, describe_entry
from iowatch.core import (
    Case,
    Scalar,
    escape_controls,
    format_count,
    format_number,
    format_time,
    get_metric,
    local_day,
    make_table,
)
from iowatch.darshan import TraceChange, escape_control_characters
from iowatch.findings import short_case_names
from iowatch.site import StackDiff, shared_zone
from iowatch.statistics import PairComparison, SideSummary, format_percent
from iowatch.statistics.comparison import Subgroup
from iowatch.statistics.pairs import MAX_STATED_RANGE
from iowatch.store import fold_node_names

# Counters and reasons that a report names.
_MAX_LINES = 12
_MAX_UNPAIRED = 10
_MAX_NODES_LENGTH = 60
_VERDICT_COLOURS = {"faster": "green", "slower": "red", "not enough data": "yellow"}


# Darshan logs


def trace_comparison_document(outcome: Outcome) -> dict[str, Any] | None:
    """JSON with `cases` (each with `case`, `logs`, `changes`) and `left_out`; None without logs on both sides."""
    if not outcome.traced.cases:
        return None
    cases: list[dict[str, Any]] = []
    for traced_case in outcome.traced.cases:
        left_logs, right_logs = traced_case.logs
        cases.append(
            {
                "case": _case_parameters(traced_case.case),
                "logs": {"left": left_logs, "right": right_logs},
                "changes": [asdict(change) for change in traced_case.changes],
            }
        )
    return {"cases": cases, "left_out": outcome.traced.left_out}


@dataclass(frozen=True)
class _ChangeOfCase:
    """A change of one counter, and the name of the case that shows it."""

    case_name: str
    change: TraceChange

    @property
    def size(self) -> float:
        """Ratio of the change, >= 1; infinite if one value is 0 or absent."""
        ratio = self.change.ratio
        if ratio is not None and ratio > 0:
            return max(ratio, 1 / ratio)
        return float("inf")


def trace_comparison_lines(outcome: Outcome) -> Iterator[str]:
    """Differences of the I/O: one line per counter with the case of the largest difference; empty without logs."""
    traced_cases = outcome.traced.cases
    if not traced_cases:
        return
    largest_number = max(max(traced_case.logs) for traced_case in traced_cases)
    scope = f"{format_count(len(traced_cases), 'case')}, up to {largest_number} logs per side"
    if outcome.traced.left_out:
        scope += f"; {outcome.traced.left_out} more not examined"
    # A counter may differ in several cases.
    case_names = short_case_names([_case_parameters(traced_case.case) for traced_case in traced_cases])
    changes_by_counter: dict[str, list[_ChangeOfCase]] = {}
    for case_name, traced_case in zip(case_names, traced_cases, strict=True):
        for change in traced_case.changes:
            changes_by_counter.setdefault(change.name, []).append(_ChangeOfCase(case_name, change))
    if not changes_by_counter:
        yield f"Darshan ({scope}): the sides do their I/O in the same way."
        return
    yield f"Darshan ({scope}), what differs by more than it does from run to run of a side:"
    for changes in list(changes_by_counter.values())[:_MAX_LINES]:
        largest = max(changes, key=lambda change_of_case: change_of_case.size)
        cases = ""
        if len(case_names) > 1:
            cases = f" ({largest.case_name}; in {len(changes)} of {len(case_names)} cases)"
        yield f"  {escape_control_characters(largest.change.text)}{cases}"
    if len(changes_by_counter) > _MAX_LINES:
        yield f"  and {len(changes_by_counter) - _MAX_LINES} more figures (--json has all)"


# For programs


def comparison_document(outcome: Outcome) -> dict[str, Any]:
    """The document of `iowatch compare --json` (DESIGN.md, "Formats"; docs/comparison.md describes all keys)."""
    matched = outcome.matched
    left_name, right_name = outcome.names
    return {
        "left": outcome.left.text,
        "right": outcome.right.text,
        "names": {"left": left_name, "right": right_name},
        "differing": {name: list(values) for name, values in matched.differing.items()},
        "common": dict(matched.common),
        "settings": asdict(outcome.options.settings),
        "pairs": [_pair_document(pair) for pair in outcome.compared],
        "overall": _overall_document(outcome),
        "measured": _provenance_document(outcome.provenance),
        "unpaired": {
            "left": [dict(describe_entry(entry)) for entry in matched.only_left],
            "right": [dict(describe_entry(entry)) for entry in matched.only_right],
        },
        "notes": list(exclusion_lines(outcome)),
        "darshan": trace_comparison_document(outcome),
    }


def _pair_document(pair: PairComparison[Case]) -> dict[str, Any]:
    document = asdict(pair)
    # The words of the verdict state the bound, and the metric has the sign.
    del document["bound"], document["sign"]
    values: dict[str, Any] = {}
    if pair.values is not None:
        values = {"statistic": pair.basis, **_values_document(pair.values)}
    return {
        **document,
        "case": _case_parameters(pair.case),
        "unit": get_metric(pair.metric).unit,
        "values": values,
        "values_max": None if pair.values_max is None else _values_document(pair.values_max),
        "ci": _interval_document(pair.ci),
        "ci_simultaneous": _interval_document(pair.ci_simultaneous),
        "ci_max": _interval_document(pair.ci_max),
        "verdict": pair.words,
        "more_runs": additional_runs(pair),
    }


def _overall_document(outcome: Outcome) -> dict[str, Any]:
    overall = outcome.overall
    scaling: dict[str, list[dict[str, Any]]] = {}
    for parameter, points in overall.scaling.items():
        scaling[parameter] = [asdict(point) for point in points]
    return {
        "pairs": sum(overall.counts.values()),
        "counts": dict(overall.counts),
        "ratio": overall.ratio,
        "ci": _interval_document(overall.ci),
        "verdict": overall.words,
        "basis": overall.basis,
        "reason": overall.reason,
        "runs_needed": overall.runs_needed,
        "subgroups": [asdict(group) for group in outcome.subgroups],
        "peaks": [{**asdict(peak), "ratio": peak.ratio} for peak in overall.peaks],
        "scaling": scaling,
    }


def _provenance_document(provenance: ComparisonProvenance) -> dict[str, Any]:
    libraries, other_nodes = provenance.libraries, provenance.on_other_nodes
    return {
        "left": _side_document(provenance.left),
        "right": _side_document(provenance.right),
        "libraries": None if libraries is None else libraries.to_json(),
        "on_other_nodes": None if other_nodes is None else asdict(other_nodes),
    }


def _side_document(side: SideProvenance | None) -> dict[str, Any] | None:
    """JSON of one side; None for published tables, which have no runs."""
    if side is None:
        return None
    return {
        "runs": side.runs,
        "stacks": list(side.stacks),
        "rebuilt": side.rebuilt,
        "nodes": list(side.nodes),
        "first": format_time(datetime.fromtimestamp(side.first, UTC)),
        "last": format_time(datetime.fromtimestamp(side.last, UTC)),
    }


def _values_document(values: tuple[float, float]) -> dict[str, float]:
    left, right = values
    return {"left": left, "right": right}


def _interval_document(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def additional_runs(pair: PairComparison[Case]) -> int | None:
    """Additional runs per side at which `ComparisonSettings.difference` would be detected; 0 if there are enough."""
    if pair.runs_needed is None:
        return None
    runs_of_smaller_side = min(pair.left.runs or 0, pair.right.runs or 0)
    return max(0, pair.runs_needed - runs_of_smaller_side)


# For a terminal


def _column_titles(outcome: Outcome) -> tuple[str, ...]:
    return ("case", *outcome.names, "unit", "runs", "ratio", "95 % interval", "of maxima", "verdict", "more runs")


@dataclass(frozen=True)
class _PairRow:
    """A line of the table of pairs.

    Attributes:
        case_name: the case, with its metric if the pairs have several.
        cells: texts of all columns.
    """

    pair: PairComparison[Case]
    case_name: str
    cells: tuple[str, ...]


def _pair_rows(outcome: Outcome) -> Iterator[_PairRow]:
    case_names = short_case_names([_case_parameters(pair.case) for pair in outcome.compared])
    has_several_metrics = len({pair.metric for pair in outcome.compared}) > 1
    for short_name, pair in zip(case_names, outcome.compared, strict=True):
        metric = get_metric(pair.metric)
        case_name = f"{short_name} {metric.label.lower()}" if has_several_metrics else short_name
        left_value, right_value = pair.values or (None, None)
        ratio_of_maxima = format_ratio(pair.ratio_max)
        if pair.ci_max is not None:
            ratio_of_maxima += f" ({format_interval(pair.ci_max)})"
        cells = (
            case_name,
            format_number(left_value),
            format_number(right_value),
            f"{metric.unit} ({pair.basis})",
            f"{_format_runs(pair.left)} | {_format_runs(pair.right)}",
            format_ratio(pair.ratio),
            format_interval(pair.ci),
            ratio_of_maxima,
            pair.words,
            format_more_runs(pair),
        )
        yield _PairRow(pair, case_name, cells)


def _has_difference(pair: PairComparison[Case]) -> bool:
    return pair.verdict in ("faster", "slower")


def format_more_runs(pair: PairComparison[Case]) -> str:
    """Additional runs per side; a dash where the verdict needs none, `would not help` where they would not help."""
    if _has_difference(pair):
        return "–"
    more_runs = additional_runs(pair)
    if more_runs is not None:
        return str(more_runs)
    return "–" if pair.runs_reason is None else "would not help"


def explanation_lines(outcome: Outcome) -> Iterator[str]:
    """What the values beside a ratio are if they are not medians of all samples, and why more runs would not help."""
    if any(pair.paired for pair in outcome.compared):
        yield (
            "Paired medians: both sides were measured in the same sessions. The ratio is the geometric mean of the "
            "sessions' ratios of medians, over their middle half; the values are the geometric means of these medians."
        )
    # Many cases share a reason.
    case_names = short_case_names([_case_parameters(pair.case) for pair in outcome.compared])
    cases_by_reason: dict[str, list[str]] = {}
    for case_name, pair in zip(case_names, outcome.compared, strict=True):
        if pair.runs_reason and not _has_difference(pair):
            cases_by_reason.setdefault(pair.runs_reason, []).append(case_name)
    for reason, cases in list(cases_by_reason.items())[:_MAX_LINES]:
        listed = "; ".join(cases[:_MAX_REASON_CASES])
        if len(cases) > _MAX_REASON_CASES:
            listed += " …"
        yield f"{listed}: {reason}."


_MAX_REASON_CASES = 3
_STATISTICS = ("max", "median", "mean", "min")
_SAMPLE_COLUMNS = ("case", "side", "n", *_STATISTICS, "unit")


def _sample_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Statistics of all samples, one row per side of each pair."""
    for row in _pair_rows(outcome):
        unit = get_metric(row.pair.metric).unit
        for side_name, summary in zip(outcome.names, (row.pair.left, row.pair.right), strict=True):
            number = "–" if summary.n is None else str(summary.n)
            statistics = [format_number(getattr(summary, statistic)) for statistic in _STATISTICS]
            yield row.case_name, side_name, number, *statistics, unit


def _format_runs(side: SideSummary) -> str:
    """Runs (samples) of a side, or `printed` for published figures."""
    return "printed" if side.runs is None else f"{side.runs} ({side.n})"


def format_ratio(ratio: float | None) -> str:
    """A ratio with three digits behind the point, one from 10 on; a dash for None."""
    if ratio is None:
        return "–"
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def format_interval(ci: tuple[float, float] | None) -> str:
    """The ends of an interval; one that states nothing is not printed with its ends."""
    if ci is None:
        return "–"
    low, high = ci
    if high > MAX_STATED_RANGE * low:
        return f"wider than ×{MAX_STATED_RANGE}"
    return f"{format_ratio(low)} – {format_ratio(high)}"


def selection_text(outcome: Outcome) -> str:
    """What was compared, as the user wrote it; the sides of an A/B run have no text of their own."""
    left, right = outcome.left, outcome.right
    if "side" in outcome.matched.differing:
        return f"A/B run, session {left.name}"
    return left.text if left == right else f"{left.text} against {right.text}"


def summary_sentences(outcome: Outcome) -> list[str]:
    """The outcome in sentences, the most important first."""
    overall = outcome.overall
    counts = ", ".join(f"{number} {verdict}" for verdict, number in overall.counts.items() if number)
    sentences = [f"{_overall_answer(outcome)}. By case: {counts}."]
    if overall.runs_needed is not None:
        sentences.append(f"{overall.reason[0].upper()}{overall.reason[1:]}.")
    sentences += [_subgroup_sentence(group) for group in outcome.subgroups]
    for parameter, points in overall.scaling.items():
        # All points are listed, because the trend over writers cannot be reduced to two numbers.
        ratios = ", ".join(f"{format_ratio(point.ratio)} at {point.value}" for point in points)
        sentences.append(f"By {parameter}, times as fast: {ratios}.")
    for peak in overall.peaks:
        metric = get_metric(peak.metric)
        figures = f"{format_number(peak.left)} | {format_number(peak.right)} {metric.unit}"
        sentences.append(f"Best {peak.operation} {metric.label.lower()}: {figures}, ratio {format_ratio(peak.ratio)}.")
    return sentences


def _overall_answer(outcome: Outcome) -> str:
    """`new is faster, all cases together: 1.203 times as fast as old (1.100 – 1.300, between sessions)`."""
    overall = outcome.overall
    left, right = outcome.names
    # Names of sides are subjects, but "before" and "after" are not.
    is_event = (left, right) == ("before", "after")
    comparison = f"{right} is {overall.verdict}"
    if is_event:
        comparison = f"{overall.verdict.capitalize()} after than before"
    answer = _OVERALL_TEXT[overall.verdict].format(bound=format_percent(overall.bound or 0), than=comparison)
    if overall.ratio is not None:
        # An answer about faster or slower has its subject already.
        has_subject = is_event or overall.verdict in ("faster", "slower")
        subject = "" if has_subject else f"{right} is "
        answer += f": {subject}{format_ratio(overall.ratio)} times as fast as {left}"
    if overall.ci is not None:
        answer += f" ({format_interval(overall.ci)}, {_BASIS_TEXT[overall.basis]})"
    return answer


def _subgroup_sentence(group: Subgroup) -> str:
    """`Slower: operation = write: 6 of 6, ×0.8; 1 of 12 others.`"""
    selected = f"{group.direction.capitalize()}: {group.rule}: {group.inside} of {group.inside_total}"
    others = f"; {group.outside} of {group.outside_total} others" if group.outside_total else ""
    return f"{selected}, ×{group.ratio:.3g}{others}."


_OVERALL_TEXT = {
    "faster": "{than}, all cases together",
    "slower": "{than}, all cases together",
    "no difference": "No difference above {bound}, all cases together",
    "not enough data": "Not enough data for a verdict on all cases together",
}
_BASIS_TEXT = {
    "sessions": "between sessions",
    "paired sessions": "session by session",
    "cases": "over these cases; the sessions are not known",
    "none": "",
}


def _format_differing(outcome: Outcome) -> str:
    """`differs: stack old → new; same: system archer`."""
    differing: list[str] = []
    for name, (left, right) in outcome.matched.differing.items():
        # The sides of an A/B run are in the text of the selection.
        if name != "side":
            differing.append(f"{name} {_format_value(left)} → {_format_value(right)}")
    common = [f"{name} {value}" for name, value in outcome.matched.common.items()]
    texts: list[str] = []
    if differing:
        texts.append(f"differs: {', '.join(differing)}")
    texts.append(f"same: {', '.join(common)}")
    return "; ".join(texts).strip("; ")


def _format_value(value: Scalar | None) -> str:
    return "none" if value is None else str(value)


_EXCLUDED_TEXT = {
    "not ok": "of failed or incomplete runs left out",
    "warm-up": "of warm-ups left out",
    "zero": "with a value of 0 left out",
}


def exclusion_lines(outcome: Outcome) -> Iterator[str]:
    """What was left out of each side, one line per reason."""
    for excluded in outcome.exclusions:
        if excluded.reason == "older":
            yield f"{excluded.side}: the newest {outcome.options.last} of up to {excluded.count} runs used (--last)"
        else:
            count = format_count(excluded.count, "result")
            yield f"{excluded.side}: {count} {_EXCLUDED_TEXT[excluded.reason]}"


def provenance_lines(outcome: Outcome) -> Iterator[str]:
    """Measurement period of each side, stack diff, and differences between the nodes."""
    provenance = outcome.provenance
    # Published tables have no runs.
    sides: list[tuple[str, SideProvenance]] = []
    for name, side in zip(outcome.names, (provenance.left, provenance.right), strict=True):
        if side is not None:
            sides.append((name, side))
    if sides:
        system = outcome.matched.common.get("system")
        zone = shared_zone([system] if system else [])
        periods = [f"{name}, {format_count(side.runs, 'run')} {_format_period(side, zone)}" for name, side in sides]
        yield f"Measured: {'; '.join(periods)} ({zone})."
    if provenance.libraries is not None:
        yield _library_line(provenance.libraries)
    for name, side in sides:
        if side.rebuilt:
            yield f"Libraries: a stack of {name} was changed between its runs (`iowatch history show`)."
    yield from _node_lines(provenance)


def _library_line(libraries: StackDiff) -> str:
    """Which parts of the stacks differ, and how many are the same."""
    same = f"{libraries.same} the same"
    changed: list[str] = []
    for difference in libraries.differences:
        field = "" if difference.field == "version" else f"{difference.field} "
        changed.append(f"{difference.part} {field}{difference.left or 'none'} → {difference.right or 'none'}")
    if libraries.rebuilt:
        changed.append(f"rebuilt, same version: {', '.join(libraries.rebuilt)}")
    return f"Libraries: {'; '.join(changed)}; {same}." if changed else f"Libraries: all {same} on both sides."


def _node_lines(provenance: ComparisonProvenance) -> Iterator[str]:
    """Whether both sides ran on the same nodes, in one line; empty if that is not known."""
    left = provenance.left.nodes if provenance.left is not None else ()
    right = provenance.right.nodes if provenance.right is not None else ()
    other_nodes = provenance.on_other_nodes
    if other_nodes is not None and other_nodes.runs:
        yield f"Nodes: {other_nodes.runs} of {other_nodes.of} runs had other nodes than their counterparts."
    elif other_nodes is not None and left == right:
        yield f"Nodes: {_shorten_node_list(left)} on both sides, the same for every pair of runs."
    elif left and right and not set(left) & set(right):
        yield f"Nodes: none in common: {_shorten_node_list(left)} | {_shorten_node_list(right)}."


def _shorten_node_list(nodes: Sequence[str]) -> str:
    names = fold_node_names(nodes)
    return names if len(names) <= _MAX_NODES_LENGTH else f"{len(nodes)} nodes"


def _format_period(side: SideProvenance, zone: tzinfo) -> str:
    first, last = local_day(side.first, zone), local_day(side.last, zone)
    return f"on {first}" if first == last else f"from {first} to {last}"


def _unpaired_lines(outcome: Outcome) -> Iterator[str]:
    """Cases that only one side has, the first ones by name."""
    paired_cases = [_case_parameters(pair.case) for pair in outcome.compared]
    unpaired_entries = (outcome.matched.only_left, outcome.matched.only_right)
    for side_name, entries in zip(outcome.names, unpaired_entries, strict=True):
        # Names are built together with those of the pairs, so that the distinguishing parameters are shown.
        unpaired_cases = [entry.described for entry in entries]
        case_names = short_case_names([*paired_cases, *unpaired_cases])[len(paired_cases) :]
        for case_name, entry in list(zip(case_names, entries, strict=True))[:_MAX_UNPAIRED]:
            yield f"only {side_name}: {case_name} ({entry.metric})"
        if len(entries) > _MAX_UNPAIRED:
            yield f"only {side_name}: {len(entries) - _MAX_UNPAIRED} more (--json lists all)"


def _case_parameters(case: Case) -> dict[str, Scalar]:
    return {"benchmark": case.benchmark, **case.parameters}


def print_comparison(outcome: Outcome, console: Console, samples: bool = False) -> None:
    """Print the summary, then a table of the pairs, then the excluded cases and results.

    Args:
        samples: also n, max, median, mean and min of each side.
    """
    console.print(Text(" against ".join(outcome.names), style="bold"))
    for line in (selection_text(outcome), _format_differing(outcome), *provenance_lines(outcome)):
        console.print(Text(line, style="dim"))
    for line in summary_sentences(outcome):
        console.print(Text(line))
    pair_table = Table(*_column_titles(outcome))
    for row in _pair_rows(outcome):
        pair_table.add_row(*map(Text, row.cells), style=_VERDICT_COLOURS.get(row.pair.verdict))
    console.print(pair_table)
    for line in explanation_lines(outcome):
        console.print(Text(line, style="dim"))
    if samples:
        sample_table = make_table(*_SAMPLE_COLUMNS, right=("n", *_STATISTICS))
        for cells in _sample_rows(outcome):
            sample_table.add_row(*cells)
        console.print(sample_table)
    for line in trace_comparison_lines(outcome):
        console.print(Text(line))
    for line in (*_unpaired_lines(outcome), *exclusion_lines(outcome)):
        console.print(Text(line, style="dim"))


# For tickets


def comparison_markdown(outcome: Outcome) -> str:
    """The comparison as Markdown."""
    pair_titles = [_escape_cell(title) for title in _column_titles(outcome)]
    pair_cells = [row.cells for row in _pair_rows(outcome)]
    # Each paragraph is a list of lines; empty ones are left out.
    paragraphs = [
        [f"### {_escape_cell(' against '.join(outcome.names))}"],
        [_escape_cell(selection_text(outcome))],
        [_escape_cell(_format_differing(outcome))],
        _bullets([*provenance_lines(outcome), *summary_sentences(outcome)]),
        _markdown_table(pair_titles, pair_cells),
        _bullets(explanation_lines(outcome)),
        _markdown_table(_SAMPLE_COLUMNS, _sample_rows(outcome)),
        _bullets(trace_comparison_lines(outcome)),
        _bullets((*_unpaired_lines(outcome), *exclusion_lines(outcome))),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines).rstrip() + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {_escape_cell(line)}" for line in lines]


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(_escape_cell, cells))} |" for cells in rows]
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines]


def _escape_cell(text: str) -> str:
    """Escape text for a Markdown table: names are untrusted and may contain cell separators or HTML."""
    for character in "\\|<>`*_[]":
        text = text.replace(character, f"\\{character}")
    return escape_controls(" ".join(text.split()))
