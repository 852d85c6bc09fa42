"""Reports of a comparison: JSON for programs, tables for a terminal, Markdown for tickets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from iowatch.comparison import Outcome, SideProvenance, describe_entry
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
from iowatch.site import shared_zone
from iowatch.statistics import PairComparison, SideSummary, format_percent
from iowatch.statistics.pairs import MAX_STATED_RANGE
from iowatch.store import fold_node_names

_MAX_LINES = 12


def trace_comparison_document(outcome: Outcome) -> dict[str, Any] | None:
    """JSON with `cases` (each with `case`, `logs`, `changes`) and `left_out`; None without logs on both sides."""
    cases = []
    for one in outcome.traced.cases:
        logs, changes = dict(zip(("left", "right"), one.logs, strict=True)), [asdict(change) for change in one.changes]
        cases.append({"case": _case_parameters(one.case), "logs": logs, "changes": changes})
    return {"cases": cases, "left_out": outcome.traced.left_out} if cases else None


def trace_comparison_lines(outcome: Outcome) -> Iterator[str]:
    """Differences of the I/O: one line per counter with the case of the largest difference; empty without logs."""
    found = outcome.traced
    if not found.cases:
        return
    most_logs = max(max(one.logs) for one in found.cases)
    scope = f"{format_count(len(found.cases), 'case')}, up to {most_logs} logs per side"
    scope += f"; {found.left_out} more not examined" if found.left_out else ""
    names = short_case_names([_case_parameters(one.case) for one in found.cases])
    changes: dict[str, list[tuple[str, TraceChange]]] = {}
    for name, one in zip(names, found.cases, strict=True):
        for change in one.changes:
            changes.setdefault(change.name, []).append((name, change))
    if not changes:
        yield f"Darshan ({scope}): the sides do their I/O in the same way."
        return
    yield f"Darshan ({scope}), what differs by more than it does from run to run of a side:"
    for group in list(changes.values())[:_MAX_LINES]:
        name, most = max(group, key=lambda row: _change_size(row[1]))
        where = "" if len(names) == 1 else f" ({name}; in {len(group)} of {len(names)} cases)"
        yield f"  {escape_control_characters(most.text)}{where}"
    if len(changes) > _MAX_LINES:
        yield f"  and {len(changes) - _MAX_LINES} more figures (--json has all)"


def _change_size(change: TraceChange) -> float:
    """Ratio of a change, >= 1; infinite if one value is 0 or absent."""
    return max(change.ratio, 1 / change.ratio) if change.ratio and change.ratio > 0 else float("inf")


_VERDICT_COLOURS = {"faster": "green", "slower": "red", "not enough data": "yellow"}
_MAX_UNPAIRED = 10
_MAX_NODES_LENGTH = 60


# For programs


def comparison_document(outcome: Outcome) -> dict[str, Any]:
    """The document of `iowatch compare --json` (DESIGN.md, "Formats"; docs/comparison.md describes all keys)."""
    matched, overall, provenance = outcome.matched, outcome.overall, outcome.provenance
    return {
        "left": outcome.left.text,
        "right": outcome.right.text,
        "names": dict(zip(("left", "right"), outcome.names, strict=True)),
        "differing": {name: list(values) for name, values in matched.differing.items()},
        "common": dict(matched.common),
        "settings": asdict(outcome.options.settings),
        "pairs": [
            {
                **{name: value for name, value in asdict(one).items() if name not in ("bound", "sign")},
                "case": _case_parameters(one.case),
                "unit": get_metric(one.metric).unit,
                "values": _values_document(one.values) and {"statistic": one.basis, **_values_document(one.values)},
                "values_max": _values_document(one.values_max) or None,
                "ci": one.ci and list(one.ci),
                "ci_max": one.ci_max and list(one.ci_max),
                "verdict": one.words,
                "more_runs": additional_runs(one),
            }
            for one in outcome.compared
        ],
        "overall": {
            "pairs": sum(overall.counts.values()),
            "counts": dict(overall.counts),
            "ratio": overall.ratio,
            "ci": overall.ci and list(overall.ci),
            "verdict": overall.words,
            "basis": overall.basis,
            "reason": overall.reason,
            "runs_needed": overall.runs_needed,
            "subgroups": [asdict(group) for group in outcome.subgroups],
            "peaks": [{**asdict(peak), "ratio": peak.ratio} for peak in overall.peaks],
            "scaling": {name: [asdict(point) for point in points] for name, points in overall.scaling.items()},
        },
        "measured": {
            "left": provenance.left and _side_document(provenance.left),
            "right": provenance.right and _side_document(provenance.right),
            "libraries": provenance.libraries and provenance.libraries.to_json(),
            "on_other_nodes": provenance.on_other_nodes and asdict(provenance.on_other_nodes),
        },
        "unpaired": {
            "left": [dict(describe_entry(entry)) for entry in matched.only_left],
            "right": [dict(describe_entry(entry)) for entry in matched.only_right],
        },
        "notes": list(exclusion_lines(outcome)),
        "darshan": trace_comparison_document(outcome),
    }


def _values_document(values: tuple[float, float] | None) -> dict[str, float]:
    return dict(zip(("left", "right"), values or (), strict=False))


def _side_document(side: SideProvenance) -> dict[str, Any]:
    times = {end: format_time(datetime.fromtimestamp(getattr(side, end), UTC)) for end in ("first", "last")}
    plain = {"runs": side.runs, "stacks": list(side.stacks), "rebuilt": side.rebuilt, "nodes": list(side.nodes)}
    return {**plain, **times}


def additional_runs(one: PairComparison[Case]) -> int | None:
    """Additional runs per side at which `ComparisonSettings.difference` would be detected; 0 if there are enough."""
    if one.runs_needed is None:
        return None
    return max(0, one.runs_needed - min(one.left.runs or 0, one.right.runs or 0))


# For a terminal


def _header(outcome: Outcome) -> tuple[str, ...]:
    return ("case", *outcome.names, "unit", "runs", "ratio", "95 % interval", "of maxima", "verdict", "more runs")


def _pair_rows(outcome: Outcome) -> Iterator[tuple[PairComparison[Case], tuple[str, ...]]]:
    names = short_case_names([_case_parameters(one.case) for one in outcome.compared])
    several = len({one.metric for one in outcome.compared}) > 1
    for name, one in zip(names, outcome.compared, strict=True):
        metric = get_metric(one.metric)
        cells = (
            f"{name} {metric.label.lower()}" if several else name,
            *(format_number(value) for value in one.values or (None, None)),
            f"{metric.unit} ({one.basis})",
            f"{_format_runs(one.left)} | {_format_runs(one.right)}",
            format_ratio(one.ratio),
            format_interval(one.ci),
            format_ratio(one.ratio_max) + (f" ({format_interval(one.ci_max)})" if one.ci_max else ""),
            one.words,
            format_more_runs(one),
        )
        yield one, cells


def format_more_runs(one: PairComparison[Case]) -> str:
    """Additional runs per side; a dash where the verdict needs none, `would not help` where they would not help."""
    more = additional_runs(one)
    if one.verdict in ("faster", "slower") or (more is None and one.runs_reason is None):
        return "–"
    return "would not help" if more is None else str(more)


def explanation_lines(outcome: Outcome) -> Iterator[str]:
    """What the values beside a ratio are if they are not medians of all samples, and why more runs would not help."""
    if any(one.paired for one in outcome.compared):
        yield (
            "Paired medians: both sides were measured in the same sessions. The ratio is the geometric mean of the "
            "sessions' ratios of medians, over their middle half; the values are the geometric means of these medians."
        )
    reasons: dict[str, list[str]] = {}
    names = short_case_names([_case_parameters(one.case) for one in outcome.compared])
    for name, one in zip(names, outcome.compared, strict=True):
        if one.runs_reason and one.verdict not in ("faster", "slower"):
            reasons.setdefault(one.runs_reason, []).append(name)
    for reason, cases in list(reasons.items())[:_MAX_LINES]:
        yield f"{'; '.join(cases[:_MAX_REASON_CASES])}{' …' * (len(cases) > _MAX_REASON_CASES)}: {reason}."


_MAX_REASON_CASES = 3
_SAMPLES = ("case", "side", "n", "max", "median", "mean", "min", "unit")


def _sample_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Statistics of all samples, one row per side of each pair."""
    for one, (name, *_) in _pair_rows(outcome):
        for side, one_side in zip(outcome.names, (one.left, one.right), strict=True):
            numbers = (format_number(getattr(one_side, statistic)) for statistic in _SAMPLES[3:7])
            n = "–" if one_side.n is None else str(one_side.n)
            yield name, side, n, *numbers, get_metric(one.metric).unit


