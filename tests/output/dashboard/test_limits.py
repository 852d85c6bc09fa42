"""Peaks and published figures of series."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import Case, Scalar
from iowatch.output.dashboard.data import _matches_case, find_limits, published_measurements
from iowatch.site.system import load_system
from tests.builders import build_series_row


@pytest.mark.parametrize(
    ("metric", "peak"),
    [
        ("bandwidth", 30e9 / 2**20),  # [lawrence2017], section 4: 30 GB/s
        ("raw_bandwidth", 30e9 / 2**20),
        ("observed_bandwidth", 30e9 / 2**20),
        ("rank_bandwidth", None),
        ("time", None),
    ],
)
def test_bandwidths_of_all_ranks_have_the_peak_of_the_file_system(metric: str, peak: float | None) -> None:
    case = Case("h5bench", {"operation": "write", "file_system": "fs3", "ranks": 4})
    row = build_series_row(system="archer", case=case, metric=metric)
    found = find_limits(row, load_system("archer"), None).peak
    assert found == (None if peak is None else pytest.approx(peak))


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        # [lawrence2017], table 1, 24 writers: maximum 896, mean 608, median 563 MiB/s.
        ({}, 896.0),
        # Table 3, stripes of 4 MiB.
        ({"stripe_bytes": 4 * 2**20}, 1013.819),
        # Table 21 states only the writers.
        ({"stripe_count": 1}, 698.198),
        ({"ranks": 25}, None),
        ({"operation": "read"}, None),
    ],
)
def test_published_figure_is_the_printed_maximum_of_the_same_case(
    changed: dict[str, Scalar], value: float | None
) -> None:
    """Four stripes of 1 MiB on ARCHER's fs3, each writer with 128x128x128 doubles."""
    case: dict[str, Scalar] = {
        **{"api": "MPIIO", "operation": "write", "pattern": "block3d", "local_size": "128x128x128"},
        **{"ranks": 24, "stripe_count": 4, "stripe_bytes": 2**20, "file_system": "fs3"},
    }
    row = build_series_row(system="archer", case=Case("benchio", case | changed))
    found = find_limits(row, None, None).published
    assert (None if found is None else found.value) == value


@pytest.mark.parametrize(
    ("own", "printed", "same"),
    [
        ({"collective": True}, {"collective": True}, True),
        ({"collective": False}, {"collective": True}, False),
        ({}, {"collective": True}, True),  # not stated by the case
        ({"stripe_bytes": 4 * 2**20}, {"stripe_size_mib": 4}, True),
        ({"stripe_bytes": 4 * 2**20}, {"stripe_size_mib": 1}, False),
        ({"instances": 4}, {"instances": 4}, True),
        ({}, {"instances": 4}, False),
    ],
)
def test_parameters_that_both_state_must_agree(own: dict[str, Scalar], printed: dict[str, Scalar], same: bool) -> None:
    row = {"benchmark": "benchio", "writers": 24, **printed}
    assert _matches_case({"ranks": 24, **own}, row) is same


def test_published_figures_are_read_per_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process: first a checkout without published tables, then this one (`IOWATCH_ROOT`)."""
    for name in ("systems", "benchmarks"):
        (tmp_path / name).mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("IOWATCH_ROOT", str(tmp_path))
        assert "archer" not in published_measurements()
    assert published_measurements()["archer"]
