"""`systems/<name>/system.yaml`: schema, reader and time zone of a system.

All times are stored in UTC; people write and read them in the time zone of the system (docs/systems.md, "Times").
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, tzinfo
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints, field_validator, model_validator

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.benchmarks.suites import ALL_FILE_SYSTEMS, SuiteCase, load_suite, on_all_nodes
from iowatch.core import InputError, IowatchError, Scalar, UsageError, local_day, settings, suggest_name, units, utc_now
from iowatch.core.yamlfile import ClosedModel, YamlDocument, ZoneName
from iowatch.site.compared_facts import may_vary_faults
from iowatch.site.file_system import (
    FileSystem,
    MeasuredFileSystem,
    NamedModel,
    NonEmptyText,
    ScratchField,
    Size,
    file_system_faults,
    measured_file_systems,
)

SystemIdentifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
ProgramDirectory = Annotated[str, StringConstraints(pattern=r"^/[^:]*$")]


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
        unmeasured_nights: blackouts that leave the system without a session for more nights than this are a problem.
        repeat_suspected: retest cases in the same session whose newest observations differ.
        retest_delay_minutes: wait so long before retests that cannot run on other nodes than the first runs.
        suspected_probability: a suspected finding that lasts with at least this probability counts as a finding;
            None: as in site.yaml (0.5). At most 0.9: no probability after few sessions is higher.
        smallest_loss: share of the performance from which on the loss of a calm series in one session counts as a
            finding; None: as in site.yaml (0.2).
        slow_loss: share of the performance from which on a slow loss without a step is a finding; None: as in
            site.yaml (0.1).
    """

    minutes: PositiveInt | None = None
    node_hours: PositiveFloat | None = None
    bytes: Size | None = None
    jitter_minutes: PositiveInt | None = None
    blackouts: tuple[Blackout, ...] = ()
    unmeasured_nights: Annotated[int, Field(ge=1, le=366)] = 3
    repeat_suspected: bool = True
    retest_delay_minutes: PositiveInt | None = None
    suspected_probability: Annotated[float, Field(gt=0, le=0.9)] | None = None
    smallest_loss: Annotated[float, Field(ge=0.03, le=0.9)] | None = None
    slow_loss: Annotated[float, Field(ge=0.03, le=0.9)] | None = None


class PrometheusSettings(ClosedModel):
    """A server of Prometheus that answers without a password.

    Attributes:
        url: for example `http://prometheus:9090`.
        queries: by name; each has one number as its answer.
    """

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")]
    queries: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], NonEmptyText]


LUSTRE_PARAMETERS = (
    "osc.*.max_rpcs_in_flight",
    "osc.*.max_dirty_mb",
    "osc.*.max_pages_per_rpc",
    "osc.*.checksums",
    "osc.*.checksum_type",
    "osc.*.short_io_bytes",
    "mdc.*.max_rpcs_in_flight",
    "mdc.*.max_mod_rpcs_in_flight",
    "llite.*.max_read_ahead_mb",
    "llite.*.max_read_ahead_per_file_mb",
    "llite.*.max_read_ahead_whole_mb",
    "llite.*.checksums",
    "llite.*.statahead_max",
)
"""Settings of a Lustre client that change its speed (Lustre manual, "Tuning a Lustre File System"). A release of Lustre
that does not have one of them leaves it out."""


class CovariateSettings(ClosedModel):
    """What runs record about their surroundings besides the usual (`iowatch.core.covariates`), and its use.

    Attributes:
        adjust: whether detection adjusts a series for the covariate that predicts it (docs/detection.md).
        lustre_parameters: patterns of `lctl get_param`; with `*` for the device those of the file system of scratch.
        network_counters: names of counters that `ethtool -S` prints, for example `rx_discards_phy`.
    """

    adjust: bool = True
    lustre_parameters: tuple[Annotated[str, StringConstraints(pattern=r"^[\w.*?-]+$")], ...] = LUSTRE_PARAMETERS
    network_counters: tuple[Annotated[str, StringConstraints(pattern=r"^\w+$")], ...] = ()
    prometheus: PrometheusSettings | None = None


