"""What the first page says of nights that did not come whole, or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from iowatch.dashboard.build import build
from iowatch.model import Output, Result
from iowatch.store import ExpectedResult, History, RunRecord, SessionRecord, StackRecord
from iowatch.store.records import Origin, SessionStatus
from tests.dashboard.browser import Browser

DAY_S = 86400
LAST = 1_760_000_400  # 9 October 2025, 09:00:00 UTC
NAMES = ("mpiio", "posix", "hdf5")
Make = Callable[..., Path]


def _fill(
    history: History,
    system: str,
    ages: list[int],
    came: tuple[str, ...] = NAMES,
    end: SessionStatus | None = "ok",
    origin: Origin = "run",
) -> None:
    """Nights so many days before the last; of the newest only `came` arrived, and it ended as `end`."""
    for age in ages:
        begin, newest = LAST - age * DAY_S, age == ages[-1]
        session = SessionRecord(f"{system}-{age:03d}", system, "nightly", origin, begin, {})
        wanted = [] if origin == "import" else NAMES
        history.begin_session(
            session, [ExpectedResult(n, "default", "gcc", "write", "bandwidth") for n in wanted]
        )
        runs = [_run(session, name, begin) for name in (came if newest else NAMES)]
        history.record_runs(session.uuid, runs)
        if end is not None or not newest:
            history.end_session(session.uuid, (end or "ok") if newest else "ok", begin + 3600)


def _run(session: SessionRecord, name: str, begin: int) -> RunRecord:
    result = Result("write", "bandwidth", "MiB/s", (1000.0,), {"api": name, "ranks": 4})
    output = Output("ior", "4.0.0", "ok", None, (result,))
    return RunRecord(name, "default", StackRecord("gcc"), f"{session.uuid}-{name}", begin + 60, output)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Builds the site of all these systems as it is some hours after the last night began."""
    place = tmp_path_factory.mktemp("mornings")
    daily = list(range(20, -1, -1))
    with History.open(str(place / "history.db")) as history:
        _fill(history, "quiet", daily)
        _fill(history, "dead", daily, came=(), end="incomplete")
        _fill(history, "busy", daily, came=("mpiio",), end=None)
        _fill(history, "stopped", [*range(30, 8, -1)])
        _fill(history, "paused", [*range(25, 13, -1), *range(8, -1, -1)])
        _fill(history, "weekly", [35, 28, 21, 14, 7])
        _fill(history, "imported", [400, 399], origin="import")

    def build_at(hours: float) -> Path:
        site = place / "site"
        with History.open(str(place / "history.db")) as history:
            build(history, site, now=datetime.fromtimestamp(LAST + hours * 3600, UTC))
        return site

    return build_at


class _Shown(HTMLParser):
    """The text of a page without what it hides."""

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
    """What the first page shows of a system."""
    text = (site / "index.html").read_text(encoding="utf-8")
    (found,) = re.findall(
        rf'<section class="system"[^>]*>\s*<div class="title">\s*<h2[^>]*>{system}</h2>.*?</section>',
        text,
        re.DOTALL,
    )
    return str(found)


def test_a_night_that_never_came_is_told_and_not_green(make: Make) -> None:
    """The last night of `stopped` was whole, nine days ago; its system runs every day."""
    found = section(make(10), "stopped")
    assert "silent since 30 Sep 2025" in shown(found)
    assert "No night since 2025-09-30 09:00 UTC." in shown(found)
    assert "night complete" not in shown(found)
    assert 'class="calm"' not in found
    assert "1 silent" in shown((make(10) / "index.html").read_text(encoding="utf-8"))


def test_a_system_has_its_own_rhythm(make: Make) -> None:
    assert "silent" not in shown(section(make(10), "weekly"))
    assert "silent since" in shown(section(make(4 * 24), "weekly"))
    assert "silent" not in shown(section(make(27.3), "quiet"))
    assert "silent since" in shown(section(make(27.5), "quiet"))


def test_nothing_more_is_expected_of_imported_results(make: Make) -> None:
    assert "silent" not in shown(section(make(4 * 24), "imported"))


def test_a_night_without_any_result_is_not_green(make: Make) -> None:
    found = section(make(10), "dead")
    assert "3 absent" in shown(found)
    assert "mpiio, posix, hdf5: no write bandwidth" in shown(found)
    assert 'class="calm"' not in found
    assert "state good" not in found


