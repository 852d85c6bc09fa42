"""The pages of the site: one file a page, each with `publish(site)`; `PAGES` is their order in the build."""

from __future__ import annotations

from collections.abc import Callable

from iowatch.dashboard.context import Site
from iowatch.dashboard.pages import finding, morning, series, session

PAGES: tuple[Callable[[Site], None], ...] = (
    morning.publish,
    finding.publish,
    series.publish,
    session.publish,
)

__all__ = ["PAGES", "Site"]
