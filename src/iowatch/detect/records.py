"""What a detection says: times in epoch seconds, values in the input's unit, points counted in time order."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from iowatch.units import format_time

Direction = Literal["up", "down"]
Status = Literal["ok", "too few nights", "no data"]


@dataclass(frozen=True, slots=True)
class Change:
    """A step to another level.

    Attributes:
        index, time: the first point of the new level's first night.
        last_before: time of the last night before it; the step happened between the two.
        ratio: after / before.
        before, after: the levels (typical good nights, not means).
        confidence: how often a report of this strength was right on real noise, 0 to 1.
        nights: how many nights the new level has been seen.
    """

    index: int
    time: float
    last_before: float
    direction: Direction
    ratio: float
    before: float
    after: float
    confidence: float
    nights: int


@dataclass(frozen=True, slots=True)
class Transient:
    """Nights away from a level that came back to it; `ratio` is theirs to that level."""

    index: int
    time: float
    last_index: int
    last_time: float
    direction: Direction
    ratio: float
    nights: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A slow trend; `ratio` is the level at its end to the level at its start."""

    index: int
    time: float
    last_index: int
    last_time: float
    direction: Direction
    ratio: float


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of nights at one level; `nights` leaves transients out, `value` is in the input's unit."""

    index: int
    time: float
    last_index: int
    last_time: float
    value: float
    nights: int


@dataclass(frozen=True, slots=True)
class Detection:
    """The answer for one series; every tuple is in time order.

    Attributes:
        n: points in the series.
        status: `no data` (nothing to judge), `too few nights` (nothing can be said yet), or `ok`; only with
            `ok` does an empty `changes` mean that there was no change.
        noise: relative scatter of a good night (0.05 is 5 %); None without data.
        suspected: the newest nights look different, but are too few to say; never an alarm.
    """

    n: int
    status: Status
    noise: float | None = None
    changes: tuple[Change, ...] = ()
    suspected: tuple[Change, ...] = ()
    transients: tuple[Transient, ...] = ()
    drifts: tuple[Drift, ...] = ()
    levels: tuple[Level, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """One series of `iowatch detect --json` (DESIGN.md, "Formats"); times as ISO 8601 in UTC."""
        return {
            "n": self.n,
            "status": self.status,
            "noise": self.noise,
            **{
                name: [_plain(asdict(record)) for record in getattr(self, name)]
                for name in ("changes", "suspected", "transients", "drifts", "levels")
            },
        }


_TIMES = ("time", "last_time", "last_before")


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {k: format_time(datetime.fromtimestamp(v, UTC)) if k in _TIMES else v for k, v in record.items()}
