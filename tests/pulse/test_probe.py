"""The timed operations: on a real directory, without their tree, and on a file system that does not answer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from iowatch.pulse import probe
from iowatch.pulse.probe_program import COLD_FILES, DIRECTORIES, FILES_PER_DIRECTORY, OPERATIONS, ROUNDS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with the fixed tree."""
    directory = tmp_path / "pulse"
    assert probe.make_tree(directory) == ""
    return directory


def replace_by_pipes(tree: Path) -> None:
    """Replace the small files by pipes that nobody writes to: `open` waits for ever, `stat` and `list` do not."""
    for path in sorted(tree.glob("tree/*/*")):
        path.unlink()
        os.mkfifo(path)


def test_every_operation_is_timed(tree: Path) -> None:
    (result,) = probe.probe_file_systems([tree], 5)
    assert [reading.operation for reading in result.readings] == list(OPERATIONS)
    assert {reading.outcome for reading in result.readings} == {"completed"}
    repetitions = {reading.operation: len(reading.samples_ns) for reading in result.readings}
    # The first contact with the file system is one more `stat`.
    assert repetitions == {**dict.fromkeys(OPERATIONS, ROUNDS), "stat": ROUNDS + 1}
    for reading in result.readings:
        assert reading.level_ns == pytest.approx(sum(reading.samples_ns) / len(reading.samples_ns), abs=1)
        assert 0 < reading.level_ns < 1e9
    assert (result.missing_tree, result.left_process, result.reason) == ("", None, "")
    assert list((tree / "new").iterdir()) == []


def test_tree_has_the_documented_files(tree: Path) -> None:
    assert len(list(tree.glob("tree/*/*"))) == DIRECTORIES * FILES_PER_DIRECTORY == 512
    assert len(list(tree.glob("cold/*"))) == COLD_FILES == 64
    assert {path.stat().st_size for path in tree.glob("tree/*/*")} == {4096}


def test_absent_and_incomplete_trees_are_reported_and_completed(tree: Path) -> None:
    (absent,) = probe.probe_file_systems([tree.with_name("other")], 0)
    assert "complete-1" in absent.missing_tree
    # A purge of the scratch file system removes files that nobody reads.
    for path in tree.glob("cold/*"):
        path.unlink()
    (purged,) = probe.probe_file_systems([tree], 0)
    assert "/cold/c00" in purged.missing_tree
    assert probe.make_tree(tree) == ""
    assert probe.probe_file_systems([tree], 0)[0].missing_tree == ""


def test_operation_that_does_not_end_is_a_reading(tree: Path) -> None:
    replace_by_pipes(tree)
    begin = time.monotonic()
    (result,) = probe.probe_file_systems([tree], 0, limit_s=0.6)
    assert time.monotonic() - begin < 0.6 + 0.3
    readings = {reading.operation: reading for reading in result.readings}
    assert readings["stat"].outcome == "completed"
    assert readings["open"].outcome == "unfinished"
    assert 0.3e9 < readings["open"].level_ns <= 0.7e9
    # What comes after it was not reached.
    assert set(readings) == {"stat", "open"}
    # The process was killed.
    assert result.left_process is None


def test_file_systems_are_probed_at_the_same_time(tree: Path, tmp_path: Path) -> None:
    """One that does not answer delays the others by nothing."""
    hanging = tmp_path / "hanging"
    probe.make_tree(hanging)
    replace_by_pipes(hanging)
    begin = time.monotonic()
    waiting, answering = probe.probe_file_systems([hanging, tree], 0, limit_s=1.0)
    assert time.monotonic() - begin < 1.3
    assert len(waiting.readings) == 2
    assert {reading.outcome for reading in answering.readings} == {"completed"}
    assert len(answering.readings) == len(OPERATIONS)


def test_refused_operation_is_a_reading_with_its_reason(tree: Path) -> None:
    (tree / "new").rmdir()
    (tree / "new").write_text("")  # no directory: nothing can be created in it
    (result,) = probe.probe_file_systems([tree], 0)
    readings = {reading.operation: reading for reading in result.readings}
    assert (readings["create"].outcome, readings["create"].reason) == ("failed", "Not a directory")
    assert readings["read"].outcome == "completed"
    assert not {"write", "unlink"} & set(readings)


def test_tree_that_cannot_be_made_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert probe.make_tree(tmp_path / "file" / "pulse") == "Not a directory"


def test_leftovers_of_a_killed_pulse_of_this_node_are_removed(tree: Path) -> None:
    left = tree / "new" / f"{os.uname().nodename}-1-0"
    of_another_node = tree / "new" / "other-1-0"
    left.write_text("")
    of_another_node.write_text("")
    probe.probe_file_systems([tree], 0)
    assert [path.name for path in (tree / "new").iterdir()] == ["other-1-0"]


def test_process_that_is_left_behind_is_recognised_by_its_start() -> None:
    pid, host = os.getpid(), os.uname().nodename
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert probe.LeftProcess("open", host, pid, ticks).exists
    assert not probe.LeftProcess("open", host, pid, ticks + 1).exists
