"""File systems of a system: their facts in `system.yaml`, and which of them suites measure.

scratch ──────────────┐ the default file system: its cases have no parameter `file_system`
file_systems:         ├─> System.measured_file_systems ──> cases_of_system(cases) ──> one case per file system
  - {directory: …} ───┘
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat, PositiveInt, StringConstraints

from iowatch.benchmarks.suites import ALL_FILE_SYSTEMS
from iowatch.core import InputError, IowatchError, UsageError, settings, units
from iowatch.core.yamlfile import ClosedModel

NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _value_error(error: IowatchError) -> ValueError:
    """Return the error of a field, for pydantic, which adds the field and the value."""
    return ValueError(f"{error.message}. {error.hint or 'Expected another value.'}")


def _parse_size_field(value: object) -> object:
    """Return the bytes of a size such as `64g`; see `_value_error`."""
    if not isinstance(value, str):
        return value
    try:
        return units.parse_size(value)
    except InputError as error:
        raise _value_error(error) from error


def _bandwidth_unit(unit: str) -> str:
    try:
        units.to_mib_per_s(1.0, unit)
    except InputError as error:
        raise _value_error(error) from error
    return unit


Size = Annotated[PositiveInt, BeforeValidator(_parse_size_field)]
BandwidthUnit = Annotated[str, AfterValidator(_bandwidth_unit)]


class SourcedModel(ClosedModel):
    """Facts from one source: a document and the location in it, or a command and the day."""

    source: NonEmptyText


class NamedModel(SourcedModel):
    """A component of the machine; `note` has facts that the other fields cannot express."""

    name: NonEmptyText
    note: NonEmptyText | None = None


class PeakBandwidth(SourcedModel):
    """A theoretical limit of bandwidth, as printed by its source.

    Attributes:
        value, unit: the number as printed, for example 12.5 and `GB/s`.
        operation: the direction that it limits.
        of: the object of the limit (`file system`, `one node`…).
    """

    value: PositiveFloat
    unit: BandwidthUnit
    operation: Literal["write", "read", "both"] = "both"
    of: NonEmptyText = "file system"

    @property
    def mib_per_s(self) -> float:
        """The limit in MiB/s."""
        return units.to_mib_per_s(self.value, self.unit)


class DefaultStriping(ClosedModel):
    """Default layout of a file: `count` OSTs (-1 is all), stripes of `bytes`."""

    count: int | None = Field(default=None, ge=-1)
    bytes: Size | None = None


class FileSystemIdentity(ClosedModel):
    """Which file system a directory is on, as in /proc/self/mountinfo; a field that is None is unknown or not declared.

    Attributes:
        mount: mount point.
        type: the kernel's name (`lustre`, `gpfs`, `nfs4`, `ext4`…).
        source: what is mounted: a device, a server and its path.
    """

    mount: NonEmptyText | None = None
    type: NonEmptyText | None = None
    source: NonEmptyText | None = None

    @property
    def declared(self) -> dict[str, str]:
        """The fields that are not None."""
        fields = {"mount": self.mount, "type": self.type, "source": self.source}
        return {name: value for name, value in fields.items() if value is not None}

    def difference(self, found: FileSystemIdentity | None) -> str | None:
        """Found and expected as text; None if `found` has every field that this one declares."""
        found_fields = found.declared if found else {}
        if self.declared.items() <= found_fields.items():
            return None
        return f"found {found or 'unknown'}; expected {self}"

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.declared.items())


class Directory(FileSystemIdentity):
    """A directory of the benchmarks, and the file system that it must be on.

    Attributes:
        path: absolute, with environment variables; `IOWATCH_VAR` is always defined.
    """

    path: NonEmptyText


class Scratch(Directory):
    """The directory of the default file system.

    Attributes:
        file_system: entry of `file_systems` with its name and facts; required only if others are measured, too.
    """

    file_system: NonEmptyText | None = None


def _parse_directory_field(value: object) -> object:
    """Return the block of a directory that is only a path."""
    if isinstance(value, str):
        return {"path": value}
    return value


ScratchField = Annotated[Scratch | None, BeforeValidator(_parse_directory_field)]


class FileSystemLimits(ClosedModel):
    """Limits of one file system, besides those of the system.

    Attributes:
        total_bytes: maximum written and read per session.
        files: maximum number of files per case.
        free_bytes: space that must remain free; absent: that of the system.
    """

    total_bytes: Size
    files: PositiveInt
    free_bytes: Size | None = None


class FileSystem(NamedModel):
    """One file system that benchmarks can write to.

    Attributes:
        mount: mount point; None if the source does not state it.
        technology: `Lustre`, `GPFS`, `BeeGFS`, `Panasas`, `NFS`, `ext4`, `xfs`, `tmpfs`…
        servers: object storage servers (OSS), NSD servers or blades.
        targets: object storage targets (OST).
        block_bytes: block size of the file system.
        storage: the devices of the servers, as text.
        directory: of the benchmarks; in the file a path, or a block that also declares the mount. Suites can measure
            the file system.
        limits: required with a directory, and only then.
        target_directories: one directory on each target, for the suite `targets`; not on Lustre, whose targets the
            job asks `lfs` for. `[00-23]` in a path stands for the numbers of a range.
        node_local: whether each node has its own (a local disk, a burst buffer of the job): the host of the session
            does not look at it, and only cases on one node are measured.
    """

    mount: NonEmptyText | None = None
    technology: NonEmptyText
    version: NonEmptyText | None = None
    servers: PositiveInt | None = None
    targets: PositiveInt | None = None
    metadata_servers: PositiveInt | None = None
    capacity: NonEmptyText | None = None
    block_bytes: Size | None = None
    striping: DefaultStriping | None = None
    storage: NonEmptyText | None = None
    peaks: tuple[PeakBandwidth, ...] = ()
    directory: Annotated[Directory | None, BeforeValidator(_parse_directory_field)] = None
    limits: FileSystemLimits | None = None
    target_directories: tuple[NonEmptyText, ...] = ()
    node_local: bool = False


# A range of numbers in a path; leading zeros are kept.
_RANGE = re.compile(r"\[(\d{1,6})-(\d{1,6})\]")


def expand_ranges(path: str) -> tuple[str, ...]:
    """Return the paths that a path with ranges of numbers stands for: `/bb/t[08-10]` is three, `/bb/t08` is itself."""
    match = _RANGE.search(path)
    if match is None:
        return (path,)
    first, last = match[1], match[2]
    paths: list[str] = []
    for number in range(int(first), int(last) + 1):
        text = str(number).zfill(len(first))
        paths += expand_ranges(path[: match.start()] + text + path[match.end() :])
    return tuple(paths)


def expand_scratch(path: str, where: str) -> Path:
    """Return a scratch directory with variables replaced; `IOWATCH_VAR` is always defined.

    Args:
        where: where the path is written, for messages.

    Raises:
        UsageError: it contains an undefined variable, or is not an absolute path.
    """
    variables = {**os.environ, "IOWATCH_VAR": str(settings.var_directory().absolute())}
    text = re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match.group(1), match.group(0)), path)
    if "$" in text:
        raise UsageError(f"{where}: '{text}' names a variable that is not set", hint="Set it or name the path.")
    if not text.startswith("/"):
        raise UsageError(f"{where}: '{text}' is no absolute path", hint="Use an absolute path.")
    return Path(text)


# Name of a default file system without an entry in `file_systems`.
_UNNAMED = "scratch"
# Names of measured file systems are values of case parameters and parts of names of runs.
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


@dataclass(frozen=True)
class MeasuredFileSystem:
    """A file system that suites can measure.

    Attributes:
        name: value of the case parameter `file_system`.
        directory: of the benchmarks, with variables; and what it must be on as far as that is declared.
        mount: mount point of its entry, which counts where `directory` declares nothing.
        where: the field with the directory, for messages.
        is_default: whether its cases have no parameter `file_system`.
        node_local: whether each node has its own, which the host of the session does not have.
        targets: number of its targets as its entry states it.
        target_directories: as its entry names them, with ranges and variables.
    """

    name: str
    directory: Directory
    mount: str | None
    limits: FileSystemLimits | None
    where: str
    is_default: bool
    node_local: bool = False
    targets: int | None = None
    target_directories: tuple[str, ...] = ()

    @property
    def parameter(self) -> str | None:
        """The case parameter `file_system` of its cases; None: absent."""
        return None if self.is_default else self.name

    @property
    def declared(self) -> FileSystemIdentity:
        """What the directory must be on as far as system.yaml states it: for an entry at least its mount point."""
        return FileSystemIdentity.model_validate(self.directory.declared or {"mount": self.mount})

    def path(self) -> Path:
        """Return the directory with variables replaced.

        Raises:
            UsageError: see `expand_scratch`.
        """
        return expand_scratch(self.directory.path, self.where)

    def target_paths(self) -> tuple[Path, ...]:
        """Return the directories of its targets with ranges and variables replaced; empty without any.

        Raises:
            UsageError: see `expand_scratch`.
        """
        where = f"file system '{self.name}': field 'target_directories'"
        paths: list[Path] = []
        for directory in self.target_directories:
            paths += [expand_scratch(path, where) for path in expand_ranges(directory)]
        return tuple(paths)


def measured_file_systems(
    file: str, scratch: Scratch | None, file_systems: Sequence[FileSystem]
) -> tuple[MeasuredFileSystem, ...]:
    """Return the file systems that suites can measure, the default one first.

    It is that of `scratch`, else the first with a directory.

    Args:
        file: path of the `system.yaml`, for messages.
    """
    measured = []
    if scratch is not None:
        name = scratch.file_system or _UNNAMED
        entry_of_scratch = next((entry for entry in file_systems if entry.name == name), None)
        measured.append(
            MeasuredFileSystem(
                name=name,
                directory=scratch,
                mount=None,
                limits=entry_of_scratch.limits if entry_of_scratch else None,
                where=f"{file}: field 'scratch'",
                is_default=True,
                targets=entry_of_scratch.targets if entry_of_scratch else None,
                target_directories=entry_of_scratch.target_directories if entry_of_scratch else (),
            )
        )
    for number, entry in enumerate(file_systems):
        if entry.directory is None:
            continue
        measured.append(
            MeasuredFileSystem(
                name=entry.name,
                directory=entry.directory,
                mount=entry.mount,
                limits=entry.limits,
                where=f"{file}: field 'file_systems.{number}.directory'",
                is_default=not measured,
                node_local=entry.node_local,
                targets=entry.targets,
                target_directories=entry.target_directories,
            )
        )
    return tuple(measured)


def file_system_faults(scratch: Scratch | None, file_systems: Sequence[FileSystem]) -> Iterator[str]:
    """Yield the contradictions between the settings of file systems of a `system.yaml`, one sentence each.

    Args:
        scratch: directory of the default file system; it may name the entry with the limits of this file system.
        file_systems: all entries; suites measure those that have a directory.
    """
    # Only places in messages name the file, and none of them is used here.
    measured = measured_file_systems("", scratch, file_systems)
    # The directory of the default file system is in `scratch`: an entry that has its own is another file system. Where
    # several are measured, results need the name of each, and `scratch` alone has none.
    without_directory = [entry.name for entry in file_systems if entry.directory is None]
    scratch_entry = scratch.file_system if scratch else None
    if scratch_entry is not None and scratch_entry not in without_directory:
        yield f"scratch: file_system '{scratch_entry}' is not an entry of 'file_systems' without a directory"
    if scratch and scratch_entry is None and len(measured) > 1 and without_directory:
        example = f"scratch: {{path: {scratch.path}, file_system: {without_directory[0]}}}"
        yield f"several file systems are measured: name the entry of the default one, for example '{example}'"
    yield from _measured_faults(measured)
    # What an entry says only of file systems that are measured, and what these need.
    for entry in file_systems:
        if entry.directory is not None and entry.limits is None:
            yield f"file system '{entry.name}': a directory, but no limits; expected {{total_bytes: 1t, files: 100000}}"
        if entry.directory is None and entry.node_local:
            yield f"file system '{entry.name}': node_local, but no directory"
        if entry.directory is None and entry.limits is not None and entry.name != scratch_entry:
            yield f"file system '{entry.name}': limits, but no directory"
        yield from _target_faults(entry, is_measured=entry.directory is not None or entry.name == scratch_entry)


def _target_faults(entry: FileSystem, *, is_measured: bool) -> Iterator[str]:
    """Yield what is wrong with the directories of targets of an entry."""
    if entry.target_directories and not is_measured:
        yield (
            f"file system '{entry.name}': target_directories, but it is not measured: it has no directory, and scratch "
            "does not name it (scratch: {path: …, file_system: " + entry.name + "})"
        )
    paths: list[str] = []
    for directory in entry.target_directories:
        expanded = expand_ranges(directory)
        if not expanded:
            yield f"file system '{entry.name}': '{directory}' in target_directories is an empty range"
        paths += [os.path.normpath(path) for path in expanded]
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    if repeated:
        yield f"file system '{entry.name}': target_directories has {repeated[0]} twice"
    if paths and entry.targets is not None and entry.targets != len(paths):
        yield f"file system '{entry.name}': targets is {entry.targets}, target_directories has {len(paths)}"


def _measured_faults(measured: Sequence[MeasuredFileSystem]) -> Iterator[str]:
    """Yield what is wrong with names and directories of the measured file systems."""
    owners: dict[str, str] = {}
    names: set[str] = set()
    for file_system in measured:
        name = file_system.name
        directory = os.path.normpath(file_system.directory.path)
        owner = owners.setdefault(directory, name)
        if owner != name:
            yield f"file systems '{owner}' and '{name}' have the same directory, {directory}"
        if len(measured) > 1 and (name == ALL_FILE_SYSTEMS or not _NAME.fullmatch(name)):
            yield f"file system '{name}': expected a name of letters, digits and . _ + -; not '{ALL_FILE_SYSTEMS}'"
        if file_system.node_local and file_system.is_default:
            yield f"file system '{name}' is node-local and cannot be the default one"
        if name in names:
            yield f"two file systems that are measured have the name '{name}'"
        names.add(name)
