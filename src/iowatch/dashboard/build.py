"""`iowatch dashboard build`: all pages of the history into a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iowatch.dashboard import collect, render
from iowatch.dashboard.context import Site
from iowatch.dashboard.pages import PAGES
from iowatch.dashboard.site import building
from iowatch.store import History


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did: path of the first page, files made anew and taken over."""

    index: Path
    written: int
    kept: int


def build(history: History, place: Path, zone: str = "UTC") -> Built:
    """Write the site to `place`; times are shown in `zone`.

    Raises:
        UsageError: `place` is something else than a dashboard.
        MachineError: it cannot be written.
    """
    views = collect.series_views(history)
    newest = max((view.row.last for view in views if view.row.last is not None), default=None)
    with building(place) as writer:
        site = Site(history, views, newest, render.environment(zone), writer)
        for source in render.static_files():
            writer.copy(f"static/{source.name}", source)
        writer.copy("static/plotly.min.js", _plotly())
        for publish in PAGES:
            publish(site)
        return Built(place / "index.html", writer.written, writer.kept)


def _plotly() -> Path:
    """Plotly's script as its Python package brings it: nothing is fetched when a page is viewed."""
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
