"""Short commands import only what they need: most of their time is imports (`bench/startup.py` measures it)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.output.dashboard.conftest import franklin_history, shared

__all__ = ["franklin_history", "shared"]

# Libraries that take long to import, and packages of iowatch with many modules: at most what a short command needs.
SLOW_MODULES = (
    "alembic",
    "darshan",
    "iowatch.benchmarks.ior",  # with it the parsers of all benchmarks
    "iowatch.darshan",
    "iowatch.findings",
    "iowatch.output.dashboard",
    "iowatch.session",
    "iowatch.statistics",
    "jinja2",
    "jsonschema",
    "matplotlib",
    "numpy",
    "pandas",
    "pydantic",
    "reframe",
    "rich",
    "ruamel",
    "scipy",
    "scipy.stats",
    "sqlalchemy",
)
STARTS = {
    "--help": set(),
    "system list": {"pydantic", "rich"},
    "history list": {"numpy", "pydantic", "rich", "sqlalchemy"},
    "findings list": {
        "iowatch.benchmarks.ior",
        "iowatch.darshan",
        "iowatch.findings",
        "iowatch.statistics",
        "numpy",
        "pydantic",
        "rich",
        "scipy",
        "sqlalchemy",
    },
}


@pytest.mark.parametrize("words", STARTS)
def test_command_imports_only_what_it_needs(words: str, franklin_history: Path, tmp_path: Path) -> None:
    """Importing SciPy, SQLAlchemy and ReFrame takes seconds on a shared login node."""
    history = tmp_path / "history.db"
    shutil.copy(franklin_history, history)
    program = (
        "import sys; from iowatch.cli.main import iowatch;"
        f"iowatch.main({words.split()}, standalone_mode=False); print(*sys.modules)"
    )
    environment = {**os.environ, "IOWATCH_DB": str(history)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    text, _, imported = done.stdout.rstrip().rpartition("\n")
    assert "Usage" in text or "franklin" in text
    assert set(imported.split()) & set(SLOW_MODULES) <= STARTS[words]


def test_door_knows_only_the_names_that_it_lists() -> None:
    """A name is imported when it is first used; another one is an error as in any module."""
    import iowatch.store

    assert iowatch.store.History.__module__ == "iowatch.store.history"
    with pytest.raises(AttributeError, match="no attribute 'Histories'"):
        _ = iowatch.store.Histories
