"""The status page with incomplete, missing and overdue sessions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from iowatch.findings import FindingState, finding_document, update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.data import (
    SystemEntry,
    evidence_sessions,
    is_overdue,
    missed_since_newest,
    overdue_after_s,
    session_entry,
)
from iowatch.output.dashboard.each_system import SystemSite, urgency_key
from iowatch.output.dashboard.pages.coverage import _count_missed_sessions
from iowatch.reference import reviews
from iowatch.store import FindingRow, History, RunRecord, SessionFacts, SessionRow, SessionStatus
from iowatch.store.records import Origin
from tests.builders import (
    build_expected_result,
    build_finding,
    build_result,
    build_run,
    build_session,
    build_session_row,
    build_system,
    build_system_entry,
    store_session,
)
from tests.conftest import ROOT
from tests.findings.conftest import STEP, RecordAndUpdate, record_and_update, root, slower_mpiio, update_time
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

__all__ = ["record_and_update", "root"]

DAY_S = 86400
LAST = 1_760_000_400  # 9 October 2025, 09:00:00 UTC
NAMES = ("mpiio", "posix", "hdf5")
Make = Callable[..., Path]


def _fill(
    history: History,
    system: str,
    ages: list[int],
    received: tuple[str, ...] = NAMES,
    end: SessionStatus | None = "ok",
    origin: Origin = "run",
) -> None:
    """Sessions `ages` days before the last; the newest one received only `received`, and its status is `end`."""
    for age in ages:
        begin, newest = LAST - age * DAY_S, age == ages[-1]
        session = build_session(f"{system}-{age:03d}", system=system, origin=origin, started_at=begin)
        wanted = [] if origin == "import" else NAMES
        history.begin_session(session, [build_expected_result(name) for name in wanted])
        runs: list[RunRecord] = []
        for name in received if newest else NAMES:
            result = build_result(case={"api": name, "ranks": 4})
            runs.append(build_run(result, name=name, fingerprint=f"{session.uuid}-{name}", started_at=begin + 60))
        history.record_runs(session.uuid, runs)
        if end is not None or not newest:
            history.end_session(session.uuid, (end or "ok") if newest else "ok", begin + 3600)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Build the site of all these systems as of some hours after the start of the last session."""
    place = tmp_path_factory.mktemp("mornings")
    daily = list(range(20, -1, -1))
    with History.open(str(place / "history.db")) as history:
        _fill(history, "quiet", daily)
        _fill(history, "dead", daily, received=(), end="incomplete")
        _fill(history, "busy", daily, received=("mpiio",), end=None)
        _fill(history, "stopped", [*range(30, 8, -1)])
        _fill(history, "paused", [*range(25, 13, -1), *range(8, -1, -1)])
        _fill(history, "weekly", [35, 28, 21, 14, 7])
        _fill(history, "imported", [400, 399], origin="import")
        update_findings(history, "quiet", datetime.fromtimestamp(LAST + 3600, UTC))

    pages = pages_named("index.html", "findings.html", "overview.html", "coverage.html")

    def build_at(hours: float) -> Path:
        site = place / "site"
        with History.open(str(place / "history.db")) as history:
            build_site(history, site, now=datetime.fromtimestamp(LAST + hours * 3600, UTC), pages=pages)
        return site

    return build_at


