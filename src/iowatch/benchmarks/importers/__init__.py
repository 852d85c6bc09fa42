"""Formats that no session writes; read where such a file is imported or parsed."""

from __future__ import annotations
