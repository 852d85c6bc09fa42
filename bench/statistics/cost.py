"""Cost of a system-year over the thresholds for exit code 1, on panels, on years of noise, and of the control chart.

    python bench/statistics/cost.py panels FOLDER OUT [FIRST LAST]
        record what the mornings of the panels say (those of tests/data/panels.tar.xz: FOLDER is `shown`), or of some
    python bench/statistics/cost.py noise WORLD SEED OUT [MORNINGS]
        record what the mornings of a year without lasting changes say (WORLD as of worlds.py)
    python bench/statistics/cost.py curve OUT… [--day HOURS] [--message MINUTES] [--losses PER_YEAR]
        the cost of a year over `suspected_probability`, of all recordings together and by kind
    python bench/statistics/cost.py year TABLE
        what `iowatch findings cost` says after a year of NERSC/tokio-abcutils (summaries/*.csv.gz), morning by morning
    python bench/statistics/cost.py chart WORLD SEEDS [FALLS]
        the cost of a year over `smallest_loss`, of the control chart alone

The parts of a system-year: lasting losses, `--losses` of them a year, are late as the panels say; false messages come
from the panels without an event (the noise of Edison, with its shared bad sessions), or from a world of pure noise.
What is planted and over after some sessions is left out: the noise has bad sessions of its own, as many as they are.
OUT has one JSON document per line, and is appended to.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# For `tests`, before the directory of this file, which holds `panels` and `worlds`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from losses import SYSTEM as YEAR_SYSTEM
from losses import replay
from panels import SYSTEM as PANEL_SYSTEM
from panels import Morning, PlantedPanel, identity, panels_with_losses_or_none
from tests.datasets import unpacked
from worlds import BURN_IN, DAY_S, START, SYSTEM, Case, Floats, World, make_cases, make_world

from iowatch.core import Output, Result
from iowatch.core.settings import Prices
from iowatch.findings import Finding, assess_alarm_cost, load_findings, update_findings
from iowatch.findings.alarm_cost import THRESHOLDS, outcome_of
from iowatch.findings.finding import SURE_STATES
from iowatch.output.text.alarm_cost import alarm_cost_lines
from iowatch.session.imports import import_files
from iowatch.statistics.alarm_cost import (
    AlarmEvent,
    AlarmPrices,
    CostCurve,
    cost_of_thresholds,
    curve_of_costs,
    lost_user_hours,
)
from iowatch.statistics.control_chart import chart_losses
from iowatch.statistics.panel_table import PanelSeries
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Lasting losses of a system in a year, assumed: the years of Edison, Cori and Mira have 5, 5 and 0 findings of losses
# that last (`cost.py year`), some of them long and shallow. Doubled, it is as if a slow day cost twice as much.
LOSSES_PER_YEAR = 2.0
# A finding is that of a planted event with most of its series among the planted ones, and within so many days.
_SAME_DATE_DAYS = 2.5
SMALLEST_LOSSES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
# Sessions after which changes of single series are sure: then the chart is not needed any more.
_SURE_SESSIONS = 7
_YEAR_DAYS = 365


@dataclass(frozen=True)
class Recording:
    """One event, or the mornings of one panel or year of noise.

    Attributes:
        source: `panels` or the world.
        kind: `loss` of a planted lasting loss, `false` of a finding of noise, `mornings` of their number.
        mornings: days since the first run of the event, or the number of mornings.
    """

    source: str
    name: str
    kind: str
    mornings: tuple[float, ...]
    probabilities: tuple[float, ...] = ()
    lost_share: float = 0.0
    end: float = 0.0


def record_panels(folder: Path, out: Path, first: int, last: int) -> None:
    """Assess the mornings of panels, those of lasting losses and those without any event."""
    for planted_panel in panels_with_losses_or_none(folder, first, last):
        append(out, assess_panel(planted_panel))


def assess_panel(planted_panel: PlantedPanel) -> list[Recording]:
    """What the mornings of a panel say about its planted losses, or without an event about its noise."""
    name, panel, planted = planted_panel.name, planted_panel.panel, planted_panel.planted
    losses = planted_panel.losses
    stated: list[list[tuple[float, float]]] = [[] for _ in losses]
    earlier_ids: set[str] = set()
    for number, morning in enumerate(planted_panel.mornings()):
        findings = morning.findings()
        if number == 0:
            # Findings of earlier mornings are not counted.
            earlier_ids = {finding.id for finding in findings}
        for group, mornings in zip(losses, stated, strict=True):
            day = (morning.seen - planted["first_night"]) / DAY_S
            if day < 0:
                continue
            about = [find for find in findings if is_about(find, group, planted["first_night"], morning)]
            mornings.append((day, max(map(probability_of, about), default=0.0)))
    if not losses:
        stored = [find for find in load_findings(morning.history, PANEL_SYSTEM) if find.id not in earlier_ids]
        return [
            Recording("panels", name, "mornings", (len(panel["mornings"]) - 1.0,)),
            *(false_message("panels", name, finding) for finding in stored),
        ]
    recordings: list[Recording] = []
    for group, mornings in zip(losses, stated, strict=True):
        days, probabilities = rising(mornings)
        share = lost_share(panel, group, planted["first_night"])
        recordings.append(Recording("panels", name, "loss", days, probabilities, share, mornings[-1][0]))
    return recordings


def is_about(finding: Finding, group: dict[str, Any], first_night: int, morning: Morning) -> bool:
    """Whether a finding is that of a planted group of losses."""
    if abs(finding.first_after - first_night) > _SAME_DATE_DAYS * DAY_S:
        return False
    names = [morning.names[identity(dict(m.parameters))] for m in finding.members if m.direction == "down"]
    planted = set(group["members"])
    return bool(names) and 2 * sum(name in planted for name in names) >= len(names)


def probability_of(finding: Finding) -> float:
    """From which threshold on a finding of this morning needs action."""
    if finding.state in SURE_STATES or finding.session_loss is not None:
        return 1.0
    return finding.probability_lasting or 0.0


def rising(mornings: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Days and probabilities of the mornings with a higher probability than all before."""
    days: list[float] = []
    probabilities: list[float] = []
    for day, probability in mornings:
        if probability > max(probabilities, default=0.0):
            days.append(day)
            probabilities.append(probability)
    return tuple(days), tuple(probabilities)


