"""`iowatch logs report`: totals, patterns, and the changes that applications have in common, on simulated years."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from iowatch.applications.fleet import production, tables
from iowatch.applications.fleet.batch import COUNTED, log_schema
from iowatch.applications.fleet.report import build_log_report
from iowatch.applications.fleet.tables import LogStore
from iowatch.core import DAY_S, MIB, Case
from iowatch.findings import Finding, grouping
from iowatch.findings.finding import PerformanceDirection
from iowatch.output.dashboard.build import build_site
from iowatch.store import History
from tests.builders import build_change_point, build_finding, build_points, build_series_change, build_series_row
from tests.output.dashboard.chosen_pages import pages_named

START_S = 20_454 * DAY_S  # 1 January 2026
_ZERO = {field.name: 0 for field in log_schema().field("layers").type.value_type}


def _layer(
    name: str, layout: str, written: int, seconds: float, *, unaligned: float, independent: int = 0
) -> dict[str, Any]:
    count = max(1, written // MIB)
    sizes = [0, 0, 0, 0, count, 0, 0, 0, 0, 0]
    moved = {"writes": count, "bytes_written": written, "write_sizes": sizes, "read_sizes": [0] * 10, "files": 1}
    times = {"slowest_s": seconds, "write_time_s": seconds * 10, "unaligned": int(unaligned * count)}
    place = {"file_system": "lustre", "layer": name, "layout": layout, "alignment": MIB if name == "POSIX" else None}
    return {**_ZERO, **moved, **times, **place, "independent_writes": independent}


def simulate_year(
    seed: int,
    *,
    applications: int = 60,
    days: int = 365,
    felt: int = 20,
    planted: int | None = None,
    loss: float = 0.3,
    slow_nodes: float = 1.0,
) -> list[dict[str, Any]]:
    """Rows of logs of applications that each run about once a day and write one of two amounts.

    The first `felt` applications write one shared file, unaligned, through MPI-IO; from day `planted` on they need
    longer if one of their 1, 2, 4 or 8 nodes is slow, as the slowest rank of a shared file decides; jobs get nodes at
    random, of which the share `slow_nodes` is slow. The others write a file per process. Runs of one application vary
    by 10 to 25 % (standard deviation of the logarithm); 5 % are common to all runs of a day, with a correlation of 0.7
    from day to day.
    """
    dice = np.random.default_rng(seed)
    load = np.zeros(days)
    for day in range(1, days):
        load[day] = 0.7 * load[day - 1] + dice.normal(0, 0.05 * np.sqrt(1 - 0.7**2))
    rows = []
    for i in range(applications):
        noise, level = dice.uniform(0.1, 0.25), dice.uniform(200, 20_000)
        amounts = dice.uniform(1, 4) * 1024 * MIB * np.array([1, 30])
        for day in range(days):
            for _ in range(dice.poisson(1.2)):
                amount = int(amounts[int(dice.random() < 0.2)] * dice.uniform(0.97, 1.03))
                is_hit = planted is not None and day >= planted and i < felt
                if is_hit and slow_nodes < 1:
                    is_hit = dice.random() < 1 - (1 - slow_nodes) ** (1 << (i % 4))
                slow = 1 - loss if is_hit else 1.0
                bandwidth = level * slow * np.exp(load[day] + dice.normal(0, noise))
                seconds = amount / MIB / bandwidth
                layout = "shared" if i < felt else "unique"
                layers = [_layer("POSIX", layout, amount, seconds, unaligned=0.9 if i < felt else 0.0)]
                if i < felt:
                    layers.append(_layer("MPI-IO", layout, amount, seconds, unaligned=0, independent=amount // MIB))
                number = len(rows)
                file = {"file": number.to_bytes(16, "big"), "size": 1, "mtime_ns": 1, "outcome": COUNTED}
                job = {
                    "log": f"{seed}-{number}",
                    "start_s": START_S + day * DAY_S + dice.uniform(0, DAY_S),
                    "run_time_s": 2 * seconds,
                }
                facts = {"ranks": 64 << (i % 4), "application": f"app{i:02d}", "darshan": "3.5.0", "partial": False}
                rows.append({**file, **job, **facts, "layers": layers})
    return rows


def store_rows(system: str, rows: list[dict[str, Any]]) -> LogStore:
    import pyarrow

    store = LogStore(system)
    store.commit(pyarrow.Table.from_pylist(rows, schema=log_schema()))
    return store


@dataclass(frozen=True)
class Year:
    """Logs of a simulated time and what is found in them.

    Attributes:
        place: `var/` with the logs.
        rows: the logs, as they are stored.
        short: number of applications with too few runs for a series.
    """

    place: Path
    rows: list[dict[str, Any]]
    series: list[production.ApplicationSeries]
    short: int
    changes: list[production.ProductionChange]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Year]:
    """A quarter of twelve applications, four of which are slower from day 60 on."""
    place = tmp_path_factory.mktemp("year")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOWATCH_VAR", str(place))
        rows = simulate_year(1, applications=12, days=100, felt=4, planted=60, loss=0.4)
        store = store_rows("here", rows)
        with store.connect() as database:
            selection = production.application_series(store, database)
        series = selection.series
        changes = production.find_changes(series)
        yield Year(place, rows, series, selection.too_short_count, changes)


@pytest.fixture
def in_year(year: Year, monkeypatch: pytest.MonkeyPatch) -> Year:
    monkeypatch.setenv("IOWATCH_VAR", str(year.place))
    return year


def finding(direction: PerformanceDirection, day: int) -> Finding:
    first_after = START_S + day * DAY_S
    return build_finding(direction=direction, last_before=first_after - DAY_S, first_after=first_after)


def test_runs_of_one_pattern_are_one_series(year: Year) -> None:
    """Twelve applications with two amounts each; the larger amount is written by a fifth of the runs: about 24."""
    assert (len(year.series), year.short) == (12, 12)
    assert {one.row.case.parameters["application"] for one in year.series} == {f"app{i:02d}" for i in range(12)}
    parameters = [one.row.case.parameters for one in year.series]
    assert {(p["api"], p["file"], p["aligned"]) for p in parameters} == {
        ("MPIIO", "shared", False),
        ("POSIX", "per-process", True),
    }
    assert all(one.runs == int(one.points.count.sum()) >= 40 for one in year.series)


def test_applications_that_changed_together_are_found_with_their_common_factor(year: Year) -> None:
    (change,) = production.common_changes(year.changes)
    assert change.changed == ("app00", "app01", "app02", "app03")
    assert abs(change.group.first_after - (START_S + 60 * DAY_S)) <= 2 * DAY_S
    assert change.gain == pytest.approx(0.6, abs=0.06)
    assert "4 of 12 applications lost" in change.text("here") or change.uncertain
    assert change.explanation is not None
    assert change.explanation.rule is not None
    assert production.common_changes(year.changes, START_S + 90 * DAY_S) == []


def test_a_third_of_the_nodes_is_felt_by_all_applications_of_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of jobs on 8 nodes 96 % get a slow one; of those on one node a third, too few to be dated alone."""
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path))
    rows = simulate_year(1, applications=12, days=160, felt=4, planted=80, loss=0.5, slow_nodes=1 / 3)
    store = store_rows("here", rows)
    with store.connect() as database:
        series = production.application_series(store, database).series
    dated = production.detect_applications(series)
    assert dated[next(one.row.id for one in series if one.row.case.parameters["application"] == "app00")] == ()
    (change,) = production.common_changes(production.find_changes(series))
    assert change.changed == ("app00", "app01", "app02", "app03")
    assert change.explanation is not None
    assert "unaligned MPI-IO shared file" in change.text("here")
    (single,) = [one for one in change.group.main if one.row.case.parameters["application"] == "app00"]
    # A third of the runs has half of the bandwidth: 0.5 ** (1 / 3) = 0.79 in the geometric mean.
    assert single.change.ratio == pytest.approx(0.79, abs=0.08)
    assert abs(change.group.first_after - (START_S + 80 * DAY_S)) <= 4 * DAY_S


