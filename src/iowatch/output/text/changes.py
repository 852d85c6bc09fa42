"""Sizes of changes as text, and names in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Changes by less than this factor, in either direction, are stated in per cent: ×1.039 would be ×1 in two digits. With
# twice as much (as logarithm, ×1.44) ×0.7 would be −30 %, which is harder to compare with ×0.5 beside it.
_SMALL_FACTOR = 1.2
# Factors and percentages from this one on, which is rounded to 10, are stated without decimals.
_WHOLE = 9.95


def format_factor(ratio: float) -> str:
    """The size of a change: in two significant digits, or an integer above ten: `×0.48`, `×2.9`, `×51`.

    Small changes in per cent: `+3.9 %`, `−12 %`. All texts, pages and notices state ratios of findings like this.
    """
    if is_small_change(ratio):
        return f"{_sign(ratio)}{format_percentage(ratio)}"
    return f"×{ratio:.0f}" if ratio >= _WHOLE else f"×{ratio:.2g}"


def is_small_change(ratio: float) -> bool:
    """Whether a ratio is stated in per cent alone: between ×0.83 and ×1.2."""
    return ratio > 0 and abs(math.log(ratio)) < math.log(_SMALL_FACTOR)


def format_change(gain: float, *, is_largest: bool = False) -> str:
    """A gain of performance as per cent and factor: `lost 46 % (×0.54)`, `gained 190 % (×2.9)`, `lost 3.9 %`.

    Args:
        is_largest: whether it is the largest of several: `lost up to 46 % (×0.54)`.
    """
    verb = "lost" if gain < 1 else "gained"
    if is_largest:
        verb = f"{verb} up to"
    return f"{verb} {_format_size(gain)}"


def format_percent(gain: float) -> str:
    """The same with a sign, for lists: `−46 % (×0.54)`, `+190 % (×2.9)`, `−3.9 %`."""
    return f"{_sign(gain)}{_format_size(gain)}"


def _sign(ratio: float) -> str:
    return "−" if ratio < 1 else "+"


def _format_size(gain: float) -> str:
    """Per cent, and the factor where it says more."""
    if is_small_change(gain):
        return format_percentage(gain)
    return f"{format_percentage(gain)} ({format_factor(gain)})"


def format_percentage(ratio: float) -> str:
    """How far a ratio is from 1, without a sign: `3.9 %`, `46 %`, `1,900 %`."""
    percent = 100 * abs(ratio - 1)
    digits = f"{percent:,.0f}" if percent >= _WHOLE else f"{percent:.1f}"
    return f"{digits} %"


def join_names(names: Sequence[str]) -> str:
    """`HDF5`, `HDF5 and MPI-IO`, `HDF5, MPI-IO and disk`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
