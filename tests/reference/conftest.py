"""Builders shared by the tests of references."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).resolve().parents[2] / "reference" / "published"


@pytest.fixture
def published_copy(tmp_path: Path) -> Callable[[str, str, str, str], Path]:
    """A function that copies one source, replaces a text of one file, and returns the folder of all sources."""

    def changed(source: str, file: str, old: str, new: str) -> Path:
        shutil.copytree(PUBLISHED / source, tmp_path / source)
        path = tmp_path / source / file
        text = path.read_text()
        assert text.count(old) >= 1, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1))
        return tmp_path

    return changed
