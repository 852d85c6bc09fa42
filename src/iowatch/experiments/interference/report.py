"""Reports of an interference run: JSON for programs, a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
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


def print_effects(effects: InterferenceEffects, aggressor: str, console: Console) -> None:
    """The slowdown by level as a table."""
    if not effects.effects:
        console.print("no level has results with a reference (level 0)")
        return
    table = Table(title=f"slowdown by number of aggressors ({escape_controls(aggressor)})", title_justify="left")
    for name in (
        "operation",
        "aggressors",
        "pairs",
        "median",
        "slowdown (95 % interval)",
        "verdict",
        "aggressors together",
    ):
        table.add_column(name, justify="left" if name in ("operation", "verdict") else "right")
    for operation, values in effects.reference.items():
        levels = [effect for effect in effects.effects if effect.operation == operation]
        unit = METRICS[levels[0].metric].unit if levels else ""
        runs = str(levels[0].comparison.left.runs) if levels else ""
        table.add_row(operation, "0", runs, f"{format_number(median(values))} {unit}", "1", "reference", "–")
        for effect in levels:
            table.add_row(
                operation,
                str(effect.level),
                str(effect.comparison.right.runs),
                f"{format_number(median(effect.values))} {unit}",
                format_slowdown(effect),
                effect.comparison.words,
                format_rates(effect.aggressors),
            )
    console.print(table)
