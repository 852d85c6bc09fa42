"""Values of case parameters in words."""

from __future__ import annotations

import pytest

from iowatch.core import Scalar
from iowatch.findings import format_parameter_value


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("transfer_bytes", 2**20, "1 MiB"),
        ("block_bytes", 64 * 1024, "64 KiB"),
        # Sizes that are no whole KiB are exact: a rounded one would look aligned.
        ("transfer_bytes", 10**6, "1,000,000 B"),
        ("transfer_bytes", 47008, "47,008 B"),
        ("transfer_bytes", 1536, "1,536 B"),
        ("transfer_bytes", 512, "512 B"),
        ("ranks", 1024, "1024"),
        ("sync", True, "true"),
        ("collective", False, "independent"),
        ("stripe_count", -1, "full striping"),
        ("stripe_count", 0, "default striping"),
        ("stripe_count", 4, "4"),
        ("file", "per-process", "file per process"),
        ("file_system", "shared", "shared"),
    ],
)
def test_value_of_a_parameter_in_words(parameter: str, value: Scalar, text: str) -> None:
    assert format_parameter_value(parameter, value) == text
