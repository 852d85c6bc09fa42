"""Imports go one way (docs/architecture.md, "Floor plan")."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "iowatch"

# A room imports only from rooms before it, and from itself.
ROOMS = (
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
RANK = {name: rank for rank, name in enumerate(ROOMS)}
# Statistics see arrays and records, never the database or files (docs/architecture.md, "Floor plan").
FORBIDDEN_TO_STATISTICS = {"store", "handoff", "darshan", "site"}
# The checks run inside ReFrame: no store, no statistics, no session.
ALLOWED_TO_CHECKS = {"core", "benchmarks", "site", "handoff", "reference"}

MODULES = {
    ".".join(("iowatch", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
    if "migrations" not in path.parts
}


def room(module: str) -> str:
    return [*module.split("."), ""][1]


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports, at any depth: `from iowatch.core import files` is core.files."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inner}
    return {name for name in found if name.split(".")[0] == "iowatch" and room(name)}


@pytest.mark.parametrize("module", [name for name in MODULES if room(name)])
def test_a_module_imports_only_from_rooms_below(module: str) -> None:
    own = room(module)
    assert own in RANK, f"{own} is not a room: add it to docs/architecture.md and here"
    used = {room(name) for name in imports(MODULES[module])} - {own}
    assert {name for name in used if RANK[name] > RANK[own]} == set()
    if own == "stats":
        assert not used & FORBIDDEN_TO_STATISTICS


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    remaining = dict(graph)
    while free := [name for name, used in remaining.items() if not used & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert remaining == {}, "these modules import each other, directly or through others"


def test_the_source_never_imports_the_checks() -> None:
    assert [name for name, path in MODULES.items() if "import reframe_tests" in path.read_text()] == []


CHECKS = sorted((ROOT / "reframe_tests").rglob("*.py"))


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_checks_use_only_the_rooms_that_run_inside_reframe(path: Path) -> None:
    assert {room(name) for name in imports(path)} <= ALLOWED_TO_CHECKS
