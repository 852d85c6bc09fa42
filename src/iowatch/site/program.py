"""What a job ran, compared with what it should have run: the program, its libraries, and the origin of its output.

A job prints path, SHA-256 and libraries of its program, and the variables that MPI and the I/O libraries read. Another
installation first on PATH or LD_LIBRARY_PATH, or the output of an earlier run, gives valid numbers of something else.
Where the node lacks a tool for this, nothing could be compared: the run fails with that reason.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from iowatch.core import Output
from iowatch.site.stack.probe import HDF5_LIBRARY, MPI_LIBRARIES
from iowatch.site.stack.records import Stack, StackPart

# Part -> file name of its main library.
_LIBRARIES = {
    **dict.fromkeys(MPI_LIBRARIES, r"libmpi(?:ch|_\w+)?\.so"),
    "hdf5": HDF5_LIBRARY,
    "netcdf-c": r"libnetcdf(?:_(?:mpi|parallel\w*))?\.so",
    "parallel-netcdf": r"libpnetcdf\.so",
}
# Variables that change how a program does its I/O; those that a launcher sets for its own ranks are not in the job.
_PREFIXES = "ROMIO|MPICH|OMPI_MCA|PRTE_MCA|PMIX_MCA|I_MPI|MV2|UCX|FI|HDF5|NETCDF|PNETCDF"
_VARIABLES = f"LD_PRELOAD|LD_AUDIT|GLIBC_TUNABLES|({_PREFIXES})_[A-Za-z0-9_]*"
# Variables with which Open MPI tells a program about its start, if ReFrame itself was started so: others in each start.
_VARIABLES_OF_START = re.compile(
    r"(?:OMPI|PRTE|PMIX)_MCA_(?:orte|prte|ess|pmix|ompi)_"
    r"\w*(?:jobid|vpid|uri\d?|transports|app_ctx|num_procs|nodelist|session_dir)"
)
_TIMEOUT_S = 20
# Programs that the lines of a job start to examine its program.
_TOOLS = ("cut", "date", "env", "grep", "ldd", "readlink", "sed", "sha256sum", "timeout", "tr", "uname", "xargs")
# What `ldd` of glibc and of musl print about a program without shared libraries, or a script.
_WITHOUT_LIBRARIES = "not a dynamic executable|statically linked|Not a valid dynamic program"


@dataclass(frozen=True)
class ProgramFacts:
    """What a job found on its first node.

    Attributes:
        path: the program, symbolic links resolved; None if it was not found.
        libraries: paths of the libraries that it loads, resolved.
        checksums: SHA-256 of these libraries, by path; of those that stacks describe.
        unread: why something could not be found out, one sentence each.
        environment: variables that MPI and the I/O libraries read.
        zone: offset of the node's clock from UTC, as `date +%z` prints it.
        host: name of the node.
    """

    path: str | None = None
    sha256: str | None = None
    libraries: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    zone: str = "+0000"
    host: str = ""

    def to_json(self) -> dict[str, Any]:
        """Facts of the run; of the libraries those that stacks describe; empty if the job did not start."""
        if self == ProgramFacts():
            return {}
        described = re.compile("|".join(_LIBRARIES.values()))
        libraries = [path for path in self.libraries if described.match(Path(path).name)]
        variables = {}
        for name, value in self.environment.items():
            if not _VARIABLES_OF_START.fullmatch(name):
                variables[name] = value
        return {
            "path": self.path,
            "sha256": self.sha256,
            "libraries": libraries,
            "library_checksums": {path: self.checksums.get(path, "not recorded") for path in libraries},
            "variables": variables,
        }


def program_commands(program: str, target: str) -> list[str]:
    """Return lines of a job's script that print the facts about a program to the file `target`."""
    limited = f"timeout {_TIMEOUT_S}"
    described = "|".join(_LIBRARIES.values()).replace("(?:", "(").replace("\\w", "[A-Za-z0-9_]")
    return [
        f'_iowatch_program=$(readlink -f "$(command -v {shlex.quote(program)})")',
        f'_iowatch_ldd=$({limited} ldd "$_iowatch_program" 2>&1); _iowatch_ldd_code=$?',
        # One `readlink` for all libraries: one for each takes longer than the rest of this script.
        "_iowatch_libraries=$(echo \"$_iowatch_ldd\" | sed -n 's/.*=> \\(\\/[^ ]*\\) .*/\\1/p' | "
        "tr '\\n' '\\0' | xargs -0r readlink -f)",
        "{",
        'echo "path=$_iowatch_program"; echo "zone=$(date +%z)"; echo "host=$(uname -n)"',
        f'echo "sha256=$({limited} sha256sum < "$_iowatch_program" | cut -d " " -f 1)"',
        f"for _iowatch_tool in {' '.join(_TOOLS)}; do "
        'command -v "$_iowatch_tool" > /dev/null || echo "missing=$_iowatch_tool"; done',
        f'case $_iowatch_ldd_code-$(echo "$_iowatch_ldd" | grep -cE {shlex.quote(_WITHOUT_LIBRARIES)}) in '
        '0-*|*-[1-9]*) ;; *) echo "ldd=$_iowatch_ldd_code";; esac',
        'echo "$_iowatch_libraries" | sed -n "s/^./library=&/p"',
        f'echo "$_iowatch_libraries" | grep -E {shlex.quote(f"/({described})[^/]*$")} | tr "\\n" "\\0" | '
        f'{limited} xargs -0r sha256sum | sed "s/^/checksum=/"',
        f"env | grep -E '^({_VARIABLES})=' | sed 's/^/variable=/'",
        f"}} > {target} 2> /dev/null",
    ]