def lost_share(panel: dict[str, Any], group: dict[str, Any], first_night: int) -> float:
    """Performance of one file system that a planted group takes: all of its series count alike."""
    file_systems = [series["case"]["file_system"] for series in panel["series"]]
    lost = 0.0
    for series in panel["series"]:
        if series["id"] in group["members"]:
            before = [value for moment, value in series["points"] if moment < first_night]
            after = [value for moment, value in series["points"] if moment >= first_night]
            gain = float(np.median(after) / np.median(before[-30:]))
            lost += (1 - min(gain, 1.0)) / file_systems.count(series["case"]["file_system"])
    return lost


def false_message(source: str, name: str, finding: Finding) -> Recording:
    """A finding of noise, with the mornings that the update recorded."""
    mornings = finding.probable_mornings or ()
    return Recording(
        source,
        name,
        "false",
        tuple((morning.time - finding.first_after) / DAY_S for morning in mornings),
        tuple(morning.probability for morning in mornings),
    )


def record_noise(world: World, seed: int, out: Path, mornings: int) -> None:
    """Assess the mornings of a year of noise."""
    cases = make_cases()
    values = make_world(world, seed, BURN_IN + mornings, cases)
    earlier_ids: set[str] = set()
    assessed = 0
    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/history.db") as history:
        for night, of_night in enumerate(values):
            if not record_night(history, night, cases, of_night) or night < BURN_IN - 1:
                continue
            now = datetime.fromtimestamp(START + night * DAY_S + 4 * 3600, UTC)
            findings = update_findings(history, SYSTEM, now)
            if night < BURN_IN:
                earlier_ids = {finding.id for finding in findings}
            else:
                assessed += 1
        new = [finding for finding in load_findings(history, SYSTEM) if finding.id not in earlier_ids]
    name = f"{world} {seed}"
    append(out, [Recording(world, name, "mornings", (assessed,)), *(false_message(world, name, find) for find in new)])


def record_night(history: History, night: int, cases: Sequence[Case], values: Floats) -> bool:
    """Record the results of a night (MiB/s, NaN where nothing was measured); False if there are none."""
    results: list[Result] = []
    for case, value in zip(cases, values, strict=True):
        if math.isfinite(value):
            results.append(Result(case.operation, "bandwidth", "MiB/s", (float(value),), case.parameters))
    if not results:
        return False
    moment = START + night * DAY_S
    history.begin_session(SessionRecord(f"s{night}", SYSTEM, "nightly", "run", moment))
    output = Output("ior", None, "ok", None, tuple(results))
    history.record_runs(
        f"s{night}", [RunRecord("all", "compute", StackRecord("one"), f"night-{night}", moment, output)]
    )
    return True


