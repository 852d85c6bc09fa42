"""Lists of sides: pages of all pairs of stacks, the page with the lists, and comparisons that the servers compute."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest

from iowatch.core import UsageError
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.compare_service import CompareService, find_compare_service, served_side
from iowatch.output.dashboard.pages.comparison import MAX_STACKS
from iowatch.output.dashboard.serve import make_server
from iowatch.output.dashboard.side_lists import ListedSystem, preselected_sides, side_groups
from iowatch.store import History
from tests.builders import build_result, build_run, build_session
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named
from tests.output.dashboard.conftest import SharedDirectories

START = 1_700_000_000  # 2023-11-14
DAY_S = 86_400
SESSIONS = 12
# Levels of write bandwidth in MiB/s: `new` has three quarters of `old`, `same` that of `old`.
LEVELS = {"old": 1000.0, "same": 1000.0, "new": 750.0}
APIS = ("MPIIO", "HDF5", "NETCDF4")


def fill(history: History, levels: dict[str, float], system: str = "local", sessions: int = SESSIONS) -> None:
    """Sessions in which each stack writes with six cases; noise of 2 %, seeded by the system's name."""
    random = np.random.default_rng(len(system))
    for number in range(sessions):
        begin = START + number * DAY_S
        uuid = f"{system}-{number}"
        history.begin_session(build_session(uuid, system=system, started_at=begin))
        runs = []
        for position, (stack, level) in enumerate(levels.items()):
            for api in APIS:
                for ranks in (1, 4):
                    case = {"api": api, "file": "shared", "ranks": ranks}
                    samples = level * np.exp(random.normal(0, 0.02, 5))
                    name, start = f"ior:{api}-{ranks}", begin + 600 * position
                    result = build_result(*samples, case=case)
                    label = f"{uuid} {stack} {name}"
                    runs.append(build_run(result, name=name, stack=stack, started_at=start, fingerprint=label))
        history.record_runs(uuid, runs)
        history.end_session(uuid, "ok", begin + 7200)


def build(directory: Path, options: BuildOptions | None = None) -> Path:
    with History.existing(str(directory / "history.db")) as history:
        pages = pages_named("comparisons.html", "compare.html")
        build_site(history, directory / "site", options or BuildOptions(), pages=pages)
    return directory / "site"


def _fill_three(directory: Path) -> None:
    with History.open(str(directory / "history.db")) as history:
        fill(history, LEVELS)
        fill(history, {"old": 500.0}, system="other")
        # All pages: rows link to the pages of series.
        build_site(history, directory / "site")


@pytest.fixture(scope="session")
def three_stacks(shared: SharedDirectories) -> Path:
    """A system with three stacks, and one with one of them; `history.db` and `site`."""
    return shared.make("three-stacks", _fill_three)


def pair_page(site: Path, left: str, right: str) -> str:
    """Name of the page of a pair, from the data of the lists."""
    text = (site / "compare.html").read_text(encoding="utf-8")
    pattern = f'"left":"stack:{left},system=local","right":"stack:{right},system=local","page":"([^"]*)"'
    (page,) = re.findall(pattern, text)
    return str(page)


