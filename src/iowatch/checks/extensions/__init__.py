"""Registry of check extensions: the `CheckExtension` objects of the files of this folder, and those of plugins."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from iowatch.checks.extension import CheckExtension
from iowatch.core import UsageError, plugins, suggest_name


def _product_extensions() -> Iterator[CheckExtension]:
    for file in pkgutil.iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{file.name}")).values():
            if isinstance(value, CheckExtension):
                yield value


EXTENSIONS = plugins.Registry(CheckExtension, _product_extensions())


def find_extension(name: str) -> CheckExtension:
    """Return the extension of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in EXTENSIONS:
        raise UsageError(f"there is no check extension '{name}'", hint=suggest_name(name, [*EXTENSIONS]))
    return EXTENSIONS[name]
