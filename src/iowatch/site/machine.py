"""Facts of this machine: distribution, cores, memory, scheduler and its queues, launchers, module system."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from zoneinfo import available_timezones

TIMEOUT_S = 10.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scheduler:
    """A batch system, in ReFrame's terms.

    Attributes:
        name: a key of `iowatch.site.schedulers.SCHEDULER_OPTIONS`: `slurm`, `squeue`, `pbs`, `flux`, `lsf` or `local`.
        title: its own name, with its version.
        launcher: the ReFrame launcher for it.
    """

    name: str
    title: str
    launcher: str


def is_slurm(scheduler: str) -> bool:
    """Return whether ReFrame's name of a scheduler is one of its two for Slurm: with accounting or without."""
    return scheduler in ("slurm", "squeue")


@dataclass(frozen=True)
class QueueInfo:
    """A queue of the scheduler; numbers are None if not reported.

    Attributes:
        cores: of its smallest nodes.
        default: jobs go there if they name none.
    """

    name: str
    nodes: int | None = None
    cores: int | None = None
    minutes: int | None = None
    default: bool = False


def run_program(*command: str, timeout_s: float, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program without input, with additional environment variables.

    Raises:
        OSError, subprocess.SubprocessError: it is absent, cannot be started, or times out.
    """
    _LOG.debug("starts: %s", shlex.join(command))
    return subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env={**os.environ, **variables},
    )


def end_process_group(process: subprocess.Popen[str]) -> None:
    """End a program that has its own session, with the programs that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def query_command(*command: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """Return the stdout of a program, or None if it is absent, fails or times out.

    Undecodable bytes (a comment in another encoding) are replaced, so that they do not end a session.
    """
    try:
        done = run_program(*command, timeout_s=timeout_s)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


# Name in ReFrame, a command that only this scheduler has and that needs no job, its launcher.
_SCHEDULERS = (
    ("slurm", ("sinfo", "--version"), "srun"),
    ("flux", ("flux", "--version"), "flux"),
    ("pbs", ("pbsnodes", "--version"), "mpirun"),
    ("lsf", ("lsid", "-V"), "mpirun"),
)
LOCAL_SCHEDULER = Scheduler("local", "none; runs start on this machine", "mpirun")


def detect_scheduler() -> Scheduler:
    """Return the batch system of this machine, or `LOCAL_SCHEDULER`."""
    for name, command, launcher in _SCHEDULERS:
        answer = query_command(*command)
        if answer is None:
            continue
        title = answer.strip().partition("\n")[0].strip() or name
        # Without accounting ReFrame's `slurm` fails at the first query; `squeue` does not need accounting.
        if name == "slurm" and not _slurm_has_accounting():
            name = "squeue"
        return Scheduler(name, title, launcher)
    return LOCAL_SCHEDULER


def _slurm_configuration() -> str:
    """Return the settings of Slurm, one per line; empty if it does not respond."""
    return query_command("scontrol", "show", "config") or ""


def _slurm_has_accounting() -> bool:
    # From 23.11 on `(null)` is printed in place of `accounting_storage/none`.
    pattern = r"(?m)^AccountingStorageType\s*=\s*(\S*/none|\(null\))\s*$"
    return re.search(pattern, _slurm_configuration()) is None


# The process management interface between the programs of each MPI and their launcher.
_PMI_TYPES = {"openmpi": "pmix", "mpich": "pmi2"}


def slurm_mpi_types() -> dict[str, str] | None:
    """Return the `srun --mpi` value of each MPI; empty for Slurm's default, None if Slurm does not report it."""
    default = re.search(r"(?m)^MpiDefault\s*=\s*(\S+)", _slurm_configuration())
    if default is None:
        return None
    if default.group(1) not in ("none", "(null)"):
        return {}
    plugins = re.findall(r"(?m)^\s+(\w+)$", query_command("srun", "--mpi=list") or "")
    return {mpi: pmi_type for mpi, pmi_type in _PMI_TYPES.items() if pmi_type in plugins}


def _slurm_minutes(text: str) -> int | None:
    """Return the minutes of Slurm's `days-hours:minutes:seconds` (or shorter); None for `infinite`."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes = (int(digits or 0) for digits in match.groups()[:3])
    return days * 1440 + hours * 60 + minutes


def _slurm_partitions() -> list[QueueInfo]:
    rows = (query_command("sinfo", "--noheader", "--format=%P|%D|%c|%l") or "").splitlines()
    partitions: dict[str, QueueInfo] = {}
    for row in rows:
        marked_name, node_count, cores, limit = (field.strip() for field in row.split("|"))
        # `*` marks the default partition.
        name = marked_name.removesuffix("*")
        nodes = int(node_count)
        # `4+` is four and more.
        least_cores = int(cores.rstrip("+")) or None
        # A partition has a row for each type of its nodes; a case must fit on each of them.
        if name in partitions:
            nodes += partitions[name].nodes or 0
            least_cores = min(filter(None, (least_cores, partitions[name].cores)), default=None)
        # A partition without nodes has zeros: nothing is known of its nodes.
        partitions[name] = QueueInfo(
            name, nodes=nodes or None, cores=least_cores, minutes=_slurm_minutes(limit), default=marked_name != name
        )
    return list(partitions.values())


def slurm_accounts() -> list[str]:
    """Return the accounts that this user may name in jobs, as Slurm's accounting lists them; empty without it."""
    user = os.environ.get("USER")
    if not user:
        return []
    options = ("--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account")
    accounts = (query_command("sacctmgr", *options) or "").split()
    # A user can have the same account on several clusters.
    return list(dict.fromkeys(accounts))


# Commands that print the queues of other schedulers, one per line, and the number of header lines.
_QUEUE_COMMANDS = {
    "pbs": (("qstat", "-Q"), 2),
    "flux": (("flux", "queue", "list", "--format={queue}", "--no-header"), 0),
    "lsf": (("bqueues", "-noheader", "-o", "queue_name"), 0),
}


def detect_partitions(name: str) -> list[QueueInfo]:
    """Return the queues of a scheduler (`Scheduler.name`); empty for `local` and if the scheduler does not respond."""
    if is_slurm(name):
        return _slurm_partitions()
    if name not in _QUEUE_COMMANDS:
        return []
    command, header_lines = _QUEUE_COMMANDS[name]
    rows = (query_command(*command) or "").splitlines()[header_lines:]
    return [QueueInfo(row.split()[0]) for row in rows if row.split()]


def detect_launchers() -> list[str]:
    """Return the commands on PATH that start MPI programs."""
    launchers = ("srun", "mpirun", "mpiexec", "aprun", "flux", "jsrun", "mpirun.openmpi", "mpirun.mpich")
    return [name for name in launchers if shutil.which(name)]


def detect_module_system() -> str | None:
    """Return ReFrame's name of the module system, or None."""
    if os.environ.get("LMOD_CMD"):
        return "lmod"
    if os.environ.get("MODULESHOME"):
        return "envmod"  # ReFrame's name of environment modules 4 and later
    return None


def _read_table(path: Path) -> str:
    """Return the text of a file of the operating system; empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


_ZONES = "zoneinfo/"


@dataclass(frozen=True)
class DetectedTimeZone:
    """The time zone of this machine.

    Attributes:
        name: of the IANA.
        source: the variable or file that sets it.
    """

    name: str
    source: str


def detect_time_zone(root: Path = Path("/")) -> DetectedTimeZone | None:
    """Return the time zone of this machine; None if only its rules are known.

    Args:
        root: of the files of the operating system.
    """
    rules = root / "etc" / "localtime"
    candidates = (
        (os.environ.get("TZ", "").removeprefix(":"), "TZ"),
        (os.path.realpath(rules).partition(_ZONES)[2], "/etc/localtime"),
        (_read_table(root / "etc" / "timezone").strip(), "/etc/timezone"),
    )
    for name, source in candidates:
        if name == "Etc/UTC":
            return DetectedTimeZone("UTC", source)
        if name in available_timezones():
            return DetectedTimeZone(name, source)
    if rules.exists():
        return None
    return DetectedTimeZone("UTC", "no /etc/localtime")


def detect_memory_bytes(table: Path = Path("/proc/meminfo")) -> int | None:
    """Return the physical memory, or None if the kernel does not report it."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read_table(table), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


@dataclass(frozen=True)
class Processor:
    """The processor of this machine; None for what the kernel does not report."""

    model: str | None
    sockets: int | None


def detect_processor(table: Path = Path("/proc/cpuinfo")) -> Processor:
    """Return the processor of this machine."""
    text = _read_table(table)
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE))
    return Processor(model.group(1).strip() if model else None, len(sockets) or None)


