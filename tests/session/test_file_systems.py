"""Sessions on several file systems of a system: names and keys, one that cannot be used, limits, refusals."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.core import MachineError, UsageError
from iowatch.session import accepted_plan, run
from iowatch.session.context import CaseSelection, make_context, select_cases
from iowatch.session.file_systems import exclude_runs
from iowatch.session.options import SessionOptions
from iowatch.session.verdict import Verdict, assess_session
from iowatch.site import load_system, storage
from iowatch.store import History, SeriesFilter, locks
from tests.conftest import ROOT
from tests.session.test_run import FakeReframe, fake

__all__ = ["fake"]

ONE = """
name: local
title: this machine
scratch: DISK/scratch
"""
TWO = (
    ONE.replace("DISK/scratch", "{path: DISK/scratch, file_system: scratch}")
    + """
file_systems:
  - {name: scratch, technology: ext4, source: a test}
  - name: fast
    directory: {path: MEMORY, type: tmpfs}
    limits: {total_bytes: 1g, files: 1000}
    technology: tmpfs
    source: a test
"""
)


def select(
    file_systems: Sequence[str] = (), case_names: Sequence[str] = (), scratch: Path | None = None
) -> CaseSelection:
    """Select cases of suite `tiny`."""
    return select_cases(
        SessionOptions(system="local", suite="tiny", file_systems=file_systems, case_names=case_names, scratch=scratch)
    )


class Site:
    """The `system.yaml` of `local`, which a test changes, and its sessions of suite `tiny`."""

    def __init__(self, place: Path, memory: Path, history: History) -> None:
        self.place, self.memory, self.history = place, memory, history
        (place / "site/systems/local").mkdir(parents=True)
        (place / "site/site.yaml").write_text("title: A test\n")

    def describe(self, text: str) -> None:
        words = text.replace("DISK", str(self.place)).replace("MEMORY", str(self.memory))
        (self.place / "site/systems/local/system.yaml").write_text(words)

    def run(self, *file_systems: str, scratch: Path | None = None) -> Verdict:
        context = make_context(select(file_systems, scratch=scratch))
        return assess_session(self.history, run.run_suite(self.history, context))

    def series(self) -> dict[str, tuple[str | None, int]]:
        """File system and number of observations of each series, by key of its case and operation."""
        rows = self.history.series(SeriesFilter(system="local"))
        return {row.case.key: (row.case.parameters.get("file_system"), row.n) for row in rows}  # type: ignore[misc]


@pytest.fixture
def site(tmp_path: Path, history: History, fake: FakeReframe, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    memory = Path("/dev/shm", f"iowatch-test-{uuid.uuid4()}")
    made = Site(tmp_path, memory, history)
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    assert fake.site is not None
    yield made
    shutil.rmtree(memory, ignore_errors=True)


def test_second_file_system_leaves_the_series_of_the_first_as_they_are(site: Site) -> None:
    """An upgrade, and a second entry: same runs, same keys, nothing added, nothing missing."""
    site.describe(ONE)
    first = site.run()
    before = site.series()
    site.describe(TWO)
    second = site.run()
    assert (first.exit_code, second.exit_code, second.added, second.missing) == (0, 0, (), ())
    assert site.series() == dict.fromkeys(before, (None, 2))
    third = site.run("all")
    assert (third.exit_code, third.expected) == (0, 2 * first.expected)
    assert {key: found for key, found in site.series().items() if key in before} == dict.fromkeys(before, (None, 3))
    assert [found for key, found in site.series().items() if key not in before] == [("fast", 1)] * len(before)
    # What one session chose is not expected by the next one of the suite.
    assert (site.run().exit_code, site.run("fast").exit_code) == (0, 0)
    used = site.history.sessions("local")[0].facts.file_systems
    assert used["fast"].directory == str(site.memory)
    assert used["fast"].identity["type"] == "tmpfs"


def test_default_file_system_may_not_change_its_name(site: Site) -> None:
    """Its series do not contain the name, so the results of another one would continue them."""
    site.describe(TWO)
    site.run()
    site.describe(TWO.replace("file_system: scratch}", "file_system: other}").replace("name: scratch", "name: other"))
    with pytest.raises(MachineError, match="is 'other', and was 'scratch' in its last session"):
        site.run()


def test_file_system_that_is_not_mounted_loses_only_its_runs(site: Site) -> None:
    """Also in the first session, and until a person accepts it; nothing is written below the missing mount point."""
    site.describe(TWO.replace("type: tmpfs}", "type: lustre}"))
    for _ in range(2):
        found = site.run("all")
        assert (found.status, found.expected, found.received, found.exit_code) == ("incomplete", 12, 6, 1)
        assert {one.run.rpartition("=")[2] for one in found.missing} == {"fast"}
        assert "file system fast cannot be used" in found.missing[0].reason
        assert "found mount /dev/shm, type tmpfs, source" in found.missing[0].reason
        assert "expected type lustre" in found.missing[0].reason
    assert not site.memory.exists()
    assert site.run().exit_code == 0


def test_loss_of_a_file_system_of_the_suite_can_be_accepted(site: Site) -> None:
    site.describe(TWO.replace("type: tmpfs}", "type: lustre}"))
    place = site.place / "site/suites/benchio"
    place.mkdir(parents=True)
    text = (ROOT / "benchmarks/benchio/suites/tiny.yaml").read_text()
    (place / "tiny.yaml").write_text(text.replace("format: 1\n", "format: 1\nfile_systems: all\n"))
    first = site.run()
    assert (first.expected, first.received, first.exit_code) == (12, 6, 1)
    lost = accepted_plan.losses_by_suite(site.history, "local", "tiny", ())["tiny"]
    assert {run.name.rpartition("=")[2] for run in lost} == {"fast"}
    accepted_plan.accept_losses("local", "tiny", lost, "dismantled", "A. Reviewer")
    for _ in range(2):
        found = site.run()
        assert (found.exit_code, found.expected, found.problems) == (0, 6, ())
    site.describe(TWO)
    assert site.run().expected == 12


def test_node_local_file_system_is_left_to_the_jobs(site: Site) -> None:
    """The host of the session does not have its directory; cases on several nodes are not measured there."""
    text = TWO.replace("{path: MEMORY, type: tmpfs}", "{path: /absent/io, type: tmpfs}\n    node_local: true")
    site.describe(text)
    assert (site.run("all").exit_code, Path("/absent").exists()) == (0, False)
    used = site.history.sessions("local")[0].facts.file_systems
    assert used["fast"].model_dump() == {"directory": "/absent/io", "identity": {}}
    selection = select(["all"])
    cases = [replace(case, options=case.options.with_values({"nodes": 2})) for case in selection.cases]
    excluded = exclude_runs(make_context(replace(selection, cases=tuple(cases)))).not_allowed
    assert {name.rpartition("=")[2] for name in excluded} == {"fast"}
    assert "fast is local to each node; the case has 2 nodes" in excluded.values()


def test_file_system_that_does_not_respond_loses_only_its_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below a dead NFS server: whatever looks at the directory waits for ever."""
    site.describe(TWO)
    plain, never = os.path.exists, threading.Event()
    monkeypatch.setattr("os.path.exists", lambda path: never.wait() if path == site.memory else plain(path))
    monkeypatch.setattr(storage, "RESPONSE_S", 0.2)
    found = site.run("all")
    never.set()
    assert (found.expected, found.received, found.exit_code) == (12, 6, 1)
    assert "does not respond" in found.missing[0].reason


