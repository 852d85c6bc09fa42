"""The schema of `systems/<name>/system.yaml`: facts of a machine, each block with its source."""

from __future__ import annotations

import os
import re
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from iowatch import paths, units
from iowatch.errors import InputError, MachineError, UsageError, near_miss
from iowatch.systems.zone import time_zone
from iowatch.yamlfile import Closed

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _size(value: object) -> object:
    """Bytes of a size such as `64g`; pydantic reports a ValueError with its field."""
    try:
        return units.parse_size(value) if isinstance(value, str) else value
    except InputError as error:
        raise ValueError(error.message) from error


def _bandwidth_unit(unit: str) -> str:
    try:
        units.mib_per_s(1.0, unit)
    except InputError as error:
        raise ValueError(error.message) from error
    return unit


Size = Annotated[PositiveInt, BeforeValidator(_size)]
BandwidthUnit = Annotated[str, AfterValidator(_bandwidth_unit)]


def _zone(name: str) -> str:
    """Where the machine has no data of zones the name is believed: whoever shows times in it will say so."""
    try:
        time_zone(name)
    except UsageError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error
    except MachineError:
        pass
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class Sourced(Closed):
    """Facts of one source: a document and the place in it, or a command and the day."""

    source: Text


class Named(Sourced):
    """A thing of the machine; `note` says what the other fields cannot."""

    name: Text
    note: Text | None = None


class Peak(Sourced):
    """A theoretical limit of bandwidth, as printed by its source.

    Attributes:
        value, unit: the number as printed, for example 12.5 and `GB/s`.
        operation: which direction it limits.
        of: what it is the limit of (`file system`, `one node`…).
    """

    value: PositiveFloat
    unit: BandwidthUnit
    operation: Literal["write", "read", "both"] = "both"
    of: Text = "file system"

    @property
    def mib_per_s(self) -> float:
        """The limit in MiB/s."""
        return units.mib_per_s(self.value, self.unit)


class Striping(Closed):
    """How a file is spread when nobody asks: `count` OSTs (-1 is all) in pieces of `bytes`."""

    count: int | None = Field(default=None, ge=-1)
    bytes: Size | None = None


class FileSystem(Named):
    """One file system that benchmarks can write to.

    Attributes:
        mount: where it is mounted; None where the source does not say.
        technology: `Lustre`, `GPFS`, `BeeGFS`, `Panasas`, `NFS`, `ext4`, `xfs`, `tmpfs`…
        servers: object storage servers (OSS), NSD servers or blades.
        targets: object storage targets (OST).
        block_bytes: block size of the file system.
        storage: what stands behind the servers, in words.
    """

    mount: Text | None = None
    technology: Text
    version: Text | None = None
    servers: PositiveInt | None = None
    targets: PositiveInt | None = None
    metadata_servers: PositiveInt | None = None
    capacity: Text | None = None
    block_bytes: Size | None = None
    striping: Striping | None = None
    storage: Text | None = None
    peaks: tuple[Peak, ...] = ()


class NodeType(Named):
    """Nodes of one kind. Memory is kept as printed (`64 GB`)."""

    count: PositiveInt | None = None
    sockets: PositiveInt | None = None
    cores: PositiveInt | None = None
    processor: Text | None = None
    memory: Text | None = None


class Interconnect(Named):
    """The network that I/O goes through."""

    topology: Text | None = None


class Software(Named):
    """A version of a library, compiler or operating system that the source names."""

    version: Text | None = None


class Limits(Closed):
    """What suites may use of the machine at once; absent means no limit of ours.

    Attributes:
        nodes, ranks: most that one case may ask for.
        ranks_per_node: most processes on one node.
        total_bytes: most that one session may write.
        free_bytes: what has to stay free on the scratch file system.
        files: most files that one case may create.
        minutes: longest job.
        queue_minutes: longest wait of a case in the queue; then its job is cancelled and the case has failed.
    """

    nodes: PositiveInt | None = None
    ranks: PositiveInt | None = None
    ranks_per_node: PositiveInt | None = None
    total_bytes: Size | None = None
    free_bytes: Size | None = None
    files: PositiveInt | None = None
    minutes: PositiveInt | None = None
    queue_minutes: PositiveInt | None = None


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class Blackout(Closed):
    """A time in which nothing is measured, in UTC.

    Attributes:
        reason: for people: why the night did not take place, or ended early.
        days: days of the week on which it begins; none is every day.
        start, end: times of the day; an end that is not after the start is on the next day. 00:00 to 00:00, the
            default, is the whole day.
        since, until: first and last day on which it begins; None is without end.
    """

    reason: Text
    days: tuple[Weekday, ...] = ()
    start: time = time(0)
    end: time = time(0)
    since: date | None = None
    until: date | None = None

    @model_validator(mode="after")
    def _days_are_in_order(self) -> Blackout:
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"'until' {self.until} is before 'since' {self.since}")
        if (self.start.tzinfo or self.end.tzinfo) is not None:
            raise ValueError("times are UTC and have no zone: for example 22:30")
        return self


