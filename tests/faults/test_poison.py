"""Damaged spooled cases block nothing: they are quarantined with the reason, and reported until somebody decides."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from click.testing import Result

from iowatch import checks
from iowatch.core import InputError
from iowatch.session.directory import recover_sessions
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import assess_session
from iowatch.store import History, SessionRecord
from tests.faults import material
from tests.faults.kills import forked
from tests.faults.poison import CLEANED, DAMAGES, poisoned_intake, spool_with

KINDS = ["sqlite", "postgresql"]


@pytest.fixture
def place(request: pytest.FixtureRequest, var: Path) -> str | None:
    """The history of a kind of database."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgresql_url"))


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_damaged_cases_block_no_other_case(place: str | None) -> None:
    assert len(DAMAGES) >= 26
    assert poisoned_intake(place) == []


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_text_that_a_database_refuses_is_cleaned_and_the_case_stored(place: str | None) -> None:
    """U+FFFD stands for each refused character (Unicode standard, 3.9: replacement of ill-formed sequences)."""
    with History.open(place) as history:
        directory, good = spool_with(history, list(CLEANED.values()))
        recover_sessions(history, material.SYSTEM)
        runs = history.runs(directory.name)
        assert len(runs) == len(good) + len(CLEANED)
        assert checks.quarantined_cases() == []
        facts = [str((run.reason, run.version, dict(run.facts.document))) for run in runs]
        assert sum("\N{REPLACEMENT CHARACTER}" in text for text in facts) == len(CLEANED) - 1  # one is in a parameter
        assert any("a\N{REPLACEMENT CHARACTER}b" in row.case.canonical for row in history.series())


@pytest.mark.parametrize("place", KINDS, indirect=True)
@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"uuid": "other", "system": "local"}', '{"expected": 1}'], ids=repr
)
def test_damaged_session_blocks_no_other_session(place: str | None, content: str) -> None:
    with History.open(place) as history:
        damaged, _ = spool_with(history, [])
        other, _ = spool_with(history, [], 1_700_100_000)
        (damaged / "session.json").write_text(content)
        assert recover_sessions(history, material.SYSTEM) == [other.name]
        (found,) = checks.quarantined_cases()
        assert (found.session, found.path.name) == (damaged.name, "session")
        assert "does not describe a session" in found.text
        assert recover_sessions(history, material.SYSTEM) == []


def test_repaired_case_is_stored_by_the_next_session(var: Path) -> None:
    with History.open() as history:
        directory, good = spool_with(history, [DAMAGES["wrong format number"][0]])
        recover_sessions(history, material.SYSTEM)
        (found,) = checks.quarantined_cases()
        path = found.path / "case" / "case.json"
        path.write_text(path.read_text().replace('"format": 99', '"format": 1'))
        (found.path / "case").rename(directory / "cases" / found.path.name)
        recover_sessions(history, material.SYSTEM)
        assert len(history.runs(directory.name)) == len(good) + 1
        assert checks.finished_case_directories(directory) == []


def test_case_that_is_damaged_again_has_its_own_place(var: Path) -> None:
    """Both copies stay: which of them is of use is for a person to decide."""
    place = var / "runs" / "s" / "cases" / "a"
    for _ in range(2):
        place.mkdir(parents=True)
        checks.quarantine(place, "s", "broken")
    assert [one.path.name for one in checks.quarantined_cases()] == ["a", "a-2"]


def test_quarantined_case_is_reported_by_every_session_of_its_system(var: Path, cli: Callable[..., Result]) -> None:
    with History.open() as history:
        directory, _ = spool_with(history, [DAMAGES["wrong format number"][0]])
        recover_sessions(history, material.SYSTEM)
        material.recorded_sessions(history, Random(1), range(1))
        for system, number in ((material.SYSTEM, 1), ("another", 0)):
            record = SessionRecord(f"later-{system}", system, "smoke", "run", 1_800_000_000)
            history.begin_session(record)
            history.end_session(record.uuid, "ok", 1_800_000_001)
            verdict = assess_session(history, SessionSummary(record.uuid))
            assert (len(verdict.problems), verdict.exit_code) == (number, number)
    (found,) = checks.quarantined_cases()
    checked = cli("history", "check")
    assert checked.exit_code == 1
    for text in (str(found.path), "format 99, expected 1", "remove that directory"):
        assert text in checked.output
    shutil.rmtree(found.path)  # the decision
    assert cli("history", "check").exit_code == 0
    assert directory.name == found.session


def test_unreadable_case_blocks_no_other_case(var: Path) -> None:
    """A directory without permissions; root may read everything, so that another account looks at it."""
    place = var / "runs" / "s" / "cases" / "a"
    place.mkdir(parents=True)
    (place / "case.json").write_text("{}")
    for path in (var.parent, var, *var.rglob("*")) if os.geteuid() == 0 else ():
        os.chown(path, 65534, 65534)
    place.chmod(0)

    def look() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        (found,) = checks.finished_case_directories(place.parents[1])
        with pytest.raises(InputError):
            checks.read_spooled_case(found)
        checks.quarantine(found, "s", "unreadable")
        assert checks.finished_case_directories(place.parents[1]) == []

    assert os.waitstatus_to_exitcode(os.waitpid(forked(look), 0)[1]) == 0
