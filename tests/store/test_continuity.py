"""Sessions that the history lost: after the restore of an older backup, deleted ones, another history."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.reference import reviews
from iowatch.session.continuity import lost_session_problems
from iowatch.session.directory import recover_sessions, start_session
from iowatch.store import History
from iowatch.store.maintenance import backup_history, copy_history
from tests.builders import build_output, build_result, build_run, build_session

KINDS = ["sqlite", "postgresql"]
Cli = Callable[..., Result]
NIGHT_S = 86_400
START_S = 1_700_000_000


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without decisions."""
    place = tmp_path / "checkout"
    for name in ("systems", "benchmarks", "reference/reviews"):
        (place / name).mkdir(parents=True)
    monkeypatch.setenv("IOWATCH_ROOT", str(place))
    return place


@pytest.fixture
def night(var: Path) -> Callable[[History, int], None]:
    """Start the session of a night as `iowatch run` does, with one run, and end it."""

    def run(history: History, number: int) -> None:
        uuid = f"night-{number}"
        directory = start_session(history, build_session(uuid, started_at=START_S + number * NIGHT_S), [])
        output = build_output(build_result(1000.0))
        history.record_runs(uuid, [build_run(fingerprint=uuid, started_at=START_S + number * NIGHT_S, output=output)])
        history.end_session(uuid, "ok", START_S + number * NIGHT_S + 60)
        (directory / "ended").touch()

    return run


def execute(history: History, *statements: str) -> None:
    with history.writing() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_are_chained(new_database: Callable[[str], str], night: Callable[..., None], kind: str) -> None:
    """Each names the one before it, of its own system; sessions that begin again are the same ones."""
    with History.open(new_database(kind)) as history:
        for number in range(3):
            night(history, number)
        history.begin_session(build_session("other", system="other", started_at=START_S))
        history.begin_session(build_session("night-1", started_at=START_S + NIGHT_S))
        chain = history.chained_sessions("local")
        assert [session.number for session in chain.values()] == [1, 2, 3]
        assert [session.previous_uuid for session in chain.values()] == [None, "night-0", "night-1"]
        assert chain["night-2"].previous_digest == chain["night-1"].digest
        assert (chain["night-2"].previous_runs, chain["night-2"].previous_results) == (1, 1)
        assert history.chained_sessions("other")["other"].number == 1
        assert lost_session_problems(history, "local") == []


