"""File systems of /proc/self/mounts, and Lustre's striping by `lfs`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from iowatch.site import init, storage
from iowatch.site.lustre import LayoutComponent, RemainingQuota, parse_quota, parse_striping
from iowatch.site.storage import list_mounts

# Output of lfs osts and lfs getstripe -d as in the Lustre manual.
OSTS = """OBDS:
0: work-OST0000_UUID ACTIVE
1: work-OST0001_UUID ACTIVE
2: work-OST0002_UUID INACTIVE
"""
# `lfs getstripe -d` as in the Lustre manual, "Progressive File Layout (PFL)" and "Data on MDT (DoM)".
PROGRESSIVE = """/scratch/dir
  lcm_layout_gen:    0
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      stripe_count:  1       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1

    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
      stripe_count:  8       stripe_size:   4194304       pattern:       raid0       stripe_offset: -1
"""
DATA_ON_MDT = PROGRESSIVE.replace("stripe_count:  1 ", "stripe_count:  0 ").replace("raid0", "mdt", 1)
STRIPE = """stripe_count:  4 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "a b").mkdir()
    (tmp_path / "lustre").mkdir()
    (tmp_path / "hosts").touch()
    path = tmp_path / "mounts"
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    path.write_text(
        "proc /proc proc rw 0 0\n"
        "cgroup /sys/fs/cgroup tmpfs rw 0 0\n"
        f"/dev/vda {escaped} ext4 rw 0 0\n"
        f"/dev/vda {tmp_path / 'hosts'} ext4 rw 0 0\n"
        f"10.0.0.1@tcp:/work {tmp_path / 'lustre'} lustre rw 0 0\n"
        "server:/gone /no/such/mount nfs4 rw 0 0\n"
        "short line\n"
    )
    return path


def test_file_systems_are_listed_with_parallel_ones_first(table: Path, tmp_path: Path) -> None:
    found = list_mounts(table)
    assert [mount.technology for mount in found] == ["Lustre", "NFS", "ext4"] or [
        mount.technology for mount in found
    ] == ["Lustre", "ext4", "NFS"]
    by_technology = {mount.technology: mount for mount in found}
    assert by_technology["ext4"].mount == str(tmp_path / "a b")
    assert by_technology["ext4"].writable
    assert (by_technology["ext4"].free_bytes or 0) > 0


def test_file_that_a_container_mounts_is_no_file_system(table: Path, tmp_path: Path) -> None:
    """As /etc/hosts, /etc/hostname and /etc/resolv.conf in Docker and Kubernetes."""
    assert str(tmp_path / "hosts") not in {mount.mount for mount in list_mounts(table)}


def test_unresponsive_file_system_has_no_size(table: Path) -> None:
    unresponsive = next(mount for mount in list_mounts(table) if mount.technology == "NFS")
    assert (unresponsive.size_bytes, unresponsive.free_bytes, unresponsive.writable) == (None, None, False)


