"""The table of metrics: name, unit, direction, label, ceiling, and functions that depend on the direction.

To add a metric, add a row here, or a `Metric` in a plugin of a site, and the field in the parser. The order of the rows
is the priority of headline metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from iowatch.core.errors import UsageError, suggest_name
from iowatch.core.plugins import Registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BetterDirection = Literal["higher", "lower", "neutral"]
# Of a metric that is monitored only ratios count, so that no value is 0. A byte in a day is 1e-11 MiB/s, and no clock
# resolves a picosecond: what is smaller was not measured.
_SMALLEST_MONITORED = 1e-12
_Bound = TypeVar("_Bound")
_Values = TypeVar("_Values", float, "NDArray[np.float64]")


@dataclass(frozen=True, slots=True)
class Metric:
    """The meaning of a number.

    Attributes:
        name: key in records and tables.
        unit: unit of all stored values.
        direction: whether a higher or a lower value is better, or neither.
        label: name in pages and reports.
        ceiling: values above it are rejected.
        headline: whether it can be the headline metric of a case, which is monitored for changes and compared.
    """

    name: str
    unit: str
    direction: BetterDirection
    label: str
    ceiling: float = 1e12
    headline: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown direction, which would stop commands that read results."""
        if self.direction not in get_args(BetterDirection):
            words = ", ".join(get_args(BetterDirection))
            raise ValueError(f"metric '{self.name}': direction is '{self.direction}'; expected {words}")

    @property
    def floor(self) -> float:
        """Return the lowest plausible value, in the unit of the metric: above 0 for a metric that is monitored."""
        return _SMALLEST_MONITORED if self.headline else 0.0

    def is_plausible(self, value: float) -> bool:
        """Return whether a value can have been measured: finite, and from `floor` to `ceiling`."""
        return self.floor <= value <= self.ceiling

    @property
    def sign(self) -> int:
        """Return 1 if a higher value is better, -1 if a lower value is better, 0 if neither."""
        return {"higher": 1, "lower": -1, "neutral": 0}[self.direction]

    def best(self, values: Iterable[float]) -> float:
        """Return the best of at least one value; the highest if neither direction is better."""
        return min(values) if self.direction == "lower" else max(values)

    def best_bound(self, lowest: _Bound, highest: _Bound) -> _Bound:
        """Return the better of the lowest and the highest: values, arrays, or the functions that compute them."""
        return lowest if self.direction == "lower" else highest

    def gain(self, value: _Values, level: float) -> _Values:
        """Return `value` relative to `level` as performance: above 1 is better, also for times. Neither may be 0."""
        return level / value if self.direction == "lower" else value / level

    def log_gain(self, ratio: float) -> float:
        """Return ln(after / before) as performance: positive is better; 0 if neither direction is better."""
        return self.sign * math.log(ratio)


# 100 TiB/s: several times the bandwidth of the largest file systems; h5bench's strided artefacts exceed it.
_BANDWIDTH_CEILING = 100.0 * 2**20
# 1e12 operations per second: a hundred times what the fastest systems of the IO500 list remove.
_RATE_CEILING = 1e12

_ROWS = (
    Metric("bandwidth", "MiB/s", "higher", "Bandwidth", _BANDWIDTH_CEILING, headline=True),
    Metric("observed_bandwidth", "MiB/s", "higher", "Observed bandwidth", _BANDWIDTH_CEILING, headline=True),
    Metric("raw_bandwidth", "MiB/s", "higher", "Raw bandwidth", _BANDWIDTH_CEILING, headline=True),
    Metric("rank_bandwidth", "MiB/s", "higher", "Bandwidth of one rank", _BANDWIDTH_CEILING),
    Metric("memory_bandwidth", "MiB/s", "higher", "Memory bandwidth per rank", _BANDWIDTH_CEILING, headline=True),
    Metric("target_bandwidth", "MiB/s", "higher", "Bandwidth of one target", _BANDWIDTH_CEILING, headline=True),
    Metric("network_bandwidth", "MiB/s", "higher", "Message bandwidth", _BANDWIDTH_CEILING, headline=True),
    Metric("latency", "s", "lower", "Message latency", headline=True),
    Metric("flop_rate", "GFLOP/s", "higher", "Floating-point rate of one rank", 1e9, headline=True),
    Metric("rate", "1/s", "higher", "Operations per second", _RATE_CEILING, headline=True),
    Metric("time", "s", "lower", "Time", headline=True),
    Metric("open_time", "s", "lower", "Time to open"),
    Metric("transfer_time", "s", "lower", "Time to transfer"),
    Metric("transfer_latency_median", "s", "lower", "Time of one transfer (median)"),
    Metric("transfer_latency_p99", "s", "lower", "Time of one transfer (99th percentile)"),
    Metric("transfer_latency_max", "s", "lower", "Time of one transfer (longest)"),
    Metric("sync_time", "s", "lower", "Time to sync"),
    Metric("close_time", "s", "lower", "Time to close"),
    Metric("overhead_ratio", "1", "neutral", "Time with Darshan / without"),
    Metric("collective_count", "1", "neutral", "Collective operations per repetition (Darshan)", 1e18),
    Metric("independent_count", "1", "neutral", "Independent operations per repetition (Darshan)", 1e18),
    Metric("posix_count", "1", "neutral", "POSIX operations per repetition (Darshan)", 1e18),
    Metric("small_share", "1", "neutral", "Share of accesses to 100 KiB (Darshan)", 1.0),
    Metric("unaligned_share", "1", "neutral", "Share of unaligned accesses (Darshan)", 1.0),
    Metric("metadata_time_share", "1", "neutral", "Share of I/O time in metadata (Darshan)", 1.0),
    Metric("close_tail_time", "s", "lower", "Time from last transfer to last close (Darshan)"),
    Metric("imbalance", "1", "lower", "Slowest rank's I/O time / mean (Darshan)"),
    Metric("darshan_bandwidth", "MiB/s", "higher", "Bandwidth by Darshan's estimate", _BANDWIDTH_CEILING),
    Metric("count", "1", "neutral", "Count", 1e18),
    Metric("share", "1", "neutral", "Share", 1.0),
    # Numbers that a command of a site prints (docs/commands.md).
    Metric("size", "bytes", "lower", "Size", 1e18, headline=True),
    Metric("number_higher", "1", "higher", "Number (higher is better)", 1e18, headline=True),
    Metric("number_lower", "1", "lower", "Number (lower is better)", 1e18, headline=True),
)

METRICS = Registry(Metric, _ROWS)


def headline_metrics() -> tuple[str, ...]:
    """Return the metrics of which the first that a case has is its headline metric; its others follow from that one."""
    return tuple(row.name for row in METRICS.values() if row.headline)


def get_metric(name: str) -> Metric:
    """Return the metric with this name.

    Raises:
        UsageError: unknown metric.
    """
    try:
        return METRICS[name]
    except KeyError:
        raise UsageError(f"unknown metric '{name}'", hint=suggest_name(name, list(METRICS))) from None
