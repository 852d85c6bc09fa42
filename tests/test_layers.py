"""Imports go one way (docs/architecture.md, "Layers")."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "iowatch"

# Left may not import from right; names in one row may use each other.
LAYERS = [
    {"errors", "units", "metrics", "paths", "files", "yamlfile", "tables"},
    {"model"},
    {
        "tools",
        "suites",
        "proof",
        "spool",
        "selection",
        "scratch",
        "artefacts",
        "merge",
        "parsers",
        "reference",
        "events",
        "review",
        "systems",
        "stacks",
        "darshan",
    },
    {"store"},
    {"detect", "explain", "compare"},
    {"findings", "imports", "sides", "demo", "proposals"},
    {"runner"},
    {"verdict"},
    {"report", "notify", "dashboard"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Statistics see arrays and records, never the database or files (DESIGN.md, "Rooms").
PURE = {"detect", "explain", "compare"}
FORBIDDEN_TO_PURE = {"store", "paths", "artefacts", "spool"}


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] if node.module != "iowatch" else [f"iowatch.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("iowatch.")}
    return found - {"__version__"}


MODULES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if layer(path) != "__init__" and "migrations" not in path.parts
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_lower_layers(path: Path) -> None:
    own = layer(path)
    assert own in RANK, f"{own} is in no layer: add it to docs/architecture.md and here"
    upwards = {name for name in imported_layers(path) if name != own and RANK[name] > RANK[own]}
    assert not upwards


@pytest.mark.parametrize(
    "path", [p for p in MODULES if layer(p) in PURE], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_statistics_know_neither_store_nor_files(path: Path) -> None:
    assert not imported_layers(path) & FORBIDDEN_TO_PURE


def test_the_source_never_imports_the_checks() -> None:
    guilty = [
        str(p)
        for p in MODULES
        if "reframe_tests" in p.read_text(encoding="utf-8") and "import reframe_tests" in p.read_text()
    ]
    assert not guilty


CHECKS = sorted((ROOT / "reframe_tests").rglob("*.py"))
ALLOWED_TO_CHECKS = RANK["parsers"]


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_checks_use_only_the_lower_layers(path: Path) -> None:
    assert {name for name in imported_layers(path) if RANK[name] > ALLOWED_TO_CHECKS} == set()
