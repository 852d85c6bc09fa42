"""Common parts of all parsers: clean lines, failure signatures, exit codes, and the builder of an output.

Memory use is constant: one block of the output is held at a time. Cleaning processes whole blocks for speed
(bench/parsers.py). Exit codes and the last lines of a benchmark are unreliable (docs/parsers.md), so every line of
stdout and stderr is searched for phrases that only a failure prints.
"""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from iowatch.core import METRICS, InputError, Output, OutputStatus, Result, Scalar, canonical_json, parse_size

OutputSource = str | bytes | BinaryIO
CaseParameters = Mapping[str, Scalar | None]
# Field -> the regular expression of its lines, and the function that converts the groups to a value.
FieldTable = Mapping[str, tuple[re.Pattern[str], Callable[..., Any]]]

BLOCK_BYTES = 1 << 18
# Longer lines are noise; only their beginning is kept, so that one line cannot exhaust the memory. (A record of
# iowatch's benchio has one number per rank on one line.)
MAX_LINE_BYTES = 1 << 24
# Limit for options and other named values; programs print some dozens.
MAX_NAMES = 1_000

# All control characters except tab, line feed and escape.
_CONTROLS = bytes({*range(32), 127} - {9, 10, 27})
# Colours and cursor; window titles; character sets (`tput sgr0`); remains of others.
_ESCAPE = re.compile(rb"\x1b\[[0-?]*[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[()*+][0-9A-Za-z]|\x1b")
# Byte order mark that some Windows editors write at the start.
_MARK = b"\xef\xbb\xbf"
# Open MPI's `--tag-output` and `--timestamp-output` ("Mon Nov 23 01:16:57 2026[1,0]<stdout>:"), `srun --label` ("0: "),
# `mpiexec -l` of MPICH and Intel ("[0] ", also within a line that was written in parts).
_TAG = re.compile(rb"^([^<>\n]{0,120}<std(?:out|err|diag)>:)(.*)", re.MULTILINE)
_LABEL = re.compile(rb"^ *\d{1,7}: ", re.MULTILINE)
_BRACKET = re.compile(rb"^(\[\d{1,7}\])(.*)", re.MULTILINE)
_FIRST_LABELS = (b"\n0: ", b"\n 0: ", b"\n  0: ", b"\n   0: ", b"\n    0: ")


def open_source(source: OutputSource) -> BinaryIO:
    """Return a binary stream for text, bytes or a stream."""
    if isinstance(source, str):
        return io.BytesIO(source.encode("utf-8", "replace"))
    return io.BytesIO(source) if isinstance(source, bytes) else source


def clean_block(block: bytes) -> bytes:
    """Return whole lines without launcher labels and control characters."""
    if b"\x1b" in block:
        block = _ESCAPE.sub(b"", block)
    block = block.translate(None, _CONTROLS)
    if b">:" in block:
        block = _remove_labels(_TAG, block)
    if 2 * (block.startswith(b"[") + block.count(b"\n[")) > block.count(b"\n"):
        block = _remove_labels(_BRACKET, block)
    if _LABEL.match(block) or (b"0: " in block and any(label in block for label in _FIRST_LABELS)):
        block = _LABEL.sub(b"", block)
    return block


def _remove_labels(pattern: re.Pattern[bytes], block: bytes) -> bytes:
    """Remove the label of each line, with the blank after it if all labels have one."""
    texts = [text for _, text in pattern.findall(block) if text]
    blank = b" " if all(text.startswith(b" ") for text in texts) else b""
    return pattern.sub(lambda line: line[0].replace(line[1] + blank, b""), block)


