"""The page of Franklin: what was published beside what was measured here."""

from __future__ import annotations

from pathlib import Path

from iowatch.benchmarks import suites
from iowatch.demo.scenarios import franklin_scenario
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.pages.franklin import measured_case
from iowatch.store import History
from tests.builders import build_output, build_result, build_run, build_session
from tests.output.dashboard.chosen_pages import pages_named


def test_franklin_page_has_the_newest_measured_value_beside_the_replayed_ones(tmp_path: Path) -> None:
    """13 replayed series; a checkpoint of flash-io was measured twice with HDF5, then once with another interface."""
    with History.open(str(tmp_path / "history.db")) as history:
        for number, (api, value) in enumerate([("HDF5", 150.0), ("HDF5", 222.0), ("PNETCDF", 333.0)]):
            case = {"workload": "flash-io", "api": api, "file": "shared", "ranks": 4}
            result = build_result(value, operation="checkpoint write", case=case)
            begin, output = 1_760_000_400 + number * 86400, build_output(result, tool="benchio")
            run = build_run(name=f"f{number}", stack="gcc", started_at=begin, output=output)
            history.begin_session(build_session(f"s{number}", system="here", started_at=run.started_at))
            history.record_runs(f"s{number}", [run])
            history.end_session(f"s{number}", "ok", run.started_at + 60)
        build_site(history, tmp_path / "site", pages=pages_named("franklin.html"))
    page = (tmp_path / "site" / "franklin.html").read_text()
    rows = [row for row in page.split("<tr>") if 'scope="row"' in row]
    assert len(rows) == 13
    assert [">222 MiB/s</a>, 4 ranks, here" in row for row in rows if "write HDF5 shared, 2048 ranks" in row] == [True]
    assert sum("not yet: suite franklin-small of" in row for row in rows) == 12
    assert "150 MiB/s" not in page
    assert "333 MiB/s" not in page
    # 800 MB/s before the maintenance and 2,000 after it, in MiB/s.
    assert '<td class="number">762.9 MiB/s</td><td class="number">1907 MiB/s</td>' in page


def test_replayed_series_have_a_workload_that_measures_them() -> None:
    """Operations are those of the cases of the suites `franklin-small`."""
    known = set()
    for case in suites.load_suite("franklin-small"):
        if "workload" in case.options or case.benchmark == "ior":
            name = str(case.options.get("workload", case.benchmark))
            known |= {(name, operation) for operation, _ in case.expects}
    for series in franklin_scenario().series:
        benchmark, parameters = measured_case(series)
        assert (benchmark, parameters["operation"]) in known
