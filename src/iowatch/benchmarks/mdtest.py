"""mdtest (part of IOR since 3.2): options, command line and expected results; `mdtest_output.py` reads its output."""

from __future__ import annotations

import math

from iowatch.benchmarks import benchmark
from iowatch.benchmarks.benchmark import Benchmark, ProgramInterface, ProgramProbe, repetitions
from iowatch.benchmarks.ior import LISTED_INTERFACES
from iowatch.benchmarks.mdtest_output import SIGNATURES, parse_mdtest
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    Option,
    OptionError,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import Scalar

# Since version 4, directories are renamed, too: stored where it is printed, but not expected.
_EXPECTED_OPERATIONS = {
    "files": ("create", "stat", "read", "remove"),
    "directories": ("directory-create", "directory-stat", "directory-remove"),
}
_EXPECTED_OPERATIONS["both"] = (*_EXPECTED_OPERATIONS["directories"], *_EXPECTED_OPERATIONS["files"])
_ITEMS = {"files": ["-F"], "directories": ["-D"], "both": []}
# A file takes at least one block of the file system.
_BLOCK_BYTES = 4096

_OPTIONS = declare_options(
    Option("items", OptionType.CHOICE, "files (-F), directories (-D), or both", default="files", choices=tuple(_ITEMS)),
    Option("files", OptionType.NUMBER, "files, or directories, in all, over all ranks", default=1024, minimum=1),
    Option(
        "directories",
        OptionType.CHOICE,
        "single: all ranks in one; separate: one per rank (-u)",
        default="single",
        choices=("single", "separate"),
    ),
    Option("write", OptionType.SIZE, "bytes written to each file (-w); unset: empty files", minimum=0),
    Option("read", OptionType.SIZE, "bytes read from each file (-e), at most those written; unset: none", minimum=0),
    Option("sync", OptionType.FLAG, "fsync after each write (-y)", default=False),
    repeat_option(3, "runs; mdtest prints no single repetitions, so it is started once for each"),
    RANKS,
    NODES,
)


def _contents(options: Options) -> dict[str, int]:
    """Return bytes written and read per file, by the names of their case parameters; empty files have none.

    Raises:
        OptionError: contents of directories, or more read than written.
    """
    sizes = {f"{name}_bytes": options.number(name) for name in ("write", "read") if name in options}
    if sizes and options.text("items") == "directories":
        raise OptionError("items", "directories have no contents: leave out write and read")
    if sizes.get("read_bytes", 0) > sizes.get("write_bytes", 0):
        raise OptionError("read", "read is more than write")
    return sizes


def _files_per_rank(options: Options) -> int:
    return math.ceil(options.number("files") / options.number("ranks"))


def _files_of_all_ranks(options: Options) -> int:
    return _files_per_rank(options) * options.number("ranks")


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {
        "files": _files_of_all_ranks(options),
        "directories": options.text("directories"),
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
        **_contents(options),
    }
    # Cases name it only where a suite sets it.
    if "sync" in options:
        parameters["sync"] = options.flag("sync")
    return parameters


def _arguments(options: Options, scratch: str) -> list[str]:
    words = [*_ITEMS[options.text("items")], "-n", str(_files_per_rank(options))]
    # -N shifts ranks by the ranks per node: no rank stats the files that it created (client caches).
    shift = options.number("ranks") // options.number("nodes")
    words += ["-N", str(shift), "-i", "1"]
    sizes = _contents(options)
    for letter, name in (("-w", "write_bytes"), ("-e", "read_bytes")):
        if name in sizes:
            words += [letter, str(sizes[name])]
    if options.flag("sync"):
        words.append("-y")
    words += ["-d", f"{scratch}/mdtest"]
    if options.text("directories") == "separate":
        words.append("-u")
    return words


def _case(options: Options) -> dict[str, Scalar]:
    """Return the page cache policy of contents that are read: on one node they are still in its memory."""
    reads = _contents(options).get("read_bytes", 0) > 0
    if reads and options.number("nodes") == 1:
        return {"cache": "keep"}
    return {}


def _file_bytes(options: Options) -> int:
    """Return the space of all files: a block each, or their contents."""
    bytes_of_a_file = max(_BLOCK_BYTES, _contents(options).get("write_bytes", 0))
    return bytes_of_a_file * options.number("files")


def _volume_bytes(options: Options) -> int:
    """Return the contents of all files, written and read, of all runs; metadata are not counted."""
    return sum(_contents(options).values()) * _files_of_all_ranks(options) * repetitions(options)


def _inodes(options: Options) -> int:
    items = options.number("files")
    if options.text("items") == "both":
        items *= 2
    # Directories: one per rank, that of the test and the one above.
    return items + options.number("ranks") + 2


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    return tuple((operation, "rate") for operation in _EXPECTED_OPERATIONS[options.text("items")])


MDTEST = Benchmark(
    name="mdtest",
    title="mdtest",
    check="MdtestCheck",
    parse=parse_mdtest,
    signatures=SIGNATURES,
    banner=r"^mdtest-\S+ was launched with",
    package="ior",
    probe=ProgramProbe("mdtest", interfaces_command=("mdtest", "-h"), interfaces_pattern=LISTED_INTERFACES),
    # mdtest is in IOR's package, whose other programs may have what mdtest lacks.
    interfaces=(ProgramInterface("mdtest-posix", "POSIX interface", listed="POSIX"),),
    uses=lambda _options: ("mdtest-posix",),
    options=_OPTIONS,
    program=lambda _options: "mdtest",
    arguments=_arguments,
    requires=lambda _options: ("mpi", "mdtest"),
    expects=_expects,
    samples=repetitions,
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    runs=repetitions,
    inodes=_inodes,
    case=_case,
    layers=lambda _case: (benchmark.CPU, benchmark.NETWORK, benchmark.METADATA),
)
