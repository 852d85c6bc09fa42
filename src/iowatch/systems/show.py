"""Systems and the doctor's report for people: plain tables, the answer first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time

from rich.console import Console
from rich.table import Table

from iowatch.systems.doctor import Report
from iowatch.systems.model import Blackout, FileSystem, Named, Night, System
from iowatch.systems.mounts import Mount
from iowatch.tables import table
from iowatch.units import counted, format_number, format_size


def _size(size_bytes: int | None) -> str:
    return "–" if size_bytes is None else format_size(size_bytes)


def _answer(report: Report) -> str:
    if report.retired:
        return f"No suite runs for this system, and nothing can be installed for it: {report.retired}."
    missing = [finding.title for finding in report.missing]
    if not missing:
        return "Everything that iowatch uses is here."
    verdict = "Suites can run" if report.usable else "Suites cannot run"
    return f"{verdict}; missing: {', '.join(missing)}."


def _file_systems(mounts: Iterable[Mount]) -> Table:
    rows = table("mount", "technology", "size", "free", "writable", "striping", right=("size", "free"))
    for mount in mounts:
        striping = ""
        if mount.targets is not None:
            striping = f"{mount.targets} OSTs; default {mount.stripe_count} of {_size(mount.stripe_bytes)}"
        writable = "yes" if mount.writable else "no"
        rows.add_row(
            mount.mount, mount.technology, _size(mount.size_bytes), _size(mount.free_bytes), writable, striping
        )
    return rows


def render_doctor(report: Report, console: Console) -> None:
    """Print what `iowatch doctor` found."""
    console.print(_answer(report), markup=False)
    for command in report.commands:
        console.print(f"  add it with: {command}", markup=False, soft_wrap=True)
    memory = _size(report.memory_bytes)
    console.print(f"\n{report.distribution}; {report.cores} cores, {memory} memory", markup=False)
    console.print(f"Scheduler: {report.scheduler.title}\n", markup=False)
    if report.findings:
        rows = table("part", "found", "used for")
        for finding in report.findings:
            found = ", ".join(finding.found) or ("MISSING, required" if finding.required else "missing")
            rows.add_row(finding.title, found, finding.use)
        console.print(rows)
        console.print()
    console.print(_file_systems(report.file_systems))


def render_list(systems: Iterable[System], console: Console) -> None:
    """Print one line a system."""
    rows = table("system", "title", "file systems", "state")
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


def _notes(system: System) -> list[str]:
    blocks: list[Named] = [*system.nodes, *system.interconnect, *system.file_systems, *system.software]
    return [*(f"{block.name}: {block.note}" for block in blocks if block.note), *system.notes]


def _hardware(system: System) -> Table:
    rows = table("what", "facts", "source")
    for node in system.nodes:
        facts = (
            node.count and counted(node.count, "node"),
            node.cores and counted(node.cores, "core"),
            node.sockets and counted(node.sockets, "socket"),
            node.processor,
            node.memory and f"{node.memory} memory",
        )
        rows.add_row(f"nodes {node.name}", "; ".join(str(fact) for fact in facts if fact), node.source)
    for network in system.interconnect:
        rows.add_row("interconnect", "; ".join(filter(None, (network.name, network.topology))), network.source)
    for software in system.software:
        rows.add_row("software", f"{software.name} {software.version or ''}".strip(), software.source)
    return rows


def _storage(system: System) -> Table:
    rows = table("file system", "mount", "technology", "facts", "source")
    for fs in system.file_systems:
        rows.add_row(fs.name, fs.mount or "–", fs.technology, _file_system_facts(fs), fs.source)
    return rows


def _peaks(system: System) -> Table:
    rows = table("theoretical peak of", "operation", "as printed", "MiB/s", "limit", "source", right=("MiB/s",))
    for fs in system.file_systems:
        for peak in fs.peaks:
            printed = f"{format_number(peak.value)} {peak.unit}"
            rows.add_row(fs.name, peak.operation, printed, format_number(peak.mib_per_s), peak.of, peak.source)
    return rows


def _blackout(blackout: Blackout) -> str:
    """`blackout 'backup' (mon tue 22:30 to 01:00 UTC, since 2026-11-21)`."""
    days = " ".join(blackout.days) or "every day"
    season = [f"{word} {day}" for word, day in (("since", blackout.since), ("until", blackout.until)) if day]
    if blackout.start == blackout.end == time(0):
        span = days
    else:
        span = f"{days} {blackout.start:%H:%M} to {blackout.end:%H:%M} UTC"
    return f"blackout '{blackout.reason}' ({', '.join([span, *season])})"


def _night(night: Night) -> str:
    """The night's policy in one line."""
    plain = night.model_dump(exclude={"blackouts", "repeat_suspected"}, exclude_none=True)
    words = [f"{name} {format_size(value) if name == 'bytes' else value}" for name, value in plain.items()]
    words += [_blackout(blackout) for blackout in night.blackouts]
    words += [] if night.repeat_suspected else ["suspected cases are not repeated"]
    return ", ".join(words)


def render_system(system: System, console: Console) -> None:
    """Print everything that is known of a system."""
    console.print(f"{system.name}: {system.title}", markup=False)
    if system.site:
        console.print(f"Site: {system.site}", markup=False)
    if system.timezone:
        console.print(f"Time zone of the dashboard: {system.timezone}", markup=False)
    console.print(f"State: {f'retired: {system.retired}' if system.retired else 'in service'}", markup=False)
    if system.scratch:
        console.print(f"Scratch: {system.scratch}", markup=False)
    limits = {name: value for name, value in system.limits.model_dump().items() if value is not None}
    if limits:
        listing = ", ".join(
            f"{name} {format_size(value) if name.endswith('_bytes') else value}"
            for name, value in limits.items()
        )
        console.print(f"Limits of the suites: {listing}", markup=False)
    if system.night != Night():
        console.print(f"Night: {_night(system.night)}", markup=False)
    for section in (_hardware(system), _storage(system), _peaks(system)):
        if section.row_count:
            console.print()
            console.print(section)
    for title, lines in (
        ("Notes", _notes(system)),
        ("Sources", [f"{k}: {v}" for k, v in system.sources.items()]),
    ):
        if lines:
            console.print(f"\n{title}:", markup=False)
            for line in lines:
                console.print(f"  {line}", markup=False, soft_wrap=True)