def append(out: Path, recordings: Sequence[DataclassInstance]) -> None:
    """Add recordings to a file."""
    with out.open("a") as stream:
        for recording in recordings:
            stream.write(json.dumps(asdict(recording)) + "\n")


def load(paths: Sequence[Path]) -> list[Recording]:
    """All recordings of some files."""
    recordings: list[Recording] = []
    for path in paths:
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            recordings.append(Recording(**{**fields, **lists}))
    return recordings


def print_curves(recordings: Sequence[Recording], prices: AlarmPrices, losses_per_year: float) -> None:
    """The curve of each source of false messages, with the losses of the panels."""
    losses = [recording for recording in recordings if recording.kind == "loss"]
    late = [make_event(recording, losses_per_year / len(losses)) for recording in losses]
    share = np.median([recording.lost_share for recording in losses])
    print(f"{len(losses)} lasting losses, {losses_per_year:g} a year, of {share:.2f} of a file system (median)")
    for source in sorted({recording.source for recording in recordings}):
        mornings = 0.0
        false: list[Recording] = []
        for recording in recordings:
            if recording.source == source and recording.kind == "mornings":
                mornings += recording.mornings[0]
            elif recording.source == source and recording.kind == "false":
                false.append(recording)
        if not mornings:
            continue
        events = late + [make_event(recording, _YEAR_DAYS / mornings) for recording in false]
        print(f"\n{source}: {mornings:.0f} mornings, {len(false)} findings of noise")
        print_curve(cost_of_thresholds(events, THRESHOLDS, prices))


def make_event(recording: Recording, per_year: float) -> AlarmEvent:
    """A recording as an event of the statistics."""
    return AlarmEvent(
        recording.mornings,
        recording.probabilities,
        recording.kind == "loss",
        recording.lost_share,
        recording.end,
        per_year,
    )


def print_curve(curve: CostCurve) -> None:
    """One line per threshold, and what the events show."""
    for cost in curve.costs:
        mark = "" if cost.threshold in curve.alike else "more expensive beyond chance"
        if cost.threshold == curve.cheapest:
            mark = "cheapest"
        hours = f"late {cost.late:6.1f} h, false {cost.false:6.1f} h, {cost.total:6.1f} h"
        print(f"  {cost.threshold:4.2f}: {hours}  {mark}")
    print(f"  depend on the threshold: {curve.decisive_losses} losses, {curve.decisive_false} false messages")


def print_year(table: Path) -> None:
    """The stored findings of a real year, and how many of them each threshold would have reported."""
    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/all.db") as whole:
        import_files(whole, "tokio", [table], system=YEAR_SYSTEM)
        with History.open(f"{folder}/nightly.db") as history:
            replay(whole, history)
            findings = load_findings(history, YEAR_SYSTEM)
            print("\n".join(alarm_cost_lines(assess_alarm_cost(history, YEAR_SYSTEM))))
    highest: list[tuple[float, str]] = []
    for finding in findings:
        mornings = finding.probable_mornings or ()
        if mornings:
            highest.append((mornings[-1].probability, outcome_of(finding)))
    for threshold in THRESHOLDS:
        outcomes = Counter(outcome for probability, outcome in highest if probability >= threshold)
        print(f"  {threshold:.2f}: {sum(outcomes.values())} findings need action, {dict(outcomes)}")


def print_chart_costs(world: World, seeds: Sequence[int], falls: int, prices: AlarmPrices) -> None:
    """Cost over the smallest loss that the control chart reports; falls as those of the panels, planted one by one."""
    late: list[list[float]] = []
    false: list[list[float]] = []
    per_fall = LOSSES_PER_YEAR / (falls * len(seeds))
    for seed in seeds:
        cases = make_cases()
        logs = np.log(make_world(world, seed, BURN_IN + _YEAR_DAYS, cases))
        groups = [case.file_system for case in cases]
        # Each session of a year in which something became unusual is a message.
        begun = np.stack([messages_of_chart(logs, groups, smallest) for smallest in SMALLEST_LOSSES], axis=1)
        false += list((begun[BURN_IN:] > 0) * prices.false_message / len(seeds))
        stream = np.random.default_rng([seed, 66])
        for _ in range(falls):
            delays, lost = delays_of_fall(logs, groups, begun, stream)
            late.append([per_fall * lost_user_hours(lost, day, prices.half_speed_day) for day in delays])
        print(f"{world} {seed}: {(begun[BURN_IN:] > 0).sum(axis=0)} messages of noise", flush=True)
    empty_late, empty_false = np.zeros((len(false), len(SMALLEST_LOSSES))), np.zeros((len(late), len(SMALLEST_LOSSES)))
    all_late = np.concatenate([np.asarray(late), empty_late])
    all_false = np.concatenate([empty_false, np.asarray(false)])
    print_curve(curve_of_costs(SMALLEST_LOSSES, all_late, all_false))


