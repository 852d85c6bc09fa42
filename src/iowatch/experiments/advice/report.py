"""Reports of advice: JSON for programs, a table for a terminal, and a file of MPI-IO hints for ROMIO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
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
from iowatch.experiments.advice.choices import AdvisedWorkload, format_value
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
        "parameters": [_choice_document(choice) for choice in advice.choices],
    }


def _choice_document(choice: ChoiceAdvice) -> dict[str, Any]:
    return {
        "parameter": choice.choice.name,
        "measured": bool(choice.parts),
        "parts": [_part_document(part) for part in choice.parts],
        "differ_together": list(choice.joint),
        "sizes": [{"volume_bytes": volume, "ranks": ranks} for volume, ranks in choice.sizes],
        "few_sessions": choice.few_sessions,
        "suites": list(choice.suites),
    }


def _part_document(part: AdvicePart) -> dict[str, Any]:
    return {
        "where": part.where or None,
        "best": part.best,
        "sure": part.is_sure,
        "others": [{**asdict(other), "verdict": _verdict(other)} for other in part.others],
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
    count = "better in" if advice.is_published else "sessions"
    grid = make_table("parameter", "best", "compared with", "gain", "interval", count, "verdict", right=("gain",))
    for choice in advice.choices:
        for part in choice.parts:
            _add_part(grid, choice, part)
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


def _add_part(grid: PlainTable, advice: ChoiceAdvice, part: AdvicePart) -> None:
    choice = advice.choice
    label = f"{choice.label}, where {part.where}" if part.where else choice.label
    best = format_value(choice, part.best)
    if not part.is_difference:
        best = f"({best})"
    for other in part.others:
        name = format_value(choice, other.value)
        if other.value == choice.default != name:
            name += " (default)"
        sessions = str(other.sessions)
        if other.sessions is None:
            sessions = f"{other.better} of {other.cases}"
        row = (name, f"×{other.gain:.3f}", format_interval(other.ci), sessions, _verdict(other))
        grid.add_row(label, best, *row)
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
    sizes: set[tuple[int | None, Scalar | None]] = set()
    for choice in advice.choices:
        sizes.update(choice.sizes)
    if not sizes:
        return
    volumes = sorted(volume for volume, _ in sizes if volume is not None)
    ranks = sorted(int(count) for _, count in sizes if count is not None)
    measured = []
    if volumes:
        measured.append(_range([format_size(volume) for volume in volumes]))
    if ranks:
        measured.append(f"{_range([str(count) for count in ranks])} ranks")
    line = f"Nearest measured sizes of {cases}: {', '.join(measured)}."
    line += _distance_sentence("volume", workload.volume_bytes, volumes)
    line += _distance_sentence("number of ranks", workload.ranks, ranks)
    yield line


def _distance_sentence(quantity: str, requested: int | None, measured: Sequence[int]) -> str:
    """A sentence if a measured size is far from the requested one; else empty.

    Args:
        measured: sizes, the smallest first.
    """
    if not requested or not measured:
        return ""
    factor = max(max(size, requested) / min(size, requested) for size in (measured[0], measured[-1]))
    if factor <= _FAR:
        return ""
    return f" The {quantity} differs from what was asked for by up to a factor of {factor:.3g}."


def _range(values: Sequence[str]) -> str:
    if values[0] == values[-1]:
        return values[0]
    return f"{values[0]} to {values[-1]}"


def _remarks(advice: Advice) -> Iterator[str]:
    for choice in advice.choices:
        label = choice.choice.label
        if choice.joint:
            names = " and ".join(choice.joint)
            yield f"{label}: the cases differ in {names}, too; the effects cannot be separated."
        if len(choice.parts) > 1:
            groups = "; ".join(part.where for part in choice.parts)
            yield f"{label}: the gain differs between two groups of cases: {groups}."
        for part in choice.parts:
            for other in part.others:
                yield from _rule_lines(choice, part, other)
    not_measured = [choice for choice in advice.choices if not choice.parts]
    if advice.is_published and not_measured:
        yield f"Not varied in these tables: {', '.join(choice.choice.label for choice in not_measured)}."
    elif not advice.is_published:
        for choice in not_measured:
            yield f"{choice.choice.label}: {_reason_without_advice(choice, advice.system)}"
    if len(not_measured) < len(advice.choices):
        yield f"{_INTERVALS[advice.is_published]} A value in brackets is not better than any other for sure."


_INTERVALS = {
    False: f"All intervals hold together with {100 * (1 - FAMILY_ERROR):.0f} %.",
    True: "Printed figures have no sessions: each interval is one of 95 % over the cases, if there are three.",
}


def _rule_lines(choice: ChoiceAdvice, part: AdvicePart, other: ValueComparison) -> Iterator[str]:
    for rule in other.rules:
        worse_value = part.best if rule.value == other.value else other.value
        better = format_value(choice.choice, rule.value)
        worse = format_value(choice.choice, worse_value)
        where = "in"
        if rule.rule != "all cases":
            where = f"where {rule.rule.removeprefix('with ')}, in"
        counts = f"{rule.cases} of {format_count(rule.of, 'case')}"
        yield f"{choice.choice.label}: {better} is better than {worse} by ×{rule.gain:.3g} {where} {counts}."


def _reason_without_advice(choice: ChoiceAdvice, system: str | None) -> str:
    """Why there is no advice, and which suite would change it."""
    reason = "not measured."
    if choice.few_sessions is not None:
        reason = f"not enough data: {format_count(choice.few_sessions, 'session')} of {MIN_SESSIONS}."
    if choice.choice.name == "file_system" and system and default_file_system(system):
        return f"{reason} It is varied by: iowatch run --file-system all"
    if not choice.suites:
        return f"{reason} No suite varies it."
    sentence = f"{reason} It is varied by: iowatch run --suite {choice.suites[0]}"
    other_suites = ", ".join(choice.suites[1:_MAX_SUITES])
    if other_suites:
        sentence += f" (or {other_suites})"
    return sentence


# Hints


def hints_file(advice_list: Sequence[Advice]) -> str | None:
    """The text of a file for `ROMIO_HINTS`; None if the advice supports no hint.

    A hint is written if its value is better for sure and no other advice contradicts it; full striping becomes the
    number of targets in system.yaml. ROMIO ignores lines that begin with `#`.
    """
    # None: two pieces of advice contradict each other.
    values: dict[str, str | None] = {}
    comments: dict[str, str] = {}
    for advice in advice_list:
        for choice in advice.choices:
            for name, value, why in _supported_hints(choice, advice):
                is_contradicted = values.get(name, value) != value
                values[name] = None if is_contradicted else value
                comments[name] = f"# {advice.workload.operation}: {why}"
    lines = [f"{comments[name]}\n{name} {value}\n" for name, value in values.items() if value is not None]
    if not lines:
        return None
    return "# MPI-IO hints of iowatch advise, for ROMIO: export ROMIO_HINTS=FILE\n" + "".join(lines)


def _supported_hints(choice: ChoiceAdvice, advice: Advice) -> Iterator[tuple[str, str, str]]:
    """(hint, value, reason) of each hint that follows from the advice on one parameter."""
    sure_parts = [part for part in choice.parts if part.is_difference]
    if len({part.best for part in sure_parts}) != 1 or choice.joint or any(map(_has_opposite_rule, sure_parts)):
        return
    part = sure_parts[0]
    other = next(other for other in part.others if other.verdict == "faster")
    other_value = format_value(choice.choice, other.value)
    why = f"{choice.choice.label}, ×{other.gain:.3g} ({format_interval(other.ci)}) over {other_value}"
    if part.where:
        why += f", where {part.where}"
    for name, value in _hint_values(choice.choice.name, part.best, advice):
        yield name, value, why


def _has_opposite_rule(part: AdvicePart) -> bool:
    """Whether another value than the best one is better in some cases."""
    rules: list[ValueRule] = []
    for other in part.others:
        rules += other.rules
    return any(rule.value != part.best for rule in rules)


def _hint_values(parameter: str, best: Scalar, advice: Advice) -> Iterator[tuple[str, str]]:
    if parameter == "stripe_bytes" and isinstance(best, int):
        yield "striping_unit", str(best)
    if parameter == "stripe_count" and isinstance(best, int):
        count = best if best > 0 else _targets(advice)
        if count is not None:
            yield "striping_factor", str(count)
    if parameter == "hints" and best != NO_HINTS:
        work = advice.workload
        # Hints of another release, or for more aggregators than ranks, are not understood.
        with suppress(InputError):
            content = romio_file_of(str(best), ranks=work.ranks or _ANY_RANKS, nodes=work.nodes or 1)
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
