"""Sizes of changes as text, and names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def format_factor(ratio: float) -> str:
    """A ratio as text: two significant digits below ten, an integer above: `×0.48`, `×2.9`, `×51`."""
    return f"×{ratio:.0f}" if ratio >= 9.95 else f"×{ratio:.2g}"


def format_change(gain: float, *, is_largest: bool = False) -> str:
    """A gain of performance as per cent and factor: `lost 46 % (×0.54)`, `gained 190 % (×2.9)`.

    Args:
        is_largest: whether it is the largest of several: `lost up to 46 % (×0.54)`.
    """
    verb = "lost" if gain < 1 else "gained"
    if is_largest:
        verb = f"{verb} up to"
    return f"{verb} {_format_size(gain)}"


def format_percent(gain: float) -> str:
    """The same with a sign, for lists: `−46 % (×0.54)`, `+190 % (×2.9)`."""
    sign = "−" if gain < 1 else "+"
    return f"{sign}{_format_size(gain)}"


def _format_size(gain: float) -> str:
    percent = 100 * abs(gain - 1)
    digits = f"{percent:,.0f}" if percent >= 0.95 else f"{percent:.1f}"
    return f"{digits} % ({format_factor(gain)})"


def join_names(names: Sequence[str]) -> str:
    """`HDF5`, `HDF5 and MPI-IO`, `HDF5, MPI-IO and disk`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
