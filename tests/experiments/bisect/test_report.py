"""Words of reports about bisections."""

from __future__ import annotations

import pytest

from iowatch.experiments.bisect.report import _format_numbers


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "3"),
        ([1, 2], "1, 2"),
        ([1, 2, 3], "1 to 3"),
        ([*range(1, 13), 14, 15, 17, *range(20, 23)], "1 to 12, 14, 15, 17, 20 to 22"),
    ],
)
def test_parts_in_a_row_are_a_range(numbers: list[int], text: str) -> None:
    assert _format_numbers(numbers) == text
