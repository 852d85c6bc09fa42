"""Which of a run's results is watched: one a case, and a bandwidth wherever the tool gives one."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.findings.detection import headline_series
from iowatch.model import Output, Result
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

UNITS = {"time": "s", "rate": "1/s"}


@pytest.mark.parametrize(
    ("tool", "metrics", "watched"),
    [
        ("ior", ("time", "bandwidth"), "bandwidth"),
        ("mdtest", ("rate",), "rate"),
        # h5bench's raw figure leaves out what metadata costs, as IOR's bandwidth does not.
        ("h5bench", ("raw_bandwidth", "time", "observed_bandwidth"), "observed_bandwidth"),
        ("hdf5_iotest", ("time",), "time"),
    ],
)
def test_one_series_a_case_is_watched(
    tmp_path: Path, tool: str, metrics: tuple[str, ...], watched: str
) -> None:
    results = tuple(Result("write", m, UNITS.get(m, "MiB/s"), (1.0, 2.0), {"ranks": 2}) for m in metrics)
    run = RunRecord(f"{tool}:a", "work", StackRecord("gnu", {}), "f", 5, Output(tool, "1", "ok", None, results))
    with History.open(str(tmp_path / "h.db")) as history:
        history.begin_session(SessionRecord("s", "here", "nightly", "run", 5))
        history.record_runs("s", [run])
        assert [row.metric for row in headline_series(history, "here")] == [watched]
