"""`.ci/run` with targets of make that only print that they run: place, environment, exit codes, clean-up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.datasets import ROOT

MAKEFILE = """test:
	@echo "made beside: $$(ls ..); data: $$IOWATCH_TEST_DATA."
	@mkdir -p .venv/bin && cp fake .venv/bin/python
	@exit $$MADE
lint test-all:
	@echo "made $@; data: $$IOWATCH_TEST_DATA."
"""
FAKE = '#!/bin/sh\necho "python $*; data: $IOWATCH_TEST_DATA."\nexit $TESTED\n'

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with `.ci/run`; `shared` is next to it."""
    place = tmp_path / "work" / "checkout"
    (place / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", place / ".ci" / "run")
    (place / "Makefile").write_text(MAKEFILE)
    (place / "fake").write_text(FAKE)
    (place / "fake").chmod(0o755)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "Start")):
        subprocess.run([*git, *words], cwd=place, check=True)
    (place.parent / "shared").mkdir()
    (tmp_path / "tmp").mkdir()
    return place


def ci_run(checkout: Path, made: int = 0, tested: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    temporary = checkout.parents[1] / "tmp"
    # Under `make test` the first three would make the inner make print its directories.
    removed = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "IOWATCH_TEST_DATA")
    outside = {name: value for name, value in os.environ.items() if name not in removed}
    environment = {**outside, "TMPDIR": str(temporary), "MADE": str(made), "TESTED": str(tested), **more}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=checkout, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert list(temporary.iterdir()) == []
    return done


def test_clone_has_no_siblings_and_data_only_in_the_last_step(checkout: Path) -> None:
    done = ci_run(checkout)
    assert done.returncode == 0, done.stderr
    shared = checkout.parent / "shared"
    assert done.stdout.splitlines() == [
        "made beside: iowatch; data: .",
        "made lint; data: .",
        "made test-all; data: .",
        f"python -m pytest -m outside_data; data: {shared}.",
    ]


def test_failure_of_a_step_fails_the_run(checkout: Path) -> None:
    first, second = ci_run(checkout, made=1), ci_run(checkout, tested=1)
    assert first.returncode != 0
    assert first.stdout == "made beside: iowatch; data: .\n"
    assert second.returncode == 1


def test_last_step_is_skipped_with_a_message_without_data(checkout: Path) -> None:
    done = ci_run(checkout, IOWATCH_TEST_DATA="elsewhere")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "made test-all; data: ."
    assert f"no {checkout}/elsewhere" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a checkout to another user")
def test_checkout_of_another_user_is_cloned(checkout: Path) -> None:
    for path in [checkout, *checkout.rglob("*")]:
        os.chown(path, 65534, 65534)
    assert ci_run(checkout).returncode == 0
