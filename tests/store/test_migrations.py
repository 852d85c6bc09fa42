"""Migrations up and down with data, in SQLite and PostgreSQL: nothing is lost, and the shape is the old one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect

from iowatch.store import FindingRow, History, care
from iowatch.store.engine import migrate, open_engine
from tests.store.test_care import content, fill, places  # noqa: F401  # a fixture

KINDS = ["sqlite", "postgresql"]


def shape(engine: Engine) -> dict[str, Any]:
    """Columns, keys and indices of every table, as the database itself tells them."""
    found = inspect(engine)
    return {
        name: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
            sorted(found.get_pk_constraint(name)["constrained_columns"]),
            sorted((i["name"] or "", tuple(map(str, i["column_names"]))) for i in found.get_indexes(name)),
            sorted(tuple(c["column_names"]) for c in found.get_unique_constraints(name)),
            sorted(
                (tuple(k["constrained_columns"]), k["referred_table"]) for k in found.get_foreign_keys(name)
            ),
        )
        for name in sorted(found.get_table_names())
    }


def sorted_columns(found: dict[str, Any]) -> dict[str, Any]:
    """PostgreSQL appends a column that comes back: the order says nothing."""
    return {name: (sorted(columns), *rest) for name, (columns, *rest) in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_down_and_up_again_is_the_same_history(
    places: Callable[[str], str],  # noqa: F811
    kind: str,
) -> None:
    place = places(kind)
    with History.open(place) as history:
        fill(history, nights=5)
        history.save_findings([FindingRow("local-1", "local", 5, 10, "open", {"members": [], "line": "x"})])
        before, newest = content(history), shape(history.engine)
        migrate(history.engine, "0001")
        oldest = shape(history.engine)
        with history.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT fingerprint FROM run ORDER BY id").scalars().all()
            digests = connection.exec_driver_sql("SELECT sha256 FROM artefact ORDER BY run_id").scalars().all()
            expected = connection.exec_driver_sql("SELECT count(*) FROM expected").scalar()
            samples = "SELECT count(*) FROM result WHERE length(samples) <> 8 * n"
            assert connection.exec_driver_sql(samples).scalar() == 0  # floats, as it was
        assert rows == [f"fp{n}" for n in range(20)]
        assert digests == [f"{n:064x}" for n in range(20)]
        assert expected == 5 * 4
        migrate(history.engine, "head")
        assert content(history) == before
        assert sorted_columns(shape(history.engine)) == sorted_columns(newest)
        assert care.check(history).faults == ()
    engine = open_engine(places(kind) if kind == "sqlite" else place)
    migrate(engine, "base")
    migrate(engine, "0001")
    assert sorted_columns(shape(engine)) == sorted_columns(oldest)
    engine.dispose()


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_history_is_brought_up_to_date_when_it_is_opened(
    places: Callable[[str], str],  # noqa: F811
    kind: str,
    var: Path,
) -> None:
    place = places(kind)
    with History.open(place) as history:
        fill(history)
        before = content(history)
        migrate(history.engine, "0001")
    with History.open(place) as history:
        assert content(history) == before
