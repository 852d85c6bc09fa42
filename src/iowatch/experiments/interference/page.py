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
    runs = [one for machine in site.catalogue.machines for one in _interference_series(site, machine.sessions)]
    formats = {"slowdown": format_slowdown, "rates": format_rates}
    site.write_page("interference.html", "interference/interference.html", runs=runs, **formats)


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
        named: Any = session.facts.interference
        if not named or session.status == "running":
            continue
        key = session.system, str(named.get("victim")), str(named.get("aggressor")), str(named.get("stack"))
        if len(groups[key]) < _MAX_SESSIONS:
            groups[key].append((session, interference_effects(site.history, session.uuid)))
    for (system, victim, aggressor, stack), found in groups.items():
        drawn = [(session, one) for session, one in found if one.effects]
        if drawn:
            newest = drawn[0][1]
            operations = dict.fromkeys(effect.operation for effect in newest.effects)
            yield InterferenceSeries(
                f"{system}: {victim} with {aggressor}, {stack}",
                newest,
                [(name, slowdown_picture([e for e in newest.effects if e.operation == name])) for name in operations],
                sorted({effect.level for _, one in drawn for effect in one.effects}),
                [(session, session_page_path(session), one) for session, one in drawn],
            )


def slowdown_picture(effects: Sequence[LevelEffect]) -> Markup:
    """Slowdown over the number of aggressors from 0 on: every sample, the estimate, its interval; a line at 1."""
    highest = max(value for one in effects for value in (*one.samples, *(one.ci or ()), one.slowdown or 1.0))
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    x = drawing.AxisScale(0.0, float(max(one.level for one in effects)), _LEFT + _SPREAD, right - _SPREAD)
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(highest), bottom, _TOP)
    parts = [drawing.svg_value_axis(y, _LEFT, right, drawing.value_ticks(y.high), "× slower")]
    parts.append(drawing.svg_line("grid one", _LEFT, y(1.0), right, y(1.0)))
    for level in (0, *(one.level for one in effects)):
        parts.append(drawing.svg_text("date", x(level), bottom + 17, str(level)))
    parts.append(drawing.svg_text("date", (_LEFT + right) / 2, _HEIGHT - 6, "aggressors"))
    texts = []
    for one in effects:
        step = 2 * _SPREAD / max(len(one.samples) - 1, 1)
        for number, value in enumerate(one.samples):
            at = x(one.level) - _SPREAD + number * step
            parts.append(f'<circle class="dot behind" cx="{at:.1f}" cy="{y(value):.1f}" r="1.8"/>')
        if one.ci:
            parts.append(drawing.svg_line("interval slower", x(one.level), y(one.ci[0]), x(one.level), y(one.ci[1])))
        if one.slowdown is not None:
            parts.append(f'<circle class="dot c1" cx="{x(one.level):.1f}" cy="{y(one.slowdown):.1f}" r="4.5"/>')
        texts.append(f"{one.level} aggressors: {format_slowdown(one)}")
    return drawing.svg_picture(_WIDTH, _HEIGHT, "; ".join(texts), parts, "picture curves")
