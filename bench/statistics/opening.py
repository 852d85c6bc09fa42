"""Cost of a system-year over the rule by which findings are opened, on panels and on real years.

    python bench/statistics/opening.py panels FOLDER OUT [FIRST LAST]
        record what the mornings of the panels state (FOLDER as of cost.py)
    python bench/statistics/opening.py year TABLE OUT
        record the mornings of a year of NERSC/tokio-abcutils (summaries/*.csv.gz)
    python bench/statistics/opening.py curve OUT… [--day HOURS] [--message MINUTES] [--losses PER_YEAR]
        the cost of a year, and how many lasting events are open by the mornings 2, 4, 7 and 10, over the rules

An event of the newest sessions is opened from a probability to last and a number of sessions on; changes of single
series open a finding from a number of observations on. Recorded is all that these rules use, so each rule is applied to
the same mornings. What an opened finding changes on later mornings is not: it stays for a week when it is not detected,
where a suspected one is dropped at once. OUT has one JSON document per line, and is appended to.

Two sites are compared: one that acts on the default threshold or an open finding, whichever is first (exit code 1), and
one that acts on open findings alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

# For `tests`, before the directory of this file, which holds `cost` and `panels`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cost import LOSSES_PER_YEAR, append, is_about, lost_share
from losses import SYSTEM as YEAR_SYSTEM
from losses import replay
from panels import PlantedPanel, panels_with_losses_or_none
from tests.datasets import unpacked

from iowatch.core import DAY_S
from iowatch.core.settings import Prices, Thresholds
from iowatch.findings import Finding, headline_series, load_findings
from iowatch.findings.alarm_cost import SeriesShares, outcome_of
from iowatch.session.imports import import_files
from iowatch.statistics.alarm_cost import AlarmPrices, curve_of_costs, lost_user_hours
from iowatch.store import History

_YEAR_DAYS = 365
# Parts of the rules that are compared.
PROBABILITIES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95)
SESSIONS = (1, 2, 3, 4)
OBSERVATIONS = (5, 7, 10)
OPEN_BY = (2, 4, 7, 10)
# Limits of single series and of the newest sessions against them, as in `iowatch.findings.finding`.
_SURE_ALONE, _SURE_TOGETHER, _LEAST_SURE = 0.98, 0.998, 0.1


@dataclass(frozen=True)
class Rule:
    """From when on a finding is opened.

    Attributes:
        probability, sessions: least probability to last, and number of sessions, of an event of the newest sessions.
        observations: least number of a changed single series.
    """

    probability: float
    sessions: int
    observations: int

    def __str__(self) -> str:
        return f"{self.probability:.2f}, {self.sessions} sessions, {self.observations} obs."


IN_USE = Rule(0.87, 2, 7)


@dataclass(frozen=True)
class SystemYear:
    """What the events of a source are converted to a year by.

    Attributes:
        mornings: of the source.
        losses_per_year: lasting losses of a system, for planted ones.
    """

    mornings: float
    prices: AlarmPrices
    losses_per_year: float


@dataclass(frozen=True)
class Statement:
    """What one morning states about a finding.

    Attributes:
        day: since the first run of the event.
        probability, sessions: of the event of the newest sessions; None, 0 where these do not show it.
        confirmed: confidence and observations of each confirmed change of a single series.
        is_alarm: whether an unusual loss of the newest session, or its probability, needs action.
        is_held: whether a moving level or a new load explains it, so that it is not opened.
        state: of the finding with the rule in use.
    """

    day: float
    probability: float | None
    sessions: int
    confirmed: tuple[tuple[float, int], ...]
    is_alarm: bool
    is_held: bool
    state: str

    def is_open(self, rule: Rule) -> bool:
        """Whether a rule opens the finding."""
        if self.is_held:
            return False
        if self.probability is not None:
            is_lasting = self.probability >= rule.probability and self.sessions >= rule.sessions
            if is_lasting or self.probability < _LEAST_SURE:
                return is_lasting
        if not any(number >= rule.observations for _, number in self.confirmed):
            return False
        joint = 1 - math.prod(1 - confidence for confidence, _ in self.confirmed)
        return joint >= (_SURE_ALONE if len(self.confirmed) == 1 else _SURE_TOGETHER)


@dataclass(frozen=True)
class Recording:
    """The mornings of one event, or the number of mornings of one source.

    Attributes:
        kind: `loss` or `gain` that lasts, `false` of what does not, `mornings` of their number.
        end: days since the first run until the event costs nothing more, or the number of mornings.
    """

    source: str
    name: str
    kind: str
    end: float
    lost_share: float = 0.0
    statements: tuple[Statement, ...] = ()

    def day_of_message(self, rule: Rule, with_alarms: bool) -> float | None:
        """Day of the first morning with a message; None without one."""
        for statement in self.statements:
            if statement.is_open(rule) or (with_alarms and statement.is_alarm):
                return statement.day
        return None


def statement_of(finding: Finding, now_s: float, since_s: float) -> Statement:
    """What a morning (epoch seconds) states about a finding whose event began at a time (epoch seconds)."""
    outlook = finding.outlook
    is_current = outlook is not None and outlook.is_current
    confirmed = [(member.confidence, member.observations) for member in finding.members if not member.suspected]
    has_new_load = outlook is not None and is_current and outlook.new_load is not None
    is_alarm = finding.session_loss is not None
    is_alarm |= (finding.probability_lasting or 0.0) >= Thresholds().suspected_probability
    return Statement(
        day=(now_s - since_s) / DAY_S,
        probability=finding.probability_lasting,
        sessions=(outlook.observed or outlook.sessions) if outlook is not None and is_current else 0,
        confirmed=tuple(confirmed),
        is_alarm=is_alarm and finding.moving_level is None,
        is_held=finding.moving_level is not None or has_new_load,
        state=finding.state,
    )


def record_panels(folder: Path, out: Path, first: int, last: int) -> None:
    """Assess the mornings of panels, those of lasting losses and those without any event."""
    for planted_panel in panels_with_losses_or_none(folder, first, last):
        append(out, assess_panel(planted_panel))


def assess_panel(planted_panel: PlantedPanel) -> list[Recording]:
    """What the mornings of a panel state about its planted losses, or without an event about its noise."""
    name, panel, planted = planted_panel.name, planted_panel.panel, planted_panel.planted
    losses = planted_panel.losses
    of_losses: list[list[Statement]] = [[] for _ in losses]
    of_findings: dict[str, list[Statement]] = defaultdict(list)
    earlier_ids: set[str] = set()
    for number, morning in enumerate(planted_panel.mornings()):
        findings = morning.findings()
        if number == 0:
            # Findings of earlier mornings are not counted.
            earlier_ids = {finding.id for finding in findings}
        for finding in findings:
            if finding.id not in earlier_ids:
                of_findings[finding.id].append(statement_of(finding, morning.seen, finding.first_after))
        for group, statements in zip(losses, of_losses, strict=True):
            if morning.seen < planted["first_night"]:
                continue
            for finding in findings:
                if is_about(finding, group, planted["first_night"], morning):
                    statements.append(statement_of(finding, morning.seen, planted["first_night"]))
    recordings: list[Recording] = []
    if not losses:
        recordings.append(Recording("panels", name, "mornings", len(panel["mornings"]) - 1))
        for identity, statements in of_findings.items():
            recordings.append(Recording("panels", identity, "false", 0.0, statements=tuple(statements)))
        return recordings
    for group, statements in zip(losses, of_losses, strict=True):
        share = lost_share(panel, group, planted["first_night"])
        end = (morning.seen - planted["first_night"]) / DAY_S
        recordings.append(Recording("panels", name, "loss", end, share, tuple(statements)))
    return recordings


def record_year(table: Path, out: Path) -> None:
    """Replay a year; the outcomes are those of its last morning."""
    statements: dict[str, list[Statement]] = defaultdict(list)
    mornings = last_session = 0

    def see_morning(findings: Sequence[Finding], last: int) -> None:
        nonlocal mornings, last_session
        mornings += 1
        last_session = last
        for finding in findings:
            # Of patterns no rule of these decides.
            if finding.pattern is None and finding.state in ("suspected", "open"):
                statements[finding.id].append(statement_of(finding, last, finding.first_after))

    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/all.db") as whole:
        import_files(whole, "tokio", [table], system=YEAR_SYSTEM)
        with History.open(f"{folder}/nightly.db") as history:
            replay(whole, history, see_morning)
            findings = load_findings(history, YEAR_SYSTEM)
            shares = SeriesShares(headline_series(history, YEAR_SYSTEM))
    source = table.name.split("-")[0]
    recordings = [Recording(source, source, "mornings", mornings)]
    for finding in findings:
        outcome = outcome_of(finding)
        if finding.pattern is not None or outcome == "undecided":
            continue
        kind = "false"
        if outcome == "lasting":
            kind = "loss" if finding.is_loss else "gain"
        end_s = last_session
        if finding.resolution is not None and finding.resolution.since is not None:
            end_s = finding.resolution.since
        end = max(0.0, (end_s - finding.first_after) / DAY_S)
        share = shares.lost_share(finding)
        recordings.append(Recording(source, finding.id, kind, end, share, tuple(statements[finding.id])))
    append(out, recordings)


def load(paths: Sequence[Path]) -> list[Recording]:
    """All recordings of some files."""
    recordings: list[Recording] = []
    for path in paths:
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            statements: list[Statement] = []
            for stated in fields.pop("statements"):
                confirmed = tuple((confidence, number) for confidence, number in stated.pop("confirmed"))
                statements.append(Statement(**stated, confirmed=confirmed))
            recordings.append(Recording(**fields, statements=tuple(statements)))
    return recordings


def print_curves(recordings: Sequence[Recording], prices: AlarmPrices, losses_per_year: float) -> None:
    """Costs of each rule by source, and how many lasting events it has opened by which morning."""
    for source in sorted({recording.source for recording in recordings}):
        of_source = [recording for recording in recordings if recording.source == source]
        mornings = sum(recording.end for recording in of_source if recording.kind == "mornings")
        kinds = Counter(recording.kind for recording in of_source)
        print(
            f"{source}: {mornings:.0f} mornings, {kinds['loss']} losses and {kinds['gain']} gains that last,", end=" "
        )
        print(f"{kinds['false']} findings of what does not")
        print(f"  {'rule':28}{'threshold or open':>22}{'open alone':>22}   open by morning {OPEN_BY}  false ones open")
        year = SystemYear(mornings, prices, losses_per_year)
        for rule in rules():
            print_rule(of_source, rule, year)
        print_differences(of_source, year)


def rules() -> list[Rule]:
    """The rules of the curve: each part is varied with the others as in use."""
    tried: list[Rule] = []
    for sessions in SESSIONS:
        for probability in PROBABILITIES:
            tried.append(replace(IN_USE, probability=probability, sessions=sessions))
    for observations in OBSERVATIONS:
        if observations != IN_USE.observations:
            tried.append(replace(IN_USE, observations=observations))
    return tried


def print_rule(recordings: Sequence[Recording], rule: Rule, year: SystemYear) -> None:
    """One line of the table."""
    columns: list[str] = []
    for with_alarms in (True, False):
        costs = event_costs(recordings, rule, with_alarms, year)
        columns.append(f"{costs[0].sum():6.1f} +{costs[1].sum():5.1f} ={costs.sum():6.1f}")
    lasting = [recording for recording in recordings if recording.kind in ("loss", "gain")]
    opened: list[int] = []
    for morning in OPEN_BY:
        days = [recording.day_of_message(rule, False) for recording in lasting]
        # The first morning is the one after the first run.
        opened.append(sum(day is not None and day < morning - 0.5 for day in days))
    false = [recording for recording in recordings if recording.kind == "false"]
    false_open = sum(recording.day_of_message(rule, False) is not None for recording in false)
    mark = "  in use" if rule == IN_USE else ""
    print(f"  {rule!s:28}{columns[0]:>22}{columns[1]:>22}   {opened} of {len(lasting)}  {false_open}{mark}")


def event_costs(recordings: Sequence[Recording], rule: Rule, with_alarms: bool, year: SystemYear) -> np.ndarray:
    """Late and false hours per year of each event, shape (2, events)."""
    losses = sum(recording.kind == "loss" for recording in recordings)
    costs: list[tuple[float, float]] = []
    for recording in recordings:
        if recording.kind == "mornings":
            continue
        day = recording.day_of_message(rule, with_alarms)
        is_lasting = recording.kind != "false"
        # A planted loss is as rare as losses are; those of a real year are counted as they were.
        per_year = _YEAR_DAYS / year.mornings
        if recording.source == "panels" and is_lasting:
            per_year = year.losses_per_year / losses
        late = false = 0.0
        if is_lasting:
            delay = recording.end if day is None else min(max(0.0, day), recording.end)
            late = per_year * lost_user_hours(recording.lost_share, delay, year.prices.half_speed_day)
        elif day is not None:
            false = per_year * year.prices.false_message
        costs.append((late, false))
    return np.array(costs).T


def print_differences(recordings: Sequence[Recording], year: SystemYear) -> None:
    """Which rules are not more expensive than the cheapest one beyond chance."""
    tried = rules()
    for with_alarms, name in ((True, "threshold or open"), (False, "open alone")):
        by_rule = [event_costs(recordings, rule, with_alarms, year) for rule in tried]
        late = np.array([costs[0] for costs in by_rule]).T
        false = np.array([costs[1] for costs in by_rule]).T
        curve = curve_of_costs(range(len(tried)), late, false)
        alike = [tried[int(number)] for number in curve.alike]
        in_use = "is" if IN_USE in alike else "is not"
        print(f"  {name}: cheapest {tried[int(curve.cheapest)]}, {len(alike)} of {len(tried)} alike;", end=" ")
        print(f"the rule in use {in_use} among them")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    panels = commands.add_parser("panels")
    panels.add_argument("folder")
    panels.add_argument("out", type=Path)
    panels.add_argument("first", type=int, nargs="?", default=0)
    panels.add_argument("last", type=int, nargs="?", default=1000)
    year = commands.add_parser("year")
    year.add_argument("table", type=Path)
    year.add_argument("out", type=Path)
    curve = commands.add_parser("curve")
    curve.add_argument("recordings", type=Path, nargs="+")
    curve.add_argument("--losses", type=float, default=LOSSES_PER_YEAR)
    curve.add_argument("--day", type=float, default=Prices().half_speed_day_hours)
    curve.add_argument("--message", type=float, default=Prices().false_message_minutes)
    return parser


if __name__ == "__main__":
    given = arguments().parse_args()
    if given.command == "panels":
        where = unpacked("panels") if given.folder == "shown" else Path(given.folder)
        record_panels(where, given.out, given.first, given.last)
    elif given.command == "year":
        record_year(given.table, given.out)
    else:
        print_curves(load(given.recordings), AlarmPrices(given.day, given.message / 60), given.losses)
