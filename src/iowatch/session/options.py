"""What a command asks of a session, as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iowatch.core import UsageError
from iowatch.site import NightlyPolicy, System, load_system


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """What a command asks of a session.

    Attributes:
        system: name of the system on which the session runs.
        suite: name of the suite whose cases it runs.
        stacks: only these; empty means all. Of an A/B run they are the left and the right one.
        benchmarks: only cases of these; empty means all of the suite.
        case_names: only these cases, `<case>` or `<benchmark>:<case>`; empty means all.
        file_systems: names of file systems, or `all`, instead of those of the suite.
        scratch: directory instead of that of the default file system.
        darshan: `on` requires darshan-runtime in every stack; `off` traces nothing; None traces where possible.
        policy: budget and blackouts, and whether suspected runs are retested; None runs the whole suite once.
    """

    system: str
    suite: str
    stacks: Sequence[str] = ()
    benchmarks: Sequence[str] = ()
    case_names: Sequence[str] = ()
    file_systems: Sequence[str] = ()
    scratch: Path | None = None
    darshan: Literal["on", "off"] | None = None
    policy: NightlyPolicy | None = None


def load_active_system(name: str) -> System:
    """Load a system on which sessions can run.

    Raises:
        UsageError: unknown or retired system.
    """
    system = load_system(name)
    if system.retired:
        raise UsageError(
            f"system '{name}' cannot be run: {system.retired}",
            hint="It is kept for published figures and `iowatch import`.",
        )
    return system


def nightly_policy(system: str, *, jitter: bool) -> NightlyPolicy:
    """The block `night` of a system; for an immediate start without its jitter."""
    policy = load_active_system(system).night
    return policy if jitter else policy.model_copy(update={"jitter_minutes": None})
