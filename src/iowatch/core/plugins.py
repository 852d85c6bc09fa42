"""Registries, and what adds to them: capabilities of the product, and plugins of a site.

A capability is a folder of `iowatch.experiments`, `iowatch.applications` or `iowatch.importers`. The suite never
imports it: its objects join the registries. Each registry names the file of a capability in which it looks for its
objects, so that a page, for example, is imported only where pages are used.

A plugin is a file in `plugins/` of the site's repository, or an entry point of the group `iowatch.plugins` of an
installed package. Its objects (`Benchmark`, `Metric`, `Detector`, `Page`, `Command` …) are found by their type.
Plugins are loaded when a registry is used for the first time. A fault is reported and disables only what has it.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from iowatch.core import roots

_LOG = logging.getLogger(__name__)
FOLDER, GROUP, _PACKAGE = "plugins", "iowatch.plugins", "iowatch_plugins"
PLUGIN_HINT = "docs/plugins.md describes plugins; `iowatch doctor` lists them."

# Folders with one folder for each capability; iowatch works without them.
CAPABILITY_PACKAGES = ("iowatch.experiments", "iowatch.applications", "iowatch.importers")
# What several capabilities of a folder share is no capability.
_SHARED = "common"


@dataclass(frozen=True)
class Command:
    """A command of `iowatch`.

    Attributes:
        name: as it is typed.
        area: the heading in `iowatch --help`.
        line: what it is for, one line of `iowatch --help`.
        module: defines the click command `command`; imported when the command is used.
    """

    name: str
    area: str
    line: str
    module: str


@dataclass(frozen=True)
class ImportFormat:
    """A form of tables that another system writes, which `iowatch import` reads by a map.

    Attributes:
        name: as it is typed, `iowatch import NAME FILE…` or `--map NAME`.
        map_file: the map (docs/import.md).
    """

    name: str
    map_file: Path


@dataclass(frozen=True)
class StackExperiment:
    """An experiment that explains a finding whose stack was exchanged, from the stacks that its runs recorded.

    Attributes:
        name: of the command, which has the option `--finding ID`.
        title: what is asked, as a heading of the finding's evidence.
        purpose: what it does, as the end of a sentence: "`iowatch NAME --finding ID` measures …".
    """

    name: str
    title: str
    purpose: str

    def command(self, finding: str) -> str:
        """Return the command that starts it for a finding, or goes on."""
        return f"iowatch {self.name} --finding {finding}"


@dataclass(frozen=True)
class CapabilitySetting:
    """A setting of `site.yaml` that a capability reads and the suite does not.

    Attributes:
        name: of the field.
        values: those allowed, the default first.
        variable: of the environment, which has precedence over the file.
        description: for `iowatch config`.
    """

    name: str
    values: tuple[str, ...]
    variable: str
    description: str


@dataclass(frozen=True)
class UnmonitoredParameter:
    """A case parameter of runs under conditions of their own: series with it are no subject of findings.

    Attributes:
        name: of the case parameter, which only such runs have.
    """

    name: str


@cache
def capabilities() -> tuple[str, ...]:
    """Return the packages of all capabilities, in the order of their names."""
    packages: list[str] = []
    for folder in CAPABILITY_PACKAGES:
        if util.find_spec(folder) is None:  # deleted, or left out of an installation
            continue
        paths = importlib.import_module(folder).__path__
        for module in pkgutil.iter_modules(paths, f"{folder}."):
            if module.ispkg and not module.name.endswith(f".{_SHARED}"):
                packages.append(module.name)
    return tuple(packages)


def capability_modules(file: str) -> list[ModuleType]:
    """Import the file of this name of each capability that has one.

    Args:
        file: without `.py`; empty for the `__init__.py`, which every capability has.
    """
    modules: list[ModuleType] = []
    for package in capabilities():
        name = f"{package}.{file}" if file else package
        if util.find_spec(name) is not None:
            modules.append(importlib.import_module(name))
    return modules


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
    folder = roots.site_root() / FOLDER
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith((".", "_")))
    if paths:
        package = ModuleType(_PACKAGE)  # lets files of the folder import each other: `from . import …`
        package.__path__ = [str(folder)]
        sys.modules[_PACKAGE] = package
    # All files: a plugin imports others, its check runs in ReFrame, and a template of Jinja can call functions.
    code = [folder, *sorted(folder.rglob("*"))] if paths else []
    reason = next(filter(None, map(roots.untrusted_reason, code)), None)
    for path in paths:
        plugin = Plugin(f"{FOLDER}/{path.name}", path)
        if reason:
            plugin.report(reason)
        yield plugin, f"{_PACKAGE}.{path.stem}"


def _entry_points() -> Iterator[tuple[Plugin, str]]:
    from importlib import metadata  # takes 0.05 s to import, which `iowatch --help` saves

    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
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
    return f"{_last_statement(error, plugin) or plugin.path}: {text}"


def _last_statement(error: BaseException, plugin: Plugin) -> str | None:
    """Return file and line of the last statement in code of a plugin that led to an exception."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    for frame in frames:
        if Path(frame.filename).is_relative_to(plugin.root):
            return f"{frame.filename}, line {frame.lineno}"
    return None