def decode_for_display(text: str) -> str:
    """Return a line as display text (lines are Latin-1, so that no byte is lost or rejected)."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


_WHOLE = re.compile(r"[1-9]\d{0,11}")


def parse_count(text: str | None) -> int | None:
    """Return a positive whole number below 10^12, or None."""
    return int(text) if text is not None and _WHOLE.fullmatch(text.strip()) else None


def parse_printed_size(text: str | None) -> int | None:
    """Return the bytes of a size (`16777216 bytes`, `3.81 MiB`, `1m`) below 2^60, or None."""
    try:
        size = parse_size((text or "").removesuffix(" bytes"))
    except InputError:
        return None
    return size if size < 1 << 60 else None


def read_field(table: FieldTable, line: str, values: Mapping[str, list[Any]]) -> bool:
    """Append the value of a line to its field; return False if the line does not belong to any field."""
    for name, (pattern, convert) in table.items():
        match = pattern.fullmatch(line)
        if match is None:
            continue
        if len(values[name]) < MAX_NAMES:
            values[name].append(convert(*match.groups()))
        return True
    return False


class CleanLines:
    """The lines of a source.

    Attributes:
        ended: whether the last line ends with a line break (otherwise the output is truncated).
        empty: whether only blanks were seen.
        decided: set by a reader if later lines cannot change the results, for example when a second
            run begins; the lines of further blocks are then only inspected.
    """

    def __init__(self, source: OutputSource, inspect: Callable[[bytes], None]) -> None:
        """Args:
        source: text, bytes, or a binary stream that is read once from its current position.
        inspect: called with every block of whole, cleaned lines (to find failure signatures).
        """
        self._stream = open_source(source)
        self._inspect = inspect
        self.ended = True
        self.empty = True
        self.decided = False

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole, cleaned lines; the last line may be truncated."""
        rest, mark = b"", _MARK
        while data := self._stream.read(BLOCK_BYTES):
            data, mark = data.removeprefix(mark), b""
            if len(rest) >= MAX_LINE_BYTES and b"\n" not in data:
                continue
            data = rest + data
            end = data.rfind(b"\n") + 1
            rest = data[end:]
            if end:
                yield self._whole(data[:end])
        if rest:
            self.ended = False
            yield self._whole(rest)

    def _whole(self, data: bytes) -> bytes:
        block = clean_block(data)
        if self.empty and not block.isspace():
            self.empty = not block
        self._inspect(block)
        return block

    def __iter__(self) -> Iterator[str]:
        """Yield lines as Latin-1 without trailing blanks; blank lines are omitted."""
        for block in self.blocks():
            for line in [] if self.decided else block.decode("latin-1").split("\n"):
                if line := line.rstrip():
                    yield line


# Of a long line its beginning, which says what it is, and its end, which has the reason: paths are between them.
_QUOTED_BEGINNING, _QUOTED_END = 100, 200
_MAX_SIGNATURES = 8
_MAX_CACHED_LINES = 10_000
_MAX_CACHED_LINE_BYTES = 400


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """A phrase that indicates a failure.

    Attributes:
        phrase: regular expression, searched in one cleaned line; what it repeats is bounded (`.{0,200}`), because a
            long line may begin it at each of its characters.
        meaning: the reason as text.
        fatal: whether it suffices to mark a run as failed; otherwise it only explains another failure.
    """

    phrase: str
    meaning: str
    fatal: bool = True


