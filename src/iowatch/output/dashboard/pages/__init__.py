"""Registry of pages: all `Page` objects that the files of this folder define, then those of capabilities.

The menu is built from it, too, so a page consists of one file and its template. Plugins of a site add pages.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from iowatch.core import plugins
from iowatch.output.dashboard import Page


def discover_pages() -> tuple[Page, ...]:
    """The product's own pages."""
    pages: dict[str, Page] = {}
    for file in [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]:
        found = [page for page in vars(file).values() if isinstance(page, Page)]
        wrong = [page.name for page in found if page.name in pages]
        if wrong or not found:
            expected = "a `Page` with a name of its own"
            raise ValueError(f"{file.__file__}: {', '.join(wrong) or 'no Page'}; expected {expected}")
        pages |= {page.name: page for page in found}
    return tuple(pages.values())


PAGES = plugins.Registry(Page, discover_pages(), file="page")


def all_pages() -> tuple[Page, ...]:
    """Return the pages of the product and of plugins: those of the menu in its order, then the others."""
    return tuple(sorted(PAGES.values(), key=lambda page: (page.menu is None, page.menu or 0, page.name)))
