"""The year of Edison: its changes as tables for docs/detection-scores.md, and plots of the largest events.

    python bench/statistics/detect_edison.py           prints the dates on which several series changed
    python bench/statistics/detect_edison.py --plot    writes docs/images/edison-*.svg as well

Data: reference/series/edison, read as `iowatch import tokio` reads it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import log
from pathlib import Path

from iowatch.benchmarks.tables import read_table
from iowatch.statistics import ChangePoint, Detection, detect_many

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/tokio/edison-summaries_2017-02-14-2018-02-15.csv.xz"
IMAGES = ROOT / "docs" / "images"
FEWEST = 100
DAY = 86400

PLOTS = {"edison-shared-reads": "IOR shared read", "edison-per-process-writes": "IOR per-process write"}


@dataclass(frozen=True)
class Nights:
    """One series and what the detector says of it; times in epoch seconds, values in MiB/s."""

    name: str
    times: list[float]
    values: list[float]
    found: Detection


def year(table: Path = DATA) -> list[Nights]:
    """All series of at least 100 observations, by name."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in read_table(table, "tokio").runs:
        for result in run.output.results:
            case = result.case
            tool = {"ior": "IOR"}.get(run.output.tool or "", str(run.output.tool))
            name = f"{tool} {case['file']} {result.operation} {case['file_system']} {case['ranks']}"
            points[name].append((float(run.started_at), result.samples[0]))
    series = {name: sorted(p) for name, p in sorted(points.items()) if len(p) >= FEWEST}
    columns = [([t for t, _ in p], [v for _, v in p]) for p in series.values()]
    return [
        Nights(name, times, values, found)
        for name, (times, values), found in zip(series, columns, detect_many(columns), strict=True)
    ]


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def table(series: list[Nights]) -> list[str]:
    """Changes of at least three series within four days of the first of them, and how many are left over."""
    steps = sorted(((c.time, s.name, c) for s in series for c in s.found.changes), key=lambda step: step[:2])
    lines, single = [], 0
    while steps:
        group = [step for step in steps if step[0] <= steps[0][0] + 4 * DAY]
        steps = steps[len(group) :]
        if len({name for _, name, _ in group}) >= 3:
            what = "; ".join(f"{name} x{change.ratio:.2f}" for _, name, change in group)
            lines.append(f"{day(group[0][0])} .. {day(group[-1][0])}: {what}")
        else:
            single += len(group)
    return [*lines, f"other changes, of one or two series at a time: {single}"]


WIDE, HIGH, LEFT, TOP = 760, 150, 70, 26


def figure(panels: list[Nights]) -> str:
    """An SVG of series, one below the other; logarithmic values, the lowest 2 % of them at the edge."""
    first, last = min(p.times[0] for p in panels), max(p.times[-1] for p in panels)
    parts = [_panel(p, i * (HIGH + 2 * TOP) + TOP, first, last) for i, p in enumerate(panels)]
    tall = len(panels) * (HIGH + 2 * TOP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 20} {tall}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    )
    return head + "".join(parts) + "</svg>\n"


def _panel(nights: Nights, top: float, first: float, last: float) -> str:
    low, high = sorted(nights.values)[len(nights.values) // 50], max(nights.values)

    def x(time: float) -> float:
        return round(LEFT + WIDE * (time - first) / (last - first), 1)

    def y(value: float) -> float:
        return round(top + HIGH * min(1.0, 1 - log(value / low) / log(high / low)), 1)

    dots = "".join(f"M{x(t)} {y(v)}h0" for t, v in zip(nights.times, nights.values, strict=True))
    frame = f'<rect x="{LEFT}" y="{top}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#999"/>'
    title = f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(nights.name)} ranks, MiB/s</text>'
    marks = f'<path d="{dots}" stroke="#7a8288" stroke-width="3.2" stroke-linecap="round"/>'
    levels = "".join(
        f'<path d="M{x(v.time)} {y(v.value)}H{x(v.last_time)}" stroke="#0057b8" stroke-width="2.5"/>'
        for v in nights.found.levels
    )
    ticks = "".join(f'<text x="{LEFT - 6}" y="{y(v) + 4}" text-anchor="end">{v:,.0f}</text>' for v in (low, high))
    changes = "".join(_step(c, x(c.time), top, i % 2) for i, c in enumerate(nights.found.changes))
    return title + frame + marks + levels + ticks + _months(x, top, first, last) + changes


def _step(change: ChangePoint, x: float, top: float, row: int) -> str:
    """Labels stand in two rows in turn, so that neighbours do not cover each other."""
    colour = "#b00020" if change.direction == "down" else "#1a7f37"
    line = f'<path d="M{x} {top}V{top + HIGH}" stroke="{colour}" stroke-dasharray="4 3"/>'
    label_x, anchor = (x - 3, "end") if x > LEFT + WIDE - 40 else (x + 3, "start")
    place = f'x="{label_x}" y="{top + HIGH - 5 - 15 * row}" text-anchor="{anchor}"'
    return line + f'<text {place} fill="{colour}">x{change.ratio:.2f}</text>'


def _months(x: Callable[[float], float], top: float, first: float, last: float) -> str:
    starts = [datetime(2017 + m // 12, m % 12 + 1, 1, tzinfo=UTC) for m in range(1, 14)]
    return "".join(
        f'<text x="{x(s.timestamp())}" y="{top + HIGH + 15}" fill="#555">{s:%b}</text>'
        for s in starts
        if first <= s.timestamp() <= last
    )


def main() -> None:
    series = year()
    found = [s.found for s in series]
    nights = sum(len(s.times) for s in series)
    print(
        f"{len(series)} series, {nights / 365:.1f} series-years: {sum(len(f.changes) for f in found)} changes, "
        f"{sum(len(f.transients) for f in found)} transients, {sum(len(f.drifts) for f in found)} drifts"
    )
    print(*table(series), sep="\n")
    if "--plot" in sys.argv[1:]:
        for name, start in PLOTS.items():
            panels = [s for s in series if s.name.startswith(start)]
            target = IMAGES / f"{name}.svg"
            target.write_text(figure(panels))
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1024:.0f} KiB, {len(panels)} series")


if __name__ == "__main__":
    main()
