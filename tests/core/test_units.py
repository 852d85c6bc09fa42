"""Conversion of units and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iowatch.core import (
    InputError,
    format_count,
    format_number,
    format_size,
    format_time,
    parse_size,
    parse_time,
    to_mib_per_s,
)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.0, "MiB/s", 1.0),
        (1.0, "GiB/s", 1024.0),  # captured/README.md: benchio of 2024 prints GiB/s (2^30)
        (1170.0, "MB/s", 1115.80),  # 1170 MB/s is 1116 MiB/s (issue "References", on [bartz2014])
        (11.0, "GB/s", 10490.42),
    ],
)
def test_bandwidths_become_mib_per_s(value: float, unit: str, expected: float) -> None:
    assert to_mib_per_s(value, unit) == pytest.approx(expected, rel=1e-5)


def test_unknown_unit_is_refused() -> None:
    with pytest.raises(InputError, match="Gflops"):
        to_mib_per_s(1.0, "Gflops")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("1m", 2**20), ("1MiB", 2**20), ("1mb", 10**6), ("1.5g", 3 * 2**29), ("1000000", 10**6)],
)
def test_sizes_are_exact(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "m", "1.0000001k", "-1", "1x", "1e6", "0x10"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2009-03-17", datetime(2009, 3, 17, tzinfo=UTC)),
        ("2009-03-17T02:00:00+01:00", datetime(2009, 3, 17, 1, tzinfo=UTC)),
        ("1237248000", datetime(2009, 3, 17, tzinfo=UTC)),  # date -u -d @1237248000
    ],
)
def test_times_are_utc(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "nan", "1e30", "2009-13-01", "0001-01-01T00:00+14:00"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_time(text)


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))
def test_formatted_time_is_parsed_back(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC, microsecond=0)
    assert parse_time(format_time(aware)) == aware


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234.5678, "1235"), (0.0012345, "0.001234"), (15946.277, "15946"), (None, "–"), (float("nan"), "–"), (0.0, "0")],
)
def test_numbers_are_formatted_with_four_digits(value: float | None, expected: str) -> None:
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("number", "one", "expected"),
    [(0, "night", "0 nights"), (1, "night", "1 night"), (2, "night", "2 nights"), (1, "series", "1 series")],
)
def test_counts_use_the_singular_for_one(number: int, one: str, expected: str) -> None:
    assert format_count(number, one) == expected
    assert format_count(7, "series") == "7 series"


def test_sizes_are_formatted_in_powers_of_1024() -> None:
    assert [format_size(n) for n in (512, 2**20, 3 * 2**29)] == ["512 B", "1 MiB", "1.5 GiB"]