def _format_runs(side: SideSummary) -> str:
    """Runs (samples) of a side, or `printed` for published figures."""
    return "printed" if side.runs is None else f"{side.runs} ({side.n})"


def format_ratio(ratio: float | None) -> str:
    """A ratio with three digits behind the point, one from 10 on; a dash for None."""
    return "–" if ratio is None else f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def format_interval(ci: tuple[float, float] | None) -> str:
    """The ends of an interval; one that states nothing is not printed with its ends."""
    if ci is not None and ci[1] > MAX_STATED_RANGE * ci[0]:
        return f"wider than ×{MAX_STATED_RANGE}"
    return "–" if ci is None else f"{format_ratio(ci[0])} – {format_ratio(ci[1])}"


def selection_text(outcome: Outcome) -> str:
    """What was compared, as the user wrote it; the sides of an A/B run have no text of their own."""
    left, right = outcome.left, outcome.right
    if "side" in outcome.matched.differing:
        return f"A/B run, session {left.name}"
    return left.text if left == right else f"{left.text} against {right.text}"


def summary_sentences(outcome: Outcome) -> list[str]:
    """The outcome in sentences, the most important first."""
    overall = outcome.overall
    counts = ", ".join(f"{n} {verdict}" for verdict, n in overall.counts.items() if n)
    left, right = outcome.names
    # Names of sides are subjects, but "before" and "after" are not.
    is_event = (left, right) == ("before", "after")
    subject = "" if is_event or overall.verdict in ("faster", "slower") else f"{right} is "
    speed = f": {subject}{format_ratio(overall.ratio)} times as fast as {left}" if overall.ratio is not None else ""
    interval = f" ({format_interval(overall.ci)}, {_BASIS_TEXT[overall.basis]})" if overall.ci else ""
    than = f"{overall.verdict.capitalize()} after than before" if is_event else f"{right} is {overall.verdict}"
    answer = _OVERALL_TEXT[overall.verdict].format(bound=format_percent(overall.bound or 0), than=than)
    lines = [f"{answer}{speed}{interval}. By case: {counts}."]
    if overall.runs_needed is not None:
        lines.append(f"{overall.reason[0].upper()}{overall.reason[1:]}.")
    for group in outcome.subgroups:
        others = f"; {group.outside} of {group.outside_total} others" if group.outside_total else ""
        where = f"{group.inside} of {group.inside_total}"
        lines.append(f"{group.direction.capitalize()}: {group.rule}: {where}, ×{group.ratio:.3g}{others}.")
    for name, points in overall.scaling.items():
        # All points are listed, because the trend over writers cannot be reduced to two numbers.
        parts = ", ".join(f"{format_ratio(point.ratio)} at {point.value}" for point in points)
        lines.append(f"By {name}, times as fast: {parts}.")
    for peak in overall.peaks:
        metric = get_metric(peak.metric)
        figures = f"{format_number(peak.left)} | {format_number(peak.right)} {metric.unit}"
        lines.append(f"Best {peak.operation} {metric.label.lower()}: {figures}, ratio {format_ratio(peak.ratio)}.")
    return lines


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
    differing = {name: values for name, values in outcome.matched.differing.items() if name != "side"}.items()
    shown = [f"{name} {' → '.join('none' if v is None else str(v) for v in values)}" for name, values in differing]
    common = [f"{name} {value}" for name, value in outcome.matched.common.items()]
    return "; ".join(["differs: " + ", ".join(shown) if shown else "", "same: " + ", ".join(common)]).strip("; ")


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
    sides = tuple(zip(outcome.names, (provenance.left, provenance.right), strict=True))
    system = outcome.matched.common.get("system")
    zone = shared_zone([system] if system else [])
    parts = [f"{name}, {format_count(side.runs, 'run')} {_format_period(side, zone)}" for name, side in sides if side]
    if parts:
        yield f"Measured: {'; '.join(parts)} ({zone})."
    if (found := provenance.libraries) is not None:
        changed = []
        for one in found.differences:
            field = "" if one.field == "version" else f"{one.field} "
            changed.append(f"{one.part} {field}{one.left or 'none'} → {one.right or 'none'}")
        changed += [f"rebuilt, same version: {', '.join(found.rebuilt)}"] if found.rebuilt else []
        same = f"{found.same} the same"
        yield f"Libraries: {'; '.join(changed)}; {same}." if changed else f"Libraries: all {same} on both sides."
    for name, side in sides:
        if side and side.rebuilt:
            yield f"Libraries: a stack of {name} was changed between its runs (`iowatch history show`)."
    other_nodes = provenance.on_other_nodes
    left, right = (side.nodes if side else () for _, side in sides)
    if other_nodes is not None and other_nodes.runs:
        yield f"Nodes: {other_nodes.runs} of {other_nodes.of} runs had other nodes than their counterparts."
    elif other_nodes is not None and left == right:
        yield f"Nodes: {_shorten_node_list(left)} on both sides, the same for every pair of runs."
    elif left and right and not set(left) & set(right):
        yield f"Nodes: none in common: {_shorten_node_list(left)} | {_shorten_node_list(right)}."


