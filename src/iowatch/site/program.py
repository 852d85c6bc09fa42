"""What a job ran, compared with what it should have run: the program, its libraries, and the origin of its output.

A job prints path, SHA-256 and libraries of its program, and the variables that MPI and the I/O libraries read. Another
installation first on PATH or LD_LIBRARY_PATH, or the output of an earlier run, gives valid numbers of something else.
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
_VARIABLES = f"LD_PRELOAD|({_PREFIXES})_[A-Za-z0-9_]*"
_TIMEOUT_S = 20


@dataclass(frozen=True)
class ProgramFacts:
    """What a job found on its first node.

    Attributes:
        path: the program, symbolic links resolved; None if it was not found.
        libraries: paths of the libraries that it loads, resolved.
        environment: variables that MPI and the I/O libraries read.
        zone: offset of the node's clock from UTC, as `date +%z` prints it.
        host: name of the node.
    """

    path: str | None = None
    sha256: str | None = None
    libraries: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    zone: str = "+0000"
    host: str = ""

    def to_json(self) -> dict[str, Any]:
        """Facts of the run; of the libraries those that stacks describe."""
        known = re.compile("|".join(_LIBRARIES.values()))
        libraries = [path for path in self.libraries if known.match(Path(path).name)]
        return {"path": self.path, "sha256": self.sha256, "libraries": libraries}


def program_commands(program: str, target: str) -> list[str]:
    """Return lines of a job's script that print the facts about a program to the file `target`."""
    limited = f"timeout {_TIMEOUT_S}"
    return [
        f'_iowatch_program=$(readlink -f "$(command -v {shlex.quote(program)})")',
        "{",
        'echo "path=$_iowatch_program"; echo "zone=$(date +%z)"; echo "host=$(uname -n)"',
        f'echo "sha256=$({limited} sha256sum < "$_iowatch_program" | cut -d " " -f 1)"',
        # One `readlink` for all libraries: one for each takes longer than the rest of this script.
        f"{limited} ldd \"$_iowatch_program\" | sed -n 's/.*=> \\(\\/[^ ]*\\) .*/\\1/p' | "
        "tr '\\n' '\\0' | xargs -0r readlink -f | sed 's/^/library=/'",
        f"env | grep -E '^({_VARIABLES})=' | sed 's/^/variable=/'",
        f"}} > {target} 2> /dev/null",
    ]


def parse_program_facts(text: str) -> ProgramFacts:
    """Return the facts that `program_commands` printed."""
    rows = [line.partition("=")[::2] for line in text.splitlines()]
    first = dict(reversed(rows))
    variables = dict(value.partition("=")[::2] for name, value in rows if name == "variable")
    libraries = tuple(sorted({value for name, value in rows if name == "library"}))
    path, sha256 = first.get("path") or None, first.get("sha256") or None
    return ProgramFacts(path, sha256, libraries, variables, first.get("zone", "+0000"), first.get("host", ""))


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
    part = stack.part(package) if stack and package else None
    if stack and part and "/" not in program and not _is_program_of(facts.path, part, stack.paths.get("PATH", ())):
        yield f"the program is {facts.path}, the stack's {part.name} is {_place(part)}"
    own = [one.checksums for one in stack.parts] if stack else []
    known = {os.path.realpath(path): digest for each in (*own, checksums) for path, digest in each.items()}
    expected = known.get(facts.path, facts.sha256)
    if expected != facts.sha256:
        found, wanted = (str(digest)[:12] for digest in (facts.sha256, expected))
        yield f"{facts.path} was changed, install it again: its SHA-256 is {found}…, expected {wanted}…"
    if stack:
        yield from _library_mismatches(stack, facts.libraries, used)


def used_parts(features: Collection[str]) -> set[str]:
    """Return names of the parts that a case with these required features uses: programs may load others."""
    known = {"netcdf4": {"hdf5", "netcdf-c"}, "hdf5": {"hdf5"}, "pnetcdf": {"parallel-netcdf"}}
    return set(MPI_LIBRARIES).union(*(known.get(feature, set()) for feature in features))


def _library_mismatches(stack: Stack, libraries: Collection[str], used: Collection[str]) -> Iterator[str]:
    wanted = next((name for name in MPI_LIBRARIES if stack.part(name)), None)
    for path in libraries:
        found = [mpi for mpi, pattern in MPI_LIBRARIES.items() if re.match(pattern, Path(path).name)]
        if found and wanted and wanted not in found:
            yield f"the program loads {path} ({' or '.join(found)}), the stack's MPI is {wanted}"
            return
    for name, pattern in _LIBRARIES.items():
        part = stack.part(name) if name in used else None
        for path in libraries if part else ():
            if part and re.match(pattern, Path(path).name) and not _is_library_of(path, part, pattern):
                yield f"the program loads {path}, the stack's {name} is {_place(part)}"


