"""The scaling page: published curves, and results of the same system in the figures of the same quantity."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import Scalar, format_number
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.data import published_measurements
from iowatch.output.dashboard.pages import scaling
from iowatch.output.dashboard.scaling_curves import OwnCurve, read_table
from iowatch.reference import published
from iowatch.store import History, RunRecord
from tests.builders import build_output, build_result, build_run, build_session
from tests.output.dashboard.browser import Browser

START = 1_700_000_000
# Of `other_page`: all results over processes, each family of cases over nodes.
OWN_TITLES = ["mycluster: own results over processes"]
OWN_TITLES += [f"mycluster: benchio MPI-IO {operation} over nodes" for operation in ("read", "write")]
SPEEDS = {"write": 10.0, "read": 1000.0}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Text of each figure of a site whose ARCHER ran MPI-IO and NetCDF with 4 and 16 writers, by its title."""
    folder = tmp_path_factory.mktemp("scaling")
    runs = [
        _run(ranks, api, START + ranks + shift) for ranks in (4, 16) for shift, api in enumerate(("MPIIO", "NETCDF4"))
    ]
    with History.open(str(folder / "history.db")) as history:
        history.begin_session(build_session("one", system="archer", started_at=START), [])
        history.record_runs("one", runs)
        history.end_session("one", "ok", START + 60)
        build_site(history, folder / "site", pages=[scaling.PAGE, scaling.PUBLISHED_PAGE])
    text = (folder / "site/published.html").read_text(encoding="utf-8")
    sections = re.findall(r"<section.*?</section>", text, re.DOTALL)
    return {html.unescape(t[1]): s for s in sections if (t := re.search("<h3>(.*?)</h3>", s))}


