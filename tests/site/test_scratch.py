"""Scratch: separate directories, check of free space, removal of remaining directories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iowatch.core import MachineError
from iowatch.site import FileSystemIdentity, storage
from tests.faults.places import small


def test_free_space_is_checked_in_bytes_and_inodes(tmp_path: Path) -> None:
    storage.check_scratch_space(tmp_path, 1, 1)
    free = os.statvfs(tmp_path)
    with pytest.raises(MachineError, match="free in the file system"):
        storage.check_scratch_space(tmp_path, free.f_bavail * free.f_frsize)
    if free.f_files:
        with pytest.raises(MachineError, match="files free in the file system"):
            storage.check_scratch_space(tmp_path, 1, free.f_favail)


def put_lfs_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, code: int = 0) -> None:
    """Put an `lfs` on PATH that prints the output of `lfs quota -q` in the Lustre manual."""
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{printed}'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("/mnt/lustre 1024 0 2048 - 10 0 25 -", storage.RemainingQuota(1024 * 1024, 15)),
        ("/mnt/lustre 4096* 0 2048 none 10 0 0 -", storage.RemainingQuota(-2048 * 1024, None)),
        ("/mnt/lustre 1024 0 0 - 10 0 0 -", storage.RemainingQuota()),
        ("nonsense", None),
    ],
)
def test_lustre_quota_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: storage.RemainingQuota | None
) -> None:
    put_lfs_on_path(tmp_path, monkeypatch, printed)
    assert storage.lustre_quota(tmp_path) == expected


def test_suite_beyond_the_quota_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_lfs_on_path(tmp_path, monkeypatch, "/mnt/lustre 1024 0 2048 - 10 0 25 -")
    storage.check_scratch_space(tmp_path, 1000, 10)
    with pytest.raises(MachineError, match="files free in your quota"):
        storage.check_scratch_space(tmp_path, 1000, 1_048_576)


def test_quota_is_unknown_without_lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert storage.lustre_quota(tmp_path) is None


def test_only_directories_of_known_sessions_are_removed(tmp_path: Path) -> None:
    for name in ("iowatch-old", "iowatch-other", "precious"):
        (tmp_path / name / "x").mkdir(parents=True)
    (tmp_path / "iowatch-link").symlink_to(tmp_path / "precious")
    assert storage.remove_session_scratch(tmp_path, ["old", "link", "gone"]) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iowatch-link", "iowatch-other", "precious"]


def test_scratch_of_ended_plain_reframe_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    own = storage.session_directory(tmp_path)
    ended = own.with_name(own.name.replace(str(os.getpid()), str(dead.pid)))
    others = [f"{own.name}x", own.name.replace("reframe-", "reframe-far-"), "iowatch-reframe-"]
    for name in (own.name, ended.name, *others):
        (tmp_path / name).mkdir()
    assert storage.remove_ended_scratch(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((own.name, *others))


@pytest.mark.parametrize("name", ["../../etc", "a b;rm -rf /", "%e=x/y"])
def test_case_directory_name_is_alphanumeric(tmp_path: Path, name: str) -> None:
    place = storage.case_directory(tmp_path, name, "gnu")
    assert place.parent.parent == tmp_path
    assert place.name.isalnum()


def test_parents_of_scratch_are_not_created(tmp_path: Path, var: Path) -> None:
    """A misspelt path is an error; only the default directory below `var/` is created with its parents."""
    with pytest.raises(MachineError, match="cannot be used: No such file"):
        storage.prepare_scratch(tmp_path / "lustre-x" / "iowatch", FileSystemIdentity())
    assert not (tmp_path / "lustre-x").exists()
    storage.prepare_scratch(var / "a" / "scratch", FileSystemIdentity())
    assert (var / "a" / "scratch").is_dir()


@pytest.mark.parametrize("link", [False, True])
def test_unmounted_scratch_is_refused_and_nothing_is_created(tmp_path: Path, link: bool) -> None:
    """The expected identity is that of findmnt (util-linux); the directory below the mount point is left behind."""
    base = tmp_path / "a disk" / "iowatch"
    if link:  # the path of a site is often a symbolic link
        (tmp_path / "link").symlink_to(base.parent)
        base = tmp_path / "link" / "iowatch"
    with small(tmp_path / "a disk") as place:
        if place is None:
            pytest.skip("needs the right to mount a tmpfs (root)")
        found = storage.prepare_scratch(base, FileSystemIdentity(type="tmpfs"))
        words = ["findmnt", "--noheadings", "--raw", "--output", "FSTYPE,SOURCE", str(place)]
        kind, source = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert found == FileSystemIdentity(mount=str(place), type=kind, source=source)
        assert job_identity(base, found, tmp_path) == (0, found)
    other = storage.find_identity(tmp_path)
    with pytest.raises(MachineError, match=r"found mount .*; expected mount .*a disk, type tmpfs") as refused:
        storage.prepare_scratch(base, found)
    assert str(other) in str(refused.value)
    assert list((tmp_path / "a disk").iterdir()) == []
    base.mkdir()
    with pytest.raises(MachineError, match="on another file system"):
        storage.prepare_scratch(base, found)
    assert job_identity(base, found, tmp_path) == (1, other)


def job_identity(base: Path, expected: FileSystemIdentity, tmp_path: Path) -> tuple[int, FileSystemIdentity | None]:
    """Exit code and identity of a job on this node."""
    lines = storage.identity_commands(base, "found", expected)
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (f"expected {expected}" in done.stderr) == (done.returncode == 1)
    return done.returncode, storage.parse_identity((tmp_path / "found").read_text())


@pytest.mark.parametrize(
    ("expected", "code"),
    [({}, 0), ({"mount": "{mount}"}, 0), ({"type": "{type}x"}, 1), ({"source": "it's *"}, 1), ({"mount": "*"}, 1)],
)
def test_only_declared_fields_are_compared(expected: dict[str, str], code: int, tmp_path: Path) -> None:
    found = storage.find_identity(tmp_path)
    assert found is not None
    declared = FileSystemIdentity(**{name: text.format(**found.declared) for name, text in expected.items()})
    assert (declared.difference(found) is not None) == bool(code)
    assert job_identity(tmp_path, declared, tmp_path) == (code, found)


def test_probe_does_not_follow_a_planted_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its random name were known: the victim's file is unchanged and the link stays."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(storage.secrets, "token_hex", lambda _: "known")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "iowatch-probe-known").symlink_to(victim)
    with pytest.raises(MachineError, match="File exists"):
        storage.check_scratch_space(shared, 1)
    assert victim.read_text() == "precious"
    assert (shared / "iowatch-probe-known").is_symlink()


def test_planted_links_are_not_followed_by_a_removal(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").touch()
    (tmp_path / "iowatch-one").mkdir()
    (tmp_path / "iowatch-one" / "link").symlink_to(tmp_path / "victim")
    assert storage.remove_session_scratch(tmp_path, ["one"]) == 1
    assert (tmp_path / "victim" / "file").exists()


@pytest.mark.parametrize("ahead_s", [-301, 301, 299])
def test_clock_far_from_that_of_the_file_system_is_refused(
    ahead_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server's clock determines the time of modification of a new file."""
    now = storage.time.time()
    monkeypatch.setattr(storage.time, "time", lambda: now + ahead_s)
    if ahead_s == 299:
        storage.check_scratch_space(tmp_path, 1)
        return
    with pytest.raises(MachineError, match=r"the clock of this machine is 30[01] s (ahead of|behind)"):
        storage.check_scratch_space(tmp_path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may give a file to another account")
@pytest.mark.parametrize("is_link", [False, True])
def test_directory_of_another_account_in_a_public_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """As /dev/shm/iowatch-gate-1000, whose name everybody can guess. The account is simulated: 65533 runs iowatch."""
    public = tmp_path / "shm"
    public.mkdir()
    public.chmod(0o1777)
    scratch = public / "iowatch-gate-1000"
    if is_link:
        (tmp_path / "elsewhere").mkdir()
        scratch.symlink_to(tmp_path / "elsewhere")
    else:
        scratch.mkdir()
    os.chown(scratch, 65534, 65534, follow_symlinks=False)
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    with pytest.raises(MachineError, match=r"belongs to another account \(uid 65534\)"):
        storage.prepare_scratch(scratch, FileSystemIdentity())
    os.chown(scratch, 65533, 65533, follow_symlinks=False)
    storage.prepare_scratch(scratch, FileSystemIdentity())
    # A project's directory that only its group may write is a matter of the site.
    public.chmod(0o775)
    os.chown(scratch, 65534, 65534, follow_symlinks=False)
    storage.prepare_scratch(scratch, FileSystemIdentity())
