"""Which series have a theoretical peak beside them."""

from __future__ import annotations

import pytest

from iowatch.dashboard.limits import limits_of
from iowatch.model import Case
from iowatch.store import SeriesRow
from iowatch.systems import load


@pytest.mark.parametrize(
    ("metric", "peak"),
    [
        ("bandwidth", 30e9 / 2**20),  # source 000, section 4: 30 GB/s
        ("raw_bandwidth", 30e9 / 2**20),
        ("observed_bandwidth", 30e9 / 2**20),
        ("rank_bandwidth", None),
        ("time", None),
    ],
)
def test_bandwidths_over_all_ranks_have_the_file_systems_peak(metric: str, peak: float | None) -> None:
    case = Case("h5bench", {"operation": "write", "file_system": "fs3", "ranks": 4})
    row = SeriesRow(1, "archer", "default", "published", case, metric, 9, 0, 1)
    found = limits_of(row, load("archer"), None).peak
    assert found == (None if peak is None else pytest.approx(peak))