class _Shown(HTMLParser):
    """The text of a page without hidden elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.hidden: list[bool] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br", "img"):
            self.hidden.append("hidden" in dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self.hidden.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.hidden):
            self.words.append(data)


def shown(text: str) -> str:
    return " ".join("".join(_Shown(text).words).split())


def section(site: Path, system: str) -> str:
    """What the status page has about a system: its row, its problems, and its line at the end."""
    text = (site / "index.html").read_text(encoding="utf-8")
    (row,) = re.findall(rf'<tr data-system="{system}".*?</tr>', text, re.DOTALL)
    start = rf'<div class="system"[^>]*data-system="{system}"'
    problems = re.findall(rf'{start}.*?</div>\n(?=<div class="system"|</section>)', text, re.DOTALL)
    lines = re.findall(rf'<li data-system="{system}".*?</li>', text, re.DOTALL)
    return "\n".join([row, *problems, *lines])


def test_missing_session_is_reported_as_overdue(make: Make) -> None:
    """The last session of `stopped` was complete, nine days ago; its usual interval is one day."""
    found = section(make(10), "stopped")
    assert "stopped: no session since 2025-09-30 09:00 UTC" in shown(found)
    assert "complete" not in shown(found)
    assert "1 overdue" in shown((make(10) / "index.html").read_text(encoding="utf-8"))


@pytest.mark.slow_after(2)
def test_overdue_depends_on_the_usual_interval(make: Make) -> None:
    assert "overdue" not in shown(section(make(10), "weekly"))
    late = make(4 * 24)
    assert "weekly: no session since" in shown(section(late, "weekly"))
    # One box for the whole fleet, with all six systems that have sessions of their own.
    text = shown((late / "index.html").read_text(encoding="utf-8"))
    assert (text.count("Check the scheduler's jobs."), text.count(": no session since")) == (1, 6)
    assert "overdue" not in shown(section(make(27.3), "quiet"))
    assert "quiet: no session since" in shown(section(make(27.5), "quiet"))


def test_imported_results_are_never_overdue(make: Make) -> None:
    assert "verdue" not in shown(section(make(4 * 24), "imported"))


def test_session_without_results_is_not_green(make: Make) -> None:
    found = section(make(10), "dead")
    assert "incomplete 0 / 3" in shown(found)
    assert "Missing: mpiio, posix, hdf5: no write bandwidth" in shown(found)
    assert "state good" not in found


def test_results_of_a_running_session_are_not_missing(make: Make) -> None:
    early, late = (shown(section(make(hours), "busy")) for hours in (1, 48))
    assert "running 1 / 3" in early
    assert "Not received yet: posix, hdf5" in early
    assert "The session never ended." in late
    assert "Missing: posix, hdf5" in late


def test_systems_with_problems_are_listed_first(make: Make) -> None:
    text = (make(10) / "index.html").read_text(encoding="utf-8")
    order = re.findall(r'<tr data-system="(\w+)"', text)
    assert set(order[:3]) == {"dead", "busy", "stopped"}


def test_system_without_sessions_is_the_worst_and_not_green(make: Make) -> None:
    """After 600 days without a session of any: that of the longest time first, and no cell of the strip is full."""
    site = make(600 * 24)
    text = (site / "index.html").read_text(encoding="utf-8")
    order = re.findall(r'<tr data-system="(\w+)"', text)
    # `stopped` has missed nine more than the other daily systems; `weekly` ran every seventh day, `imported` never.
    assert order[0] == "stopped"
    assert order[-2:] == ["weekly", "imported"]
    row = section(site, "quiet")
    assert "0 sessions: 0 complete, 0 in part, 0 with none; 600 sessions missed" in row
    assert 'class="full"' not in row
    # The last results have their date.
    assert re.search(r"overdue\s*9 Oct 2025: ", shown(row))
    assert "3 / 3" not in shown(row)
    assert "complete" not in shown(row)
    index = cells((site / "coverage.html").read_text(encoding="utf-8"))
    assert next(row[5] for row in index if row and row[0].startswith("quiet")) == "600"
    assert next(row[5] for row in index if row and row[0].startswith("imported")) == "–"


def test_missed_sessions_are_counted_from_the_first_overdue_one_on() -> None:
    daily, weekly = system(*range(20, 0, -1)), system(28, 21, 14, 7)
    hour = 3600
    assert missed_since_newest(daily, 21 * DAY_S + 2 * hour) == 0
    # Overdue 26 hours after the end, at 03:00: one session. On the next days one more each.
    assert missed_since_newest(daily, 21 * DAY_S + 4 * hour) == 1
    assert missed_since_newest(daily, 22 * DAY_S + 4 * hour) == 2
    assert missed_since_newest(weekly, 42 * DAY_S) == 2
    assert missed_since_newest(replace(daily, facts=build_system(retired="replaced")), 700 * DAY_S) == 0


def test_worst_loss_without_a_decision_leaves_out_acknowledged_ones(
    record_and_update: RecordAndUpdate, history: History, root: Path, tmp_path: Path
) -> None:
    for name in ("dashboards", "reference/published"):
        (root / name).symlink_to(ROOT / name)
    end = STEP + timedelta(days=20)
    (finding,) = record_and_update(slower_mpiio(), end)
    texts: dict[FindingState, str] = {"open": r"−5\d % .* since 10 Feb 2025, 2 series", "acknowledged": "none"}
    for state, expected in texts.items():
        stored = replace(finding, state=state)
        history.save_findings([FindingRow(stored.id, "planted", 0, 1, stored.state, finding_document(stored))])
        build_site(history, tmp_path / "site", now=update_time(end), pages=pages_named("index.html"))
        page = (tmp_path / "site/index.html").read_text(encoding="utf-8")
        (row,) = re.findall(r'<tr data-system="planted".*?</tr>', page, re.DOTALL)
        assert re.fullmatch(expected, shown(re.findall(r"<td>(.*?)</td>", row, re.DOTALL)[-1]))


@pytest.mark.browser
def test_outdated_page_shows_overdue_in_the_browser(make: Make, browser: Browser) -> None:
    """Built in time and opened much later: the clock of the browser decides."""
    site = make(1)
    assert "overdue" not in shown(section(site, "quiet"))
    browser.open(site / "index.html")
    row, problems = (f"return document.querySelector('{kind}[data-due][data-system=quiet]').innerText"
                     for kind in ("tr", "li"))  # fmt: skip
    assert "overdue" in browser.run(row)
    assert "complete" not in browser.run(row)
    assert "quiet: no session since 2025-10-09 09:00 UTC" in browser.run(problems)
    assert browser.run("return document.querySelector('.lead').innerText").count("6 overdue") == 1
    assert browser.messages() == []


def cells(text: str) -> list[list[str]]:
    """The text of each row of a page's tables."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    return [[shown(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]


