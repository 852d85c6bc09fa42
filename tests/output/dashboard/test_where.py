"""The page Where: targets and nodes session by session, the slowest first, readable with 24 and with 500 targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.core import DAY_S
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.pages.where import MAX_ROWS, SPEED_CLASSES, _cell_class
from iowatch.statistics.slow_siblings import MIN_RATIO
from iowatch.store import History
from tests.builders import START_S, build_output, build_run, build_session, store_session
from tests.findings.test_slow_targets import rates_of, store_node_nights
from tests.output.dashboard.chosen_pages import pages_named

NIGHTS = 10


def record_targets(history: History, targets: int, slow_name: str, nights: int = NIGHTS) -> None:
    """Sessions of the suite; the slow target has a tenth of the rate in the newest three."""
    names = tuple(f"OST {number}" for number in range(targets))
    for day in range(nights):
        slow = {slow_name: 0.1} if day >= nights - 3 else {}
        facts = {"target_rates": rates_of(day, slow, names, targets).to_json()}
        started = START_S + day * DAY_S
        run = build_run(name="target_probe", started_at=started, output=build_output(tool="target_probe"), facts=facts)
        store_session(history, build_session(f"night-{day}", suite="targets", started_at=started), [run])


def tables_of(page: str) -> list[str]:
    return re.findall(r"<table.*?</table>", page, re.DOTALL)


def row_names(table: str) -> list[str]:
    return re.findall(r'<th scope="row">([^<]*?) ?(?:<span[^>]*>slow</span>)?</th>', table)


@pytest.mark.parametrize(("targets", "hidden"), [(24, 0), (500, 500 - MAX_ROWS)])
def test_slowest_targets_are_first_and_the_others_are_summarised(
    targets: int, hidden: int, history: History, tmp_path: Path
) -> None:
    record_targets(history, targets, "OST 14")
    site = build_site(history, tmp_path / "site", pages=pages_named("where.html", "index.html")).index.parent
    page = (site / "where" / "local.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Targets: write", "Targets: read"]
    for table in tables_of(page):
        names = row_names(table)
        assert len(names) == min(targets, MAX_ROWS)
        assert names[0] == "OST 14"
        assert table.count(">slow</span>") == 1
        # Every row has a strip; the newest three cells of the slow target are of the slowest class.
        first = re.findall(r"<svg.*?</svg>", table)[0]
        assert f'class="{SPEED_CLASSES[-1].kind}"' in first
        assert "10 sessions: 3 below, 0 above what is usual for the others, 0 without data" in first
        assert table.count("<svg") == len(names)
    assert page.count(f"{hidden} more targets: ") == (2 if hidden else 0)
    assert page.count("<li>target OST 14 (work-OST14) ") == 2
    index = (site / "where.html").read_text()
    assert f">{targets} targets<" in index
    status = (site / "index.html").read_text()
    assert "local: slower than the others" in status
    assert 'href="where/local.html"' in status
    assert "target OST 14 (work-OST14) " in status


def test_nodes_are_shown_by_partition(history: History, tmp_path: Path) -> None:
    store_node_nights(history, nights=24, slow_from=12)
    site = build_site(history, tmp_path / "site", pages=pages_named("where.html")).index.parent
    page = (site / "where" / "local.html").read_text()
    (table,) = tables_of(page)
    assert "<h2>Nodes of partition default</h2>" in page
    assert row_names(table)[0] == "n5"
    assert len(row_names(table)) == 12
    assert "<li>n5 has 0.4" in page
    # A night without the node is a dash.
    assert 'class="none"' in table


def test_site_without_targets_says_how_to_measure_them(history: History, tmp_path: Path) -> None:
    site = build_site(history, tmp_path / "site", pages=pages_named("where.html", "index.html")).index.parent
    assert "The suite <code>targets</code>" in (site / "where.html").read_text()
    assert not (site / "where").exists()
    assert "slower than the others" not in (site / "index.html").read_text()


def test_hostile_name_of_a_target_is_escaped(history: History, tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", *(f"t{number}" for number in range(8)))
    facts = {"target_rates": rates_of(1, {names[0]: 0.1}, names).to_json()}
    run = build_run(name="target_probe", output=build_output(tool="target_probe"), facts=facts)
    store_session(history, build_session("night"), [run])
    site = build_site(history, tmp_path / "site", pages=pages_named("where.html", "index.html")).index.parent
    for name in ("where/local.html", "where.html", "index.html"):
        text = (site / name).read_text()
        assert "alert(1)" in text
        assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("speed", "kind"),
    [(0.1, "w3"), (0.39, "w3"), (0.4, "w2"), (0.66, "w2"), (0.67, "w1"), (0.8, "same"), (1.0, "same"), (1.3, "b1")],
)
def test_class_of_a_cell(speed: float, kind: str) -> None:
    assert _cell_class(speed) == kind


def test_what_can_be_named_is_coloured() -> None:
    """A target is named from MIN_RATIO on: such cells have one of the two strongest classes."""
    assert _cell_class(1 / MIN_RATIO * 0.999) == "w2"
    assert _cell_class(1 / MIN_RATIO) == "w1"
    assert _cell_class(float("nan")) == "none"
