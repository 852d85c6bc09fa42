"""Interference runs: slowdown of a victim against the number of aggressors, and how it develops over sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from markupsafe import Markup

from iowatch.experiments.interference.effects import InterferenceEffects, LevelEffect, interference_effects
from iowatch.experiments.interference.report import format_rates, format_slowdown, node_remarks
from iowatch.output.dashboard import Page, SiteBuild, drawing
from iowatch.output.dashboard.data import session_page_path
from iowatch.store import SessionRow

# Newest sessions of each victim with each aggressor.
_MAX_SESSIONS = 12
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 300, 46, 20, 26, 42
# Half the width over which the samples of a level are spread.
_SPREAD = 9.0


@dataclass(frozen=True)
class _RunKey:
    """What the sessions of one series of the page have in common."""

    system: str
    victim: str
    aggressor: str
    stack: str


@dataclass(frozen=True)
class InterferenceRun:
    """One interference run: its session, the page of that, and the effects."""

    session: SessionRow
    page: str
    effects: InterferenceEffects


@dataclass(frozen=True)
class InterferenceSeries:
    """The interference runs of one victim with one aggressor and stack.

    Attributes:
        newest: effects of the newest session.
        remarks: on the nodes of the jobs of that session.
        pictures: operation and picture of that session.
        levels: those of any session.
        rows: the runs, newest first.
    """

    title: str
    newest: InterferenceEffects
    remarks: Sequence[str]
    pictures: Sequence[tuple[str, Markup]]
    levels: Sequence[int]
    rows: Sequence[InterferenceRun]


def publish_interference_page(site: SiteBuild) -> None:
    """Write `interference.html`."""
    series: list[InterferenceSeries] = []
    for machine in site.catalogue.machines:
        series += _interference_series(site, machine.sessions)
    formats = {"slowdown": format_slowdown, "rates": format_rates}
    site.write_page("interference.html", "interference/interference.html", runs=series, **formats)


def _has_interference_runs(site: SiteBuild) -> bool:
    sessions = chain.from_iterable(machine.sessions for machine in site.catalogue.machines)
    return any(session.facts.interference for session in sessions)


PAGE = Page(
    "interference.html",
    "Interference",
    None,
    publish_interference_page,
    below="comparisons.html",
    line="slowdown of one job by others.",
    has_content=_has_interference_runs,
)


def _interference_series(site: SiteBuild, sessions: Sequence[SessionRow]) -> Iterator[InterferenceSeries]:
    """Series of the interference runs of a system; its sessions are given newest first."""
    runs_of_key: dict[_RunKey, list[InterferenceRun]] = defaultdict(list)
    for session in sessions:
        facts: Any = session.facts.interference
        if not facts or session.status == "running":
            continue
        key = _RunKey(
            system=session.system,
            victim=str(facts.get("victim")),
            aggressor=str(facts.get("aggressor")),
            stack=str(facts.get("stack")),
        )
        if len(runs_of_key[key]) < _MAX_SESSIONS:
            effects = interference_effects(site.history, session.uuid)
            runs_of_key[key].append(InterferenceRun(session, session_page_path(session), effects))
    for key, runs in runs_of_key.items():
        runs_with_effects = [run for run in runs if run.effects.effects]
        if runs_with_effects:
            title = f"{key.system}: {key.victim} with {key.aggressor}, {key.stack}"
            yield _describe_series(title, runs_with_effects)


def _describe_series(title: str, runs: Sequence[InterferenceRun]) -> InterferenceSeries:
    """What the page shows of runs with effects, newest first."""
    newest = runs[0].effects
    effects_of_operation: dict[str, list[LevelEffect]] = defaultdict(list)
    for effect in newest.effects:
        effects_of_operation[effect.operation].append(effect)
    pictures = [(operation, slowdown_picture(effects)) for operation, effects in effects_of_operation.items()]
    levels: set[int] = set()
    for run in runs:
        levels.update(effect.level for effect in run.effects.effects)
    return InterferenceSeries(title, newest, node_remarks(newest), pictures, sorted(levels), runs)


def slowdown_picture(effects: Sequence[LevelEffect]) -> Markup:
    """Slowdown over the number of aggressors from 0 on: every sample, the estimate, its interval; a line at 1."""
    levels = [effect.level for effect in effects]
    slowdowns: list[float] = []
    for effect in effects:
        slowdowns += effect.samples
        slowdowns += effect.ci or ()
        slowdowns.append(effect.slowdown or 1.0)
    bottom = _HEIGHT - _BOTTOM
    right = _WIDTH - _RIGHT
    x = drawing.AxisScale(0.0, float(max(levels)), _LEFT + _SPREAD, right - _SPREAD)
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(max(slowdowns)), bottom, _TOP)
    # Axes, and a line at 1.
    parts = [drawing.svg_value_axis(y, _LEFT, right, drawing.value_ticks(y.high), "× slower")]
    parts.append(drawing.svg_line("grid one", _LEFT, y(1.0), right, y(1.0)))
    for level in (0, *levels):
        parts.append(drawing.svg_text("date", x(level), bottom + 17, str(level)))
    parts.append(drawing.svg_text("date", (_LEFT + right) / 2, _HEIGHT - 6, "aggressors"))
    for effect in effects:
        parts += _draw_effect(effect, x(effect.level), y)
    texts = [f"{effect.level} aggressors: {format_slowdown(effect)}" for effect in effects]
    return drawing.svg_picture(_WIDTH, _HEIGHT, "; ".join(texts), parts, "picture curves")


def _draw_effect(effect: LevelEffect, middle: float, y: drawing.AxisScale) -> Iterator[str]:
    """Samples of a level from left to right around `middle`, then their interval and the estimate over them."""
    step = 2 * _SPREAD / max(len(effect.samples) - 1, 1)
    for number, slowdown in enumerate(effect.samples):
        position = middle - _SPREAD + number * step
        yield f'<circle class="dot behind" cx="{position:.1f}" cy="{y(slowdown):.1f}" r="1.8"/>'
    if effect.ci:
        low, high = effect.ci
        yield drawing.svg_line("interval slower", middle, y(low), middle, y(high))
    if effect.slowdown is not None:
        yield f'<circle class="dot c1" cx="{middle:.1f}" cy="{y(effect.slowdown):.1f}" r="4.5"/>'
