"""The suite works without what stands on it: experiments, applications and importers (docs/architecture.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iowatch.core.plugins import CAPABILITY_PACKAGES
from tests.conftest import ROOT

FOLDERS = [name.rpartition(".")[2] for name in CAPABILITY_PACKAGES]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without the three folders and their tests."""
    root = tmp_path_factory.mktemp("alone") / "iowatch"
    ignored = shutil.ignore_patterns("__pycache__", ".git", ".venv", "var", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, root, ignore=ignored, symlinks=True)
    for folder in FOLDERS:
        shutil.rmtree(root / "src" / "iowatch" / folder, ignore_errors=True)
        shutil.rmtree(root / "tests" / folder, ignore_errors=True)
    (root / ".venv").symlink_to(ROOT / ".venv")
    return root


def run_in(copy: Path, *words: str) -> str:
    """Run a Python module of the copy; returns what it prints."""
    # Without the variables of the pytest that runs this test: another one would take itself for a worker of it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(copy / "src"), "IOWATCH_ROOT": str(copy), "IOWATCH_VAR": str(copy / "var")}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_suite_has_no_command_of_a_capability(copy: Path) -> None:
    text = run_in(copy, "iowatch", "--help")
    assert "findings" in text
    for name in ("gate", "bisect", "advise", "workload", "logs"):
        assert f"\n  {name} " not in text


@pytest.mark.slow
@pytest.mark.end_to_end
def test_night_finding_and_pages_work(copy: Path) -> None:
    run_in(copy, "iowatch", "run", "--suite", "tiny")
    run_in(copy, "iowatch", "findings", "list")
    run_in(copy, "iowatch", "dashboard", "build")
    assert (copy / "var" / "site" / "index.html").is_file()


@pytest.mark.slow
def test_quick_tests_of_the_suite_pass(copy: Path) -> None:
    """Those of the rooms whose registries the three folders fill, and of whole commands.

    The other rooms cannot know the folders (tests/test_layers.py). All tests in such a copy: CONTRIBUTING.md.
    """
    rooms = [f"tests/{name}" for name in ("output", "plugins", "session")]
    commands = sorted(path.relative_to(copy).as_posix() for path in (copy / "tests").glob("test_*.py"))
    run_in(copy, "pytest", "-q", "-p", "no:cacheprovider", "--quick", *rooms, *commands)
