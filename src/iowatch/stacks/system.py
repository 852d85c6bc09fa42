"""Stacks that the operating system's packages make: one for each MPI that is installed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable

from iowatch.stacks import probe
from iowatch.stacks.model import Part, Stack

# Debian installs several MPIs at once and gives the tools of each a suffix.
_SUFFIXES = (".openmpi", ".mpich")
TOOLS = ("mpicc", "mpicxx", "mpifort", "mpirun", "mpiexec", "h5pcc", "h5pfc")

# Open MPI refuses more ranks than cores, and root, unless told; 5.x has the option's second name.
_OVERSUBSCRIBE = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

FEATURE_OF_PART = {
    "openmpi": "openmpi",
    "mpich": "mpich",
    "cray-mpich": "mpich",
    "hdf5": "hdf5",
    "netcdf-c": "netcdf4",
    "parallel-netcdf": "pnetcdf",
    "ior": "ior",
    "h5bench": "h5bench",
    "darshan-runtime": "darshan",
}


def features(parts: Iterable[Part]) -> tuple[str, ...]:
    """What checks can ask of an environment with these parts."""
    parts = list(parts)
    found = {FEATURE_OF_PART[part.name] for part in parts if part.name in FEATURE_OF_PART}
    ior = next((part for part in parts if part.name == "ior"), None)
    # Spack's ior builds mdtest too; of a program found on PATH its files tell.
    if ior and (ior.hash or any(path.endswith("mdtest") for path in ior.files)):
        found.add("mdtest")
    return tuple(sorted(found))


def mpi_settings(mpi: str) -> dict[str, str]:
    """Environment that an MPI needs to start more ranks than there are cores, also for root."""
    if mpi != "openmpi":
        return {}
    return {**_OVERSUBSCRIBE, **(_AS_ROOT if os.getuid() == 0 else {})}


def flavours() -> list[probe.Flavour]:
    """The MPIs of this machine: Debian's variants, and the one that is first on PATH where it is another."""
    candidates = [probe.Flavour("", suffix) for suffix in _SUFFIXES]
    found = []
    for candidate in candidates:
        mpirun = candidate.tool("mpirun")
        known = probe.identify_mpi(mpirun) if mpirun and candidate.tool("mpicc") else None
        if known:
            found.append(probe.Flavour(known[0], candidate.suffix))
    plain = probe.first_on_path()
    if plain is None or any(flavour.mpi == plain.mpi for flavour in found):
        return found
    return [*found, plain]


def _stack(system: str, flavour: probe.Flavour) -> Stack:
    parts = tuple(sorted(filter(None, (ask(flavour) for ask in probe.PROBES)), key=lambda part: part.name))
    renamed = [name for name in TOOLS if flavour.own_name(name) != name]
    tools = {name: path for name in renamed if (path := flavour.tool(name))}
    return Stack(
        name=f"system-{flavour.mpi}",
        system=system,
        kind="system",
        status="installed",
        parts=parts,
        features=features(parts),
        settings=mpi_settings(flavour.mpi),
        tools=tools,
    )


def system_stacks(system: str) -> list[Stack]:
    """One stack for each MPI of this machine, sorted by name: `system-mpich`, `system-openmpi`."""
    return sorted((_stack(system, flavour) for flavour in flavours()), key=lambda stack: stack.name)


def loaded_stack(system: str) -> Stack | None:
    """The stack of the MPI that comes first on PATH (of the modules that are loaded), or None."""
    plain = probe.first_on_path()
    return _stack(system, plain) if plain else None


def _describe(system: str) -> int:
    """Print `loaded_stack` as one line of JSON; `iowatch.stacks.modules` calls this in a shell of its own."""
    stack = loaded_stack(system)
    if stack is None:
        return 1
    sys.stdout.write(json.dumps(stack.to_json()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_describe(sys.argv[1]))
