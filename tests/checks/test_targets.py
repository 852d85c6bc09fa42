"""The list of targets that a job writes: directories of system.yaml, OSTs of Lustre by a made-up `lfs`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.checks import targets
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.checks.targets import list_targets, missing_targets, no_targets_reason
from iowatch.site.file_system import Directory, MeasuredFileSystem
from tests.builders import build_checked_run, build_output, build_suite_case

# OST 2 is not active, and no file can be made on OST 3.
LFS = r"""#!/bin/bash
if [ "$1" = osts ]; then
  printf 'OBDS:\n0: work-OST0000_UUID ACTIVE\n1: work-OST0001_UUID ACTIVE\n2: work-OST0002_UUID INACTIVE\n'
  printf '3: work-OST0003_UUID ACTIVE\n14: work-OST000e_UUID ACTIVE\n'
elif [ "$1 $2" = "setstripe -o" ]; then
  [ "$3" != 3 ] || { echo 'error on ioctl' >&2; exit 1; }
  touch "$4"
fi
"""


def probe_run(stage: Path) -> CheckedRun:
    case = build_suite_case(suite="targets", benchmark="target_probe")
    return build_checked_run(stage, case=case, scratch_base=stage / "scratch")


def measured(*directories: str, number: int | None = None) -> MeasuredFileSystem:
    return MeasuredFileSystem(
        name="work",
        directory=Directory(path="/work"),
        mount=None,
        limits=None,
        where="system.yaml",
        is_default=True,
        targets=number,
        target_directories=directories,
    )


def listed(run: CheckedRun) -> list[list[str]]:
    """Fields of the lines that the job writes."""
    lines = list_targets(run, JobScript()).before
    environment = {**os.environ, "PATH": f"{run.stage}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=run.stage, env=environment, check=True)
    return [line.split("\t") for line in (run.stage / "iowatch.targets").read_text().splitlines()]


def test_directories_of_the_system_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with blanks; the program finds out which exist."""
    file_system = measured("/bb/t[08-10]", "/other disk/x")
    monkeypatch.setattr(targets, "measured_file_system", lambda _case, _system: file_system)
    run = probe_run(tmp_path)
    assert listed(run) == [
        ["t08", "/bb/t08", "/bb/t08/.iowatch-target-0123"],
        ["t09", "/bb/t09", "/bb/t09/.iowatch-target-0123"],
        ["t10", "/bb/t10", "/bb/t10/.iowatch-target-0123"],
        ["x", "/other disk/x", "/other disk/x/.iowatch-target-0123"],
    ]
    # The second start of a job writes the same list.
    assert len(listed(run)) == 4


def test_active_targets_of_lustre_are_listed(tmp_path: Path) -> None:
    lfs = tmp_path / "lfs"
    lfs.write_text(LFS)
    lfs.chmod(0o755)
    run = probe_run(tmp_path)
    run.scratch.mkdir(parents=True)
    assert listed(run) == [
        ["OST 0", "work-OST0000", f"{run.scratch}/target-0"],
        ["OST 1", "work-OST0001", f"{run.scratch}/target-1"],
        ["OST 3", "work-OST0003", ""],
        ["OST 14", "work-OST000e", f"{run.scratch}/target-14"],
    ]
    assert (run.scratch / "target-14").is_file()
    assert "error on ioctl" in (tmp_path / "iowatch.targets.err").read_text()


def test_without_lfs_the_list_is_empty(tmp_path: Path) -> None:
    """The program then fails: it names no target."""
    run = probe_run(tmp_path)
    run.scratch.mkdir(parents=True)
    assert listed(run) == []


def test_other_benchmarks_have_no_list(tmp_path: Path) -> None:
    script = JobScript(before=["true"])
    assert list_targets(build_checked_run(tmp_path), script) is script


def test_file_system_without_known_targets_is_not_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = build_suite_case(suite="targets", benchmark="target_probe")
    reason = no_targets_reason(case, "unknown", tmp_path)
    assert reason is not None
    assert reason.startswith("no targets are known on ")
    assert "target_directories" in reason
    assert no_targets_reason(build_suite_case(), "unknown", tmp_path) is None
    monkeypatch.setattr(targets, "measured_file_system", lambda _case, _system: measured("/bb/t[0-3]"))
    assert no_targets_reason(case, "unknown", tmp_path) is None


@pytest.mark.parametrize(
    ("stated", "active", "reason"),
    [(24, 23, "23 targets are active; system.yaml states 24 of 'work'"), (24, 24, None), (None, 23, None)],
)
def test_number_of_targets_is_that_of_the_system(
    stated: int | None, active: int, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "measured_file_system", lambda _case, _system: measured(number=stated))
    output = build_output(tool="target_probe", facts={"target_rates": {"target_count": active}})
    assert missing_targets(probe_run(tmp_path), [output]) == reason
    assert missing_targets(build_checked_run(tmp_path), [replace(output, tool="ior")]) is None
