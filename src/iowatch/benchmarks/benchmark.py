"""The record that describes a benchmark for the rest of iowatch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iowatch.benchmarks.options import NO_DEFINITIONS, Option, Options, SuiteDefinitions
from iowatch.benchmarks.parsing import CleanLines, FailureSignature, OutputBuilder, RunContext
from iowatch.benchmarks.rank_times import RankTimesOption
from iowatch.core import Layer, Scalar

if TYPE_CHECKING:
    from iowatch.core.yamlfile import CheckedModel

ParserFunction = Callable[[OutputBuilder, CleanLines, RunContext], None]


CPU, NETWORK, DISK, FILE_SYSTEM, METADATA, MPI_IO, HDF5, NETCDF, PNETCDF = LAYERS = (
    Layer("CPU or memory", "hpcc (HPL, dgemm, triad)", "share", has_directions=False, controls_notice=0.6),
    Layer("network", "messages (hpcc with two ranks)", has_directions=False),
    Layer("disk", "raw disk (fio)"),
    Layer("file system", "POSIX (IOR, benchio)"),
    Layer("metadata server", "mdtest", "operations", has_directions=False, controls_notice=0.6),
    Layer("MPI-IO", "MPI-IO (IOR, benchio)"),
    Layer("HDF5", "HDF5 (benchio, IOR, h5bench)"),
    Layer("NetCDF", "NetCDF-4 (benchio)"),
    Layer("PnetCDF", "PnetCDF (benchio, IOR)"),
)
"""All layers, in ascending order."""

_POSIX = (CPU, NETWORK, DISK, METADATA, FILE_SYSTEM)
_MPI_IO = (*_POSIX, MPI_IO)
API_LAYERS: Mapping[Scalar, tuple[Layer, ...]] = {
    "NULL": (CPU,),
    "MPI": (CPU, NETWORK),
    "raw": (CPU, DISK),
    "POSIX": _POSIX,
    "MPIIO": _MPI_IO,
    "HDF5": (*_MPI_IO, HDF5),
    "NETCDF4": (*_MPI_IO, HDF5, NETCDF),
    "PNETCDF": (*_MPI_IO, PNETCDF),
}
"""Interface -> layers that its calls can pass through; the last is the one that a series of it measures."""


def layers_of_api(case: Mapping[str, Scalar]) -> tuple[Layer, ...]:
    """Return the layers of a case by its interface; empty if that is unknown."""
    return API_LAYERS.get(case.get("api", ""), ())


@dataclass(frozen=True, slots=True)
class ProgramInterface:
    """An interface, or another capability, that some builds of a benchmark lack.

    Attributes:
        variant: of the package's part in stacks: Spack's, or where Spack has none, one that iowatch states.
        title: what such a build lacks, in "this ior has no …".
        listed: its name in the list that the program prints (`ProgramProbe.interfaces_command`); empty if not listed.
        library: part of the name of the library that the program loads for it; empty if it needs none.
        program: program that is installed beside the others for it; empty if there is none.
    """

    variant: str
    title: str
    listed: str = ""
    library: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class ProgramProbe:
    """How to detect a benchmark on a machine if Spack did not build it.

    Attributes:
        program: program that must be on PATH.
        version_command: prints the version; its program must be on PATH, too. Empty if `program` only adds to
            the part that another benchmark of the same package has found, or if nothing prints it.
        version_pattern: regular expression; its first group is the version.
        interfaces_command: prints the interfaces of the program; its exit code has no meaning. Empty if nothing does.
        interfaces_pattern: regular expression; its first group lists the interfaces, separated by `|`.
        option: Spack variant of the package that installs the program; empty if the package always does.
        uses_mpi: the program must be linked against the MPI of the stack.
        later: for releases that print the number of an earlier one, newest first: the printed version, a program that
            only a later version installs next to the command, that version.
    """

    program: str
    version_command: tuple[str, ...] = ()
    version_pattern: str = ""
    interfaces_command: tuple[str, ...] = ()
    interfaces_pattern: str = ""
    option: str = ""
    uses_mpi: bool = True
    later: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark; all functions are pure, except that `parse` fills its builder.

    Functions of options are given `Options`, which have been checked against the declaration and fill in defaults.

    Attributes:
        name: name of the benchmark in cases, suites and commands, and as a feature of stacks.
        title: its name in sentences.
        check: name of its ReFrame class in `reframe_tests/<name>.py`.
        parse: parses the lines of an output into a builder.
        signatures: failure signatures that only this benchmark prints; digits in them must be optional.
        banner: regular expression of the line that begins each of its outputs; empty for none. In the output of
            another benchmark it shows that two programs wrote to one file.
        package: Spack package that contains the programs, as a part of a stack; None if the check builds them.
        probe: how to find the programs on a machine; None if only Spack or the check provides them.
        debian: Debian packages that install them.
        is_packaged: whether `package` is one of Spack; otherwise a person builds it (docs/benchmarks.md).
        options: the options that a suite may set, by name (`declare_options`).
        program: options -> file name of the executable.
        arguments: options and scratch directory -> command-line arguments.
        requires: options -> features that the stack must have (`mpi`, `hdf5`, `ior`…).
        interfaces: what some builds of its programs lack.
        uses: options -> variants of those interfaces that a case needs.
        expects: options -> (operation, metric) pairs of a complete run.
        samples: options -> number of repetitions, each with at least one sample of every expected result.
        shows: options -> case parameters that a run with all conditions met has: printed by the program itself, or
            determined by the check (`cache`).
        file_bytes: options -> maximum bytes in the scratch directory at the same time.
        volume_bytes: options -> total bytes written and read.
        results: names of files in the job directory that the parser prefers to the standard output.
        configuration: options -> files (name to content) that must exist in the job directory.
        environment: options -> variables to set in the job, after those of the stack were recorded.
        prepare: options and scratch directory -> MPI commands to run before, not measured (the file to read).
        runs: options -> number of program starts; more than one if a start gives one sample.
        after: options and scratch directory -> MPI commands to run after every start that succeeded, measured; their
            output is appended to that of the start, and their results have the same case parameters.
        before: options and scratch directory -> shell command before every start, not measured, on every node;
            empty for none.
        case: options -> case parameters that the program does not print and the parser cannot determine.
        inodes: options -> maximum number of files and directories at the same time.
        probes: operation -> what lies below file systems and I/O libraries that it measures, in words; empty for a
            benchmark of I/O. Darshan does not trace probes.
        layers: case parameters -> layers that it passes through, as `API_LAYERS`.
        writes_files: whether a file system matters; otherwise its cases are measured once, on none in particular.
        probes_targets: whether it measures each target of a file system; the job then lists them in a file.
        rank_times: how the program writes the times of its ranks; None if it cannot, or its output has those of nodes.
        definition_fields: model of the entries in a suite's field `commands`, which options name; None if a suite
            defines none.
        wrapper: options and scratch directory -> words that start the program and measure it from outside; the
            program's name and the words that start it follow. Empty for none.
        can_be_traced: whether Darshan can trace the program. It traces no probes in any case.
        run_id: an identifier -> arguments that make the program repeat it in its result file; empty for none.
    """

    name: str
    title: str
    check: str
    parse: ParserFunction
    options: Mapping[str, Option]
    program: Callable[[Options], str]
    arguments: Callable[[Options, str], list[str]]
    requires: Callable[[Options], tuple[str, ...]]
    expects: Callable[[Options], tuple[tuple[str, str], ...]]
    samples: Callable[[Options], int]
    file_bytes: Callable[[Options], int]
    volume_bytes: Callable[[Options], int]
    signatures: tuple[FailureSignature, ...] = ()
    banner: str = ""
    package: str | None = None
    probe: ProgramProbe | None = None
    debian: tuple[str, ...] = ()
    is_packaged: bool = True
    interfaces: tuple[ProgramInterface, ...] = ()
    uses: Callable[[Options], tuple[str, ...]] = lambda _options: ()
    results: tuple[str, ...] = ()
    configuration: Callable[[Options], Mapping[str, str]] = lambda _options: {}
    environment: Callable[[Options], Mapping[str, str]] = lambda _options: {}
    prepare: Callable[[Options, str], list[list[str]]] = lambda _options, _scratch: []
    after: Callable[[Options, str], list[list[str]]] = lambda _options, _scratch: []
    runs: Callable[[Options], int] = lambda _options: 1
    before: Callable[[Options, str], str] = lambda _options, _scratch: ""
    case: Callable[[Options], Mapping[str, Scalar]] = lambda _options: {}
    inodes: Callable[[Options], int] = lambda _options: 1
    shows: Callable[[Options], Mapping[str, Scalar]] = lambda _options: {}
    probes: Mapping[str, str] = field(default_factory=dict)
    layers: Callable[[Mapping[str, Scalar]], tuple[Layer, ...]] = layers_of_api
    writes_files: bool = True
    probes_targets: bool = False
    rank_times: RankTimesOption | None = None
    definition_fields: type[CheckedModel] | None = None
    wrapper: Callable[[Options, str], list[str]] = lambda _options, _scratch: []
    can_be_traced: bool = True
    run_id: Callable[[str], list[str]] = lambda _identifier: []

    def __post_init__(self) -> None:
        """Raises ValueError for a name that cannot be a folder and a part of names of runs, or undeclared options."""
        if not re.fullmatch("[a-z][a-z0-9_-]*", self.name):
            raise ValueError(f"benchmark '{self.name}': expected a name of small letters, digits, - and _")
        if not isinstance(self.options, Mapping):
            raise ValueError(f"benchmark '{self.name}': options are `declare_options(Option(...), ...)`")
        for name, option in self.options.items():
            if not isinstance(option, Option):
                raise ValueError(f"benchmark '{self.name}', option '{name}': expected an Option")

    def lacking_feature(self, variant: str) -> str:
        """Return the feature of stacks whose build of the benchmark lacks an interface: `ior-without-hdf5`."""
        return f"{self.package}-without-{variant}"

    @property
    def is_traced(self) -> bool:
        """Whether Darshan traces its runs, where a stack has it."""
        return self.can_be_traced and not self.probes

    def read_options(self, given: Mapping[str, Scalar], definitions: SuiteDefinitions = NO_DEFINITIONS) -> Options:
        """Return the options of a case.

        Args:
            definitions: what the suite of the case defines.

        Raises:
            OptionError: an option that the benchmark does not have, or a value that its declaration does not allow.
        """
        return Options(self.name, self.options, given, definitions)


