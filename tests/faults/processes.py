"""Processes of a `var/`: children of a killed program that still run."""

from __future__ import annotations

import os
from pathlib import Path


def remaining_processes(var: Path) -> list[int]:
    """Ids of other processes that were started with this `IOWATCH_VAR`."""
    wanted = f"IOWATCH_VAR={var}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found