def parse_program_facts(text: str) -> ProgramFacts:
    """Return the facts that `program_commands` printed."""
    facts: dict[str, str] = {}
    variables: dict[str, str] = {}
    libraries: set[str] = set()
    checksums: dict[str, str] = {}
    unread: list[str] = []
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "variable":
            variable, _, content = value.partition("=")
            variables[variable] = content
        elif name == "library":
            libraries.add(value)
        elif name == "checksum":
            sha256, _, path = value.partition("  ")
            checksums[path] = sha256
        elif name == "missing":
            unread.append(f"the node has no '{value}': the program and its libraries could not be examined")
        elif name == "ldd" and facts.get("path"):
            unread.append(f"the libraries of the program could not be read: ldd ended with exit code {value}")
        else:
            # The first line counts: a later one can belong to a variable with several lines.
            facts.setdefault(name, value)
    return ProgramFacts(
        path=facts.get("path") or None,
        sha256=facts.get("sha256") or None,
        libraries=tuple(sorted(libraries)),
        checksums=checksums,
        unread=tuple(unread),
        environment=variables,
        zone=facts.get("zone", "+0000"),
        host=facts.get("host", ""),
    )


def program_mismatches(
    stack: Stack | None,
    package: str | None,
    program: str,
    facts: ProgramFacts,
    checksums: Mapping[str, str],
    used: Collection[str],
) -> Iterator[str]:
    """Reasons why this is not the program of the stack: its path, its checksum, or the libraries that it loads.

    Args:
        package: part of the stack with the benchmark's programs, or None.
        used: see `used_parts`.
        program: the program as the job called it; a path was chosen explicitly.
        checksums: path -> SHA-256 of programs that do not belong to the stack.
    """
    if facts.path is None:
        return  # not started; the output has the reason
    # The path: a program with a `/` was named explicitly.
    part = stack.part(package) if stack and package else None
    is_searched = "/" not in program
    if stack and part and is_searched and not _is_program_of(facts.path, part, stack.paths.get("PATH", ())):
        yield f"the program is {facts.path}, the stack's {part.name} is {_location(part)}"
    # The content of the file.
    expected_sha256 = _expected_checksums(stack, checksums).get(facts.path, facts.sha256)
    if expected_sha256 != facts.sha256:
        yield (
            f"{facts.path} was changed, install it again: its SHA-256 is {str(facts.sha256)[:12]}…, "
            f"expected {str(expected_sha256)[:12]}…"
        )
    if stack:
        yield from _library_mismatches(stack, facts.libraries, used)


