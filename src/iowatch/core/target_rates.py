"""Rates of the targets of a file system: what a run of the target probe keeps of each of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# The fact of a run: `TargetRates` as JSON.
TARGET_RATES_FACT = "target_rates"

# Digits that are kept of a rate, so that the fact of 150 targets has some 10 kB.
_DIGITS = 4


@dataclass(frozen=True)
class TargetRates:
    """Rates of the targets that one run measured.

    Attributes:
        names: of the targets (`OST 14`), each once.
        locations: what each is called elsewhere: its directory, or its name in the file system.
        write, read: rates of each target in MiB/s, one for each repetition; `read` is empty if data that were just
            written were still in the page cache.
        target_count: number of all targets; the others are measured by other sessions, or failed.
    """

    names: tuple[str, ...]
    locations: tuple[str, ...]
    write: tuple[tuple[float, ...], ...]
    read: tuple[tuple[float, ...], ...]
    target_count: int

    def rates_of(self, operation: str) -> tuple[tuple[float, ...], ...]:
        """Return the rates of `write` or `read`."""
        return self.write if operation == "write" else self.read

    def to_json(self) -> dict[str, Any]:
        """Return the document of the fact."""
        return asdict(self)


TARGET_OPERATIONS = ("write", "read")
"""What the probe does with the file of each target."""


def rounded_rate(mib_per_s: float) -> float:
    """Return a rate with the digits that a run keeps."""
    return float(f"{mib_per_s:.{_DIGITS}g}")