@dataclass(frozen=True)
class Distribution:
    """The distribution of the operating system.

    Attributes:
        has_apt: whether apt-get and Debian's package names apply.
    """

    name: str
    has_apt: bool


def detect_distribution(table: Path = Path("/etc/os-release")) -> Distribution:
    """Return the distribution of this machine."""
    fields: dict[str, str] = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read_table(table), re.MULTILINE))
    family = {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()}
    name: str = fields.get("PRETTY_NAME") or fields.get("ID") or "unknown"
    return Distribution(name, has_apt=bool(family & {"debian", "ubuntu"}))


# The newest Python for which PyDarshan has packages with its library.
_LIBRARY_PYTHON = "3.12"


# The release that is installed where there is none.
_PYDARSHAN_VERSION = "3.5.0"


def pydarshan_version() -> str | None:
    """Return the version of PyDarshan, None if it is not installed."""
    try:
        return metadata.version("darshan")
    except metadata.PackageNotFoundError:
        return None


def can_read_darshan_logs() -> bool:
    """Whether PyDarshan finds libdarshan-util: in its own package, or installed (darshan/discover_darshan.py)."""
    if pydarshan_version() is None:
        return False
    package_libraries = Path(str(metadata.distribution("darshan").locate_file("darshan.libs")))
    if any(package_libraries.glob("libdarshan-util*")):
        return True
    # -P: not a darshan.py in the working directory. The import takes a second.
    program = "from iowatch.darshan import log; log.load_library()"
    return query_command(sys.executable, "-P", "-c", program) is not None


