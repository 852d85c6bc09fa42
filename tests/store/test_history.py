"""The history: nothing lost, nothing duplicated, files of other programs refused."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect

from iowatch.core import InputError, MachineError, UsageError
from iowatch.store import History, ResultFilter, RunRecord, RunSessions, SeriesFilter, SessionRecord, StackRecord, bulk
from iowatch.store.engine import SCHEMA_HEAD, schema_revision
from iowatch.store.schema import VIEW_NAMES, Base
from tests.builders import build_expected_result, build_output, build_result, build_run, build_session


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, var: Path) -> str:
    """An empty database of each kind: the same tests hold for both."""
    if request.param == "sqlite":
        return str(var / "iowatch.db")
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def history(place: str) -> Iterator[History]:
    with History.open(place) as opened:
        yield opened


def session(uuid: str = "s1", system: str = "local", started_at: int = 1000) -> SessionRecord:
    return build_session(uuid, system=system, suite="smoke", started_at=started_at)


def run(
    fingerprint: str,
    *,
    name: str = "a",
    samples: tuple[float, ...] = (1.0, 3.0, 2.0),
    started_at: int = 1000,
    status: str = "ok",
) -> RunRecord:
    result = build_result(*samples, case={"api": "POSIX", "ranks": 4})
    output = build_output(result, tool="benchio", status=status, reason=None if status == "ok" else "cut")  # type: ignore[arg-type]
    return build_run(
        name=name,
        stack=StackRecord("gnu", {"mpi": "4.1.4"}),
        fingerprint=fingerprint,
        started_at=started_at,
        output=output,
    )


def test_recorded_session_is_read_back(history: History) -> None:
    expected = [build_expected_result("a")]
    history.begin_session(session(), expected)
    assert history.record_runs("s1", [run("f1")]) == 1
    history.end_session("s1", "ok", 1100)

    assert history.session("s1").status == "ok"
    assert history.expected("s1") == expected == history.received("s1")
    (series,) = history.series()
    assert (series.system, series.stack, series.case.parameters["api"], series.n) == ("local", "gnu", "POSIX", 1)
    assert history.samples(series.id) == [(1000, 1, (1.0, 3.0, 2.0))]
    points = history.points([series.id])[series.id]
    assert (points.max[0], points.median[0], points.min[0], points.mean[0]) == (3.0, 2.0, 1.0, 2.0)


def test_ingestion_is_idempotent(history: History) -> None:
    for _ in range(2):
        history.begin_session(session(), [build_expected_result("a")])
        history.record_runs("s1", [run("f1"), run("f1")])
    assert len(history.runs("s1")) == 1
    assert len(history.expected("s1")) == 1
    assert history.series()[0].n == 1


def test_failed_run_is_stored_but_is_no_point_of_a_series(history: History) -> None:
    history.begin_session(session())
    history.record_runs("s1", [run("f1", status="incomplete")])
    (kept,) = history.runs("s1")
    assert kept.status == "incomplete"
    assert kept.facts.partial_results[0]["samples"] == [1.0, 3.0, 2.0]
    assert history.series() == []


def test_points_are_ordered_by_time(history: History) -> None:
    history.begin_session(session())
    history.record_runs("s1", [run(f"f{t}", started_at=t) for t in (30, 10, 20)])
    (row,) = history.series()
    assert (row.n, row.first, row.last) == (3, 10, 30)
    assert history.points([row.id])[row.id].time.tolist() == [10, 20, 30]
    assert history.points([row.id], since=20)[row.id].time.tolist() == [20, 30]


def test_last_stack_is_of_the_latest_time_then_of_the_latest_run(history: History) -> None:
    history.begin_session(session(), [])
    for number, (moment, version) in enumerate([(30, "3"), (10, "1"), (30, "4"), (20, "2")]):
        stack = StackRecord("gnu", {"mpi": version})
        history.record_runs("s1", [replace(run(f"f{number}", started_at=moment), stack=stack)])
    (row,) = history.series()
    assert history.last_stacks([row.id, row.id + 1]) == {row.id: {"mpi": "4"}}


def test_period_includes_its_start_but_not_its_end(history: History) -> None:
    """`since` <= time < `until`, for points and for exported results."""
    history.begin_session(session())
    history.record_runs("s1", [run(f"f{t}", started_at=t) for t in (10, 20, 30)])
    (row,) = history.series()
    assert history.points([row.id], since=10, until=30)[row.id].time.tolist() == [10, 20]
    assert history.points([row.id], since=11, until=31)[row.id].time.tolist() == [20, 30]
    assert [one.time for one in history.results(ResultFilter(since=10, until=30))] == [10, 20]
    assert [one.time for one in history.results(ResultFilter(since=11, until=31))] == [20, 30]


def test_samples_are_read_including_both_ends_of_the_period(history: History) -> None:
    history.begin_session(session())
    values = {10: (1.0, 2.0), 20: (3.0,), 30: (4.0, 6.0, 5.0)}
    history.record_runs("s1", [run(f"f{t}", started_at=t, samples=v) for t, v in values.items()])
    (row,) = history.series()
    with history.reading() as connection:
        (some,) = bulk.read_series_samples(connection, [row.id], since=20, until=30)
        (every,) = bulk.read_series_samples(connection, [row.id])
        assert list(bulk.read_series_samples(connection, [row.id], since=31)) == []
    assert (some.time.tolist(), some.samples.tolist()) == ([20, 30], [3.0, 4.0, 6.0, 5.0])
    assert every.samples.tolist() == [1.0, 2.0, 3.0, 4.0, 6.0, 5.0]
    ends = every.only(np.array([True, False, True]))
    assert (ends.time.tolist(), ends.max.tolist()) == ([10, 30], [2.0, 6.0])
    assert ends.samples.tolist() == [1.0, 2.0, 4.0, 6.0, 5.0]


def test_runs_of_concurrent_sessions_belong_to_their_sessions(history: History) -> None:
    """Runs 1 to 6 alternate between two sessions, 7 and 8 belong to a third; other runs have no session."""
    uuids = ["a", "b", "c"]
    for uuid in uuids:
        history.begin_session(session(uuid))
    order = ["a", "b", "a", "b", "a", "b", "c", "c"]
    for number, uuid in enumerate(order):
        history.record_runs(uuid, [run(f"f{number}")])
    numbers = {row.uuid: row.id for row in history.sessions()}
    with history.reading() as connection:
        known = bulk.run_sessions(connection)
    runs = [one.id for uuid in uuids for one in history.runs(uuid)]
    expected = [numbers[uuid] for uuid in uuids for _ in history.runs(uuid)]
    assert known.of(np.array(runs)).tolist() == expected
    assert known.of(np.array([0, max(runs) + 1])).tolist() == [-1, -1]
    gap = RunSessions(np.array([3, 7]), np.array([1, 2]))
    assert gap.of(np.array([2, 3, 5, 7, 9])).tolist() == [-1, 1, -1, 2, -1]


def test_stack_is_in_use_from_its_first_run_to_its_last(history: History) -> None:
    history.begin_session(session())
    for number, (moment, version) in enumerate([(30, "new"), (10, "old"), (20, "old"), (40, "new"), (25, "old")]):
        stack = StackRecord("gnu", {"mpi": version})
        history.record_runs("s1", [replace(run(f"f{number}", started_at=moment), stack=stack)])
    with history.reading() as connection:
        uses = bulk.stack_uses(connection)
        documents = bulk.stack_documents(connection)
    assert [(documents[use.digest][1], use.first, use.last, use.runs) for use in uses] == [
        ({"mpi": "old"}, 10, 25, 3),
        ({"mpi": "new"}, 30, 40, 2),
    ]


def test_unknown_series_has_no_points(history: History) -> None:
    assert len(history.points([99])[99].time) == 0


def test_filters_select_series(history: History) -> None:
    for number, system in enumerate(("one", "two")):
        history.begin_session(session(system, system))
        history.record_runs(system, [run(f"f{number}")])
    assert [row.system for row in history.series(SeriesFilter(system="two"))] == ["two"]
    assert history.series(SeriesFilter(benchmark="ior")) == []


def test_session_is_found_by_a_prefix_of_its_uuid(history: History) -> None:
    history.begin_session(session("abc-1"))
    history.begin_session(session("abd-2"))
    assert history.session("abc").uuid == "abc-1"
    for wrong in ("ab", "x", "%", "a_c", "ab_-"):
        with pytest.raises(UsageError):
            history.session(wrong)


def test_runs_need_a_session(history: History) -> None:
    with pytest.raises(InputError, match="nowhere"):
        history.record_runs("nowhere", [run("f1")])


def test_failed_transaction_stores_nothing(history: History) -> None:
    history.begin_session(session())
    second_run = run("f2")
    without_samples = replace(second_run.output.results[0], samples=())
    second_run = replace(second_run, output=replace(second_run.output, results=(without_samples,)))
    with pytest.raises(InputError):
        history.record_runs("s1", [run("f1"), second_run])
    assert history.runs("s1") == []


def test_migrations_give_the_schema_of_the_models(history: History) -> None:
    """Columns, keys and indices as the database reports them; Alembic finds no difference."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with history.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert schema_revision(connection) == SCHEMA_HEAD
        views = inspect(connection).get_view_names()
    assert set(views) == (set(VIEW_NAMES) if history.engine.dialect.name == "postgresql" else set())


