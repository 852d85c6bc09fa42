"""`iowatch doctor`: what this machine provides, what is missing, and the command that installs it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import InputError, MachineError, UsageError, plugins, settings
from iowatch.site import MeasuredFileSystem, Stack, System, covariates, discover_stacks, load_system, machine, storage
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import load as stacks
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.records import StackPart, parse_pinned_spec, root_specs


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
        features = {stack_probe.FEATURE_OF_PART[part] for part in self.parts if part in stack_probe.FEATURE_OF_PART}
        if self.feature:
            features.add(self.feature)
        return features


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
        if self.retired is not None or self.problems:
            return False
        return not any(status.required for status in self.missing)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "missing": [finding.title for finding in self.missing], "usable": self.usable}


def apt_install_command(packages: Sequence[str]) -> str:
    """Return the command line that installs Debian packages, with sudo unless root.

    It waits ten minutes for the lock of dpkg, which the first boot of a machine holds.
    """
    command = f"apt-get install -y -o DPkg::Lock::Timeout=600 {' '.join(packages)}"
    if os.getuid() == 0:
        return command
    return f"sudo {command}"


def examine_machine(system: str = "local") -> DoctorReport:
    """Examine this machine.

    Args:
        system: the system whose stacks are examined.

    Raises:
        UsageError: unknown system.
        InputError: its system.yaml is damaged.
    """
    described = load_system(system)
    overridden_files = [file.of_site.relative_to(settings.site_root()) for file in settings.overridden_files()]
    report = DoctorReport(
        distribution=machine.detect_distribution().name,
        cores=os.cpu_count() or 1,
        memory_bytes=machine.detect_memory_bytes(),
        scheduler=machine.detect_scheduler(),
        findings=(),
        commands=(),
        file_systems=tuple(storage.list_mounts()),
        retired=described.retired,
        plugins=_plugin_statuses(),
        overridden=tuple(map(str, overridden_files)),
    )
    if described.retired:
        return report
    # Everything else is about runs.
    stacks_of_system = discover_stacks(system)
    findings, commands = _check_requirements(described, stacks_of_system)
    directories = _find_directories(described)
    problems = (*_configuration_problems(system), *directories.faults)
    return replace(
        report,
        findings=findings,
        commands=commands,
        problems=tuple(dict.fromkeys(problems)),
        broken_stacks=tuple(f"{stack.name}: {stack.note}" for stack in stacks_of_system if stack.status == "broken"),
        scratch=directories.default,
        file_systems=tuple(
            replace(mount, writable=mount.writable or mount.mount in directories.mounts)
            for mount in report.file_systems
        ),
        other_file_systems=directories.others,
        unanswered=_unanswered_queries(described),
    )


def _plugin_statuses() -> tuple[PluginStatus, ...]:
    statuses = []
    for plugin in plugins.checked_plugins():
        additions = tuple(map(" ".join, plugin.adds))
        statuses.append(PluginStatus(plugin.name, additions, tuple(plugin.faults)))
    return tuple(statuses)


def _unanswered_queries(system: System) -> tuple[str, ...]:
    if system.covariates.prometheus is None:
        return ()
    now = time.time()
    answers = covariates.ask_prometheus(system.covariates.prometheus, now - 60, now)
    return tuple(f"{name}: {reason}" for name, reason in answers.missing.items())


@dataclass
class _Directories:
    """Where the benchmarks of a system write.

    Attributes:
        default: directory and file system of the default one; None if it cannot be used.
        others: the same of the others that suites measure, or why they cannot be used, by name.
        mounts: mount points of those that can be written.
        faults: why sessions cannot start.
    """

    default: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    mounts: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def _find_directories(system: System) -> _Directories:
    directories = _Directories()
    for file_system in system.measured_file_systems:
        try:
            description = _examine_directory(file_system, directories.mounts)
        except (MachineError, UsageError) as error:
            if file_system.is_default:
                directories.faults.append(str(error))
                continue
            description = f"cannot be used: {error.message}"
        if file_system.is_default:
            directories.default = description
        else:
            directories.others[file_system.name] = description
    return directories


def _examine_directory(file_system: MeasuredFileSystem, mounts: set[str]) -> str:
    """Return the directory and the file system that it is on, after a file was written to it.

    Args:
        mounts: to which the mount point is added.

    Raises:
        MachineError, UsageError: it is on another file system than declared, or cannot be written.
    """
    if file_system.node_local:
        return f"{file_system.path()} on each node, which this machine cannot examine"
    identity = storage.examine_scratch(file_system.path(), file_system.declared)
    # Its mount point usually belongs to root: what counts is the directory.
    storage.check_writable(file_system.path())
    if identity is not None and identity.mount:
        mounts.add(identity.mount)
    description = f"{file_system.path()} on {identity or 'an unknown file system'}"
    if not file_system.declared.declared:
        description += " (not declared in system.yaml: compared with the last session)"
    return description


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


def _versions_in_stacks(requirement: Requirement, usable_stacks: Iterable[Stack]) -> tuple[str, ...]:
    """Return version and stack of each part that satisfies a requirement; with its name if several can."""
    versions = []
    for stack in usable_stacks:
        if requirement.feature is not None and requirement.feature not in stack.features:
            continue
        for part in stack.parts:
            if part.name not in requirement.parts:
                continue
            lacking = _lacking_interfaces(requirement, part)
            version = f"{part.version} ({', '.join([stack.name, *lacking])})"
            if len(requirement.parts) > 1:
                version = f"{part.name} {version}"
            versions.append(version)
    return tuple(versions)


def _lacking_interfaces(requirement: Requirement, part: StackPart) -> list[str]:
    """Return what the build of a benchmark lacks: `no HDF5 interface`."""
    benchmark = BENCHMARKS.get(requirement.feature or "")
    if benchmark is None:
        return []
    lacking = [interface for interface in benchmark.interfaces if stack_probe.lacks_interface(part, interface)]
    return [f"no {interface.title}" for interface in lacking]


def _darshan_reader() -> RequirementStatus:
    title, use = "PyDarshan's library", "reads Darshan logs"
    if machine.can_read_darshan_logs():
        return RequirementStatus(title, use, False, found=(machine.pydarshan_version() or "",), command=None)
    return RequirementStatus(title, use, False, found=(), command=machine.darshan_library_command())


def _spack_status(installer: _Installer) -> RequirementStatus:
    title, use = "Spack", "pinned stacks"
    if installer.spack:
        return RequirementStatus(title, use, False, found=(installer.spack,), command=None)
    return RequirementStatus(title, use, False, found=(), command=installer.spack_command)


@dataclass(frozen=True)
class _Installer:
    """Where a system gets missing software from: Debian packages, else the quick or the reference stack.

    Attributes:
        spack: version of Spack and its path, or None.
        spack_command: command that installs the stack; `stack_packages`: its packages.
    """

    system: System
    has_apt: bool
    spack: str | None
    spack_command: str
    stack_packages: frozenset[str]

    @classmethod
    def of(cls, system: System) -> _Installer:
        spack = stack_install.spack_version()
        has_apt = machine.detect_distribution().has_apt
        stack = stacks.REFERENCE_STACK
        # Where Debian's packages are the libraries, Spack has only the benchmarks and Darshan to build: minutes.
        has_quick_stack = (stacks.manifest_directory(system.name, stacks.QUICK_STACK) / "spack.yaml").is_file()
        if has_apt and system.system_stacks and has_quick_stack:
            stack = stacks.QUICK_STACK
        command = f"iowatch stack install {stack} --system {system.name}"
        if not spack:
            command += " --bootstrap"
        manifest = stacks.manifest_directory(system.name, stack) / "spack.yaml"
        specs = root_specs(manifest) if manifest.is_file() else ()
        stack_packages = frozenset(parse_pinned_spec(spec).name for spec in specs)
        return cls(system, has_apt, spack, command, stack_packages)

    def packages(self, requirement: Requirement) -> tuple[str, ...]:
        """Debian packages; its libraries are of use only where those of the operating system are stacks."""
        if not self.has_apt:
            return ()
        if not self.system.system_stacks and not requirement.program:
            return ()
        return requirement.packages

    def command(self, requirement: Requirement) -> str:
        """The command that installs one requirement, or what to do."""
        packages = self.packages(requirement)
        if packages:
            return apt_install_command(packages)
        # Benchmarks of packages that the stack does not have.
        is_benchmark = requirement.feature and requirement.parts
        if is_benchmark and not self.stack_packages.intersection(requirement.parts):
            return f"add '{requirement.parts[0]}' to the specs of a stack"
        return self.spack_command

    def apt_commands(self, missing: Iterable[Requirement]) -> list[str]:
        """One command for all Debian packages; none without any."""
        packages: list[str] = []
        for requirement in missing:
            packages += self.packages(requirement)
        if not packages:
            return []
        return [apt_install_command(packages)]

    def spack_commands(self, commands: Iterable[str | None]) -> list[str]:
        """The command that installs the stack if it is among those of requirements."""
        if self.spack_command in commands:
            return [self.spack_command]
        return []


def install_commands(system: System, features: Collection[str]) -> tuple[str, ...]:
    """Return the commands that install what provides these features of stacks; stacks are not examined."""
    missing = [requirement for requirement in _requirements() if requirement.features.intersection(features)]
    installer = _Installer.of(system)
    return (*installer.apt_commands(missing), *installer.spack_commands(map(installer.command, missing)))


def _find_outside_stacks(requirement: Requirement) -> str | None:
    """Return the path of the program or library that satisfies a requirement; None if it is not there."""
    if requirement.library:
        return stack_probe.find_compiler_library(shutil.which("cc"), requirement.library)
    if requirement.program:
        return shutil.which(requirement.program)
    return None


def _check_requirements(
    system: System, stacks_of_system: Sequence[Stack]
) -> tuple[tuple[RequirementStatus, ...], tuple[str, ...]]:
    """Return the status of all requirements, and the commands that install the missing ones."""
    usable_stacks = [stack for stack in stacks_of_system if stack.status == "installed"]
    installer = _Installer.of(system)
    statuses: list[RequirementStatus] = []
    missing: list[Requirement] = []
    for requirement in _requirements():
        path = _find_outside_stacks(requirement)
        versions = (path,) if path else _versions_in_stacks(requirement, usable_stacks)
        command = None
        if not versions:
            missing.append(requirement)
            command = installer.command(requirement)
        statuses.append(RequirementStatus(requirement.title, requirement.use, requirement.required, versions, command))
    darshan_reader = _darshan_reader()
    statuses += [_spack_status(installer), darshan_reader]
    # Commands, each once: the operating system's packages, PyDarshan's library, Spack.
    commands = installer.apt_commands(missing)
    if darshan_reader.command:
        commands.append(darshan_reader.command)
    commands += installer.spack_commands(status.command for status in statuses)
    return tuple(statuses), tuple(commands)