_MPI_ERROR = "MPI reports a fatal error"
# In descending order of information about the cause.
_COMMON_SIGNATURES = (
    FailureSignature(r"No space left on device|ENOSPC", "no space left on device"),
    FailureSignature(r"Disk quota exceeded|EDQUOT", "disk quota exceeded"),
    FailureSignature(r"Read-only file system", "read-only file system"),
    FailureSignature(r"Input/output error", "input/output error"),
    FailureSignature(r"Stale (?:NFS )?file handle", "stale file handle"),
    FailureSignature(r"[Tt]ransport endpoint (?:is not connected|shutdown)", "file system connection lost"),
    FailureSignature(r"DUE TO TIME LIMIT|[Ww]alltime .{0,200}exceed|TERM_RUNLIMIT", "time limit of the job reached"),
    FailureSignature(r"oom[-_]kill|Out [Oo]f [Mm]emory|DUE TO MEMORY|Cannot allocate memory", "out of memory"),
    FailureSignature(r"Allocation would exceed memory limit|Error allocating \d{1,20} bytes", "out of memory"),
    FailureSignature(r"CANCELLED AT|job killed", "job cancelled"),
    FailureSignature(r"There are not enough slots", "launcher error: not enough slots"),
    FailureSignature(r"attempt to run as root", "the launcher refuses to run as root"),
    FailureSignature(
        r"unable to (?:find|access|launch) the (?:specified|executable|following)", "the program was not found"
    ),
    FailureSignature(
        r"was unable to launch|unable to find the executable|execve\(\)", "the program could not be started"
    ),
    FailureSignature(r"error while loading shared libraries|cannot open shared object", "shared library not found"),
    FailureSignature(r"[Ss]egmentation fault|SIGSEGV|signal 11\b", "segmentation fault"),
    FailureSignature(r"[Bb]us error|SIGBUS", "bus error"),
    FailureSignature(r"exited on signal|killed by signal|[Tt]erminated by signal", "a process was killed"),
    FailureSignature(r"Fortran runtime error|forrtl: severe", "Fortran run-time error"),
    FailureSignature(r"HDF5-DIAG: Error detected", "the HDF5 library reports an error"),
    FailureSignature(r"NetCDF: |PnetCDF error|ncmpi_.{0,200}error", "the NetCDF library reports an error"),
    FailureSignature(r"mca_\w{1,60}: error in|error in \(?p?\)?(?:write|read)", "MPI-IO reports an error"),
    FailureSignature(r"MPI_ABORT was invoked|application called MPI_Abort|MPI_Abort\(", "MPI_Abort was called"),
    FailureSignature(r"MPI_ERRORS_ARE_FATAL|Fatal error in |MPICH ERROR|ORTE_ERROR_LOG", _MPI_ERROR),
    FailureSignature(r"ORTE has lost communication|ORTE daemon has unexpectedly", "the launcher lost a node"),
    # The line behind it, which names the node.
    FailureSignature(r"Remote daemon: .{0,200} on node ", "the node does not respond"),
    FailureSignature(r"non-zero (?:exit )?(?:code|status)", "a process ended with an error"),
    FailureSignature(r"(?:srun|slurmstepd|mpiexec|aprun): error:", "the launcher reports an error"),
    FailureSignature(r"NODE FAILURE|NodeFail", "a node failed"),
    FailureSignature(r"[Pp]ermission denied|MPI_ERR_ACCESS", "permission denied", fatal=False),
    FailureSignature(r"[Nn]o such file or directory|MPI_ERR_NO_SUCH_FILE", "no such file or directory", fatal=False),
    FailureSignature(r"command not found|[Nn]ot found", "not found", fatal=False),
    FailureSignature(r"\b[Kk]illed\b", "killed", fatal=False),
)

# Notes of launchers and libraries about themselves: what they skip is not needed by the run, whose exit code, number of
# ranks and arithmetic show whether it worked.
_HARMLESS_NOTES = re.compile(
    # An option or a variable that has no effect (`Ignoring conflicting option "x11"`), another scratch directory.
    r"(?:srun|slurmstepd|mpiexec|aprun): error:.{0,200}(?:\b[Ii]gnor(?:ing|ed)\b|TMPDIR|going to /tmp instead)"
    # A component of Open MPI for hardware or a scheduler that the node does not have; help texts that it cannot show.
    r"|mca_base_component_repository_open: unable to open|mca: base: component_find: unable to open"
    r"|ORTE_ERROR_LOG: .{0,200} in file util/show_help\.c"
    # A library that is not needed.
    r"|[Ww]arning: .{0,200}cannot open shared object|cannot open shared object.{0,200}\bignored\b"
)