@pytest.mark.parametrize(
    ("true", "dated", "direction", "same"),
    [
        (60, 60, "down", True),
        (60, 75, "down", True),  # the fifteen observations in between are at the new level
        (60, 50, "down", True),
        (75, 75, "down", False),  # … at the old level
        (50, 50, "down", False),
        (60, 75, "up", False),
        (60, 125, "down", False),  # more than 60 days later
    ],
)
def test_a_badly_dated_change_is_one_of_the_date_of_others(
    true: int, dated: int, direction: PerformanceDirection, same: bool
) -> None:
    """A loss of a fifth on day `true`, noise 12 %, dated on day `dated`; the others changed on day 60."""
    times = START_S + np.arange(160) * DAY_S
    levels = np.where(np.arange(160) < true, 1000.0, 800.0)
    values = levels * np.exp(np.random.default_rng(8).normal(0, 0.12, 160))
    points = build_points(values, times=times)
    own = build_change_point(times[dated], 0.8, before=1000.0, observations=160 - dated)
    opposite = build_change_point(times[dated], 1.25, before=800.0)
    other = build_series_change(build_series_row(2), own if direction == "down" else opposite)
    group = grouping.ChangeGroup((other,), START_S + 59 * DAY_S, START_S + 60 * DAY_S)
    assert production._may_be_of_date(own, points, group) is same


