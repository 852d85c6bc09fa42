"""A `var/` in memory where there is one: kills do not care, and a busy disk makes every commit wait."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
LONG = "IOWATCH_FAULT_KILLS" in os.environ
only_long = pytest.mark.skipif(not LONG, reason="takes minutes: set IOWATCH_FAULT_KILLS (CONTRIBUTING.md)")


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `var/` of the test's own; nothing touches the checkout's."""
    base = Path(tempfile.mkdtemp(prefix="iowatch-", dir=MEMORY)) if MEMORY.is_dir() else tmp_path
    monkeypatch.setenv("IOWATCH_VAR", str(base / "var"))
    monkeypatch.delenv("IOWATCH_DB", raising=False)
    yield base / "var"
    shutil.rmtree(base)