def _expected_checksums(stack: Stack | None, checksums: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of programs by resolved path: those of the stack, and others (`checksums`), which have priority."""
    by_path: dict[str, str] = {}
    for part in stack.parts if stack else ():
        by_path.update(part.checksums)
    by_path.update(checksums)
    return {os.path.realpath(path): sha256 for path, sha256 in by_path.items()}


# Parts that programs with these features of a stack load.
_PARTS_OF_FEATURE = {"netcdf4": ("hdf5", "netcdf-c"), "hdf5": ("hdf5",), "pnetcdf": ("parallel-netcdf",)}


def used_parts(features: Collection[str]) -> set[str]:
    """Return names of the parts that a case with these required features uses: programs may load others."""
    parts = set(MPI_LIBRARIES)
    for feature in features:
        parts.update(_PARTS_OF_FEATURE.get(feature, ()))
    return parts


def _library_mismatches(stack: Stack, libraries: Collection[str], used: Collection[str]) -> Iterator[str]:
    """Sentences on libraries that a program loads from elsewhere than its stack.

    Args:
        libraries: resolved paths of all libraries that the program loads.
        used: names of the parts that the case uses; others are not compared.
    """
    # Another MPI first: with it, all other libraries are others, too.
    stack_mpi = next((mpi for mpi in MPI_LIBRARIES if stack.part(mpi)), None)
    for path in libraries:
        loaded_mpis = [mpi for mpi, pattern in MPI_LIBRARIES.items() if re.match(pattern, Path(path).name)]
        if loaded_mpis and stack_mpi and stack_mpi not in loaded_mpis:
            yield f"the program loads {path} ({' or '.join(loaded_mpis)}), the stack's MPI is {stack_mpi}"
            return
    for name, pattern in _LIBRARIES.items():
        part = stack.part(name)
        if part is None or name not in used:
            continue
        for path in libraries:
            if re.match(pattern, Path(path).name) and not _is_library_of(path, part, pattern):
                yield f"the program loads {path}, the stack's {name} is {_location(part)}"


def _is_program_of(path: str, part: StackPart, directories: Collection[str]) -> bool:
    """Whether a resolved path is in a directory with programs of the part, or in one of the stack's directories."""
    part_directories = {str(Path(os.path.realpath(file)).parent) for file in part.files if ".so" not in file}
    part_directories.update(map(os.path.realpath, directories))
    if part.prefix:
        part_directories.add(os.path.realpath(f"{part.prefix}/bin"))
    return not part_directories or str(Path(path).parent) in part_directories


def _is_library_of(path: str, part: StackPart, pattern: str) -> bool:
    """Whether a resolved path is the part's library, or below its installation if the part does not list it.

    Args:
        path: of a library that the program loaded, without symbolic links.
        part: of the stack.
        pattern: of the names of the part's library, a regular expression.
    """
    files = [os.path.realpath(file) for file in part.files]
    listed_libraries = [file for file in files if re.match(pattern, Path(file).name)]
    if listed_libraries:
        return path in listed_libraries
    installations = {Path(file).parent.parent for file in files if Path(file).parent.name == "bin"}
    if part.prefix:
        installations.add(Path(os.path.realpath(part.prefix)))
    # A part that states neither files nor a prefix can be anywhere: nothing contradicts the path.
    if not installations:
        return True
    return any(Path(path).is_relative_to(installation) for installation in installations)


def _location(part: StackPart) -> str:
    """Return where a part is, for messages: its library, its directory, or another file of it, else its version."""
    for file in part.files:
        if ".so" in file:
            return file
    if part.prefix:
        return part.prefix
    if part.files:
        return part.files[0]
    return part.version


# Where the clocks of nodes differ, seconds.
_CLOCK_TOLERANCE_S = 60
# Names of MPIs in the record of benchio -> parts of a stack.
_MPI_PARTS = {"Open MPI": "openmpi", "MPICH": "mpich", "Cray MPICH": "cray-mpich", "Intel MPI": "intel-oneapi-mpi"}
_LIBRARY_PARTS = {"hdf5": "hdf5", "netcdf4": "netcdf-c", "pnetcdf": "parallel-netcdf"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class RunOrigin:
    """What the output of a program has to state about its run, as far as the program prints it.

    Attributes:
        run_id: identifier that the program had to repeat; None if it cannot.
        directory: scratch directory of the case.
        started, ended: epoch seconds of the node's clock around the program; None if the job did not record it.
        hosts: nodes of the job.
    """

    run_id: str | None
    directory: str
    started: float | None
    ended: float | None
    hosts: frozenset[str]


def origin_mismatches(output: Output, origin: RunOrigin, zone: str) -> Iterator[str]:
    """Reasons why an output is not that of this run: identifier, start time, scratch directory, host.

    Args:
        zone: offset of the node's clock from UTC (`+0100`), for programs that print local time.
    """
    facts = output.facts
    # Identifier.
    if origin.run_id is not None and facts.get("run_id") != origin.run_id:
        yield f"the output is of another run: its run id is {facts.get('run_id')}, expected {origin.run_id}"
    # Start time.
    printed_time = str(facts.get("started") or facts.get("began") or "")
    started = _epoch_s(printed_time, zone)
    earliest = (origin.started or 0.0) - _CLOCK_TOLERANCE_S
    latest = (origin.ended or math.inf) + _CLOCK_TOLERANCE_S
    if started and not earliest <= started <= latest:
        expected = datetime.fromtimestamp(origin.started or 0.0, UTC).isoformat(timespec="seconds")
        yield f"the output is of another run: it started at {printed_time}, expected after {expected}"
    # Scratch directory.
    file_system = facts.get("filesystem") or {}
    written_to = file_system.get("directory") or facts.get("path")
    scratch = Path(os.path.realpath(origin.directory))
    if written_to and not Path(os.path.realpath(str(written_to))).is_relative_to(scratch):
        yield f"the output is of files in {written_to}, expected in {origin.directory}"
    # Hosts, without their domain. `machine` is the output of uname, which ends with the host.
    hosts = facts.get("hosts") or str(facts.get("machine") or "").split()[-1:]
    host_names = {str(host).partition(".")[0] for host in hosts}
    job_host_names = {host.partition(".")[0] for host in origin.hosts}
    if host_names and job_host_names and not host_names & job_host_names:
        yield f"the output is of host {', '.join(sorted(host_names))}, expected {', '.join(sorted(origin.hosts))}"


def version_mismatches(
    stack: Stack | None, output: Output, expected: str | None, used: Collection[str]
) -> Iterator[str]:
    """Reasons why the versions in an output are not those of the stack.

    Args:
        expected: version of the program; None if it is not known.
        used: see `used_parts`.
    """
    if not _same_version(output.version, expected):
        yield f"the output is of {output.tool} {output.version}, expected {expected}"
    if stack is None:
        return
    # Versions that the program printed, by part of a stack.
    mpi = output.facts.get("mpi") or {}
    mpi_part = _MPI_PARTS.get(str(mpi.get("implementation")), "")
    libraries = output.facts.get("libraries") or {}
    printed_versions = {mpi_part: mpi.get("version")}
    for library, part_name in _LIBRARY_PARTS.items():
        printed_versions[part_name] = libraries.get(library)
    for name, version in printed_versions.items():
        part = stack.part(name)
        if part is not None and name in used and not _same_version(version, part.version):
            yield f"the program used {name} {version}, the stack has {part.version}"


def _version_numbers(version: object) -> list[int]:
    """Return 4, 0, 1 of `4.0.1rc2`; empty if it does not begin with a number."""
    match = re.match(r"\d+(?:\.\d+)*", str(version))
    if match is None:
        return []
    return [int(number) for number in match[0].split(".")]


def _same_version(version: object, expected: object) -> bool:
    """Whether the numbers agree as far as both have them: 4.0 is 4.0.0; no number agrees with any."""
    numbers = zip(_version_numbers(version), _version_numbers(expected), strict=False)
    return all(number == expected_number for number, expected_number in numbers)


def _epoch_s(text: str, zone: str) -> float | None:
    """Seconds of a printed time: ISO 8601, C's ctime() (IOR), month/day/year (mdtest); None for other forms."""
    ctime = re.fullmatch(r"\w{3} (\w{3}) +(\d+) (\d+:\d+:\d+) (\d{4})", text)
    month_first = re.fullmatch(r"(\d+)/(\d+)/(\d{4}) (\d+:\d+:\d+)", text)
    try:
        if ctime:
            month_name, day, clock, year = ctime.groups()
            return _local_epoch_s(int(year), _MONTHS.index(month_name) + 1, int(day), clock, zone)
        if month_first:
            month, day, year, clock = month_first.groups()
            return _local_epoch_s(int(year), int(month), int(day), clock, zone)
        # Without an offset it could be local time or UTC.
        if re.search(r"(?:Z|[+-]\d\d:\d\d)$", text):
            return datetime.fromisoformat(text).timestamp()
    except (ValueError, IndexError):
        pass
    return None


def _local_epoch_s(year: int, month: int, day: int, clock: str, zone: str) -> float:
    """Seconds of a local time.

    Args:
        clock: `hour:minute:second`. zone: offset from UTC, `+0100`.

    Raises:
        ValueError: there is no such time. IndexError: not an offset.
    """
    hour, minute, second = map(int, clock.split(":"))
    offset = timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[3:5]))
    return datetime(year, month, day, hour, minute, second, tzinfo=timezone(offset)).timestamp()
