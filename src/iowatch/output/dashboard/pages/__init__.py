"""Registry of pages: all `Page` objects that the files of this folder define.

The menu is built from it, too, so a page consists of one file and its template.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from iowatch.output.dashboard import Page


def discover_pages() -> tuple[Page, ...]:
    """All pages: those of the menu in order, then those that are linked from others."""
    files = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    pages = {page.name: page for file in files for page in vars(file).values() if isinstance(page, Page)}
    return tuple(sorted(pages.values(), key=lambda page: (page.menu is None, page.menu or 0, page.name)))


PAGES = discover_pages()
