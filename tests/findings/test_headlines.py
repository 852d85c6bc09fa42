"""The monitored result of a case: one per case, a bandwidth if the tool reports one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iowatch.core import Output, Result
from iowatch.findings import headline_series
from iowatch.findings.series import observation_mask
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

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
    run = RunRecord(f"{tool}:a", "work", StackRecord("gnu", {}), "f", 5, Output(tool, "1", "ok", None, results))
    with History.open(str(tmp_path / "h.db")) as history:
        history.begin_session(SessionRecord("s", "here", "nightly", "run", 5))
        history.record_runs("s", [run])
        assert [row.metric for row in headline_series(history, "here")] == [watched]


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        # Both runs of the retest count, at its first and at its last second.
        ((50, 100, 149, 150, 300), (50, 150, 300)),
        ((50, 100, 200, 300), (50, 200, 300)),
        ((100, 149, 150, 170, 200, 201), (150, 170, 200, 201)),
        # A series without a retest keeps its first run.
        ((50, 100, 149, 201), (50, 100, 149, 201)),
        ((99, 150), (99, 150)),
        ((), ()),
    ],
)
def test_retest_replaces_the_first_run_of_its_session(times: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """A session from 100 to 200 s whose retest began at 150 s."""
    moments = np.asarray(times, dtype=np.int64)
    assert moments[observation_mask(moments, np.array([[100, 150, 200]]))].tolist() == list(kept)
