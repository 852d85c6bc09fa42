"""The record that describes a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iowatch.model import Scalar

Options = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Tool:
    """A benchmark as the runner and the checks see it; all functions are pure.

    Attributes:
        name: the benchmark's name in cases, suites and parsers.
        program: file name of the executable.
        options: option names that a suite may set, with what they mean.
        arguments: options -> command-line arguments, without directory and output file.
        requires: options -> features that the stack must have (`mpi`, `hdf5`, `ior`…).
        expects: options -> (operation, metric) pairs that a complete run gives.
        file_bytes: options -> bytes that lie in the scratch directory at the same time, at most.
        volume_bytes: options -> bytes written and read in all.
    """

    name: str
    program: str
    options: Mapping[str, str]
    arguments: Callable[[Options], list[str]]
    requires: Callable[[Options], tuple[str, ...]]
    expects: Callable[[Options], tuple[tuple[str, str], ...]]
    file_bytes: Callable[[Options], int]
    volume_bytes: Callable[[Options], int]
