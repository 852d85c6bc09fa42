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
)
from iowatch.experiments.advice.choices import Workload, format_value
from iowatch.output.comparison import format_interval
from iowatch.site import default_file_system, load_system, system_names
from iowatch.statistics import format_percent

_MAX_SUITES = 3
_ANY_RANKS = 2**20
# A measured size that differs from the one asked for by more is pointed out.
_FAR = 2.0


def advice_document(found: Sequence[Advice]) -> dict[str, Any]:
    """The document of `iowatch advise --json` (docs/advise.md describes all keys)."""
    return {
        "family_error": FAMILY_ERROR,
        "advice": [
            {
                "source": one.source,
                "system": one.system,
                "published": one.is_published,
                **asdict(one.workload),
                "cases": one.cases,
                "parameters": [_choice_document(choice) for choice in one.choices],
            }
            for one in found
        ],
    }


def _choice_document(one: ChoiceAdvice) -> dict[str, Any]:
    return {
        "parameter": one.choice.name,
        "measured": bool(one.parts),
        "parts": [
            {
                "where": part.where or None,
                "best": part.best,
                "sure": part.is_sure,
                "others": [{**asdict(other), "verdict": _verdict(other)} for other in part.others],
            }
            for part in one.parts
        ],
        "differ_together": list(one.joint),
        "sizes": [{"volume_bytes": volume, "ranks": ranks} for volume, ranks in one.sizes],
        "few_sessions": one.few_sessions,
        "suites": list(one.suites),
    }


def _verdict(other: ValueComparison) -> str:
    """`better` if the best value is better for sure, or the words of `iowatch compare --json`."""
    if other.verdict == "no difference":
        return f"no difference above {format_percent(other.bound or 0)}"
    return "better" if other.verdict == "faster" else "not enough data"


# For a terminal


def print_advice(found: Sequence[Advice], console: Console) -> None:
    """Print the advice for each workload: a row per value of each parameter, and the remarks below."""
    for number, one in enumerate(found):
        if number:
            console.print()
        _print_workload(one, console)


def _print_workload(one: Advice, console: Console) -> None:
    console.print(Text(f"{_format_workload(one.workload)}: advice from {one.source}", style="bold"))
    for line in _size_lines(one):
        console.print(Text(line, style="dim"))
    count = "better in" if one.is_published else "sessions"
    grid = make_table("parameter", "best", "compared with", "gain", "interval", count, "verdict", right=("gain",))
    for choice in one.choices:
        for part in choice.parts:
            _add_part(grid, choice, part)
    if grid.row_count:
        console.print(grid)
    for line in _remarks(one):
        console.print(Text(line))


def _format_workload(workload: Workload) -> str:
    parts = [f"{workload.operation.capitalize()}"]
    parts += [format_size(workload.volume_bytes)] if workload.volume_bytes else []
    parts += [f"with {format_count(workload.ranks, 'rank')}"] if workload.ranks else []
    parts += [f"on {format_count(workload.nodes, 'node')}"] if workload.nodes else []
    return " ".join(parts)


def _add_part(grid: PlainTable, advice: ChoiceAdvice, part: AdvicePart) -> None:
    choice = advice.choice
    label = f"{choice.label}, where {part.where}" if part.where else choice.label
    best = format_value(choice, part.best)
    best = best if part.is_difference else f"({best})"
    for other in part.others:
        name = format_value(choice, other.value)
        default = " (default)" if other.value == choice.default != name else ""
        sessions = f"{other.better} of {other.cases}" if other.sessions is None else str(other.sessions)
        row = (f"{name}{default}", f"×{other.gain:.3f}", format_interval(other.ci), sessions, _verdict(other))
        grid.add_row(label, best, *row)
        label = best = ""


def _size_lines(one: Advice) -> Iterator[str]:
    """The sizes at which the parameters were measured, and how far they are from what was asked for."""
    volume, number = one.workload.volume_bytes, one.workload.ranks
    if one.is_published and not (volume or number or one.workload.nodes):
        yield f"{format_count(one.cases, 'case')} of all sizes."
        return
    if one.is_published and volume and number:
        share = format_size(volume / number)
        yield f"{format_count(one.cases, 'case')}; of these, the ones with a volume per rank nearest to {share}."
        return
    sizes = {size for choice in one.choices for size in choice.sizes}
    volumes = sorted(size for size, _ in sizes if size is not None)
    ranks = sorted(int(count) for _, count in sizes if count is not None)
    if not sizes:
        return
    measured = [_range([format_size(size) for size in volumes])] if volumes else []
    measured += [f"{_range([str(count) for count in ranks])} ranks"] if ranks else []
    line = f"Nearest measured sizes of {format_count(one.cases, 'case')}: {', '.join(measured)}."
    wanted = ((volume, volumes, "volume"), (number, ranks, "number of ranks"))
    for asked, found, what in wanted:
        if asked and found:
            factor = max(max(found[0], asked) / min(found[0], asked), max(found[-1], asked) / min(found[-1], asked))
            if factor > _FAR:
                line += f" The {what} differs from what was asked for by up to a factor of {factor:.3g}."
    yield line


