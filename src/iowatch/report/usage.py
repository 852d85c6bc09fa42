"""Disk usage for people."""

from __future__ import annotations

from rich.console import Console

from iowatch.store.usage import Usage
from iowatch.units import counted, format_size


def render_usage(usage: Usage, console: Console) -> None:
    """Print what takes room, what is left, and what will go wrong."""
    size = "not there yet" if usage.database_bytes is None else format_size(usage.database_bytes)
    free = "unknown" if usage.free_bytes is None else format_size(usage.free_bytes)
    lines = [f"\nHistory: {usage.database}: {size}"]
    told = "; ".join(
        f"{p.name} {format_size(p.size_bytes)} in {counted(p.files, 'file')}" for p in usage.parts if p.files
    )
    lines.append(f"{usage.var} ({usage.file_system}): {told or 'nothing yet'}; {free} free")
    lines += [f"Warning: {warning}" for warning in usage.warnings]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