def darshan_library_command() -> str:
    """Return the command that adds libdarshan-util to this Python: PyDarshan's package for x86-64, else Spack.

    PyDarshan is installed without the packages of its reports, which reading logs does not need.
    """
    version = pydarshan_version() or _PYDARSHAN_VERSION
    pip = shlex.join([sys.executable, "-m", "pip", "install", "--upgrade", "--no-deps"])
    if os.uname().machine != "x86_64":
        spack = f"spack install darshan-util@{version} && spack load darshan-util"
        if pydarshan_version() is None:
            return f"{pip} darshan=={version} && {spack}"
        return spack
    # Every Python can load the library of the package for this one.
    directory = shlex.quote(sysconfig.get_path("purelib"))
    if pydarshan_version() is not None:
        directory = shlex.quote(str(metadata.distribution("darshan").locate_file("")))
    words = f"--only-binary=:all: --python-version {_LIBRARY_PYTHON} --target {directory}"
    return f"{pip} {words} darshan=={version}"


def reframe_program() -> str:
    """Return the path of `reframe`: of this Python's environment, else on PATH (Spack has a directory per package)."""
    beside_python = Path(sys.executable).with_name("reframe")
    if beside_python.exists():
        return str(beside_python)
    return shutil.which("reframe") or str(beside_python)