class Night(Closed):
    """What `iowatch run --night` keeps to; absent means no limit.

    Attributes:
        minutes: longest night; what is not expected to fit is left for another night, and what still runs then
            is ended.
        node_hours: most nodes x hours in the benchmarks' jobs.
        bytes: most bytes written and read.
        jitter_minutes: the night begins up to so much later, each night at another minute.
        blackouts: no night begins in one, and a night that goes on ends before the next.
        repeat_suspected: run cases once more in the same night whose newest nights look different.
    """

    minutes: PositiveInt | None = None
    node_hours: PositiveFloat | None = None
    bytes: Size | None = None
    jitter_minutes: PositiveInt | None = None
    blackouts: tuple[Blackout, ...] = ()
    repeat_suspected: bool = True


class System(Closed):
    """A machine.

    Attributes:
        timezone: IANA name of the zone in which the dashboard shows times; everything else is in UTC.
        retired: why it cannot be measured any more; None for a machine in service.
        system_stacks: whether its stacks include those of the operating system's packages, found by looking at
            the machine that iowatch runs on.
        sources: short names of documents to their titles; every `source` then reads `<short name>: <place>`.
        scratch: where benchmarks write, with environment variables; `IOWATCH_VAR` is always known.
    """

    name: Name
    title: Text
    site: Text | None = None
    timezone: Zone | None = None
    retired: Text | None = None
    system_stacks: bool = False
    scratch: Text | None = None
    nodes: tuple[NodeType, ...] = ()
    interconnect: tuple[Interconnect, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    software: tuple[Software, ...] = ()
    limits: Limits = Limits()
    night: Night = Night()
    notes: tuple[Text, ...] = ()
    sources: dict[Text, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_are_known(self) -> System:
        if not self.sources:
            return self
        blocks = (*self.nodes, *self.interconnect, *self.file_systems, *self.software)
        peaks = (peak for file_system in self.file_systems for peak in file_system.peaks)
        for block in (*blocks, *peaks):
            if block.source.partition(":")[0] not in self.sources:
                raise ValueError(
                    f"source '{block.source}' names no document of 'sources' ({', '.join(self.sources)})"
                )
        return self

    def to_json(self) -> dict[str, Any]:
        """The file's facts, sizes in bytes, and every peak also in MiB/s."""
        document = self.model_dump(mode="json")
        for printed, known in zip(document["file_systems"], self.file_systems, strict=True):
            for row, peak in zip(printed["peaks"], known.peaks, strict=True):
                row["mib_per_s"] = peak.mib_per_s
        return document

    def file_system(self, name: str) -> FileSystem:
        """One of its file systems.

        Raises:
            UsageError: no such file system.
        """
        for file_system in self.file_systems:
            if file_system.name == name:
                return file_system
        hint = near_miss(name, [known.name for known in self.file_systems])
        raise UsageError(f"system '{self.name}' has no file system '{name}'", hint=hint)

    def scratch_directory(self) -> Path:
        """Where benchmarks write, with variables replaced.

        Raises:
            UsageError: no scratch is set, it names a variable that is not set, or is no absolute path.
        """
        where = f"systems/{self.name}/system.yaml: field 'scratch'"
        if self.scratch is None:
            raise UsageError(f"{where} is not set", hint="Set it to a directory on the file system to measure.")
        known = {**os.environ, "IOWATCH_VAR": str(paths.var().absolute())}
        text = re.sub(r"\$\{(\w+)\}", lambda match: known.get(match.group(1), match.group(0)), self.scratch)
        if "$" in text:
            raise UsageError(
                f"{where}: '{text}' names a variable that is not set", hint="Set it or name the path."
            )
        if not text.startswith("/"):
            raise UsageError(
                f"{where}: '{text}' is no absolute path", hint="It would be another one in every directory."
            )
        return Path(text)
