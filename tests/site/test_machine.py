"""Machine facts that a check records on its node; facts that vary between nodes are left out."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("reframe")

from iowatch.checks.machine import environment_commands, parse_facts


def collect_facts(directory: Path, place: Path, path: str) -> dict[str, str]:
    subprocess.run(
        ["bash", "-c", "\n".join(environment_commands(str(directory)))], cwd=place, env={"PATH": path}, check=True
    )
    return parse_facts((place / "iowatch.machine").read_text())


def test_facts_of_this_machine_are_recorded(tmp_path: Path) -> None:
    directory = tmp_path / "a directory; with 'quotes'"
    directory.mkdir()
    facts = collect_facts(directory, tmp_path, os.environ["PATH"])
    assert facts["kernel"] == platform.release()
    flaws = Path("/sys/devices/system/cpu/vulnerabilities")
    for flaw in flaws.iterdir() if flaws.is_dir() else ():
        state = flaw.read_text().strip()
        assert (f"{flaw.name}: {state}" in facts["vulnerabilities"]) == (state != "Not affected")
    assert flaws.is_dir() == ("vulnerabilities" in facts)
    assert "lustre" not in facts or Path("/sys/fs/lustre").exists()


def test_lustre_facts_are_recorded(tmp_path: Path) -> None:
    """`lfs getstripe -d` as in the Lustre manual (19.3.1), with a line for the directory first."""
    striping = "stripe_count:  4 stripe_size:   1048576 pattern: raid0\\n stripe_offset: -1\\n"
    fakes = {
        "lfs": f"printf '%s\\n{striping}' $3",
        "findmnt": "echo 'lustre   10.0.0.1@o2ib:/scratch   rw,flock,lazystatfs'",
    }
    for name, script in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    facts = collect_facts(tmp_path, tmp_path, f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert facts["mount"] == "lustre 10.0.0.1@o2ib:/scratch rw,flock,lazystatfs"
    assert facts["striping"] == "stripe_count: 4 stripe_size: 1048576 pattern: raid0 stripe_offset: -1"


def test_hanging_or_missing_command_loses_only_its_fact(tmp_path: Path) -> None:
    (tmp_path / "findmnt").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "timeout").write_text('#!/bin/sh\nshift; exec /usr/bin/timeout 0.2 "$@"\n')
    for name in ("findmnt", "timeout"):
        (tmp_path / name).chmod(0o755)
    facts = collect_facts(tmp_path, tmp_path, f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "mount" not in facts
    assert facts["kernel"] == platform.release()


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "mount=nfs4 server:/home rw,vers=4.2,clientaddr=10.1.2.3,local_lock=none,addr=10.0.0.9",
            {"mount": "nfs4 server:/home rw,vers=4.2,local_lock=none"},
        ),
        ("mount=overlay overlay rw,lowerdir=/var/lib/x/1:/var/lib/x/2", {"mount": "overlay"}),
        ("lustre=lustre: 2.12.8", {"lustre": "2.12.8"}),
        ("lustre=2.15.4", {"lustre": "2.15.4"}),
        (
            # As this machine printed them; an entry may contain "Not affected" and still be a mitigation.
            "vulnerabilities=/sys/devices/system/cpu/vulnerabilities/mds:Not affected "
            "/sys/devices/system/cpu/vulnerabilities/mmio:Vulnerable "
            "/sys/devices/system/cpu/vulnerabilities/spectre_v2:Mitigation: Retpolines; BHI: Not affected",
            {"vulnerabilities": "mmio: Vulnerable | spectre_v2: Mitigation: Retpolines; BHI: Not affected"},
        ),
        (
            "vulnerabilities=/sys/devices/system/cpu/vulnerabilities/mds:Not affected",
            {"vulnerabilities": "all: Not affected"},
        ),
        ("vulnerabilities=", {}),  # the kernel has no such directory
        ("mount=", {}),
        ("other=1", {}),
        ("kernel", {}),
    ],
)
def test_facts_that_vary_between_nodes_are_left_out(line: str, facts: dict[str, str]) -> None:
    assert parse_facts(f"{line}\n") == facts
