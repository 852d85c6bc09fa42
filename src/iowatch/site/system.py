"""`systems/<name>/system.yaml`: schema, reader and time zone of a system.

All times are stored in UTC; people write and read them in the time zone of the system (docs/systems.md, "Times").
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import date, datetime, time, tzinfo
from functools import cache
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

from iowatch.core import InputError, IowatchError, UsageError, local_day, settings, suggest_name, units
from iowatch.core.yamlfile import ClosedModel, YamlDocument, ZoneName

SystemIdentifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
ProgramDirectory = Annotated[str, StringConstraints(pattern=r"^/[^:]*$")]
NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _value_error(error: IowatchError) -> ValueError:
    """Return the error of a field, for pydantic, which adds the field and the value."""
    return ValueError(f"{error.message}. {error.hint or 'Expected another value.'}")


def _parse_size_field(value: object) -> object:
    """Return the bytes of a size such as `64g`; see `_value_error`."""
    try:
        return units.parse_size(value) if isinstance(value, str) else value
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


class FileSystem(NamedModel):
    """One file system that benchmarks can write to.

    Attributes:
        mount: mount point; None if the source does not state it.
        technology: `Lustre`, `GPFS`, `BeeGFS`, `Panasas`, `NFS`, `ext4`, `xfs`, `tmpfs`…
        servers: object storage servers (OSS), NSD servers or blades.
        targets: object storage targets (OST).
        block_bytes: block size of the file system.
        storage: the devices of the servers, as text.
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
        known = found.declared if found else {}
        if self.declared.items() <= known.items():
            return None
        return f"found {found or 'unknown'}; expected {self}"

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.declared.items())


class Scratch(FileSystemIdentity):
    """The directory of the benchmarks, and the file system that it must be on.

    Attributes:
        path: absolute, with environment variables; `IOWATCH_VAR` is always defined.
    """

    path: NonEmptyText


def _parse_scratch_field(value: object) -> object:
    """Return the block of a scratch that is only a path."""
    return {"path": value} if isinstance(value, str) else value


class NodeType(NamedModel):
    """Nodes of one type. Memory is kept as printed (`64 GB`)."""

    count: PositiveInt | None = None
    sockets: PositiveInt | None = None
    cores: PositiveInt | None = None
    processor: NonEmptyText | None = None
    memory: NonEmptyText | None = None


class Interconnect(NamedModel):
    """The network that carries I/O."""

    topology: NonEmptyText | None = None


class Software(NamedModel):
    """A version of a library, compiler or operating system that the source states."""

    version: NonEmptyText | None = None


