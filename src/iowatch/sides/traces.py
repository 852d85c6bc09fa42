"""How the I/O of two sides differs by Darshan's counters, beyond what differs from run to run of a side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from iowatch.compare import Comparison, Measured, Pair, Side
from iowatch.darshan import Reader, Trace
from iowatch.darshan.diff import Change, between
from iowatch.darshan.keeping import first_trace
from iowatch.model import Case
from iowatch.sides.entries import Entry
from iowatch.store import History

# Newest runs of each side whose logs are read, and cases; a log takes some 20 ms.
_MOST_RUNS = 3
_MOST_CASES = 12


@dataclass(frozen=True)
class TracedCase:
    """What differs between the logs of one case; its operations share them.

    Attributes:
        logs: how many were read, left and right.
    """

    case: Case
    logs: tuple[int, int]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Traced:
    """Cases with logs on both sides, those that differ most in what they measured first.

    Attributes:
        left_out: further cases that were not looked at, because there are so many.
    """

    cases: tuple[TracedCase, ...] = ()
    left_out: int = 0


# Numbers of the newest runs on both sides.
_Runs = tuple[tuple[int, ...], tuple[int, ...]]


def traced(
    compared: Sequence[Comparison],
    pairs: Sequence[Pair],
    entries: Sequence[tuple[Entry, Entry]],
    history: History,
) -> Traced:
    """Read the logs of the newest runs on both sides of each case, and compare them.

    Args:
        compared, pairs, entries: the same pairs, in the same order.
    """
    cases: dict[_Runs, Case] = {}
    rows = zip(compared, pairs, entries, strict=True)
    for one, pair, (left, right) in sorted(rows, key=lambda row: _telling(row[0])):
        runs = _newest(pair.left, left), _newest(pair.right, right)
        if all(runs):
            cases.setdefault(runs, one.case.without("operation"))
    found: list[TracedCase] = []
    left_out = 0
    with Reader() as reader:
        for runs, case in cases.items():
            if len(found) == _MOST_CASES:
                left_out += 1
            elif (told := _traced(case, runs, history, reader)) is not None:
                found.append(told)
    return Traced(tuple(found), left_out)


def _traced(case: Case, runs: _Runs, history: History, reader: Reader) -> TracedCase | None:
    """None where a side has no log that can be read."""
    left, right = ([trace for run in side if (trace := _trace(history, run, reader))] for side in runs)
    return TracedCase(case, (len(left), len(right)), between(left, right)) if left and right else None


def _trace(history: History, run: int, reader: Reader) -> Trace | None:
    return first_trace((one.sha256 for one in history.artefacts(run) if one.kind == "darshan"), reader)


def _telling(one: Comparison) -> tuple[bool, float]:
    """Differences first, the largest in front."""
    return one.verdict not in ("faster", "slower"), -abs(log(one.ratio)) if one.ratio else 0.0


def _newest(side: Side, entry: Entry) -> tuple[int, ...]:
    nights = side.nights if isinstance(side, Measured) else ()
    known = {(f.time, f.number) for night in nights for f in entry.facts.get(night, ()) if f.number is not None}
    return tuple(number for _, number in sorted(known)[-_MOST_RUNS:])
