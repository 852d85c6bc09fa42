"""Plugins: Python code of a site that adds benchmarks, metrics, pages and channels to the product's own registries.

A plugin is a file in `plugins/` of the site's repository, or an entry point of the group `iowatch.plugins` of an
installed package. Its objects (`Benchmark`, `Metric`, `Page`, `NoticeChannel`) are found by their type, as those of our
own files. Plugins are loaded when a registry is used for the first time. A fault is reported and disables only what has
it.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

_LOG = logging.getLogger(__name__)
FOLDER, GROUP, _PACKAGE = "plugins", "iowatch.plugins", "iowatch_plugins"
PLUGIN_HINT = "docs/plugins.md describes plugins; `iowatch doctor` lists them."


@dataclass(eq=False)
class Plugin:
    """A plugin of the site.

    Attributes:
        name: path relative to the site's repository, or name of the entry point.
        path: its Python file; checks and templates are in `reframe_tests/` and `templates/` next to it.
        module: None if it could not be loaded.
        faults: why it, or some of its objects, cannot be used; each with file and line.
        adds: what it added to the registries: (type, name), for example ("Metric", "latency").
    """

    name: str
    path: Path
    module: ModuleType | None = None
    faults: list[str] = field(default_factory=list)
    adds: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Directory of its code, or its file where that is alone in `site-packages`."""
        is_folder = self.name.startswith(f"{FOLDER}/") or self.path.name == "__init__.py"
        return self.path.parent if is_folder else self.path

    def report(self, fault: str) -> None:
        """Report a fault once, as a warning: the command goes on without what has the fault."""
        if fault not in self.faults:
            self.faults.append(fault)
            _LOG.warning("plugin not used: %s", fault)


_loaded: list[Plugin] | None = None


def load_plugins() -> Sequence[Plugin]:
    """Return all plugins: files of the site in the order of their names, then entry points. Loads them once.

    A plugin that uses a registry while it is loaded finds the product's objects and those of the plugins before it.
    """
    global _loaded
    if _loaded is None:
        _loaded = []
        for plugin, module in [*_site_files(), *_entry_points()]:
            _import_plugin(plugin, module)
            _loaded.append(plugin)
    return _loaded


def forget_plugins() -> None:
    """Load plugins again at the next use of a registry, for tests with several sites in one process."""
    global _loaded
    _loaded = None
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


def _site_files() -> Iterator[tuple[Plugin, str]]:
    from iowatch.core import settings  # pydantic takes 0.2 s to import, which `iowatch --help` saves

    folder = settings.site_root() / FOLDER
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith((".", "_")))
    if paths:
        package = ModuleType(_PACKAGE)  # lets files of the folder import each other: `from . import …`
        package.__path__ = [str(folder)]
        sys.modules[_PACKAGE] = package
    # All files: a plugin imports others, its check runs in ReFrame, and a template of Jinja can call functions.
    code = [folder, *sorted(folder.rglob("*"))] if paths else []
    reason = next(filter(None, map(settings.untrusted_reason, code)), None)
    for path in paths:
        plugin = Plugin(f"{FOLDER}/{path.name}", path)
        if reason:
            plugin.report(reason)
        yield plugin, f"{_PACKAGE}.{path.stem}"


def _entry_points() -> Iterator[tuple[Plugin, str]]:
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda one: one.name):
        yield Plugin(entry.name, Path(entry.module)), entry.module


def _import_plugin(plugin: Plugin, module: str) -> None:
    if plugin.faults:
        return
    try:
        plugin.module = importlib.import_module(module)
        plugin.path = Path(plugin.module.__file__ or plugin.path)
    except (Exception, SystemExit) as error:  # a plugin is a program and may raise anything
        plugin.report(_describe_fault(error, plugin))


def _describe_fault(error: BaseException, plugin: Plugin) -> str:
    """Return an exception of a plugin as `file, line: type: message`; the line is the last one in the plugin's code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    return f"{_last_place(error, plugin) or plugin.path}: {text}"


def _last_place(error: BaseException, plugin: Plugin) -> str | None:
    """Return file and line of the last statement in code of a plugin that led to an exception."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    own = (frame for frame in frames if Path(frame.filename).is_relative_to(plugin.root))
    return next((f"{frame.filename}, line {frame.lineno}" for frame in own), None)


def fault_of_plugin(error: BaseException) -> str | None:
    """Return the description of an exception that code of a plugin raised or passed on, else None."""
    chain = [error] if error.__cause__ is None else [error.__cause__, error]  # the cause is in a template, for example
    for plugin in _loaded or ():
        for one in chain if plugin.module else ():
            if _last_place(one, plugin):
                return _describe_fault(one, plugin)
    return None


def template_folders() -> list[Path]:
    """Return the directories with templates of the plugins' pages; the product's templates have precedence."""
    return list(dict.fromkeys(plugin.path.parent / "templates" for plugin in load_plugins() if plugin.root.is_dir()))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)
_registries: list[Registry[Any]] = []


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one type by name: the product's own, then those of plugins.

    Args:
        kind: the type by which objects of plugins are found.
        own: the product's, in their order.
    """

    def __init__(self, kind: type[T], own: Iterable[T]) -> None:
        self.kind = kind
        self.own = {one.name: one for one in own}
        self._all: dict[str, T] = {}
        self._plugins: tuple[Plugin, ...] | None = None
        _registries.append(self)

    def __getitem__(self, name: str) -> T:
        return self._rows()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())

    def plugin_of(self, name: str) -> Plugin | None:
        """Return the plugin that adds the object of this name; None for the product's own and unknown ones."""
        self._rows()
        return next((one for one in load_plugins() if (self.kind.__name__, name) in one.adds), None)

    def _rows(self) -> dict[str, T]:
        plugins = load_plugins()
        if self._plugins != tuple(plugins):  # more of them are loaded
            self._all = dict(self.own)
            for plugin in plugins:
                self._add(plugin)
            self._plugins = tuple(plugins)
        return self._all

    def _add(self, plugin: Plugin) -> None:
        """Add the objects of a plugin; one that it only imported is known already and is not added again."""
        kind = self.kind.__name__
        for one in vars(plugin.module).values() if plugin.module else ():
            if not isinstance(one, self.kind) or one is self._all.get(one.name):
                continue
            if one.name in self._all:
                plugin.report(f"{plugin.path}: {kind} '{one.name}': there is another one of this name")
            else:
                self._all[one.name] = one
                plugin.adds[kind, one.name] = None


def checked_plugins() -> Sequence[Plugin]:
    """Return all plugins after their objects are in the registries that were imported, and report empty ones."""
    for registry in _registries:
        len(registry)
    for plugin in load_plugins():
        if plugin.module and not plugin.adds and not plugin.faults:
            kinds = ", ".join(registry.kind.__name__ for registry in _registries)
            plugin.report(f"{plugin.path}: it defines no object of {kinds}")
    return load_plugins()
