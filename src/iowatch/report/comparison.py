"""A comparison for programs (JSON), for people (terminal) and for tickets (Markdown)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from iowatch import tables
from iowatch.compare import Comparison, Overall, ScalingPoint, SideSummary
from iowatch.compare.records import percent
from iowatch.compare.subgroup import Subgroup
from iowatch.explain import names
from iowatch.metrics import metric
from iowatch.model import Scalar
from iowatch.report import traces
from iowatch.sides import Outcome
from iowatch.sides.grounds import Ground, Grounds
from iowatch.sides.outcome import described
from iowatch.stacks.diff import StackDiff
from iowatch.store.nodelist import fold
from iowatch.units import counted, format_number, format_time

_COLOURS = {"faster": "green", "slower": "red", "not enough data": "yellow"}
_MOST_UNPAIRED = 10
_LONGEST_NODES = 60


# For programs


def document(outcome: Outcome) -> dict[str, Any]:
    """The document of `iowatch compare --json` (DESIGN.md, "Formats"; docs/comparison.md describes every
    key)."""
    matched = outcome.matched
    return {
        "left": outcome.left.text,
        "right": outcome.right.text,
        "differing": {name: list(values) for name, values in matched.differing.items()},
        "common": dict(matched.common),
        "settings": asdict(outcome.options.settings),
        "pairs": [_pair(one) for one in outcome.compared],
        "overall": _overall(outcome.overall, outcome.subgroups),
        "measured": _measured(outcome.grounds),
        "unpaired": {
            "left": [dict(described(entry)) for entry in matched.only_left],
            "right": [dict(described(entry)) for entry in matched.only_right],
        },
        "notes": list(outcome.notes),
        "darshan": traces.document(outcome),
    }


def _pair(one: Comparison) -> dict[str, Any]:
    return {
        "case": _parameters(one),
        "metric": one.metric,
        "unit": metric(one.metric).unit,
        "left": asdict(one.left),
        "right": asdict(one.right),
        "statistic": one.statistic,
        "ratio": one.ratio,
        "ci": one.ci and list(one.ci),
        "ratio_max": one.ratio_max,
        "ci_max": one.ci_max and list(one.ci_max),
        "p": one.p,
        "p_adjusted": one.p_adjusted,
        "paired": one.paired,
        "inflation": one.inflation,
        "verdict": one.words,
        "reason": one.reason,
        "runs_needed": one.runs_needed,
        "more_runs": more_runs(one),
    }


def _measured(grounds: Grounds) -> dict[str, Any]:
    sides = {
        name: side
        and {
            "runs": side.runs,
            "first": format_time(datetime.fromtimestamp(side.first, UTC)),
            "last": format_time(datetime.fromtimestamp(side.last, UTC)),
            "stacks": list(side.stacks),
            "rebuilt": side.rebuilt,
            "nodes": list(side.nodes),
        }
        for name, side in (("left", grounds.left), ("right", grounds.right))
    }
    return {
        **sides,
        "libraries": grounds.libraries and grounds.libraries.to_json(),
        "on_other_nodes": grounds.elsewhere and dict(zip(("runs", "of"), grounds.elsewhere, strict=True)),
    }


def _overall(overall: Overall, groups: Sequence[Subgroup]) -> dict[str, Any]:
    return {
        "pairs": sum(overall.counts.values()),
        "counts": dict(overall.counts),
        "ratio": overall.ratio,
        "ci": overall.ci and list(overall.ci),
        "verdict": overall.words,
        "basis": overall.basis,
        "reason": overall.reason,
        "subgroups": [asdict(group) for group in groups],
        "peaks": [{**asdict(peak), "ratio": peak.ratio} for peak in overall.peaks],
        "scaling": {name: [asdict(point) for point in points] for name, points in overall.scaling.items()},
    }


def more_runs(one: Comparison) -> int | None:
    """Runs a side still to make until `Settings.difference` would be found; 0 where there are enough."""
    if one.runs_needed is None:
        return None
    return max(0, one.runs_needed - min(one.left.runs or 0, one.right.runs or 0))


# For people

_HEADER = (
    "case",
    "left",
    "right",
    "unit",
    "runs",
    "ratio",
    "95 % interval",
    "of maxima",
    "verdict",
    "more runs",
)


def _rows(outcome: Outcome) -> Iterator[tuple[Comparison, tuple[str, ...]]]:
    called = names([_parameters(one) for one in outcome.compared])
    several = len({one.metric for one in outcome.compared}) > 1
    for name, one in zip(called, outcome.compared, strict=True):
        shown = f"{name} {metric(one.metric).label.lower()}" if several else name
        yield one, (shown, *_figures(one))


def _figures(one: Comparison) -> tuple[str, ...]:
    statistic = one.statistic or "median"
    more = more_runs(one)
    return (
        format_number(getattr(one.left, statistic)),
        format_number(getattr(one.right, statistic)),
        f"{metric(one.metric).unit} ({statistic})",
        f"{_runs(one.left)} | {_runs(one.right)}",
        _ratio(one.ratio),
        _interval(one.ci),
        _ratio(one.ratio_max) + (f" ({_interval(one.ci_max)})" if one.ci_max else ""),
        one.words,
        "–" if more is None or one.verdict in ("faster", "slower") else str(more),
    )


_SAMPLES = ("case", "side", "n", "max", "median", "mean", "min", "unit")


def _samples(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """What each side measured, in all its samples; a row a side."""
    for one, (name, *_) in _rows(outcome):
        for side, told in (("left", one.left), ("right", one.right)):
            numbers = (format_number(value) for value in (told.max, told.median, told.mean, told.min))
            n = "–" if told.n is None else str(told.n)
            yield name, side, n, *numbers, metric(one.metric).unit


def _runs(side: SideSummary) -> str:
    """Runs × repetitions, or that figures were printed."""
    return "printed" if side.runs is None else f"{side.runs} ({side.n})"


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def _interval(ci: tuple[float, float] | None) -> str:
    return "–" if ci is None else f"{_ratio(ci[0])} – {_ratio(ci[1])}"


def _sides(outcome: Outcome) -> tuple[str, str]:
    """The sides as they were named; of an event, which side of it."""
    named = ((outcome.left, "before it"), (outcome.right, "after it"))
    left, right = (f"{side.text}, {when}" if side.kind == "event" else side.text for side, when in named)
    return left, right


def summary(outcome: Outcome) -> list[str]:
    """The answer in sentences, the most important first."""
    return [
        _headline(outcome),
        *(_concentrated(group) for group in outcome.subgroups),
        *(_scaling(name, points) for name, points in outcome.overall.scaling.items()),
        *(
            f"Best {peak.operation} {metric(peak.metric).label.lower()}: {format_number(peak.left)} | "
            f"{format_number(peak.right)} {metric(peak.metric).unit}, ratio {_ratio(peak.ratio)}."
            for peak in outcome.overall.peaks
        ),
    ]


def _headline(outcome: Outcome) -> str:
    overall = outcome.overall
    counts = ", ".join(f"{n} {verdict}" for verdict, n in overall.counts.items() if n)
    speed = f", {_ratio(overall.ratio)} times as fast" if overall.ratio is not None else ""
    within = f" ({_interval(overall.ci)}, {_BASIS[overall.basis]})" if overall.ci else ""
    return f"{_VERB[overall.verdict].format(bound=percent(overall.bound or 0))}{speed}{within}: {counts}."


_VERB = {
    "faster": "Right is faster over all",
    "slower": "Right is slower over all",
    "no difference": "No difference above {bound} over all",
    "not enough data": "Not enough data to judge over all",
}
_BASIS = {
    "nights": "from night to night",
    "paired nights": "night by night",
    "cases": "over these cases; nights are too few or not known",
    "none": "",
}


def _concentrated(group: Subgroup) -> str:
    where = f"{group.inside} of {group.inside_total}"
    others = f"; {group.outside} of {group.outside_total} others" if group.outside_total else ""
    return f"{group.direction.capitalize()}: {group.rule}: {where}, ×{group.ratio:.3g}{others}."


def _scaling(name: str, points: Sequence[ScalingPoint]) -> str:
    """Every point: whether right gains or loses as writers are added is a shape, not two numbers."""
    told = ", ".join(f"{_ratio(point.ratio)} at {point.value}" for point in points)
    return f"By {name}, times as fast: {told}."


def _differing(outcome: Outcome) -> str:
    shown = [
        f"{name} {_plain(left)} → {_plain(right)}" for name, (left, right) in outcome.matched.differing.items()
    ]
    common = [f"{name} {value}" for name, value in outcome.matched.common.items()]
    return "; ".join(["differs: " + ", ".join(shown) if shown else "", "same: " + ", ".join(common)]).strip(
        "; "
    )


def _plain(value: object) -> str:
    return "none" if value is None else str(value)


def measured(outcome: Outcome) -> Iterator[str]:
    """When each side was measured, and what differs between the libraries: what a reader asks first."""
    grounds = outcome.grounds
    sides = (("left", grounds.left), ("right", grounds.right))
    told = [f"{name} {counted(side.runs, 'run')} {_period(side)}" for name, side in sides if side]
    if told:
        yield f"Measured: {'; '.join(told)} (UTC)."
    if grounds.libraries is not None:
        yield f"Libraries: {_libraries(grounds.libraries)}."
    for name, side in sides:
        if side and side.rebuilt:
            yield f"Libraries: a stack on the {name} was changed between its runs (`iowatch history show`)."
    yield from _nodes(grounds)


def _nodes(grounds: Grounds) -> Iterator[str]:
    """Where the sides ran, as far as it may explain a difference."""
    apart, of = grounds.elsewhere or (0, 0)
    left, right = (side.nodes if side else () for side in (grounds.left, grounds.right))
    if apart:
        yield f"Nodes: {apart} of {of} runs had other nodes than the run of the other side that they meet."
    elif of and left == right:
        yield f"Nodes: {_few(left)} on both sides, the same for every pair of runs."
    elif left and right and not set(left) & set(right):
        yield f"Nodes: none in common: {_few(left)} | {_few(right)}."


def _few(nodes: Sequence[str]) -> str:
    told = fold(nodes)
    return told if len(told) <= _LONGEST_NODES else f"{len(nodes)} nodes"


def _period(side: Ground) -> str:
    first, last = (f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}" for time in (side.first, side.last))
    return f"on {first}" if first == last else f"from {first} to {last}"


def _libraries(found: StackDiff) -> str:
    told = [
        f"{one.part} {'' if one.field == 'version' else f'{one.field} '}"
        f"{one.left or 'absent'} → {one.right or 'absent'}"
        for one in found.differences
    ]
    if found.rebuilt:
        told.append(f"built anew with the same version: {', '.join(found.rebuilt)}")
    return f"{'; '.join(told)}; {found.same} the same" if told else f"all {found.same} the same on both sides"


def _unpaired(outcome: Outcome) -> Iterator[str]:
    both = (("left", outcome.matched.only_left), ("right", outcome.matched.only_right))
    # Named among the pairs, so that what tells them from those is said.
    paired = [_parameters(one) for one in outcome.compared]
    for side, entries in both:
        called = names([*paired, *(entry.described for entry in entries)])[len(paired) :]
        for name, entry in list(zip(called, entries, strict=True))[:_MOST_UNPAIRED]:
            yield f"only on the {side}: {name} ({entry.metric})"
        if len(entries) > _MOST_UNPAIRED:
            yield f"only on the {side}: {len(entries) - _MOST_UNPAIRED} more (--json lists all)"


def _parameters(one: Comparison) -> dict[str, Scalar]:
    return {"benchmark": one.case.benchmark, **one.case.parameters}


def print_comparison(outcome: Outcome, console: Console, samples: bool = False) -> None:
    """The answer, then a table, then what was not compared.

    Args:
        samples: also n, max, median, mean and min of each side.
    """
    left, right = _sides(outcome)
    console.print(Text(f"left  {left}\nright {right}", style="bold"))
    console.print(Text(_differing(outcome), style="dim"))
    for line in measured(outcome):
        console.print(Text(line, style="dim"))
    for line in summary(outcome):
        console.print(Text(line))
    grid = Table(*_HEADER)
    for one, cells in _rows(outcome):
        grid.add_row(*(Text(cell) for cell in cells), style=_COLOURS.get(one.verdict))
    console.print(grid)
    if samples:
        each = tables.table(*_SAMPLES, right=_SAMPLES[2:7])
        for row in _samples(outcome):
            each.add_row(*row)
        console.print(each)
    for line in traces.lines(outcome):
        console.print(Text(line))
    for line in (*_unpaired(outcome), *outcome.notes):
        console.print(Text(line, style="dim"))


# For tickets


def markdown(outcome: Outcome) -> str:
    """The same as Markdown."""
    lines = [
        "### `{}` (left) against `{}` (right)".format(*_sides(outcome)),
        "",
        _escaped(_differing(outcome)),
        "",
        *(f"- {_escaped(line)}" for line in measured(outcome)),
        *(f"- {_escaped(line)}" for line in summary(outcome)),
        "",
        f"| {' | '.join(_HEADER)} |",
        f"|{'---|' * len(_HEADER)}",
        *(f"| {' | '.join(_escaped(cell) for cell in cells)} |" for _, cells in _rows(outcome)),
        "",
        f"| {' | '.join(_SAMPLES)} |",
        f"|{'---|' * len(_SAMPLES)}",
        *(f"| {' | '.join(_escaped(cell) for cell in cells)} |" for cells in _samples(outcome)),
        "",
        *(f"- {_escaped(line)}" for line in traces.lines(outcome)),
        "",
        *(f"- {_escaped(line)}" for line in (*_unpaired(outcome), *outcome.notes)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _escaped(text: str) -> str:
    """Names come from outside: no cell may end early, no HTML may begin."""
    for character in "\\|<>`*_[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