@pytest.fixture(scope="module")
def other_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a site whose `mycluster` ran 4 and 16 writers on one node, 64 on four."""
    folder = tmp_path_factory.mktemp("other")
    shapes = ((4, 1), (16, 1), (64, 4))
    with History.open(str(folder / "history.db")) as history:
        history.begin_session(build_session("one", system="mycluster", started_at=START), [])
        history.record_runs("one", [_run(ranks, "MPIIO", START + ranks, nodes) for ranks, nodes in shapes])
        history.end_session("one", "ok", START + 600)
        build_site(history, folder / "site", pages=[scaling.PAGE, scaling.PUBLISHED_PAGE])
    return folder / "site/scaling.html"


@pytest.fixture(scope="module")
def other(other_page: Path) -> str:
    """Its text, and that of the page of published tables."""
    pages = (other_page, other_page.with_name("published.html"))
    return html.unescape("".join(page.read_text(encoding="utf-8") for page in pages))


def _run(ranks: int, api: str, time: int, nodes: int | None = None) -> RunRecord:
    case: dict[str, Scalar] = {"api": api, "file": "shared", "ranks": ranks}
    if nodes is not None:
        case["nodes"] = nodes
    results = tuple(build_result(v * ranks, operation=op, case=case) for op, v in SPEEDS.items())
    output = build_output(*results, tool="benchio")
    return build_run(name=f"{api}{ranks}", fingerprint=f"{api}{ranks}", started_at=time, output=output)


def test_own_curves_are_in_published_figures_of_the_same_quantity(figures: dict[str, str]) -> None:
    """[lawrence2017] has only writes: tables 1 to 6 of MPI-IO, 7 to 10 of NetCDF; the site has reads, too."""
    own = {
        title: set(re.findall(r"this site, archer: benchio ([\w-]+ \w+) shared", figure))
        for title, figure in figures.items()
        if title.startswith("archer: ") and "own results" not in title
    }
    mpiio = [found for title, found in own.items() if "MPI-IO" in title and "NetCDF" not in title and found]
    netcdf = [found for title, found in own.items() if "NetCDF" in title and found]
    assert mpiio
    assert netcdf
    assert all(found == {"MPI-IO write"} for found in mpiio)
    assert all(found == {"NetCDF-4 write"} for found in netcdf)


def test_every_published_bandwidth_table_is_drawn(figures: dict[str, str]) -> None:
    """[lawrence2017] prints 21 tables of bandwidths, [bartz2014] 18 (A.1 to A.18); each once, with its values."""
    anchors = [m[1] for figure in figures.values() if (m := re.search(r'<section[^>]* id="t-([^"]*)"', figure))]
    assert anchors == [f"lawrence2017-{n}" for n in range(1, 22)] + [f"bartz2014-A.{n}" for n in range(1, 19)]
    for table in (t for t in published.load_all_tables() if published.has_long_form(t)):
        anchor = f"t-{published.source_key(table.source)}-{table.name}"
        figure = next(f for f in figures.values() if f'id="{anchor}"' in f)
        assert f"iowatch reference show --published {published.source_key(table.source)} {table.name}<" in figure
        cells = re.findall(r'<td class="number">([^<–]+)</td>', figure)
        assert "more curves" not in figure
        rows = [row for row in published.table_measurements(table) if row["unit"] == "MiB/s"]
        printed = {format_number(float(str(row["value"]))) for row in rows if row["statistic"] == "max"}
        assert printed <= set(cells), table.name


def test_curve_labels_of_a_figure_are_distinct(figures: dict[str, str]) -> None:
    """[bartz2014], Table A.9: as many targets as MiB per transfer; four curves, as in the paper."""
    names = {t: re.findall(r'<span class="key c\d">([^<]*)</span>', f) for t, f in figures.items()}
    assert all(len(set(found)) == len(found) for found in names.values())
    hamburg = next(found for title, found in names.items() if title.endswith("Figure 4.14"))
    assert sorted(hamburg) == ["read collective", "read independent", "write collective", "write independent"]
    load = next(found for title, found in names.items() if "4 files" in title)
    assert "aggregate" in load


def test_results_of_another_machine_are_in_figures_of_the_same_case(other: str) -> None:
    """Results of an unpublished machine: in figures of the same benchmark and case only."""
    figures = {
        m[1]: s for s in re.findall(r"<section.*?</section>", other, re.DOTALL) if (m := re.search('id="([^"]*)"', s))
    }
    mine = {name for name, figure in figures.items() if "this site, mycluster" in figure}
    assert {"t-lawrence2017-1", "t-lawrence2017-2", "t-lawrence2017-15"} <= mine
    assert not any(name.startswith("t-bartz2014") for name in mine)
    # Four files at the same time are another case (table 12).
    assert "t-lawrence2017-12" not in mine
    assert "the same case on mycluster, another machine than the paper" in figures["t-lawrence2017-2"]


def test_own_results_are_drawn_over_processes_and_nodes(other: str) -> None:
    """Ranks per node differ, so that curves over nodes and over processes differ."""
    titles = re.findall("<h3>(mycluster[^<]*)</h3>", other)
    assert titles == OWN_TITLES


def test_published_curves_are_behind_own_ones_of_the_same_case_if_they_are_not_much_higher() -> None:
    """[lawrence2017], table 2, has 24 to 24,576 writers, the site 24 to 96; it draws what is at most twice as high."""
    printed = read_table(_measurements("lawrence2017", "2"))

    def own(value: float) -> OwnCurve:
        shared: dict[str, Scalar] = {"api": "MPIIO", "operation": "write", "collective": True}
        return OwnCurve("archer", "benchio", "own", shared, [(24.0, value / 2), (96.0, value)])

    top = max(value for x, value in printed.points(printed.plotted) if 24 <= x <= 96)
    drawn = scaling._published_behind([own(top / 1.9)], "writers", [printed])
    (curve,) = drawn.curves
    assert (curve.behind, [x for x, _ in curve.points], drawn.too_high) == (True, [24.0, 48.0, 96.0], 0)
    assert scaling._published_behind([own(top / 2.1)], "writers", [printed]) == scaling.PublishedCurves([], 1)
    # Of another interface there is none.
    other = OwnCurve("archer", "benchio", "own", {"api": "HDF5", "operation": "write"}, [(24.0, top), (96.0, top)])
    assert scaling._published_behind([other], "writers", [printed]) == scaling.PublishedCurves([], 0)


def _measurements(source: str, name: str) -> list[Mapping[str, Any]]:
    where = f"{source}/{name}"
    return [row for rows in published_measurements().values() for row in rows if row["where"] == where]


@pytest.fixture(scope="module")
def nights_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a site with four nights of 1, 2 and 4 nodes with 4 ranks each; on 8 nodes only the last one."""
    folder = tmp_path_factory.mktemp("nights")
    with History.open(str(folder / "history.db")) as history:
        for night, speed in enumerate((10.0, 11.0, 12.0, 8.0)):
            runs = []
            for nodes, efficiency in ((1, 1.0), (2, 0.9), (4, 0.75), (8, 0.5))[: 4 if night == 3 else 3]:
                for shift, (api, factor) in enumerate((("MPIIO", 40.0), ("POSIX", 50.0))):
                    time = START + 86_400 * night + 10 * nodes + shift
                    case: dict[str, Scalar] = {"api": api, "file": "shared", "ranks": 4 * nodes, "nodes": nodes}
                    for operation in ("write", "read"):
                        value = speed * factor * nodes * efficiency * (2 if operation == "read" else 1)
                        output = build_output(build_result(value, operation=operation, case=case), tool="benchio")
                        name = f"{api}{nodes}{operation}"
                        runs.append(build_run(name=name, fingerprint=f"{name}{night}", started_at=time, output=output))
            record = build_session(f"night{night}", system="mycluster", started_at=START + 86_400 * night)
            history.begin_session(record, [])
            history.record_runs(record.uuid, runs)
            history.end_session(record.uuid, "ok", START + 86_400 * night + 600)
        build_site(history, folder / "site")
    return folder / "site/scaling.html"


