"""What ReFrame will find on a system: its partitions and environments, from `systems/<name>/reframe.py`."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import InputError, IowatchError, near_miss


@dataclass(frozen=True)
class Partition:
    """A ReFrame partition.

    Attributes:
        stacks: their names.
        scratch: directory for scratch files, or None.
        access: options that its jobs give the scheduler.
    """

    name: str
    scheduler: str
    stacks: tuple[str, ...]
    scratch: Path | None
    access: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """A system as its ReFrame configuration describes it.

    Attributes:
        features: what each stack offers.
        environments: ReFrame's names of the stacks whose names it does not take.
    """

    system: str
    configuration: Path
    partitions: tuple[Partition, ...]
    features: dict[str, frozenset[str]]
    environments: dict[str, str] = field(default_factory=dict)

    def environment(self, stack: str) -> str:
        """ReFrame's name of a stack."""
        return self.environments.get(stack, stack)

    def stack(self, environment: str) -> str:
        """The stack that has this name in ReFrame."""
        return next((s for s, name in self.environments.items() if name == environment), environment)


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
        stacks = {e["name"]: e.get("extras", {}).get("stack", e["name"]) for e in configuration["environments"]}
        offered = {name for entry in described["partitions"] for name in entry["environs"]}
        if unknown := sorted(offered - stacks.keys()):
            raise InputError(
                f"{path}: no environment is called '{unknown[0]}'", hint=near_miss(unknown[0], [*stacks])
            )
        return Site(
            system,
            path,
            tuple(_partition(entry, stacks) for entry in described["partitions"]),
            {stacks[e["name"]]: frozenset(e.get("features", ())) for e in configuration["environments"]},
            {stack: name for name, stack in stacks.items() if stack != name},
        )
    except IowatchError:
        raise
    except StopIteration:
        raise InputError(f"{path} does not describe the system '{system}'") from None
    except Exception as error:  # a configuration is a program: anything can go wrong in it
        raise InputError(f"{path} is not a proper ReFrame configuration: {error!r}") from error


def _partition(entry: dict[str, Any], stacks: dict[str, str]) -> Partition:
    scratch = entry.get("extras", {}).get("scratch")
    offered = tuple(stacks[name] for name in entry["environs"])
    place = Path(scratch) if scratch else None
    return Partition(entry["name"], entry["scheduler"], offered, place, tuple(entry.get("access", ())))
