"""The first page: the state of last night on every system, open findings, what is suspected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from iowatch.dashboard import story
from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.levels import suspicions, trends
from iowatch.dashboard.nights import Night, night, page_of
from iowatch.dashboard.silence import due
from iowatch.dashboard.silence import silent as is_silent
from iowatch.dashboard.troubles import grouped
from iowatch.findings import Finding

# The page stays small whatever happens: a picture of the weightiest finding of some systems, else a line each.
_MOST_PICTURES = 3
_MOST_LINES = 12
_OPEN = ("open", "suspected", "acknowledged")


def publish(site: Site) -> None:
    """Write `index.html`."""
    silent = {m.name for m in site.catalogue.machines if is_silent(m, site.now)}
    machines = sorted(site.catalogue.machines, key=lambda m: _urgency(m, m.name in silent))
    pictured = [(m, f) for m in machines if (f := _weightiest(m)) is not None][:_MOST_PICTURES]
    basis = [
        [
            [
                [
                    m.name,
                    m.faults,
                    repr(m.night),
                    len(m.sessions),
                    due(m),
                    m.name in silent,
                    len(m.series),
                    len(trends(m)),
                    [(one.series.row.id, one.series.name, one.gain) for one in suspicions(m)],
                ],
                [story.basis_of(f, m) for f in _open(m)],
            ]
            for m in machines
        ],
        len(site.catalogue.by_id),
    ]
    site.page("index.html", "morning.html", basis, lambda: _values(site, machines, pictured, silent))


def _open(machine: Machine) -> list[Finding]:
    return sorted(
        (f for f in machine.findings if f.state in _OPEN), key=lambda f: (_OPEN.index(f.state), -f.first_after)
    )


def _weightiest(machine: Machine) -> Finding | None:
    """The open finding that concerns most series by the largest factor."""
    found = [f for f in machine.findings if f.state == "open"]
    return max(found, key=lambda f: len(f.members) * abs(math.log(f.size)), default=None)


def _urgency(machine: Machine, silent: bool) -> tuple[int, str]:
    """Systems that need somebody first."""
    states = {f.state for f in machine.findings}
    incomplete = machine.night is not None and machine.night.status != "ok"
    needs = ("open" in states or bool(machine.faults), silent or incomplete, "suspected" in states)
    return next((rank for rank, true in enumerate(needs) if true), len(needs)), machine.name


def _values(
    site: Site, machines: Sequence[Machine], pictured: Sequence[tuple[Machine, Finding]], silent: Set[str]
) -> dict[str, Any]:
    pictures = {f.id: story.fan(f, m, story.around(site.history, f, m), site.zone) for m, f in pictured}
    told = [_system(site, machine, pictures, machine.name in silent) for machine in machines]
    newest = max((m.night.started_at for m in machines if m.night), default=None)
    return {
        "systems": told,
        "newest": newest,
        "open": sum(f.state == "open" for m in machines for f in m.findings),
        "suspected": sum(f.state == "suspected" for m in machines for f in m.findings),
        "troubled": sum(
            one["night"] is not None and not one["night"].fine and not one["running"] for one in told
        ),
        "running": sum(one["running"] for one in told),
        "silent": len(silent),
    }


def _system(site: Site, machine: Machine, pictures: Mapping[str, Any], silent: bool) -> dict[str, Any]:
    latest: Night | None = night(site.history, machine.night) if machine.night else None
    found = _open(machine)
    return {
        "machine": machine,
        "night": latest,
        "troubles": _troubles(latest, silent) if latest else [],
        "running": latest is not None and latest.session.status == "running" and not silent,
        "due": due(machine),
        "silent": silent,
        "session_page": page_of(machine.night) if machine.night else None,
        "findings": found[:_MOST_LINES],
        "more": max(0, len(found) - _MOST_LINES),
        "settled": sum(f.state not in _OPEN for f in machine.findings),
        "pictures": pictures,
        "others": {f.id: story.other_events(f, machine) for f in found if f.id in pictures},
        "pages": {f.id: story.page_of(f) for f in found},
        "fresh": _fresh(machine),
        "trends": len(trends(machine)),
        "suspicions": suspicions(machine),
        "label": next((f.label for f in machine.findings if f.label), None),
    }


def _troubles(latest: Night, silent: bool) -> list[tuple[str, Any]]:
    """What failed and what did not come, the same reason once; a night that goes on may still bring it."""
    absent = "Not there yet" if latest.session.status == "running" and not silent else "Absent"
    kinds = (("Failed", latest.failed), (absent, latest.absent))
    return [(title, grouped(troubles)) for title, troubles in kinds if troubles]


def _fresh(machine: Machine) -> set[str]:
    """Findings that were first seen with the newest night; all of an import would be."""
    newest = machine.night
    if newest is None or newest.origin == "import":
        return set()
    return {f.id for f in machine.findings if f.first_seen_at >= newest.started_at}