def _shorten_node_list(nodes: Sequence[str]) -> str:
    parts = fold_node_names(nodes)
    return parts if len(parts) <= _MAX_NODES_LENGTH else f"{len(nodes)} nodes"


def _format_period(side: SideProvenance, zone: tzinfo) -> str:
    first, last = (local_day(time, zone) for time in (side.first, side.last))
    return f"on {first}" if first == last else f"from {first} to {last}"


def _format_unpaired(outcome: Outcome) -> Iterator[str]:
    # Names are built together with those of the pairs, so that the distinguishing parameters are shown.
    paired = [_case_parameters(one.case) for one in outcome.compared]
    for side, entries in zip(outcome.names, (outcome.matched.only_left, outcome.matched.only_right), strict=True):
        names = short_case_names([*paired, *(entry.described for entry in entries)])[len(paired) :]
        for name, entry in list(zip(names, entries, strict=True))[:_MAX_UNPAIRED]:
            yield f"only {side}: {name} ({entry.metric})"
        if len(entries) > _MAX_UNPAIRED:
            yield f"only {side}: {len(entries) - _MAX_UNPAIRED} more (--json lists all)"


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
    grid = Table(*_header(outcome))
    for one, cells in _pair_rows(outcome):
        grid.add_row(*map(Text, cells), style=_VERDICT_COLOURS.get(one.verdict))
    console.print(grid)
    for line in explanation_lines(outcome):
        console.print(Text(line, style="dim"))
    if samples:
        each = make_table(*_SAMPLES, right=_SAMPLES[2:7])
        for row in _sample_rows(outcome):
            each.add_row(*row)
        console.print(each)
    for line in trace_comparison_lines(outcome):
        console.print(Text(line))
    for line in (*_format_unpaired(outcome), *exclusion_lines(outcome)):
        console.print(Text(line, style="dim"))


# For tickets


def comparison_markdown(outcome: Outcome) -> str:
    """The comparison as Markdown."""
    parts = [
        [f"### {_escape_cell(' against '.join(outcome.names))}"],
        [_escape_cell(selection_text(outcome))],
        [_escape_cell(_format_differing(outcome))],
        _bullets([*provenance_lines(outcome), *summary_sentences(outcome)]),
        _markdown_table([_escape_cell(name) for name in _header(outcome)], [cells for _, cells in _pair_rows(outcome)]),
        _bullets(explanation_lines(outcome)),
        _markdown_table(_SAMPLES, _sample_rows(outcome)),
        _bullets(trace_comparison_lines(outcome)),
        _bullets((*_format_unpaired(outcome), *exclusion_lines(outcome))),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part).rstrip() + "\n"


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
