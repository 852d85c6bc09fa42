"""The record that describes a benchmark."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iowatch.model import Scalar

Options = Mapping[str, Scalar]


def _nothing(_options: Options) -> Mapping[str, str]:
    return {}


def _no_case(_options: Options) -> Mapping[str, Scalar]:
    return {}


def _no_commands(_options: Options, _place: str) -> list[list[str]]:
    return []


def _one(_options: Options) -> int:
    return 1


def _no_words(_options: Options, _place: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A benchmark as the runner and the checks see it; all functions are pure.

    Attributes:
        name: the benchmark's name in cases, suites and parsers.
        options: option names that a suite may set, with what they mean.
        program: options -> file name of the executable.
        arguments: options and scratch directory -> command-line arguments.
        requires: options -> features that the stack must have (`mpi`, `hdf5`, `ior`…).
        expects: options -> (operation, metric) pairs that a complete run gives.
        samples: options -> repetitions, each of which gives a sample of every expected result, or more.
        shows: options -> case parameters that the program itself prints, as a proper run prints them.
        file_bytes: options -> bytes that lie in the scratch directory at the same time, at most.
        volume_bytes: options -> bytes written and read in all.
        results: names of files, in the job's directory, that the parser prefers to the standard output.
        configuration: options -> files (name to content) that must lie in the job's directory.
        prepare: options and scratch directory -> MPI commands to run before, not measured (the file to read).
        runs: options -> how often the program is started; more than once where a start gives one sample.
        before: options and scratch directory -> a shell command before every start, unmeasured, on every node;
            empty for none.
        case: options -> case parameters that the program does not print, and the parser cannot know.
        inodes: options -> files and directories that exist at the same time, at most.
    """

    name: str
    options: Mapping[str, str]
    program: Callable[[Options], str]
    arguments: Callable[[Options, str], list[str]]
    requires: Callable[[Options], tuple[str, ...]]
    expects: Callable[[Options], tuple[tuple[str, str], ...]]
    samples: Callable[[Options], int]
    file_bytes: Callable[[Options], int]
    volume_bytes: Callable[[Options], int]
    results: tuple[str, ...] = ()
    configuration: Callable[[Options], Mapping[str, str]] = _nothing
    prepare: Callable[[Options, str], list[list[str]]] = _no_commands
    runs: Callable[[Options], int] = _one
    before: Callable[[Options, str], str] = _no_words
    case: Callable[[Options], Mapping[str, Scalar]] = _no_case
    inodes: Callable[[Options], int] = _one
    shows: Callable[[Options], Mapping[str, Scalar]] = _no_case


def size(options: Options, name: str, default: str) -> int:
    """An option that is a size (`1m`, `1000000`) in bytes."""
    from iowatch.units import parse_size

    return parse_size(str(options.get(name, default)))


def number(options: Options, name: str, default: int) -> int:
    """An option that is a whole number."""
    return int(options.get(name, default))


def striping(options: Options) -> dict[str, Scalar]:
    """Case parameters of the directory's striping, where the suite asks for one."""
    case: dict[str, Scalar] = {}
    if "stripe-count" in options:
        case["stripe_count"] = number(options, "stripe-count", 1)
    if "stripe-size" in options:
        case["stripe_bytes"] = size(options, "stripe-size", "1m")
    return case


def drop_cache(prefix: str) -> str:
    """A shell command that drops all files whose path begins with `prefix` from its node's page cache.

    It is what GNU dd's manual gives for the purpose; it has no effect on tmpfs, which is memory anyway.
    """
    drop = 'dd of="$f" oflag=nocache conv=notrunc,fdatasync count=0 status=none'
    return f"for f in {shlex.quote(prefix)}*; do {drop}; done"


def operations(options: Options) -> tuple[str, ...]:
    """`write`, `read`, or both of them."""
    op = str(options.get("op", "write"))
    return ("write", "read") if op == "both" else (op,)
