"""Where striping applies: on Lustre. Elsewhere cases that differ in their striping alone are one case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from iowatch.suites import SuiteCase
from iowatch.systems.mounts import TECHNOLOGY, file_system_type

OPTIONS = ("stripe-count", "stripe-size")


def obstacle(directory: Path) -> str | None:
    """The file system of a directory (which need not be there yet) that cannot stripe; None on Lustre."""
    kind = file_system_type(os.path.realpath(directory))
    technology = TECHNOLOGY.get(kind, kind)
    return None if technology == "Lustre" else technology


def doubles(cases: Sequence[SuiteCase], directory: Path) -> dict[str, str]:
    """Runs that would repeat another one of their suite in this directory, and why.

    Returns:
        `<benchmark>:<case>` -> reason, of all but the first of cases that differ in their striping alone; empty
        on Lustre.
    """
    technology = obstacle(directory)
    if technology is None:
        return {}
    reason = f"striping does not apply on {technology}, and without it this is another case of the suite"
    seen: set[tuple[object, ...]] = set()
    found = {}
    for case in cases:
        rest = {name: value for name, value in case.options.items() if name not in OPTIONS}
        key = (case.suite, case.benchmark, *sorted((name, str(value)) for name, value in rest.items()))
        if key in seen:
            found[f"{case.benchmark}:{case.name}"] = reason
        seen.add(key)
    return found
