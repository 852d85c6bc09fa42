"""Status page: a row per system, cards of findings, problems, first sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from iowatch.core import RunProblem
from iowatch.findings import Finding, HistoryExtent, history_extent
from iowatch.output.dashboard import cards, data, first_session, levels
from iowatch.output.dashboard.pages import coverage, finding, overview
from iowatch.output.text.changes import format_percent
from iowatch.output.text.findings import finding_day, remaining_change_lines
from iowatch.output.text.problems import lacking_run_sections
from iowatch.output.text.sessions import describe_newest_session

_STRIP_SESSIONS = 30
# To keep the page small: pictures of the largest findings only, and this many cards of a group.
_MAX_PICTURES = 3
_MAX_CARDS = 12
GroupedProblems = Mapping[str, Mapping[tuple[str, str], Sequence[str]]]


@dataclass(frozen=True, eq=False)
class SystemStatus:
    """One row of the status page.

    Attributes:
        entry: the newest session; None without one.
        strip: the newest sessions as cells.
        outcomes: number of series by their outcome in the newest session (`overview.SERIES_OUTCOMES`).
        worst: the undecided finding with the largest loss.
        trends: number of series that drift.
        due: time (epoch s) from which the next session is overdue, or None.
    """

    machine: data.SystemEntry
    entry: data.SessionEntry | None
    strip: Markup
    outcomes: Mapping[str, int]
    worst: Finding | None
    extent: HistoryExtent
    trends: int
    running: bool
    overdue: bool
    due: int | None

    @property
    def session_page(self) -> str | None:
        """Path of the page of the newest session."""
        return data.session_page_path(self.machine.newest_session) if self.machine.newest_session else None

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
    def problems(self) -> GroupedProblems:
        """Runs by title, and by stack and reason, in order of the first run."""
        if self.entry is None:
            return {}
        # A running session may still deliver missing results.
        session_coverage = self.entry.coverage
        found: dict[str, dict[tuple[str, str], list[str]]] = {}
        for section in lacking_run_sections(
            session_coverage.failed, session_coverage.missing, may_still_arrive=self.running
        ):
            _group_runs(found.setdefault(section.title, {}), section.problems)
        return found

    @property
    def has_problem(self) -> bool:
        """Whether files of the system or its newest session need attention."""
        entry = self.entry
        ended = entry is not None and (bool(entry.problems) or (not entry.is_complete and not self.running))
        return bool(self.machine.faults or self.problems) or ended


def _group_runs(groups: dict[tuple[str, str], list[str]], problems: Sequence[RunProblem]) -> None:
    for one in problems:
        groups.setdefault((one.stack, one.reason), []).append(one.run)


def publish_status_page(site: data.SiteBuild) -> None:
    """Write `index.html`."""
    machines = sorted(site.catalogue.machines, key=lambda machine: _urgency_key(machine, site.now))
    systems = [_system_status(site, machine) for machine in machines]
    groups = cards.status_cards(machines)
    shown = [card for name in ("new", "waiting", "improvements") for card in groups.get(name, ())][:_MAX_PICTURES]
    incomplete = 0
    for status in systems:
        if status.entry is not None and not status.entry.is_complete and not status.running:
            incomplete += 1
    site.write_page(
        "index.html",
        "status.html",
        systems=systems,
        groups=groups,
        titles=cards.GROUPS,
        most=_MAX_CARDS,
        pictures={card.finding.id: finding.small_figure(site, card.finding, card.machine) for card in shown},
        newest=max((m.newest_session.started_at for m in machines if m.newest_session), default=None),
        sessions=_STRIP_SESSIONS,
        incomplete=incomplete,
        running=sum(status.running for status in systems),
        overdue=sum(one.overdue for one in systems),
        remaining=[(m, text) for m in machines for text in remaining_change_lines(m.findings)],
        moved=[(m, found) for m in machines if (found := levels.find_suspected_series(m))],
        first=[first_session.summarise_first_session(site, one.machine, one.extent)
               for one in systems if one.machine.newest_session and not one.extent.is_assessed],
    )  # fmt: skip


PAGE = data.Page("index.html", "Status", 1, publish_status_page)


def _urgency_key(machine: data.SystemEntry, now: int) -> tuple[int, float, str]:
    """Sort key: systems with problems first, then the largest loss."""
    states = {f.state for f in machine.findings}
    loss = max((f.lost_performance for f in machine.findings if f.needs_action), default=0.0)
    newest = machine.newest_session
    incomplete = newest is not None and (newest.status != "ok" or bool(newest.facts.problems))
    is_pending = data.is_overdue(machine, now) or incomplete
    priorities = (loss > 0 or bool(machine.faults), is_pending, "suspected" in states)
    return next((rank for rank, applies in enumerate(priorities) if applies), len(priorities)), -loss, machine.name


def _system_status(site: data.SiteBuild, machine: data.SystemEntry) -> SystemStatus:
    newest, entry = machine.newest_session, None
    if newest is not None:
        runs, received = site.history.runs(newest.uuid), set(site.history.received(newest.uuid))
        entry = data.session_entry(site.history, newest, runs, received)
    counts = coverage.count_coverage(site, machine)
    undecided = [f for f in machine.findings if f.is_loss and (f.needs_action or f.state == "acknowledged")]
    return SystemStatus(
        machine=machine,
        entry=entry,
        strip=coverage.coverage_strip(counts.totals, counts, _STRIP_SESSIONS),
        outcomes=Counter(row.outcome for row in overview.series_rows(site, machine)),
        worst=max(undecided, key=lambda f: f.lost_performance, default=None),
        extent=history_extent(site.history, [machine.name]),
        trends=len(levels.system_trends(machine)),
        running=data.is_session_running(machine, site.now),
        overdue=data.is_overdue(machine, site.now),
        due=data.overdue_after_s(machine),
    )
