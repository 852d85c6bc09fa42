"""The heat map of a session: one cell per case, few empty cells, and no colour for missing results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iowatch.core import Case, Scalar
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.heat_map import build_heat_map
from iowatch.output.dashboard.pages import overview
from iowatch.store import History, RunRecord, SeriesRow, SessionFacts
from tests.builders import build_case, build_result, build_run, build_series_row, build_session
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

Status = Literal["ok", "incomplete", "running"]
DAY_S = 86400
START = 1_735_700_000


def _row(number: int, parameters: Mapping[str, Scalar], benchmark: str = "ior", stack: str = "gnu") -> SeriesRow:
    return build_series_row(number, system="x", stack=stack, case=build_case(benchmark, **parameters))


def _ior(stripes: tuple[int, ...] = (1, -1)) -> list[SeriesRow]:
    axes = product(stripes, (2**20, 10**6), (1, 2, 10), ("POSIX", "MPIIO"), ("write", "read"))
    return [
        _row(n, {"api": a, "operation": o, "transfer_bytes": t, "stripe_count": s, "nodes": k, "ranks": 24 * k})
        for n, (s, t, k, a, o) in enumerate(axes)
    ]


def test_numeric_parameters_are_columns_and_text_parameters_are_rows() -> None:
    grid = build_heat_map(_ior(), lambda row: row).grids[0]
    assert [(head.name, [span.label for span in head.spans]) for head in grid.heads] == [
        ("stripe count", ["full striping", "1"]),
        ("transfer", ["1,000,000 B", "1 MiB"] * 2),
        # Sorted as numbers, not as text; ranks follow from nodes and are not a separate axis.
        ("nodes", ["1", "2", "10"] * 4),
    ]
    assert [row.label for row in grid.rows] == ["read MPI-IO", "read POSIX", "write MPI-IO", "write POSIX"]


def test_operation_is_a_column_if_there_are_few_columns() -> None:
    grid = build_heat_map([row for row in _ior((1,)) if row.case.parameters["nodes"] == 1], lambda row: row).grids[0]
    assert [head.name for head in grid.heads] == ["transfer", "operation"]
    assert [row.label for row in grid.rows] == ["MPI-IO", "POSIX"]


def test_stacks_and_file_systems_are_groups_of_columns() -> None:
    axes = product(("gnu", "intel"), ("home", "scratch"), ("POSIX", "MPIIO"), (1, 2))
    rows = [
        _row(n, {"api": a, "file_system": f, "nodes": k, "operation": "write"}, stack=s)
        for n, (s, f, a, k) in enumerate(axes)
    ]
    grid = build_heat_map(rows, lambda row: row).grids[0]
    assert [(head.name, [(span.label, span.columns) for span in head.spans]) for head in grid.heads] == [
        ("stack", [("gnu", 4), ("intel", 4)]),
        ("file system", [("home", 2), ("scratch", 2)] * 2),
        ("nodes", [("1", 1), ("2", 1)] * 4),
    ]
    assert [row.label for row in grid.rows] == ["write MPI-IO", "write POSIX"]


def test_numbers_become_rows_before_stacks_do() -> None:
    """Three stacks with 10 sizes are 30 columns, more than 24."""
    rows = [_row(n, {"nodes": n % 10}, stack=f"s{n // 10}") for n in range(30)]
    grid = build_heat_map(rows, lambda row: row).grids[0]
    assert [head.name for head in grid.heads] == ["stack"]
    assert len(grid.rows) == 10


def test_file_systems_become_rows_before_stacks_do() -> None:
    """Six stacks with five file systems are 30 columns."""
    rows = [_row(n, {"file_system": f"f{n % 5}"}, stack=f"s{n // 5}") for n in range(30)]
    grid = build_heat_map(rows, lambda row: row).grids[0]
    assert [head.name for head in grid.heads] == ["stack"]
    assert [row.label for row in grid.rows] == [f"f{n}" for n in range(5)]


def test_heat_map_size_is_limited() -> None:
    big = [_row(n, {"ranks": n}, "big") for n in range(3000)]
    found = build_heat_map([*_ior(), *big], lambda row: row)
    assert [grid.benchmark for grid in found.grids] == ["ior"]
    assert [(entry.name, entry.series) for entry in found.left_out] == [("big", 3000)]


scalars = st.one_of(st.integers(-1, 2000), st.booleans(), st.sampled_from(["a", "b 10", "b 9", "128x128x1", ""]))
cases = st.lists(
    st.dictionaries(st.sampled_from(["api", "ranks", "nodes", "operation", "odd"]), scalars),
    min_size=1,
    max_size=60,
    unique_by=lambda one: Case("ior", one).canonical,
)


@given(cases)
@settings(deadline=None)
def test_every_case_has_one_cell_and_most_cells_have_a_case(parameters: list[dict[str, Scalar]]) -> None:
    rows = [_row(n, one) for n, one in enumerate(parameters)]
    grid = build_heat_map(rows, lambda row: row).grids[0]
    fields = [cell for row in grid.rows for cell in row.cells]
    # 1 and true are two values in JSON, but equal in Python: such cases share a cell.
    held = [cell.id for cell in fields if cell is not None]
    assert len(held) == len(set(held))
    if not any(isinstance(v, bool) for one in parameters for v in one.values()):
        assert sorted(held) == list(range(len(rows)))
    assert len(fields) <= 3 * len(rows) + 8
    for head in grid.heads:
        assert sum(span.columns for span in head.spans) == len(grid.rows[0].cells)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten sessions of reads and writes on 1 to 4 nodes.

    In the newest one writes on 2 nodes are 60 % slower, 4 nodes are missing, and 8 nodes ran for the first time.
    """
    place = tmp_path_factory.mktemp("heat")
    with History.open(str(place / "history.db")) as history:
        for number in range(10):
            uuid, begin = f"night-{number}", START + number * DAY_S
            history.begin_session(build_session(uuid, started_at=begin))
            sizes = [1, 2, *([4] if number < 9 else [8])]
            history.record_runs(uuid, [_run(nodes, number, begin + 60 * nodes) for nodes in sizes])
            history.end_session(uuid, "ok", begin + 900)
        update_findings(history, "local", datetime.fromtimestamp(START + 10 * DAY_S, UTC))
        build_site(history, place / "site", pages=pages_named("index.html", "overview.html", "series"))
    return place / "site"