def test_results_over_nodes_stand_beside_earlier_sessions(nights_page: Path) -> None:
    """Newest night: 8 MiB/s x 50 per node; the median of the earlier three nights is that of the second, 11 x 50."""
    text = nights_page.read_text(encoding="utf-8")
    section = next(s for s in re.findall(r"<section.*?</section>", text, re.DOTALL) if "POSIX write over nodes" in s)
    rows = re.findall(r'<tr><th scope="row"><a href="(series/\d+.html)">(\d+)</a></th>(.*?)</tr>', section)
    assert all((nights_page.parent / page).exists() for page, _, _ in rows)
    cells = {nodes: re.findall(r'<td class="number">(.*?)</td>', columns) for _, nodes, columns in rows}
    assert cells == {
        "1": ["400", "550 (3)", "100 %"],
        "2": ["720", "990 (3)", "90 %"],
        "4": ["1200", "1650 (3)", "75 %"],
        "8": ["1600", "–", "50 %"],
    }
    assert section.count('<polyline class="curve c0') == 2
    assert "dotted: median of earlier sessions" in section
    # The table of numbers has the newest ones only.
    assert "1650" not in section[section.index("The numbers") :]


OPEN = "return [...document.querySelectorAll('.row > details[open] > summary > h3')].map(one => one.textContent)"


def test_own_results_are_open_and_published_tables_are_opened_by_a_filter(browser: Browser, other_page: Path) -> None:
    """[lawrence2017] has two tables of Cirrus and one of several systems."""
    from selenium.webdriver.support.select import Select

    browser.resize(1440, 900)
    browser.open(other_page)
    assert browser.run(OPEN) == OWN_TITLES
    published_page = other_page.with_name("published.html")
    browser.open(published_page)
    assert browser.run(OPEN) == []
    assert browser.run("return document.documentElement.scrollHeight") < 3000
    Select(browser.driver.find_element("id", "f-system")).select_by_value("cirrus")
    opened = browser.run(OPEN)
    assert len(opened) == 3
    assert all("irrus" in title or "benchmark systems" in title for title in opened)
    address = browser.run("return location.hash")
    browser.open(published_page, address)
    assert browser.run(OPEN) == opened
    Select(browser.driver.find_element("id", "f-system")).select_by_value("")
    assert browser.run(OPEN) == []
    assert browser.messages() == []


def test_link_from_another_page_opens_its_table(browser: Browser, other_page: Path) -> None:
    browser.open(other_page.with_name("published.html"), "#t-lawrence2017-2")
    browser.wait("return document.querySelectorAll('.row > details[open]').length === 1")
    top = "return document.getElementById('t-lawrence2017-2').getBoundingClientRect()"
    box = browser.run(top)
    assert -1 <= box["top"] < 900
    assert box["height"] > 200
