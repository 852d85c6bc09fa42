"""`iowatch doctor`: what this machine provides, what is missing, and the command that installs it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import InputError, MachineError, UsageError, plugins, settings
from iowatch.site import MeasuredFileSystem, Stack, System, covariates, discover_stacks, load_system, machine, storage
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import load as stacks
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.records import parse_pinned_spec, root_specs


@dataclass(frozen=True)
class Requirement:
    """Software that iowatch uses.

    Attributes:
        title: name in the report.
        parts: names of stack parts that satisfy it.
        feature: stack feature that satisfies it; more precise than `parts` if both are set.
        program: the command, for software that is not part of a stack.
        library: the file that the compiler finds, for a library that is not part of a stack.
        packages: Debian packages that install it; empty if Debian has none.
        required: without it, no suite runs.
        use: its purpose.
    """

    title: str
    parts: tuple[str, ...]
    packages: tuple[str, ...]
    use: str
    feature: str | None = None
    required: bool = False
    program: str | None = None
    library: str | None = None

    @property
    def name(self) -> str:
        """Name in the registry."""
        return self.title

    @property
    def features(self) -> set[str]:
        """Features of stacks that it provides."""
        found = {stack_probe.FEATURE_OF_PART[part] for part in self.parts if part in stack_probe.FEATURE_OF_PART}
        return found | ({self.feature} if self.feature else set())


_LIBRARIES = (
    Requirement("C compiler", ("gcc", "clang", "icx", "icc", "nvc"), ("gcc",), "builds benchio", required=True),
    Requirement("MPI", (*stack_probe.MPI_LIBRARIES,), ("openmpi-bin", "libopenmpi-dev"), "everything", required=True),
    Requirement("parallel HDF5", ("hdf5",), ("libhdf5-openmpi-dev",), "api HDF5 of benchio; h5bench"),
    Requirement("parallel netCDF-4", ("netcdf-c",), ("libnetcdf-mpi-dev",), "api NETCDF4 of benchio"),
    Requirement("PnetCDF", ("parallel-netcdf",), ("libpnetcdf-dev", "pnetcdf-bin"), "api PNETCDF of benchio"),
)
_TOOLS = (
    Requirement("Darshan", ("darshan-runtime",), (), "Darshan trace of every run"),
    Requirement("CMake", (), ("cmake",), "builds benchio", required=True, program="cmake"),
    Requirement("pkg-config", (), ("pkg-config",), "finds netCDF and PnetCDF", program="pkg-config"),
    Requirement("libyaml", (), ("libyaml-dev",), "workloads of benchio", feature="libyaml", library="libyaml.so"),
)
# Those of capabilities.
FURTHER_REQUIREMENTS = plugins.Registry(Requirement, (), file="requirements")


def _requirements() -> Iterator[Requirement]:
    yield from _LIBRARIES
    for b in BENCHMARKS.values():
        # Optional programs of packages, and programs without a package, are named in docs/benchmarks.md.
        if b.package and b.probe and b.is_packaged and not b.probe.option:
            yield Requirement(b.title, (b.package,), b.debian, f"suites of {b.title}", feature=b.name)
    yield from _TOOLS
    yield from FURTHER_REQUIREMENTS.values()


@dataclass(frozen=True)
class RequirementStatus:
    """One line of the report.

    Attributes:
        title, use, required: as in the requirement.
        found: versions and their locations (`1.10.8 (system-openmpi)`); empty if missing.
        command: command that installs it; None if it is present.
    """

    title: str
    use: str
    required: bool
    found: tuple[str, ...]
    command: str | None


@dataclass(frozen=True)
class PluginStatus:
    """A plugin of the site: its name, what it adds (`Benchmark ours`), and its faults with file and line."""

    name: str
    adds: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class DoctorReport:
    """Contents of the report of `iowatch doctor`.

    Attributes:
        retired: why no suite can run on this system and nothing can be installed for it; or None.
        findings, commands: empty for a retired system, because installed software would not be used.
        problems: faults of the system's own files that prevent every run, one sentence each.
        broken_stacks: name and reason of each.
        scratch: the directory and the file system that it is on; None if `problems` has the reason.
        other_file_systems: the same of the others that suites measure, or why nothing can be written there, by name.
        overridden: files of the site that replace one of the product.
        plugins: of the site; faults of the objects of a registry are known only where it was imported.
        unanswered: queries of Prometheus in system.yaml without an answer, with the reason; runs are not affected.
    """

    distribution: str
    cores: int
    memory_bytes: int | None
    scheduler: machine.Scheduler
    findings: tuple[RequirementStatus, ...]
    commands: tuple[str, ...]
    file_systems: tuple[storage.Mount, ...]
    retired: str | None = None
    problems: tuple[str, ...] = ()
    broken_stacks: tuple[str, ...] = ()
    scratch: str | None = None
    other_file_systems: Mapping[str, str] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    plugins: tuple[PluginStatus, ...] = ()

    @property
    def missing(self) -> tuple[RequirementStatus, ...]:
        """Missing requirements."""
        return tuple(finding for finding in self.findings if not finding.found)

    @property
    def usable(self) -> bool:
        """Whether suites can run at all."""
        return self.retired is None and not self.problems and not any(found.required for found in self.missing)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "missing": [finding.title for finding in self.missing], "usable": self.usable}


def apt_install_command(packages: Sequence[str]) -> str:
    """Return the command line that installs Debian packages, with sudo unless root."""
    return f"{'' if os.getuid() == 0 else 'sudo '}apt-get install -y {' '.join(packages)}"


def examine_machine(system: str = "local") -> DoctorReport:
    """Examine this machine.

    Args:
        system: the system whose stacks are examined.

    Raises:
        UsageError: unknown system.
        InputError: its system.yaml is damaged.
    """
    described = load_system(system)
    known = [] if described.retired else discover_stacks(system)
    findings, commands = ((), ()) if described.retired else _check_requirements(described, known)
    problems = [] if described.retired else [*_configuration_problems(system)]
    scratch, others, faults = (None, {}, []) if described.retired else _find_directories(described)
    problems += faults
    return DoctorReport(
        distribution=machine.detect_distribution()[0],
        cores=os.cpu_count() or 1,
        memory_bytes=machine.detect_memory_bytes(),
        scheduler=machine.detect_scheduler(),
        findings=findings,
        commands=commands,
        file_systems=tuple(storage.list_mounts()),
        retired=described.retired,
        problems=tuple(dict.fromkeys(problems)),
        broken_stacks=tuple(f"{stack.name}: {stack.note}" for stack in known if stack.status == "broken"),
        scratch=scratch,
        other_file_systems=others,
        unanswered=() if described.retired else _unanswered_queries(described),
        plugins=tuple(
            PluginStatus(one.name, tuple(map(" ".join, one.adds)), tuple(one.faults))
            for one in plugins.checked_plugins()
        ),
        overridden=tuple(str(path.relative_to(settings.site_root())) for path, _ in settings.overridden_files()),
    )


def _unanswered_queries(system: System) -> tuple[str, ...]:
    if system.covariates.prometheus is None:
        return ()
    now = time.time()
    *_, missing = covariates.ask_prometheus(system.covariates.prometheus, now - 60, now)
    return tuple(f"{name}: {reason}" for name, reason in missing.items())


def _find_directories(system: System) -> tuple[str | None, dict[str, str], list[str]]:
    """Return where the default file system and the others are, by name, and why sessions cannot start."""
    default, others, faults = None, {}, []
    for one in system.measured_file_systems:
        try:
            found = _find_directory(one)
        except (MachineError, UsageError) as error:
            if one.is_default:
                faults.append(str(error))
                continue
            found = f"cannot be used: {error.message}"
        if one.is_default:
            default = found
        else:
            others[one.name] = found
    return default, others, faults


def _find_directory(one: MeasuredFileSystem) -> str:
    if one.node_local:
        return f"{one.path()} on each node, which this machine cannot examine"
    found = storage.examine_scratch(one.path(), one.declared)
    note = "" if one.declared.declared else " (not declared in system.yaml: compared with the last session)"
    return f"{one.path()} on {found or 'an unknown file system'}{note}"


def _configuration_problems(system: str) -> tuple[str, ...]:
    """Return why ReFrame cannot use the system's configuration; without a stack it has no environments to check."""
    from iowatch.site import reframe_config  # ReFrame takes 0.7 s to import; this module is also used by `show`

    try:
        reframe_config.load_configuration(system)
    except (InputError, UsageError) as error:
        return (str(error),)
    except MachineError:  # no usable stack: the requirements show what is missing
        pass
    return ()


