"""What this machine is: distribution, cores, memory, scheduler and its partitions, launchers, module system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Scheduler:
    """A batch system, in ReFrame's words.

    Attributes:
        name: a key of `iowatch.systems.options.OPTIONS`: `slurm`, `squeue`, `pbs`, `flux`, `lsf` or `local`.
        title: what it calls itself, with its version.
        launcher: ReFrame's launcher that goes with it.
    """

    name: str
    title: str
    launcher: str


@dataclass(frozen=True)
class Partition:
    """A queue of the scheduler; numbers are None where it does not tell."""

    name: str
    nodes: int | None = None
    cores: int | None = None
    minutes: int | None = None


def ask(*command: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """What a program prints on stdout, or None where it is absent, fails or hangs.

    Bytes that are no text here (a comment in another encoding) are replaced: they must not end a night.
    """
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *command[1:]],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""


# Name in ReFrame, a command that only this scheduler has and that needs no job, the launcher that goes with it.
_SCHEDULERS = (
    ("slurm", ("sinfo", "--version"), "srun"),
    ("flux", ("flux", "--version"), "flux"),
    ("pbs", ("pbsnodes", "--version"), "mpirun"),
    ("lsf", ("lsid", "-V"), "mpirun"),
)
LOCAL = Scheduler("local", "none; runs start on this machine", "mpirun")


def scheduler() -> Scheduler:
    """The batch system of this machine, or `LOCAL`."""
    for name, command, launcher in _SCHEDULERS:
        answer = ask(*command)
        if answer is not None:
            chosen = "squeue" if name == "slurm" and _keeps_no_accounts() else name
            return Scheduler(chosen, _first_line(answer) or name, launcher)
    return LOCAL


def _keeps_no_accounts() -> bool:
    """Whether Slurm has no accounts to ask: ReFrame's `slurm` ends at its first look, `squeue` does without."""
    settings = ask("scontrol", "show", "config") or ""
    # `(null)` from 23.11 on.
    return bool(re.search(r"(?m)^AccountingStorageType\s*=\s*(\S*/none|\(null\))\s*$", settings))


# What each MPI's programs speak to the launcher that started them.
_SPEAKS = {"openmpi": "pmix", "mpich": "pmi2"}


def slurm_mpi_types() -> dict[str, str] | None:
    """What `srun` must be told for each MPI; empty where Slurm's default fits, None where it does not tell."""
    default = re.search(r"(?m)^MpiDefault\s*=\s*(\S+)", ask("scontrol", "show", "config") or "")
    if default is None:
        return None
    if default.group(1) not in ("none", "(null)"):
        return {}
    plugins = re.findall(r"(?m)^\s+(\w+)$", ask("srun", "--mpi=list") or "")
    return {mpi: kind for mpi, kind in _SPEAKS.items() if kind in plugins}


def _slurm_minutes(text: str) -> int | None:
    """Minutes of Slurm's `days-hours:minutes:seconds` (or shorter); None for `infinite`."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return days * 1440 + hours * 60 + minutes


def _slurm_partitions() -> list[Partition]:
    rows = (ask("sinfo", "--noheader", "--format=%R|%D|%c|%l") or "").splitlines()
    found: dict[str, Partition] = {}
    for row in rows:
        name, nodes, cores, limit = (field.strip() for field in row.split("|"))
        count = int(nodes) + (found[name].nodes or 0 if name in found else 0)
        found[name] = Partition(name, count, int(cores.rstrip("+")), _slurm_minutes(limit))
    return list(found.values())


def _pbs_partitions() -> list[Partition]:
    rows = (ask("qstat", "-Q") or "").splitlines()[2:]
    return [Partition(row.split()[0]) for row in rows if row.split()]


def _flux_partitions() -> list[Partition]:
    rows = (ask("flux", "queue", "list", "--format={queue}", "--no-header") or "").splitlines()
    return [Partition(name) for row in rows if (name := row.strip())]


def _lsf_partitions() -> list[Partition]:
    rows = (ask("bqueues", "-noheader", "-o", "queue_name") or "").splitlines()
    return [Partition(name) for row in rows if (name := row.strip())]


_PARTITIONS = {
    "slurm": _slurm_partitions,
    "squeue": _slurm_partitions,
    "pbs": _pbs_partitions,
    "flux": _flux_partitions,
    "lsf": _lsf_partitions,
}


def partitions(name: str) -> list[Partition]:
    """Queues of a scheduler of `scheduler().name`; none for `local` and where the scheduler does not answer."""
    return _PARTITIONS[name]() if name in _PARTITIONS else []


def launchers() -> list[str]:
    """Commands on PATH that start MPI programs."""
    known = ("srun", "mpirun", "mpiexec", "aprun", "flux", "jsrun", "mpirun.openmpi", "mpirun.mpich")
    return [name for name in known if shutil.which(name)]


def module_system() -> str | None:
    """ReFrame's name of the module system, or None."""
    if os.environ.get("LMOD_CMD"):
        return "lmod"
    if os.environ.get("MODULESHOME"):
        return "envmod"  # what ReFrame calls environment modules of version 4 and later
    return None


def memory_bytes(table: Path = Path("/proc/meminfo")) -> int | None:
    """Physical memory, or None where the kernel does not say."""
    try:
        match = re.search(r"^MemTotal:\s+(\d+) kB", table.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(match.group(1)) * 1024 if match else None


def processor(table: Path = Path("/proc/cpuinfo")) -> tuple[str | None, int | None]:
    """(model, sockets) of this machine, as far as the kernel says."""
    try:
        text = table.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, None
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE))
    return (model.group(1).strip() if model else None), (len(sockets) or None)


def distribution(table: Path = Path("/etc/os-release")) -> tuple[str, bool]:
    """(name of the distribution, whether apt-get with Debian's package names serves it)."""
    try:
        text = table.read_text(encoding="utf-8")
    except OSError:
        return "unknown", False
    fields: dict[str, str] = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    family = {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()}
    name: str = fields.get("PRETTY_NAME") or fields.get("ID") or "unknown"
    return name, bool(family & {"debian", "ubuntu"})
