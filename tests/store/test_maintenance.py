"""Maintenance of the history in SQLite and PostgreSQL: copies are the same history, damage is reported."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Done
from sqlalchemy import event, update

from iowatch.core import InputError, MachineError, UsageError, artefacts
from iowatch.store import Artefact, FindingRow, History, RunRecord, SessionFacts, StackRecord, maintenance
from iowatch.store.maintenance import CopyResult, copy_history
from iowatch.store.schema import ArtefactTable
from tests.builders import build_expected_result, build_output, build_result, build_run, build_session

KINDS = ["sqlite", "postgresql"]


def run(number: int, status: str = "ok", samples: tuple[float, ...] = (1.0, 3.0, 2.0)) -> RunRecord:
    case = {"api": ("POSIX", "MPIIO")[number % 2], "ranks": 4}
    results = (build_result(*samples, case=case), build_result(*samples, operation="read", case=case))
    output = build_output(*results, status=status, reason=None if status == "ok" else "cut")  # type: ignore[arg-type]
    stack = StackRecord("gnu", {"mpi": f"4.1.{number % 3}"})
    log = Artefact("darshan", "log", f"{number:064x}", 10)
    return build_run(
        name=f"r{number}",
        partition="compute",
        stack=stack,
        fingerprint=f"fp{number}",
        started_at=1000 + number // 4,
        output=output,
        artefacts=(log,),
    )


def fill(history: History, sessions: int = 3, system: str = "local") -> None:
    """Sessions of four runs, one of them failed; the last session is running."""
    for number in range(sessions):
        uuid = f"{system}-{number}"
        expected = [build_expected_result(f"r{n}", partition="compute") for n in range(4)]
        history.begin_session(build_session(uuid, system=system, suite="smoke", started_at=1000 + number), expected)
        numbers = range(4 * number, 4 * number + 4)
        history.record_runs(uuid, [run(n, "failed" if n % 4 == 3 else "ok") for n in numbers])
        if number < sessions - 1:
            history.end_session(uuid, "failed", 2000 + number)


def content(history: History) -> dict[str, Any]:
    """Everything in a history except row ids, which differ between databases."""
    sessions = history.sessions()
    found: dict[str, Any] = {}
    for row in sessions:
        runs = [
            (
                one.name, one.stack, dict(one.stack_document), one.status, one.reason, one.started_at,
                dict(one.facts.document),
                [(s.case.canonical, s.metric, samples) for s, samples in history.run_results(one.id)],
                history.artefacts(one.id),
            )
            for one in history.runs(row.uuid)
        ]  # fmt: skip
        key = (row.uuid, row.system, row.suite, row.origin, row.status, row.started_at, row.ended_at)
        found[row.uuid] = key, history.expected(row.uuid), runs
    return found


@pytest.mark.parametrize(("left", "right"), [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite")])
def test_copy_is_equal_and_idempotent(new_database: Callable[[str], str], left: str, right: str) -> None:
    with History.open(new_database(left)) as source, History.open(new_database(right)) as target:
        fill(source)
        # Row ids of the target collide with those of the source.
        target.begin_session(build_session("other", system="other", suite="smoke", started_at=5))
        target.record_runs("other", [run(77)])
        assert copy_history(source, target) == CopyResult(sessions=3, runs=12, results=18, findings=0)
        assert copy_history(source, target) == CopyResult(sessions=3, runs=0, results=0, findings=0)
        copied = content(target)
        del copied["other"]
        assert copied == content(source)
        assert maintenance.check_history(target).faults == ()


def test_second_copy_adds_new_runs_of_the_source(new_database: Callable[[str], str]) -> None:
    with History.open(new_database("sqlite")) as source, History.open(new_database("sqlite")) as target:
        fill(source)
        copy_history(source, target)
        source.record_runs("local-2", [run(50)])
        source.end_session("local-2", "ok", 3000)
        assert copy_history(source, target).runs == 1
        assert content(target) == content(source)


def test_aborted_copy_can_be_repeated(new_database: Callable[[str], str]) -> None:
    """The copy is aborted in its second session, after its runs and before its results."""
    with History.open(new_database("sqlite")) as source, History.open(new_database("sqlite")) as target:
        fill(source)
        statements = []

        def interrupt(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            statements.append(statement)
            if sum("INSERT INTO artefact" in one for one in statements) == 2:
                raise KeyboardInterrupt

        event.listen(target.engine, "before_cursor_execute", interrupt)
        with pytest.raises(KeyboardInterrupt):
            copy_history(source, target)
        event.remove(target.engine, "before_cursor_execute", interrupt)
        assert [len(target.runs(row.uuid)) for row in target.sessions()] == [4]
        assert copy_history(source, target).runs == 8
        assert content(target) == content(source)


@pytest.mark.parametrize("seed", range(3))
def test_two_histories_merge_the_same_in_any_order(new_database: Callable[[str], str], seed: int) -> None:
    draw = random.Random(seed)
    runs = [(draw.randrange(2), number, draw.uniform(0.001, 1e9)) for number in draw.sample(range(9), 6)]
    with History.open(new_database("sqlite")) as one, History.open(new_database("sqlite")) as two:
        for history in (one, two):
            history.begin_session(build_session("s", suite="smoke", started_at=1000))
        for side, number, value in runs:
            (one, two)[side].record_runs("s", [run(number, samples=(value, value / 2))])
        copy_history(one, two)
        copy_history(two, one)
        assert {r.name for r in one.runs("s")} == {f"r{number}" for _, number, _ in runs}

        def by_name(history: History) -> dict[str, Any]:
            return {r.name: [v for _, v in history.run_results(r.id)] for r in history.runs("s")}

        assert by_name(one) == by_name(two)


def finding(history: History, updated_at: int = 10) -> FindingRow:
    """The fields of a finding that a copy uses."""
    (first, *_, last) = history.runs("local-1")
    series = history.series()[0].id
    members = [{"series_id": series, "run_before": first.id, "run_after": last.id, "name": "x"}]
    return FindingRow("local-1", "local", 5, updated_at, "open", {"members": members, "line": "half"})


@pytest.mark.parametrize("kind", KINDS)
def test_copied_findings_refer_to_the_same_runs_and_series(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database("sqlite")) as source, History.open(new_database(kind)) as target:
        fill(source)
        source.save_findings([finding(source)])
        fill(target, system="another")  # uses the same fingerprints and row ids
        with pytest.raises(UsageError):
            copy_history(source, source)
        assert copy_history(source, target).findings == 1
        assert copy_history(source, target).findings == 0
        (copied,) = target.findings("local")
        (here,) = source.findings("local")
        for end in ("run_before", "run_after"):
            names = [
                history.run(row.document["members"][0][end]).name for history, row in ((source, here), (target, copied))
            ]
            assert names[0] == names[1]
        source.save_findings([finding(source, updated_at=20)])
        assert copy_history(source, target).findings == 1
        assert target.findings("local")[0].updated_at == 20
        # An older finding does not replace a newer one.
        source.save_findings([finding(source, updated_at=15)])
        assert copy_history(source, target).findings == 0
        assert target.findings("local")[0].updated_at == 20


def test_single_system_can_be_copied(new_database: Callable[[str], str]) -> None:
    with History.open(new_database("sqlite")) as source, History.open(new_database("sqlite")) as target:
        fill(source)
        source.save_findings([finding(source)])
        source.begin_session(build_session("x", system="other", suite="smoke", started_at=1))
        copy_history(source, target, "other")
        assert target.systems() == ["other"]
        assert target.findings("local") == []
        with pytest.raises(UsageError, match="no system"):
            copy_history(source, target, "nowhere")


# Check


@pytest.mark.parametrize("kind", KINDS)
def test_valid_history_has_no_fault(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database(kind)) as history:
        fill(history)
        found = maintenance.check_history(history)
    assert (found.sessions, found.runs, found.results, found.faults) == (3, 12, 18, ())
    assert found.size_bytes > 0
    # A running session of 1970; logs that are not in the artefact store.
    assert "local-2 never ended" in found.notes[0]
    assert "12 files" in found.notes[1]


def test_check_notes_sessions_open_for_two_days_and_missing_files(new_database: Callable[[str], str]) -> None:
    """Of two running sessions one began 47 hours ago and the other 49; 12 files of 10 B are missing."""
    now = int(time.time())
    with History.open(new_database("sqlite")) as history:
        fill(history)
        history.end_session("local-2", "ok", 3000)
        for hours in (47, 49):
            history.begin_session(build_session(f"{hours}-hours", suite="smoke", started_at=now - hours * 3600))
        notes = maintenance.check_history(history).notes
    assert "12 files of runs (120 B)" in notes[-1]
    assert [note for note in notes if "never ended" in note] == [
        "session 49-hours never ended; the next run on its system closes it"
    ]


def test_damaged_kept_files_are_reported(var: Path, tmp_path: Path, new_database: Callable[[str], str]) -> None:
    """Of three kept files one is intact, one is truncated and one has other content of the same size."""
    stored = []
    for number in range(3):
        source = tmp_path / f"{number}.out"
        source.write_text(f"output {number}")
        stored.append(Artefact("stdout", source.name, *astuple(artefacts.store_artefact(source))))
    artefacts.artefact_path(stored[1].sha256).write_text("out")
    artefacts.artefact_path(stored[2].sha256).write_text("output X")
    with History.open(new_database("sqlite")) as history:
        history.begin_session(build_session("s", suite="smoke", started_at=1000))
        history.record_runs("s", [replace(run(0), artefacts=tuple(stored))])
        (fault,) = maintenance.check_history(history).faults
    assert fault.startswith("2 kept files do not have the content that their names state")
    assert [one.sha256 in fault for one in stored] == [False, True, True]


DAMAGE = {
    "UPDATE result SET n = 7 WHERE run_id = 1 AND series_id = 1": "1 results without all their samples",
    "UPDATE result SET max = 0 WHERE run_id = 1 AND series_id = 2": "whose summaries are out of order",
    "UPDATE result SET max = 99 WHERE run_id = 2 AND series_id = 3": "result of run 2 in series 3: its summary",
    "UPDATE result SET median = 2.5 WHERE run_id = 3 AND series_id = 1": "run 3 in series 1: its summary",
    "UPDATE expected_set SET items = '[]'": "1 list of expected results does not have the content",
    "UPDATE result SET time = 1 WHERE run_id = 2 AND series_id = 4": "1 results at another time than their run",
    "INSERT INTO system (id, name) VALUES (99, 'x')": "",
    "UPDATE series SET system_id = 99 WHERE id = (SELECT series_id FROM result LIMIT 1)": "of another system",
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_rows_are_reported(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database(kind)) as history:
        fill(history)
        with history.writing() as connection:
            for statement in DAMAGE:
                connection.exec_driver_sql(statement)
        faults = "\n".join(maintenance.check_history(history).faults)
    for fault in DAMAGE.values():
        assert fault in faults


def test_damaged_file_is_reported(new_database: Callable[[str], str], cli: Callable[..., Done]) -> None:
    place = new_database("sqlite")
    with History.open(place) as history:
        fill(history, sessions=40)
    data = bytearray(Path(place).read_bytes())
    page = 4096
    for start in range(20 * page, len(data) - page, 3 * page):
        data[start : start + 200] = b"\xa5" * 200
    Path(place).write_bytes(data)
    done = cli("history", "check", "--db", place)
    assert done.exit_code in (1, 3)
    assert "fault" in done.output or "malformed" in done.output
    copied = cli("history", "copy", place, new_database("sqlite"))
    assert copied.exit_code in (2, 3)
    assert "damaged" in copied.output or "malformed" in copied.output


def test_damaged_file_is_not_copied(new_database: Callable[[str], str]) -> None:
    """Half a page of an index: SQLite opens it and reads sessions."""
    place = new_database("sqlite")
    with History.open(place) as history:
        fill(history)
        with history.reading() as connection:
            query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_result_series_time'"
            page = connection.exec_driver_sql(query).scalar_one()
    data = bytearray(Path(place).read_bytes())
    data[page * 4096 - 2048 : page * 4096] = bytes(2048)
    Path(place).write_bytes(data)
    with History.existing(place) as source, History.open(new_database("sqlite")) as target:
        with pytest.raises(InputError, match="is damaged"):
            copy_history(source, target)
        assert target.sessions() == []
        assert maintenance.check_history(source).faults


# Backup


@pytest.mark.parametrize("kind", KINDS)
def test_restored_backup_equals_the_history(new_database: Callable[[str], str], kind: str, tmp_path: Path) -> None:
    file = tmp_path / "backup" / "one.db"
    file.parent.mkdir()
    place = new_database(kind)
    with History.open(place) as history:
        fill(history)
        before = content(history)
        assert maintenance.backup_history(history, file) == file.stat().st_size
        with pytest.raises(UsageError, match="exists"):
            maintenance.backup_history(history, file)
    assert list(file.parent.iterdir()) == [file]
    with History.existing(str(file)) as saved, History.open(new_database("sqlite")) as fresh:
        copy_history(saved, fresh)
        assert content(fresh) == before


def test_backup_is_restored_into_postgresql(new_database: Callable[[str], str], tmp_path: Path) -> None:
    with History.open(new_database("sqlite")) as history:
        fill(history)
        before = content(history)
        maintenance.backup_history(history, tmp_path / "b.db")
    with History.existing(str(tmp_path / "b.db")) as saved, History.open(new_database("postgresql")) as fresh:
        copy_history(saved, fresh)
        assert content(fresh) == before


def test_backup_removes_the_drafts_of_a_killed_one(new_database: Callable[[str], str], tmp_path: Path) -> None:
    """A killed copy leaves the draft and SQLite's log; a young draft may be that of a running backup."""
    folder = tmp_path / "backup"
    folder.mkdir()
    for name in (".b.db.1", ".b.db.1-wal", ".b.db.1-shm", ".b.db.2"):
        (folder / name).write_text("half")
        os.utime(folder / name, (0, 0) if name != ".b.db.2" else None)
    with History.open(new_database("sqlite")) as history:
        maintenance.backup_history(history, folder / "b.db")
    assert sorted(path.name for path in folder.iterdir()) == [".b.db.2", "b.db"]


