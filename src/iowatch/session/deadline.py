"""The end of the time of a measurement that must not last longer: runs that are executing then are ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from iowatch.core import MachineError


class TimeIsUpError(MachineError):
    """The time of a measurement was over while something was executing; what was measured before it is kept."""


@dataclass(frozen=True)
class Deadline:
    """When a measurement must end.

    Attributes:
        ends_at: seconds of `time.monotonic`.
    """

    ends_at: float

    @property
    def left_s(self) -> float:
        """Seconds until the end; below 0 after it."""
        return self.ends_at - time.monotonic()

    def check(self) -> None:
        """Return before the end; called while something executes.

        Raises:
            TimeIsUpError: the time is over.
        """
        if self.left_s <= 0:
            raise TimeIsUpError("the time was over")
