"""How the I/O of a finding's strongest member was done before and after its change, by its Darshan logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from iowatch.darshan import Reader, Trace
from iowatch.darshan.diff import Change, between
from iowatch.darshan.keeping import first_trace
from iowatch.darshan.text import plain
from iowatch.findings.evidence import runs_around
from iowatch.findings.records import Finding
from iowatch.store import History
from iowatch.units import counted

# Nights a side whose logs are read; a counter that differs among them is no matter of the change.
_MOST_NIGHTS = 3


@dataclass(frozen=True)
class LogDifferences:
    """What every run before a change has otherwise than every run after it, of one member.

    Attributes:
        member: its name.
        logs: how many were read, before and after.
    """

    member: str
    logs: tuple[int, int]
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def log_lines(found: LogDifferences | None) -> Iterator[str]:
    """The same for people; nothing where there are no logs."""
    if found is not None:
        before, after = found.logs
        yield ""
        yield f"How the I/O was done: {found.member}, {counted(before, 'log')} before and {after} after"
        yield from (f"  {plain(change.text)}" for change in found.changes)
        if not found.changes:
            yield "  in the same way: the change lies below the program"


def log_differences(history: History, finding: Finding) -> LogDifferences | None:
    """What differs between the logs of the strongest member that left some on both sides.

    None where no member did: the logs are gone, or there never were any.
    """
    members = sorted(finding.members, key=lambda member: -max(member.gain, 1 / member.gain))
    points = history.points([member.series_id for member in members])
    with Reader() as reader:
        for member in members:
            if member.series_id not in points:
                continue
            before, after = runs_around(member, points[member.series_id])
            left = _traces(history, before[-_MOST_NIGHTS:], reader)
            right = _traces(history, after[:_MOST_NIGHTS], reader)
            if left and right:
                return LogDifferences(member.name, (len(left), len(right)), between(left, right))
    return None


def _traces(history: History, runs: list[int], reader: Reader) -> list[Trace]:
    logs = ([one.sha256 for one in history.artefacts(run) if one.kind == "darshan"] for run in runs)
    return [trace for digests in logs if (trace := first_trace(digests, reader))]
