"""Sizes of changes as text: small ones in per cent, larger ones as factors."""

from __future__ import annotations

import pytest

from iowatch.output.text.changes import format_change, format_factor, format_percent


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        # 1.039 was "×1"; the limits are ×1.2 and its inverse, 0.8333.
        *((1.039, "+3.9 %"), (1.199, "+20 %"), (1.201, "×1.2"), (0.961, "−3.9 %")),
        *((0.834, "−17 %"), (0.833, "×0.83"), (1.0951, "+9.5 %"), (1.0996, "+10 %"), (1.0, "+0.0 %")),
        *((0.48, "×0.48"), (2.94, "×2.9"), (9.94, "×9.9"), (9.96, "×10"), (51.2, "×51"), (0.00312, "×0.0031")),
    ],
)
def test_changes_below_a_fifth_are_in_per_cent(ratio: float, text: str) -> None:
    assert format_factor(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "with_verb", "with_sign"),
    [
        (0.54, "lost 46 % (×0.54)", "−46 % (×0.54)"),
        (2.9, "gained 190 % (×2.9)", "+190 % (×2.9)"),
        (0.961, "lost 3.9 %", "−3.9 %"),
        (1.125, "gained 12 %", "+12 %"),
        (21.0, "gained 2,000 % (×21)", "+2,000 % (×21)"),
    ],
)
def test_factor_follows_the_percentage_where_the_change_is_large(ratio: float, with_verb: str, with_sign: str) -> None:
    assert (format_change(ratio), format_percent(ratio)) == (with_verb, with_sign)


def test_largest_of_several_changes_is_called_so() -> None:
    assert format_change(0.9, is_largest=True) == "lost up to 10 %"