def test_file_that_is_no_database_is_refused(var: Path) -> None:
    var.mkdir()
    (var / "iowatch.db").write_text("name,value\n")
    with pytest.raises(InputError, match="not an SQLite database"):
        History.open()
    assert (var / "iowatch.db").read_text() == "name,value\n"


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (id INTEGER)")
    with pytest.raises(InputError, match="another program"):
        History.open(str(path))


@pytest.mark.parametrize(
    ("version", "remedy"), [("9999", "newer iowatch"), ("0004", "Export it with the iowatch that wrote it")]
)
def test_history_of_another_version_is_refused(history: History, place: str, version: str, remedy: str) -> None:
    with history.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
    for open_place in (History.open, History.existing):
        with pytest.raises(InputError, match=version) as refused:
            open_place(place)
        assert remedy in (refused.value.hint or "")


def test_alembic_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """Alembic's table and a table with the name of one of iowatch."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.executescript(
            "CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('ae1027a6acf');"
            "CREATE TABLE session (id INTEGER)"
        )
    with pytest.raises(InputError, match="another program") as refused:
        History.open(str(path))
    assert "--db" in (refused.value.hint or "")


def test_damaged_history_is_reported(var: Path) -> None:
    path = var / "iowatch.db"
    History.open(str(path)).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises((MachineError, InputError)):
        History.open(str(path)).series()


def test_uncreatable_path_is_reported() -> None:
    with pytest.raises(MachineError, match="/proc"):
        History.open("/proc/nowhere/iowatch.db")


def test_invalid_url_is_reported() -> None:
    with pytest.raises(UsageError):
        History.open("nonsense://x")


def _write(place: str, worker: int) -> None:
    with History.open(place) as history:
        history.begin_session(session(f"s{worker}", started_at=worker))
        for number in range(10):
            history.record_runs(f"s{worker}", [run(f"f{worker}-{number}", name=str(number))])


@pytest.mark.slow
def test_eight_processes_write_concurrently(place: str) -> None:
    """Also when all open a history without schema."""
    # Each starts from a process that has imported the code and opened nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    workers = [context.Process(target=_write, args=(place, n)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    with History.open(place) as history:
        assert sum(row.runs for row in history.sessions()) == 80
        assert history.series()[0].n == 80


@settings(max_examples=20)
@given(st.text(max_size=50))
def test_names_are_never_executed_as_sql(name: str) -> None:
    """Quotes, wildcards and statements in a name are not executed as SQL."""
    name = name.replace("\0", "").encode("utf-8", "ignore").decode()
    with History.open("sqlite:///:memory:") as history:
        history.begin_session(session("s1", name or "x"))
        assert [row.system for row in history.sessions(name or "x")] == [name or "x"]


def test_chosen_facts_of_many_runs(history: History) -> None:
    recorded = {"covariates": {"before": {"load_1m": 1.5}}, "command": "ior", "fs_ave_mds_cpu": 0.0}
    history.begin_session(session())
    history.record_runs("s1", [replace(run("one"), facts=recorded), run("two", name="b")])
    ids = [one.id for one in history.runs("s1")]
    found = history.run_facts([*ids, 99], ("covariates", "fs_ave_mds_cpu", "absent"))
    del recorded["command"]
    assert {run: facts.document for run, facts in found.items()} == {ids[0]: recorded, ids[1]: {}}
