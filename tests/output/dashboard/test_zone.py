"""Times in the zone of the site: in text, SVG and plots; independent of the time zone of the browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from iowatch.core import InputError, MachineError, UsageError, units
from iowatch.core.units import find_time_zone, utc_offsets
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.drawing import date_ticks
from iowatch.site.system import read_system
from iowatch.store import History
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

DAY_S = 86400
TOKYO = "Asia/Tokyo"


@pytest.fixture(scope="module")
def tokyo(franklin_history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of Franklin in the time zone of Tokyo."""
    site = tmp_path_factory.mktemp("tokyo") / "site"
    with History.open(str(franklin_history)) as history:
        build_site(history, site, BuildOptions(TOKYO), pages=pages_named("index.html", "finding", "series"))
    return site


@pytest.mark.parametrize("name", ["Europe/Londn", "Mars/Base", "../etc/passwd", "", "Europe"])
def test_unknown_zones_are_refused_with_a_short_hint(name: str) -> None:
    with pytest.raises(UsageError) as error:
        find_time_zone(name)
    assert len(str(error.value.hint)) < 100


def _absent(name: str) -> ZoneInfo:
    raise ZoneInfoNotFoundError(name)


def test_machine_without_zone_data_is_reported_and_has_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "ZoneInfo", _absent)
    monkeypatch.setattr(units, "available_timezones", set)
    with pytest.raises(MachineError, match="no time zone data on this machine") as error:
        find_time_zone("Europe/London")
    assert "tzdata" in str(error.value.hint)
    assert find_time_zone("UTC") is UTC


def test_utc_offsets_change_at_the_exact_second() -> None:
    """The European Union changes its clocks at 01:00 UTC on the last Sundays of March and October."""
    moments = [datetime(2025, 3, 30, 1, tzinfo=UTC), datetime(2025, 10, 26, 1, tzinfo=UTC)]
    first, last = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) // DAY_S for y in (2025, 2026))
    spring, autumn = (int(m.timestamp()) for m in moments)
    assert utc_offsets(ZoneInfo("Europe/Berlin"), first, last) == ((0, 3600), (spring, 7200), (autumn, 3600))
    assert utc_offsets(UTC, first, last) == ((0, 0),)


def _system(place: Path, timezone: str) -> Path:
    path = place / "here" / "system.yaml"
    path.parent.mkdir()
    path.write_text(f"name: here\ntitle: A machine\ntimezone: {timezone}\n")
    return path


def test_misspelt_zone_of_a_system_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"system.yaml:3:11: field 'timezone'.*Did you mean 'Europe/Berlin'"):
        read_system(_system(tmp_path, "Europe/Brelin"))


def test_system_file_is_read_without_zone_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that show no times do not need `tzdata`: a session must not fail without it."""
    monkeypatch.setattr(units, "ZoneInfo", _absent)
    monkeypatch.setattr(units, "available_timezones", set)
    assert read_system(_system(tmp_path, "Europe/Berlin")).timezone == "Europe/Berlin"


@pytest.mark.parametrize("days", [5, 40, 400])
def test_date_ticks_are_midnights_of_the_zone(days: int) -> None:
    """Also over a clock change: on 29 March 2009 London's day had 23 hours."""
    london = ZoneInfo("Europe/London")
    first = datetime(2009, 3, 26, 5, tzinfo=UTC).timestamp()
    ticks = date_ticks(first, first + days * DAY_S, zone=london)
    assert len(ticks) >= 4
    for tick in ticks:
        local = datetime.fromtimestamp(tick.time, london)
        assert (local.hour, local.minute) == (0, 0)
        assert tick.label in (f"{local:%-d %b}", f"{local:%b %Y}")


def test_times_are_local_and_findings_keep_their_dates(tokyo: Path) -> None:
    text = (tokyo / "index.html").read_text(encoding="utf-8")
    hover = "2009-05-01 07:00 Asia/Tokyo, 2009-04-30T22:00:00Z (UTC)"
    assert f'title="{hover}">2009-05-01 07:00</time> Asia/Tokyo' in text
    assert "Times in Asia/Tokyo" in text
    # The finding's id, line, title and date have the same day.
    finding = (tokyo / "finding/franklin-20090317-up.html").read_text(encoding="utf-8")
    assert re.search(r"<h1>.* since 17 Mar 2009 .*</h1>", finding)
    assert "18 Mar 2009" not in re.sub(r"<[^>]*>", "", finding)


def test_time_zone_is_a_setting_of_the_system(
    franklin_history: Path, tmp_path: Path, declared: Callable[..., None]
) -> None:
    declared(franklin="America/Los_Angeles")
    with History.open(str(franklin_history)) as history:
        pages = pages_named("index.html")
        build_site(history, tmp_path / "site", pages=pages)
        assert "Times in America/Los_Angeles" in (tmp_path / "site/index.html").read_text()
        build_site(history, tmp_path / "site", BuildOptions("UTC"), pages=pages)
        assert "Times in UTC;" in (tmp_path / "site/index.html").read_text()


# Times of the first sessions in view. The run of 17 March 2009, 22:00 UTC, is the next morning in Tokyo (UTC+9).
TIMES = """
const surface = document.querySelector('.surface'), found = [];
for (let n = 0; n < 5; n++) {
  surface.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
  found.push(document.querySelector('.tip div').textContent);
}
return found;
"""


@pytest.mark.browser
@pytest.mark.parametrize("reader", ["UTC", "America/Los_Angeles", TOKYO])
def test_plot_uses_the_zone_of_the_site_not_of_the_browser(
    browser: Browser, franklin_site: Path, tokyo: Path, reader: str
) -> None:
    """A browser in Tokyo once showed 07:00 labelled UTC."""
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": reader})
    try:
        for site, zone, shown in (
            (franklin_site, "UTC", "2009-03-17 22:00 UTC"),
            (tokyo, TOKYO, "2009-03-18 07:00 Asia/Tokyo (22:00 UTC)"),
        ):
            browser.open(site / "series/1.html", "#from=2009-03-15&to=2009-03-20")
            browser.wait("return document.documentElement.dataset.drawn === 'yes'")
            midnight = [datetime(2009, 3, day, tzinfo=ZoneInfo(zone)).timestamp() for day in (15, 21)]
            assert browser.run("return document.getElementById('plot').chart.range") == midnight
            assert browser.run("return document.querySelector('.surface .date').textContent") == "15 Mar 2009"
            assert zone in browser.run("return document.querySelector('.surface').textContent")
            texts = browser.run(TIMES)
            assert shown in texts
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
