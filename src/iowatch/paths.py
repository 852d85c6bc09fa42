"""Where things are: the checkout (systems, suites, references) and its `var/`."""

from __future__ import annotations

import os
from pathlib import Path

from iowatch.errors import MachineError


def root() -> Path:
    """The directory that holds `systems/`, `benchmarks/` and `reference/`.

    `IOWATCH_ROOT` names it; otherwise it is the checkout that this package was installed from, or the nearest
    parent of the working directory that looks like one.

    Raises:
        MachineError: none of these is a checkout.
    """
    named = os.environ.get("IOWATCH_ROOT")
    here = Path(__file__).resolve()
    candidates = [Path(named)] if named else [here.parents[2], Path.cwd(), *Path.cwd().parents]
    for candidate in candidates:
        if (candidate / "systems").is_dir() and (candidate / "benchmarks").is_dir():
            return candidate
    raise MachineError(
        f"no iowatch checkout found (looked at {candidates[0]})",
        hint="Set IOWATCH_ROOT to the clone that holds systems/ and benchmarks/.",
    )


def var() -> Path:
    """The directory of everything that runs leave behind: `IOWATCH_VAR`, or `var/` in the checkout."""
    named = os.environ.get("IOWATCH_VAR")
    return Path(named) if named else root() / "var"