def test_coverage_shows_days_without_a_session(make: Make) -> None:
    """`paused` ran every day except five; these days need a row to be visible."""
    site = make(10)
    text = (site / "coverage/paused.html").read_text(encoding="utf-8")
    rows = cells(text)
    at = next(n for n, row in enumerate(rows) if "5 sessions missed" in row)
    assert rows[at - 1][0].startswith("2025-10-01")
    assert rows[at + 1][0].startswith("2025-09-25")
    assert "21 sessions: 21 complete, 0 in part, 0 with none; 5 sessions missed" in text
    index = cells((site / "coverage.html").read_text(encoding="utf-8"))
    assert next(row[5] for row in index if row and row[0] == "paused") == "5"
    assert next(row[5] for row in index if row and row[0] == "weekly") == "0"


def test_coverage_is_complete_only_if_all_results_are_received(make: Make) -> None:
    site = make(10)
    rows = cells((site / "coverage/dead.html").read_text(encoding="utf-8"))
    states = [row[2] for row in rows if len(row) == 6]
    assert states == ["3 of 3 missing incomplete", *["complete"] * 20]
    stopped = cells((site / "coverage/stopped.html").read_text(encoding="utf-8"))
    # A session on each day from 1 to 9 October.
    assert ["since 2025-09-30 09:00", "–", "overdue 9 sessions missed", "–", "–", "–"] in stopped


def test_overview_colours_only_results_of_the_newest_session(make: Make) -> None:
    site = make(10)
    text = (site / "overview/dead.html").read_text(encoding="utf-8")
    assert re.findall(r'<td class="gain (\w+)"', text) == ["none"] * 3
    assert text.count("10 without data") == 3
    index = cells((site / "overview.html").read_text(encoding="utf-8"))
    assert next(row[1:6] for row in index if row and row[0] == "dead") == ["0", "3", "0", "0", "0"]
    assert next(row[1:6] for row in index if row and row[0] == "quiet") == ["0", "0", "0", "3", "0"]


def test_few_sessions_have_no_gain(make: Make) -> None:
    """Five sessions of `weekly` and no reference: there is no accepted level, and 100 % would be wrong."""
    text = (make(10) / "overview/weekly.html").read_text(encoding="utf-8")
    assert re.findall(r'<td class="gain (\w+)"[^>]*>([^<]*)', text) == [("none", "–")] * 3
    assert len(re.findall(r'<rect class="unassessed"', text)) == 15


def test_slow_loss_is_a_finding_on_the_pages_and_no_trend_beside_it(shapes_site: Path) -> None:
    """The drift of `shapes.values` loses more than the 10 % of the setting `slow_loss`."""
    from iowatch.findings import find_trends, load_findings

    with History.open(str(shapes_site.parent / "history.db")) as history:
        findings = load_findings(history, "archer")
        assert len(find_trends(history, ["archer"])) == 1
        assert find_trends(history, ["archer"], findings) == []
    (drift,) = [finding for finding in findings if finding.pattern == "drift"]
    text = (shapes_site / "findings.html").read_text(encoding="utf-8")
    assert '<h2 id="trends">' not in text
    assert f"finding/{drift.id}.html" in text
    page = shown((shapes_site / "finding" / f"{drift.id}.html").read_text(encoding="utf-8"))
    assert f"slow loss of {100 * (1 - drift.size):.0f} %" in page


