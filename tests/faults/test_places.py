"""Full and read-only file systems: the message names the problem, nothing is lost, work continues with free space."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest

from iowatch.core import IowatchError
from iowatch.output.dashboard.build import build_site
from iowatch.store import History
from tests.conftest import ROOT
from tests.datasets import cases_if
from tests.faults import material
from tests.faults.conftest import LONG, only_long
from tests.faults.kills import Ingest, Site
from tests.faults.places import full, read_only, small

LEVELS = int(os.environ.get("IOWATCH_FAULT_KILLS", "4"))
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
    """The error message of the command line; other exceptions would be reported as internal errors."""
    try:
        work()
    except (IowatchError, OSError) as error:
        return str(error)
    return "went well"


@pytest.mark.parametrize("level", range(LEVELS))
@pytest.mark.parametrize("what", ["var", "database"])
def test_full_disk_during_ingestion_loses_nothing(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, level: int
) -> None:
    draw = Random(f"{what} {level}")
    if what == "database":  # only the database is on the full disk
        monkeypatch.setenv("IOWATCH_DB", str(disk / "history.db"))
        monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "var"))
    work = Ingest(draw)
    work.prepare()
    with full(disk, draw.randrange(0, 90_000)):
        words = outcome(work._recover)
    assert "space" in words or "full" in words or words == "went well"
    assert work.after() == []


@pytest.mark.slow
def test_full_disk_keeps_the_old_site(disk: Path) -> None:
    work = Site(Random(1))
    work._build()
    work.prepare()
    before = (work.site / "index.html").read_text()
    with full(disk, 30_000), pytest.raises(IowatchError, match="space"):
        work._build()
    assert (work.site / "index.html").read_text() == before
    assert work.after() == []


def test_read_only_disk_is_reported(disk: Path) -> None:
    work = Ingest(Random(1))
    work.prepare()
    with History.open() as history:
        material.recorded_sessions(history, Random(2), range(2))
        before = material.content(history)
    with read_only(disk):
        assert "read-only" in outcome(work._recover).lower()
        with pytest.raises(IowatchError, match=r"(?i)read-only"), History.open() as history:
            build_site(history, disk / "var" / "site")
        with History.open() as history:  # what is there can still be seen
            assert material.content(history) == before
    assert work.after() == []


RUNS = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc)"),
    only_long,
]


class Nightly:
    """`iowatch run` of three cases, with separate directories."""

    def __init__(self, var: Path, scratch: Path, database: Path | None = None) -> None:
        from iowatch.site.stack.load import discover_stacks

        stack = next(found.name for found in discover_stacks("local") if found.status == "installed")
        self.words = [str(IOWATCH), "run", "--suite", "tiny", "--stack", stack, "--scratch", str(scratch)]
        self.database, self.scratch = database or var / "iowatch.db", scratch
        self.environment = {**os.environ, "IOWATCH_VAR": str(var), "IOWATCH_DB": str(self.database)}

    def start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.words, env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def run(self) -> tuple[int, str]:
        """Exit code and the complete output."""
        with self.start() as process:
            printed = "".join(process.communicate(timeout=300))
        assert "Traceback" not in printed
        assert "internal error" not in printed
        return process.returncode, printed

    def assert_consistent(self) -> None:
        """Check after a successful run: every session is closed, no run is duplicated, scratch is empty."""
        with History.open(str(self.database)) as history:
            sessions = history.sessions()
            assert [s.status for s in (sessions[0], sessions[-1])] == ["ok", "ok"]
            assert "running" not in {s.status for s in sessions}
            assert all(len({r.name for r in history.runs(s.uuid)}) == s.runs for s in sessions)
        assert not list(self.scratch.glob("iowatch-*"))


class TestRuns:
    """`iowatch run` itself."""

    pytestmark = RUNS

    @pytest.mark.parametrize(
        ("what", "left"), cases_if(LONG, product(("var", "database"), (0, 20_000, 200_000, 500_000, 1_000_000)))
    )
    def test_run_with_full_history_or_var_is_reported(self, disk: Path, tmp_path: Path, what: str, left: int) -> None:
        var = disk / "var" if what == "var" else tmp_path / "var"
        database = disk / "history.db" if what == "database" else None
        nightly = Nightly(var, tmp_path / "scratch", database)
        assert nightly.run()[0] == 0
        with full(disk, left):
            code, printed = nightly.run()
        assert code == 0 or any(word in printed for word in ("space", "free", "full")), printed
        assert nightly.run()[0] == 0
        nightly.assert_consistent()

    def test_full_scratch_during_a_benchmark_is_reported(self, tmp_path: Path) -> None:
        nightly = Nightly(tmp_path / "var", tmp_path / "disk" / "scratch")
        with small(tmp_path / "disk", "2400m") as place:  # the local system keeps 2 GiB free
            if place is None:
                pytest.skip("needs the right to mount a tmpfs (root)")
            assert nightly.run()[0] == 0
            process = nightly.start()
            while process.poll() is None and not list(nightly.scratch.glob("iowatch-*/*")):
                time.sleep(0.005)
            with full(place, 0):
                printed = "".join(process.communicate(timeout=300))
            assert process.returncode == 1, printed
            assert "space" in printed
            assert nightly.run()[0] == 0
            nightly.assert_consistent()