class SystemLimits(ClosedModel):
    """Limits on the use of the machine by suites; absent means no limit by iowatch.

    Attributes:
        nodes, ranks: maximum per case.
        ranks_per_node: maximum number of processes per node.
        total_bytes: maximum written per session.
        free_bytes: space that must remain free on the scratch file system.
        files: maximum number of files per case.
        minutes: maximum job time.
        queue_minutes: maximum queue time per case; then its job is cancelled and the case has failed.
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


class Blackout(ClosedModel):
    """A period without measurements, in the time zone of the system.

    Attributes:
        reason: why the session was skipped or ended early; shown to users.
        days: days of the week on which it begins; empty for every day.
        start, end: times of day; an end that is not after the start is on the next day. 00:00 to 00:00, the
            default, is the whole day.
        since, until: first and last day on which it begins; None for no limit.
    """

    reason: NonEmptyText
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
            raise ValueError("times are in the zone of the system and name none: for example 22:30")
        return self


class NightlyPolicy(ClosedModel):
    """Limits of `iowatch run --night`; absent means no limit.

    Attributes:
        minutes: maximum session time; runs that are not expected to fit are deferred, and jobs that still run then
            are ended.
        node_hours: maximum nodes x hours of the benchmark jobs.
        bytes: maximum bytes written and read.
        jitter_minutes: the session starts up to this much later, at a different minute each night.
        blackouts: no session starts in a blackout, and a running session ends before the next one.
        repeat_suspected: retest cases in the same session whose newest observations differ.
        retest_delay_minutes: wait so long before retests that cannot run on other nodes than the first runs.
        suspected_probability: a suspected finding that lasts with at least this probability counts as a finding;
            None: as in site.yaml (0.5).
    """

    minutes: PositiveInt | None = None
    node_hours: PositiveFloat | None = None
    bytes: Size | None = None
    jitter_minutes: PositiveInt | None = None
    blackouts: tuple[Blackout, ...] = ()
    repeat_suspected: bool = True
    retest_delay_minutes: PositiveInt | None = None
    suspected_probability: Annotated[float, Field(gt=0, le=1)] | None = None


class PrometheusSettings(ClosedModel):
    """A server of Prometheus that answers without a password.

    Attributes:
        url: for example `http://prometheus:9090`.
        queries: by name; each has one number as its answer.
    """

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")]
    queries: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], NonEmptyText]


class CovariateSettings(ClosedModel):
    """What runs record about their surroundings besides the usual (`iowatch.core.covariates`), and its use.

    Attributes:
        adjust: whether detection adjusts a series for the covariate that predicts it (docs/detection.md).
        lustre_parameters: patterns of `lctl get_param`, for example `osc.*.max_rpcs_in_flight`.
        network_counters: names of counters that `ethtool -S` prints, for example `rx_discards_phy`.
    """

    adjust: bool = True
    lustre_parameters: tuple[Annotated[str, StringConstraints(pattern=r"^[\w.*?-]+$")], ...] = ()
    network_counters: tuple[Annotated[str, StringConstraints(pattern=r"^\w+$")], ...] = ()
    prometheus: PrometheusSettings | None = None


class System(ClosedModel):
    """A machine.

    Attributes:
        timezone: IANA name of the zone in which people write and read its times; None is that of the site.
        retired: why it can no longer be measured; None for a machine in service.
        system_stacks: whether its stacks include those of the operating system's packages, found by examining
            the machine on which iowatch runs.
        programs: directories of IOR, mdtest, h5bench and Darshan that are searched before PATH, for the stacks of the
            operating system and of modules.
        sources: short names of documents to their titles; every `source` then has the form `<short name>: <place>`.
        scratch: directory of the benchmarks; in the file a path, or a block that also declares its file system.
    """

    docs = "docs/systems.md#fields-of-systemyaml"
    name: SystemIdentifier
    title: NonEmptyText
    site: NonEmptyText | None = None
    timezone: ZoneName | None = None
    retired: NonEmptyText | None = None
    system_stacks: bool = False
    programs: tuple[ProgramDirectory, ...] = ()
    scratch: Annotated[Scratch | None, BeforeValidator(_parse_scratch_field)] = None
    nodes: tuple[NodeType, ...] = ()
    interconnect: tuple[Interconnect, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    software: tuple[Software, ...] = ()
    limits: SystemLimits = SystemLimits()
    night: NightlyPolicy = NightlyPolicy()
    covariates: CovariateSettings = CovariateSettings()
    notes: tuple[NonEmptyText, ...] = ()
    sources: dict[NonEmptyText, NonEmptyText] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_are_known(self) -> System:
        if not self.sources:
            return self
        blocks = (*self.nodes, *self.interconnect, *self.file_systems, *self.software)
        peaks = (peak for file_system in self.file_systems for peak in file_system.peaks)
        for block in (*blocks, *peaks):
            if block.source.partition(":")[0] not in self.sources:
                raise ValueError(f"source '{block.source}' is not listed in 'sources' ({', '.join(self.sources)})")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the facts of the file, sizes in bytes, and every peak also in MiB/s."""
        document = self.model_dump(mode="json")
        for printed, known in zip(document["file_systems"], self.file_systems, strict=True):
            for row, peak in zip(printed["peaks"], known.peaks, strict=True):
                row["mib_per_s"] = peak.mib_per_s
        return document

    def scratch_directory(self) -> Path:
        """Return the directory of the benchmarks with variables replaced.

        Raises:
            UsageError: no scratch is set, it contains an undefined variable, or is not an absolute path.
        """
        where = f"systems/{self.name}/system.yaml: field 'scratch'"
        if self.scratch is None:
            raise UsageError(f"{where} is not set", hint="Set it to a directory on the file system to measure.")
        return expand_scratch(self.scratch.path, where)