def system(*days: float, origin: Origin = "run", is_running: bool = False) -> SystemEntry:
    """A system with sessions of an hour that began on these days, the newest first."""
    sessions: list[SessionRow] = []
    for number, day in enumerate(days):
        duration_s = None if is_running else 3600
        sessions.append(build_session_row(number, origin=origin, started_at=int(day * DAY_S), duration_s=duration_s))
    return build_system_entry(sessions=sessions)


@pytest.mark.parametrize(
    ("days", "hours"),
    [
        # At least 26 hours after the end, for any interval.
        ([9.5, 9, 8.5, 8], 1 + 26),
        ([9], 1 + 26),
        # The usual interval and a tenth: once a week, and on working days with their weekends.
        ([28, 21, 14, 7], 1 + 1.1 * 7 * 24),
        ([14, 11, 10, 9, 8, 7, 4, 3, 2, 1, 0], 1 + 1.1 * 3 * 24),
        # One outage of a daily system does not change its usual interval.
        ([*range(60, 40, -1), *range(20, 0, -1)], 1 + 1.1 * 24),
    ],
)
def test_session_is_overdue_after_the_usual_interval_and_a_tenth(days: list[float], hours: float) -> None:
    one = system(*days)
    moment = overdue_after_s(one)
    assert moment == pytest.approx(days[0] * DAY_S + hours * 3600, abs=1)
    assert not is_overdue(one, round(days[0] * DAY_S + hours * 3600) - 60)
    assert is_overdue(one, round(days[0] * DAY_S + hours * 3600) + 60)


def test_running_session_is_overdue_by_its_start() -> None:
    assert overdue_after_s(system(9, 8, is_running=True)) == 9 * DAY_S + 26 * 3600 + round(0.4 * 3600)


def test_retired_systems_and_imports_are_never_overdue() -> None:
    one = system(9, 8)
    assert overdue_after_s(one) is not None
    assert overdue_after_s(replace(one, facts=build_system())) is not None
    assert overdue_after_s(replace(one, facts=build_system(retired="replaced by another"))) is None
    assert overdue_after_s(system(9, 8, origin="import")) is None
    assert overdue_after_s(system(9, 8, origin="demo")) is None


@pytest.mark.parametrize(
    "facts",
    [
        {"ab_run": {"left": "a", "right": "b"}},
        {"experiment": {"title": "t", "command": "c"}},
        {"interference": {"victim": "a"}},
    ],
)
def test_an_experiment_hides_no_missed_night(facts: dict[str, object]) -> None:
    """Nights on days 1 to 20, then only an experiment on day 23."""
    nights = system(*range(20, 0, -1))
    experiment = build_session_row(90, started_at=23 * DAY_S, facts=SessionFacts.from_document(facts))
    entry = replace(nights, sessions=(experiment, *nights.sessions))
    assert overdue_after_s(entry) == overdue_after_s(nights)
    assert missed_since_newest(entry, round(23.5 * DAY_S)) == 3
    # Nor does one between two nights: the nights of days 21 to 23 are missed before that of day 24.
    last = build_session_row(91, started_at=24 * DAY_S)
    oldest_first = [*reversed(nights.sessions), experiment, last]
    assert _count_missed_sessions(oldest_first) == {last.id: 3}
    # A system of which only experiments are known has no nights.
    assert overdue_after_s(replace(nights, sessions=(experiment,))) is None


def test_only_expected_results_count_as_received(history: History) -> None:
    """Three results are expected; two of them and two unexpected ones are received."""
    wanted = [build_expected_result(name) for name in NAMES]
    others = [build_expected_result(name, operation="read") for name in NAMES[:2]]
    store_session(history, build_session(), [], expected=wanted)
    (session,) = history.sessions()
    found = session_entry(history, session, [], {*wanted[:2], *others}).coverage
    assert (found.expected, found.received, found.is_complete) == (3, 2, False)
    assert [(one.run, one.reason) for one in found.missing] == [("hdf5", "no write bandwidth")]