def _range(values: Sequence[str]) -> str:
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _remarks(one: Advice) -> Iterator[str]:
    for choice in one.choices:
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
    silent = [choice for choice in one.choices if not choice.parts]
    if one.is_published and silent:
        yield f"Not varied in these tables: {', '.join(choice.choice.label for choice in silent)}."
    elif not one.is_published:
        yield from (f"{choice.choice.label}: {_silence(choice, one.system)}" for choice in silent)
    if len(silent) < len(one.choices):
        yield f"{_INTERVALS[one.is_published]} A value in brackets is not better than any other for sure."


_INTERVALS = {
    False: f"All intervals hold together with {100 * (1 - FAMILY_ERROR):.0f} %.",
    True: "Printed figures have no sessions: each interval is one of 95 % over the cases, if there are three.",
}


def _rule_lines(choice: ChoiceAdvice, part: AdvicePart, other: ValueComparison) -> Iterator[str]:
    for rule in other.rules:
        against = part.best if rule.value == other.value else other.value
        best, worse = (format_value(choice.choice, value) for value in (rule.value, against))
        where = "in" if rule.rule == "all cases" else f"where {rule.rule.removeprefix('with ')}, in"
        counts = f"{rule.cases} of {format_count(rule.of, 'case')}"
        yield f"{choice.choice.label}: {best} is better than {worse} by ×{rule.gain:.3g} {where} {counts}."


def _silence(choice: ChoiceAdvice, system: str | None) -> str:
    """Why there is no advice, and which suite would change it."""
    few = choice.few_sessions
    reason = "not measured." if few is None else f"not enough data: {format_count(few, 'session')} of {MIN_SESSIONS}."
    if choice.choice.name == "file_system" and system and default_file_system(system):
        return f"{reason} It is varied by: iowatch run --file-system all"
    if not choice.suites:
        return f"{reason} No suite varies it."
    others = ", ".join(choice.suites[1:_MAX_SUITES])
    return f"{reason} It is varied by: iowatch run --suite {choice.suites[0]}{f' (or {others})' if others else ''}"


# Hints


def hints_file(found: Sequence[Advice]) -> str | None:
    """The text of a file for `ROMIO_HINTS`; None if the advice supports no hint.

    A hint is written if its value is better for sure and no other advice contradicts it; full striping becomes the
    number of targets in system.yaml. ROMIO ignores lines that begin with `#`.
    """
    wanted: dict[str, str | None] = {}
    comments: dict[str, str] = {}
    for one in found:
        for choice in one.choices:
            for name, value, why in _supported_hints(choice, one):
                wanted[name] = value if wanted.get(name, value) == value else None
                comments[name] = f"# {one.workload.operation}: {why}"
    lines = [f"{comments[name]}\n{name} {value}\n" for name, value in wanted.items() if value is not None]
    head = "# MPI-IO hints of iowatch advise, for ROMIO: export ROMIO_HINTS=FILE\n"
    return head + "".join(lines) if lines else None


def _supported_hints(choice: ChoiceAdvice, advice: Advice) -> Iterator[tuple[str, str, str]]:
    """(hint, value, reason) of each hint that follows from the advice on one parameter."""
    sure = [part for part in choice.parts if part.is_difference]
    opposed = any(rule.value != part.best for part in sure for other in part.others for rule in other.rules)
    if len({part.best for part in sure}) != 1 or choice.joint or opposed:
        return
    part = sure[0]
    against = next(other for other in part.others if other.verdict == "faster")
    over = format_value(choice.choice, against.value)
    where = f", where {part.where}" if part.where else ""
    why = f"{choice.choice.label}, ×{against.gain:.3g} ({format_interval(against.ci)}) over {over}{where}"
    for name, value in _hint_values(choice.choice.name, part.best, advice):
        yield name, value, why


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
    known = load_system(advice.system).file_systems
    counts = {one.targets for one in known if advice.file_system in (None, one.name)}
    return counts.pop() if len(counts) == 1 else None
