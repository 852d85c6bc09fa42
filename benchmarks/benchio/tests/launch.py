"""What the tests of the program share: starting it under MPI, and a small file system that can be full."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BENCHIO = os.environ["BENCHIO"]
MPIEXEC = os.environ["BENCHIO_MPIEXEC"]

# MPICH's launcher, which loses exit codes now and then.
HYDRA = "HYDRA" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=False).stdout


def version() -> str:
    return subprocess.run([BENCHIO, "--version"], capture_output=True, text=True, check=True).stdout


def help_text() -> str:
    return subprocess.run([BENCHIO, "--help"], capture_output=True, text=True, check=True).stdout


def apis() -> list[str]:
    """Interfaces that this benchio was built with and that leave files."""
    lines = version().splitlines()[4:]
    built = [line.split(":")[0] for line in lines if "not built" not in line]
    return [name for name in built if name not in ("null", "workloads")]


def has_romio() -> bool:
    """Whether this is Open MPI with ROMIO beside its own I/O."""
    info = shutil.which("ompi_info", path=str(pathlib.Path(MPIEXEC).parent)) or shutil.which("ompi_info")
    if info is None or HYDRA:
        return False
    return "MCA io: romio" in subprocess.run([info], capture_output=True, text=True, check=False).stdout


def command(ranks: int, *options: str) -> list[str]:
    return [MPIEXEC, "-n", str(ranks), BENCHIO, *options]


def started(words: list[str]) -> subprocess.Popen[str]:
    """Without a terminal: launchers read from it, and in the background that stops them for ever."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def ended(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A run that has ended. One that hangs is left to CTest's time limit, so that `--repeat after-timeout` can
    distinguish it from one that fails; where it hangs is printed first."""
    process = started(words)
    try:
        stdout, stderr = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        print(f"hangs: {' '.join(words)}", *where(), sep="\n", file=sys.stderr, flush=True)
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def where() -> list[str]:
    """Ranks, guards and launchers with their state and the system call that they are in."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(name in words[0] for name in (b"benchio", b"mpiexec", b"hydra", b"mpirun", b"orted")):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                call = (entry / "syscall").read_text().split()[0]
                found.append(f"  {entry.name} {state} system call {call}: {words[0].decode()}")
    return sorted(found)


def run(ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return ended(command(ranks, *options))


def alone(*options: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """One rank without a launcher, so that the exit code is the program's own; `before` starts it."""
    return ended([*before, BENCHIO, *options])


def start(ranks: int, *options: str) -> subprocess.Popen[str]:
    return started(command(ranks, *options))


def wait_for(condition, seconds: float = 20) -> bool:
    """Whether `condition()` becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def ranks_in(directory: pathlib.Path) -> list[int]:
    """Processes of benchio, ranks and guard, whose command line names `directory`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0] == BENCHIO.encode() and str(directory).encode() in words:
                found.append(int(entry.name))
    return sorted(found)


@contextlib.contextmanager
def small_tmpfs(options: str, prefix: str | None = None):
    """A tmpfs of its own; skips where mounting is not allowed."""
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "benchio-test", name],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise unittest.SkipTest(f"cannot mount a tmpfs: {done.stderr.strip()}")
        try:
            yield pathlib.Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


def record(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
