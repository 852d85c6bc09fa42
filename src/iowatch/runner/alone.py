"""Keeping every run away for a while: what replaces the history must not do so under a run's feet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from iowatch import paths, systems
from iowatch.runner import lock


@contextmanager
def alone() -> Iterator[None]:
    """Hold the locks of all systems of this checkout, and any other lock that a run of this `var/` ever made.

    Raises:
        MachineError: a run is going on.
    """
    place = paths.var() / "lock"
    known = {f"{name}.lock" for name in systems.names()} | {path.name for path in place.glob("*.lock")}
    with ExitStack() as held:
        for name in sorted(known):
            held.enter_context(lock.hold(place / name))
        yield
