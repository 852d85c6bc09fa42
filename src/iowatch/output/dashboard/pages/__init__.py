"""Registry of pages: all `Page` objects that the files of this folder define, then those of capabilities.

The menu is built from it, too, so a page consists of one file and its template. Plugins of a site add pages.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from iowatch.core import plugins
from iowatch.output.dashboard import Page


def discover_pages() -> tuple[Page, ...]:
    """The product's own pages.

    Raises:
        ValueError: a file of this folder defines no page, or one with the name of another page.
    """
    pages: dict[str, Page] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{module_info.name}")
        pages_of_module = [value for value in vars(module).values() if isinstance(value, Page)]
        duplicates = [page.name for page in pages_of_module if page.name in pages]
        if duplicates or not pages_of_module:
            problem = ", ".join(duplicates) or "no Page"
            raise ValueError(f"{module.__file__}: {problem}; expected a `Page` with a name of its own")
        for page in pages_of_module:
            pages[page.name] = page
    return tuple(pages.values())


PAGES = plugins.Registry(Page, discover_pages(), file="page")


def all_pages() -> tuple[Page, ...]:
    """Return the pages of the product and of plugins: those of the menu in its order, then the others."""
    return tuple(sorted(PAGES.values(), key=lambda page: (page.menu is None, page.menu or 0, page.name)))
