"""The first page: the state of last night on every system."""

from __future__ import annotations

from iowatch.dashboard.collect import night
from iowatch.dashboard.context import Site


def publish(site: Site) -> None:
    """Write `index.html`."""
    nights = []
    for system in site.history.systems():
        latest = site.history.sessions(system, limit=1)
        if latest:
            nights.append(night(site.history, latest[0]))
    by_system: dict[str, list[object]] = {}
    for view in site.series:
        by_system.setdefault(view.row.system, []).append(view)
    site.page("index.html", "morning.html", nights=nights, series=by_system)