# The error stack of MPICH and its kin, `function(line)....: text`: the deepest call comes last and has the reason.
_ERROR_STACK = re.compile(r"\w{1,80}\(\d{1,6}\)\.{0,80}: {1,4}\S")

# Every line that matches one of `_COMMON_SIGNATURES` contains one of these, even without its digits.
_HINTS = re.compile(
    rb"[Ee]rror|ERR|[Ff]ail|FAIL|[Nn]o s|ENOSPC|xceed|QUOT|[Qq]uota|Read-only|[Ss]tale|endpoint|LIMIT|TIME"
    rb"|MEM|[Oo]om|[Mm]emory|CANCEL|[Kk]ill|not enough|as root|nable to|execve|[Ff]ault|signal|SIG|CDF"
    rb"|[Aa]bort|ABORT|FATAL|ORTE|zero|[Dd]enied|[Ff]ound|FAULT|NODE|shared (?:obj|lib)|\(\)\.*: "
    rb"|Remote d"
)
_DIGITS = b"0123456789"
_NOT_ASCII = bytes(range(128, 256))


def _is_mostly_ascii(line: bytes) -> bool:
    """Return whether most of a line is ASCII; other lines are noise."""
    return line.isascii() or len(line.translate(None, _NOT_ASCII)) > 0.7 * len(line)


def _quoted(line: str) -> str:
    """Return a line for a message; of a long one its beginning and its end."""
    if len(line) <= _QUOTED_BEGINNING + _QUOTED_END:
        return decode_for_display(line)
    return f"{decode_for_display(line[:_QUOTED_BEGINNING])} … {decode_for_display(line[-_QUOTED_END:])}"


def _signal_reason(number: int) -> str:
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"killed by signal {number}"


@dataclass(frozen=True)
class ExitStatusMeaning:
    """What an exit status says.

    Attributes:
        is_stopped: whether the run was stopped from outside.
    """

    is_stopped: bool
    text: str


def explain_exit_status(status: int) -> ExitStatusMeaning:
    """Return what an exit status says about a run.

    Args:
        status: from a shell, Python's subprocess (negative: signal) or `timeout` (124); not 0.
    """
    if status == 124:
        return ExitStatusMeaning(True, "stopped by timeout (exit code 124)")
    number = -status if status < 0 else status - 128
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        return ExitStatusMeaning(True, _signal_reason(number))
    if status < 0:
        return ExitStatusMeaning(False, _signal_reason(number))
    return ExitStatusMeaning(False, f"exit code {status}")


@dataclass
class SignatureScanner:
    """Collects the failure signatures found in blocks of text.

    Attributes:
        of_benchmark: additional signatures that only one benchmark prints.
        seen: meaning -> (fatal, first matching line), in the order seen.
    """

    of_benchmark: tuple[FailureSignature, ...] = ()
    seen: dict[str, tuple[bool, str]] = field(default_factory=dict)
    _searched: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._signs = [(re.compile(sign.phrase), sign) for sign in (*self.of_benchmark, *_COMMON_SIGNATURES)]
        phrases = [sign.phrase.encode() for sign in self.of_benchmark]
        self._hints = re.compile(b"|".join([_HINTS.pattern, *phrases]))

    def inspect(self, block: bytes) -> None:
        """Search a block of whole, cleaned lines; lines that differ only in digits are searched once."""
        if len(self.seen) >= _MAX_SIGNATURES:
            return
        fresh = set(block.translate(None, _DIGITS).split(b"\n")) - self._searched
        suspicious = {line for line in fresh if _is_mostly_ascii(line) and self._hints.search(line)}
        # What was searched is remembered, within limits: an output may have millions of different lines.
        if len(self._searched) > _MAX_CACHED_LINES:
            self._searched.clear()
        self._searched.update(line for line in fresh if len(line) <= _MAX_CACHED_LINE_BYTES)
        for line in block.split(b"\n") if suspicious else []:
            key = line.translate(None, _DIGITS)
            if key in suspicious:
                suspicious.discard(key)
                self._inspect_line(line.decode("latin-1").rstrip())

    def _inspect_line(self, line: str) -> None:
        if _HARMLESS_NOTES.search(line):
            return
        if _MPI_ERROR in self.seen and _ERROR_STACK.match(line):
            self.seen[_MPI_ERROR] = (True, _quoted(line))
            return
        for pattern, sign in self._signs:
            if sign.meaning not in self.seen and pattern.search(line):
                if len(self.seen) < _MAX_SIGNATURES:
                    self.seen[sign.meaning] = (sign.fatal, _quoted(line))
                return

    def inspect_source(self, source: OutputSource | None) -> None:
        """Search a complete stderr."""
        if source is not None:
            for _ in CleanLines(source, self.inspect).blocks():
                pass

    def reasons(self, fatal: bool) -> list[str]:
        """Return reasons that suffice to mark a run as failed (fatal), or those that only explain another failure."""
        return [f"{meaning}: '{quote}'" for meaning, (is_fatal, quote) in self.seen.items() if is_fatal == fatal]