def _found_parts(wanted: Requirement, usable: Iterable[Stack]) -> tuple[str, ...]:
    offers = [stack for stack in usable if wanted.feature is None or wanted.feature in stack.features]
    shown = "{0.name} {0.version} ({1})" if len(wanted.parts) > 1 else "{0.version} ({1})"
    parts = ((part, stack.name) for stack in offers for part in stack.parts if part.name in wanted.parts)
    return tuple(shown.format(*names) for names in parts)


def _darshan_reader() -> RequirementStatus:
    found = (metadata.version("darshan"),) if machine.can_read_darshan_logs() else ()
    command = None if found else machine.darshan_library_command()
    return RequirementStatus("PyDarshan's library", "reads Darshan logs", False, found, command)


@dataclass(frozen=True)
class _Installer:
    """Where a system gets missing software from: Debian packages, else the reference stack.

    Attributes:
        spack: version of Spack and its path, or None.
        spack_command: command that installs the reference stack; `reference`: its packages.
    """

    system: System
    has_apt: bool
    spack: str | None
    spack_command: str
    reference: frozenset[str]

    @classmethod
    def of(cls, system: System) -> _Installer:
        spack, name = stack_install.spack_version(), stacks.REFERENCE_STACK
        command = f"iowatch stack install {name} --system {system.name}{'' if spack else ' --bootstrap'}"
        manifest = stacks.manifest_directory(system.name, name) / "spack.yaml"
        specs = root_specs(manifest) if manifest.is_file() else ()
        reference = frozenset(parse_pinned_spec(spec)[0] for spec in specs)
        return cls(system, machine.detect_distribution()[1], spack, command, reference)

    def packages(self, wanted: Requirement) -> tuple[str, ...]:
        """Debian packages; its libraries are of use only where those of the operating system are stacks."""
        return wanted.packages if self.has_apt and (self.system.system_stacks or wanted.program) else ()

    def command(self, wanted: Requirement) -> str:
        """The command that installs one requirement, or what to do."""
        if packages := self.packages(wanted):
            return apt_install_command(packages)
        is_included = not (wanted.feature and wanted.parts) or self.reference.intersection(wanted.parts)
        return self.spack_command if is_included else f"add '{wanted.parts[0]}' to the specs of a stack"

    def apt_commands(self, missing: Iterable[Requirement]) -> list[str]:
        """One command for all Debian packages; none without any."""
        packages = [name for wanted in missing for name in self.packages(wanted)]
        return [apt_install_command(packages)] if packages else []

    def spack_commands(self, commands: Iterable[str | None]) -> list[str]:
        """The command that installs the reference stack if it is among those of requirements."""
        return [self.spack_command] if self.spack_command in commands else []


