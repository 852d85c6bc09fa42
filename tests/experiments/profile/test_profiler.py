"""Profiles: the functions that the time of opening and closing is attributed to, from real traces."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from iowatch.experiments.profile import profiler
from iowatch.experiments.profile.profiler import (
    TracedCall,
    attribute,
    format_profile,
    read_profile,
    refusal,
    wrapper_script,
)
from tests.conftest import ROOT

HERE = Path(__file__).parent / "profiled"
CLOSE = ("H5Fclose", "MPI_File_set_size", "ftruncate")


def _chains(stage: Path) -> dict[tuple[str, ...], float]:
    profile = read_profile(stage)
    assert profile is not None
    return {one.chain: one.seconds for one in profile.chains}


@pytest.mark.parametrize("number", [0, 1], ids=["strace", "perf"])
def test_slow_ftruncate_and_its_caller_are_named(number: int, tmp_path: Path) -> None:
    """Captured from shrink.c on one rank of `mpirun`, with slow.c: 50 ms per call; without the calls of MPI_Init."""
    (tmp_path / "profile").mkdir()
    shutil.copy(HERE / f"{profiler.PROFILERS[number].name}.txt", tmp_path / "profile" / f"{number}.host.1")
    profile = read_profile(tmp_path)
    assert profile is not None
    slowest = next(one for one in profile.chains if one.phase == "close")
    assert slowest.chain == CLOSE
    # the wait of the preloaded function belongs to ftruncate, and all else of closing takes less
    assert 0.05 < slowest.longest_s < 0.1
    assert slowest.seconds > 0.9 * profile.seconds["close"]
    # of the opening of a file with MPI-IO
    assert ("H5Fcreate", "MPI_File_open") in {one.chain[:2] for one in profile.chains if one.phase == "open"}
    assert "H5Fclose → MPI_File_set_size → ftruncate" in "\n".join(format_profile(profile.to_json()))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_planted_slow_ftruncate_is_found(tmp_path: Path) -> None:
    """With strace; perf loses stacks at random (docs/profile.md), so that only its captured trace is tested."""
    tool = profiler.PROFILERS[0]
    if shutil.which(tool.name) is None or subprocess.run([*tool.trial.split(), "true"], capture_output=True).returncode:
        pytest.skip(f"{tool.name} cannot be used here")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", HERE / "slow.c"], check=True)
    subprocess.run(["cc", "-O1", "-rdynamic", "-o", tmp_path / "chain", HERE / "chain.c"], check=True)
    (tmp_path / "profile.sh").write_text(wrapper_script([tool.name]))
    words = ["sh", "profile.sh", "env", f"LD_PRELOAD={tmp_path}/slow.so", "./chain", "file"]
    subprocess.run(words, check=True, cwd=tmp_path, capture_output=True)
    profile = read_profile(tmp_path)
    assert profile is not None
    assert profile.tool == tool.name
    slowest = profile.chains[0]
    assert (slowest.phase, slowest.chain) == ("close", CLOSE)
    assert slowest.longest_s >= 0.05  # slow.c


def test_program_without_libraries() -> None:
    calls = [
        TracedCall("close", 0.2, ("__GI___close", "close_file", "main", "__libc_start_main_impl")),
        TracedCall("openat", 0.1, ("__open64_nocancel", "fopen64", "main", "__libc_start_main")),
        # of the loader, and of the start of MPI
        TracedCall("openat", 9.0, ("__open64_nocancel", "_dl_map_object", "dl_main", "_start")),
        TracedCall("close", 9.0, ("close", "mca_base_open", "ompi_mpi_init", "PMPI_Init", "main", "__libc_start_main")),
    ]
    found = {(one.phase, one.chain): one.seconds for one in attribute(calls)}
    assert found == {("close", ("close",)): 0.2, ("open", ("fopen", "open")): 0.1}


def test_lost_calls_and_unknown_callers_are_reported(tmp_path: Path) -> None:
    (tmp_path / "profile").mkdir()
    text = "LOST 929 events!\n  12.500 ( 1.250 ms): benchio/7 close(fd: 4)   = 0\n" + " " * 39 + "[0] ([unknown])\n"
    (tmp_path / "profile" / "1.host.7").write_text(text)
    profile = read_profile(tmp_path)
    assert profile is not None
    assert (profile.lost, profile.unknown) == (929, 1)
    printed = "\n".join(format_profile(profile.to_json()))
    assert "929 system calls are missing" in printed
    assert "callers of 1 of these processes are not known" in printed


def test_profilers_that_cannot_be_used_are_named_with_package_and_setting(tmp_path: Path) -> None:
    """perf is not installed, and strace refuses, as in a container without the right to trace."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "mkdir", "uname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    (programs / "strace").write_text("#!/bin/sh\nexit 1\n")
    (programs / "strace").chmod(0o755)
    (tmp_path / "profile.sh").write_text(wrapper_script())
    done = subprocess.run(["sh", "profile.sh", "true"], cwd=tmp_path, env={"PATH": str(programs)}, check=False)
    assert done.returncode == 97
    reason = refusal(tmp_path)
    assert reason is not None
    assert "perf: not installed (package linux-perf)" in reason
    assert "ptrace is not allowed (containers: --cap-add SYS_PTRACE" in reason
    assert read_profile(tmp_path) is None


def test_next_profiler_is_used_where_the_first_is_not_allowed(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "mkdir", "uname", "true", "touch"):
        (programs / name).symlink_to(shutil.which(name) or name)
    perf = '#!/bin/sh\nfor word; do [ "$before" != -o ] || : > "$word"; before=$word; done\n'
    for name, text in {"strace": "#!/bin/sh\nexit 1\n", "perf": perf}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "profile.sh").write_text(wrapper_script())
    subprocess.run(["sh", "profile.sh", "touch", "ran"], cwd=tmp_path, env={"PATH": str(programs)}, check=False)
    profile = read_profile(tmp_path)
    assert profile is not None
    assert profile.tool == "perf"


def test_doctor_names_the_package_of_the_preferred_profiler() -> None:
    from iowatch.site.doctor import _requirements

    packages = {one.title: one.packages for one in _requirements()}
    assert packages["strace"] == ("strace",)
    assert "perf" not in packages


def test_page_documents_the_profilers() -> None:
    text = (ROOT / "docs" / "profile.md").read_text()
    assert all(f"| `{one.name}` " in text or f"| {one.name} " in text for one in profiler.PROFILERS)
