"""`iowatch doctor`: what this machine offers, what is missing, and the one command that adds it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from iowatch.stacks.discover import discover
from iowatch.stacks.model import Stack
from iowatch.stacks.tool import spack_version
from iowatch.systems import machine
from iowatch.systems.load import load
from iowatch.systems.mounts import Mount, mounts


@dataclass(frozen=True)
class Wanted:
    """Something that iowatch uses.

    Attributes:
        title: words for people.
        parts: names of parts of stacks that are it.
        feature: the feature of a stack that is it; more exact than `parts` where both are given.
        packages: Debian packages that bring it; none where Debian has none.
        required: nothing runs without it.
        use: what it is for.
    """

    title: str
    parts: tuple[str, ...]
    packages: tuple[str, ...]
    use: str
    feature: str | None = None
    required: bool = False


_WANTED = (
    Wanted("C compiler", ("gcc", "clang", "icx", "icc", "nvc"), ("gcc",), "builds benchio", required=True),
    Wanted(
        "MPI",
        ("openmpi", "mpich", "intel-oneapi-mpi", "cray-mpich"),
        ("openmpi-bin", "libopenmpi-dev"),
        "everything",
        required=True,
    ),
    Wanted("parallel HDF5", ("hdf5",), ("libhdf5-openmpi-dev",), "api HDF5 of benchio; h5bench"),
    Wanted("parallel netCDF-4", ("netcdf-c",), ("libnetcdf-mpi-dev",), "api NETCDF4 of benchio"),
    Wanted("PnetCDF", ("parallel-netcdf",), ("libpnetcdf-dev", "pnetcdf-bin"), "api PNETCDF of benchio"),
    Wanted("IOR", ("ior",), (), "suites of IOR"),
    Wanted("mdtest", ("ior",), (), "metadata suites", feature="mdtest"),
    Wanted("h5bench", ("h5bench",), (), "suites of h5bench"),
    Wanted("Darshan", ("darshan-runtime",), (), "a trace of every run"),
)
# Programs that belong to no stack: title, command, Debian package, use, required.
_PROGRAMS = (
    ("CMake", "cmake", "cmake", "builds benchio", True),
    ("pkg-config", "pkg-config", "pkg-config", "finds netCDF and PnetCDF", False),
)
REFERENCE = "reference"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        title, use, required: as wanted.
        found: versions with where they are (`1.10.8 (system-openmpi)`); empty when missing.
        command: what adds it, or None when it is there.
    """

    title: str
    use: str
    required: bool
    found: tuple[str, ...]
    command: str | None


@dataclass(frozen=True)
class Report:
    """Everything that `iowatch doctor` shows.

    Attributes:
        retired: why no suite runs for the system any more, and nothing can be installed for it; or None.
        findings, commands: none for a retired system, because nothing that is added would be used.
    """

    distribution: str
    cores: int
    memory_bytes: int | None
    scheduler: machine.Scheduler
    findings: tuple[Finding, ...]
    commands: tuple[str, ...]
    file_systems: tuple[Mount, ...]
    retired: str | None = None

    @property
    def missing(self) -> tuple[Finding, ...]:
        """What is not there."""
        return tuple(finding for finding in self.findings if not finding.found)

    @property
    def usable(self) -> bool:
        """Whether suites can run at all."""
        return self.retired is None and not any(finding.required for finding in self.missing)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "missing": [finding.title for finding in self.missing],
            "usable": self.usable,
        }


def _found(wanted: Wanted, stacks: Iterable[Stack]) -> tuple[str, ...]:
    lines = []
    for stack in stacks:
        if wanted.feature and wanted.feature not in stack.features:
            continue
        for part in stack.parts:
            if part.name in wanted.parts and stack.status == "installed":
                name = f"{part.name} " if len(wanted.parts) > 1 else ""
                lines.append(f"{name}{part.version} ({stack.name})")
    return tuple(lines)


def apt_get(packages: Sequence[str]) -> str:
    """The exact line that installs Debian packages, also for somebody who is not root."""
    return f"{'' if os.getuid() == 0 else 'sudo '}apt-get install -y {' '.join(packages)}"


def _spack_command(system: str) -> str:
    bootstrap = "" if spack_version() else " --bootstrap"
    return f"iowatch stack install {REFERENCE} --system {system}{bootstrap}"


def examine(system: str = "local") -> Report:
    """Look at this machine.

    Args:
        system: whose stacks count.

    Raises:
        UsageError: no such system.
        InputError: its system.yaml is damaged.
    """
    described = load(system)
    findings, commands = ((), ()) if described.retired else _advice(system, described.system_stacks)
    return Report(
        distribution=machine.distribution()[0],
        cores=os.cpu_count() or 1,
        memory_bytes=machine.memory_bytes(),
        scheduler=machine.scheduler(),
        findings=findings,
        commands=commands,
        file_systems=tuple(mounts()),
        retired=described.retired,
    )


def _advice(system: str, system_stacks: bool) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What was found, and the commands that add the rest.

    Args:
        system_stacks: whether libraries of the operating system count; else packages of Debian add nothing.
    """
    stacks = discover(system)
    has_apt = machine.distribution()[1]
    spack_command = _spack_command(system)
    findings: list[Finding] = []
    packages: list[str] = []
    rows = [
        (w.title, w.use, w.required, _found(w, stacks), w.packages if system_stacks else ()) for w in _WANTED
    ]
    for title, program, package, use, required in _PROGRAMS:
        path = shutil.which(program)
        rows.append((title, use, required, (path,) if path else (), (package,)))
    for title, use, required, found, needs in rows:
        command = None
        if not found:
            command = apt_get(needs) if needs and has_apt else spack_command
            packages += needs if has_apt else ()
        findings.append(Finding(title, use, required, found, command))
    spack = spack_version()
    findings.append(
        Finding("Spack", "pinned stacks", False, (spack,) if spack else (), None if spack else spack_command)
    )
    from_spack = any(finding.command == spack_command for finding in findings)
    return tuple(findings), (
        *([apt_get(packages)] if packages else []),
        *([spack_command] if from_spack else []),
    )
