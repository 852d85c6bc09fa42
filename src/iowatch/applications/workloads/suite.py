"""A workload in a suite of the site: from then on its phases are series with findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from iowatch.benchmarks.suites import read_suite_file
from iowatch.benchmarks.workloads import default_ranks, read_description
from iowatch.core import IowatchError, UsageError, files, settings
from iowatch.core.yamlfile import read_mapping
from iowatch.site import exceeded_limits, load_system

# Of a new case; people change the file.
_TIME_LIMIT_S = 600
_REPEAT = 3


@dataclass(frozen=True)
class SuiteEntry:
    """Where a workload is run.

    Attributes:
        system: name of the system.
        suite: for example `nightly`; the file `<suite>+<workload>.yaml` adds to it.
        ranks: None for those that the workload was made from.
        nodes: number of nodes.
    """

    system: str
    suite: str
    ranks: int | None
    nodes: int


def add_workload(file: Path, entry: SuiteEntry) -> list[Path]:
    """Put a workload into a suite of the site, for one system.

    Args:
        file: the description.
        entry: suite, system and size.

    Returns:
        The files written, or changed.

    Raises:
        UsageError: unknown system, the workload is there already, or it exceeds the system's limits.
        InputError: an invalid description.
    """
    document = read_description(file)
    text = file.read_text(encoding="utf-8")
    name = str(document["name"])
    system = load_system(entry.system)
    site_workload = settings.site_file("workload", name)
    suite_addition = settings.site_file("suite", "benchio", f"{entry.suite}+{name}")
    if any(path.exists() for path in settings.all_files("workload", name)[1:]):
        raise UsageError(f"'{name}' is a workload of iowatch", hint="Change `name` in the description.")
    if site_workload.exists() and site_workload.read_text(encoding="utf-8") != text:
        raise UsageError(f"{site_workload} is another workload of this name", hint="Change `name` in the description.")
    systems = _systems_of(suite_addition)
    if entry.system in systems:
        raise UsageError(f"{suite_addition}: {entry.system} has this workload already")
    addition = _make_addition(name, entry.ranks or default_ranks(document), entry.nodes)
    addition["systems"] = [*systems, entry.system]

    earlier_texts = {path: _read_if_there(path) for path in (site_workload, suite_addition)}
    files.write_atomically(site_workload, text)
    files.write_atomically(suite_addition, yaml.safe_dump(addition, sort_keys=False))
    # Only what was written can be read as a suite; what the system cannot run is taken back.
    try:
        exceeded: list[str] = []
        for case in read_suite_file(suite_addition):
            exceeded += exceeded_limits(case, system.limits)
        if exceeded:
            raise UsageError(
                f"{entry.system} cannot run {name}: {'; '.join(exceeded)}", hint="--ranks and --nodes change its size."
            )
    except IowatchError:
        _restore(earlier_texts)
        raise
    return [site_workload, suite_addition]


def _systems_of(suite_addition: Path) -> list[str]:
    """The systems that have the workload in the suite."""
    if not suite_addition.exists():
        return []
    return list(read_mapping(suite_addition).get("systems", []))


def _make_addition(name: str, ranks: int, nodes: int) -> dict[str, Any]:
    """The document that adds a workload to a suite, in the order of its members."""
    case = {"workload": name, "ranks": ranks, "nodes": nodes, "repeat": _REPEAT, "cache": "drop"}
    return {
        "format": 1,
        "summary": f"workload {name} on {ranks} ranks",
        "may_differ": ["cache"],
        "systems": [],
        "time_limit": _TIME_LIMIT_S,
        "matrix": [case],
    }


def _read_if_there(path: Path) -> str | None:
    if not path.exists():
        return None
    return path.read_text(encoding="utf-8")


def _restore(earlier_texts: Mapping[Path, str | None]) -> None:
    for path, text in earlier_texts.items():
        if text is None:
            path.unlink()
        else:
            files.write_atomically(path, text)
