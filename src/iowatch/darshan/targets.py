"""What the files of a log show about the targets of their file systems: records, and the sentences about them.

`iowatch.darshan.target_comparison` makes the records in the worker process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from iowatch.core import escape_line, format_count, format_number

Undecided = Literal["no_layouts", "no_files", "one_target", "same_targets", "few_files"]
Compared = Literal["files", "accesses"]

# Why files cannot show a slow target, for people.
_REASONS: Mapping[Undecided, str] = {
    "no_layouts": "the log does not have the targets of its files (module LUSTRE)",
    "no_files": "no file of 1 MiB or more",
    "one_target": "all files are on one target",
    "same_targets": "files of one kind are all on the same targets",
    "few_files": "too few files per target",
}
# Smaller probabilities are bounds of a tail that is not known as exactly.
_SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class TargetFigures:
    """The files of a log on one target.

    Attributes:
        target: number of the OST.
        files: number of files; a striped file counts for each of its targets.
        relative_time: median of their times per byte / that of all files of the same kind; None without such files on
            other targets.
    """

    target: int
    files: int
    relative_time: float | None


@dataclass(frozen=True)
class NamedTarget:
    """A target that is slow beside the others: `iowatch.statistics.slow_targets.SlowTarget`, as JSON has it."""

    target: int
    files: int
    ratio: float
    slow_files: int
    all_slow_files: int
    probability: float
    same_files: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """`OST 14`; `OSTs 4, 5` if their files are the same."""
        return format_targets([self.target, *self.same_files])


@dataclass(frozen=True)
class FileSystemTargets:
    """The targets of one file system.

    Attributes:
        file_system: mount point, or the name that the caller uses; None if privacy removed it.
        compared: what has a time: `files`; or `accesses`, those of one rank to one file by the stripes that they are
            in (DXT).
        files, targets: number of compared files (or groups of accesses) and targets.
        undecided: why a slow target cannot be found; None if it would have been.
        slow: the slow targets, the most certain first.
        figures: of each target with files.
    """

    file_system: str | None
    compared: Compared
    files: int
    targets: int
    undecided: Undecided | None
    slow: tuple[NamedTarget, ...]
    figures: tuple[TargetFigures, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileSystemTargets:
        """The record of a document that the worker wrote."""
        slow = [NamedTarget(**{**entry, "same_files": tuple(entry["same_files"])}) for entry in document["slow"]]
        figures = [TargetFigures(**entry) for entry in document["figures"]]
        return cls(**{**document, "slow": tuple(slow), "figures": tuple(figures)})


def read_targets(derived: Mapping[str, Any]) -> list[FileSystemTargets]:
    """The targets in the derived figures of a trace; empty for a log without files on Lustre."""
    return [FileSystemTargets.from_json(document) for document in derived.get("targets", ())]


def format_targets(targets: Sequence[int]) -> str:
    """Return `OST 14` or `OSTs 4, 5`."""
    if len(targets) == 1:
        return f"OST {targets[0]}"
    return f"OSTs {', '.join(str(target) for target in targets)}"


def format_probability_bound(probability: float) -> str:
    """Return `< 0.001`: the next power of ten, at least 1e-06."""
    if probability <= _SMALLEST_PROBABILITY:
        return f"< {_SMALLEST_PROBABILITY:g}"
    return f"< {10.0 ** math.floor(math.log10(probability) + 1):g}"


def format_slow_target(slow: NamedTarget, of: FileSystemTargets) -> str:
    """Return `85 of 85 slow files on OST 14 of /scratch1: 43 times the median of the other 23 targets, …`."""
    things = "files" if of.compared == "files" else "groups of accesses (DXT, by rank and stripe)"
    text = f"{slow.slow_files} of {slow.all_slow_files} slow {things} on {slow.name}{_of_file_system(of)}"
    others = of.targets - 1 - len(slow.same_files)
    ratio = f"{format_number(slow.ratio)} times the median of the other {format_count(others, 'target')}"
    text += f": {ratio}, by chance with probability {format_probability_bound(slow.probability)}"
    if slow.same_files:
        text += "; these targets have the same files, so which of them is slow is not known"
    elif of.targets == 2:
        text += "; of two targets the other one may be fast"
    return text


def target_lines(targets: Sequence[FileSystemTargets]) -> Iterator[str]:
    """Yield what is known about the targets of each file system: slow ones, none, or why that cannot be decided."""
    for of in targets:
        for slow in of.slow:
            yield format_slow_target(slow, of)
        things = format_count(of.files, "file" if of.compared == "files" else "group of accesses")
        if of.undecided is not None:
            yield f"slow targets{_of_file_system(of)}: not decidable, {_REASONS[of.undecided]}"
        elif not of.slow:
            yield f"no slow target among {of.targets}{_of_file_system(of)} ({things} compared)"


def _of_file_system(of: FileSystemTargets) -> str:
    if of.file_system is None:
        return ""
    return f" of {escape_line(of.file_system)}"
