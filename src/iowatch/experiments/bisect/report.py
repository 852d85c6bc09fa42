"""Reports of `iowatch bisect`: JSON for programs, text for a terminal, Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
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
_COLUMNS = ("step", "measured", "against", "pairs", "ratio", "interval", "result")


def bisection_document(found: BisectResult) -> dict[str, Any]:
    """The document of `iowatch bisect --json` (docs/bisect.md describes all keys)."""
    answer, options, source = found.answer, found.options, found.source
    return {
        "system": source.system,
        "good": source.good,
        "bad": source.bad,
        "target": {"run": found.target.run, "case": dict(found.target.case.parameters), "metric": found.target.metric},
        "error_rate": options.settings.error_rate,
        "parts": [asdict(part) for part in found.source.parts],
        "groups": [sorted(group) for group in found.groups],
        "answer": answer.kind,
        "no_difference_above": answer.bound,
        "culprits": [
            {
                "parts": sorted(_parts(found, one.parts)),
                "kind": one.kind,
                "ratio": _ratio(one.test.log_ratio),
                "ci": [_ratio(end) for end in one.test.interval],
                "share": one.share,
                "share_ci": [end if math.isfinite(end) else None for end in one.share_interval],
            }
            for one in answer.culprits
        ],
        "candidates": sorted(_parts(found, answer.candidates)),
        "tests": [_test_document(found, test) for test in answer.tests],
        "pairs_left": found.pairs_left,
        "seconds_per_pair": round(found.pair_s, 1),
        "sessions": [*found.sessions],
        "skipped": [*found.skipped],
    }


def _test_document(found: BisectResult, test: BisectionTest) -> dict[str, Any]:
    return {
        "purpose": test.purpose,
        "left": sorted(_parts(found, test.request.left)),
        "right": sorted(_parts(found, test.request.right)),
        "stacks": [found.source.stack(_parts(found, one)).name for one in (test.request.left, test.request.right)],
        "pairs": test.pairs,
        "ratio": _ratio(test.log_ratio),
        "ci": [_ratio(end) for end in test.interval],
        "result": test.result,
    }


def answer_lines(found: BisectResult) -> list[str]:
    """The answer in sentences, the most important first."""
    answer = found.answer
    if answer.kind == "no difference":
        assert answer.bound is not None
        return [f"nothing to bisect: no difference above {format_percent(answer.bound)}"]
    if answer.kind == "undecided":
        return ["not decided: whether the two stacks differ at all", *_surer(found)]
    lines = [_culprit_line(found, one) for one in answer.culprits]
    if answer.kind == "narrowed":
        lines = [f"not found yet: the cause is probably among {_words(found, answer.candidates)}"]
    elif answer.rest is not None and answer.rest.result == "no difference":
        lines.append(f"the rest of the difference is small: {_interval_words(answer.rest)}")
    elif answer.candidates:
        rest = f" ({_interval_words(answer.rest)})" if answer.rest is not None else ""
        lines.append(f"not decided: whether {_words(found, answer.candidates)} contribute{rest}")
    return [*lines, *_surer(found)]


def _culprit_line(found: BisectResult, one: Culprit) -> str:
    ratio = one.test.log_ratio or 0.0
    change = f"{'slower' if ratio < 0 else 'faster'}: {_interval_words(one.test)}"
    how = {"single": "makes", "together": "only together make", "inseparable": "(no usable hybrid separates them) make"}
    low, high = (f"{100 * end:.0f}" if math.isfinite(end) else "?" for end in one.share_interval)
    share = f"{100 * one.share:.0f} % of the difference ({low} to {high} %)"
    return f"{_words(found, one.parts)} {how[one.kind]} {found.source.good} {change}; {share}"


def _surer(found: BisectResult) -> Iterator[str]:
    if found.pairs_left:
        minutes = found.pairs_left * found.pair_s / 60
        yield (
            f"the budget is used up: about {found.pairs_left} further pairs ({minutes:.0f} minutes) are needed; the "
            f"same command with --budget {max(1, math.ceil(1.2 * minutes))} goes on from here"
        )


def render_bisection(found: BisectResult, console: Console) -> None:
    """Print question, parts, hybrids and answer."""
    for line in answer_lines(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(f"{_question(found)}; {len(found.source.parts)} parts:", markup=False, soft_wrap=True)
    for number, part in _numbered_parts(found):
        console.print(f"  {number} {part}", markup=False, soft_wrap=True)
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for row in _rows(found):
        table.add_row(*row)
    console.print()
    console.print(table)
    for line in found.skipped:
        console.print(f"skipped: {line}", markup=False, soft_wrap=True)
    console.print(_validity(found), markup=False, soft_wrap=True)


def bisection_markdown(found: BisectResult) -> str:
    """The report for a ticket."""
    lines = [f"# {_question(found)}", "", *(f"- {line}" for line in answer_lines(found)), "", "## Parts", ""]
    lines += [f"- {number} {escape_markdown(part)}" for number, part in _numbered_parts(found)]
    lines += ["", "## Measured, in order", "", f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(found)]
    if found.skipped:
        lines += ["", "## Skipped", "", *(f"- {escape_markdown(line)}" for line in found.skipped)]
    return "\n".join([*lines, "", _validity(found), "", f"Sessions: {', '.join(found.sessions)}", ""])


def _question(found: BisectResult) -> str:
    source = found.source
    what = f"{found.target.run}, {found.target.case.parameters.get('operation', 'run')} {found.target.metric}"
    return f"What makes {source.bad} differ from {source.good} on {source.system}: {what}"


def _validity(found: BisectResult) -> str:
    level = format_percent(1 - found.options.settings.error_rate)
    pairs = sum(test.pairs for test in found.answer.tests)
    return (
        f"All intervals hold together with {level}. A ratio is the gain against the stack in 'against': below 1 is "
        f"slower. {format_count(pairs, 'pair')} of {found.pair_s:.0f} s."
    )


def _numbered_parts(found: BisectResult) -> Iterator[tuple[str, str]]:
    """Parts by group; those of one group have one number."""
    for number, group in enumerate(found.groups, 1):
        for part in sorted(group):
            moves = " (moves with the others of this number)" if len(group) > 1 else ""
            yield f"[{number}]", f"{found.source.parts[part]}{moves}"


def _rows(found: BisectResult) -> Iterator[tuple[str, ...]]:
    for number, test in enumerate(found.answer.tests, 1):
        ratio = "" if test.log_ratio is None else f"{math.exp(test.log_ratio):.3f}"
        yield (
            f"{number} {_PURPOSES[test.purpose]}",
            _stack_words(found, test.request.right),
            _stack_words(found, test.request.left),
            str(test.pairs),
            ratio,
            _interval(test),
            test.result,
        )


def _stack_words(found: BisectResult, groups: Group) -> str:
    if not groups:
        return "GOOD"
    if len(groups) == len(found.groups):
        return "BAD"
    return f"GOOD + {_format_numbers(sorted(group + 1 for group in groups))}"


def _format_numbers(numbers: Sequence[int]) -> str:
    """Rising numbers, three or more in a row as a range: `1 to 12, 14, 15`."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _interval(test: BisectionTest) -> str:
    if test.log_ratio is None or not all(map(math.isfinite, test.interval)):
        return ""
    low, high = (math.exp(end) for end in test.interval)
    return f"{low:.3f} to {high:.3f}"


def _interval_words(test: BisectionTest) -> str:
    shown = _interval(test)
    return f"{math.exp(test.log_ratio or 0.0):.3f}" + (f" ({shown})" if shown else "")


def _parts(found: BisectResult, groups: Sequence[int] | Group) -> Group:
    return frozenset(part for group in groups for part in found.groups[group])


def _words(found: BisectResult, groups: Sequence[int] | Group) -> str:
    named = [str(found.source.parts[part]) for part in sorted(_parts(found, groups))]
    return " and ".join(named if len(named) <= 8 else [*named[:2], f"{len(named) - 3} others", named[-1]])


def _ratio(log_ratio: float | None) -> float | None:
    return None if log_ratio is None or not math.isfinite(log_ratio) else round(math.exp(log_ratio), 4)
