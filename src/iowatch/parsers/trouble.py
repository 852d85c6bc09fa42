"""Signs of trouble: phrases of libraries, launchers, schedulers and benchmarks, and what exit codes mean.

Exit codes and last words of a benchmark both lie (docs/parsers.md, "What can be seen"), so every line of
stdout and stderr is looked at for what only a failure prints.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from iowatch.parsers.lines import Lines, Source, readable

_LONGEST_QUOTE = 160
_MOST_SIGNS = 8
_MOST_REMEMBERED = 10_000
_LONGEST_REMEMBERED = 400


@dataclass(frozen=True, slots=True)
class Sign:
    """A phrase that betrays a failure.

    Attributes:
        phrase: regular expression, searched in one cleaned line.
        meaning: the reason in words.
        fatal: whether it makes a run failed on its own; otherwise it only explains a failure seen elsewhere.
    """

    phrase: str
    meaning: str
    fatal: bool = True


# In the order of what says most about the cause.
_COMMON = (
    Sign(r"No space left on device|ENOSPC", "no space left on device"),
    Sign(r"Disk quota exceeded|EDQUOT", "disk quota exceeded"),
    Sign(r"Read-only file system", "read-only file system"),
    Sign(r"Input/output error", "input/output error"),
    Sign(r"Stale (?:NFS )?file handle", "stale file handle"),
    Sign(r"[Tt]ransport endpoint (?:is not connected|shutdown)", "file system connection lost"),
    Sign(r"DUE TO TIME LIMIT|[Ww]alltime .*exceed|TERM_RUNLIMIT", "time limit of the job reached"),
    Sign(r"oom[-_]kill|Out [Oo]f [Mm]emory|DUE TO MEMORY|Cannot allocate memory", "out of memory"),
    Sign(r"Allocation would exceed memory limit|Error allocating \d+ bytes", "out of memory"),
    Sign(r"CANCELLED AT|job killed", "job cancelled"),
    Sign(r"There are not enough slots", "the launcher refuses: not enough slots"),
    Sign(r"attempt to run as root", "the launcher refuses to run as root"),
    Sign(
        r"unable to (?:find|access|launch) the (?:specified|executable|following)", "the program was not found"
    ),
    Sign(r"was unable to launch|unable to find the executable|execve\(\)", "the program could not be started"),
    Sign(r"error while loading shared libraries|cannot open shared object", "shared library not found"),
    Sign(r"[Ss]egmentation fault|SIGSEGV|signal 11\b", "segmentation fault"),
    Sign(r"[Bb]us error|SIGBUS", "bus error"),
    Sign(r"exited on signal|killed by signal|[Tt]erminated by signal", "a process was killed"),
    Sign(r"Fortran runtime error|forrtl: severe", "Fortran run-time error"),
    Sign(r"HDF5-DIAG: Error detected", "the HDF5 library reports an error"),
    Sign(r"NetCDF: |PnetCDF error|ncmpi_.*error", "the NetCDF library reports an error"),
    Sign(r"mca_\w+: error in|error in \(?p?\)?(?:write|read)", "MPI-IO reports an error"),
    Sign(r"MPI_ABORT was invoked|application called MPI_Abort|MPI_Abort\(", "MPI_Abort was called"),
    Sign(r"MPI_ERRORS_ARE_FATAL|Fatal error in |MPICH ERROR|ORTE_ERROR_LOG", "MPI reports a fatal error"),
    Sign(r"ORTE has lost communication|ORTE daemon has unexpectedly", "the launcher lost a node"),
    Sign(r"non-zero (?:exit )?(?:code|status)", "a process ended with an error"),
    Sign(r"(?:srun|slurmstepd|mpiexec|aprun): error:", "the launcher reports an error"),
    Sign(r"NODE FAILURE|NodeFail", "a node failed"),
    Sign(r"[Pp]ermission denied|MPI_ERR_ACCESS", "permission denied", fatal=False),
    Sign(r"[Nn]o such file or directory|MPI_ERR_NO_SUCH_FILE", "no such file or directory", fatal=False),
    Sign(r"command not found|[Nn]ot found", "not found", fatal=False),
    Sign(r"\b[Kk]illed\b", "killed", fatal=False),
)

# tool -> what it says when it begins
_TITLES = {
    "benchio": r"Simple Parallel IO benchmark",
    "ior": r"MPI Coordinated Test of Parallel I/O",
    "mdtest": r"^mdtest-\S+ was launched with",
    "h5bench": r"= Benchmark Configuration =",
}

# Every line that shows a sign, also one of a tool's own, holds one of these.
_HINTS = re.compile(
    rb"[Ee]rror|ERR|[Ff]ail|FAIL|[Nn]o s|ENOSPC|xceed|QUOT|[Qq]uota|Read-only|[Ss]tale|endpoint|LIMIT|TIME"
    rb"|MEM|[Oo]om|[Mm]emory|CANCEL|[Kk]ill|not enough|as root|nable to|execve|[Ff]ault|signal|SIG|CDF"
    rb"|[Aa]bort|ABORT|FATAL|ORTE|zero|[Dd]enied|[Ff]ound|FAULT|NODE|ncorrect|nvalid|nrecogn|WARNING|partial"
    rb"|shared (?:obj|lib)|[Ii]llegal|benchio: |[Aa]ssert|Unknown|must be|requires|verific|could not"
    rb"|Simple Par|Coordinated|was launched|Benchmark C"
)
_DIGITS = b"0123456789"
_NOT_ASCII = bytes(range(128, 256))


def _is_text(line: bytes) -> bool:
    """Whether most of a line is ASCII; other lines are noise."""
    return line.isascii() or len(line.translate(None, _NOT_ASCII)) > 0.7 * len(line)


def signs_of(tool: str, own: tuple[Sign, ...]) -> tuple[Sign, ...]:
    """What betrays a failure in the output of one tool; another tool in it is one."""
    others = (
        Sign(title, f"{name} wrote into this output too") for name, title in _TITLES.items() if name != tool
    )
    return (*own, *others)


def _without_reason(status: int) -> str:
    return f"exit code {status}"


def _killed_by(number: int) -> str:
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"killed by signal {number}"


def exit_meaning(status: int) -> tuple[bool, str]:
    """Whether an exit status means that the run was stopped from outside, and words for it.

    Args:
        status: as a shell, Python's subprocess (negative: signal) or `timeout` (124) gives it; not 0.
    """
    if status == 124:
        return True, "stopped by timeout (exit code 124)"
    number = -status if status < 0 else status - 128
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        return True, _killed_by(number)
    if status < 0:
        return False, _killed_by(number)
    return False, _without_reason(status)


@dataclass
class Trouble:
    """Collects the signs of trouble in blocks of text.

    Attributes:
        own: further signs that only one tool prints.
        found: meaning -> (fatal, first line that shows it), in the order seen.
    """

    own: tuple[Sign, ...] = ()
    found: dict[str, tuple[bool, str]] = field(default_factory=dict)
    _seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._signs = [(re.compile(sign.phrase), sign) for sign in (*self.own, *_COMMON)]

    def inspect(self, block: bytes) -> None:
        """Look at a block of whole, cleaned lines; lines that differ only in digits are looked at once."""
        if len(self.found) >= _MOST_SIGNS:
            return
        fresh = set(block.translate(None, _DIGITS).split(b"\n")) - self._seen
        suspicious = {line for line in fresh if _is_text(line) and _HINTS.search(line)}
        self._remember(fresh)
        if suspicious:
            for line in block.split(b"\n"):
                key = line.translate(None, _DIGITS)
                if key in suspicious:
                    suspicious.discard(key)
                    self._inspect_line(line.decode("latin-1").rstrip())

    def _remember(self, fresh: set[bytes]) -> None:
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.clear()
        self._seen.update(line for line in fresh if len(line) <= _LONGEST_REMEMBERED)

    def _inspect_line(self, line: str) -> None:
        for pattern, sign in self._signs:
            if sign.meaning not in self.found and pattern.search(line):
                if len(self.found) < _MOST_SIGNS:
                    self.found[sign.meaning] = (sign.fatal, readable(line[:_LONGEST_QUOTE]))
                return

    def inspect_source(self, source: Source | None) -> None:
        """Look at a whole stderr."""
        if source is not None:
            for _ in Lines(source, self.inspect).blocks():
                pass

    def fatal(self) -> list[str]:
        """Reasons that stand on their own."""
        return [f"{meaning}: '{quote}'" for meaning, (fatal, quote) in self.found.items() if fatal]

    def hints(self) -> list[str]:
        """Reasons that explain a failure which was seen elsewhere."""
        return [f"{meaning}: '{quote}'" for meaning, (fatal, quote) in self.found.items() if not fatal]
