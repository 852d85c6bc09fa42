"""Reports of an interference run: JSON for programs, a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.core import METRICS, escape_controls, format_count, format_number
from iowatch.experiments.interference.effects import InterferenceEffects, LevelEffect, LevelNodes


def effects_document(effects: InterferenceEffects) -> dict[str, Any]:
    """JSON (docs/comparison.md, "Interference runs")."""
    return {
        "reference": {operation: list(values) for operation, values in effects.reference.items()},
        "levels": [_effect_document(effect) for effect in effects.effects],
    }


def _effect_document(effect: LevelEffect) -> dict[str, Any]:
    return {
        "level": effect.level,
        "operation": effect.operation,
        "metric": effect.metric,
        "unit": METRICS[effect.metric].unit,
        "case": {"benchmark": effect.case.benchmark, **effect.case.parameters},
        "slowdown": effect.slowdown,
        "ci": effect.ci and list(effect.ci),
        "verdict": effect.comparison.words,
        "reason": effect.comparison.reason,
        "pairs": effect.comparison.right.runs,
        "values": list(effect.values),
        "samples": list(effect.samples),
        "aggressors": dict(effect.aggressors),
        "nodes": _nodes_document(effect.nodes),
    }


def _nodes_document(nodes: LevelNodes) -> dict[str, Any]:
    return {
        "reference": list(nodes.reference),
        "victim": list(nodes.victim),
        "aggressors": list(nodes.aggressors),
        "pairs_with_known_nodes": nodes.pairs_with_known_nodes,
        "pairs_on_other_nodes": nodes.pairs_on_other_nodes,
        "pairs_with_shared_nodes": nodes.pairs_with_shared_nodes,
    }


def format_slowdown(effect: LevelEffect) -> str:
    """`x1.83 (1.61 to 2.10)`; a dash without enough pairs."""
    if effect.slowdown is None:
        return "–"
    text = f"×{effect.slowdown:.3g}"
    if effect.ci:
        low, high = effect.ci
        text += f" ({low:.3g} to {high:.3g})"
    return text


def format_rates(rates: Mapping[str, float]) -> str:
    """Rates by operation: `write 412, read 900`."""
    return ", ".join(f"{operation} {format_number(value)}" for operation, value in rates.items()) or "–"


def node_remarks(effects: InterferenceEffects) -> list[str]:
    """What makes a slowdown more than an effect on the file system, as far as it is of the nodes; once per level."""
    remarks: list[str] = []
    for effect in effects.effects:
        for remark in _node_remarks_of(effect.level, effect.nodes):
            # All operations of a level have the same jobs.
            if remark not in remarks:
                remarks.append(remark)
    return remarks


def _node_remarks_of(level: int, nodes: LevelNodes) -> Iterator[str]:
    of_pairs = f"of {format_count(nodes.pairs, 'pair')}"
    unknown_count = nodes.pairs - nodes.pairs_with_known_nodes
    if nodes.pairs_on_other_nodes:
        reference = ", ".join(nodes.reference)
        victim = ", ".join(nodes.victim)
        yield (
            f"level {level}: in {nodes.pairs_on_other_nodes} {of_pairs} the reference was measured on other nodes "
            f"than the victim ({reference}; {victim})"
        )
    if unknown_count:
        yield f"level {level}: in {unknown_count} {of_pairs} the nodes of the victim or of its reference are not known"
    if nodes.pairs_with_shared_nodes:
        yield f"level {level}: in {nodes.pairs_with_shared_nodes} {of_pairs} aggressors ran on nodes of the victim"


_COLUMNS = ("operation", "aggressors", "pairs", "median", "slowdown (95 % interval)", "verdict", "aggressors together")
_TEXT_COLUMNS = ("operation", "verdict")


def print_effects(effects: InterferenceEffects, aggressor: str, console: Console) -> None:
    """The slowdown by level as a table."""
    if not effects.effects:
        console.print("no level has results with a reference (level 0)")
        return
    table = Table(title=f"slowdown by number of aggressors ({escape_controls(aggressor)})", title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in _TEXT_COLUMNS else "right")
    for operation, reference in effects.reference.items():
        levels = [effect for effect in effects.effects if effect.operation == operation]
        for row in _operation_rows(operation, reference, levels):
            table.add_row(*row)
    console.print(table)
    for remark in node_remarks(effects):
        console.print(escape_controls(remark))


def _operation_rows(
    operation: str, reference: Sequence[float], levels: Sequence[LevelEffect]
) -> Iterator[tuple[str, ...]]:
    """Cells of the rows of one operation, in the order of `_COLUMNS`: level 0, then the others."""
    # Level 0 is the reference of each other level, and has its unit and number of runs.
    unit = ""
    reference_runs = ""
    if levels:
        unit = METRICS[levels[0].metric].unit
        reference_runs = str(levels[0].comparison.left.runs)
    yield operation, "0", reference_runs, f"{format_number(median(reference))} {unit}", "1", "reference", "–"
    for effect in levels:
        yield (
            operation,
            str(effect.level),
            str(effect.comparison.right.runs),
            f"{format_number(median(effect.values))} {unit}",
            format_slowdown(effect),
            effect.comparison.words,
            format_rates(effect.aggressors),
        )
