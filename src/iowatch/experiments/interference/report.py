"""Reports of an interference run: JSON for programs, a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.core import METRICS, escape_controls, format_number
from iowatch.experiments.interference.effects import InterferenceEffects, LevelEffect


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
