"""Samples as decimals, names of nodes as one text: both forms are valid, so that only going back rewrites."""

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from iowatch.store.kinds import unfolded
from iowatch.store.packing import as_floats

revision = "0004"
down_revision = "0003"

_BATCH = 1000
_RESULT = sa.table("result", *map(sa.column, ("run_id", "series_id", "samples")))
_RUN = sa.table("run", sa.column("id"), sa.column("facts", sa.JSON()))


def upgrade() -> None:
    """Nothing: what is there is read as it is, and what comes is written the new way."""


def downgrade() -> None:
    _rewrite(_RESULT, ("run_id", "series_id"), "samples", as_floats)
    _rewrite(_RUN, ("id",), "facts", unfolded)


def _rewrite(table: sa.TableClause, key: tuple[str, ...], name: str, change: Callable[[Any], Any]) -> None:
    """Change the values of a column where they differ."""
    chosen = sa.and_(*(table.c[part] == sa.bindparam(f"key_{part}") for part in key))
    value = sa.bindparam("value", type_=table.c[name].type)
    statement = sa.update(table).where(chosen).values({name: value})
    for rows in _batches(table.c[key[0]], *(table.c[part] for part in (*key, name))):
        changed = [
            {"value": change(old), **{f"key_{part}": one for part, one in zip(key, of, strict=True)}}
            for *of, old in rows
            if change(old) != old
        ]
        if changed:
            op.get_bind().execute(statement, changed)


def _batches(first: sa.ColumnElement[int], *columns: sa.ColumnElement[Any]) -> Iterator[list[Any]]:
    """Rows of some values of the first column at a time."""
    connection = op.get_bind()
    last = connection.execute(sa.select(sa.func.max(first))).scalar() or 0
    for start in range(0, last + 1, _BATCH):
        statement = sa.select(*columns).where(first.between(start, start + _BATCH - 1))
        yield list(connection.execute(statement).all())
