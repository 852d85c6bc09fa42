"""Texts of several experiments."""

from __future__ import annotations


def format_change(fraction: float | None) -> str:
    return "?" if fraction is None else f"{100 * fraction:+.1f} %"
