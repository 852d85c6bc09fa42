"""Reports of an interference run: JSON for programs, a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from iowatch.core import METRICS, escape_controls, format_number
from iowatch.experiments.interference.effects import InterferenceEffects, LevelEffect


def effects_document(found: InterferenceEffects) -> dict[str, Any]:
    """JSON (docs/comparison.md, "Interference runs")."""
    return {
        "reference": {operation: list(values) for operation, values in found.reference.items()},
        "levels": [
            {
                "level": one.level,
                "operation": one.operation,
                "metric": one.metric,
                "unit": METRICS[one.metric].unit,
                "case": {"benchmark": one.case.benchmark, **one.case.parameters},
                "slowdown": one.slowdown,
                "ci": one.ci and list(one.ci),
                "verdict": one.comparison.words,
                "reason": one.comparison.reason,
                "pairs": one.comparison.right.runs,
                "values": list(one.values),
                "samples": list(one.samples),
                "aggressors": dict(one.aggressors),
            }
            for one in found.effects
        ],
    }


def format_slowdown(one: LevelEffect) -> str:
    """`x1.83 (1.61 to 2.10)`; a dash without enough pairs."""
    if one.slowdown is None:
        return "–"
    interval = f" ({one.ci[0]:.3g} to {one.ci[1]:.3g})" if one.ci else ""
    return f"×{one.slowdown:.3g}{interval}"


def format_rates(rates: Mapping[str, float]) -> str:
    """Rates by operation: `write 412, read 900`."""
    return ", ".join(f"{operation} {format_number(value)}" for operation, value in rates.items()) or "–"


def print_effects(found: InterferenceEffects, aggressor: str, console: Console) -> None:
    """The slowdown by level as a table."""
    if not found.effects:
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
    for operation, values in found.reference.items():
        effects = [one for one in found.effects if one.operation == operation]
        unit = METRICS[effects[0].metric].unit if effects else ""
        runs = str(effects[0].comparison.left.runs) if effects else ""
        table.add_row(operation, "0", runs, f"{format_number(median(values))} {unit}", "1", "reference", "–")
        for one in effects:
            value = f"{format_number(median(one.values))} {unit}"
            cells = str(one.level), str(one.comparison.right.runs), value, format_slowdown(one)
            table.add_row(operation, *cells, one.comparison.words, format_rates(one.aggressors))
    console.print(table)
