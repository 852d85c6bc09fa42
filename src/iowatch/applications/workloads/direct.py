"""Accesses of an application by POSIX to files that it also accesses through MPI-IO.

Below MPI-IO the log has POSIX accesses, too. They are within the times of the MPI-IO accesses of the same rank; what
is outside of these the application did itself, as rank 0 that writes a header before all ranks write collectively.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.uses import FileUse, RankUse, Record, split_evenly

# Darshan takes the times of POSIX inside of those of MPI-IO, by the same clock.
_TOLERANCE_S = 1e-6

RankTrace = Mapping[int, NDArray[np.void]]


@dataclass(frozen=True)
class DividedAccesses:
    """The POSIX accesses of one file of MPI-IO, rank to rows of ACCESS.

    Attributes:
        below: those that MPI-IO made.
        direct: those of the application itself; only ranks that have any.
    """

    below: RankTrace
    direct: RankTrace


@dataclass(frozen=True)
class FileRecords:
    """The counters of one file of MPI-IO, and those of POSIX of the same file."""

    mpiio: list[Record]
    posix: list[Record]

    def bytes_beyond(self, verb: str) -> int:
        """Return how many bytes POSIX moved more than MPI-IO; `verb` is that of counters, `READ` or `WRITTEN`."""
        moved_by_posix = sum(record[f"POSIX_BYTES_{verb}"] for record in self.posix)
        moved_by_mpiio = sum(record[f"MPIIO_BYTES_{verb}"] for record in self.mpiio)
        return max(0, moved_by_posix - moved_by_mpiio)

    @property
    def has_deferred_transfers(self) -> bool:
        """Whether MPI-IO may move data when no call of it is going on: nonblocking and split collective transfers."""
        counters = ("MPIIO_NB_READS", "MPIIO_NB_WRITES", "MPIIO_SPLIT_READS", "MPIIO_SPLIT_WRITES")
        return _sum_counters(self.mpiio, counters) > 0

    def count_beyond(self, posix_counters: Iterable[str], mpiio_counters: Iterable[str]) -> int:
        """Return how many operations POSIX has more than MPI-IO, each of which is one of POSIX on each rank."""
        return max(0, _sum_counters(self.posix, posix_counters) - _sum_counters(self.mpiio, mpiio_counters))


def _sum_counters(records: Iterable[Record], counters: Iterable[str]) -> int:
    """Return the sum of some counters over the records of all ranks."""
    names = tuple(counters)
    total = 0
    for record in records:
        total += sum(record[name] for name in names)
    return total


def divide_accesses(posix: RankTrace, mpiio: RankTrace) -> DividedAccesses:
    """Divide the POSIX accesses of a file of MPI-IO by who made them."""
    below = {}
    direct = {}
    for rank, accesses in posix.items():
        is_below = _are_inside(accesses, mpiio.get(rank))
        below[rank] = accesses[is_below]
        if not is_below.all():
            direct[rank] = accesses[~is_below]
    return DividedAccesses(below, direct)


def _are_inside(accesses: NDArray[np.void], calls: NDArray[np.void] | None) -> NDArray[np.bool_]:
    """Whether each access is within the time of one of the calls, which are in order of their start."""
    if calls is None or not len(calls):
        return np.zeros(len(accesses), bool)
    # The last call that has begun, and the latest end of it and those before it.
    last_call = np.searchsorted(calls["start"], accesses["start"] + _TOLERANCE_S, side="right") - 1
    latest_end = np.maximum.accumulate(calls["end"])[last_call]
    is_inside: NDArray[np.bool_] = (last_call >= 0) & (accesses["end"] <= latest_end + _TOLERANCE_S)
    return is_inside


def direct_use(file: FileUse, records: FileRecords, direct: RankTrace) -> FileUse:
    """Return the use of a file of MPI-IO by POSIX, and say in both which interface makes the file.

    Args:
        file: the use through MPI-IO.
        records: its counters.
        direct: accesses of the application by POSIX.
    """
    ranks = sorted(direct)
    opens = max(records.count_beyond(["POSIX_OPENS"], ["MPIIO_COLL_OPENS", "MPIIO_INDEP_OPENS"]), len(ranks))
    flushes = records.count_beyond(["POSIX_FSYNCS", "POSIX_FDSYNCS"], ["MPIIO_SYNCS"])
    writers = [rank for rank in ranks if direct[rank]["write"].any()] or ranks
    flushes_of_writer = dict(zip(writers, split_evenly(flushes, len(writers)), strict=True))
    uses = {}
    for rank, opens_of_rank in zip(ranks, split_evenly(opens, len(ranks)), strict=True):
        uses[rank] = RankUse(accesses=direct[rank], opens=opens_of_rank, flushes=flushes_of_writer.get(rank, 0))
    use = FileUse(api="posix", created=False, ranks=uses, path=file.path, same_as=file, is_given=False)

    # Who accesses the file first makes it, or finds it.
    first_direct = min((accesses[0] for accesses in direct.values()), key=lambda access: float(access["start"]))
    is_direct_first = float(first_direct["start"]) < _first_open(file)
    file.has_two_interfaces = use.has_two_interfaces = True
    if not is_direct_first:
        use.is_made_by_other = True
    elif first_direct["write"]:
        file.is_given = False
        file.is_made_by_other = True
    else:
        file.is_given = True
        use.is_made_by_other = True
    return use


def _first_open(file: FileUse) -> float:
    """Seconds from the start of the job to the first open of a file, or else to its first access."""
    times = []
    for use in file.ranks.values():
        if use.opened[0]:
            times.append(use.opened[0])
        elif len(use.accesses):
            times.append(float(use.accesses["start"][0]))
    return min(times, default=0.0)
