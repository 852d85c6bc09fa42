"""Full and read-only file systems: the message says so, nothing is lost, it goes on when there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from iowatch.dashboard.build import build
from iowatch.errors import IowatchError
from iowatch.store import History
from tests.conftest import ROOT
from tests.faults import material
from tests.faults.kills import Ingest, Site
from tests.faults.places import full, read_only, small

LEVELS = int(os.environ.get("IOWATCH_FAULT_KILLS", "8"))
IOWATCH = ROOT / ".venv" / "bin" / "iowatch"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file system; `var/` is on it."""
    with small(tmp_path / "disk") as place:
        if place is None:
            pytest.skip("needs the right to mount a tmpfs (root)")
        monkeypatch.setenv("IOWATCH_VAR", str(place / "var"))
        monkeypatch.delenv("IOWATCH_DB", raising=False)
        yield place


def outcome(work: Callable[[], object]) -> str:
    """The message as the command line prints it; an error of another kind would be told as an internal one."""
    try:
        work()
    except (IowatchError, OSError) as error:
        return str(error)
    return "went well"


@pytest.mark.parametrize("level", range(LEVELS))
@pytest.mark.parametrize("what", ["var", "database"])
def test_a_disk_that_fills_up_while_a_night_is_taken_in(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, level: int
) -> None:
    draw = Random(f"{what} {level}")
    if what == "database":  # alone on the disk that fills up
        monkeypatch.setenv("IOWATCH_DB", str(disk / "history.db"))
        monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "var"))
    work = Ingest(draw)
    work.prepare()
    with full(disk, draw.randrange(0, 90_000)):
        words = outcome(work._recover)
    assert "space" in words or "full" in words or words == "went well"
    assert work.after() == []


def test_a_full_disk_leaves_the_old_site(disk: Path) -> None:
    work = Site(Random(1))
    work._build()
    work.prepare()
    before = (work.site / "index.html").read_text()
    with full(disk, 30_000), pytest.raises(IowatchError, match="space"):
        work._build()
    assert (work.site / "index.html").read_text() == before
    assert work.after() == []


def test_a_disk_that_can_only_be_read(disk: Path) -> None:
    work = Ingest(Random(1))
    work.prepare()
    with History.open() as history:
        material.recorded_nights(history, Random(2), range(2))
        before = material.content(history)
    with read_only(disk):
        assert "read-only" in outcome(work._recover).lower()
        with pytest.raises(IowatchError, match=r"(?i)read-only"), History.open() as history:
            build(history, disk / "var" / "site")
        with History.open() as history:  # what is there can still be seen
            assert material.content(history) == before
    assert work.after() == []


@pytest.mark.end_to_end
@pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc)")
@pytest.mark.skipif(
    "IOWATCH_FAULT_KILLS" not in os.environ, reason="builds and runs benchmarks: IOWATCH_FAULT_KILLS"
)
@pytest.mark.parametrize("left", [0, 20_000, 200_000, 500_000, 1_000_000])
@pytest.mark.parametrize("what", ["var", "database", "scratch"])
def test_iowatch_run_on_a_full_disk(disk: Path, tmp_path: Path, what: str, left: int) -> None:
    from iowatch.stacks import discover

    stack = next(found.name for found in discover("local") if found.status == "installed")
    var = disk / "var" if what == "var" else tmp_path / "var"
    environment = {**os.environ, "IOWATCH_VAR": str(var)}
    if what == "database":
        environment["IOWATCH_DB"] = str(disk / "history.db")
    words = [str(IOWATCH), "run", "--suite", "tiny", "--stack", stack]
    words += ["--scratch", str(disk / "scratch")] if what == "scratch" else []

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert run().returncode == 0
    with full(disk, left):
        short = run()
    assert "Traceback" not in short.stderr
    assert short.returncode in (0, 1, 3)
    if short.returncode:
        assert any(word in short.stdout + short.stderr for word in ("space", "free", "full")), short
    assert run().returncode == 0
    with History.open(environment.get("IOWATCH_DB") or str(var / "iowatch.db")) as history:
        sessions = history.sessions()
        assert [s.status for s in (sessions[0], sessions[-1])] == ["ok", "ok"]
        assert "running" not in {s.status for s in sessions}
        assert all(len({r.name for r in history.runs(s.uuid)}) == s.runs for s in sessions)
    assert not list((disk / "scratch").glob("iowatch-*"))
