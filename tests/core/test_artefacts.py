"""Artefacts are pruned by age and size, oldest first; protected ones are kept."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from iowatch.core import MachineError, UsageError
from iowatch.core.artefacts import StoredFile, artefact_path, damaged_artefacts, prune_artefacts, store_artefact

DAY_S = 24 * 3600.0


@pytest.fixture
def kept(var: Path, tmp_path: Path) -> list[str]:
    """Five files of 10, 20, … 50 bytes, kept 5, 4, … 1 days ago."""
    found = []
    for i in range(5):
        source = tmp_path / f"{i}.darshan"
        source.write_bytes(bytes([i]) * (10 * (i + 1)))
        digest = store_artefact(source).sha256
        moment = time.time() - (5 - i) * DAY_S
        os.utime(artefact_path(digest), (moment, moment))
        found.append(digest)
    return found


def artefacts_exist(digests: list[str]) -> list[bool]:
    return [artefact_path(digest).exists() for digest in digests]


def test_prune_by_age(kept: list[str]) -> None:
    pruned = prune_artefacts(max_age_s=3.5 * DAY_S)
    assert pruned.removed == tuple(kept[:2])
    assert (pruned.freed_bytes, pruned.kept_bytes, pruned.over_bytes) == (30, 120, 0)
    assert artefacts_exist(kept) == [False, False, True, True, True]


def test_prune_by_size_removes_the_oldest_first(kept: list[str]) -> None:
    assert prune_artefacts(max_bytes=100).removed == tuple(kept[:3])
    assert artefacts_exist(kept) == [False, False, False, True, True]


def test_protected_artefacts_are_kept_and_counted(kept: list[str]) -> None:
    pruned = prune_artefacts(max_age_s=0.0, max_bytes=5, protected={kept[0], kept[4]})
    assert artefacts_exist(kept) == [True, False, False, False, True]
    assert (pruned.kept_bytes, pruned.over_bytes) == (60, 55)


def test_dry_run_removes_nothing(kept: list[str]) -> None:
    assert len(prune_artefacts(max_age_s=0.0, dry_run=True).removed) == 5
    assert all(artefacts_exist(kept))


def test_no_limit_removes_nothing(kept: list[str]) -> None:
    assert prune_artefacts().removed == ()


def test_prune_touches_only_artefacts(kept: list[str], var: Path, tmp_path: Path) -> None:
    place = var / "artefacts" / kept[0][:2]
    (place / "notes.txt").write_text("mine")
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (place / ("0" * 64)).symlink_to(outside)
    draft = place / f".{kept[0]}.99"
    draft.write_text("half")
    os.utime(draft, (0, 0))
    prune_artefacts(max_age_s=0.0)
    assert outside.exists()
    assert (place / "notes.txt").exists()
    assert (place / ("0" * 64)).is_symlink()
    assert not draft.exists()


@pytest.mark.parametrize(
    "damage", [b"", bytes([4]) * 49, bytes([4]) * 49 + b"x"], ids=["empty", "truncated", "changed"]
)
def test_damaged_artefact_is_replaced_when_its_content_is_stored(
    kept: list[str], tmp_path: Path, damage: bytes
) -> None:
    """The newest file has 50 bytes; a truncated one is what a power failure leaves of a file that was not synced."""
    path = artefact_path(kept[4])
    path.write_bytes(damage)
    assert store_artefact(tmp_path / "4.darshan") == StoredFile(kept[4], 50)
    assert path.read_bytes() == bytes([4]) * 50
    assert [entry.name for entry in path.parent.iterdir()] == [kept[4]]


def test_copy_that_differs_is_not_stored(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "growing.log"
    source.write_text("one")
    monkeypatch.setattr(shutil, "copyfile", lambda _source, target: Path(target).write_text("one, two"))
    with pytest.raises(MachineError, match="changed while it was copied"):
        store_artefact(source)
    assert [path for path in (var / "artefacts").rglob("*") if path.is_file()] == []


def test_negative_limits_are_refused(var: Path) -> None:
    with pytest.raises(UsageError):
        prune_artefacts(max_bytes=-1)


def test_storing_an_artefact_a_second_time_renews_its_age(kept: list[str], tmp_path: Path) -> None:
    """The oldest file is stored a second time today."""
    (tmp_path / "again").write_bytes(artefact_path(kept[0]).read_bytes())
    assert store_artefact(tmp_path / "again").sha256 == kept[0]
    assert prune_artefacts(max_age_s=3.5 * DAY_S).removed == (kept[1],)


def test_sample_of_256_days_finds_every_damaged_artefact(kept: list[str]) -> None:
    assert [damaged_artefacts(day) for day in range(256)] == [[]] * 256
    artefact_path(kept[1]).write_text("other")
    found = [damaged_artefacts(day) for day in range(20_000, 20_256)]
    assert [path.name for paths in found for path in paths] == [kept[1]]
    assert damaged_artefacts(int(kept[1][:2], 16)) == [artefact_path(kept[1])]
