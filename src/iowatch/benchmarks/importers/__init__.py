"""Formats that no session writes; loaded when such a file is imported or parsed."""

from __future__ import annotations
