"""Ten tasks of an administrator, from the status page on, with real clicks: the table in docs/dashboard.md ("Walk")."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.output.dashboard import mornings, review_desk
from tests.output.dashboard.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.sqlite_file]

# The innermost element that contains a text, or None.
_CONTAINING = """return [...document.querySelectorAll('main *')].filter(one =>
    one.checkVisibility() && one.innerText?.replace(/\\s+/g, ' ').includes(arguments[0])).at(-1) ?? null"""
_VISIBLE = "return [...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility())[arguments[1]]"
_SYSTEMS = """return [...document.querySelectorAll('.filterable tbody tr')]
    .filter(one => !one.hidden).map(one => one.cells[1].innerText)"""
# Screenfuls to scroll until a whole element is visible; a screenful repeats a tenth of the one before.
_DISTANCE = """const box = arguments[0].getBoundingClientRect();
    return Math.max(0, box.bottom - innerHeight - 1, -box.top - 1) / (0.9 * innerHeight)"""


@dataclass
class Walk:
    """What a person does for one task.

    Attributes:
        clicks: of the mouse.
        keys: typed characters.
        screens: screenfuls scrolled, to what is clicked or to the answer.
        fields: texts that had to be thought of.
        looks: answers that were read.
    """

    browser: Browser
    clicks: int = 0
    keys: int = 0
    screens: int = 0
    fields: int = 0
    looks: int = 0

    def start(self, page: str, now: datetime) -> Walk:
        """Open an address on a screen of 1440 x 900 at this moment."""
        self.browser.clock(now)
        self.browser.resize(1440, 900)
        self.browser.driver.get("about:blank")
        self.browser.driver.get(page)
        return self

    def click(self, selector: str, number: int = 0) -> None:
        """Click the visible element of a selector with this number."""
        # A form is made by an event after its fold was opened.
        self.browser.wait(_VISIBLE, selector, number)
        element = self.browser.run(_VISIBLE, selector, number)
        self._scroll_to(element)
        element.click()
        self.clicks += 1

    def type(self, selector: str, text: str) -> None:
        """Click a field and type."""
        self.click(selector)
        self.browser.driver.switch_to.active_element.send_keys(text)
        self.keys += len(text)
        self.fields += 1

    def read(self, text: str) -> None:
        """Scroll until this text is visible."""
        self.browser.wait(_CONTAINING, text)
        self.look(self.browser.run(_CONTAINING, text))

    def look(self, element: Any) -> None:
        """Scroll until a whole element is visible."""
        self._scroll_to(element)
        self.looks += 1

    def _scroll_to(self, element: Any) -> None:
        needed = math.ceil(self.browser.run(_DISTANCE, element))
        self.screens += needed
        if needed:
            self.browser.run("arguments[0].scrollIntoView({block: 'center'})", element)

    @property
    def seconds(self) -> float:
        """By the keystroke-level model (Card, Moran, Newell 1980): M 1.35 s, P 1.1 s, B 0.1 s, K 0.2 s."""
        thoughts = self.clicks + self.fields + self.screens + self.looks
        return thoughts * 1.35 + self.clicks * (1.1 + 2 * 0.1) + self.keys * 0.2 + self.screens * 0.5

    @property
    def effort(self) -> tuple[int, int, int]:
        """Clicks, keys, screenfuls."""
        return self.clicks, self.keys, self.screens


def which_systems(walk: Walk) -> None:
    walk.read("−22 % (×0.78) since 2 Feb 2025, 1 series")
    rows = "return [...document.querySelectorAll('.strips tbody th')].map(one => one.innerText)"
    assert walk.browser.run(rows)[:4] == ["coral", "beryl", "amber", "dolomite"]


def since_when(walk: Walk) -> None:
    walk.read("−71 % (×0.29) since 10 Feb 2025, 2 series")


def several_systems(walk: Walk) -> None:
    for name in mornings.SHARED:
        walk.read(f"{name}: MPI")


def sorted_losses(walk: Walk) -> None:
    walk.click("nav a[href='findings.html']")
    walk.type("#words", "MPI-IO")
    assert walk.browser.run(_SYSTEMS) == ["coral", "beryl", "amber"]
    walk.read("−30 % (×0.7)")


def accept(walk: Walk) -> None:
    walk.click(".card .review summary", 1)
    walk.click("details[open] input[value=accept]")
    walk.type("details[open] [name=reason]", "new quota, intended")
    walk.click("details[open] button[type=submit]")
    walk.read("accepted")


def assign(walk: Walk) -> None:
    walk.click(".card .review summary")
    walk.browser.wait("return document.querySelector('details[open] form') !== null")
    walk.click("details[open] input[value=assign]")
    walk.type("details[open] [name=to]", "Jane")
    walk.click("details[open] button[type=submit]")
    walk.read("The pages are being built")
    owners = "return [...document.querySelectorAll('.card')].map(one => one.querySelector('[data-owner-of]').innerText)"
    assert walk.browser.run(owners) == ["Jane", "none", "none"]


def what_changed(walk: Walk) -> None:
    walk.read("MPI-IO shared file gained")
    walk.read("POSIX file per process: 5 of 6 series did not change")
    walk.read("scheduled maintenance: upgrade to CLE 2.1UP01")


def absent(walk: Walk) -> None:
    walk.read("ior-posix-1MiB")
    walk.read("no write bandwidth, no read bandwidth (left out at random by the demonstration)")


def earlier_levels(walk: Walk) -> None:
    walk.click(".card a[href*='series/']")
    walk.browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    walk.look(walk.browser.driver.find_element("css selector", "svg"))


def slower_stack(walk: Walk) -> None:
    walk.read("ior with MPI-IO is 7 times slower on mpich than on openmpi")


FLEET = datetime(2025, 2, 22, 6, tzinfo=UTC)
FRANKLIN = datetime(2009, 5, 1, 6, tzinfo=UTC)
FIRST = datetime(2025, 1, 2, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("site", "now", "task", "effort"),
    [
        ("fleet", FLEET, which_systems, (0, 0, 0)),
        ("fleet", FLEET, since_when, (0, 0, 0)),
        ("fleet", FLEET, several_systems, (0, 0, 0)),
        ("fleet", FLEET, sorted_losses, (2, 6, 0)),
        ("franklin_site", FRANKLIN, what_changed, (0, 0, 0)),
        ("franklin_site", FRANKLIN, absent, (0, 0, 0)),
        ("franklin_site", FRANKLIN, earlier_levels, (1, 0, 0)),
        ("first_results", FIRST, slower_stack, (0, 0, 0)),
    ],
)
def test_answer_is_visible(
    browser: Browser,
    request: pytest.FixtureRequest,
    site: str,
    now: datetime,
    task: Callable[[Walk], None],
    effort: tuple[int, int, int],
) -> None:
    """Each answer is on the screen after these clicks, keys and screenfuls."""
    place: Path = request.getfixturevalue(site)
    walk = Walk(browser).start((place / "index.html").as_uri(), now)
    task(walk)
    assert walk.effort == effort
    assert browser.messages() == []


@pytest.mark.parametrize(("task", "effort"), [(accept, (4, 19, 1)), (assign, (4, 4, 1))])
def test_decision_is_visible(
    browser: Browser,
    tmp_path: Path,
    fleet: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: Callable[[Walk], None],
    effort: tuple[int, int, int],
) -> None:
    """Decisions on the status page of a review server; the second one is about three findings."""
    with review_desk.open_desk(tmp_path, fleet.parent, monkeypatch) as desk:
        walk = Walk(browser).start(desk.url(), FLEET)
        browser.wait("return [...document.querySelectorAll('details.review')].every((one) => one.dataset.user)")
        task(walk)
        assert walk.effort == effort
        written = {path.stem for path in (desk.root / "reference/reviews").glob("*.yaml")}
        assert written == ({"dolomite"} if task is accept else set(mornings.SHARED))
