"""Imports go one way (docs/architecture.md, "Floor plan")."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "iowatch"

# A package imports only from packages before it, and from itself.
PACKAGES = (
    "core",
    "benchmarks",
    "site",
    "handoff",
    "darshan",
    "reference",
    "store",
    "stats",
    "findings",
    "comparison",
    "session",
    "demo",
    "output",
    "cli",
)
RANK = {name: rank for rank, name in enumerate(PACKAGES)}
# Statistics use arrays and records, never the database or files (docs/architecture.md, "Floor plan").
FORBIDDEN_TO_STATISTICS = {"store", "handoff", "darshan", "site"}
# The checks run inside ReFrame: no store, no statistics, no session.
ALLOWED_TO_CHECKS = {"core", "benchmarks", "site", "handoff", "reference"}

MODULES = {
    ".".join(("iowatch", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
    if "migrations" not in path.parts
}


def package_of(module: str) -> str:
    return [*module.split("."), ""][1]


def imports(path: Path) -> set[str]:
    """Modules of iowatch that a file imports, at any depth: `from iowatch.core import files` is core.files."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inner}
    return {name for name in found if name.split(".")[0] == "iowatch" and package_of(name)}


@pytest.mark.parametrize("module", [name for name in MODULES if package_of(name)])
def test_modules_import_only_from_packages_below(module: str) -> None:
    own = package_of(module)
    assert own in RANK, f"{own} is not a package of the floor plan: add it to docs/architecture.md and here"
    used = {package_of(name) for name in imports(MODULES[module])} - {own}
    assert {name for name in used if RANK[name] > RANK[own]} == set()
    if own == "stats":
        assert not used & FORBIDDEN_TO_STATISTICS


def test_modules_have_no_circular_imports() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    remaining = dict(graph)
    while free := [name for name, used in remaining.items() if not used & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert remaining == {}, "these modules import each other, directly or through others"


def test_source_does_not_import_the_checks() -> None:
    assert [name for name, path in MODULES.items() if "import reframe_tests" in path.read_text()] == []


CHECKS = sorted((ROOT / "reframe_tests").rglob("*.py"))


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_checks_use_only_packages_that_run_inside_reframe(path: Path) -> None:
    assert {package_of(name) for name in imports(path)} <= ALLOWED_TO_CHECKS