@pytest.mark.parametrize(("problems", "complete"), [([], True), (["deferred in 3 sessions"], False)])
def test_session_with_a_problem_is_not_complete(problems: list[str], complete: bool, history: History) -> None:
    session = build_session_row(facts=SessionFacts(problems=tuple(problems)))
    assert session_entry(history, session, [], set()).is_complete is complete


@pytest.mark.parametrize(("hours", "held"), [(-0.1, False), (0, True), (0.5, True), (1, True), (1.1, False)])
def test_evidence_of_a_finding_is_in_the_sessions_of_its_runs(hours: float, held: bool) -> None:
    """From the first to the last second of a session."""
    one = system(3, 2, 1)
    moment = int(2 * DAY_S + hours * 3600)
    for finding in (
        build_finding(last_before=-1, first_after=moment),
        build_finding(last_before=moment, first_after=-1),
    ):
        assert evidence_sessions(replace(one, findings=(finding,))) == ({1} if held else set())


def test_dismissed_loss_that_remains_is_shown(
    record_and_update: RecordAndUpdate, history: History, root: Path, tmp_path: Path
) -> None:
    """As long as two series are 50 % below their level."""
    for name in ("dashboards", "reference/published"):
        (root / name).symlink_to(ROOT / name)
    end = STEP + timedelta(days=20)
    record_and_update(slower_mpiio(), end)
    entry = {"finding": "planted-20250210-down", "decision": "dismissed", "by": "A. Reviewer", "reason": "why"}
    reviews.add_decision("planted", {**entry, "date": end})
    update_findings(history, "planted", update_time(end))
    build_site(history, tmp_path / "site", now=update_time(end), pages=pages_named("index.html"))
    assert "1 closed" in shown(section(tmp_path / "site", "planted"))
    text = shown((tmp_path / "site/index.html").read_text())
    assert re.search(
        r"Settled, but still below the level before 1 .* lost 5[01] % .* since 10 Feb 2025 .* dismissed by A. Rev", text
    )
    assert "No new loss" in text


def test_first_morning_is_on_the_page(
    record_and_update: RecordAndUpdate, history: History, root: Path, tmp_path: Path
) -> None:
    """After one slower session: the report of the session, and the suspected finding with its probability."""
    for name in ("dashboards", "reference/published"):
        (root / name).symlink_to(ROOT / name)
    end = STEP + timedelta(days=1)
    (finding,) = record_and_update(slower_mpiio(), end)
    stored = replace(finding, is_alarm=True)
    history.save_findings([FindingRow(stored.id, "planted", 0, 1, stored.state, finding_document(stored))])
    build_site(history, tmp_path / "site", now=update_time(end), pages=pages_named("index.html", "finding"))
    text = shown((tmp_path / "site/index.html").read_text())
    layer = r"lowest layer that moved: MPI-IO \([^)]*\)"
    assert re.search(rf"planted: 2 of 8 series far off, MPI-IO ×0.[45]\d*; {layer}; session 1 since 10 Feb 2025", text)
    assert "1 new loss, 1 still running." in text
    assert re.search(
        r"New with the newest session 1 ▼ MPI-IO lost 5\d % \(×0.[45]\d*\) since 10 Feb 2025 \(1 session\)", text
    )
    chance = f"it lasts with a probability of {100 * (finding.probability_lasting or 0):.0f} %"
    assert "suspected new, owner: none" in text
    assert "Affected2 of 8 series" in text
    assert f"Next stepWait for the next session, which confirms or ends it; {chance}" in text
    page = shown((tmp_path / "site/finding/planted-20250210-down.html").read_text())
    assert "Newest sessions" in page


def test_first_page_of_many_systems_begins_with_those_without_sessions() -> None:
    """A site that was not built, the longest silence, a shorter one, then losses; `calm` has the newest session."""
    rows = [
        SystemSite(system="calm", newest=30 * DAY_S, session="complete"),
        SystemSite(system="loss", newest=30 * DAY_S, session="complete", lost=3.0),
        SystemSite(system="late", newest=20 * DAY_S, session="complete", overdue=True),
        SystemSite(system="stopped", newest=10 * DAY_S, session="complete", overdue=True),
        SystemSite(system="failed", fault="disk full"),
    ]
    ordered = [row.system for row in sorted(rows, key=urgency_key)]
    assert ordered == ["failed", "stopped", "late", "loss", "calm"]