# Fact of an output without any line of the tool.
UNRECOGNISED = "unrecognised"
# A number of an output that is not fresh is refused if the other printed numbers permit a larger relative error.
CONFIRMED = 0.01

_MAX_REASONS = 4
# No benchmark run has more rows; limits memory whatever the output contains.
MAX_ROWS = 50_000
# Fewer transfers have no 99th percentile.
LEAST_TRANSFERS = 100
MAX_RANKS = 1 << 24
# No alignment or stripe size exceeds 64 GiB.
MAX_ALIGNMENT = 1 << 36


@dataclass(frozen=True, slots=True)
class RunContext:
    """Other files and facts of a run, and the requested number of ranks.

    Attributes:
        stderr: stderr of the run, or None if not available.
        rc: exit code (negative: signal), or None.
        ranks: requested number of MPI processes, or None.
        log: standard output of the program if its results are in a separate file, or None.
        fresh: whether a session reads what its own program has just written. Then a number need not be confirmed within
            `CONFIRMED` by others: no transfer or edit can have damaged its digits.
    """

    stderr: OutputSource | None = None
    rc: int | None = None
    ranks: int | None = None
    log: OutputSource | None = None
    fresh: bool = False

    def rank_mismatch_reason(self, ran: Any, program: str) -> str | None:
        """Explain why `ran` ranks differ from the request; None if they do not, or if no number was requested."""
        if self.ranks is None or ran == self.ranks:
            return None
        hint = ": independent processes, as with the launcher of another MPI" if ran == 1 else ""
        return f"{self.ranks} ranks were requested, {program} ran with {ran}{hint}"


def _without_none(case: CaseParameters) -> dict[str, Scalar]:
    """Return the parameters that have a value."""
    return {name: value for name, value in case.items() if value is not None}