def table_rows(page: str) -> list[str]:
    """Texts of the rows of the table of pairs."""
    rows = re.findall(r"<tr data-verdict.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


# Pages of the site


def test_every_pair_of_stacks_has_a_page_with_the_verdict_of_the_later_stack(three_stacks: Path) -> None:
    """`new` has 750 of the 1,000 MiB/s of `old`: slower in each of six cases; `same` does not differ."""
    site = three_stacks / "site"
    # Stacks that were used last are the later ones: `new`, then `same`, then `old`.
    slower = (site / pair_page(site, "old", "new")).read_text(encoding="utf-8")
    assert len(re.findall(r'<tr data-verdict="slower">', slower)) == 6
    equal = (site / pair_page(site, "old", "same")).read_text(encoding="utf-8")
    assert len(re.findall(r'<tr data-verdict="no difference">', equal)) == 6
    index = (site / "comparisons.html").read_text(encoding="utf-8")
    crossings = re.findall(r'<a href="([^"]*)" aria-label="(\w+) against (\w+): ([0-9.]+), ([^"]*)">', index)
    assert [(left, right, verdict) for _, left, right, _, verdict in crossings] == [
        ("same", "new", "slower"),
        ("old", "new", "slower"),
        ("old", "same", "no difference"),
    ]
    assert [float(ratio) for _, _, _, ratio, _ in crossings] == pytest.approx([0.75, 0.75, 1.0], rel=0.02)


def test_pair_page_shows_both_medians_and_both_intervals(three_stacks: Path) -> None:
    site = three_stacks / "site"
    text = (site / pair_page(site, "old", "new")).read_text(encoding="utf-8")
    pictures = re.findall(r'aria-label="ratio \S+, interval (\S+) to (\S+), with all cases (\S+) to (\S+)"', text)
    assert len(pictures) == 6
    for low, high, low_of_all, high_of_all in pictures:
        assert float(low_of_all) < float(low) < 0.75 < float(high) < float(high_of_all)
    for row in table_rows(text):
        values = [float(number.replace(",", "")) for number in re.findall(r"(?<= )[0-9][0-9,.]*(?= )", row)]
        assert any(abs(value - 750) < 30 for value in values)
        assert any(abs(value - 1000) < 40 for value in values)


def test_stacks_beyond_the_limit_are_named(tmp_path: Path) -> None:
    """Nine stacks: the one used first is left out, by name, and 28 pairs of eight have a page."""
    with History.open(str(tmp_path / "history.db")) as history:
        fill(history, {f"stack{number}": 1000.0 for number in range(MAX_STACKS + 1)}, sessions=3)
    site = build(tmp_path)
    for name in ("comparisons.html", "compare.html"):
        text = (site / name).read_text(encoding="utf-8")
        assert f"Only the {MAX_STACKS} most recently used of {MAX_STACKS + 1} stacks are compared; not stack0." in text
    assert len(re.findall(r'"page":"comparison/', (site / "compare.html").read_text(encoding="utf-8"))) == 28
    assert "stack:stack0,system=local" in (site / "compare.html").read_text(encoding="utf-8")


def test_lists_have_stacks_months_and_systems() -> None:
    systems = [ListedSystem("one", ("new", "old"), (START, START + 20 * DAY_S)), ListedSystem("two", (), ())]
    groups = {group.label: [option.text for option in group.options] for group in side_groups(systems)}
    # 14 November and 4 December 2023; the last day of a month is that of the calendar.
    assert groups == {
        "systems": ["system:one", "system:two"],
        "stacks of one": ["stack:new,system=one", "stack:old,system=one"],
        "months of one": ["since:2023-12-01..2023-12-31,system=one", "since:2023-11-01..2023-11-30,system=one"],
    }


def test_lists_of_one_system_have_no_group_of_a_single_entry() -> None:
    """Nothing can be compared with a single stack or month; of two months the newer one is the right side."""
    assert side_groups([ListedSystem("one", ("only",), (START,))]) == []
    groups = side_groups([ListedSystem("one", ("only",), (START, START + 20 * DAY_S))])
    assert [group.label for group in groups] == ["months of one"]
    assert preselected_sides(groups) == {
        "left": "since:2023-11-01..2023-11-30,system=one",
        "right": "since:2023-12-01..2023-12-31,system=one",
    }


def test_site_without_two_sides_has_no_page_of_lists(tmp_path: Path) -> None:
    """One stack, one system, twelve nights in one month: there is nothing to choose."""
    with History.open(str(tmp_path / "history.db")) as history:
        fill(history, {"only": 1000.0})
    site = build(tmp_path)
    assert not (site / "compare.html").exists()
    assert "compare.html" not in (site / "comparisons.html").read_text(encoding="utf-8")
    # The address of the page still compares what a reader names.
    page = CompareService(site, str(tmp_path / "history.db")).answer("").page
    assert "Nothing to choose" in page
    assert "<form" not in page


# In the browser


def choose(browser: Browser, left: str, right: str) -> None:
    for name, side in (("left", left), ("right", right)):
        browser.run("document.getElementById(arguments[0]).value = arguments[1]", name, side)
    browser.driver.find_element("xpath", "//form[@id='choice']//button[. = 'Compare']").click()


def test_chosen_pair_opens_its_page_and_its_address_does_the_same(browser: Browser, three_stacks: Path) -> None:
    site = three_stacks / "site"
    browser.open(site / "compare.html")
    choose(browser, "stack:old,system=local", "stack:new,system=local")
    browser.wait("return document.querySelector('table.pairs') !== null")
    assert browser.run("return location.pathname").endswith(pair_page(site, "old", "new"))
    assert "old against new" in browser.run("return document.querySelector('h1').textContent")
    sides = urlencode({"left": "stack:old,system=local", "right": "stack:new,system=local"})
    browser.open(site / "compare.html", f"?{sides}")
    browser.wait("return document.querySelector('table.pairs') !== null")
    assert browser.run("return location.pathname").endswith(pair_page(site, "old", "new"))
    assert browser.messages() == []


def test_filter_of_the_pairs_is_in_the_address(browser: Browser, three_stacks: Path) -> None:
    site = three_stacks / "site"
    browser.open(site / pair_page(site, "old", "new"))
    shown = "return [...document.querySelectorAll('table.pairs tbody tr')].filter(row => !row.hidden).length"
    assert browser.run(shown) == 6
    browser.driver.find_element("id", "words").send_keys("netcdf")
    assert browser.run(shown) == 2
    assert browser.run("return location.hash") == "#words=netcdf"
    browser.open(site / pair_page(site, "old", "new"), "#words=netcdf")
    browser.wait("return document.querySelector('.tools output').textContent === '2 of 6'")
    assert browser.accessibility_faults() == []
    assert browser.messages() == []


def test_other_choices_state_the_command(browser: Browser, three_stacks: Path) -> None:
    site = three_stacks / "site"
    browser.open(site / "compare.html")
    assert browser.accessibility_faults() == []
    answer = "return document.getElementById('answer').textContent"
    choose(browser, "system:local", "system:other")
    browser.wait(f"{answer} !== ''")
    assert "was not computed when the site was built" in browser.run(answer)
    assert "iowatch compare system:local system:other" in browser.run(answer)
    # The lists show what was asked for.
    assert browser.run("return document.getElementById('right').value") == "system:other"
    choose(browser, "stack:new,system=local", "stack:old,system=local")
    browser.wait(f"{answer}.includes('in the other order')")
    assert browser.run("return document.querySelector('#answer a').getAttribute('href')") == pair_page(
        site, "old", "new"
    )
    browser.driver.find_element("id", "swap").click()
    assert browser.run("return document.getElementById('left').value") == "stack:old,system=local"
    assert browser.messages() == []


@pytest.mark.parametrize("width", [1300, 400])
def test_pages_fit_the_window(browser: Browser, three_stacks: Path, screenshots: Path, width: int) -> None:
    site = three_stacks / "site"
    for name in ("comparisons.html", "compare.html", pair_page(site, "old", "new")):
        browser.resize(width, 900)
        browser.open(site / name)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        browser.picture(screenshots / f"compare-{name.partition('/')[0]}-{width}.png", width)


# Comparisons on request


def test_served_page_has_the_table_of_the_page_of_the_site(three_stacks: Path) -> None:
    site = three_stacks / "site"
    service = CompareService(site, str(three_stacks / "history.db"))
    sides = urlencode({"left": "stack:old,system=local", "right": "stack:new,system=local"})
    answer = service.answer(sides)
    assert answer.status == HTTPStatus.OK
    static = (site / pair_page(site, "old", "new")).read_text(encoding="utf-8")
    assert table_rows(answer.page) == table_rows(static) != []
    # A form without a script may ask this server only.
    assert "form-action &#39;self&#39;" in answer.page
    assert '<option value="stack:new,system=local" selected>' in answer.page


def test_service_compares_periods_systems_and_the_other_order(three_stacks: Path) -> None:
    service = CompareService(three_stacks / "site", str(three_stacks / "history.db"))

    def verdicts(left: str, right: str) -> list[str]:
        answer = service.answer(urlencode({"left": left, "right": right}))
        assert answer.status == HTTPStatus.OK, answer.page
        return re.findall(r'<tr data-verdict="([^"]*)">', answer.page)

    assert verdicts("stack:new,system=local", "stack:old,system=local") == ["faster"] * 6
    # The stack has 1,000 MiB/s on one system and 500 on the other.
    assert verdicts("stack:old,system=local", "stack:old,system=other") == ["slower"] * 6
    first, second = "since:2023-11-14..2023-11-19", "since:2023-11-20..2023-11-30"
    assert verdicts(f"{first},system=other", f"{second},system=other") == ["no difference"] * 6


@pytest.mark.parametrize(
    ("left", "fault"),
    [
        ("/etc/passwd", "is not a side that this page compares"),
        ("stack:nothing,system=local", "no results for"),
        ("since:monday..,system=local", "period"),
        ("stack:old,system=local", "cannot be compared with itself"),
        ("x" * 3000, "more than 2,000 characters"),
    ],
)
def test_wrong_side_is_a_fault_on_the_page(three_stacks: Path, left: str, fault: str) -> None:
    service = CompareService(three_stacks / "site", str(three_stacks / "history.db"))
    answer = service.answer(urlencode({"left": left, "right": "stack:old,system=local"}))
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert fault in answer.page
    assert "<table" not in answer.page


def test_file_of_the_server_is_no_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`iowatch compare` takes files; an address must not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("session,time\n")
    with pytest.raises(UsageError, match="is not a side that this page compares"):
        served_side("secret.csv", None)


def test_site_of_one_system_compares_no_other(tmp_path: Path, three_stacks: Path) -> None:
    (tmp_path / "history.db").write_bytes((three_stacks / "history.db").read_bytes())
    site = build(tmp_path, BuildOptions(system="local"))
    service = CompareService(site, str(tmp_path / "history.db"))
    answer = service.answer(urlencode({"left": "stack:old,system=other", "right": "stack:new,system=local"}))
    assert answer.status == HTTPStatus.BAD_REQUEST
    for side in ("system:other", "event:other/2023-11-20"):
        with pytest.raises(UsageError, match="shows the system 'local' only"):
            served_side(side, "local")
    assert served_side("event:local/2023-11-20", "local").filters == {"system": "local"}
    # `stack:old` without a system is that of the site only.
    answer = service.answer(urlencode({"left": "stack:old", "right": "stack:new"}))
    assert re.findall(r'<tr data-verdict="([^"]*)">', answer.page) == ["slower"] * 6
    lists = service.answer("").page
    assert "other" not in re.findall(r'<optgroup label="([^"]*)"', lists)
    assert "system=other" not in lists


@contextmanager
def serving(site: Path, database: Path | None) -> Iterator[str]:
    service = None if database is None else find_compare_service(site, str(database))
    with make_server(site, 0, compare=service) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_served_lists_compare_two_systems(browser: Browser, three_stacks: Path) -> None:
    with serving(three_stacks / "site", three_stacks / "history.db") as address:
        browser.driver.get(f"{address}/compare.html")
        choose(browser, "system:other", "stack:new,system=local")
        browser.wait("return document.querySelector('table.pairs') !== null")
        assert "right=stack%3Anew%2Csystem%3Dlocal" in browser.run("return location.search")
        assert browser.run("return document.getElementById('left').value") == "system:other"
        # The stack of the other system has 500 MiB/s, this one 750.
        assert browser.run("return document.querySelectorAll('tr[data-verdict=faster]').length") == 6
        browser.driver.refresh()
        browser.wait("return document.querySelectorAll('tr[data-verdict=faster]').length === 6")
        browser.driver.find_element("id", "words").send_keys("netcdf")
        browser.wait("return document.querySelector('.tools output').textContent === '2 of 6'")
        assert browser.accessibility_faults() == []
        assert browser.messages() == []


def test_server_without_a_history_serves_the_page_of_the_site(three_stacks: Path, tmp_path: Path) -> None:
    site = three_stacks / "site"
    assert find_compare_service(site, str(tmp_path / "missing.db")) is None
    with serving(site, None) as address:
        query = f"left={quote('system:local')}&right={quote('system:other')}"
        with urllib.request.urlopen(f"{address}/compare.html?{query}") as response:
            assert response.read() == (site / "compare.html").read_bytes()


def test_damaged_history_is_reported_without_a_traceback(three_stacks: Path, tmp_path: Path) -> None:
    database = tmp_path / "history.db"
    database.write_bytes((three_stacks / "history.db").read_bytes())
    with serving(three_stacks / "site", database) as address:
        database.unlink()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/compare.html")
        assert refused.value.code == HTTPStatus.SERVICE_UNAVAILABLE
        assert "Traceback" not in refused.value.read().decode()
