"""Times of ranks that a program writes to a file of its own, if it is asked and its version knows the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iowatch.benchmarks.options import Options

# Operation -> for each repetition the times of all ranks, in s and in the order of the ranks.
RankTimes = Mapping[str, Sequence[Sequence[float]]]


@dataclass(frozen=True)
class RankTimesOption:
    """How a program writes the times of its ranks.

    Attributes:
        name: of the option; executables that do not contain this text do not know it.
        arguments: that ask for the file.
        file: its name in the job directory.
        read: text of the file -> its times.
        is_own_time: options and operation -> whether a time excludes waiting for other ranks.
        bytes_per_rank: options -> bytes of a rank in a repetition.

    `read` raises ValueError for a text that is no such file, or is not whole.
    """

    name: str
    arguments: tuple[str, ...]
    file: str
    read: Callable[[str], RankTimes]
    is_own_time: Callable[[Options, str], bool]
    bytes_per_rank: Callable[[Options], int]