def _run(nodes: int, number: int, begin: int) -> RunRecord:
    fell = number == 9 and nodes == 2
    case: dict[str, Scalar] = {"api": "POSIX", "nodes": nodes}
    values = {"write": 40.0 if fell else 100.0, "read": 200.0}
    results = tuple(build_result(value, operation=op, case=case) for op, value in values.items())
    return build_run(*results, name=f"ior:{nodes}", started_at=begin)


def test_cells_show_the_results_of_the_newest_session(site: Path) -> None:
    text = (site / "overview/local.html").read_text(encoding="utf-8")
    fields = re.findall(r'<td class="(\w+)( flag)?"><a href="[^"]*" title="([^"]*)">([^<]*)</a>', text)
    cells_shown = {
        re.sub(r"\D*(write|read).*nodes (\d).*", r"\1 \2", title): (kind, shown) for kind, _, title, shown in fields
    }
    assert cells_shown == {
        "write 1": ("same", "100"),
        "write 2": ("w3", "40"),
        # Missing result: no colour, and no number of another session.
        "write 4": ("lacking", "–"),
        "write 8": ("none", "?"),
        **{f"read {n}": ("same", "100") for n in (1, 2)},
        "read 4": ("lacking", "–"),
        "read 8": ("none", "?"),
    }
    words = re.sub(r"<[^>]+>", "", text)
    assert "1 below, 2 without result, 3 as accepted, 2 not assessed." in words


def test_cells_of_a_first_session_are_values(tmp_path: Path) -> None:
    """One session with writes of 100 and reads of 200 MiB/s on one node."""
    with History.open(str(tmp_path / "history.db")) as history:
        history.begin_session(build_session("first", started_at=START))
        history.record_runs("first", [_run(1, 0, START)])
        history.end_session("first", "ok", START + 900)
        build_site(history, tmp_path / "site", pages=[overview.PAGE])
    text = (tmp_path / "site/overview/local.html").read_text(encoding="utf-8")
    assert sorted(re.findall(r'<td class="none"><a [^>]*>([^<]*)</a>', text)) == ["100", "200"]
    assert "no series has an accepted level yet (7 observations are needed" in text


