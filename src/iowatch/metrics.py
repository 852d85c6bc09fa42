"""The table of metrics: name, unit, direction, label, ceiling. Nothing else knows these facts.

To add a metric, add a row here and the field in the parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from iowatch.errors import UsageError, near_miss

Direction = Literal["higher", "lower", "neutral"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means.

    Attributes:
        name: key in records and tables.
        unit: unit of every stored value.
        direction: whether a higher or a lower value is better, or neither.
        label: words for people.
        ceiling: values above it are never passed on as results (DESIGN.md, "Formats").
    """

    name: str
    unit: str
    direction: Direction
    label: str
    ceiling: float = 1e12


# 100 TiB/s: several times the largest file systems of today; h5bench's strided artefacts exceed it.
_BANDWIDTH_CEILING = 100.0 * 2**20
_RATE_CEILING = 1e9

_ROWS = (
    Metric("bandwidth", "MiB/s", "higher", "Bandwidth", _BANDWIDTH_CEILING),
    Metric("raw_bandwidth", "MiB/s", "higher", "Raw bandwidth", _BANDWIDTH_CEILING),
    Metric("observed_bandwidth", "MiB/s", "higher", "Observed bandwidth", _BANDWIDTH_CEILING),
    Metric("rank_bandwidth", "MiB/s", "higher", "Bandwidth of one rank", _BANDWIDTH_CEILING),
    Metric("rate", "1/s", "higher", "Operations per second", _RATE_CEILING),
    Metric("time", "s", "lower", "Time"),
    Metric("open_time", "s", "lower", "Time to open"),
    Metric("transfer_time", "s", "lower", "Time to transfer"),
    Metric("sync_time", "s", "lower", "Time to sync"),
    Metric("close_time", "s", "lower", "Time to close"),
    Metric("overhead_ratio", "1", "neutral", "Time with Darshan / without"),
    Metric("collective_count", "1", "neutral", "Collective operations a repetition (Darshan)", 1e18),
    Metric("independent_count", "1", "neutral", "Independent operations a repetition (Darshan)", 1e18),
    Metric("posix_count", "1", "neutral", "POSIX operations a repetition (Darshan)", 1e18),
    Metric("small_share", "1", "neutral", "Share of accesses to 100 KiB (Darshan)", 1.0),
    Metric("unaligned_share", "1", "neutral", "Share of accesses not aligned (Darshan)", 1.0),
    Metric("metadata_time_share", "1", "neutral", "Share of I/O time in metadata (Darshan)", 1.0),
    Metric("close_tail_time", "s", "lower", "Time from last transfer to last close (Darshan)"),
    Metric("imbalance", "1", "lower", "Slowest rank's I/O time / mean (Darshan)"),
    Metric("darshan_bandwidth", "MiB/s", "higher", "Bandwidth by Darshan's estimate", _BANDWIDTH_CEILING),
    Metric("count", "1", "neutral", "Count", 1e18),
    Metric("share", "1", "neutral", "Share", 1.0),
)

METRICS: dict[str, Metric] = {row.name: row for row in _ROWS}

# Of several metrics of one case the first of these that it has is watched and
# compared: the others follow from it.
HEADLINES = ("bandwidth", "observed_bandwidth", "raw_bandwidth", "rate", "time")


def metric(name: str) -> Metric:
    """The facts of one metric.

    Raises:
        UsageError: no such metric.
    """
    try:
        return METRICS[name]
    except KeyError:
        raise UsageError(f"unknown metric '{name}'", hint=near_miss(name, list(METRICS))) from None