def _is_program_of(path: str, part: StackPart, directories: Collection[str]) -> bool:
    """Whether a resolved path is in a directory with programs of the part, or in one of the stack's directories."""
    folders = {str(Path(os.path.realpath(file)).parent) for file in part.files if ".so" not in file}
    folders |= {os.path.realpath(folder) for folder in directories}
    folders |= {os.path.realpath(f"{part.prefix}/bin")} if part.prefix else set()
    return not folders or str(Path(path).parent) in folders


def _is_library_of(path: str, part: StackPart, pattern: str) -> bool:
    """Whether a resolved path is the part's library, or below its installation if the part does not list it."""
    files = [os.path.realpath(file) for file in part.files]
    listed = [file for file in files if re.match(pattern, Path(file).name)]
    if listed:
        return path in listed
    roots = {Path(file).parent.parent for file in files if Path(file).parent.name == "bin"}
    roots |= {Path(os.path.realpath(part.prefix))} if part.prefix else set()
    return not roots or any(Path(path).is_relative_to(root) for root in roots)


def _place(part: StackPart) -> str:
    library = next((file for file in part.files if ".so" in file), None)
    return library or part.prefix or (part.files[0] if part.files else part.version)


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
    if origin.run_id is not None and facts.get("run_id") != origin.run_id:
        yield f"the output is of another run: its run id is {facts.get('run_id')}, expected {origin.run_id}"
    printed = str(facts.get("started") or facts.get("began") or "")
    started = _epoch_s(printed, zone)
    earliest, latest = origin.started or 0.0, origin.ended or math.inf
    if started and not earliest - _CLOCK_TOLERANCE_S <= started <= latest + _CLOCK_TOLERANCE_S:
        expected = datetime.fromtimestamp(earliest, UTC).isoformat(timespec="seconds")
        yield f"the output is of another run: it started at {printed}, expected after {expected}"
    written = (facts.get("filesystem") or {}).get("directory") or facts.get("path")
    inside = Path(os.path.realpath(origin.directory))
    if written and not Path(os.path.realpath(str(written))).is_relative_to(inside):
        yield f"the output is of files in {written}, expected in {origin.directory}"
    hosts = facts.get("hosts") or str(facts.get("machine") or "").split()[-1:]
    names = {str(host).partition(".")[0] for host in hosts}
    if names and origin.hosts and not names & {host.partition(".")[0] for host in origin.hosts}:
        yield f"the output is of host {', '.join(sorted(names))}, expected {', '.join(sorted(origin.hosts))}"


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
    mpi = output.facts.get("mpi") or {}
    part_name = _MPI_PARTS.get(str(mpi.get("implementation")))
    versions = {part_name or "": mpi.get("version")}
    libraries = output.facts.get("libraries") or {}
    versions |= {part: libraries.get(name) for name, part in _LIBRARY_PARTS.items()}
    for name, version in versions.items():
        part = stack.part(name) if stack and name in used else None
        if part and not _same_version(version, part.version):
            yield f"the program used {name} {version}, the stack has {part.version}"


def _same_version(found: object, expected: object) -> bool:
    """Whether the numbers agree as far as both have them: 4.0 is 4.0.0; no number agrees with any."""
    one, other = (re.findall(r"\d+", (re.match(r"\d+(?:\.\d+)*", str(v)) or [""])[0]) for v in (found, expected))
    return all(int(a) == int(b) for a, b in zip(one, other, strict=False))


def _epoch_s(text: str, zone: str) -> float | None:
    """Seconds of a printed time: ISO 8601, C's ctime() (IOR), month/day/year (mdtest); None for other forms."""
    try:
        if match := re.fullmatch(r"\w{3} (\w{3}) +(\d+) (\d+):(\d+):(\d+) (\d{4})", text):
            month, day, *clock, year = match.groups()
            parts = [int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock)]
        elif match := re.fullmatch(r"(\d+)/(\d+)/(\d{4}) (\d+):(\d+):(\d+)", text):
            numbers = [int(group) for group in match.groups()]
            parts = [numbers[2], *numbers[:2], *numbers[3:]]
        else:
            return datetime.fromisoformat(text).timestamp() if re.search(r"(?:Z|[+-]\d\d:\d\d)$", text) else None
        year_, month_, day_, hour, minute, second = parts
        offset = timezone(timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[3:5])))
        return datetime(year_, month_, day_, hour, minute, second, tzinfo=offset).timestamp()
    except (ValueError, IndexError):
        return None
