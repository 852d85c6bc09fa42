"""How the I/O of two sides differs by Darshan's counters, beyond what differs from run to run of a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from iowatch.compare import Comparison, Measured, Pair, Side
from iowatch.darshan import Reader
from iowatch.darshan.diff import Change, between
from iowatch.darshan.keeping import first_trace
from iowatch.model import Case
from iowatch.sides.entries import Entry
from iowatch.store import History, bulk

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
    numbers = sorted({number for runs in cases for side in runs for number in side})
    with history.reading() as connection:
        logs = bulk.run_files(connection, numbers, "darshan")
    waiting = [
        (case, runs) for runs, case in cases.items() if all(any(n in logs for n in side) for side in runs)
    ]
    found: list[TracedCase] = []
    with Reader() as reader:
        while waiting and len(found) < _MOST_CASES:
            told = _traced(*waiting.pop(0), logs, reader)
            found += [told] if told is not None else []
    return Traced(tuple(found), len(waiting))


def _traced(case: Case, runs: _Runs, logs: Mapping[int, list[str]], reader: Reader) -> TracedCase | None:
    """None where a side has no log that is still kept and can be read."""
    left, right = ([t for run in side if (t := first_trace(logs.get(run, ()), reader))] for side in runs)
    return TracedCase(case, (len(left), len(right)), between(left, right)) if left and right else None


def _telling(one: Comparison) -> tuple[bool, float]:
    """Differences first, the largest in front."""
    return one.verdict not in ("faster", "slower"), -abs(log(one.ratio)) if one.ratio else 0.0


def _newest(side: Side, entry: Entry) -> tuple[int, ...]:
    nights = side.nights if isinstance(side, Measured) else ()
    known = {(f.time, f.number) for night in nights for f in entry.facts.get(night, ()) if f.number is not None}
    return tuple(number for _, number in sorted(known)[-_MOST_RUNS:])
