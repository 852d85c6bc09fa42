"""Reports of `iowatch bisect`: JSON for programs, text for a terminal, Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.core import format_count
from iowatch.experiments.bisect.run import BisectResult, Group
from iowatch.experiments.bisect.search import BisectionTest, Culprit
from iowatch.output.report import escape_markdown
from iowatch.statistics import format_percent

_PURPOSES = {
    "whole": "the whole difference",
    "search": "search",
    "alone": "these parts alone",
    "rest": "BAD against GOOD with the parts found",
}
_MAX_PART_NAMES = 8
_COLUMNS = ("step", "measured", "against", "pairs", "ratio", "interval", "result")


def bisection_document(result: BisectResult) -> dict[str, Any]:
    """The document of `iowatch bisect --json` (docs/bisect.md describes all keys)."""
    answer = result.answer
    source = result.source
    target = result.target
    return {
        "system": source.system,
        "good": source.good,
        "bad": source.bad,
        "target": {"run": target.run, "case": dict(target.case.parameters), "metric": target.metric},
        "error_rate": result.options.settings.error_rate,
        "parts": [asdict(part) for part in source.parts],
        "groups": [sorted(group) for group in result.groups],
        "answer": answer.kind,
        "no_difference_above": answer.bound,
        "culprits": [_culprit_document(result, culprit) for culprit in answer.culprits],
        "candidates": sorted(_parts(result, answer.candidates)),
        "tests": [_test_document(result, test) for test in answer.tests],
        "pairs_left": result.pairs_left,
        "seconds_per_pair": round(result.pair_s, 1),
        "sessions": [*result.sessions],
        "skipped": [*result.skipped],
    }


def _culprit_document(result: BisectResult, culprit: Culprit) -> dict[str, Any]:
    low, high = culprit.share_interval
    return {
        "parts": sorted(_parts(result, culprit.parts)),
        "kind": culprit.kind,
        "ratio": _ratio(culprit.test.log_ratio),
        "ci": [_ratio(end) for end in culprit.test.interval],
        "share": culprit.share,
        "share_ci": [_finite(low), _finite(high)],
    }


def _finite(share: float) -> float | None:
    """JSON has no infinite numbers."""
    return share if math.isfinite(share) else None


def _test_document(result: BisectResult, test: BisectionTest) -> dict[str, Any]:
    left = _parts(result, test.request.left)
    right = _parts(result, test.request.right)
    return {
        "purpose": test.purpose,
        "left": sorted(left),
        "right": sorted(right),
        "stacks": [result.source.stack(left).name, result.source.stack(right).name],
        "pairs": test.pairs,
        "ratio": _ratio(test.log_ratio),
        "ci": [_ratio(end) for end in test.interval],
        "result": test.result,
    }


def answer_lines(result: BisectResult) -> list[str]:
    """The answer in sentences, the most important first."""
    answer = result.answer
    if answer.kind == "no difference":
        assert answer.bound is not None
        return [f"nothing to bisect: no difference above {format_percent(answer.bound)}"]
    if answer.kind == "undecided":
        return ["not decided: whether the two stacks differ at all", *_budget_lines(result)]
    if answer.kind == "narrowed":
        candidates = _part_names(result, answer.candidates)
        return [f"not found yet: the cause is probably among {candidates}", *_budget_lines(result)]
    lines = [_culprit_line(result, culprit) for culprit in answer.culprits]
    # Whether the culprits explain all of the difference.
    remainder = answer.rest
    if remainder is not None and remainder.result == "no difference":
        lines.append(f"the rest of the difference is small: {_interval_words(remainder)}")
    elif answer.candidates:
        interval = f" ({_interval_words(remainder)})" if remainder is not None else ""
        lines.append(f"not decided: whether {_part_names(result, answer.candidates)} contribute{interval}")
    return [*lines, *_budget_lines(result)]


_VERBS = {"single": "makes", "together": "only together make", "inseparable": "(no usable hybrid separates them) make"}


def _culprit_line(result: BisectResult, culprit: Culprit) -> str:
    is_slower = (culprit.test.log_ratio or 0.0) < 0
    direction = "slower" if is_slower else "faster"
    low, high = (_whole_percent(end) for end in culprit.share_interval)
    share = f"{100 * culprit.share:.0f} % of the difference ({low} to {high} %)"
    return (
        f"{_part_names(result, culprit.parts)} {_VERBS[culprit.kind]} {result.source.good} {direction}: "
        f"{_interval_words(culprit.test)}; {share}"
    )


def _whole_percent(share: float) -> str:
    """A share in percent without its unit; ? if it is not bounded."""
    return f"{100 * share:.0f}" if math.isfinite(share) else "?"


def _budget_lines(result: BisectResult) -> Iterator[str]:
    """How much more time the answer needs, if the budget was too small."""
    if result.pairs_left:
        minutes = result.pairs_left * result.pair_s / 60
        yield (
            f"the budget is used up: about {result.pairs_left} further pairs ({minutes:.0f} minutes) are needed; the "
            f"same command with --budget {max(1, math.ceil(1.2 * minutes))} goes on from here"
        )


def render_bisection(result: BisectResult, console: Console) -> None:
    """Print question, parts, hybrids and answer."""
    for line in answer_lines(result):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(f"{_question(result)}; {len(result.source.parts)} parts:", markup=False, soft_wrap=True)
    for number, part in _numbered_parts(result):
        console.print(f"  {number} {part}", markup=False, soft_wrap=True)
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for row in _rows(result):
        table.add_row(*row)
    console.print()
    console.print(table)
    for line in result.skipped:
        console.print(f"skipped: {line}", markup=False, soft_wrap=True)
    console.print(_validity(result), markup=False, soft_wrap=True)


def bisection_markdown(result: BisectResult) -> str:
    """The report for a ticket."""
    lines = [f"# {_question(result)}", ""]
    lines += [f"- {line}" for line in answer_lines(result)]
    lines += ["", "## Parts", ""]
    for number, part_words in _numbered_parts(result):
        lines.append(f"- {number} {escape_markdown(part_words)}")
    # The evidence, for those who doubt the answer.
    lines += ["", "## Measured, in order", "", f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(result)]
    if result.skipped:
        lines += ["", "## Skipped", ""]
        lines += [f"- {escape_markdown(line)}" for line in result.skipped]
    lines += ["", _validity(result), "", f"Sessions: {', '.join(result.sessions)}", ""]
    return "\n".join(lines)


def _question(result: BisectResult) -> str:
    source = result.source
    target = result.target
    operation = target.case.parameters.get("operation", "run")
    return (
        f"What makes {source.bad} differ from {source.good} on {source.system}: "
        f"{target.run}, {operation} {target.metric}"
    )


def _validity(result: BisectResult) -> str:
    level = format_percent(1 - result.options.settings.error_rate)
    pairs = sum(test.pairs for test in result.answer.tests)
    return (
        f"All intervals hold together with {level}. A ratio is the gain against the stack in 'against': below 1 is "
        f"slower. {format_count(pairs, 'pair')} of {result.pair_s:.0f} s."
    )


def _numbered_parts(result: BisectResult) -> Iterator[tuple[str, str]]:
    """Parts by group; those of one group have one number."""
    for number, group in enumerate(result.groups, 1):
        for part in sorted(group):
            moves = " (moves with the others of this number)" if len(group) > 1 else ""
            yield f"[{number}]", f"{result.source.parts[part]}{moves}"


def _rows(result: BisectResult) -> Iterator[tuple[str, ...]]:
    """Cells of the table of tests, in the order of `_COLUMNS`."""
    for number, test in enumerate(result.answer.tests, 1):
        ratio = ""
        if test.log_ratio is not None:
            ratio = f"{math.exp(test.log_ratio):.3f}"
        yield (
            f"{number} {_PURPOSES[test.purpose]}",
            _stack_words(result, test.request.right),
            _stack_words(result, test.request.left),
            str(test.pairs),
            ratio,
            _interval(test),
            test.result,
        )


def _stack_words(result: BisectResult, groups: Group) -> str:
    if not groups:
        return "GOOD"
    if len(groups) == len(result.groups):
        return "BAD"
    return f"GOOD + {_format_numbers(sorted(group + 1 for group in groups))}"


def _format_numbers(numbers: Sequence[int]) -> str:
    """Rising numbers, three or more in a row as a range: `1 to 12, 14, 15`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    words = []
    for consecutive in ranges:
        if len(consecutive) > 2:
            words.append(f"{consecutive[0]} to {consecutive[-1]}")
        else:
            words += map(str, consecutive)
    return ", ".join(words)


def _interval(test: BisectionTest) -> str:
    if test.log_ratio is None or not all(map(math.isfinite, test.interval)):
        return ""
    low, high = (math.exp(end) for end in test.interval)
    return f"{low:.3f} to {high:.3f}"


def _interval_words(test: BisectionTest) -> str:
    ratio = f"{math.exp(test.log_ratio or 0.0):.3f}"
    interval = _interval(test)
    return f"{ratio} ({interval})" if interval else ratio


def _parts(result: BisectResult, groups: Sequence[int] | Group) -> Group:
    """Positions of the parts of these groups."""
    return frozenset().union(*(result.groups[group] for group in groups))


def _part_names(result: BisectResult, groups: Sequence[int] | Group) -> str:
    names = [str(result.source.parts[part]) for part in sorted(_parts(result, groups))]
    if len(names) > _MAX_PART_NAMES:
        names = [*names[:2], f"{len(names) - 3} others", names[-1]]
    return " and ".join(names)


def _ratio(log_ratio: float | None) -> float | None:
    if log_ratio is None or not math.isfinite(log_ratio):
        return None
    return round(math.exp(log_ratio), 4)