def test_what_a_running_night_still_owes_is_not_absent(make: Make) -> None:
    assert "2 not there yet running" in shown(section(make(1), "busy"))
    assert "never ended" in shown(section(make(48), "busy"))
    assert "2 absent" in shown(section(make(48), "busy"))


def test_systems_in_need_come_first(make: Make) -> None:
    text = (make(10) / "index.html").read_text(encoding="utf-8")
    order = re.findall(r"<h2[^>]*>(\w+)</h2>", text)
    assert set(order[:3]) == {"dead", "busy", "stopped"}


@pytest.mark.browser
def test_an_old_page_says_that_it_is_old(make: Make, browser: Browser) -> None:
    """Built when all was well, looked at long after: the reader's clock decides."""
    site = make(1)
    assert "silent" not in shown(section(site, "quiet"))
    browser.open(site / "index.html")
    seen = (
        "return [...document.querySelectorAll('section')]"
        ".find(s => s.querySelector('h2').innerText === 'quiet').innerText"
    )
    assert "silent since 9 Oct 2025" in browser.run(seen)
    assert "night complete" not in browser.run(seen)
    assert browser.run("return document.querySelector('.lead').innerText").count("6 silent") == 1
    assert browser.messages() == []


def cells(text: str) -> list[list[str]]:
    """The words of each row of a page's tables."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    return [[shown(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]


def test_coverage_shows_nights_without_a_session(make: Make) -> None:
    """`paused` ran every day but for five days; without a row of their own they would not be seen at all."""
    site = make(10)
    text = (site / "coverage/paused.html").read_text(encoding="utf-8")
    rows = cells(text)
    at = next(n for n, row in enumerate(rows) if "5 nights without a session" in row)
    assert rows[at - 1][0].startswith("2025-10-01")
    assert rows[at + 1][0].startswith("2025-09-25")
    assert "26 nights: 21 complete, 0 in part, 0 absent, 5 without a session" in text
    index = cells((site / "coverage.html").read_text(encoding="utf-8"))
    assert next(row[5] for row in index if row and row[0] == "paused") == "5"
    assert next(row[5] for row in index if row and row[0] == "weekly") == "0"


def test_coverage_calls_a_night_complete_only_where_everything_came(make: Make) -> None:
    site = make(10)
    rows = cells((site / "coverage/dead.html").read_text(encoding="utf-8"))
    states = [row[2] for row in rows if len(row) == 6]
    assert states == ["3 of 3 missing incomplete", *["complete"] * 20]
    stopped = cells((site / "coverage/stopped.html").read_text(encoding="utf-8"))
    assert ["since 2025-09-30 09:00", "–", "silent", "–", "–", "–"] in stopped


def test_the_overview_does_not_colour_what_is_not_of_the_newest_night(make: Make) -> None:
    site = make(10)
    text = (site / "overview/dead.html").read_text(encoding="utf-8")
    assert re.findall(r'<td class="gain (\w+)"', text) == ["none"] * 3
    assert text.count("10 without data") == 3
    index = cells((site / "overview.html").read_text(encoding="utf-8"))
    assert next(row[1:6] for row in index if row and row[0] == "dead") == ["0", "3", "0", "0", "0"]
    assert next(row[1:6] for row in index if row and row[0] == "quiet") == ["0", "0", "0", "3", "0"]


def test_few_nights_are_not_measured_against_themselves(make: Make) -> None:
    """Five nights of `weekly` and no reference: what is normal is not known, and 100 % would be a lie."""
    text = (make(10) / "overview/weekly.html").read_text(encoding="utf-8")
    assert re.findall(r'<td class="gain (\w+)"[^>]*>([^<]*)', text) == [("none", "–")] * 3
    assert len(re.findall(r'<rect class="unjudged"', text)) == 15


def test_slow_trends_are_on_the_findings_page(shapes_site: Path) -> None:
    """As `iowatch findings list` says them: the same series, the same size, since the same day."""
    from iowatch.findings.trends import listing, trends
    from iowatch.findings.wording import day, factor

    with History.open(str(shapes_site.parent / "history.db")) as history:
        told = trends(history, ["archer"])
    assert len(list(listing(told))) == 2
    text = (shapes_site / "findings.html").read_text(encoding="utf-8")
    after = text.partition('<h2 id="trends">')[2].partition("</h2>")[2]
    found = shown(after.partition("</ul>")[0] + "</ul>")
    for one in told:
        assert re.search(rf"{re.escape(factor(one.gain))} since {day(one.first)}", found)
    assert "1 slow trend" in shown((shapes_site / "index.html").read_text(encoding="utf-8"))