def test_restoring_a_backup_keeps_newer_runs(new_database: Callable[[str], str], tmp_path: Path) -> None:
    """A backup is copied into a history with newer runs: these are kept."""
    with History.open(new_database("sqlite")) as history:
        fill(history)
        maintenance.backup_history(history, tmp_path / "b.db")
        history.record_runs("local-2", [run(60)])
        later = content(history)
        with History.existing(str(tmp_path / "b.db")) as saved:
            assert copy_history(saved, history).runs == 0
        assert content(history) == later


def test_backup_during_a_write_is_complete(new_database: Callable[[str], str], tmp_path: Path) -> None:
    with History.open(new_database("sqlite")) as history:
        fill(history)
        with history.writing() as connection:
            connection.exec_driver_sql("UPDATE session SET expected_set_id = NULL")
            maintenance.backup_history(history, tmp_path / "b.db")
    with History.open(str(tmp_path / "b.db")) as copied:
        assert len(copied.expected("local-0")) == 4


@pytest.mark.parametrize("text", [b"", b"SQLite format 3\0 and no more", b"hello" * 1000])
def test_files_that_are_no_backup_are_refused(cli: Callable[..., Done], tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "b.db"
    file.write_bytes(text)
    target = tmp_path / "target.db"
    for source in (file, tmp_path / "none.db"):
        done = cli("history", "copy", source, target)
        assert done.exit_code in (2, 3)
        assert source.name in done.stderr
        assert not target.exists()


def test_unwritable_backup_path_is_reported(new_database: Callable[[str], str], tmp_path: Path) -> None:
    with History.open(new_database("sqlite")) as history, pytest.raises(MachineError, match="cannot write"):
        maintenance.backup_history(history, tmp_path / "absent" / "b.db")


# Pruning


def test_prune_keeps_the_evidence_of_findings(var: Path, tmp_path: Path, cli: Callable[..., Done]) -> None:
    digests = []
    for number in range(3):
        file = tmp_path / "log"
        file.write_text(f"log {number}")
        digest = artefacts.store_artefact(file).sha256
        digests.append(digest)
        os.utime(artefacts.artefact_path(digest), (time.time() - 100 * 86400,) * 2)
    with History.open() as history:
        fill(history)
        numbers = [one.id for one in history.runs("local-1")]
        with history.writing() as connection:
            for run_id, digest in zip((numbers[0], numbers[1]), digests, strict=False):
                of_run = ArtefactTable.run_id == run_id
                connection.execute(update(ArtefactTable).where(of_run).values(sha256=digest))
        history.save_findings([finding(history)])  # its first run is numbers[0]
    assert cli("history", "prune").exit_code == 2
    dry_run = json.loads(cli("history", "prune", "--days", 30, "--dry-run", "--json").stdout)
    assert set(dry_run["removed"]) == {digests[1], digests[2]}
    assert cli("history", "prune", "--days", 30).exit_code == 0
    assert [artefacts.artefact_path(digest).exists() for digest in digests] == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_only_records_of_missing_files_are_deleted(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database(kind)) as history:
        fill(history)
        before = {r.name: [v for _, v in history.run_results(r.id)] for r in history.runs("local-1")}
        assert maintenance.delete_artefact_rows(history, [f"{4:064x}", f"{5:064x}", f"{99:064x}"]) == 2
        left = [len(history.artefacts(one.id)) for one in history.runs("local-1")]
        assert left == [0, 0, 1, 1]
        assert before == {r.name: [v for _, v in history.run_results(r.id)] for r in history.runs("local-1")}


def test_commands_report_their_result(cli: Callable[..., Done], var: Path, tmp_path: Path) -> None:
    with History.open() as history:
        fill(history)
    file, other = tmp_path / "b.db", tmp_path / "other.db"
    assert "no fault" in cli("history", "check").stdout
    assert cli("history", "backup", file).exit_code == 0
    assert json.loads(cli("history", "copy", file, other, "--json").stdout)["runs"] == 12
    assert "12 runs" not in cli("history", "copy", file, other).output
    missing = cli("history", "copy", tmp_path / "none.db", other)
    assert (missing.exit_code, (tmp_path / "none.db").exists()) == (2, False)


@pytest.mark.parametrize("kind", KINDS)
def test_history_with_text_that_a_database_refuses_can_be_copied(new_database: Callable[[str], str], kind: str) -> None:
    """SQLite stores NUL, and lone surrogates in JSON; an earlier iowatch stored them as they were."""
    damaged = replace(run(3, "failed"), facts={"command": "ior \0 \udcff"})
    damaged = replace(damaged, output=replace(damaged.output, reason="killed\0"))
    with History.open(new_database("sqlite")) as source, History.open(new_database(kind)) as target:
        source.begin_session(build_session("s", suite="smoke", started_at=1000, facts=SessionFacts(scratch="/a\0b")))
        source.record_runs("s", [damaged])
        assert [copy_history(source, target).runs for _ in range(2)] == [1, 0]
        (copied,) = target.runs("s")
        assert (copied.reason, copied.facts.command) == ("killed\ufffd", "ior \ufffd \ufffd")
        assert target.session("s").facts.document == {"scratch": "/a\ufffdb"}


@pytest.mark.parametrize(
    ("word", "answer"),
    [("restore", "Did you mean 'copy'? `iowatch history copy BACKUP"), ("verify", "'check'"), ("chek", "'check'")],
)
def test_another_word_for_a_command_is_answered_with_its_name(cli: Callable[..., Done], word: str, answer: str) -> None:
    done = cli("history", word, "backup.db")
    assert (done.exit_code, answer in done.output) == (2, True), done.output
