"""The pages that a test looks at: a build of all pages takes seconds, most of them for pages that it does not read."""

from __future__ import annotations

from iowatch.output.dashboard import Page
from iowatch.output.dashboard.build import all_pages


def pages_named(*names: str) -> list[Page]:
    """The pages of these names (`index.html`, `series`, …), in the order of the site."""
    pages = [page for page in all_pages() if page.name in names]
    assert sorted(page.name for page in pages) == sorted(names)
    return pages