def test_constant_series_do_not_end_the_comparison(year: Year) -> None:
    """Beside applications that changed together; without noise there is no test of its own."""
    first = year.series[-1]
    flat = np.ones(len(first.points.time))  # their logarithms have no rounding, either
    points = replace(first.points, series_id=999, median=flat, max=flat, min=flat, mean=flat)
    row = replace(first.row, id=999, case=Case("application", {**first.row.case.parameters, "application": "flat"}))
    constant = replace(first, row=row, points=points)
    (change,) = production.common_changes(production.find_changes([*year.series, constant]))
    assert change.changed == ("app00", "app01", "app02", "app03")
    assert "flat" in change.unchanged


def test_application_with_a_changed_series_is_not_unchanged(year: Year) -> None:
    """Another program of the first application keeps its level."""
    other = year.series[-1]
    parameters = {**other.row.case.parameters, "application": "app00"}
    series = [*year.series[:-1], replace(other, row=replace(other.row, case=Case("application", parameters)))]
    (change,) = production.common_changes(production.find_changes(series))
    assert change.changed == ("app00", "app01", "app02", "app03")
    assert change.unchanged == tuple(f"app{i:02d}" for i in range(4, 11))


def test_bandwidth_of_a_day_is_the_median_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three runs is ten times as fast as the others: MiB over the seconds of the slowest rank."""
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path))
    (row, *_) = simulate_year(1, applications=1, days=9, felt=0)
    rows = []
    for number, seconds in enumerate((20.0, 25.0, 2.0)):
        layer = _layer("POSIX", "unique", 2000 * MIB, seconds, unaligned=0)
        rows.append({**row, "file": bytes([number] * 16), "log": f"log-{number}", "layers": [layer]})
    with store_rows("here", rows).connect() as database:
        patterns = tables.make_run_table(database, min_bytes=1, min_time_s=0)
        (day,) = tables.daily_bandwidths(database, {pattern["pattern"]: 7 for pattern in patterns})
    assert (day.cluster, day.runs, day.median) == (7, 3, pytest.approx(100))


def test_a_finding_is_compared_with_production(year: Year) -> None:
    felt = production.felt_by_production(finding("down", 60), year.changes, year.series)
    assert felt.changed == ("app00", "app01", "app02", "app03")
    for other in (finding("up", 60), finding("down", 30)):
        answer = production.felt_by_production(other, year.changes, year.series)
        assert answer.changed == ()
        compared = len(answer.unchanged)
        assert answer.text("here") == f"no application changed: {compared} compared"
        # Upwards on the day of the loss, those that lost are neither changed nor unchanged.
        assert compared == (8 if other.direction == "up" else 12)
    early = production.felt_by_production(finding("down", -300), year.changes, year.series)
    assert early.text("here") == "no application has runs on both sides"


def test_report_adds_up_what_the_logs_say(in_year: Year) -> None:
    document = build_log_report("here").document
    written = sum(one["bytes_written"] for row in in_year.rows for one in row["layers"] if one["layer"] == "POSIX")
    assert document["logs"]["bytes_written"] == written
    assert document["logs"]["logs"] == len(in_year.rows)
    assert [one["bytes_written"] for one in document["applications"]] == sorted(
        (one["bytes_written"] for one in document["applications"]), reverse=True
    )
    assert sum(one["runs"] for one in document["applications"]) == len(in_year.rows)
    assert sum(one["bytes_written"] for one in document["patterns"]) == written
    shared = [one for one in document["patterns"] if one["layout"] == "shared"]
    assert {one["interface"] for one in shared} == {"MPI-IO"}
    assert {remedy["key"] for one in shared for remedy in one["remedies"]} == {"alignment"}
    assert {remedy["key"] for one in document["patterns"] if one not in shared for remedy in one["remedies"]} == set()
    later = build_log_report("here", START_S + 60 * DAY_S).document["logs"]
    assert later["first_day"] == "2026-03-02"
    assert later["logs"] == sum(row["start_s"] >= START_S + 60 * DAY_S for row in in_year.rows)


PATTERN = {
    "layout": "shared", "alignment": MIB, "reads": 0, "writes": 10_000, "unaligned": 0, "small_reads": 0,
    "small_writes": 0, "collective_writes": 0, "independent_writes": 0, "small_mpiio_writes": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "keys"),
    [
        ({}, []),
        ({"unaligned": 1001}, ["alignment"]),
        ({"unaligned": 1000}, []),  # 10 % and not more
        ({"unaligned": 5000, "layout": "unique"}, []),  # of a file per process: no other rank waits for the lock
        ({"unaligned": 5000, "alignment": 4096}, []),  # not striped
        ({"independent_writes": 5000, "collective_writes": 10, "small_mpiio_writes": 4000}, ["collective"]),
        ({"independent_writes": 5000, "collective_writes": 6000, "small_mpiio_writes": 4000}, []),
        ({"small_writes": 1001}, ["small"]),
        ({"small_writes": 1000}, []),
    ],
)
def test_remedies_follow_from_counters(facts: dict[str, Any], keys: list[str]) -> None:
    assert [one.key for one in production.remedies({**PATTERN, **facts})] == keys


def test_the_command_reports_and_explains(cli: Callable[..., Result], in_year: Year, tmp_path: Path) -> None:
    found = cli("logs", "report", "--system", "here", "--json")
    document = json.loads(found.stdout)
    assert found.exit_code == 1
    assert len(document["changes"][0]["applications_changed"]) == 4
    shown = cli("logs", "report", "--system", "here", "--since", "2026-04-09")
    assert shown.exit_code == 0
    assert "no change that applications have in common: 12 series compared" in shown.stdout
    absent = cli("logs", "report", "--system", "elsewhere")
    assert (absent.exit_code, "no Darshan logs of 'elsewhere'" in absent.output) == (2, True)


def test_the_page_shows_what_changed(in_year: Year, tmp_path: Path) -> None:
    with History.open(str(tmp_path / "history.db")) as history:
        build_site(history, tmp_path / "site", pages=pages_named("applications.html", "findings.html"))
    page = (tmp_path / "site" / "applications.html").read_text()
    assert "4 of 12 applications lost" in page
    assert page.count("<figure>") == 4
    assert page.count('class="mark event"') == 4  # those of the applications that changed
    assert "not aligned to 1 MiB" in page
    assert 'href="applications.html"' in (tmp_path / "site" / "findings.html").read_text()
    parts = sorted(LogStore("here").root.rglob("*.parquet"))
    kept = parts[0].read_bytes()
    parts[0].write_bytes(b"damaged")
    with History.open(str(tmp_path / "history.db")) as history:
        build_site(history, tmp_path / "site", pages=pages_named("applications.html", "findings.html"))
    assert "cannot be read" in (tmp_path / "site" / "applications.html").read_text()
    parts[0].write_bytes(kept)