@dataclass
class OutputBuilder:
    """A partial output, filled in by a parser.

    Attributes:
        tool: name of the tool.
        version: as printed.
        signs: failure signatures of the benchmark.
        facts: see `iowatch.core.Output.facts`.
        recognised: whether any line is of the tool; set by its parser.
    """

    tool: str
    signs: tuple[FailureSignature, ...] = ()
    version: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    recognised: bool = True
    _failed: list[str] = field(default_factory=list)
    _incomplete: list[str] = field(default_factory=list)
    _results: dict[str, tuple[Result, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.signatures = SignatureScanner(self.signs)

    def lines(self, source: OutputSource) -> CleanLines:
        """Return the lines of the output; failure signatures are recorded while they are read."""
        return CleanLines(source, self.signatures.inspect)

    def add_failure(self, reason: str) -> None:
        """Record that the run reported or indicated an error."""
        if reason not in self._failed:
            self._failed.append(reason)

    def add_truncation(self, reason: str) -> None:
        """Record that something is missing or damaged."""
        if reason not in self._incomplete:
            self._incomplete.append(reason)

    @property
    def has_no_problem(self) -> bool:
        """Return whether no failure or truncation has been found so far."""
        return not self._failed and not self._incomplete

    def add_samples(self, operation: str, metric: str, samples: Iterable[float], case: CaseParameters) -> None:
        """Add plausible samples; impossible values are rejected and reported.

        A metric in seconds is kept only while the output is sound and all its values are above the resolution of the
        tool: missing values of a damaged output may have been below it.

        Args:
            operation: see docs/case-parameters.md.
            metric: a name in `iowatch.core.METRICS`.
            samples: in the metric's unit, in the order measured.
            case: parameters; None values are omitted.
        """
        row = METRICS[metric]
        values = list(samples)
        if not 0 < int(case.get("ranks") or 1) <= MAX_RANKS:
            self.add_failure(f"{case['ranks']} ranks is not plausible")
            return
        accepted = tuple([value for value in values if value > 0 and row.is_plausible(value)])
        # A true time may be below the resolution of the tool ("0.000 s"): it is omitted without a problem.
        if row.unit == "s" and (len(accepted) < len(values) or not self.has_no_problem):
            if self.has_no_problem:
                self.add_below_resolution(operation, metric)
            return
        if len(accepted) < len(values):
            refused = next(value for value in values if not (value > 0 and row.is_plausible(value)))
            self.add_failure(
                f"{operation} {metric} of {refused:g} {row.unit} is not plausible (ceiling {row.ceiling:g} {row.unit})"
            )
        if accepted:
            parameters = _without_none(case)
            key = canonical_json({"case": parameters, "metric": metric, "operation": operation})
            result = Result(operation, metric, row.unit, accepted, parameters)
            # Samples of an operation that is printed in several tests are of one result.
            _, samples_of_result = self._results.setdefault(key, (result, []))
            samples_of_result.extend(accepted)

    def add_below_resolution(self, operation: str, metric: str) -> None:
        """Record that a metric is omitted, because it, or the number that confirms it, has too few digits."""
        self.facts.setdefault("below_resolution", []).append(f"{operation} {metric}")

    def has_results(self, operation: str, case: CaseParameters) -> bool:
        """Return whether there are samples of this operation and case."""
        parameters = _without_none(case)
        results = [result for result, _ in self._results.values()]
        return any(result.operation == operation and result.case == parameters for result in results)

    def drop_results(self) -> None:
        """Discard all results (for example when two runs wrote to one output)."""
        self._results.clear()

    def to_output(self, context: RunContext, lines: CleanLines) -> Output:
        """Return the output with its status and reasons."""
        self.signatures.inspect_source(context.stderr)
        self.signatures.inspect_source(context.log)
        # Other problems follow from these two.
        if lines.empty:
            self._incomplete[:] = ["the output is empty"]
        elif not self.recognised:
            self._incomplete[:] = [f"not an output of {self.tool}: it contains none of its lines"]
        if lines.empty or not self.recognised:
            self.facts[UNRECOGNISED] = True
        if context.rc:
            meaning = explain_exit_status(context.rc)
            if meaning.is_stopped:
                self.add_truncation(meaning.text)
            else:
                self.add_failure(meaning.text)
        fatal = self.signatures.reasons(fatal=True)
        status: OutputStatus = "ok"
        if fatal or self._failed:
            status = "failed"
        elif self._incomplete:
            status = "incomplete"
        # What only explains a failure is no reason without one. The most important reasons come first.
        explanations = self.signatures.reasons(fatal=False) if status != "ok" else []
        reasons = [*fatal, *self._failed, *explanations, *self._incomplete]
        return Output(
            tool=self.tool,
            version=self.version,
            status=status,
            reason="; ".join(reasons[:_MAX_REASONS]) or None,
            results=tuple(replace(result, samples=tuple(samples)) for result, samples in self._results.values()),
            facts=self.facts,
        )
