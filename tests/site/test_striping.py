"""File systems with striping, and cases of a suite that are duplicates without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.benchmarks import suites
from iowatch.site import storage

TABLE = """\
/dev/vda / ext4 rw 0 0
mgs:/work /mnt/lustre lustre rw 0 0
mgs:/home /mnt/lus\\040tre lustre rw 0 0
tmpfs /mnt/lustre/ram tmpfs rw 0 0
none /mnt/odd someday rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/mnt/lustrous", "ext4"),
        ("/mnt/lustre", "lustre"),
        ("/mnt/lustre/me/not/yet/there", "lustre"),
        ("/mnt/lus tre/me", "lustre"),
        ("/mnt/lustre/ram/x", "tmpfs"),
        ("/mnt/odd/x", "someday"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount_point(path: str, kind: str, tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    assert storage.file_system_type(path, table) == kind
    assert storage.file_system_type(path, tmp_path / "absent") == "unknown"


def test_cases_that_differ_only_in_striping_are_duplicates_without_lustre(monkeypatch: pytest.MonkeyPatch) -> None:
    """archer-small: six combinations of count and size at one point, three of size at another."""
    cases = suites.load_suite("archer-small")
    monkeypatch.setattr(storage, "file_system_type", lambda _path: "tmpfs")
    doubles = storage.find_duplicate_cases(cases, Path("/x"))
    kept = [case for case in cases if f"{case.benchmark}:{case.name}" not in doubles]
    axes = [{k: v for k, v in case.options.items() if k not in storage.STRIPING_OPTIONS} for case in kept]
    assert all(axes.count(options) == 1 for options in axes)
    assert {str(sorted(options.items())) for options in axes} == {
        str(sorted((k, v) for k, v in case.options.items() if k not in storage.STRIPING_OPTIONS)) for case in cases
    }
    assert set(doubles.values()) == {"no striping on tmpfs: duplicates another case of the suite"}


def test_hints_that_set_striping_have_no_effect_without_lustre(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite `hints` has three cases of benchio with striping, which are its first case elsewhere."""
    cases = [case for case in suites.load_suite("hints") if case.benchmark == "benchio"]
    monkeypatch.setattr(storage, "file_system_type", lambda _path: "ext4")
    doubles = storage.find_duplicate_cases(cases, Path("/x"))
    with_striping = {f"benchio:{c.name}" for c in cases if "striping" in str(c.options.get("hints"))}
    assert set(doubles) == with_striping
    assert len(with_striping) == 3
    monkeypatch.setattr(storage, "file_system_type", lambda _path: "lustre")
    assert storage.find_duplicate_cases(cases, Path("/x")) == {}


def test_no_duplicate_cases_on_lustre(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "file_system_type", lambda _path: "lustre")
    assert storage.file_system_without_striping(Path("/x")) is None
    assert storage.find_duplicate_cases(suites.load_suite("archer-small"), Path("/x")) == {}
