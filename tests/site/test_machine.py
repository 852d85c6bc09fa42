"""Machine facts that a check records on its node; facts that vary between nodes are left out."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reframe")

from iowatch.checks.machine import environment_commands, parse_facts


def collect_facts(
    directory: Path, place: Path, path: str, *prefix: str, launcher: str = "", **variables: str
) -> dict[str, Any]:
    """The facts of a job with this PATH; `prefix` are the words of a command that starts its shell."""
    script = "\n".join(environment_commands(str(directory), launcher))
    subprocess.run([*prefix, "bash", "-c", script], cwd=place, env={"PATH": path, **variables}, check=True)
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


def test_what_the_job_may_use_is_recorded(tmp_path: Path) -> None:
    """With one processor, nice value 5 and idle I/O priority; OpenMP's number of threads is no number of processors."""
    allowed = str(min(os.sched_getaffinity(0)))
    prefix = ("taskset", "-c", allowed, "nice", "-n", "5", "ionice", "-c", "3")
    facts = collect_facts(tmp_path, tmp_path, os.environ["PATH"], *prefix, OMP_NUM_THREADS="7")
    assert (facts["cores"], facts["nice"], facts["io_priority"]) == ("1", str(os.nice(0) + 5), "idle")
    facts = collect_facts(tmp_path, tmp_path, os.environ["PATH"])
    assert facts["cores"] == str(len(os.sched_getaffinity(0)))
    assert facts["host"] == platform.node()


def test_launcher_and_its_configuration_are_recorded(tmp_path: Path) -> None:
    """The file behind the link on PATH; configuration files without comments, those of the home directory as `~`."""
    (tmp_path / "opt/bin").mkdir(parents=True)
    launcher = tmp_path / "opt/bin/orterun"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    (tmp_path / "mpirun").symlink_to(launcher)
    (tmp_path / "opt/etc").mkdir()
    (tmp_path / "opt/etc/openmpi-mca-params.conf").write_text("# only\n\n  # comments\n")
    home = tmp_path / "home of me"
    (home / ".openmpi").mkdir(parents=True)
    (home / ".openmpi/mca-params.conf").write_text("# a comment\nio = romio321\n\nbtl = tcp,self # more\n")
    # Of this process: a file that can be preloaded.
    loaded = Path("/proc/self/maps").read_text().split()
    (tmp_path / "e.so").symlink_to(next(path for path in loaded if "/libc.so" in path))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    facts = collect_facts(
        tmp_path, tmp_path, path, launcher="mpirun -np 2", HOME=str(home), LD_PRELOAD=str(tmp_path / "e.so")
    )
    digest = hashlib.sha256(launcher.read_bytes()).hexdigest()
    assert facts["launcher"] == f"{launcher}, SHA-256 {digest}"
    files = {name: text for name, text in facts["configuration_files"].items() if not name.startswith("/etc/")}
    assert files == {"~/.openmpi/mca-params.conf": "io = romio321;btl = tcp,self"}
    assert facts["preload"][str(tmp_path / "e.so")] == hashlib.sha256((tmp_path / "e.so").read_bytes()).hexdigest()


def test_facts_that_are_not_set_are_recorded_as_such(tmp_path: Path) -> None:
    """So that they can be distinguished from those that could not be recorded."""
    facts = collect_facts(tmp_path, tmp_path, os.environ["PATH"], HOME=str(tmp_path))
    assert "launcher" not in facts
    assert isinstance(facts["preload"], dict)
    assert isinstance(facts["configuration_files"], dict)


def test_file_system_is_identified(tmp_path: Path) -> None:
    """The id of statfs(2), the number of its blocks and their size, as Python reads them; the options of the mount."""
    facts = collect_facts(tmp_path, tmp_path, os.environ["PATH"])
    answer = os.statvfs(tmp_path)
    number, blocks, block_bytes = facts["statfs"].split()
    assert int(blocks) * int(block_bytes) == answer.f_blocks * answer.f_frsize
    assert int(number, 16) & 0xFFFFFFFF in (answer.f_fsid & 0xFFFFFFFF, answer.f_fsid >> 32)
    mount_point, options = facts["mount_options"].split(" ")
    assert os.path.ismount(mount_point)
    assert tmp_path.is_relative_to(mount_point)
    assert options.startswith("rw")


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
        # A file with a `=` in its name and its content, and a fact that lists nothing.
        (
            "configuration_files:=\nconfiguration_files:/etc/a=io = x;b=1\npreload:=",
            {"configuration_files": {"/etc/a": "io = x;b=1"}, "preload": {}},
        ),
        ("vulnerabilities=", {}),  # the kernel has no such directory
        ("mount=", {}),
        ("other=1", {}),
        ("kernel", {}),
    ],
)
def test_facts_that_vary_between_nodes_are_left_out(line: str, facts: dict[str, Any]) -> None:
    assert parse_facts(f"{line}\n") == facts
