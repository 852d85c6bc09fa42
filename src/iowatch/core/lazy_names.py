"""Names of a package that are imported when they are first used.

The door of a package, its `__init__.py`, lists what other packages use. If it imported all of that, each command would
load the whole package and its libraries for one function.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562) for the names that it imports for type checkers only.

        if TYPE_CHECKING:
            from iowatch.store.history import History
        else:
            __getattr__ = lazy_names(__name__)

    Args:
        package: name of the package; it is being imported.
    """
    door = sys.modules[package]
    module_of: dict[str, str] = {}

    def import_name(name: str) -> Any:
        if not module_of:
            module_of.update(_names_for_type_checkers(door))
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(door, name, value)  # found directly from now on
        return value

    return import_name


def _names_for_type_checkers(door: ModuleType) -> dict[str, str]:
    """Return the names that a package imports below `if TYPE_CHECKING:`, each with its module.

    Args:
        door: the package, whose `__init__.py` is the door through which others use it.
    """
    assert door.__file__ is not None
    source = Path(door.__file__).read_text(encoding="utf-8")
    module_of: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.If):
            continue
        # The only condition in a door is `TYPE_CHECKING`.
        for imported in statement.body:
            if isinstance(imported, ast.ImportFrom) and imported.module:
                module_of |= {alias.name: imported.module for alias in imported.names}
    return module_of
