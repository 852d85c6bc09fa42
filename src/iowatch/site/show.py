"""Terminal tables of systems, stacks and the doctor's report, with the conclusion first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time, tzinfo
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from iowatch.benchmarks.hints import understood_hints
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import format_count, format_number, format_size, make_table
from iowatch.site import (
    Blackout,
    FileSystem,
    FileSystemLimits,
    NightlyPolicy,
    Stack,
    StackDiff,
    System,
    SystemLimits,
    system_zone,
)
from iowatch.site.stack import probe as stack_probe
from iowatch.site.storage import Mount

if TYPE_CHECKING:
    from iowatch.site import doctor


def _format_size(size_bytes: int | None) -> str:
    return "–" if size_bytes is None else format_size(size_bytes)


def _doctor_summary(report: doctor.DoctorReport) -> str:
    if report.retired:
        return f"No suite runs for this system, and nothing can be installed for it: {report.retired}."
    missing = [status.title for status in report.missing]
    if report.problems and not missing:
        return "Suites cannot run."
    if not missing:
        return "All requirements are met."
    verdict = "Suites can run" if report.usable else "Suites cannot run"
    return f"{verdict}; missing: {', '.join(missing)}."


def render_doctor(report: doctor.DoctorReport, console: Console) -> None:
    """Print the report of `iowatch doctor`."""
    console.print(_doctor_summary(report), markup=False)
    for problem in report.problems:
        console.print(f"  {problem}", markup=False, soft_wrap=True)
    for command in report.commands:
        console.print(f"  add it with: {command}", markup=False, soft_wrap=True)
    built_by_spack = []
    for status in report.missing:
        if status.command and "stack install" in status.command and status.title != "Spack":
            built_by_spack.append(status.title)
    if built_by_spack:
        others = "PATH, a modules stack, or `programs` in system.yaml (docs/stacks.md)"
        console.print(f"  or provide {', '.join(built_by_spack)} by {others}", markup=False, soft_wrap=True)
    for stack in report.broken_stacks:
        console.print(f"  broken stack {stack}", markup=False, soft_wrap=True)
    for query in report.unanswered:
        console.print(f"  not recorded: {query}", markup=False, soft_wrap=True)
    for plugin in report.plugins:
        console.print(f"  {plugin.name} adds {', '.join(plugin.adds) or 'nothing'}", markup=False, soft_wrap=True)
        for fault in plugin.faults:
            console.print(f"    not used: {fault}", markup=False, soft_wrap=True)
    for name in report.overridden:
        console.print(f"  {name} of this site replaces a file of iowatch", markup=False, soft_wrap=True)
    memory = _format_size(report.memory_bytes)
    console.print(f"\n{report.distribution}; {report.cores} cores, {memory} memory", markup=False)
    console.print(f"Scheduler: {report.scheduler.title}", markup=False)
    if report.scratch:
        console.print(f"Scratch: {report.scratch}", markup=False, soft_wrap=True)
    for name, description in report.other_file_systems.items():
        console.print(f"File system {name}: {description}", markup=False, soft_wrap=True)
    console.print()
    if report.findings:
        console.print(_requirements_table(report.findings))
        console.print()
    console.print(_mounts_table(report.file_systems))


def _requirements_table(statuses: Iterable[doctor.RequirementStatus]) -> Table:
    table = make_table("part", "found", "used for")
    for status in statuses:
        versions = ", ".join(status.found)
        if not versions:
            versions = "MISSING, required" if status.required else "missing"
        table.add_row(status.title, versions, status.use)
    return table


def _mounts_table(mounts: Iterable[Mount]) -> Table:
    table = make_table("mount", "technology", "size", "free", "writable", "striping", right=("size", "free"))
    for mount in mounts:
        striping = ""
        if mount.targets is not None:
            striping = f"{mount.targets} OSTs; default {mount.layout or 'unknown'}"
        table.add_row(
            mount.mount,
            mount.technology,
            _format_size(mount.size_bytes),
            _format_size(mount.free_bytes),
            "yes" if mount.writable else "no",
            striping,
        )
    return table


def render_system_list(systems: Iterable[System], console: Console) -> None:
    """Print one line per system."""
    rows = make_table("system", "title", "file systems", "state")
    for system in systems:
        technologies = ", ".join(f"{fs.name} ({fs.technology})" for fs in system.file_systems)
        rows.add_row(system.name, system.title, technologies, "retired" if system.retired else "in service")
    console.print(rows)


def _file_system_facts(file_system: FileSystem) -> str:
    striping = file_system.striping
    facts = (
        file_system.version and f"version {file_system.version}",
        file_system.servers and f"{file_system.servers} servers",
        file_system.targets and f"{file_system.targets} OSTs",
        file_system.metadata_servers and f"{file_system.metadata_servers} metadata servers",
        file_system.capacity,
        file_system.block_bytes and f"block {format_size(file_system.block_bytes)}",
        striping and striping.count and f"default stripe count {striping.count}",
        striping and striping.bytes and f"default stripe size {format_size(striping.bytes)}",
        file_system.storage,
    )
    return "; ".join(str(fact) for fact in facts if fact)


def _hardware(system: System) -> Table:
    rows = make_table("what", "facts", "source")
    for node in system.nodes:
        facts = (
            node.count and format_count(node.count, "node"),
            node.cores and format_count(node.cores, "core"),
            node.sockets and format_count(node.sockets, "socket"),
            node.processor,
            node.memory and f"{node.memory} memory",
        )
        rows.add_row(f"nodes {node.name}", "; ".join(str(fact) for fact in facts if fact), node.source)
    for network in system.interconnect:
        rows.add_row("interconnect", "; ".join(filter(None, (network.name, network.topology))), network.source)
    for software in system.software:
        rows.add_row("software", f"{software.name} {software.version or ''}".strip(), software.source)
    return rows


def _storage(system: System) -> tuple[Table, Table]:
    """Return the tables of file systems and of their theoretical peaks, the columns in the order of the titles.

    The limit of a peak is the object that has it, for example the file system or one node (`of`).
    """
    rows = make_table("file system", "mount", "technology", "facts", "source")
    peaks = make_table("theoretical peak of", "operation", "as printed", "MiB/s", "limit", "source", right=("MiB/s",))
    for fs in system.file_systems:
        rows.add_row(fs.name, fs.mount or "–", fs.technology, _file_system_facts(fs), fs.source)
        for peak in fs.peaks:
            printed = f"{format_number(peak.value)} {peak.unit}"
            peaks.add_row(fs.name, peak.operation, printed, format_number(peak.mib_per_s), peak.of, peak.source)
    return rows, peaks


def _format_limits(limits: SystemLimits | FileSystemLimits) -> str:
    texts = []
    for name, value in limits.model_dump(exclude_none=True).items():
        text = format_size(value) if name.endswith("_bytes") else value
        texts.append(f"{name} {text}")
    return ", ".join(texts)


def _measured(system: System) -> Table:
    """Return the table of the file systems that suites measure; without rows if there is only the default one."""
    table = make_table("measured file system", "directory", "must be on", "limits")
    if len(system.measured_file_systems) < 2:
        return table
    for file_system in system.measured_file_systems:
        name = file_system.name
        if file_system.is_default:
            name += " (default)"
        location = str(file_system.declared)
        if file_system.node_local:
            location = f"each node, {location}" if location else "each node"
        limits = _format_limits(file_system.limits) if file_system.limits else ""
        table.add_row(name, file_system.directory.path, location, limits)
    return table


def _format_blackout(blackout: Blackout, zone: tzinfo) -> str:
    """Return `blackout 'backup' (mon tue 22:30 to 01:00 Europe/Berlin, since 2026-11-21)`."""
    period = " ".join(blackout.days) or "every day"
    is_whole_day = blackout.start == blackout.end == time(0)
    if not is_whole_day:
        period += f" {blackout.start:%H:%M} to {blackout.end:%H:%M} {zone}"
    if blackout.since:
        period += f", since {blackout.since}"
    if blackout.until:
        period += f", until {blackout.until}"
    return f"blackout '{blackout.reason}' ({period})"


def _format_nightly_policy(night: NightlyPolicy, zone: tzinfo) -> str:
    """Return the policy of nightly sessions in one line."""
    thresholds = {"suspected_probability", "smallest_loss", "slow_loss"}
    not_numbers = {"blackouts", "unmeasured_nights", "repeat_suspected", *thresholds}
    texts: list[str] = []
    for name, value in night.model_dump(exclude=not_numbers, exclude_none=True).items():
        text = format_size(value) if name == "bytes" else value
        texts.append(f"{name} {text}")
    texts += [_format_blackout(blackout, zone) for blackout in night.blackouts]
    if night.blackouts:
        texts.append(f"at most {night.unmeasured_nights} nights in succession without a session")
    if not night.repeat_suspected:
        texts.append("suspected cases are not repeated")
    return ", ".join(texts)


def _format_scratch(system: System) -> str:
    """Return the scratch directory and the declared file system; empty without one."""
    if system.scratch is None:
        return ""
    declared = str(system.scratch)
    return f"{system.scratch.path}, {declared}" if declared else system.scratch.path


def render_system(system: System, console: Console) -> None:
    """Print all facts about a system."""
    console.print(f"{system.name}: {system.title}", markup=False)
    zone = system_zone(system.name)
    facts = {
        "Site": system.site,
        "Time zone": str(zone),
        "State": f"retired: {system.retired}" if system.retired else "in service",
        "Scratch": _format_scratch(system),
        "Limits of the suites": _format_limits(system.limits),
        "Night": _format_nightly_policy(system.night, zone),
    }
    for title, text in facts.items():
        if text:
            console.print(f"{title}: {text}", markup=False)
    for section in (_hardware(system), *_storage(system), _measured(system)):
        if section.row_count:
            console.print()
            console.print(section)
    blocks = (*system.nodes, *system.interconnect, *system.file_systems, *system.software)
    notes = [f"{block.name}: {block.note}" for block in blocks if block.note]
    notes += system.notes
    sources = [f"{name}: {title}" for name, title in system.sources.items()]
    for title, lines in (("Notes", notes), ("Sources", sources)):
        if lines:
            console.print(f"\n{title}:", markup=False)
            for line in lines:
                console.print(f"  {line}", markup=False, soft_wrap=True)


_LIBRARIES = (*stack_probe.MPI_LIBRARIES, "hdf5", "netcdf-c", "parallel-netcdf")


def render_stack_list(stacks: Iterable[Stack], console: Console) -> None:
    """Print one line per stack: its main parts, or why it is broken."""
    stacks = list(stacks)
    if not stacks:
        console.print("No stacks: a retired system, or one without MPI, modules.yaml and spack.yaml.")
        return
    rows = make_table("stack", "kind", "state", "parts")
    packages = dict.fromkeys(b.package for b in BENCHMARKS.values() if b.package and b.probe)
    for stack in stacks:
        if stack.status == "broken" and stack.note:
            rows.add_row(stack.name, stack.kind, stack.status, stack.note)
            continue
        parts = [stack.part(name) for name in (*_LIBRARIES, *packages)]
        versions = ", ".join(f"{part.name} {part.version}" for part in parts if part)
        rows.add_row(stack.name, stack.kind, stack.status, versions)
    console.print(rows)


def render_stack(stack: Stack, console: Console) -> None:
    """Print all facts about a stack."""
    console.print(f"{stack.name} on {stack.system}: {stack.kind}, {stack.status}", markup=False)
    if stack.note:
        console.print(f"  {stack.note}", markup=False, soft_wrap=True)
    if stack.modules:
        console.print(f"  modules: {' '.join(stack.modules)}", markup=False)
    console.print(f"  offers: {', '.join(stack.features) or 'no feature that checks require'}", markup=False)
    if stack.mpi_io:
        hints = ", ".join(understood_hints(stack.mpi_io))
        console.print(f"  MPI-IO: {stack.mpi_io}, understands the hints {hints}", markup=False, soft_wrap=True)
    console.print()
    rows = make_table("part", "version", "hash", "compiler", "target", "prefix")
    for part in stack.parts:
        short_hash = f"/{part.hash[:7]}" if part.hash else "–"
        facts = (part.compiler or "–", part.target or "–", part.prefix or "–")
        rows.add_row(part.name, part.version, short_hash, *facts)
    console.print(rows)


def _count_differences(result: StackDiff) -> str:
    """Return `2 versions and 1 other fact differ`."""
    if not result.differences:
        return "no difference"
    versions = sum(row.field == "version" for row in result.differences)
    others = len(result.differences) - versions
    counts = []
    if versions:
        counts.append(format_count(versions, "version"))
    if others:
        counts.append(format_count(others, "other fact"))
    verb = "differs" if len(result.differences) == 1 else "differ"
    return f"{' and '.join(counts)} {verb}"


def render_stack_diff(result: StackDiff, console: Console) -> None:
    """Print the differences between two stacks."""
    console.print(
        f"{result.left} against {result.right}: {_count_differences(result)}; "
        f"{format_count(len(result.rebuilt), 'part')} rebuilt on other parts, {result.same} the same.",
        markup=False,
        soft_wrap=True,
    )
    if result.differences:
        rows = make_table("part", "field", result.left, result.right)
        for row in result.differences:
            rows.add_row(row.part, row.field, row.left or "none", row.right or "none")
        console.print()
        console.print(rows)
    if result.rebuilt:
        console.print(f"\nBuilt on other parts: {', '.join(result.rebuilt)}", markup=False)
