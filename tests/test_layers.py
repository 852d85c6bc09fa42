"""Imports go one way (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "iowatch"

# A package imports only from packages before it, and from itself.
PACKAGES = (
    "statistics",
    "core",
    "benchmarks",
    "site",
    "darshan",
    "reference",
    "checks",
    "store",
    "pulse",
    "findings",
    "comparison",
    "session",
    "demo",
    "output",
    "cli",
    # What stands on the suite: see `test_capabilities_do_not_import_each_other`.
    "importers",
    "applications",
    "experiments",
)
CAPABILITIES = ("importers", "applications", "experiments")
RANK = {name: rank for rank, name in enumerate(PACKAGES)}
# The statistics are a library of their own, which imports nothing of iowatch (docs/architecture.md).
ALLOWED_TO_STATISTICS = {"numpy", "scipy", *sys.stdlib_module_names}
# The checks run inside ReFrame; all that they do is in one package, which is below the store and the session.
ALLOWED_TO_CHECKS = {"checks"}

MODULES = {
    ".".join(("iowatch", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
    if "migrations" not in path.parts and path.name != "_version.py"  # written by a build
}


def package_of(module: str) -> str:
    return [*module.split("."), ""][1].replace("__main__", "cli")


@cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a file, at any depth; several tests ask for those of every file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def imports(path: Path) -> set[str]:
    """Modules of iowatch that a file imports, at any depth: `from iowatch.core import files` is core.files."""
    imported: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= {name if name in MODULES else node.module for name in inner}
    return {name for name in imported if name.split(".")[0] == "iowatch" and package_of(name)}


@pytest.mark.parametrize("module", [name for name in MODULES if package_of(name)])
def test_modules_import_only_from_packages_below(module: str) -> None:
    own = package_of(module)
    assert own in RANK, f"{own} is not a package of the floor plan: add it to docs/architecture.md and here"
    used = {package_of(name) for name in imports(MODULES[module])} - {own}
    assert {name for name in used if RANK[name] > RANK[own]} == set()


def capability_of(module: str) -> str:
    """`experiments.gate` of `iowatch.experiments.gate.run`; empty for modules of the suite."""
    words = module.split(".")
    return ".".join(words[1:3]) if package_of(module) in CAPABILITIES else ""


@pytest.mark.parametrize("module", [name for name in MODULES if capability_of(name)])
def test_capabilities_do_not_import_each_other(module: str) -> None:
    """A capability imports the suite, itself, and `common` of its folder: any of them can be deleted."""
    capability = capability_of(module)
    allowed = {"", capability, f"{package_of(module)}.common", package_of(module)}
    assert {name for name in imports(MODULES[module]) if capability_of(name) not in allowed} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if package_of(name) == "statistics"])
def test_statistics_import_only_numpy_scipy_and_the_standard_library(module: str) -> None:
    others = []
    for node in import_statements(MODULES[module]):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{module}: relative import in line {node.lineno}"
            imported = [node.module or ""]
        for name in imported:
            is_own = name == "iowatch.statistics" or name.startswith("iowatch.statistics.")
            if not is_own and name.partition(".")[0] not in ALLOWED_TO_STATISTICS:
                others.append(name)
    assert others == []


def test_modules_have_no_circular_imports() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    remaining = dict(graph)
    while free := [name for name, used in remaining.items() if not used & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert remaining == {}, "these modules import each other, directly or through others"


def test_source_does_not_import_the_checks() -> None:
    assert [name for name, path in MODULES.items() if re.search(r"(import|from) reframe_tests", path.read_text())] == []


def test_modules_are_imported_by_name_only_by_the_registries_of_files() -> None:
    """Commands, pages and plugins are found from files; the tests above do not see such imports."""
    importing = {name for name, path in MODULES.items() if "import_module(" in path.read_text()}
    # `iowatch` itself reads `_version.py`, which only a build writes.
    assert importing == {
        "iowatch",
        "iowatch.cli.main",
        "iowatch.core.lazy_names",  # names that the doors of packages list
        "iowatch.core.plugins",
        "iowatch.darshan.worker",  # calls functions of other packages, which their callers import by name
        "iowatch.output.dashboard.pages",
    }


# A package with a public interface: names that its `__init__.py` exports.
WITH_INTERFACE = ("core", "site", "reference", "checks", "store", "findings", "comparison", "darshan")
# Not part of an interface: pydantic and YAML take long to import, and most commands need neither; registries are used
# by every capability, lazy names by the interfaces themselves.
NAMED_DIRECTLY = {"iowatch.core.yamlfile", "iowatch.core.plugins", "iowatch.core.lazy_names"}
# Subjects of their own inside a package, which are imported from the module of the subject.
SUBJECTS = ("iowatch.site.stack",)


def test_packages_are_used_through_their_interface() -> None:
    """`from iowatch.store import History` or a whole module (`from iowatch.store import bulk`), no names from files."""
    wrong = []
    for module, path in MODULES.items():
        for node in import_statements(path):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.module.count(".") > 1:
                package = package_of(node.module)
                is_direct = node.module in NAMED_DIRECTLY or node.module.startswith(SUBJECTS)
                if package in WITH_INTERFACE and package != package_of(module) and not is_direct:
                    wrong.append(f"{module}: from {node.module} import …")
    assert wrong == []


def exported_names(package: str) -> set[str]:
    """Names that the `__init__.py` of a package imports."""
    statements = ast.parse(MODULES[package].read_text(encoding="utf-8")).body
    return {alias.name for node in statements if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_statistics_are_imported_from_their_interface_or_from_the_module_of_the_subject() -> None:
    """A name that the door of the statistics exports is imported from there, and no private name from anywhere."""
    interface = exported_names("iowatch.statistics")
    wrong = []
    for module, path in MODULES.items():
        if package_of(module) == "statistics":
            continue
        for node in import_statements(path):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("iowatch.statistics."):
                continue
            for alias in node.names:
                if alias.name in interface or alias.name.startswith("_"):
                    wrong.append(f"{module}: from {node.module} import {alias.name}")
    assert wrong == []


CHECKS = sorted((ROOT / "reframe_tests").rglob("*.py"))


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_checks_use_only_packages_that_run_inside_reframe(path: Path) -> None:
    assert {package_of(name) for name in imports(path)} <= ALLOWED_TO_CHECKS


def test_functions_of_the_checks_do_not_depend_on_reframe() -> None:
    """Only the base class does: all else is tested without it, and the session imports it."""
    importing = []
    for module, path in MODULES.items():
        if package_of(module) == "checks" and re.search(r"^\s*(import|from) reframe\b", path.read_text(), re.MULTILINE):
            importing.append(module)
    assert importing == ["iowatch.checks.base"]


BENCHIO = ROOT / "benchmarks" / "benchio" / "src"
INCLUDE = re.compile(r'^#include "(.+)\.h"$', re.MULTILINE)


def includes(name: str) -> set[str]:
    """Files of benchio, without `.c` and `.h`, that NAME.c and NAME.h include."""
    included = set()
    for path in BENCHIO.glob(f"{name}.[ch]"):
        included |= set(INCLUDE.findall(path.read_text(encoding="utf-8")))
    return included - {name}


def test_files_of_benchio_have_no_circular_includes() -> None:
    """A .c file and its header are one: what `fail.c` includes is below all that use `fail.h`."""
    remaining = {path.stem: includes(path.stem) for path in BENCHIO.glob("*.[ch]")}
    assert {"fail", "record", "scratch"} <= remaining.keys()
    while free := [name for name, included in remaining.items() if not included & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert remaining == {}, "these files include each other, directly or through others"
