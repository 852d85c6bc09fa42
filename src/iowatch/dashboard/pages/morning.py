"""The first page: the state of last night on every system, open findings, what is suspected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from iowatch.dashboard import story
from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.nights import Night, night, page_of
from iowatch.findings import Finding

# The page stays small whatever happens: a picture of the weightiest finding of some systems, else a line each.
_MOST_PICTURES = 3
_MOST_LINES = 12
_OPEN = ("open", "suspected", "acknowledged")


def publish(site: Site) -> None:
    """Write `index.html`."""
    machines = sorted(site.catalogue.machines, key=_urgency)
    pictured = [(m, f) for m in machines if (f := _weightiest(m)) is not None][:_MOST_PICTURES]
    basis = [
        [
            [m.name, m.faults, repr(m.sessions[:1]), [story.basis_of(f, m) for f in _open(m)], len(m.series)]
            for m in machines
        ],
        len(site.catalogue.by_id),
    ]
    site.page("index.html", "morning.html", basis, lambda: _values(site, machines, pictured))


def _open(machine: Machine) -> list[Finding]:
    return sorted(
        (f for f in machine.findings if f.state in _OPEN), key=lambda f: (_OPEN.index(f.state), -f.first_after)
    )


def _weightiest(machine: Machine) -> Finding | None:
    """The open finding that concerns most series by the largest factor."""
    found = [f for f in machine.findings if f.state == "open"]
    return max(found, key=lambda f: len(f.members) * abs(math.log(f.size)), default=None)


def _urgency(machine: Machine) -> tuple[int, str]:
    """Systems that need somebody first."""
    states = {f.state for f in machine.findings}
    rank = 0 if "open" in states or machine.faults else 1 if "suspected" in states else 2
    return rank, machine.name


def _values(
    site: Site, machines: Sequence[Machine], pictured: Sequence[tuple[Machine, Finding]]
) -> dict[str, Any]:
    pictures = {f.id: story.fan(f, m, story.around(site.history, f, m)) for m, f in pictured}
    told = [_system(site, machine, pictures) for machine in machines]
    newest = max((m.sessions[0].started_at for m in machines if m.sessions), default=None)
    return {
        "systems": told,
        "newest": newest,
        "open": sum(f.state == "open" for m in machines for f in m.findings),
        "suspected": sum(f.state == "suspected" for m in machines for f in m.findings),
        "troubled": sum(one["night"] is not None and not one["night"].fine for one in told),
    }


def _system(site: Site, machine: Machine, pictures: Mapping[str, Any]) -> dict[str, Any]:
    latest: Night | None = night(site.history, machine.sessions[0]) if machine.sessions else None
    found = _open(machine)
    return {
        "machine": machine,
        "night": latest,
        "session_page": page_of(machine.sessions[0]) if machine.sessions else None,
        "findings": found[:_MOST_LINES],
        "more": max(0, len(found) - _MOST_LINES),
        "settled": sum(f.state not in _OPEN for f in machine.findings),
        "pictures": pictures,
        "pages": {f.id: story.page_of(f) for f in found},
        "label": next((f.label for f in machine.findings if f.label), None),
    }
