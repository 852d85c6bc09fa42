"""`iowatch system show`: the contents of a system file as interpreted."""

from __future__ import annotations

import io

from rich.console import Console

from iowatch.site.show import render_system
from iowatch.site.system import System

SYSTEM = {
    "name": "here",
    "title": "[draft] a cluster",
    "nodes": [{"name": "gpu", "count": 1, "cores": 64, "processor": "X [v2]", "source": "notes [/p. 3]"}],
    "night": {
        "bytes": "500g",
        "blackouts": [
            {"reason": "maintenance", "days": ["tue"], "start": "06:00", "end": "18:00"},
            {"reason": "backup", "start": "22:30", "end": "01:00"},
            {"reason": "holidays", "since": "2026-12-24", "until": "2027-01-01"},
        ],
    },
}


def shown(system: System) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    render_system(system, console)
    return console.export_text()


def test_night_settings_are_shown() -> None:
    text = shown(System.model_validate(SYSTEM))
    assert "bytes 500 GiB" in text
    assert "blackout 'maintenance' (tue 06:00 to 18:00 UTC)" in text
    assert "blackout 'backup' (every day 22:30 to 01:00 UTC)" in text
    assert "blackout 'holidays' (every day, since 2026-12-24, until 2027-01-01)" in text


def test_measured_file_systems_are_shown_with_their_limits() -> None:
    entry = {"name": "project", "mount": "/p", "directory": "/p/io", "technology": "GPFS", "source": "x"}
    entry["limits"] = {"total_bytes": "1t", "files": 500}  # type: ignore[assignment]
    text = shown(System.model_validate({**SYSTEM, "scratch": "/lustre/io", "file_systems": [entry]}))
    rows = [line.split() for line in text.splitlines()]
    assert ["scratch", "(default)", "/lustre/io"] in rows
    assert ["project", "/p/io", "mount", "/p", "total_bytes", "1", "TiB,", "files", "500"] in rows
    assert "measured file system" not in shown(System.model_validate({**SYSTEM, "scratch": "/lustre/io"}))


def test_text_in_brackets_is_shown() -> None:
    text = shown(System.model_validate(SYSTEM))
    assert "[draft] a cluster" in text
    assert "1 node; 64 cores; X [v2]" in text
    assert "notes [/p. 3]" in text