def messages_of_chart(logs: Floats, groups: Sequence[str], smallest_loss: float) -> Floats:
    """Number of series and groups that became unusual in each night, shape (nights,)."""
    series: list[PanelSeries] = []
    nights = np.arange(len(logs))
    for column in logs.T:
        is_measured = np.isfinite(column)
        series.append(PanelSeries(nights[is_measured] * float(DAY_S), column[is_measured], {}, ()))
    report = chart_losses(series, groups, smallest_loss)
    begun = np.zeros(len(logs))
    begun[np.rint(report.starts / DAY_S).astype(int)] = report.begun
    return begun


def delays_of_fall(
    logs: Floats, groups: Sequence[str], begun: Floats, stream: np.random.Generator
) -> tuple[list[int], float]:
    """Nights until the chart reports a fall, for each smallest loss, and the share of a file system that is lost.

    The fall begins on any night and stays. It is reported when something is unusual that is not so without it.
    """
    file_system = str(stream.choice(sorted(set(groups))))
    members = np.flatnonzero([group == file_system for group in groups])
    # All series of the file system, half of them, or one.
    affected = stream.permutation(members)[: stream.choice([len(members), len(members) // 2, 1])]
    factor = math.exp(stream.uniform(math.log(0.25), math.log(0.93)))
    night = int(stream.integers(BURN_IN, len(logs) - _SURE_SESSIONS))
    fallen = logs[: night + _SURE_SESSIONS].copy()
    fallen[night:, affected] += math.log(factor)
    delays: list[int] = []
    for column, smallest in enumerate(SMALLEST_LOSSES):
        more = messages_of_chart(fallen, groups, smallest)[night:] > begun[night : night + _SURE_SESSIONS, column]
        delays.append(int(np.argmax(more)) if more.any() else _SURE_SESSIONS)
    return delays, (1 - factor) * len(affected) / len(members)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    panels = commands.add_parser("panels")
    panels.add_argument("folder")
    panels.add_argument("out", type=Path)
    panels.add_argument("first", type=int, nargs="?", default=0)
    panels.add_argument("last", type=int, nargs="?", default=1000)
    noise = commands.add_parser("noise")
    noise.add_argument("world")
    noise.add_argument("seed", type=int)
    noise.add_argument("out", type=Path)
    noise.add_argument("mornings", type=int, nargs="?", default=_YEAR_DAYS)
    curve = commands.add_parser("curve")
    curve.add_argument("recordings", type=Path, nargs="+")
    curve.add_argument("--losses", type=float, default=LOSSES_PER_YEAR)
    year = commands.add_parser("year")
    year.add_argument("table", type=Path)
    chart = commands.add_parser("chart")
    chart.add_argument("world")
    chart.add_argument("seeds", type=lambda text: [int(seed) for seed in text.split(",")])
    chart.add_argument("falls", type=int, nargs="?", default=30)
    for command in (curve, chart):
        command.add_argument("--day", type=float, default=Prices().half_speed_day_hours)
        command.add_argument("--message", type=float, default=Prices().false_message_minutes)
    return parser


if __name__ == "__main__":
    given = arguments().parse_args()
    if given.command == "panels":
        where = unpacked("panels") if given.folder == "shown" else Path(given.folder)
        record_panels(where, given.out, given.first, given.last)
    elif given.command == "noise":
        record_noise(given.world, given.seed, given.out, given.mornings)
    elif given.command == "year":
        print_year(given.table)
    else:
        asked = AlarmPrices(given.day, given.message / 60)
        if given.command == "curve":
            print_curves(load(given.recordings), asked, given.losses)
        else:
            print_chart_costs(given.world, given.seeds, given.falls, asked)