def striping_parameters(options: Options) -> dict[str, Scalar]:
    """Return the case parameters of the directory's striping, if the suite sets it."""
    case: dict[str, Scalar] = {}
    if "stripe-count" in options:
        case["stripe_count"] = options.number("stripe-count")
    if "stripe-size" in options:
        case["stripe_bytes"] = options.number("stripe-size")
    return case


def drop_cache_command(prefix: str) -> str:
    """Return a shell command that drops files with paths that begin with `prefix` from the node's page cache.

    The command is from the manual of GNU dd; it has no effect on tmpfs, which is memory anyway. `RESIDENT_FILE`
    then has a line `RESIDENT SIZE` (bytes) per file, from fincore of util-linux; see `is_cache_dropped`.
    """
    drop = 'dd of="$f" oflag=nocache conv=notrunc,fdatasync count=0 status=none'
    resident = f'fincore --noheadings --bytes --output RES,SIZE "$f" >> {RESIDENT_FILE} 2>&1'
    return f"for f in {shlex.quote(prefix)}*; do {drop}; {resident}; done"


RESIDENT_FILE = "iowatch.resident"
_MOSTLY_DROPPED = 0.01  # as in benchio's measure.c
_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def is_cache_dropped(resident: str, file_system: str | None) -> bool:
    """Return whether files were dropped from the page cache.

    Args:
        resident: content of `RESIDENT_FILE`; without a line of fincore the file system decides.
        file_system: its type; None if unknown.
    """
    if file_system in _MEMORY:
        return False
    for resident_bytes, size_bytes in re.findall(r"(?m)^ *(\d+) +(\d+)$", resident):
        if int(resident_bytes) > int(size_bytes) * _MOSTLY_DROPPED:
            return False
    return True


def requested_operations(options: Options) -> tuple[str, ...]:
    """Return `write`, `read`, or both."""
    operation = options.text("op")
    if operation == "both":
        return ("write", "read")
    return (operation,)


def repetitions(options: Options) -> int:
    """Return the requested number of repetitions."""
    return options.number("repeat")
