"""Results in PostgreSQL by year: new years, and what a query reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from iowatch.store import History
from tests import postgresql
from tests.store.test_history import run, session

YEARS = (2009, 2010, 2026, 2027)


def new_year(year: int, after_s: int = 0) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) + after_s


def fill(history: History) -> None:
    """Two runs in each year, in its first second and in the last one of the year before the next."""
    history.begin_session(session())
    for year in YEARS:
        for moment in (new_year(year), new_year(year + 1, -1)):
            history.record_runs("s1", [replace(run(f"f{moment}"), started_at=moment)])


@pytest.fixture
def filled(postgresql_url: str, var: Path) -> Iterator[History]:
    del var
    with History.open(postgresql_url) as history:
        fill(history)
        yield history


def partitions(connection: Connection) -> list[str]:
    return list(
        connection.execute(
            text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'result'::regclass ORDER BY 1")
        ).scalars()
    )


def content(history: History) -> list[tuple[Any, ...]]:
    with history.reading() as connection:
        rows = connection.execute(text("SELECT tableoid::regclass::text AS place, time, run_id FROM result"))
        return sorted(tuple(row) for row in rows)


def test_each_year_gets_a_partition_with_its_first_result(filled: History) -> None:
    """Old years, too: imports have results of 2009. Borders are those of UTC years."""
    with filled.reading() as connection:
        assert partitions(connection) == [f"result_{year}" for year in YEARS]
    found = [(place, datetime.fromtimestamp(time, UTC).year) for place, time, _ in content(filled)]
    assert found == [(f"result_{year}", year) for year in YEARS for _ in range(2)]
    assert [one.n for one in filled.series()] == [2 * len(YEARS)]


def test_recent_points_are_read_from_recent_years_only(filled: History) -> None:
    (series,) = filled.series()
    query = f"EXPLAIN SELECT time FROM result WHERE series_id = {series.id} AND time >= {new_year(2027)}"
    with filled.reading() as connection:
        plan = "\n".join(connection.exec_driver_sql(query).scalars())
    assert "result_2027" in plan
    assert not {year for year in YEARS[:-1] if f"result_{year}" in plan}


def test_writer_starts_a_new_year_and_a_reader_does_not(filled: History, postgresql_url: str) -> None:
    """A writer may not create tables; the function does, and only for years."""
    postgresql.create_roles(postgresql_url, walter="writer", rosa="reader")
    owner = "//iowatch@"
    with History.existing(postgresql_url.replace(owner, "//walter@")) as history:
        history.record_runs("s1", [replace(run("new"), started_at=new_year(2040))])
    with filled.reading() as connection:
        assert "result_2040" in partitions(connection)
    engine = create_engine(postgresql_url.replace(owner, "//rosa@"))
    with engine.connect() as connection, pytest.raises(Exception, match="permission denied"):
        connection.execute(text("SELECT iowatch_result_partition(2050)"))
    engine.dispose()


def test_a_new_year_waits_for_no_reader(filled: History) -> None:
    """A site that is being built reads all results in one transaction for minutes."""
    with filled.reading() as reader:
        reader.execute(text("SELECT count(*) FROM result")).scalar()
        with filled.writing() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '1s'"))
            connection.execute(text("SELECT iowatch_result_partition(2050)"))