class FactSettings(ClosedModel):
    """Which facts of runs may differ from session to session (`site/compared_facts.py`).

    Attributes:
        may_vary: names of facts, or `<fact>:<pattern of items>` such as `variables:UCX_*`.
    """

    may_vary: tuple[NonEmptyText, ...] = ()

    @field_validator("may_vary")
    @classmethod
    def _names_facts(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        faults = may_vary_faults(entries)
        if faults:
            raise ValueError("; ".join(faults))
        return entries


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
        scratch: directory of the default file system; in the file a path, or a block that also declares the mount.
    """

    docs = "docs/systems.md#fields-of-systemyaml"
    name: SystemIdentifier
    title: NonEmptyText
    site: NonEmptyText | None = None
    timezone: ZoneName | None = None
    retired: NonEmptyText | None = None
    system_stacks: bool = False
    programs: tuple[ProgramDirectory, ...] = ()
    scratch: ScratchField = None
    nodes: tuple[NodeType, ...] = ()
    interconnect: tuple[Interconnect, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    software: tuple[Software, ...] = ()
    limits: SystemLimits = SystemLimits()
    night: NightlyPolicy = NightlyPolicy()
    covariates: CovariateSettings = CovariateSettings()
    facts: FactSettings = FactSettings()
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
        for entry, file_system in zip(document["file_systems"], self.file_systems, strict=True):
            for peak_entry, peak in zip(entry["peaks"], file_system.peaks, strict=True):
                peak_entry["mib_per_s"] = peak.mib_per_s
        return document

    @model_validator(mode="after")
    def _file_systems_can_be_measured(self) -> System:
        faults = list(file_system_faults(self.scratch, self.file_systems))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def measured_file_systems(self) -> tuple[MeasuredFileSystem, ...]:
        """The file systems that suites can measure, the default one first; empty without `scratch` and `directory`."""
        return measured_file_systems(f"systems/{self.name}/system.yaml", self.scratch, self.file_systems)

    def measured(self, name: str | None) -> MeasuredFileSystem:
        """Return a measured file system by its name, or the default one for None.

        Raises:
            UsageError: the system measures none of this name, or none at all.
        """
        measured = {file_system.name: file_system for file_system in self.measured_file_systems}
        if not measured:
            raise UsageError(
                f"systems/{self.name}/system.yaml: field 'scratch' is not set",
                hint="Set it to a directory on the file system to measure.",
            )
        if not name:
            return next(iter(measured.values()))
        if name not in measured:
            hint = suggest_name(name, list(measured))
            raise UsageError(f"system '{self.name}' measures no file system '{name}'", hint=hint)
        return measured[name]

    def limits_on(self, file_system: str | None) -> SystemLimits:
        """Return the limits of cases on a measured file system, None for the default one."""
        limits_by_parameter = {measured.parameter: measured.limits for measured in self.measured_file_systems}
        further = limits_by_parameter.get(file_system)
        if further is None:
            return self.limits
        files = min(further.files, self.limits.files or further.files)
        free_bytes = further.free_bytes or self.limits.free_bytes
        return self.limits.model_copy(update={"files": files, "free_bytes": free_bytes})

    @property
    def node_counts(self) -> dict[str, int]:
        """Number of nodes by partition, those of all its types together; partitions without a stated one are absent."""
        counts: dict[str, int] = {}
        unstated: set[str] = set()
        for node_type in self.nodes:
            if node_type.count is None:
                unstated.add(node_type.name)
            else:
                counts[node_type.name] = counts.get(node_type.name, 0) + node_type.count
        return {name: count for name, count in counts.items() if name not in unstated}

    @property
    def largest_node_counts(self) -> tuple[int, ...]:
        """The most nodes that a case can have on each partition, without repetition; empty if that is not stated."""
        counts: set[int] = set(self.node_counts.values())
        if self.limits.nodes is not None:
            limit = self.limits.nodes
            counts = {min(count, limit) for count in counts} or {limit}
        return tuple(sorted(counts))

    def scratch_directory(self) -> Path:
        """Return the directory of the default file system with variables replaced.

        Raises:
            UsageError: no directory is set, it contains an undefined variable, or is not an absolute path.
        """
        return self.measured(None).path()


def cases_of_system(cases: Iterable[SuiteCase], system: System, file_systems: Sequence[str] = ()) -> list[SuiteCase]:
    """Return every case once per file system: on these, else on those of its suite, else on the default one.

    Cases of other systems are left out.
    A case on all nodes is there once per partition, with its number of nodes, if its suite has not named that, too.
    A case that writes no files (hpcc) is measured on no file system: once, with the default one.

    Args:
        file_systems: names of measured file systems, or `all`.

    Raises:
        UsageError: a name is not that of a measured file system.
    """
    system_cases = [case for case in cases if not case.systems or system.name in case.systems]
    placed_cases = []
    for case in _with_node_counts(system_cases, system.largest_node_counts):
        # A case on the default file system has no parameter.
        for parameter in _file_system_parameters(system, file_systems or case.file_systems):
            if parameter is None:
                placed_cases.append(case)
            elif case.tool.writes_files:
                name = f"{case.name},file_system={parameter}"
                placed_cases.append(replace(case, name=name, file_system=parameter))
    return placed_cases


def _with_node_counts(cases: Sequence[SuiteCase], node_counts: Sequence[int]) -> list[SuiteCase]:
    """Return the cases with those on all nodes resolved.

    They stay as they are where no number of nodes is stated, or none as large as their benchmark needs.
    """
    names = {(case.suite, case.run_name) for case in cases}
    resolved_cases: list[SuiteCase] = []
    for case in cases:
        # Unresolved cases have the fewest nodes.
        possible_counts = [nodes for nodes in node_counts if nodes >= case.nodes]
        if not (case.is_on_all_nodes and possible_counts):
            resolved_cases.append(case)
            continue
        for nodes in possible_counts:
            resolved_case = on_all_nodes(case, nodes)
            name = (case.suite, resolved_case.run_name)
            if name not in names:
                names.add(name)
                resolved_cases.append(resolved_case)
    return resolved_cases


def _file_system_parameters(system: System, names: Sequence[str]) -> list[str | None]:
    """Return the case parameter `file_system` for each of these names, None for the default file system.

    Args:
        names: of measured file systems, or `all`; empty for the default one.

    Raises:
        UsageError: a name is not that of a measured file system.
    """
    parameters = [system.measured(name).parameter for name in dict.fromkeys(names) if name != ALL_FILE_SYSTEMS]
    if ALL_FILE_SYSTEMS in names:
        parameters = [measured.parameter for measured in system.measured_file_systems]
    return parameters or [None]


def default_file_system(system: str) -> str | None:
    """Return the name of the default file system of a system that measures several; None for other systems."""
    try:
        location = (os.environ.get("IOWATCH_SITE"), os.environ.get("IOWATCH_ROOT"), str(Path.cwd()))
        for path in _candidate_files(system, location):
            if path.exists():
                return _default_name(path, path.stat().st_mtime_ns)
    except (OSError, IowatchError):  # a damaged file is reported by what needs it
        return None
    return None  # imported data have no system


@cache
def _candidate_files(system: str, _location: tuple[str | None, ...]) -> tuple[Path, ...]:
    """Return the possible files of a system; pages ask for every series, and to find the site takes 0.2 ms.

    Args:
        _location: what the location of the site depends on.
    """
    return tuple(settings.all_files("system", system))


@cache
def _default_name(path: Path, changed_ns: int) -> str | None:
    measured = _read_cached(path, changed_ns).measured_file_systems
    if len(measured) < 2:
        return None
    return measured[0].name


def with_file_system(system: str, benchmark: str, parameters: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Return case parameters as statistics and pages compare them.

    Where a system measures several file systems, cases without `file_system` have the name of the default one.
    """
    if "file_system" in parameters:
        return parameters
    tool = BENCHMARKS.get(benchmark)
    if tool and not tool.writes_files:
        return parameters
    name = default_file_system(system)
    if not name:
        return parameters
    return {**parameters, "file_system": name}


def suite_on_system(suite: str, system: str, file_systems: Sequence[str] = ()) -> list[SuiteCase]:
    """Return all cases of a suite, once per file system (`cases_of_system`).

    The file systems of an unknown system are unknown, too: its cases are returned once, on the default one.

    Raises:
        UsageError: unknown suite; a name is not that of a measured file system.
    """
    cases = load_suite(suite)
    if system not in system_names():
        return cases
    return cases_of_system(cases, load_system(system), file_systems)


TEMPLATE_NAME = "_template"
# Word of the files for schedulers until a system is described; no system can be named like it.
SYSTEM_PLACEHOLDER = "SYSTEM"


def system_names() -> list[str]:
    """Return the names of all systems, sorted: the directories of `systems/` with a `system.yaml`."""
    return sorted({name for (name,) in settings.list_files("system")} - {TEMPLATE_NAME})


def system_file(name: str, file_name: str = "system") -> Path:
    """Return the path of a file of a system, which need not exist: `system`, `reframe`, `notify` or `externals`.

    Raises:
        UsageError: unknown system.
    """
    names = system_names()
    if name == SYSTEM_PLACEHOLDER:
        raise UsageError(
            f"'{name}' is the placeholder of files for schedulers, not a system",
            hint="Write a name of `iowatch system list` in its place; `iowatch system init` does it in ci/.",
        )
    if name not in names:
        raise UsageError(f"no system '{name}'", hint=f"{suggest_name(name, names)} `iowatch system init` makes one.")
    return settings.find_file(file_name, name)


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
    return local_day((now or utc_now()).timestamp(), system_zone(name))
