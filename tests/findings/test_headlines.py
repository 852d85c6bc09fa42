"""The monitored result of a case: one per case, a bandwidth if the tool reports one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iowatch.core import Result
from iowatch.findings import combine_retests, find_retests, headline_series
from iowatch.findings.series import observation_starts
from iowatch.output.text.sessions import format_retest
from iowatch.store import History, SeriesPoints
from tests.builders import build_output, build_result, build_run, build_session

UNITS = {"time": "s", "rate": "1/s"}


@pytest.mark.parametrize(
    ("tool", "metrics", "watched"),
    [
        ("ior", ("time", "bandwidth"), "bandwidth"),
        ("mdtest", ("rate",), "rate"),
        # h5bench's raw bandwidth does not include the time for metadata; IOR's bandwidth does.
        ("h5bench", ("raw_bandwidth", "time", "observed_bandwidth"), "observed_bandwidth"),
        ("hdf5_iotest", ("time",), "time"),
    ],
)
def test_one_series_per_case_is_monitored(tmp_path: Path, tool: str, metrics: tuple[str, ...], watched: str) -> None:
    results = tuple(Result("write", m, UNITS.get(m, "MiB/s"), (1.0, 2.0), {"ranks": 2}) for m in metrics)
    run = build_run(name=f"{tool}:a", started_at=5, output=build_output(*results, tool=tool))
    with History.open(str(tmp_path / "h.db")) as history:
        history.begin_session(build_session("s", system="here", started_at=5))
        history.record_runs("s", [run])
        assert [row.metric for row in headline_series(history, "here")] == [watched]


@pytest.mark.parametrize(
    ("times", "starts"),
    [
        # Both runs of the retest count, at its first and at its last second.
        ((50, 100, 149, 150, 300), (50, 100, 300)),
        ((50, 100, 200, 300), (50, 100, 300)),
        ((99, 100, 149, 150, 170, 200, 201), (99, 100, 201)),
        # A series without a retest keeps its runs, and so does one without a first run.
        ((50, 100, 149, 201), (50, 100, 149, 201)),
        ((99, 150), (99, 150)),
        ((), ()),
    ],
)
def test_run_and_retest_are_one_observation(times: tuple[int, ...], starts: tuple[int, ...]) -> None:
    """A session from 100 to 200 s whose retest began at 150 s."""
    moments = np.asarray(times, dtype=np.int64)
    assert moments[observation_starts(moments, np.array([[100, 150, 200]]))].tolist() == list(starts)


@pytest.mark.parametrize("first_is_better", [True, False])
def test_observation_is_the_geometric_mean_of_run_and_retest(first_is_better: bool) -> None:
    """Neither value is chosen for its size: the order does not matter, and both count half."""
    pair = (800.0, 200.0) if first_is_better else (200.0, 800.0)
    values = np.array([1000.0, *pair, 1000.0])
    ids, times = np.arange(4), np.array([50, 100, 150, 300])
    points = SeriesPoints(7, times, values, values / 2, values / 4, values, np.array([5, 5, 3, 5]), ids)
    found = combine_retests(points, np.array([[100, 150, 200]]))
    assert found.time.tolist() == [50, 100, 300]
    assert found.run_id.tolist() == [0, 1, 3]
    assert found.max == pytest.approx([1000, 400, 1000])
    assert found.median == pytest.approx([500, 200, 500])
    assert found.count.tolist() == [5, 8, 5]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (["n1", "n2"], ["n3", "n4"], "on other nodes (n[3-4] instead of n[1-2]), 12 min after the first run"),
        (["n1", "n2"], ["n2", "n3"], "on partly the same nodes, 12 min after the first run"),
        (["n1"], ["n1"], "on the same nodes (n1), 12 min after the first run"),
        ([], ["n1"], "on unknown nodes, 12 min after the first run"),
    ],
)
def test_place_of_a_retest_is_stated(tmp_path: Path, first: list[str], second: list[str], text: str) -> None:
    with History.open(str(tmp_path / "h.db")) as history:
        history.begin_session(build_session("s", system="here", started_at=5))
        for name, moment, nodes in (("ior:a", 5, first), ("ior:a#retest", 725, second), ("ior:b", 6, first)):
            result = build_result(1.0, case={"ranks": 2})
            history.record_runs("s", [build_run(result, name=name, started_at=moment, facts={"nodes": nodes})])
        (found,) = find_retests(history.runs("s"))
    assert (found.name, found.stack, format_retest(found)) == ("ior:a", "gnu", text)