# What somebody does to a history of five nights -> a part of what the next session says.
CUTS = {
    "one in the middle is deleted": (["DELETE FROM session WHERE uuid = 'night-2'"], "lacks 1 session that this"),
    "the last ones are deleted": (
        ["DELETE FROM session WHERE uuid IN ('night-3', 'night-4')"],
        "lacks 2 sessions that this checkout ran on local (newest: night-4",
    ),
    "all are deleted": (["DELETE FROM session"], "lacks 5 sessions that this checkout"),
    "one belongs to another suite": (
        ["UPDATE session SET suite = 'x' WHERE uuid = 'night-2'"],
        "lacks 1 session that this checkout ran on local (newest: night-2",
    ),
    "a run is deleted": (
        ["DELETE FROM run WHERE fingerprint = 'night-2'"],
        "session night-2, the one before night-3 (",
    ),
    "a result is deleted": (
        ["DELETE FROM result WHERE run_id = (SELECT id FROM run WHERE fingerprint = 'night-2')"],
        "had 1 result then, and has 0",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("statements", "message"), CUTS.values(), ids=CUTS)
def test_a_lost_session_is_reported_until_it_is_accepted(
    new_database: Callable[[str], str],
    night: Callable[..., None],
    cli: Cli,
    kind: str,
    statements: list[str],
    message: str,
) -> None:
    place = new_database(kind)
    with History.open(place) as history:
        for number in range(5):
            night(history, number)
        execute(history, *statements)
        # The next sessions do not make it the normal state.
        for number in (5, 6):
            night(history, number)
            (problem,) = lost_session_problems(history, "local")
            assert message in problem
        assert "`iowatch review history --system local --reason TEXT` accepts this" in problem
    listed = cli("review", "history", "--system", "local", "--db", place)
    assert (listed.exit_code, message in listed.output) == (1, True), listed.output
    accepted = cli("review", "history", "--system", "local", "--db", place, "--reason", "test data", "--by", "A")
    assert accepted.exit_code == 0
    with History.open(place) as history:
        assert lost_session_problems(history, "local") == []
        # Another one is another loss.
        execute(history, "DELETE FROM session WHERE uuid = 'night-6'")
        assert len(lost_session_problems(history, "local")) == 1
    (decision,) = reviews.read_decisions("local").histories
    assert decision.reason == "test data"


@pytest.mark.sqlite_file
def test_history_check_finds_a_lost_session(history: History, night: Callable[..., None], cli: Cli) -> None:
    """Without what the checkout knows, too: the next session names the one that was deleted."""
    for number in range(4):
        night(history, number)
    assert cli("history", "check").exit_code == 0
    execute(history, "DELETE FROM session WHERE uuid = 'night-1'")
    checked = cli("history", "check")
    assert (checked.exit_code, "lacks 1 session that this checkout ran" in checked.output) == (1, True)


@pytest.mark.sqlite_file
def test_a_backup_of_another_checkout_is_checked_by_its_chain(
    history: History, night: Callable[..., None], cli: Cli, tmp_path: Path
) -> None:
    for number in range(4):
        night(history, number)
    backup_history(history, tmp_path / "backup.db")
    night(history, 4)
    # It need not have the sessions that were run later.
    assert cli("history", "check", "--db", tmp_path / "backup.db").exit_code == 0
    with History.open(str(tmp_path / "backup.db")) as backup:
        execute(backup, "DELETE FROM session WHERE uuid = 'night-1'")
    checked = cli("history", "check", "--db", tmp_path / "backup.db")
    assert checked.exit_code == 1
    assert "session night-1, the one before night-2 (" in checked.output
    assert "is not in the history any more" in checked.output


@pytest.mark.sqlite_file
def test_restore_of_an_older_backup_is_reported_and_a_copy_repairs_it(
    var: Path, night: Callable[..., None], tmp_path: Path
) -> None:
    with History.open() as history:
        for number in range(3):
            night(history, number)
        backup_history(history, tmp_path / "old.db")
        night(history, 3)
        backup_history(history, tmp_path / "new.db")
    for path in var.glob("iowatch.db*"):
        path.unlink()
    shutil.copy(tmp_path / "old.db", var / "iowatch.db")
    with History.open() as history:
        night(history, 4)
        (problem,) = lost_session_problems(history, "local")
        assert "lacks 1 session" in problem
        assert "restore a newer backup" in problem
        with History.open(str(tmp_path / "new.db")) as backup:
            copy_history(backup, history)
        assert lost_session_problems(history, "local") == []
        night(history, 5)
        assert lost_session_problems(history, "local") == []


@pytest.mark.sqlite_file
def test_another_history_is_reported_with_the_one_that_has_the_sessions(
    var: Path, night: Callable[..., None], tmp_path: Path
) -> None:
    """`IOWATCH_DB` is lost in cron, or names a new database."""
    with History.open() as history:
        night(history, 0)
    with History.open(str(tmp_path / "other.db")) as other:
        night(other, 1)
        (problem,) = lost_session_problems(other, "local")
    assert "lacks 1 session that this checkout ran on local (newest: night-0" in problem
    assert f"that one is in sqlite:///{var}/iowatch.db: use it (IOWATCH_DB, --db), or `iowatch history copy`" in problem


@pytest.mark.parametrize("kind", KINDS)
def test_histories_of_two_checkouts_are_copied_into_one(
    new_database: Callable[[str], str],
    night: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    """Two chains of one system; the next session continues one of them, and nothing is lost."""
    with (
        History.open(new_database("sqlite")) as first,
        History.open(new_database("sqlite")) as second,
        History.open(new_database(kind)) as common,
    ):
        for number in range(3):
            night(first, number)
        monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "other-var"))
        for number in range(10, 12):
            night(second, number)
        copy_history(first, common)
        copy_history(second, common)
        night(common, 20)
        assert lost_session_problems(common, "local") == []
        assert [s.number for s in common.chained_sessions("local").values()] == [1, 1, 2, 2, 3, 4]


def test_a_killed_session_is_known_after_its_recovery(history: History, var: Path) -> None:
    """Killed after the history had it, and before the ledger: the next session adds it."""
    start_session(history, build_session("night-0", started_at=START_S), [])
    shutil.rmtree(var / "sessions")
    assert recover_sessions(history, "local") == ["night-0"]
    execute(history, "DELETE FROM session")
    (problem,) = lost_session_problems(history, "local")
    assert "newest: night-0" in problem


def test_a_line_that_was_cut_off_hides_no_other_one(history: History, var: Path, night: Callable[..., None]) -> None:
    """By a full disk: the next session has a line of its own."""
    night(history, 0)
    ledger = var / "sessions/local.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b'{"session": "night-1", "num')
    night(history, 2)
    execute(history, "DELETE FROM session")
    (problem,) = lost_session_problems(history, "local")
    assert "lacks 2 sessions" in problem


def test_a_misspelt_system_is_refused(history: History, night: Callable[..., None], cli: Cli) -> None:
    night(history, 0)
    done = cli("review", "history", "--system", "locla")
    assert (done.exit_code, "no system 'locla'" in done.output) == (2, True)
