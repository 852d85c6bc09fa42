"""Published ratios of two interfaces: figures of one table that differ in nothing else."""

from __future__ import annotations

import pytest

from iowatch.reference import published_ratio


def test_ratio_is_that_of_equal_cases_of_one_table() -> None:
    ratio = published_ratio("write", "HDF5", "MPIIO")
    assert ratio is not None
    assert 0 < ratio.lowest <= ratio.highest
    inverse = published_ratio("write", "MPIIO", "HDF5")
    assert inverse is not None
    assert inverse.highest == pytest.approx(1 / ratio.lowest)


def test_interfaces_that_no_table_has_together_have_no_ratio() -> None:
    assert published_ratio("write", "HDF5", "raw") is None
