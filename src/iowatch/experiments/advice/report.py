"""Reports of advice: JSON for programs, a table for a terminal, and a file of MPI-IO hints for ROMIO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from iowatch.benchmarks.hints import romio_file_of
from iowatch.core import NO_HINTS, InputError, PlainTable, Scalar, format_count, format_size, make_table
from iowatch.experiments.advice.advice import (
    FAMILY_ERROR,
    MIN_SESSIONS,
    Advice,
    AdvicePart,
    ChoiceAdvice,
    ValueComparison,
    ValueRule,
)
from iowatch.experiments.advice.choices import AdvisedWorkload, ParameterChoice, format_value
from iowatch.output.comparison import format_interval
from iowatch.site import default_file_system, load_system, system_names
from iowatch.statistics import format_percent

_MAX_SUITES = 3
_ANY_RANKS = 2**20
# A measured size that differs from the one asked for by more is pointed out.
_FAR = 2.0


def advice_document(advice_list: Sequence[Advice]) -> dict[str, Any]:
    """The document of `iowatch advise --json` (docs/advise.md describes all keys)."""
    return {"family_error": FAMILY_ERROR, "advice": [_workload_document(advice) for advice in advice_list]}


def _workload_document(advice: Advice) -> dict[str, Any]:
    return {
        "source": advice.source,
        "system": advice.system,
        "published": advice.is_published,
        **asdict(advice.workload),
        "cases": advice.cases,
        "parameters": [_choice_document(choice_advice) for choice_advice in advice.choices],
    }


def _choice_document(choice_advice: ChoiceAdvice) -> dict[str, Any]:
    return {
        "parameter": choice_advice.choice.name,
        "measured": bool(choice_advice.parts),
        "parts": [_part_document(advice_part) for advice_part in choice_advice.parts],
        "differ_together": list(choice_advice.joint),
        "sizes": [asdict(size) for size in choice_advice.sizes],
        "few_sessions": choice_advice.few_sessions,
        "suites": list(choice_advice.suites),
    }


def _part_document(advice_part: AdvicePart) -> dict[str, Any]:
    return {
        "where": advice_part.where or None,
        "best": advice_part.best,
        "sure": advice_part.is_sure,
        "others": [{**asdict(other), "verdict": _verdict(other)} for other in advice_part.others],
    }


def _verdict(other: ValueComparison) -> str:
    """`better` if the best value is better for sure, or the words of `iowatch compare --json`."""
    if other.verdict == "no difference":
        return f"no difference above {format_percent(other.bound or 0)}"
    if other.verdict == "faster":
        return "better"
    return "not enough data"


# For a terminal


def print_advice(advice_list: Sequence[Advice], console: Console) -> None:
    """Print the advice for each workload: a row per value of each parameter, and the remarks below."""
    for number, advice in enumerate(advice_list):
        if number:
            console.print()
        _print_workload(advice, console)


def _print_workload(advice: Advice, console: Console) -> None:
    console.print(Text(f"{_format_workload(advice.workload)}: advice from {advice.source}", style="bold"))
    for line in _size_lines(advice):
        console.print(Text(line, style="dim"))
    # Printed figures have no sessions; their evidence is in how many cases the best value is ahead.
    evidence_column = "better in" if advice.is_published else "sessions"
    columns = ("parameter", "best", "compared with", "gain", "interval", evidence_column, "verdict")
    grid = make_table(*columns, right=("gain",))
    for choice_advice in advice.choices:
        for advice_part in choice_advice.parts:
            _add_part(grid, choice_advice.choice, advice_part)
    if grid.row_count:
        console.print(grid)
    for line in _remarks(advice):
        console.print(Text(line))


def _format_workload(workload: AdvisedWorkload) -> str:
    words = [workload.operation.capitalize()]
    if workload.volume_bytes:
        words.append(format_size(workload.volume_bytes))
    if workload.ranks:
        words.append(f"with {format_count(workload.ranks, 'rank')}")
    if workload.nodes:
        words.append(f"on {format_count(workload.nodes, 'node')}")
    return " ".join(words)


def _add_part(grid: PlainTable, choice: ParameterChoice, advice_part: AdvicePart) -> None:
    """A row for each value that the best one was compared with."""
    label = choice.label
    if advice_part.where:
        label += f", where {advice_part.where}"
    best = format_value(choice, advice_part.best)
    if not advice_part.is_difference:
        best = f"({best})"
    for other in advice_part.others:
        value = format_value(choice, other.value)
        if other.value == choice.default != value:
            value += " (default)"
        evidence = str(other.sessions)
        if other.sessions is None:
            evidence = f"{other.better} of {other.cases}"
        grid.add_row(label, best, value, f"×{other.gain:.3f}", format_interval(other.ci), evidence, _verdict(other))
        # Parameter and best value stand in the first row only.
        label = best = ""


def _size_lines(advice: Advice) -> Iterator[str]:
    """The sizes at which the parameters were measured, and how far they are from what was asked for."""
    workload = advice.workload
    cases = format_count(advice.cases, "case")
    if advice.is_published and not (workload.volume_bytes or workload.ranks or workload.nodes):
        yield f"{cases} of all sizes."
        return
    if advice.is_published and workload.volume_bytes and workload.ranks:
        volume_per_rank = format_size(workload.volume_bytes / workload.ranks)
        yield f"{cases}; of these, the ones with a volume per rank nearest to {volume_per_rank}."
        return
    # All sizes of all parameters, where they are known.
    volumes: set[int] = set()
    ranks: set[int] = set()
    for choice_advice in advice.choices:
        for size in choice_advice.sizes:
            if size.volume_bytes is not None:
                volumes.add(size.volume_bytes)
            if size.ranks is not None:
                ranks.add(int(size.ranks))
    if any(choice_advice.sizes for choice_advice in advice.choices):
        yield _size_sentences(cases, workload, sorted(volumes), sorted(ranks))


def _size_sentences(cases: str, workload: AdvisedWorkload, volumes: Sequence[int], ranks: Sequence[int]) -> str:
    """The measured sizes, and sentences on those that are far from what was asked for.

    Args:
        volumes, ranks: the smallest first; empty if unknown.
    """
    ranges: list[str] = []
    if volumes:
        ranges.append(_range([format_size(volume) for volume in volumes]))
    if ranks:
        ranges.append(f"{_range([str(count) for count in ranks])} ranks")
    text = f"Nearest measured sizes of {cases}: {', '.join(ranges)}."
    text += _distance_sentence("volume", workload.volume_bytes, volumes)
    text += _distance_sentence("number of ranks", workload.ranks, ranks)
    return text


def _distance_sentence(quantity: str, requested: int | None, measured: Sequence[int]) -> str:
    """A sentence if a measured size is far from the requested one; else empty.

    Args:
        measured: sizes, the smallest first.
    """
    if not requested or not measured:
        return ""
    # The farthest size is the smallest or the largest one.
    factors = [max(size, requested) / min(size, requested) for size in (measured[0], measured[-1])]
    factor = max(factors)
    if factor <= _FAR:
        return ""
    return f" The {quantity} differs from what was asked for by up to a factor of {factor:.3g}."


def _range(values: Sequence[str]) -> str:
    if values[0] == values[-1]:
        return values[0]
    return f"{values[0]} to {values[-1]}"


def _remarks(advice: Advice) -> Iterator[str]:
    """Sentences below the table: what cannot be separated, what was not measured, what the intervals mean."""
    for choice_advice in advice.choices:
        yield from _choice_remarks(choice_advice)
    not_measured = [choice_advice for choice_advice in advice.choices if not choice_advice.parts]
    if advice.is_published and not_measured:
        labels = [choice_advice.choice.label for choice_advice in not_measured]
        yield f"Not varied in these tables: {', '.join(labels)}."
    elif not advice.is_published:
        for choice_advice in not_measured:
            yield f"{choice_advice.choice.label}: {_reason_without_advice(choice_advice, advice.system)}"
    if len(not_measured) < len(advice.choices):
        yield f"{_INTERVALS[advice.is_published]} A value in brackets is not better than any other for sure."


def _choice_remarks(choice_advice: ChoiceAdvice) -> Iterator[str]:
    """What limits the advice on one parameter."""
    label = choice_advice.choice.label
    if choice_advice.joint:
        names = " and ".join(choice_advice.joint)
        yield f"{label}: the cases differ in {names}, too; the effects cannot be separated."
    if len(choice_advice.parts) > 1:
        conditions = "; ".join(advice_part.where for advice_part in choice_advice.parts)
        yield f"{label}: the gain differs between two groups of cases: {conditions}."
    for advice_part in choice_advice.parts:
        for other in advice_part.others:
            yield from _rule_lines(choice_advice.choice, advice_part.best, other)


_INTERVALS = {
    False: f"All intervals hold together with {100 * (1 - FAMILY_ERROR):.0f} %.",
    True: "Printed figures have no sessions: each interval is one of 95 % over the cases, if there are three.",
}


def _rule_lines(choice: ParameterChoice, best: Scalar, other: ValueComparison) -> Iterator[str]:
    """For each rule, which of two values is better in its cases."""
    for rule in other.rules:
        worse_value = best if rule.value == other.value else other.value
        better = format_value(choice, rule.value)
        worse = format_value(choice, worse_value)
        where = "in"
        if rule.rule != "all cases":
            where = f"where {rule.rule.removeprefix('with ')}, in"
        counts = f"{rule.cases} of {format_count(rule.of, 'case')}"
        yield f"{choice.label}: {better} is better than {worse} by ×{rule.gain:.3g} {where} {counts}."


def _reason_without_advice(choice_advice: ChoiceAdvice, system: str | None) -> str:
    """Why there is no advice, and which suite would change it."""
    reason = "not measured."
    if choice_advice.few_sessions is not None:
        reason = f"not enough data: {format_count(choice_advice.few_sessions, 'session')} of {MIN_SESSIONS}."
    # Any suite varies the file system.
    if choice_advice.choice.name == "file_system" and system and default_file_system(system):
        return f"{reason} It is varied by: iowatch run --file-system all"
    if not choice_advice.suites:
        return f"{reason} No suite varies it."
    sentence = f"{reason} It is varied by: iowatch run --suite {choice_advice.suites[0]}"
    other_suites = ", ".join(choice_advice.suites[1:_MAX_SUITES])
    if other_suites:
        sentence += f" (or {other_suites})"
    return sentence


# Hints


@dataclass(frozen=True)
class _SupportedHint:
    """An MPI-IO hint that follows from the advice on one parameter, and why."""

    name: str
    value: str
    reason: str


def hints_file(advice_list: Sequence[Advice]) -> str | None:
    """The text of a file for `ROMIO_HINTS`; None if the advice supports no hint.

    A hint is written if its value is better for sure and no other advice contradicts it; full striping becomes the
    number of targets in system.yaml. ROMIO ignores lines that begin with `#`.
    """
    # None: two pieces of advice contradict each other.
    values: dict[str, str | None] = {}
    comments: dict[str, str] = {}
    for advice in advice_list:
        for choice_advice in advice.choices:
            for hint in _supported_hints(choice_advice, advice):
                is_contradicted = values.get(hint.name, hint.value) != hint.value
                values[hint.name] = None if is_contradicted else hint.value
                comments[hint.name] = f"# {advice.workload.operation}: {hint.reason}"
    lines = [f"{comments[name]}\n{name} {value}\n" for name, value in values.items() if value is not None]
    if not lines:
        return None
    return "# MPI-IO hints of iowatch advise, for ROMIO: export ROMIO_HINTS=FILE\n" + "".join(lines)


def _supported_hints(choice_advice: ChoiceAdvice, advice: Advice) -> Iterator[_SupportedHint]:
    """The hints that follow from the advice on one parameter."""
    # Only if one value is best everywhere, and the effect is that of the parameter.
    sure_parts = [advice_part for advice_part in choice_advice.parts if advice_part.is_difference]
    best_values = {advice_part.best for advice_part in sure_parts}
    if len(best_values) != 1 or choice_advice.joint:
        return
    if any(_has_opposite_rule(advice_part) for advice_part in sure_parts):
        return
    # The largest gain that is sure is the reason.
    evidence = sure_parts[0]
    worse = next(other for other in evidence.others if other.verdict == "faster")
    worse_value = format_value(choice_advice.choice, worse.value)
    reason = f"{choice_advice.choice.label}, ×{worse.gain:.3g} ({format_interval(worse.ci)}) over {worse_value}"
    if evidence.where:
        reason += f", where {evidence.where}"
    for name, value in _hint_values(choice_advice.choice.name, evidence.best, advice):
        yield _SupportedHint(name, value, reason)


def _has_opposite_rule(advice_part: AdvicePart) -> bool:
    """Whether another value than the best one is better in some cases."""
    rules: list[ValueRule] = []
    for other in advice_part.others:
        rules += other.rules
    return any(rule.value != advice_part.best for rule in rules)


def _hint_values(parameter: str, best: Scalar, advice: Advice) -> Iterator[tuple[str, str]]:
    """Names and values of the hints that set a parameter."""
    if parameter == "stripe_bytes" and isinstance(best, int):
        yield "striping_unit", str(best)
    if parameter == "stripe_count" and isinstance(best, int):
        # A count of 0 or less is full striping.
        count = best if best > 0 else _targets(advice)
        if count is not None:
            yield "striping_factor", str(count)
    if parameter == "hints" and best != NO_HINTS:
        workload = advice.workload
        # Hints of another release, or for more aggregators than ranks, are not understood.
        with suppress(InputError):
            content = romio_file_of(str(best), ranks=workload.ranks or _ANY_RANKS, nodes=workload.nodes or 1)
            for line in content.splitlines():
                name, _, value = line.partition(" ")
                yield name, value


def _targets(advice: Advice) -> int | None:
    """The number of targets of the file system in `system.yaml`; None if it is unknown."""
    if advice.system is None or advice.system not in system_names():
        return None
    file_systems = load_system(advice.system).file_systems
    counts = {entry.targets for entry in file_systems if advice.file_system in (None, entry.name)}
    return counts.pop() if len(counts) == 1 else None
