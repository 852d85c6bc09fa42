"""`iowatch dashboard build`: all pages of the history into a directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from iowatch.dashboard import plotly, render
from iowatch.dashboard.catalogue import Catalogue, collect
from iowatch.dashboard.context import Site
from iowatch.dashboard.pages import PAGES
from iowatch.dashboard.site import building
from iowatch.store import History
from iowatch.systems.zone import time_zone
from iowatch.units import utc_now

NIGHTS = 30
REPORTS = 24


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did: path of the first page, files made anew and taken over."""

    index: Path
    written: int
    kept: int


def build(
    history: History,
    place: Path,
    zone: str | None = None,
    nights: int = NIGHTS,
    reports: int = REPORTS,
    now: datetime | None = None,
) -> Built:
    """Write the site to `place`.

    Args:
        zone: IANA name of the time zone in which times are shown; None is that of `timezone` in the systems'
            `system.yaml`, UTC where they say nothing or not the same.
        nights: how many of the newest sessions of each system have a long page of their runs, with outputs and
            Darshan's reports; those that findings rest on have one in any case, all others a short one.
        reports: how many runs of each of the newest nights have Darshan's timeline and full report; they take
            seconds each, once.
        now: UTC; what has not come by then is missing.

    Raises:
        UsageError: `place` is something else than a dashboard; no such time zone.
        MachineError: it cannot be written; the machine has no data of time zones.
    """
    if zone is not None:
        time_zone(zone)
    with building(place) as writer:
        catalogue = collect(history)
        shown_in = zone or _zone_of(catalogue)
        site = Site(
            history,
            catalogue,
            render.environment(shown_in),
            writer,
            time_zone(shown_in),
            render.recipe((shown_in, nights, reports)),
            nights,
            reports,
            int((now or utc_now()).timestamp()),
        )
        for source in [*render.static_files(), plotly.script()]:
            writer.copy(f"static/{source.name}", source)
        for publish in PAGES:
            publish(site)
        return Built(place / "index.html", writer.written, writer.kept)


def _zone_of(catalogue: Catalogue) -> str:
    """The zone of all systems that name one; a site has one clock, so UTC where they name several."""
    named = {m.facts.timezone for m in catalogue.machines if m.facts is not None and m.facts.timezone}
    return named.pop() if len(named) == 1 else "UTC"
