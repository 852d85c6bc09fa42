"""`iowatch system init`: writes systems/<name>/ from what this machine tells.

What it cannot find it says in comments of the files and in its answer; nothing is invented.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iowatch import paths, units
from iowatch.errors import UsageError, near_miss
from iowatch.systems import machine
from iowatch.systems.load import TEMPLATE, read
from iowatch.systems.machine import Partition
from iowatch.systems.mounts import PARALLEL, Mount, mounts
from iowatch.systems.options import OPTIONS

_SLURM = ("slurm", "squeue")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SETTINGS = re.compile(r"(?<=# settings: begin\n).*(?=# settings: end\n)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """What `write` did.

    Attributes:
        name: the system.
        files: paths written.
        gaps: what it could not find, in words.
    """

    name: str
    files: tuple[str, ...]
    gaps: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """Everything that was detected."""

    host: str
    scheduler: str
    partitions: tuple[Partition, ...]
    cores: int
    sockets: int | None
    processor: str | None
    memory_bytes: int | None
    module_system: str | None
    launchers: tuple[str, ...]
    mounts: tuple[Mount, ...]
    mpi_types: Mapping[str, str] | None = None


def detect(scheduler: str | None = None) -> Facts:
    """Look at this machine.

    Args:
        scheduler: take this one instead of looking for it.

    Raises:
        UsageError: no such scheduler.
    """
    if scheduler is not None and scheduler not in OPTIONS:
        raise UsageError(f"no scheduler '{scheduler}'", hint=near_miss(scheduler, list(OPTIONS)))
    chosen = scheduler or machine.scheduler().name
    model, sockets = machine.processor()
    return Facts(
        host=socket.gethostname(),
        scheduler=chosen,
        partitions=tuple(machine.partitions(chosen)),
        cores=os.cpu_count() or 1,
        sockets=sockets,
        processor=model,
        memory_bytes=machine.memory_bytes(),
        module_system=machine.module_system(),
        launchers=tuple(machine.launchers()),
        mounts=tuple(mounts()),
        mpi_types=machine.slurm_mpi_types() if chosen in _SLURM else {},
    )


def gaps(facts: Facts) -> tuple[str, ...]:
    """What the administrator has to add, in words."""
    found = ["interconnect", "theoretical peak bandwidths of the file systems"]
    if facts.scheduler != "local" and not facts.partitions:
        found.append(f"queues of {facts.scheduler}: it did not answer")
    if facts.scheduler != "local" and any(partition.cores is None for partition in facts.partitions):
        found.append("cores of the compute nodes: the number of this login node stands in")
    if facts.mpi_types is None:
        found.append("what srun must speak to MPI programs (MpiDefault): see MPI_TYPES in reframe.py")
    if not any(mount.technology in PARALLEL for mount in facts.mounts):
        found.append("parallel file system: none is mounted here")
    if not facts.launchers:
        found.append("MPI launcher: load the MPI module first; until then ReFrame has no environment")
    return tuple(found)


def scratch(facts: Facts) -> tuple[str, str]:
    """(where benchmarks write, why there)."""
    for variable in ("SCRATCH", "WORK"):
        if os.environ.get(variable):
            return f"${{{variable}}}/iowatch", f"{variable} is set on this machine"
    for mount in facts.mounts:
        if mount.technology in PARALLEL and mount.writable:
            return str(
                Path(mount.mount) / "iowatch"
            ), f"{mount.technology}, writable for {os.environ.get('USER', 'you')}"
    return (
        "${IOWATCH_VAR}/scratch",
        "no parallel file system is writable at its mount point: name the directory",
    )


def _text(value: str) -> str:
    """A YAML scalar that is read back as the same text."""
    return json.dumps(value, ensure_ascii=False)


def _fields(pairs: Sequence[tuple[str, object]]) -> list[str]:
    """One list item of YAML; pairs without a value are left out."""
    known = [(name, value) for name, value in pairs if value is not None]
    rows = [f"{name}: {_text(value) if isinstance(value, str) else value}" for name, value in known]
    return [f"{'- ' if number == 0 else '  '}{row}" for number, row in enumerate(rows)]


def _nodes(facts: Facts, day: str) -> list[str]:
    rows = []
    for partition in facts.partitions:
        pairs = [("name", partition.name), ("count", partition.nodes), ("cores", partition.cores)]
        rows += _fields([*pairs, ("source", f"{facts.scheduler}, {day}")])
    memory = None if facts.memory_bytes is None else units.format_size(facts.memory_bytes)
    host = [
        ("name", "this node" if facts.scheduler == "local" else "login"),
        ("sockets", facts.sockets),
        ("cores", facts.cores),
        ("processor", facts.processor),
        ("memory", memory),
        ("source", f"/proc/cpuinfo and /proc/meminfo of {facts.host}, {day}"),
    ]
    return [*rows, *_fields(host)]


def _file_system(mount: Mount, day: str) -> list[str]:
    striping = None
    if mount.stripe_count is not None and mount.stripe_bytes is not None:
        striping = f"  striping: {{count: {mount.stripe_count}, bytes: {mount.stripe_bytes}}}"
    rows = _fields(
        [
            ("name", Path(mount.mount).name or "root"),
            ("mount", mount.mount),
            ("technology", mount.technology),
            ("targets", mount.targets),
            ("capacity", None if mount.size_bytes is None else units.format_size(mount.size_bytes)),
            ("source", f"/proc/self/mounts{' and lfs' if mount.technology == 'Lustre' else ''}, {day}"),
        ]
    )
    peak = '  # peaks: [{value: 30, unit: GB/s, of: file system, source: "document and page"}]'
    return [*rows, *([striping] if striping else []), peak]


def _file_systems(facts: Facts, day: str) -> list[str]:
    """Distinct names are needed; the second `scratch` is named by its whole path."""
    rows: list[str] = []
    seen: set[str] = set()
    for mount in facts.mounts:
        block = _file_system(mount, day)
        name = Path(mount.mount).name or "root"
        if name in seen:
            block[0] = f"- name: {_text(mount.mount)}"
        seen.add(name)
        rows += block
    return rows


def system_yaml(name: str, facts: Facts) -> str:
    """Text of `system.yaml`."""
    day = units.utc_now().date().isoformat()
    directory, reason = scratch(facts)
    limits = ["  nodes: 1"] if facts.scheduler == "local" else []
    storages = _file_systems(facts, day)
    lines = [
        f"# Facts of {name}: written by `iowatch system init` on {facts.host}, {day}.",
        "# docs/systems.md lists all fields; `iowatch system show` checks them.",
        *(f"# Not found: {gap}." for gap in gaps(facts)),
        f"name: {name}",
        f"title: {_text(f'{name}: complete this line')}",
        "system_stacks: true",
        f"# {reason}",
        f"scratch: {_text(directory)}",
        "limits:",
        *limits,
        f"  ranks_per_node: {max((p.cores or 0 for p in facts.partitions), default=0) or facts.cores}",
        "  free_bytes: 10g  # must stay free on scratch",
        "  minutes: 60  # longest job",
        *(["  queue_minutes: 240  # longest wait in the queue"] if facts.scheduler != "local" else []),
        "nodes:",
        *_nodes(facts, day),
        "# interconnect: [{name: InfiniBand HDR, topology: fat tree, source: document and page}]",
        *(["file_systems:", *storages] if storages else ["file_systems: []"]),
    ]
    return "\n".join(lines) + "\n"


def _partition_setting(partition: Partition | None, facts: Facts) -> str:
    name = re.sub(r"[^\w.-]", "-", partition.name) if partition else "default"
    queue = json.dumps(partition.name) if partition else "None"
    cores = partition.cores if partition and partition.cores else facts.cores
    limit = min(partition.minutes, 60) if partition and partition.minutes else 60
    return f'    {{"name": "{name}", "queue": {queue}, "cores": {cores}, "time_limit": "{limit}m"}},'


def settings(facts: Facts) -> str:
    """The settings of `reframe.py`, with a comment where something was not found."""
    pattern = re.sub(r"\d+", r"\\d+", re.escape(facts.host).replace(r"\-", "-"))
    partitions = [_partition_setting(partition, facts) for partition in facts.partitions or (None,)]
    launchers = ", ".join(facts.launchers) or "none"
    lines = [
        f"# Found: scheduler {facts.scheduler}; launchers on PATH: {launchers}.",
        f'SCHEDULER = "{facts.scheduler}"',
        "# What starts MPI programs. None: srun with Slurm, flux run with Flux, mpirun with the others.",
        "LAUNCHER = None",
        "# What srun must speak to each MPI (`srun --mpi=list`) where Slurm's MpiDefault is none.",
        f"MPI_TYPES = {json.dumps(dict(facts.mpi_types or {}))}",
        "# Regular expressions of the login nodes' host names; ReFrame recognises the machine by them.",
        f'HOSTNAMES = [r"^{pattern}$"]',
        "# lmod, envmod, or nomod where there are no environment modules.",
        f'MODULES_SYSTEM = "{facts.module_system or "nomod"}"',
        '# More options of every job, for example ["--account=my-project"].',
        "ACCESS = []",
        "# Queues: name for ReFrame, name for the scheduler (None: its default), cores of a node, longest job.",
        "PARTITIONS = [",
        *partitions,
        "]",
    ]
    return "\n".join(lines) + "\n"


def reframe_py(facts: Facts) -> str:
    """Text of `reframe.py`: the template with this machine's settings."""
    template = (paths.root() / "systems" / TEMPLATE / "reframe.py").read_text(encoding="utf-8")
    return _SETTINGS.sub(lambda _: settings(facts), template)


def write(name: str, *, scheduler: str | None = None, force: bool = False) -> Written:
    """Describe this machine as `systems/<name>/`.

    Raises:
        UsageError: the name cannot be used, or is taken and `force` is not set.
        InputError: what was written does not pass its own schema (a fault of ours).
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot name a system", hint="Use lower-case letters, digits and dashes.")
    directory = paths.root() / "systems" / name
    if (directory / "system.yaml").exists() and not force:
        raise UsageError(f"systems/{name} is there already", hint="--force writes over it.")
    facts = detect(scheduler)
    directory.mkdir(parents=True, exist_ok=True)
    texts = {"system.yaml": system_yaml(name, facts), "reframe.py": reframe_py(facts)}
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    read(directory / "system.yaml")
    return Written(name, tuple(str(directory / file) for file in texts), gaps(facts))
