"""What ranks did with files, as a log says it or as it follows from the log: accesses, opens, flushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Division, Pieces

# One row: `count` accesses of `size` bytes, the first at `offset`, each `stride` behind the one before.
ACCESS = np.dtype(
    [
        ("write", "?"),
        ("collective", "?"),
        ("offset", "i8"),
        ("size", "i8"),
        ("count", "i8"),
        ("stride", "i8"),
        ("start", "f8"),
        ("end", "f8"),
        # Of a collective access to an array, which begins at `offset`: 1 for the first of `FileUse.divisions`; else 0.
        ("division", "i4"),
    ]
)


@dataclass
class RankUse:
    """What one rank did with one file.

    Attributes:
        accesses: rows of ACCESS in order of start; times in seconds since the start of the job.
        opens, flushes, stats: how often.
        opened, closed: start and end of the first open and of the last close in seconds; 0 if unknown.
    """

    accesses: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, ACCESS))
    opens: int = 0
    flushes: int = 0
    stats: int = 0
    opened: tuple[float, float] = (0.0, 0.0)
    closed: tuple[float, float] = (0.0, 0.0)


@dataclass
class FileUse:
    """One file.

    Attributes:
        api: `posix` or `mpiio`.
        created: whether it was opened to be created.
        ranks: what each did.
        made_up: whether its accesses are made up from the counters.
        path: its name in the log; it stays in the worker process.
        divisions: of arrays among its ranks, and pieces of them.
        has_views: whether a file view was set.
        has_view_per_access: whether one was set for each collective access, at least.
        has_short_reads: whether its independent reads got fewer bytes than they asked for.
        same_as: the use of the same file through MPI-IO, where this one is by POSIX.
        has_two_interfaces: whether the application uses the file through MPI-IO and by POSIX.
        is_made_by_other: whether the other interface makes the file before it is opened through this one.
        is_given: whether the file exists before the application; None: as its accesses say.
    """

    api: str
    created: bool
    ranks: dict[int, RankUse]
    made_up: bool = False
    path: str = ""
    divisions: list[Division | Pieces] = field(default_factory=list)
    has_views: bool = False
    has_view_per_access: bool = False
    has_short_reads: bool = False
    same_as: FileUse | None = None
    has_two_interfaces: bool = False
    is_made_by_other: bool = False
    is_given: bool | None = None

    def ends(self, rows: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the end of each of its accesses, of the whole array where one is a part of an array."""
        ends = rows["offset"] + (rows["count"] - 1) * rows["stride"] + rows["size"]
        sizes = np.array([0, *(division.size for division in self.divisions)])
        return np.asarray(np.maximum(ends, rows["offset"] + sizes[rows["division"]]))

    def number_of(self, division: Division | Pieces) -> int:
        """Return the number of a division in accesses; one that is new is added."""
        if division not in self.divisions:
            self.divisions.append(division)
        return self.divisions.index(division) + 1


@dataclass(frozen=True)
class Record:
    """The counters of one file by name: of one rank, or added over all (`rank` -1)."""

    identity: int
    rank: int
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> int:
        """Return a counter; 0 if it is absent or could not be counted."""
        return max(0, int(self.values.get(name, 0)))

    def seconds(self, name: str) -> float:
        """Return a time; 0 if it is absent."""
        return max(0.0, float(self.values.get(name, 0.0)))


def split_evenly(total: int, shares: int) -> list[int]:
    """Return whole numbers with that sum, which differ by 1 at most, the larger ones first."""
    smaller, larger_shares = divmod(total, shares)
    return [smaller + 1] * larger_shares + [smaller] * (shares - larger_shares)
