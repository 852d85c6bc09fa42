"""A `var/` in memory if possible: kills are independent of the disk, and a busy disk delays every commit."""

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
    """A separate `var/` per test; the one of the checkout is not changed."""
    base = Path(tempfile.mkdtemp(prefix="iowatch-", dir=MEMORY)) if MEMORY.is_dir() else tmp_path
    monkeypatch.setenv("IOWATCH_VAR", str(base / "var"))
    monkeypatch.delenv("IOWATCH_DB", raising=False)
    yield base / "var"
    shutil.rmtree(base)
