"""How much of the theoretical peak a bandwidth is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

# Bandwidths over all ranks: what a file system's limit is a limit of. That of one rank has none.
_OF_ALL_RANKS = ("bandwidth", "raw_bandwidth", "observed_bandwidth", "darshan_bandwidth")


def has_peak(metric: str) -> bool:
    """Whether the theoretical limit of a file system is one of this metric."""
    return metric in _OF_ALL_RANKS


class Limit(Protocol):
    """A theoretical limit, as `iowatch.systems.Peak` is one."""

    @property
    def mib_per_s(self) -> float: ...

    @property
    def operation(self) -> str: ...


class Storage(Protocol):
    """A file system with its limits, as `iowatch.systems.FileSystem` is one."""

    @property
    def name(self) -> str: ...

    @property
    def peaks(self) -> Sequence[Limit]: ...


def peak_mib_per_s(storages: Iterable[Storage], operation: str, file_system: str | None = None) -> float | None:
    """The lowest limit that holds for an operation, in MiB/s; None where none is known.

    Args:
        storages: the system's file systems.
        operation: `write` or `read`.
        file_system: on which; without it there is an answer only where all that have a limit agree.
    """
    chosen = [s for s in storages if file_system is None or s.name == file_system]
    limits = {
        min(applying)
        for s in chosen
        if (applying := [p.mib_per_s for p in s.peaks if p.operation in (operation, "both")])
    }
    return limits.pop() if len(limits) == 1 else None


def percent_of_peak(value_mib_per_s: float, peak: float | None) -> float | None:
    """A bandwidth in per cent of the peak; None where no peak is known."""
    return None if peak is None or peak <= 0 else 100 * value_mib_per_s / peak
