"""What `iowatch doctor` tells of disks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Done

from iowatch.store import History
from iowatch.store import usage as module
from iowatch.store.usage import usage
from tests.store.test_care import fill


def test_nothing_is_there_yet_and_nothing_is_made(var: Path) -> None:
    told = usage()
    assert told.database_bytes is None
    assert all(part.files == 0 for part in told.parts)
    assert told.free_bytes
    assert not var.exists()


def test_sizes_are_those_of_the_disk(var: Path) -> None:
    with History.open() as history:
        fill(history)
        kept = var / "artefacts" / "ab"
        kept.mkdir(parents=True)
        (kept / "one").write_bytes(b"x" * 50_000)
        versions = var / ".site.versions" / "1"
        versions.mkdir(parents=True)
        (versions / "page").write_bytes(b"x" * 9_000)
        os.link(versions / "page", versions / "same")  # takes no room a second time
        told = usage()
        log = var / "iowatch.db-wal"
        assert told.database_bytes == (var / "iowatch.db").stat().st_size + log.stat().st_size
    parts = {part.name: part for part in told.parts}
    assert 50_000 <= parts["outputs and Darshan logs"].size_bytes < 60_000
    assert (parts["dashboard"].files, 9_000 <= parts["dashboard"].size_bytes < 19_000) == (1, True)


def test_sqlite_on_a_network_file_system_is_told(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "file_system_type", lambda _path: "lustre")
    (warning,) = usage().warnings
    assert "lustre" in warning
    assert "PostgreSQL" in warning


def test_a_full_disk_is_told(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT_BYTES", 2**62)
    (warning,) = usage().warnings
    assert "little room" in warning


def test_a_server_that_does_not_answer_is_told(var: Path, postgresql_url: str) -> None:
    History.open(postgresql_url).close()
    assert (usage(postgresql_url).database_bytes or 0) > 1_000_000
    (warning,) = usage("postgresql+psycopg://x:secret@/nothing?host=/nowhere").warnings
    assert "does not answer" in warning
    assert "secret" not in warning


def test_the_doctor_tells_it(cli: Callable[..., Done], var: Path) -> None:
    with History.open() as history:
        fill(history)
    document = json.loads(cli("doctor", "--json").stdout)
    assert document["disk"]["database_bytes"] > 0
    assert "free" in cli("doctor").stdout
