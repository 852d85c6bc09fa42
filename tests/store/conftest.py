"""Databases of each kind for the tests of the history."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path, var: Path) -> Callable[[str], str]:
    """A new empty database of a kind (`sqlite`, `postgresql`); one PostgreSQL database per test."""

    def make(kind: str) -> str:
        if kind == "postgresql":
            return str(request.getfixturevalue("postgresql_url"))
        return str(tmp_path / f"{os.urandom(4).hex()}.db")

    return make
