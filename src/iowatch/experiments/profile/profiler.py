"""Profilers of one run: which library functions and system calls the time of opening, flushing and closing goes to.

A profiler traces system calls with their stacks of callers: `strace -k` where ptrace is allowed, otherwise
`perf trace`. perf needs a tenth of the time, but loses the stacks of whole processes where cores are shared
(docs/profile.md). bpftrace is not used: it follows frame pointers, which the libraries of Debian and of most sites
lack. What is profiled is no measurement: it takes several times as long.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

# Directory of the traces in that of the job, the file with reasons if no profiler can be used, and the profile.
DIRECTORY, _REFUSED, PROFILE_FILE = "profile", "profile/refused", "profile.json"

# System calls of opening, flushing and closing. Data and metadata that are written are not traced: a stack of callers
# takes milliseconds (strace), and perf loses events where there are thousands per second.
_CALLS = (
    *(
        "open",
        "openat",
        "creat",
        "close",
        "truncate",
        "ftruncate",
        "fallocate",
        "fsync",
        "fdatasync",
        "sync_file_range",
    ),
    *("flock", "fcntl", "ioctl", "statfs", "fstatfs", "unlink", "unlinkat", "rename"),
    *("nanosleep", "clock_nanosleep"),  # a library that waits and tries again
)


@dataclass(frozen=True)
class Profiler:
    """A program that traces system calls.

    Attributes:
        package: Debian package that installs it.
        trial: words that succeed where it is allowed; `true` follows.
        command: words before the traced command; `$out` is the file to write.
        permission: what allows it.
        parse: lines of a trace -> calls.
        has_callers: whether the trace has the stacks of callers.
    """

    name: str
    package: str
    trial: str
    command: str
    permission: str
    parse: Callable[[Iterable[str]], Iterator[TracedCall]]
    has_callers: bool = True


@dataclass(frozen=True)
class TracedCall:
    """One system call: its duration in seconds, and the functions that led to it, the innermost first."""

    name: str
    seconds: float
    callers: tuple[str, ...]


_PERF_CALL = re.compile(r" *\d+\.\d+ \( *(\d+\.\d+) ms\): \S.*?/\d+ (?:\.\.\. \[continued\]: )?(\w+)\(.*")
_PERF_FRAME = re.compile(r" {20,}(\S+) \(.*\)")


def parse_perf_trace(lines: Iterable[str]) -> Iterator[TracedCall]:
    """Parse `perf trace --call-graph`: a call, then one indented line per function, an address where it has no name."""

    def parse_call(line: str) -> TracedCall | None:
        call = _PERF_CALL.match(line)
        if call is None:
            return None
        return TracedCall(call[2], float(call[1]) / 1000, ())

    return _parse_trace(lines, parse_call, _PERF_FRAME)


_STRACE_CALL = re.compile(r"(?:\[pid +\d+\] )?(\w+)\(.* <(\d+\.\d+)>$")
_STRACE_FRAME = re.compile(r" > \S+?\((\w[\w.@]*)\+0x[0-9a-f]+\) \[|( > )")


def parse_strace(lines: Iterable[str]) -> Iterator[TracedCall]:
    """Parse `strace -k -T`: a call with its seconds at the end, then one line per function, `?` without a name."""

    def parse_call(line: str) -> TracedCall | None:
        call = _STRACE_CALL.match(line)
        if call is None:
            return None
        return TracedCall(call[1], float(call[2]), ())

    return _parse_trace(lines, parse_call, _STRACE_FRAME)


def _parse_trace(
    lines: Iterable[str], parse_call: Callable[[str], TracedCall | None], frame_pattern: re.Pattern[str]
) -> Iterator[TracedCall]:
    """The calls of a trace, each with the functions of the lines below it.

    Args:
        parse_call: the call of a line, without callers; None if the line is something else.
        frame_pattern: matches the line of a function; its first group is the name.
    """
    call: TracedCall | None = None
    callers: list[str] = []
    for line in lines:
        frame = frame_pattern.match(line)
        if frame is not None:
            callers.append(frame[1] or "?")
            continue
        # Any other line ends the stack of the call before it.
        if call is not None:
            yield replace(call, callers=tuple(callers))
        call = parse_call(line)
        callers = []
    if call is not None:
        yield replace(call, callers=tuple(callers))


_LIST = ",".join(_CALLS)
_PTRACE = "ptrace is not allowed (containers: --cap-add SYS_PTRACE; else kernel.yama.ptrace_scope, at most 1)"
# In the order of preference.
PROFILERS = (
    Profiler(
        "strace",
        "strace",
        "strace -f --seccomp-bpf -k -o /dev/null -e trace=close",
        f"strace -ff --seccomp-bpf -k -T -e trace={_LIST} -o $out",
        f"{_PTRACE}, or it was built without libunwind",
        parse_strace,
    ),
    Profiler(
        "perf",
        "linux-perf",
        "perf trace -o /dev/null --call-graph dwarf -e close",
        f"perf trace -T -m 64M --max-stack 60 --call-graph dwarf,16384 -e {_LIST} -o $out",
        "the kernel does not allow it (root, or kernel.perf_event_paranoid=-1 and a readable /sys/kernel/tracing)",
        parse_perf_trace,
    ),
    Profiler(
        "strace without callers",
        "strace",
        "strace -o /dev/null -e trace=close",
        f"strace -ff -T -e trace={_LIST} -o $out",
        _PTRACE,
        parse_strace,
        has_callers=False,
    ),
)


def wrapper_script(names: Iterable[str] = ()) -> str:
    """Return a shell script that runs its arguments under the first profiler that can be used.

    Each process writes files `profile/<profiler>.<host>.<process>`. If none can be used, it writes the reasons to
    `profile/refused` and ends with code 97.

    Args:
        names: only these profilers; empty means all.
    """
    lines = ["#!/bin/sh", f"mkdir -p {DIRECTORY}", "reasons="]
    # Each profiler is tried; `exec` ends the script with the first one that works.
    for number, profiler in enumerate(PROFILERS):
        if names and profiler.name not in names:
            continue
        program = profiler.trial.partition(" ")[0]
        lines += [
            f"if ! command -v {program} > /dev/null; then",
            f'  reasons="$reasons; {profiler.name}: not installed (package {profiler.package})"',
            f"elif {profiler.trial} true > /dev/null 2>&1; then",
            f'  out={DIRECTORY}/{number}.$(uname -n).$$; exec {profiler.command} "$@"',
            "else",
            f'  reasons="$reasons; {profiler.name}: {profiler.permission}"',
            "fi",
        ]
    # The script gets here only if none works.
    lines += [f'echo "${{reasons#; }}" > {_REFUSED}', "exit 97", ""]
    return "\n".join(lines)


# Functions that a program calls, and the phase that they belong to; the outermost on a stack decides.
_ENTRY = {
    "open": "H5Fcreate H5Fopen H5Fcreate_async H5Fopen_async nc_create_par nc_open_par nc_create nc_open ncmpi_create "
    "ncmpi_open MPI_File_open fopen open openat creat",
    "sync": "H5Fflush nc_sync ncmpi_sync MPI_File_sync fsync fdatasync",
    "close": "H5Fclose H5Fclose_async H5Dclose H5Dclose_async nc_close ncmpi_close MPI_File_close fclose close",
    "transfer": "H5Dwrite H5Dread H5Dwrite_async H5Dread_async H5Dcreate2 H5Dset_extent nc_put_vara nc_get_vara "
    "nc_put_vara_double nc_enddef ncmpi_enddef ncmpi_put_vara_all ncmpi_get_vara_all MPI_File_write_at "
    "MPI_File_write_at_all MPI_File_write_all MPI_File_read_all MPI_File_set_view pwrite write pread read",
}
_PHASE = {name: phase for phase, names in _ENTRY.items() for name in names.split()}
PHASES = ("open", "close", "sync", "transfer")
# Functions of libraries between the entry and the C library that a chain names.
_LIBRARY = re.compile(r"H5F\w+|nc_\w+|ncmpi_\w+|MPI_File_\w+")
_INTERNAL = re.compile(r"H5F_|H5FD_|\w*__")
# The C library, as far as a chain ends with it.
_SYSTEM = frozenset((*_CALLS, "posix_fallocate", "fclose")) - {"nanosleep", "clock_nanosleep"}
# The start and end of MPI and the loader of libraries open and close files of their own.
_RUNTIME = re.compile(r"MPI_Init\w*|MPI_Finalize|_?dl_\w+|dlopen\w*|_dl\w+|call_init|exit|__?cxa_\w+|PMI\w*")


# The C library's open calls the system's openat.
_SAME = {"openat": "open", "unlinkat": "unlink"}


def _plain_name(name: str) -> str:
    """Return the name of a function without the marks of profiling interfaces, versions and sizes of offsets."""
    name = re.sub(r"@.*|\.(?:part|constprop|isra|cold).*", "", name)
    name = re.sub(r"^(?:__GI_+|___?libc_|_+)(?=[a-z])", "", name)
    name = re.sub(r"^PMPI_", "MPI_", name)
    if name.lower() != name:
        return name
    name = re.sub(r"(?:64)?(?:_nocancel)?$", "", name)
    return _SAME.get(name, name)


@dataclass(frozen=True)
class ChainTime:
    """Time of one chain of calls, over all processes.

    Attributes:
        phase: one of `PHASES`.
        chain: functions from the one that the program calls to the C library.
        calls, seconds, longest_s: number, sum and maximum of its system calls.
    """

    phase: str
    chain: tuple[str, ...]
    calls: int
    seconds: float
    longest_s: float

    @property
    def text(self) -> str:
        return " → ".join(self.chain)


def attribute(calls: Iterable[TracedCall]) -> list[ChainTime]:
    """Sum system calls by the chain of functions that led to them; the longest first.

    The C library's function on the stack counts, not the system call: a wrapper of `ftruncate` that waits is
    `ftruncate`. Calls without callers are chains of themselves. The start and end of MPI are left out.
    """
    seconds_by_chain: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for call in calls:
        chain = _chain_of_call(call)
        if chain is not None:
            seconds_by_chain[chain].append(call.seconds)
    chain_times: list[ChainTime] = []
    for chain, seconds in seconds_by_chain.items():
        # The outermost function is the one that the program called.
        phase = _PHASE[chain[0]]
        chain_times.append(ChainTime(phase, chain, len(seconds), sum(seconds), max(seconds)))
    return sorted(chain_times, key=lambda chain_time: -chain_time.seconds)


def _chain_of_call(call: TracedCall) -> tuple[str, ...] | None:
    """The functions that led to a system call, from the one that the program called to the one of the C library.

    Returns:
        the names, each once; None for a call of none of the phases, or of the start or end of MPI.
    """
    names = [_plain_name(name) for name in reversed(call.callers)]
    if not names:
        names = [_plain_name(call.name)]
    if any(_RUNTIME.fullmatch(name) for name in names):
        return None
    # The outermost function that belongs to a phase is the one that the program called.
    while names and names[0] not in _PHASE:
        names.pop(0)
    if not names:
        return None
    entry, *inner_names = names
    # The loader before `main`, and threads of MPI.
    has_main = any("libc_start" in name for name in call.callers)
    if call.callers and entry in _SYSTEM and not has_main:
        return None
    # Between the entry and the C library only the public functions of libraries.
    chain = [entry]
    for name in inner_names:
        if _is_public(name) and name not in _SYSTEM:
            chain.append(name)
    # The innermost function of the C library, or the system call where the stack has none.
    system_names = [name for name in names if name in _SYSTEM]
    chain.append(system_names[-1] if system_names else _plain_name(call.name))
    return tuple(dict.fromkeys(chain))


def _is_public(name: str) -> bool:
    return _LIBRARY.fullmatch(name) is not None and _INTERNAL.match(name) is None


@dataclass(frozen=True)
class Profile:
    """Where the time of one run's system calls goes.

    Attributes:
        tool: name of the profiler.
        has_callers: whether functions of libraries are known.
        processes: number of traced processes and threads.
        lost: calls that the profiler reports as not recorded.
        unknown: processes without a single known caller, which perf does not report.
        seconds: by phase, sum over all processes.
        chains: the longest first.
    """

    tool: str
    has_callers: bool
    processes: int
    lost: int
    unknown: int
    seconds: Mapping[str, float]
    chains: tuple[ChainTime, ...]

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        # JSON has no tuples.
        document["chains"] = [{**asdict(chain_time), "chain": list(chain_time.chain)} for chain_time in self.chains]
        return document


def read_profile(stage: Path) -> Profile | None:
    """Return the profile of a job from its directory; None if there is no trace."""
    trace_files = sorted(path for path in (stage / DIRECTORY).glob("[0-9].*") if path.is_file())
    if not trace_files:
        return None
    # The name of a file starts with the number of the profiler that wrote it: the same one for all processes.
    profiler = PROFILERS[int(trace_files[0].name[0])]
    all_calls: list[TracedCall] = []
    unknown_count = 0
    lost_count = 0
    for path in trace_files:
        trace = path.read_text(errors="replace")
        process_calls = list(profiler.parse(trace.splitlines()))
        all_calls += process_calls
        # perf loses the callers of whole processes, without a report.
        if profiler.name == "perf" and not attribute(process_calls):
            unknown_count += 1
        for number in re.findall(r"(?m)^LOST (\d+) events", trace):
            lost_count += int(number)
    chain_times = attribute(all_calls)
    seconds: dict[str, float] = {}
    for phase in PHASES:
        seconds[phase] = sum(chain_time.seconds for chain_time in chain_times if chain_time.phase == phase)
    return Profile(
        tool=profiler.name,
        has_callers=profiler.has_callers,
        processes=len(trace_files),
        lost=lost_count,
        unknown=unknown_count,
        seconds=seconds,
        chains=tuple(chain_times),
    )


def refusal(stage: Path) -> str | None:
    """Return why no profiler could be used in a job; None if one could."""
    path = stage / _REFUSED
    return path.read_text(errors="replace").strip() if path.is_file() else None


def format_profile(document: Mapping[str, Any], limit: int = 12) -> list[str]:
    """Return lines that describe a profile as `Profile.to_json` has it: seconds by phase, then the longest chains."""
    tool = document["tool"]
    seconds = ", ".join(f"{phase} {document['seconds'].get(phase, 0.0):.3f} s" for phase in PHASES)
    lines = [f"{tool}, {document['processes']} processes and threads, all together: {seconds}"]
    # What the trace lacks, before the numbers that are too small because of it.
    if document.get("lost"):
        lines.append(f"{document['lost']} system calls are missing: {tool} could not record them.")
    if document.get("unknown"):
        lines.append(
            f"The callers of {document['unknown']} of these processes are not known: perf lost their libraries."
        )
    if not document["has_callers"]:
        lines.append("The functions that called are not known: strace was built without libunwind.")
    for chain_time in document["chains"][:limit]:
        phase_seconds = f"{chain_time['phase']:8} {chain_time['seconds']:9.3f} s"
        longest = f"longest {chain_time['longest_s']:.3f} s"
        functions = " → ".join(chain_time["chain"])
        lines.append(f"{phase_seconds} {chain_time['calls']:7} calls, {longest}  {functions}")
    return lines


def profile_json(profile: Profile) -> str:
    """Return the text of `PROFILE_FILE`."""
    return json.dumps(profile.to_json(), indent=1, ensure_ascii=False) + "\n"