def test_index_links_to_cells_below_the_level(browser: Browser, site: Path) -> None:
    assert 'href="overview/local.html#outcome=below"' in (site / "overview.html").read_text()
    browser.open(site / "overview/local.html", "#outcome=below")
    assert browser.run("return document.querySelector('output').textContent") == "1 of 8"
    bright = "return [...document.querySelectorAll('.matrix td:not(.pale) a')].map(a => a.textContent)"
    assert browser.run(bright) == ["40"]


def test_arrow_keys_move_between_cells(browser: Browser, site: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open(site / "overview/local.html")
    assert browser.run("return document.querySelectorAll('.matrix a[tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('.matrix a').focus()")
    titles = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
        ActionChains(browser.driver).send_keys(key).perform()
        titles.append(
            browser.run("return document.activeElement.title.match(/(read|write).*nodes (\\d)/).slice(1).join(' ')")
        )
    assert titles == ["write 1", "read 2", "write 2", "read 2"]
    assert browser.run("return document.activeElement.tabIndex") == 0
    assert browser.run("return document.querySelectorAll('.matrix a[tabindex=\"0\"]').length") == 1
    assert browser.messages() == []


def test_click_on_a_cell_leads_to_its_series(browser: Browser, site: Path) -> None:
    browser.open(site / "overview/local.html")
    browser.driver.find_element("css selector", ".matrix td.w3 a").click()
    browser.wait("return location.pathname.includes('/series/')")
    title = browser.run("return document.querySelector('h1').innerText")
    assert "write" in title
    assert "nodes 2" in title


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("suite", "attributes", "status", "newest"),
    [
        # A manual session in the morning, or an A/B run, does not replace the nightly session.
        ("smoke", {}, "ok", "night-9"),
        ("nightly", {"ab_run": {"left": "a", "right": "b"}}, "ok", "night-9"),
        # An aborted nightly session counts, independent of the number of its results.
        ("nightly", {}, "ok", "later"),
        ("survey", {}, "incomplete", "later"),
        ("survey", {}, "running", "later"),
    ],
)
def test_manual_session_after_the_nightly_one_is_not_the_newest(
    tmp_path: Path, suite: str, attributes: dict[str, object], status: Status, newest: str
) -> None:
    """Sessions of four runs at 02:00, one of one run at 10:00: as the newest session it would lack three series."""
    with History.open(str(tmp_path / "history.db")) as history:
        for number in range(10):
            uuid, begin = f"night-{number}", START + number * DAY_S
            history.begin_session(build_session(uuid, started_at=begin))
            history.record_runs(uuid, [_run(nodes, number, begin + 60 * nodes) for nodes in (1, 2, 4, 8)])
            history.end_session(uuid, "ok", begin + 900)
        begin += 8 * 3600
        history.begin_session(
            build_session("later", suite=suite, started_at=begin, facts=SessionFacts.from_document(attributes))
        )
        history.record_runs("later", [_run(1, 10, begin)])
        if status != "running":
            history.end_session("later", status, begin + 60)
        pages = pages_named("index.html", "overview.html")
        build_site(history, tmp_path / "site", now=datetime.fromtimestamp(begin + 3600, UTC), pages=pages)
    text = (tmp_path / "site/overview/local.html").read_text(encoding="utf-8")
    lacking = 0 if newest == "night-9" else 6
    assert len(re.findall(r'<td class="(?:lacking|waiting)', text)) == lacking
    assert f'href="session/{newest}.html">All results of the session' in (tmp_path / "site/index.html").read_text(
        encoding="utf-8"
    )


def test_series_that_ended_long_ago_are_not_in_the_map(tmp_path: Path) -> None:
    with History.open(str(tmp_path / "history.db")) as history:
        for number in (0, *range(40, 50)):
            uuid, begin = f"night-{number}", START + number * DAY_S
            history.begin_session(build_session(uuid, started_at=begin))
            history.record_runs(uuid, [_run(1 if number else 64, number, begin)])
            history.end_session(uuid, "ok", begin + 900)
        build_site(history, tmp_path / "site", pages=pages_named("overview.html"))
    text = (tmp_path / "site/overview/local.html").read_text(encoding="utf-8")
    # Without a detection there is no noise estimate: per cent, and no colour.
    fields = re.findall(r'<td class="(\w+)"><a href="[^"]*" title="[^"]*no noise estimate">(\d+)', text)
    assert fields == [("unassessed", "100")] * 2
    assert "2 series without a result for 30 days are in the table" in text
    assert "2 not assessed, 2 inactive" in re.sub(r"<[^>]+>", "", text)
