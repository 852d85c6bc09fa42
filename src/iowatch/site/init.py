"""`iowatch system init`: writes systems/<name>/ from the facts that this machine reports.

Missing facts are listed in comments of the files and in the output of the command; no value is invented.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iowatch.core import UsageError, settings, suggest_name, units
from iowatch.site import machine, schedulers, storage, system

_SLURM = ("slurm", "squeue")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SETTINGS = re.compile(r"(?<=# settings: begin\n).*(?=# settings: end\n)", re.DOTALL)


@dataclass(frozen=True)
class InitResult:
    """The files that `write_system` wrote, and descriptions of missing facts (`gaps`)."""

    name: str
    files: tuple[str, ...]
    gaps: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class MachineFacts:
    """Detected facts that are used in several places."""

    host: str
    scheduler: str
    partitions: tuple[machine.QueueInfo, ...]
    cores: int
    launchers: tuple[str, ...]
    mounts: tuple[storage.Mount, ...]
    mpi_types: Mapping[str, str] | None = None


def detect_machine(scheduler: str | None = None) -> MachineFacts:
    """Examine this machine.

    Args:
        scheduler: use this one instead of detecting it.

    Raises:
        UsageError: unknown scheduler.
    """
    known = schedulers.SCHEDULER_OPTIONS
    if scheduler is not None and scheduler not in known:
        raise UsageError(f"no scheduler '{scheduler}'", hint=suggest_name(scheduler, list(known)))
    chosen = scheduler or machine.detect_scheduler().name
    return MachineFacts(
        host=socket.gethostname(),
        scheduler=chosen,
        partitions=tuple(machine.detect_partitions(chosen)),
        cores=os.cpu_count() or 1,
        launchers=tuple(machine.detect_launchers()),
        mounts=tuple(storage.list_mounts()),
        mpi_types=machine.slurm_mpi_types() if chosen in _SLURM else {},
    )


def missing_facts(facts: MachineFacts) -> tuple[str, ...]:
    """Describe the facts that the administrator has to add."""
    found = ["interconnect", "theoretical peak bandwidths of the file systems"]
    if facts.scheduler != "local" and not facts.partitions:
        found.append(f"queues of {facts.scheduler}: no answer")
    if facts.scheduler != "local" and any(partition.cores is None for partition in facts.partitions):
        found.append("cores of the compute nodes: the value of this login node is used")
    if facts.mpi_types is None:
        found.append("PMI type for srun (MpiDefault): see MPI_TYPES in reframe.py")
    if not any(mount.technology in storage.PARALLEL_TECHNOLOGIES for mount in facts.mounts):
        found.append("parallel file system: none is mounted here")
    if not facts.launchers:
        found.append("MPI launcher: load the MPI module first; until then ReFrame has no environment")
    return tuple(found)


def choose_scratch(facts: MachineFacts) -> tuple[str, str]:
    """Return (scratch directory, reason for the choice)."""
    for variable in ("SCRATCH", "WORK"):
        if os.environ.get(variable):
            return f"${{{variable}}}/iowatch", f"{variable} is set on this machine"
    for mount in facts.mounts:
        if mount.technology in storage.PARALLEL_TECHNOLOGIES and mount.writable:
            reason = f"{mount.technology}, writable for {os.environ.get('USER', 'you')}"
            return f"{mount.mount.rstrip('/')}/iowatch", reason
    return ("${IOWATCH_VAR}/scratch", "no parallel file system is writable at its mount point: name the directory")


def _yaml_text(value: str) -> str:
    """Return a YAML scalar that parses to the same text."""
    return json.dumps(value, ensure_ascii=False)


def _yaml_list_item(**fields: object) -> list[str]:
    """Return one YAML list item; fields without a value are omitted."""
    known = [(name, value) for name, value in fields.items() if value is not None]
    rows = [f"{name}: {_yaml_text(value) if isinstance(value, str) else value}" for name, value in known]
    return [f"{'- ' if number == 0 else '  '}{row}" for number, row in enumerate(rows)]


def _nodes(facts: MachineFacts, day: str) -> list[str]:
    rows, source = [], f"{facts.scheduler}, {day}"
    for queue in facts.partitions:
        rows += _yaml_list_item(name=queue.name, count=queue.nodes, cores=queue.cores, source=source)
    (model, sockets), memory_bytes = machine.detect_processor(), machine.detect_memory_bytes()
    memory = None if memory_bytes is None else units.format_size(memory_bytes)
    name = "this node" if facts.scheduler == "local" else "login"
    source = f"/proc/cpuinfo and /proc/meminfo of {facts.host}, {day}"
    return rows + _yaml_list_item(
        name=name, sockets=sockets, cores=facts.cores, processor=model, memory=memory, source=source
    )


def _file_systems(facts: MachineFacts, day: str) -> list[str]:
    """Return the file systems with distinct names; the second `scratch` is named by its full path."""
    rows: list[str] = []
    seen: set[str] = set()
    for mount in facts.mounts:
        path, technology = mount.mount, mount.technology
        name = Path(path).name or "root"
        title = path if name in seen else name
        size = None if mount.size_bytes is None else units.format_size(mount.size_bytes)
        source = f"/proc/self/mounts{' and lfs' if technology == 'Lustre' else ''}, {day}"
        rows += _yaml_list_item(
            name=title, mount=path, technology=technology, targets=mount.targets, capacity=size, source=source
        )
        if mount.stripe_count is not None and mount.stripe_bytes is not None:
            rows.append(f"  striping: {{count: {mount.stripe_count}, bytes: {mount.stripe_bytes}}}")
        rows.append('  # peaks: [{value: 30, unit: GB/s, of: file system, source: "document and page"}]')
        seen.add(name)
    return rows


# Ranks of the suite `smoke`. Without a scheduler an MPI can start more ranks than there are cores, so that a session is
# possible on a machine with two.
LEAST_RANKS = 4


def _ranks_per_node(facts: MachineFacts) -> int:
    cores = max((partition.cores or 0 for partition in facts.partitions), default=0) or facts.cores
    return max(cores, LEAST_RANKS) if facts.scheduler == "local" else cores


def system_yaml_text(name: str, facts: MachineFacts) -> str:
    """Return the text of `system.yaml`."""
    day = units.utc_now().date().isoformat()
    directory, reason = choose_scratch(facts)
    limits = ["  nodes: 1"] if facts.scheduler == "local" else []
    lines = [
        f"# Facts of {name}: written by `iowatch system init` on {facts.host}, {day}.",
        "# docs/systems.md lists all fields; `iowatch system show` checks them.",
        *(f"# Not found: {gap}." for gap in missing_facts(facts)),
        f"name: {name}",
        f"title: {_yaml_text(f'{name}: complete this line')}",
        "system_stacks: true",
        f"# {reason}",
        f"scratch: {_yaml_text(directory)}",
        "limits:",
        *limits,
        f"  ranks_per_node: {_ranks_per_node(facts)}",
        "  free_bytes: 10g  # must stay free on scratch",
        "  minutes: 60  # longest job",
        *(["  queue_minutes: 240  # longest wait in the queue"] if facts.scheduler != "local" else []),
        "nodes:",
        *_nodes(facts, day),
        "# interconnect: [{name: InfiniBand HDR, topology: fat tree, source: document and page}]",
        *(["file_systems:", *_file_systems(facts, day)] if facts.mounts else ["file_systems: []"]),
    ]
    return "\n".join(lines) + "\n"


def _partition_setting(partition: machine.QueueInfo | None, facts: MachineFacts) -> str:
    name = re.sub(r"[^\w.-]", "-", partition.name) if partition else "default"
    queue = json.dumps(partition.name) if partition else "None"
    cores = partition.cores if partition and partition.cores else facts.cores
    limit = min(partition.minutes, 60) if partition and partition.minutes else 60
    return f'    {{"name": "{name}", "queue": {queue}, "cores": {cores}, "time_limit": "{limit}m"}},'


def reframe_settings_text(facts: MachineFacts) -> str:
    """Return the settings of `reframe.py`, with comments for missing facts."""
    pattern = re.sub(r"\d+", r"\\d+", re.escape(facts.host).replace(r"\-", "-"))
    partitions = [_partition_setting(partition, facts) for partition in facts.partitions or (None,)]
    launchers = ", ".join(facts.launchers) or "none"
    lines = [
        f"# Found: scheduler {facts.scheduler}; launchers on PATH: {launchers}.",
        f'SCHEDULER = "{facts.scheduler}"',
        "# What starts MPI programs. None: srun with Slurm, flux run with Flux, mpirun with the others.",
        "LAUNCHER = None",
        "# srun's --mpi type for each MPI (`srun --mpi=list`) where Slurm's MpiDefault is none.",
        f"MPI_TYPES = {json.dumps(dict(facts.mpi_types or {}))}",
        "# Regular expressions of the login nodes' host names; ReFrame recognises the machine by them.",
        f'HOSTNAMES = [r"^{pattern}$"]',
        "# lmod, envmod, or nomod where there are no environment modules.",
        f'MODULES_SYSTEM = "{machine.detect_module_system() or "nomod"}"',
        '# More options of every job, for example ["--account=my-project"].',
        "ACCESS = []",
        "# Queues: name for ReFrame, name for the scheduler (None: its default), cores of a node, longest job.",
        "PARTITIONS = [",
        *partitions,
        "]",
    ]
    return "\n".join(lines) + "\n"


def write_system(name: str, *, scheduler: str | None = None, force: bool = False) -> InitResult:
    """Describe this machine as `systems/<name>/`.

    Raises:
        UsageError: the name is invalid, or exists and `force` is not set.
        InputError: the written files violate their own schema (a defect of iowatch).
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot name a system", hint="Use lower-case letters, digits and dashes.")
    directory = settings.site_file("system", name).parent
    if (directory / "system.yaml").exists() and not force:
        raise UsageError(f"systems/{name} already exists", hint="--force overwrites it.")
    facts = detect_machine(scheduler)
    directory.mkdir(parents=True, exist_ok=True)
    template = settings.find_file("reframe", system.TEMPLATE_NAME).read_text(encoding="utf-8")
    configuration = _SETTINGS.sub(lambda _: reframe_settings_text(facts), template)
    texts = {"system.yaml": system_yaml_text(name, facts), "reframe.py": configuration}
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    system.read_system(directory / "system.yaml")
    return InitResult(name, tuple(str(directory / file) for file in texts), missing_facts(facts))