def fault_of_plugin(error: BaseException) -> str | None:
    """Return the description of an exception that code of a plugin raised or passed on, else None."""
    chain = [error] if error.__cause__ is None else [error.__cause__, error]  # the cause is in a template, for example
    for plugin in _loaded or ():
        if plugin.module is None:
            continue
        for raised in chain:
            if _last_statement(raised, plugin):
                return _describe_fault(raised, plugin)
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
    """Objects of one type by name: the product's own, those of capabilities, then those of plugins.

    Args:
        entry_type: the type by which objects of capabilities and plugins are found.
        suite_entries: those of the suite, in their order; or a function that returns them, which is called when the
            registry is used first, because it imports much.
        file: the file of a capability that defines such objects; empty for its `__init__.py`, None if none does.
    """

    def __init__(
        self, entry_type: type[T], suite_entries: Iterable[T] | Callable[[], Iterable[T]], file: str | None = None
    ) -> None:
        self.entry_type = entry_type
        self._suite_entries = suite_entries
        self._file = file
        self._product_entries: dict[str, T] | None = None
        self._all: dict[str, T] = {}
        self._plugins: tuple[Plugin, ...] | None = None
        _registries.append(self)

    @property
    def product_entries(self) -> Mapping[str, T]:
        """The product's: of the suite, then of capabilities. No plugin of the site is loaded for them."""
        if self._product_entries is None:
            entries = self._suite_entries() if callable(self._suite_entries) else self._suite_entries
            self._product_entries = {entry.name: entry for entry in entries}
            for module in () if self._file is None else capability_modules(self._file):
                self._add_capability(module)
        return self._product_entries

    def _add_capability(self, module: ModuleType) -> None:
        """Add the objects that a file of a capability defines.

        Raises:
            ValueError: there is another object of this name: a mistake in iowatch.
        """
        assert self._product_entries is not None
        for entry in vars(module).values():
            if not isinstance(entry, self.entry_type) or entry is self._product_entries.get(entry.name):
                continue
            if entry.name in self._product_entries:
                raise ValueError(f"{module.__file__}: there is another {self.entry_type.__name__} '{entry.name}'")
            self._product_entries[entry.name] = entry

    def __getitem__(self, name: str) -> T:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def plugin_of(self, name: str) -> Plugin | None:
        """Return the plugin that adds the object of this name; None for the product's own and unknown ones."""
        self._entries()
        for plugin in load_plugins():
            if (self.entry_type.__name__, name) in plugin.adds:
                return plugin
        return None

    def _entries(self) -> dict[str, T]:
        plugins = load_plugins()
        if self._plugins != tuple(plugins):  # more of them are loaded
            self._all = dict(self.product_entries)
            for plugin in plugins:
                self._add(plugin)
            self._plugins = tuple(plugins)
        return self._all

    def _add(self, plugin: Plugin) -> None:
        """Add the objects of a plugin; one that it only imported is known already and is not added again."""
        if plugin.module is None:
            return
        type_name = self.entry_type.__name__
        for entry in vars(plugin.module).values():
            if not isinstance(entry, self.entry_type) or entry is self._all.get(entry.name):
                continue
            if entry.name in self._all:
                plugin.report(f"{plugin.path}: {type_name} '{entry.name}': there is another one of this name")
            else:
                self._all[entry.name] = entry
                plugin.adds[type_name, entry.name] = None


def checked_plugins() -> Sequence[Plugin]:
    """Return all plugins after their objects are in the registries that were imported, and report empty ones."""
    for registry in _registries:
        len(registry)
    for plugin in load_plugins():
        if plugin.module and not plugin.adds and not plugin.faults:
            types = ", ".join(registry.entry_type.__name__ for registry in _registries)
            plugin.report(f"{plugin.path}: it defines no object of {types}")
    return load_plugins()
