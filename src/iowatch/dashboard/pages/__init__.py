"""The pages of the site: one file a page, each with `publish(site)`; `PAGES` is their order in the build."""

from __future__ import annotations

from collections.abc import Callable

from iowatch.dashboard.context import Site
from iowatch.dashboard.pages import (
    comparison,
    coverage,
    feed,
    finding,
    morning,
    overview,
    past,
    scaling,
    series,
    session,
    stacks,
)

PAGES: tuple[Callable[[Site], None], ...] = (
    morning.publish,
    finding.publish,
    series.publish,
    session.publish,
    past.publish,
    overview.publish,
    coverage.publish,
    comparison.publish,
    scaling.publish,
    stacks.publish,
    feed.publish,
)

__all__ = ["PAGES", "Site"]
