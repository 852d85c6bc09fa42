"""Scores on panels of series with planted events: what findings say on the first mornings (tests/data/panels.tar.xz).

    python bench/statistics/panels.py [FOLDER]
        the scores of the 100 panels, or of those in FOLDER, by the scorer beside them;
        docs/images/panel-reliability.svg is drawn from the 100 panels
    python bench/statistics/panels.py cost
        time of a morning with 200 series of ten years

The panels are of Edison, whose year the models were fitted to (docs/weights.md, other events): their scores are
no proof for other systems. `judge` is what the scorer calls: it sees a panel up to one morning, and its own state of
the morning before. It records the runs in a history and updates the findings, as `iowatch run` does every morning.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from tests.datasets import unpacked  # noqa: E402

from iowatch.core import Output, Result  # noqa: E402
from iowatch.findings import CASE_PARAMETERS, Finding, update_findings  # noqa: E402
from iowatch.statistics.panel import assess_panel  # noqa: E402
from iowatch.statistics.panel_table import PanelSeries  # noqa: E402
from iowatch.store import History, RunRecord, SessionRecord, StackRecord  # noqa: E402

SYSTEM = "panel"
REPORTED = ("suspected", "open")


class Morning:
    """The history of one panel, and the names of its series."""

    def __init__(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.history = History.open(f"{self.place.name}/history.db")
        self.seen = 0
        self.names: dict[tuple[Any, ...], str] = {}

    def record(self, panel: dict[str, Any]) -> None:
        """Record the runs since the last morning, those of one time and benchmark as one run."""
        new = [(t, v, s) for s in panel["series"] for t, v in s["points"] if t > self.seen]
        runs = []
        for (moment, tool, system), group in groupby(sorted(new, key=_run_of), key=_run_of):
            results = tuple(self._result(value, series) for _, value, series in group)
            output = Output(tool, None, "ok", None, results)
            name = f"{tool}-{moment}-{system}-{results[0].operation}"
            runs.append(RunRecord(name, "compute", StackRecord("one"), name, moment, output))
        session = SessionRecord(f"until {max(t for t, _, _ in new)}", SYSTEM, "panel", "import", new[0][0])
        self.history.begin_session(session)
        self.history.record_runs(session.uuid, runs)
        self.seen = max(t for t, _, _ in new)

    def _result(self, value: float, series: dict[str, Any]) -> Result:
        case = {key: part for key, part in series["case"].items() if key not in ("benchmark", "operation")}
        self.names[identity(series["case"])] = series["id"]
        return Result(series["case"]["operation"], "bandwidth", "MiB/s", (value,), case)

    def findings(self) -> list[Finding]:
        """The findings of this morning that are reported."""
        now = datetime.fromtimestamp(self.seen + 3600, UTC)
        return [f for f in update_findings(self.history, SYSTEM, now) if f.state in REPORTED]


@dataclass(frozen=True)
class PlantedPanel:
    """A panel with what was planted in it, as the documents of the scorer have them."""

    name: str
    panel: dict[str, Any]
    planted: dict[str, Any]

    @property
    def losses(self) -> list[dict[str, Any]]:
        """The planted groups of series that become slower."""
        return _planted_losses(self.planted)

    def mornings(self) -> Iterator[Morning]:
        """The history of the panel on each morning, which has the runs up to then."""
        morning = Morning()
        for moment in self.panel["mornings"]:
            series_until: list[dict[str, Any]] = []
            for series in self.panel["series"]:
                points = [point for point in series["points"] if point[0] <= moment]
                series_until.append({**series, "points": points})
            morning.record({**self.panel, "series": series_until})
            yield morning


def panels_with_losses_or_none(folder: Path, first: int, last: int) -> Iterator[PlantedPanel]:
    """The panels of a folder with lasting losses, and those without any event, from a number to one before another."""
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    for name in sorted(truth)[first:last]:
        planted = truth[name]
        has_lasting_loss = planted["kind"] == "lasting" and _planted_losses(planted)
        if planted["kind"] == "none" or has_lasting_loss:
            panel = json.loads((folder / "panels" / f"{name}.json").read_text())
            yield PlantedPanel(name, panel, planted)


def _planted_losses(planted: dict[str, Any]) -> list[dict[str, Any]]:
    return [group for group in planted["groups"] if group["direction"] == "down"]


def _run_of(point: tuple[int, float, dict[str, Any]]) -> tuple[int, str, str]:
    moment, _, series = point
    return moment, series["case"]["benchmark"], series["case"]["file_system"]


def identity(case: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(case[key] for key in ("benchmark", "operation", "file", "file_system", "ranks"))


def judge(panel: dict[str, Any], state: Morning | None) -> tuple[list[dict[str, Any]], Morning]:
    """Findings of one morning in the format of the scorer; one entry for each direction of a finding."""
    morning = state or Morning()
    morning.record(panel)
    found = []
    for finding in morning.findings():
        is_current = finding.outlook is not None and finding.outlook.is_current
        if not is_current and all(member.suspected for member in finding.members):
            continue  # a loss of the control chart alone: bench/statistics/losses.py
        sides = sorted({member.direction for member in finding.members})
        outlook = finding.outlook
        probabilities = dict(outlook.directions) if outlook is not None and outlook.is_current else {}
        for side in sides:
            members = [m for m in finding.members if m.direction == side]
            found.append(
                {
                    "direction": side,
                    "first_night": finding.first_after,
                    "members": [morning.names[identity(dict(m.parameters))] for m in members],
                    "state": finding.state,
                    # None where changes of single series decide, which state no probability.
                    "probability_lasting": probabilities.get(side),
                }
            )
    return found, morning


def scores(folder: Path) -> None:
    scorer, truth = unpacked("panels") / "score_panels.py", folder / "truth.json"
    run = [sys.executable, scorer, "run", "--panels", folder / "panels", "--truth", truth]
    with tempfile.TemporaryDirectory() as place:
        answers = Path(place) / "answers.json"
        subprocess.run([*run, "--detector", f"{__file__}:judge", "--out", answers, "--jobs", "2"], check=True)
        subprocess.run([sys.executable, scorer, "score", "--truth", truth, "--answers", answers], check=True)
        sys.path.append(str(scorer.parent))
        from score_panels import news  # type: ignore[import-not-found]

        first_reports = news(json.loads(truth.read_text()), json.loads(answers.read_text()))
    if folder == unpacked("panels"):
        (ROOT / "docs/images/panel-reliability.svg").write_text(reliability_diagram(first_reports))


WIDE, LEFT, TOP = 260, 60, 16


def reliability_diagram(first_reports: list[tuple[float, int]]) -> str:
    """SVG of the share of first reports that lasted over the stated probability, in five bins of equal width.

    The area of a dot is the number of reports; the bar is one standard error.
    """
    parts = [f'<line x1="{LEFT}" y1="{TOP + WIDE}" x2="{LEFT + WIDE}" y2="{TOP}" stroke="#999" stroke-dasharray="4"/>']
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x, y = LEFT + WIDE * tick, TOP + WIDE * (1 - tick)
        parts.append(f'<text x="{x:.0f}" y="{TOP + WIDE + 16}" text-anchor="middle">{tick:.0%}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:.0%}</text>')
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = [(p, lasts) for p, lasts in first_reports if low <= p < low + 0.2 + 1e-9 * (low > 0.7)]
        if not inside:
            continue
        n, share = len(inside), sum(lasts for _, lasts in inside) / len(inside)
        error = max(share * (1 - share), 0.05) ** 0.5 / n**0.5
        x, y = LEFT + WIDE * sum(p for p, _ in inside) / n, TOP + WIDE * (1 - share)
        top, bottom = max(y - WIDE * error, TOP), min(y + WIDE * error, TOP + WIDE)
        parts.append(
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="#0072b2"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{n**0.5:.1f}" fill="#0072b2"/>'
            f'<text x="{x + n**0.5 + 4:.1f}" y="{y + 4:.1f}">{n}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 40}" height="{TOP + WIDE + 44}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDE}" height="{WIDE}" fill="none" stroke="#ccc"/>{"".join(parts)}'
        f'<text x="{LEFT + WIDE / 2}" y="{TOP + WIDE + 36}" text-anchor="middle">stated probability</text>'
        f'<text transform="translate(14 {TOP + WIDE / 2}) rotate(-90)" text-anchor="middle">share that lasted</text>'
        "</svg>\n"
    )


def cost() -> None:
    """200 series of ten years: heavy-tailed noise, four interfaces, five sizes, two operations, five partitions."""
    rng = np.random.default_rng(7)
    times = 86400.0 * np.arange(3650)
    series = [
        PanelSeries(
            times + i,
            7 + 0.08 * rng.standard_t(4, len(times)),
            {
                "benchmark": "ior",
                "api": ("POSIX", "MPIIO", "HDF5", "NETCDF4")[i % 4],
                "transfer_bytes": 2 ** (16 + i // 4 % 5),
                "operation": ("write", "read")[i // 20 % 2],
                "partition": f"p{i // 40}",
            },
        )
        for i in range(200)
    ]
    start = time.perf_counter()
    assess_panel(series, vocabulary=CASE_PARAMETERS)
    print(f"evidence of 200 series x 3,650 sessions: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:] == ["cost"]:
        cost()
    else:
        cost()
        scores(Path(sys.argv[1]) if sys.argv[1:] else unpacked("panels"))
