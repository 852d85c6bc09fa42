"""Asking for findings: by id, brought up to date, accepted levels, decisions that hang in the air."""

from __future__ import annotations

from datetime import date

from iowatch import review
from iowatch.detect import Settings
from iowatch.errors import UsageError, near_miss
from iowatch.findings.detection import headline_series
from iowatch.findings.night import load, update
from iowatch.findings.records import Finding
from iowatch.findings.standing import origins
from iowatch.store import History
from iowatch.units import utc_now


def find(history: History, name: str) -> Finding:
    """The finding of an id, or of an unambiguous beginning of it.

    Raises:
        UsageError: none or several.
    """
    known = load(history)
    chosen = [f for f in known if f.id == name] or [f for f in known if f.id.startswith(name)]
    if len(chosen) != 1:
        how = "no finding" if not chosen else f"{len(chosen)} findings"
        raise UsageError(f"{how} '{name}'", hint=near_miss(name, [f.id for f in known]))
    return chosen[0]


def accepted_levels(history: History, system: str, today: date | None = None) -> dict[int, int]:
    """Epoch seconds by series id, from which on the level of a series is the accepted one."""
    return origins(load(history, system), review.load(system), today or utc_now().date())


def refreshed(history: History, system: str | None = None) -> list[Finding]:
    """Findings of one system or of all, brought up to date first; their news wait for whoever tells them.

    Raises:
        UsageError: the history has no such system.
    """
    if system is not None:
        history.require_system(system)
    chosen = history.systems() if system is None else [system]
    return [finding for name in chosen for finding in update(history, name, tell=False)]


def watched(history: History, system: str | None = None) -> tuple[int, int]:
    """How many series are watched, and how many of them have too few nights to be judged."""
    chosen = history.systems() if system is None else [system]
    rows = [row for name in chosen for row in headline_series(history, name)]
    return len(rows), sum(row.n < Settings().min_nights for row in rows)


def suspected_series(history: History, system: str) -> frozenset[int]:
    """Ids of the series whose newest nights look different and are too few to say, as of the last update."""
    rows = headline_series(history, system)
    known = history.detections([row.id for row in rows])
    return frozenset(
        number for number, row in known.items() if any(step["suspected"] for step in row.document["steps"])
    )


def unknown_decisions(history: History, system: str | None = None) -> list[str]:
    """Decisions about findings that the history does not have: misspelt, or of another history."""
    chosen = history.systems() if system is None else [system]
    told = []
    for name in chosen:
        ids = {row.id for row in history.findings(name)}
        missing = dict.fromkeys(d.finding for d in review.load(name) if d.finding not in ids)
        told += [f"{review.path_of(name)}: a decision on '{m}', which is no finding here" for m in missing]
    return told
