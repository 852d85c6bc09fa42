"""What ReFrame will find on a system: its partitions and environments, from `systems/<name>/reframe.py`."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import InputError, IowatchError


@dataclass(frozen=True)
class Partition:
    """A ReFrame partition: name, scheduler, names of environments, directory for scratch files (or None)."""

    name: str
    scheduler: str
    environments: tuple[str, ...]
    scratch: Path | None


@dataclass(frozen=True)
class Site:
    """A system as its ReFrame configuration describes it; `features` maps environments to what they offer."""

    system: str
    configuration: Path
    partitions: tuple[Partition, ...]
    features: dict[str, frozenset[str]]


def load_site(system: str) -> Site:
    """Execute the system's ReFrame configuration, as ReFrame itself does, and read partitions and environments.

    Raises:
        InputError: the file is absent, fails, or is not of ReFrame's form.
        IowatchError: what the configuration itself reports (no stack on this machine, …).
    """
    path = paths.root() / "systems" / system / "reframe.py"
    try:
        configuration: dict[str, Any] = runpy.run_path(str(path))["site_configuration"]
        described = next(s for s in configuration["systems"] if s["name"] == system)
        return Site(
            system,
            path,
            tuple(_partition(entry) for entry in described["partitions"]),
            {e["name"]: frozenset(e.get("features", ())) for e in configuration["environments"]},
        )
    except IowatchError:
        raise
    except StopIteration:
        raise InputError(f"{path} does not describe the system '{system}'") from None
    except Exception as error:  # a configuration is a program: anything can go wrong in it
        raise InputError(f"{path} is not a proper ReFrame configuration: {error!r}") from error


def _partition(entry: dict[str, Any]) -> Partition:
    scratch = entry.get("extras", {}).get("scratch")
    return Partition(
        entry["name"], entry["scheduler"], tuple(entry["environs"]), Path(scratch) if scratch else None
    )