def write_lfs(folder: Path, striping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `lfs` with these answers in front of PATH."""
    program = folder / "lfs"
    program.write_text(f"#!/bin/sh\nif [ $1 = osts ]; then cat <<'E'\n{OSTS}E\nelse cat <<'E'\n{striping}E\nfi\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_lustre_striping_is_read(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lfs(tmp_path, STRIPE, monkeypatch)
    lustre = list_mounts(table)[0]
    assert (lustre.targets, lustre.stripe_count, lustre.stripe_bytes) == (2, 4, 1048576)
    assert lustre.layout == "4 of 1 MiB"


def test_lustre_striping_is_unknown_without_lfs(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lustre = list_mounts(table)[0]
    assert (lustre.targets, lustre.stripe_count, lustre.stripe_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        (PROGRESSIVE, "up to 1 MiB: 1 of 1 MiB, then 8 of 4 MiB"),
        (DATA_ON_MDT, "up to 1 MiB: on the metadata server, then 8 of 4 MiB"),
        (
            " ".join(PROGRESSIVE.split()) + "\n",
            "up to 1 MiB: 1 of 1 MiB, then 8 of 4 MiB",
        ),  # as the facts of a run have it
    ],
)
def test_layout_with_components_is_not_one_striping(
    text: str, layout: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first component holds 1 MiB of a file; it must not pass for the striping of all."""
    write_lfs(tmp_path, text, monkeypatch)
    mount = list_mounts(table)[0]
    assert (mount.targets, mount.stripe_count, mount.stripe_bytes, mount.layout) == (2, None, None, layout)
    lines = init._file_systems(SimpleNamespace(mounts=[mount]), "2026-11-30")  # type: ignore[arg-type]
    assert f"  # default layout: {layout}" in lines
    assert not [line for line in lines if line.startswith("  striping:")]


def test_components_of_a_progressive_layout() -> None:
    components = parse_striping(PROGRESSIVE).components
    assert components == (LayoutComponent(2**20, 1, 2**20), LayoutComponent(None, 8, 2**22))


def test_mirrors_have_the_same_components() -> None:
    """Two copies of a file (File Level Redundancy)."""
    first = PROGRESSIVE[PROGRESSIVE.index("    lcme_id") :]
    layout = parse_striping(f"{PROGRESSIVE}\n{first}")
    assert layout.text == "2 mirrors: up to 1 MiB: 1 of 1 MiB, then 8 of 4 MiB"
    assert layout.plain is None


def test_only_component_is_the_striping_of_the_whole_file() -> None:
    text = PROGRESSIVE[: PROGRESSIVE.index("    lcme_id")] + PROGRESSIVE[PROGRESSIVE.rindex("    lcme_id") :]
    assert parse_striping(text.replace("e_start: 1048576", "e_start: 0")).plain == LayoutComponent(None, 8, 2**22)


def test_layout_of_a_file_has_longer_names() -> None:
    text = "/scratch/file\nlmm_stripe_count:  2\nlmm_stripe_size:   65536\nlmm_pattern:       raid0\n"
    assert parse_striping(text).plain == LayoutComponent(None, 2, 65536)


@pytest.mark.parametrize("text", ["", "/scratch/dir\n", "error: getstripe failed for /scratch.\n"])
def test_no_layout(text: str) -> None:
    assert (parse_striping(text).components, parse_striping(text).text) == ((), None)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        # `lfs quota -q`: kilobytes used, quota, limit, grace; files used, quota, limit, grace.
        ("/mnt/lustre 1024 0 2048 - 10 0 25 -\n", RemainingQuota(2**20, 15)),
        ("/mnt/lustre 1024 0 0 - 10 0 0 -\n", RemainingQuota(None, None)),
        ("/mnt/lustre 4096* 1024 2048 6d23h59m 10 0 25 -\n", RemainingQuota(-(2**21), 15)),
        # A server did not answer: the Lustre manual, "lfs quota", on brackets.
        ("/mnt/lustre [1024] 0 2048 - [10] 0 25 -\n", RemainingQuota(2**20, 15, is_exact=False)),
        ("/mnt/lustre [4096]* [0] [2048] - 10 0 25 -\n", RemainingQuota(-(2**21), 15, is_exact=False)),
        ("/mnt/lustre [4096*] 0 2048 - 10* 0 25 expired\n", RemainingQuota(-(2**21), 15, is_exact=False)),
        # A long name of a file system is followed by a line end.
        ("/a/long/name/of/a/mount\n   1024 0 2048 - 10 0 25 -\n", RemainingQuota(2**20, 15)),
        (
            '/m [1024] 0 2048 - 10 0 25 -\nSome errors happened … data in "[]" is inaccurate.\n',
            RemainingQuota(2**20, 15, is_exact=False),
        ),
        ("Permission denied.\n", None),
        ("/mnt/lustre 1024 0 2048 -\n", None),
    ],
)
def test_remaining_quota(text: str, quota: RemainingQuota | None) -> None:
    assert parse_quota(text) == quota


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("/mnt/lustre 1024 0 2048 - 10 0 25 -", None),
        ("/mnt/lustre [1024] 0 2048 - 10 0 25 -", "the quota is not exact"),
        ("/mnt/lustre - - -", "the quota is not checked: 'lfs quota' answered '/mnt/lustre - - -'"),
        ("", None),
    ],
)
def test_quota_that_cannot_be_relied_upon_is_reported(
    answer: str, message: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage, "query_command", lambda *_words, **_options: answer)
    storage.lustre_quota(Path("/mnt/lustre"))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (message is not None)
    assert message is None or message in messages[0]
