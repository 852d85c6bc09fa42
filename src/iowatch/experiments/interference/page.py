"""Interference runs: slowdown of a victim against the number of aggressors, and how it develops over sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from iowatch.experiments.interference.effects import InterferenceEffects, LevelEffect, interference_effects
from iowatch.experiments.interference.report import format_rates, format_slowdown
from iowatch.output.dashboard import Page, SiteBuild, drawing
from iowatch.output.dashboard.data import session_page_path
from iowatch.store import SessionRow

# Sessions of each victim with each aggressor.
_MAX_SESSIONS = 12
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 300, 46, 20, 26, 42
# Half the width over which the samples of a level are spread.
_SPREAD = 9.0


@dataclass(frozen=True)
class InterferenceSeries:
    """One victim with one aggressor and stack: its sessions, newest first.

    Attributes:
        newest: effects of the newest session.
        pictures: operation and picture of that session.
        levels: those of any session.
        rows: session, its page, and its effects.
    """

    title: str
    newest: InterferenceEffects
    pictures: Sequence[tuple[str, Markup]]
    levels: Sequence[int]
    rows: Sequence[tuple[SessionRow, str, InterferenceEffects]]


def publish_interference_page(site: SiteBuild) -> None:
    """Write `interference.html`."""
    series: list[InterferenceSeries] = []
    for machine in site.catalogue.machines:
        series += _interference_series(site, machine.sessions)
    formats = {"slowdown": format_slowdown, "rates": format_rates}
    site.write_page("interference.html", "interference/interference.html", runs=series, **formats)


PAGE = Page(
    "interference.html",
    "Interference",
    None,
    publish_interference_page,
    below="comparisons.html",
    line="slowdown of one job by others.",
)


def _interference_series(site: SiteBuild, sessions: Sequence[SessionRow]) -> Iterator[InterferenceSeries]:
    groups: dict[tuple[str, ...], list[tuple[SessionRow, InterferenceEffects]]] = defaultdict(list)
    for session in sessions:
        facts: Any = session.facts.interference
        if not facts or session.status == "running":
            continue
        key = session.system, str(facts.get("victim")), str(facts.get("aggressor")), str(facts.get("stack"))
        if len(groups[key]) < _MAX_SESSIONS:
            groups[key].append((session, interference_effects(site.history, session.uuid)))
    for (system, victim, aggressor, stack), measured_sessions in groups.items():
        with_effects = [(session, effects) for session, effects in measured_sessions if effects.effects]
        if with_effects:
            yield _describe_series(f"{system}: {victim} with {aggressor}, {stack}", with_effects)


def _describe_series(title: str, sessions: Sequence[tuple[SessionRow, InterferenceEffects]]) -> InterferenceSeries:
    """What the page shows of sessions with effects, newest first."""
    _, newest = sessions[0]
    pictures = []
    for operation in dict.fromkeys(effect.operation for effect in newest.effects):
        of_operation = [effect for effect in newest.effects if effect.operation == operation]
        pictures.append((operation, slowdown_picture(of_operation)))
    levels: set[int] = set()
    for _, effects in sessions:
        levels.update(effect.level for effect in effects.effects)
    rows = [(session, session_page_path(session), effects) for session, effects in sessions]
    return InterferenceSeries(title, newest, pictures, sorted(levels), rows)


def slowdown_picture(effects: Sequence[LevelEffect]) -> Markup:
    """Slowdown over the number of aggressors from 0 on: every sample, the estimate, its interval; a line at 1."""
    levels = [effect.level for effect in effects]
    values: list[float] = []
    for effect in effects:
        values += [*effect.samples, *(effect.ci or ()), effect.slowdown or 1.0]
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    x = drawing.AxisScale(0.0, float(max(levels)), _LEFT + _SPREAD, right - _SPREAD)
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(max(values)), bottom, _TOP)
    # Axes, and a line at 1.
    parts = [drawing.svg_value_axis(y, _LEFT, right, drawing.value_ticks(y.high), "× slower")]
    parts.append(drawing.svg_line("grid one", _LEFT, y(1.0), right, y(1.0)))
    for level in (0, *levels):
        parts.append(drawing.svg_text("date", x(level), bottom + 17, str(level)))
    parts.append(drawing.svg_text("date", (_LEFT + right) / 2, _HEIGHT - 6, "aggressors"))
    texts = []
    for effect in effects:
        middle = x(effect.level)
        step = 2 * _SPREAD / max(len(effect.samples) - 1, 1)
        for number, value in enumerate(effect.samples):
            position = middle - _SPREAD + number * step
            parts.append(f'<circle class="dot behind" cx="{position:.1f}" cy="{y(value):.1f}" r="1.8"/>')
        if effect.ci:
            low, high = effect.ci
            parts.append(drawing.svg_line("interval slower", middle, y(low), middle, y(high)))
        if effect.slowdown is not None:
            parts.append(f'<circle class="dot c1" cx="{middle:.1f}" cy="{y(effect.slowdown):.1f}" r="4.5"/>')
        texts.append(f"{effect.level} aggressors: {format_slowdown(effect)}")
    return drawing.svg_picture(_WIDTH, _HEIGHT, "; ".join(texts), parts, "picture curves")
