"""Times of ranks as IOR writes them: `-O saveRankPerformanceDetailsCSV=FILE`, of version 4.0 and later.

IOR 3.3 ends with "Unrecognized parameter". The file has one row for each rank after each access of each repetition:

    access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput
    write,0,7.9469680786e-03,7.8492164612e-03,5.2778669280e+08,5.3435957853e+08

`runtime` is the time of the transfers, and of the flush that `-e` asks for (`ior.c`: `WriteOrRead`). It names no nodes.
"""

from __future__ import annotations

import math

from iowatch.benchmarks.options import Options
from iowatch.benchmarks.rank_times import RankTimes, RankTimesOption

_FILE = "ior.ranks.csv"
_OPTION = "saveRankPerformanceDetailsCSV"
_HEADER = "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"
_COLUMNS = 6


def read_ior_rank_times(text: str) -> RankTimes:
    """Return the times of the ranks in each access of each repetition.

    Raises:
        ValueError: another header, a row that is none, or ranks that are not 0, 1, 2, … in each repetition.
    """
    header, *rows = text.splitlines()
    if header != _HEADER:
        raise ValueError(f"expected the header '{_HEADER}'")
    times: dict[str, list[list[float]]] = {}
    for row in rows:
        fields = row.split(",")
        if len(fields) != _COLUMNS:
            raise ValueError(f"'{row}' has not {_COLUMNS} columns")
        access, rank, seconds = fields[0], int(fields[1]), float(fields[3])
        if not math.isfinite(seconds):
            raise ValueError(f"'{row}' has no time")
        repetitions = times.setdefault(access, [])
        # Rank 0 begins a repetition.
        if rank == 0:
            repetitions.append([])
        if not repetitions or rank != len(repetitions[-1]):
            raise ValueError(f"'{row}' is not the next rank")
        repetitions[-1].append(seconds)
    return times


def _is_own_time(options: Options, operation: str) -> bool:
    """Return whether no rank waits for others: those of POSIX never do, others in collective calls and flushes."""
    if options.text("api") == "posix":
        return True
    is_flushed = operation == "write" and options.flag("sync")
    return not options.flag("collective") and not is_flushed


IOR_RANK_TIMES = RankTimesOption(
    name=_OPTION,
    arguments=("-O", f"{_OPTION}={_FILE}"),
    file=_FILE,
    read=read_ior_rank_times,
    is_own_time=_is_own_time,
    bytes_per_rank=lambda options: options.number("block") * options.number("segments"),
)
