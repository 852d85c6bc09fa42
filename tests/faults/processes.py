"""Processes of a `var/`: what of a killed program still goes on."""

from __future__ import annotations

import os
from pathlib import Path


def survivors(var: Path) -> list[int]:
    """Numbers of other processes that were started with this `IOWATCH_VAR`."""
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
