"""`iowatch dashboard build`: all pages of the history into a directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from iowatch.dashboard import plotly, render
from iowatch.dashboard.catalogue import collect
from iowatch.dashboard.context import Site
from iowatch.dashboard.pages import PAGES
from iowatch.dashboard.site import building
from iowatch.store import History
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
    zone: str = "UTC",
    nights: int = NIGHTS,
    reports: int = REPORTS,
    now: datetime | None = None,
) -> Built:
    """Write the site to `place`; times are shown in `zone`.

    Args:
        nights: how many of the newest sessions of each system have a long page of their runs, with outputs and
            Darshan's reports; those that findings rest on have one in any case, all others a short one.
        reports: how many runs of each of the newest nights have Darshan's timeline and full report; they take
            seconds each, once.
        now: UTC; what has not come by then is missing.

    Raises:
        UsageError: `place` is something else than a dashboard; no such time zone.
        MachineError: it cannot be written.
    """
    templates = render.environment(zone)
    with building(place) as writer:
        site = Site(
            history,
            collect(history),
            templates,
            writer,
            render.recipe((zone, nights, reports)),
            nights,
            reports,
            int((now or utc_now()).timestamp()),
        )
        for source in [*render.static_files(), plotly.script()]:
            writer.copy(f"static/{source.name}", source)
        for publish in PAGES:
            publish(site)
        return Built(place / "index.html", writer.written, writer.kept)
