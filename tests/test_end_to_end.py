"""The complete chain on this machine: build, run under ReFrame, store, assess, show; and recovery from faults."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iowatch.store import History
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(
        shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc); ci/setup names the package"
    ),
]

IOWATCH = ROOT / ".venv" / "bin" / "iowatch"
RUN = [str(IOWATCH), "run", "--suite", "tiny"]


@pytest.fixture(scope="module")
def stack() -> str:
    """The name of one installed stack."""
    from iowatch.site.stack.load import discover_stacks

    return next(found.name for found in discover_stacks("local") if found.status == "installed")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end_to_end") / "var"


@pytest.fixture
def place(base: Path) -> Path:
    """A `var/` without history; builds for the stacks are kept to save time."""
    for _ in range(200):
        try:
            _empty(base)
            break
        except OSError:  # ReFrame of a killed run may still write
            time.sleep(0.1)
    else:
        _empty(base)
    return base


def _empty(base: Path) -> None:
    for path in base.glob("*"):
        if path.name not in ("build", "stacks"):
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


def run(words: list[str], place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={**os.environ, "IOWATCH_VAR": str(place), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_nightly_session_ends_with_a_verdict_and_a_site(place: Path, stack: str) -> None:
    words = [str(ROOT / "ci" / "nightly"), "--suite", "tiny", "--stack", stack]
    first = run(words, place)
    assert first.returncode == 0, first.stderr
    assert "OK – 6 of 6 expected results received" in first.stdout
    # Runs on processors that other tests use are no observations.
    assert re.search(r"Changes: (1 day|0 days) of observations of [0-6] series", first.stdout)
    assert "too few to detect changes (7 days are needed" in first.stdout
    assert (place / "site" / "index.html").is_file()
    with History.open(str(place / "iowatch.db")) as history:
        (session,) = history.sessions()
        runs = history.runs(session.uuid)
        assert (session.status, len(runs)) == ("ok", 3)
        # Every repetition and its stack are in the history.
        series = [s for s in history.series() if s.metric == "bandwidth"]
        assert {len(samples) for s in series for _t, _r, samples in history.samples(s.id)} == {2}
        assert runs[0].stack_document["name"] == stack
        assert {a.kind for a in history.artefacts(runs[0].id)} >= {"stdout", "stderr", "record"}
    assert not list((place / "scratch").glob("iowatch-*")), "scratch is not swept"
    # A stack of the same name on another system, in a home that two clusters share, has a separate program.
    assert (place / "build" / "benchio" / "local" / stack / "benchio").is_file()

    second = run([*RUN, "--stack", stack, "--json"], place)
    verdict = json.loads(second.stdout)
    with History.open(str(place / "iowatch.db")) as history:
        days = {run.started_at // 86400 for session in history.sessions() for run in history.runs(session.uuid)}
    # Two sessions of one day are one day of history.
    assert (second.returncode, verdict["days"], verdict["received"]) == (0, len(days), 6)


@pytest.fixture
def started(place: Path, stack: str) -> Iterator[subprocess.Popen[bytes]]:
    """A started session that runs for many seconds after its first run, also on a busy machine."""
    environment = {**os.environ, "IOWATCH_VAR": str(place)}
    process = subprocess.Popen(
        [str(IOWATCH), "run", "--suite", "smoke", "--stack", stack],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def runs_in(place: Path) -> int:
    if not (place / "iowatch.db").exists():
        return 0
    with History.open(str(place / "iowatch.db")) as history:
        return sum(row.runs for row in history.sessions())


def wait_until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


@pytest.mark.slow
def test_second_session_is_refused_and_a_killed_one_loses_no_finished_case(
    place: Path, stack: str, started: subprocess.Popen[bytes]
) -> None:
    lock = place / "lock" / "local.lock"
    wait_until(lambda: lock.exists() and lock.read_text() == str(started.pid), 60)
    second = run([*RUN, "--stack", stack], place)
    assert second.returncode == 3
    assert str(started.pid) in second.stderr
    assert "Traceback" not in second.stderr
    wait_until(lambda: runs_in(place) >= 1, 120)
    started.send_signal(signal.SIGKILL)
    started.wait()
    kept = runs_in(place)
    assert kept >= 1
    after = run([*RUN, "--stack", stack], place)
    assert after.returncode == 0, after.stderr
    assert "recovered the results of the interrupted session" in after.stderr
    with History.open(str(place / "iowatch.db")) as history:
        states = {row.status: row.runs for row in history.sessions()}
    assert states["ok"] == 3
    assert states["incomplete"] >= kept


@pytest.mark.slow
def test_interrupted_session_is_closed_with_its_status(place: Path, started: subprocess.Popen[bytes]) -> None:
    """Incomplete, unless all results were received before its end."""
    wait_until(lambda: runs_in(place) >= 1, 120)
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 3
    with History.open(str(place / "iowatch.db")) as history:
        (session,) = history.sessions()
        absent = set(history.expected(session.uuid)) - set(history.received(session.uuid))
    assert session.status == ("incomplete" if absent else "ok")
    assert not list((place / "scratch").glob("iowatch-*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; needs root."""
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=False, capture_output=True
    ).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_scratch_without_space_is_refused_before_any_run(place: Path, stack: str, small_disk: Path) -> None:
    result = run([str(IOWATCH), "run", "--suite", "smoke", "--stack", stack, "--scratch", str(small_disk)], place)
    assert result.returncode == 3
    assert "free" in result.stderr
    assert str(small_disk) in result.stderr
    assert runs_in(place) == 0


@pytest.mark.slow
def test_unwritable_scratch_is_reported(place: Path, stack: str) -> None:
    result = run([*RUN, "--stack", stack, "--scratch", "/proc/nowhere"], place)
    assert result.returncode == 3
    assert "/proc/nowhere" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_unknown_stack_is_refused_with_a_suggestion(place: Path, stack: str) -> None:
    result = run([*RUN, "--stack", stack + "x"], place)
    assert result.returncode == 2
    assert f"Did you mean '{stack}'" in result.stderr


def test_machine_without_mpi_is_reported(place: Path, tmp_path: Path) -> None:
    """PATH without any MPI: one message, exit code 3, and no traceback."""
    empty = tmp_path / "bin"
    empty.mkdir()
    result = run(RUN, place, PATH=str(empty))
    assert result.returncode == 3
    assert "no usable stack" in result.stderr
    assert "doctor" in result.stderr
    assert "Traceback" not in result.stderr