def test_file_system_without_space_loses_only_its_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported when its directory is prepared, after the plan was made."""
    site.describe(TWO)

    def full(base: Path, *_: object) -> None:
        if base == site.memory:
            raise MachineError("0 B free")

    monkeypatch.setattr(storage, "check_scratch_space", full)
    found = site.run("all")
    assert (found.expected, found.received, found.exit_code) == (12, 6, 1)
    assert "file system fast cannot be used: 0 B free" in found.missing[0].reason
    with pytest.raises(MachineError, match="0 B free"):
        site.run("fast")


@pytest.mark.parametrize(
    ("described", "chosen", "error", "message"),
    [
        (TWO, ["fsat"], UsageError, r"measures no file system 'fsat'.*Did you mean 'fast'\? Known: scratch, fast"),
        (TWO.replace("type: tmpfs}", "type: lustre}"), ["fast"], MachineError, "expected type lustre"),
        (TWO.replace("type: tmpfs}", "type: lustre}"), ["fast", "scratch"], MachineError, "expected type lustre"),
        (TWO.replace("total_bytes: 1g", "total_bytes: 1m"), ["fast"], UsageError, "byte budget of file system 'fast'"),
        (TWO.replace("files: 1000", "files: 1"), ["fast"], UsageError, r"requires \d files \(limit 1\) on fast"),
    ],
)
def test_impossible_choice_is_refused_before_anything_is_written(
    site: Site, described: str, chosen: Sequence[str], error: type[Exception], message: str
) -> None:
    site.describe(described)
    with pytest.raises(error, match=f"(?s){message}"):
        site.run(*chosen)
    assert site.history.sessions() == []
    assert not site.memory.exists()


def test_case_is_chosen_with_or_without_its_file_system(site: Site) -> None:
    site.describe(TWO)
    short = "benchio:api=posix,file=per-process"
    both = [short, f"{short},file_system=fast"]
    for name, found in ((short, both), (both[1], both[1:]), (both[1].removeprefix("benchio:"), both[1:])):
        assert [case.run_name for case in select(["all"], [name]).cases] == found
    with pytest.raises(UsageError, match="no case 'benchio:api=posix,file=per-process,file_system=fast'"):
        select(case_names=both[1:])  # not on the file systems of the suite


def test_scratch_without_the_default_file_system_is_refused(site: Site) -> None:
    site.describe(TWO)
    with pytest.raises(UsageError, match="--scratch is a directory on file system 'scratch'"):
        site.run("fast", scratch=site.place)


def test_directories_on_one_file_system_share_its_lock(site: Site) -> None:
    """The session does not exclude itself."""
    site.describe(TWO.replace("{path: MEMORY, type: tmpfs}", "DISK/other"))
    assert site.run("all").exit_code == 0
    lock = locks.file_system_lock_path(site.place / "other")
    with locks.hold_lock(lock), pytest.raises(MachineError, match="another session is running"):
        site.run("all")
    assert load_system("local").measured_file_systems[1].parameter == "fast"
