"""Status page: a row per system, cards of findings, problems, first sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from iowatch.core import RunProblem
from iowatch.findings import Finding, HistoryExtent, find_slow_from_start, history_extent
from iowatch.output.dashboard import cards, data, first_session, levels
from iowatch.output.dashboard.pages import coverage, overview, where
from iowatch.output.dashboard.pages import finding as finding_page
from iowatch.output.text.changes import format_percent
from iowatch.output.text.findings import finding_day, remaining_change_lines
from iowatch.output.text.problems import lacking_run_sections
from iowatch.output.text.sessions import describe_newest_session
from iowatch.output.text.slow_from_start import slow_series_lines
from iowatch.output.text.verdict import PUBLISHED_TITLE

_STRIP_SESSIONS = 30
# To keep the page small: pictures of the largest findings only, and this many cards of a group.
_MAX_PICTURES = 3
_MAX_CARDS = 12


@dataclass(frozen=True)
class ProblemGroup:
    """Runs of one stack that failed, or have missing results, for one reason.

    Attributes:
        stack: with its partition, if the system has several.
    """

    stack: str
    reason: str
    runs: Sequence[str]


@dataclass(frozen=True, eq=False)
class SystemStatus:
    """One row of the status page.

    Attributes:
        entry: the newest session; None without one.
        strip: the newest sessions as cells.
        outcomes: number of series by their outcome in the newest session (`overview.SERIES_OUTCOMES`).
        worst: the finding with the largest loss about which nobody has decided.
        trends: number of series that drift.
        slow_parts: sentences about targets and nodes that are slower than the others.
        slow_from_start: sentences about series that are far slower than their siblings since their first session.
        due: time (epoch s) from which the next session is overdue, or None.
    """

    machine: data.SystemEntry
    entry: data.SessionEntry | None
    strip: Markup
    outcomes: Mapping[str, int]
    worst: Finding | None
    extent: HistoryExtent
    trends: int
    slow_parts: Sequence[str]
    slow_from_start: Sequence[str]
    running: bool
    overdue: bool
    due: int | None

    @property
    def session_page(self) -> str | None:
        """Path of the page of the newest session."""
        newest = self.machine.newest_session
        return None if newest is None else data.session_page_path(newest)

    @property
    def report(self) -> str | None:
        """What the results of the newest session show together, in one line."""
        newest = self.machine.newest_session
        if newest is None or not self.extent.is_assessed:
            return None
        report = newest.facts.report
        return None if report is None else describe_newest_session(report, self.machine.findings)

    @property
    def worst_text(self) -> str:
        """`−46 % (×0.54) since 8 Nov 2026, 4 series`."""
        if self.worst is None:
            return ""
        group = self.worst.groups[0]
        return f"{format_percent(group.size)} since {finding_day(self.worst)}, {group.explanation.changed} series"

    @cached_property
    def problems(self) -> Mapping[str, Sequence[ProblemGroup]]:
        """Problems of runs by title, without titles that have none."""
        if self.entry is None:
            return {}
        # A running session may still deliver missing results.
        coverage_of_session = self.entry.coverage
        sections = lacking_run_sections(
            coverage_of_session.failed, coverage_of_session.missing, may_still_arrive=self.running
        )
        with_partition = self.entry.has_several_partitions
        return {section.title: _group_problems(section.problems, with_partition) for section in sections}

    @property
    def is_incomplete(self) -> bool:
        """Whether the newest session has ended without all that was expected of it."""
        return self.entry is not None and not self.entry.is_complete and not self.running

    @property
    def has_problem(self) -> bool:
        """Whether files of the system or its newest session need attention."""
        if self.machine.faults or self.problems or self.is_incomplete:
            return True
        return self.entry is not None and bool(self.entry.problems)


def _group_problems(problems: Sequence[RunProblem], with_partition: bool) -> list[ProblemGroup]:
    """Problems by stack and reason, in order of the first run of each group.

    Args:
        with_partition: whether the system has several partitions, each of which is a group then.
    """
    runs_of_group: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        stack = f"{problem.stack} on {problem.partition}" if with_partition else problem.stack
        runs_of_group.setdefault((stack, problem.reason), []).append(problem.run)
    return [ProblemGroup(stack, reason, runs) for (stack, reason), runs in runs_of_group.items()]


def publish_status_page(site: data.SiteBuild) -> None:
    """Write `index.html`."""
    machines = sorted(site.catalogue.machines, key=lambda machine: _urgency_key(machine, site.now))
    systems = [_system_status(site, machine) for machine in machines]
    groups = cards.status_cards(machines)
    running = [status for status in systems if status.running]
    overdue = [status for status in systems if status.overdue]
    incomplete = [status for status in systems if status.is_incomplete]
    newest_starts = [machine.newest_session.started_at for machine in machines if machine.newest_session]
    site.write_page(
        "index.html",
        "status.html",
        systems=systems,
        groups=groups,
        titles=cards.GROUPS,
        most=_MAX_CARDS,
        pictures=_pictures_of_largest(site, groups),
        newest=max(newest_starts, default=None),
        sessions=_STRIP_SESSIONS,
        incomplete=len(incomplete),
        running=len(running),
        overdue=len(overdue),
        remaining=_remaining_changes(machines),
        moved=_suspicions(machines),
        first=_first_sessions(site, systems),
        published_title=PUBLISHED_TITLE,
    )


def _pictures_of_largest(site: data.SiteBuild, groups: Mapping[str, Sequence[cards.FindingCard]]) -> dict[str, Markup]:
    """Pictures of the first cards, by the id of their finding."""
    all_cards: list[cards.FindingCard] = []
    for name in ("new", "waiting", "improvements"):
        all_cards += groups.get(name, ())
    pictures: dict[str, Markup] = {}
    for card in all_cards[:_MAX_PICTURES]:
        pictures[card.finding.id] = finding_page.small_figure(site, card.finding, card.machine)
    return pictures


def _remaining_changes(machines: Sequence[data.SystemEntry]) -> list[str]:
    """Each change that remains after its finding was closed, as a line of text."""
    lines: list[str] = []
    for machine in machines:
        lines += remaining_change_lines(machine.findings)
    return lines


@dataclass(frozen=True)
class SystemSuspicions:
    """Series of a system that differ in the newest session and are in no finding."""

    machine: data.SystemEntry
    series: Sequence[levels.SuspectedSeries]


def _suspicions(machines: Sequence[data.SystemEntry]) -> list[SystemSuspicions]:
    """The systems with such series."""
    systems = [SystemSuspicions(machine, levels.find_suspected_series(machine)) for machine in machines]
    return [system for system in systems if system.series]


def _first_sessions(site: data.SiteBuild, systems: Sequence[SystemStatus]) -> list[first_session.FirstSession]:
    """What the first sessions of each system show, whose history is too short for findings."""
    summaries: list[first_session.FirstSession] = []
    for status in systems:
        if status.machine.newest_session is not None and not status.extent.is_assessed:
            summaries.append(first_session.summarise_first_session(site, status.machine, status.extent))
    return summaries


PAGE = data.Page("index.html", "Status", 1, publish_status_page)


def _urgency_key(machine: data.SystemEntry, now: int) -> tuple[int, int, float, str]:
    """Sort key: systems without sessions first, the longest first; then those with problems, then the largest loss."""
    losses = [finding.lost_performance for finding in machine.findings if finding.needs_action]
    loss = max(losses, default=0.0)
    missed = data.missed_since_newest(machine, now)
    return _urgency_rank(machine, loss, missed), -missed, -loss, machine.name


def _urgency_rank(machine: data.SystemEntry, loss: float, missed: int) -> int:
    """0 if a session is overdue, 1 for a loss or an invalid file, 2 for a session with problems, 3 for a suspected
    finding, else 4.

    Of a system that is not measured nothing is known, however good its last session was.
    """
    if missed:
        return 0
    if loss > 0 or machine.faults:
        return 1
    newest = machine.newest_session
    is_incomplete = newest is not None and (newest.status != "ok" or bool(newest.facts.problems))
    if is_incomplete:
        return 2
    if any(finding.state == "suspected" for finding in machine.findings):
        return 3
    return 4


def _system_status(site: data.SiteBuild, machine: data.SystemEntry) -> SystemStatus:
    newest = machine.newest_session
    entry = None
    if newest is not None:
        runs = site.history.runs(newest.uuid)
        received = set(site.history.received(newest.uuid))
        entry = data.session_entry(site.history, newest, runs, received)
    counts = coverage.count_coverage(site, machine)
    # An acknowledged loss has a decision; it is in a list of its own.
    undecided_losses = [finding for finding in machine.findings if finding.is_loss and finding.needs_action]
    return SystemStatus(
        machine=machine,
        entry=entry,
        strip=coverage.coverage_strip(counts.totals, counts, _STRIP_SESSIONS),
        outcomes=Counter(row.outcome for row in overview.series_rows(site, machine)),
        worst=max(undecided_losses, key=lambda finding: finding.lost_performance, default=None),
        extent=history_extent(site.history, [machine.name]),
        trends=len(levels.system_trends(machine)),
        slow_parts=where.slow_part_sentences(where.slow_parts_of(site, machine), machine),
        slow_from_start=slow_series_lines(find_slow_from_start(site.history, [machine.name])),
        running=data.is_session_running(machine, site.now),
        overdue=data.is_overdue(machine, site.now),
        due=data.overdue_after_s(machine),
    )