def install_commands(system: System, features: Collection[str]) -> tuple[str, ...]:
    """Return the commands that install what provides these features of stacks; stacks are not examined."""
    missing = [wanted for wanted in _requirements() if wanted.features.intersection(features)]
    installer = _Installer.of(system)
    return (*installer.apt_commands(missing), *installer.spack_commands(map(installer.command, missing)))


def _check_requirements(
    system: System, known: Sequence[Stack]
) -> tuple[tuple[RequirementStatus, ...], tuple[str, ...]]:
    """Return the status of all requirements, and the commands that install the missing ones."""
    usable = [stack for stack in known if stack.status == "installed"]
    installer = _Installer.of(system)
    findings: list[RequirementStatus] = []
    missing: list[Requirement] = []
    for wanted in _requirements():
        path = shutil.which(wanted.program) if wanted.program else None
        if wanted.library:
            path = stack_probe.find_compiler_library(shutil.which("cc"), wanted.library)
        found = (path,) if path else _found_parts(wanted, usable)
        missing += [] if found else [wanted]
        command = None if found else installer.command(wanted)
        findings.append(RequirementStatus(wanted.title, wanted.use, wanted.required, found, command))
    versions, command = ((installer.spack,), None) if installer.spack else ((), installer.spack_command)
    findings.append(RequirementStatus("Spack", "pinned stacks", False, versions, command))
    findings.append(_darshan_reader())
    commands = [*installer.apt_commands(missing), *filter(None, [findings[-1].command])]
    return tuple(findings), (*commands, *installer.spack_commands(finding.command for finding in findings))
