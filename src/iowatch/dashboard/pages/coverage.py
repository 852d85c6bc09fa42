"""Coverage: what was expected against what came, night by night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup

from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.drawing import DAY_S, picture
from iowatch.dashboard.nights import page_of as session_page
from iowatch.dashboard.silence import silent, usual_gap_s
from iowatch.dashboard.site import slug
from iowatch.store import SessionRow, bulk

NIGHTS = 42
_CELL, _HEIGHT = 9, 18
# Cells of one pause: a strip stays a strip.
_MOST_MISSED = 14
Counts = tuple[int, int]


@dataclass(frozen=True)
class Nights:
    """Counts of expected and received results: by session, and by run name in each session.

    `counts[run name][session]` is (expected, received); a run that was not expected is not in it. `missed` are
    the nights before a session in which none took place, as far as the rhythm of the system tells.
    """

    sessions: Sequence[SessionRow]
    totals: Mapping[int, Counts]
    counts: Mapping[str, Mapping[int, Counts]]
    failed: Mapping[int, int]
    missed: Mapping[int, int]


def page_of(machine: Machine) -> str:
    """Path of a system's coverage."""
    return f"coverage/{slug(machine.name)}.html"


def publish(site: Site) -> None:
    """Write `coverage/<system>.html` for each system, and `coverage.html`, which leads to them."""
    read: dict[str, Nights] = {}

    def nights(machine: Machine) -> Nights:
        if machine.name not in read:
            read[machine.name] = _nights(site, machine)
        return read[machine.name]

    bases = []
    for machine in site.catalogue.machines:
        quiet = silent(machine, site.now)
        basis = [machine.name, quiet, [(s.uuid, s.status, s.runs) for s in machine.sessions[:NIGHTS]]]
        bases.append(basis)
        site.page(page_of(machine), "coverage.html", basis, partial(_values, machine, nights, quiet))
    site.page(
        "coverage.html",
        "coverage_index.html",
        bases,
        lambda: {
            "systems": [_summary(m, nights(m), site.now) for m in site.catalogue.machines],
            "nights": NIGHTS,
        },
    )


def _nights(site: Site, machine: Machine) -> Nights:
    chosen = list(machine.sessions[:NIGHTS])[::-1]
    numbers = [session.id for session in chosen]
    came: set[tuple[int, str, str, str, str, str]] = set()
    expected: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    failed: dict[int, int] = defaultdict(int)
    with site.history.reading() as connection:
        for session, name, number in bulk.session_arrivals(connection, numbers):
            row = site.catalogue.by_id[number].row if number in site.catalogue.by_id else None
            if row is not None:
                operation = str(row.case.parameters.get("operation", ""))
                came.add((session, name, row.partition, row.stack, operation, row.metric))
        for item in bulk.session_expectations(connection, numbers):
            expected[item[0]].append((item[1], item in came))
        for session, _name, status, _stack in bulk.run_outcomes(connection, numbers):
            failed[session] += status != "ok"
    counts: dict[str, dict[int, Counts]] = defaultdict(dict)
    totals = {}
    for session_id, items in expected.items():
        totals[session_id] = (len(items), sum(ok for _, ok in items))
        for name, ok in items:
            wanted, got = counts[name].get(session_id, (0, 0))
            counts[name][session_id] = (wanted + 1, got + ok)
    return Nights(chosen, totals, counts, failed, _missed(chosen) if totals else {})


def _missed(sessions: Sequence[SessionRow]) -> dict[int, int]:
    """How many nights there was no session before each; oldest first."""
    usual = max(DAY_S, usual_gap_s(sessions[::-1]))
    gaps = {b.id: b.started_at - a.started_at for a, b in pairwise(sessions)}
    return {number: round(gap / usual) - 1 for number, gap in gaps.items() if gap > 1.5 * usual}


def _values(machine: Machine, read: Callable[[Machine], Nights], quiet: bool) -> dict[str, Any]:
    nights = read(machine)
    rows = [_run(name, by_session, nights) for name, by_session in sorted(nights.counts.items())]
    return {
        "machine": machine,
        "rows": sorted(rows, key=lambda r: r["share"]),
        "nights": [
            {
                "session": session,
                "page": session_page(session),
                "expected": nights.totals.get(session.id, (0, 0))[0],
                "received": nights.totals.get(session.id, (0, 0))[1],
                "failed": nights.failed.get(session.id, 0),
                "missed": nights.missed.get(session.id, 0),
                "before": before,
            }
            for session, before in zip(nights.sessions[::-1], [*nights.sessions[-2::-1], None], strict=False)
        ],
        "silent": quiet,
        "missed": sum(nights.missed.values()),
    }


def _run(name: str, counts: Mapping[int, Counts], nights: Nights) -> dict[str, Any]:
    wanted = sum(expected for expected, _ in counts.values())
    got = sum(received for _, received in counts.values())
    kinds = _kinds(counts, nights)
    return {
        "name": name,
        "expected": wanted,
        "received": got,
        "share": got / wanted,
        "strip": _strip(kinds),
    }


def _kinds(counts: Mapping[int, Counts], nights: Nights) -> list[str]:
    """A kind a night, those without a session among them."""
    found: list[str] = []
    for session in nights.sessions:
        found += ["missed"] * min(nights.missed.get(session.id, 0), _MOST_MISSED)
        found.append(_kind(counts.get(session.id)))
    return found


def _kind(counts: Counts | None) -> str:
    if counts is None or counts[0] == 0:
        return "silent"
    return "full" if counts[1] == counts[0] else "part" if counts[1] else "gone"


def _summary(machine: Machine, nights: Nights, now: int) -> dict[str, Any]:
    kinds = _kinds(nights.totals, nights)
    return {
        "machine": machine,
        "page": page_of(machine),
        "strip": _strip(kinds),
        "expected": sum(expected for expected, _ in nights.totals.values()),
        "received": sum(received for _, received in nights.totals.values()),
        "failed": sum(nights.failed.values()),
        "nights": len(kinds),
        "missed": sum(nights.missed.values()),
        "silent": silent(machine, now),
    }


def _strip(kinds: Sequence[str]) -> Markup:
    """A cell a night; what is absent is also lower, so that colour is not all."""
    full, part, gone, missed = (kinds.count(kind) for kind in ("full", "part", "gone", "missed"))
    label = f"{len(kinds)} nights: {full} complete, {part} in part, {gone} absent, {missed} without a session"
    parts, at = [], 0
    for kind, run in groupby(kinds):
        many = len(list(run))
        height = {"full": _HEIGHT, "part": _HEIGHT * 2 // 3, "gone": _HEIGHT // 3, "missed": 3}.get(kind, 2)
        for night in range(at, at + many):
            place = f'x="{night * _CELL}" y="{_HEIGHT - height}" width="{_CELL - 1}" height="{height}"'
            parts.append(f'<rect class="{kind}" {place}/>')
        at += many
    return picture(max(1, len(kinds)) * _CELL, _HEIGHT, label, parts, "strip")
