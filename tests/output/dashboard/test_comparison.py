"""Pages of comparisons: differences are listed first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.drawing import forest_axis, forest_picture, forest_scale, samples_picture
from iowatch.store import History, SessionFacts
from tests.builders import build_result, build_run, build_session
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

START = 1_700_000_000  # 2023-11-14


def test_differences_are_first_and_event_sides_are_named(franklin_site: Path) -> None:
    """[antypas2009]: reads of MPI-IO shared files with unaligned transfers changed most, by about fifty."""
    texts = [path.read_text(encoding="utf-8") for path in (franklin_site / "comparison").glob("*.html")]
    (text,) = [one for one in texts if "before and after" in one]
    assert re.findall(r'<th scope="col" class="number">(before|after)</th>', text) == ["before", "after"]
    verdicts = re.findall(r'<td class="verdict">(.*?)</td>', text)
    different = ["state good" in one or "state bad" in one for one in verdicts]
    assert different == sorted(different, reverse=True)
    assert True in different
    assert False in different
    assert "1,000,000" in re.findall(r'<td class="text">(?:<a[^>]*>)?([^<]*)', text)[0]


def _event_page(site: Path) -> str:
    texts = [path.read_text(encoding="utf-8") for path in (site / "comparison").glob("*.html")]
    (text,) = [one for one in texts if "before and after" in one]
    return text


def test_every_pair_has_forest_plot_samples_and_series(franklin_site: Path) -> None:
    """Ratios with intervals, raw samples, and links to the series."""
    text = _event_page(franklin_site)
    rows = re.findall(r"<tr[^>]*><td.*?</tr>", text, re.DOTALL)
    for row in rows:
        (interval,) = re.findall(r'aria-label="ratio ([0-9.]+), interval ([0-9.]+) to ([0-9.]+)', row)
        ratio, low, high = map(float, interval)
        assert low <= ratio <= high
        decided = "state good" in row or "state bad" in row
        assert ('class="ratio undecided"' not in row) is decided
        (counts,) = re.findall(r'aria-label="before: (\d+) samples [^;]*; after: (\d+) samples', row)
        runs = re.findall(r'<td class="number"[^>]*>(\d+) \| (\d+)<', row)[0]
        assert all(int(n) >= int(of) for n, of in zip(counts, runs, strict=True))
        # With a difference, the number of runs needed to find one is not shown.
        assert "more per side" not in row or not decided
        (page,) = re.findall(r'<a href="\.\./(series/\d+\.html)">', row)
        assert (franklin_site / page).is_file()
    assert len(rows) == 13  # every monitored series, MADbench2 by its time
    assert any("more per side" in row for row in rows)
    assert "needed to detect a difference of 10 %" in text


def test_pairs_without_samples_have_a_ratio_without_interval(franklin_site: Path) -> None:
    """[lawrence2017] prints tables without samples."""
    texts = [path.read_text(encoding="utf-8") for path in (franklin_site / "comparison").glob("*.html")]
    printed = next(one for one in texts if "NetCDF against MPI-IO on ARCHER" in one)
    assert 'class="ratio' in printed
    assert 'class="interval' not in printed
    assert 'class="strokes' not in printed


@pytest.mark.parametrize("ratios", [[(1.0, None)], [(51.0, (50.0, 54.0)), (0.9, (0.8, 0.95))], [(1e6, (1e5, 1e7))]])
def test_forest_plot_is_inside_the_picture(ratios: list[tuple[float, tuple[float, float] | None]]) -> None:
    scale = forest_scale(ratios)
    drawn = [forest_picture(ratio, ci, "faster", scale) for ratio, ci in ratios] + [forest_axis(scale)]
    for one in drawn:
        width = float(re.findall(r'viewBox="0 0 (\d+)', one)[0])
        places = [float(x) for x in re.findall(r' (?:c?x|x1|x2)="([0-9.-]+)"', one)]
        assert places
        assert all(0 <= x <= width for x in places)
    assert "×1<" in drawn[-1]


def test_all_samples_of_a_side_are_drawn() -> None:
    left, right = (10.0, 20.0, 30.0), (40.0,)
    drawn = samples_picture(left, right, ("left", "right"))
    strokes = re.findall(r'class="strokes (?:before|after)" d="([^"]*)"', drawn)
    assert [one.count("M") for one in strokes] == [3, 1]
    assert "left: 3 samples from 10 to 30; right: 1 sample from 40 to 40" in drawn


def test_ab_runs_have_a_page(tmp_path: Path, var: Path) -> None:
    with History.open(str(tmp_path / "history.db")) as history:
        interleaved = {"left": "old", "right": "new", "seed": 1}
        facts_of_session = SessionFacts.from_document({"ab_run": interleaved})
        history.begin_session(build_session("fair-1", started_at=START, facts=facts_of_session))
        for pair in range(1, 10):
            for side, level in (("left", 100.0), ("right", 150.0)):
                facts = {"pair": pair, "side": side}
                name, level = f"ior:a#{pair}{side}", level + pair
                case = {"api": "POSIX", "ranks": 2, "ab_run": True}
                stack, result = str(interleaved[side]), build_result(level, case=case)
                run = build_run(result, name=name, stack=stack, started_at=START, facts=facts)
                history.record_runs("fair-1", [run])
        history.end_session("fair-1", "ok", START + 600)
        build_site(history, tmp_path / "site", pages=pages_named("comparisons.html"))
    listed = (tmp_path / "site" / "comparisons.html").read_text(encoding="utf-8")
    (page,) = re.findall(r'href="(comparison/\w+\.html)">local: old against new, A/B run of 2023-11-14<', listed)
    (row,) = [one for one in listed.split("<tr>") if page in one]
    # 150 to 100 MiB/s, both plus the number of the pair, in nine pairs.
    words = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert words.startswith("faster local: old against new, A/B run of 2023-11-14 1 faster")
    assert "new is faster, all cases together: 1.476 times as fast as old" in words
    text = (tmp_path / "site" / page).read_text(encoding="utf-8")
    assert '<span class="state good">faster</span>' in text
    assert "session by session" in text
    # A reader knows the stacks; `left` and `right` are names of JSON and of style classes.
    assert re.findall(r'<th scope="col" class="number">(old|new)</th>', text) == ["old", "new"]
    visible = re.sub(r"<[^>]*>", " ", text.partition("<main")[2])
    assert re.findall(r"\b(?:left|right)\b", visible.lower()) == []
    assert "A/B run, session fair-1" in visible
    assert "in MiB/s (paired medians)" in visible


def test_index_lists_differences_first_with_the_number_of_cases(franklin_site: Path) -> None:
    text = (franklin_site / "comparisons.html").read_text(encoding="utf-8")
    verdicts = re.findall(r'<tr><td><span class="state ?\w*">(?:printed: )?([^<]+)</span>', text)
    order = ["slower", "faster", "no difference", "not enough data", "no comparison"]
    assert verdicts == sorted(verdicts, key=order.index)
    rows = {re.findall(r"<a [^>]*>([^<]*)", row)[0]: row for row in text.split("<tr>") if 'class="text"' in row}
    # Printed figures have no sessions: no case of a paper has a verdict, and the badge claims none.
    papers = [row for title, row in rows.items() if " et al. " in title or "Bartz" in title]
    assert len(papers) == 5
    assert all('class="state ">printed: ' in row and "not enough data" in row for row in papers)
    (event,) = [row for title, row in rows.items() if "before and after" in title]
    counts = re.findall(r">(\d+) (faster|slower|no difference|not enough data)<", event)
    # All 13 monitored series of Franklin.
    assert sum(int(n) for n, _ in counts) == 13
    assert len(dict(counts)) == len(counts)


def test_index_of_comparisons_is_sorted_by_a_click(browser: Browser, franklin_site: Path) -> None:
    browser.open(franklin_site / "comparisons.html")
    titles = "return [...document.querySelectorAll('tbody a')].map(one => one.textContent)"
    shown = browser.run(titles)
    browser.driver.find_element("xpath", "//th/button[starts-with(., 'comparison')]").click()
    assert browser.run(titles) == sorted(shown, key=str.casefold)
    assert browser.run("return location.hash") == "#sort=1a"
    assert browser.messages() == []