def expand_scratch(path: str, where: str) -> Path:
    """Return a scratch directory with variables replaced; `IOWATCH_VAR` is always defined.

    Args:
        where: where the path is written, for messages.

    Raises:
        UsageError: it contains an undefined variable, or is not an absolute path.
    """
    known = {**os.environ, "IOWATCH_VAR": str(settings.var_directory().absolute())}
    text = re.sub(r"\$\{(\w+)\}", lambda match: known.get(match.group(1), match.group(0)), path)
    if "$" in text:
        raise UsageError(f"{where}: '{text}' names a variable that is not set", hint="Set it or name the path.")
    if not text.startswith("/"):
        raise UsageError(f"{where}: '{text}' is no absolute path", hint="Use an absolute path.")
    return Path(text)


TEMPLATE_NAME = "_template"


def system_names() -> list[str]:
    """Return the names of all systems, sorted: the directories of `systems/` with a `system.yaml`."""
    return sorted({name for (name,) in settings.list_files("system")} - {TEMPLATE_NAME})


def system_file(name: str, kind: str = "system") -> Path:
    """Return the path of a file of a system, which need not exist: `system`, `reframe`, `notify` or `externals`.

    Raises:
        UsageError: unknown system.
    """
    known = system_names()
    if name not in known:
        raise UsageError(f"no system '{name}'", hint=f"{suggest_name(name, known)} `iowatch system init` makes one.")
    return settings.find_file(kind, name)


def read_system(path: Path) -> System:
    """Return the system described by a file.

    Raises:
        InputError: not readable, not YAML, or against the schema.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    document = YamlDocument(path, System.docs)
    system = document.validated(System)
    if system.name != path.parent.name:
        fault = f"field 'name': expected '{path.parent.name}', the name of its folder (found '{system.name}')"
        raise InputError(f"{document.where(['name'], value=True)}: {fault}", hint=document.hint)
    return system


@cache
def _read_cached(path: Path, _changed_ns: int) -> System:
    return read_system(path)


def load_system(name: str) -> System:
    """Return the facts of a system.

    Raises:
        UsageError: unknown system.
        InputError: the file is damaged.
    """
    path = system_file(name)
    return _read_cached(path, path.stat().st_mtime_ns)


def site_zone() -> tzinfo:
    """Return the time zone of what concerns all systems, and of systems that name none.

    Raises:
        InputError: `site.yaml` is invalid. MachineError: the machine has no time zone data.
    """
    return units.find_time_zone(settings.site_settings().timezone)


def system_zone(name: str) -> tzinfo:
    """Return the time zone in which people write and read the times of a system (docs/systems.md, "Times").

    Raises:
        MachineError: the machine has no time zone data.
    """
    try:
        declared = load_system(name).timezone
    except IowatchError:  # imported data have no system; a damaged file is reported by what needs it
        declared = None
    return units.find_time_zone(declared) if declared else site_zone()


def shared_zone(systems: Iterable[str]) -> tzinfo:
    """Return the time zone of these systems, or that of the site if they have several.

    Raises:
        MachineError: the machine has no time zone data.
    """
    zones = {system_zone(name) for name in systems}
    return zones.pop() if len(zones) == 1 else site_zone()


def system_today(name: str, now: datetime | None = None) -> date:
    """Return the day in the zone of a system, now or at another moment."""
    return local_day((now or units.utc_now()).timestamp(), system_zone(name))
