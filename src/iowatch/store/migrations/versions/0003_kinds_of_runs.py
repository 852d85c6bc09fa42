"""Kinds of runs: name, tool and facts that repeat from night to night are kept once."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from iowatch.store.kinds import Kind, split, whole
from iowatch.store.packing import pack_digest

revision = "0003"
down_revision = "0002"

_BATCH = 1000
_MOVED = ("name", "partition", "tool", "version")
_RUN = sa.table(
    "run",
    *map(sa.column, ("id", "session_id", "kind_id", *_MOVED)),
    sa.column("facts", sa.JSON()),
)
_SESSION = sa.table("session", sa.column("id"), sa.column("uuid"))
_KIND = sa.table(
    "run_kind",
    *map(sa.column, ("id", "digest", *_MOVED)),
    sa.column("facts", sa.JSON()),
    sa.column("texts", sa.JSON()),
)


def upgrade() -> None:
    op.create_table(
        "run_kind",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("partition", sa.String(200), nullable=False),
        sa.Column("tool", sa.String(100), nullable=False),
        sa.Column("version", sa.String(200)),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("texts", sa.JSON(), nullable=False),
    )
    op.add_column("run", sa.Column("kind_id", sa.Integer()))
    _take_apart()
    if op.get_bind().dialect.name == "sqlite":
        _make_anew(_NEW)
    else:
        for statement in _POSTGRESQL_UP:
            op.execute(statement)


def downgrade() -> None:
    columns = (sa.Text(), sa.String(200), sa.String(100), sa.String(200))
    for name, kind in zip(_MOVED, columns, strict=True):
        op.add_column("run", sa.Column(name, kind))
    _put_together()
    if op.get_bind().dialect.name == "sqlite":
        _make_anew(_OLD)
    else:
        for statement in _POSTGRESQL_DOWN:
            op.execute(statement)
    op.drop_table("run_kind")


def _batches(statement: sa.Select[Any]) -> Iterator[list[Any]]:
    """Rows of runs in pieces, by their number in the first column."""
    connection, last = op.get_bind(), -1
    while rows := connection.execute(statement.where(_RUN.c.id > last).order_by(_RUN.c.id).limit(_BATCH)).all():
        yield list(rows)
        last = rows[-1][0]


def _update(rows: list[dict[str, Any]], *names: str) -> None:
    values = {name: sa.bindparam(f"new_{name}", type_=_RUN.c[name].type) for name in names}
    op.get_bind().execute(sa.update(_RUN).where(_RUN.c.id == sa.bindparam("run")).values(values), rows)


def _take_apart() -> None:
    connection = op.get_bind()
    known: dict[str, int] = {}
    runs = sa.select(_RUN.c.id, _SESSION.c.uuid, *(_RUN.c[name] for name in _MOVED), _RUN.c.facts).join_from(
        _RUN, _SESSION, _SESSION.c.id == _RUN.c.session_id
    )
    for rows in _batches(runs):
        changed = []
        for run, session, name, partition, tool, version, facts in rows:
            repeated, texts, own = split(facts, session)
            kind = Kind(name, partition, tool, version, repeated, texts)
            digest = kind.digest
            if digest not in known:
                known[digest] = len(known) + 1
                values = {"digest": pack_digest(digest), **kind.columns}
                connection.execute(sa.insert(_KIND).values(values))
            changed.append({"run": run, "new_kind_id": known[digest], "new_facts": own})
        _update(changed, "kind_id", "facts")


def _put_together() -> None:
    runs = (
        sa.select(
            _RUN.c.id, _SESSION.c.uuid, *(_KIND.c[name] for name in _MOVED), _KIND.c.facts, _KIND.c.texts,
            _RUN.c.facts.label("own"),
        )
        .join_from(_RUN, _SESSION, _SESSION.c.id == _RUN.c.session_id)
        .join(_KIND, _KIND.c.id == _RUN.c.kind_id)
    )  # fmt: skip
    for rows in _batches(runs):
        changed = []
        for run, session, *moved, repeated, texts, own in rows:
            values = {f"new_{name}": value for name, value in zip(_MOVED, moved, strict=True)}
            changed.append({"run": run, **values, "new_facts": whole(repeated, texts, own, session)})
        _update(changed, *_MOVED, "facts")


# A change of a column's type writes the table anew: what the updates left behind is given back at once.
_REWRITE = "ALTER wall_s TYPE double precision USING wall_s + 0"
_POSTGRESQL_UP = (
    "ALTER TABLE run DROP COLUMN name, DROP COLUMN partition, DROP COLUMN tool, DROP COLUMN version, "
    f"ALTER kind_id SET NOT NULL, {_REWRITE}",
    "ALTER TABLE run ADD CONSTRAINT run_kind_id_fkey FOREIGN KEY (kind_id) REFERENCES run_kind (id)",
)
_POSTGRESQL_DOWN = (
    "ALTER TABLE run DROP COLUMN kind_id, ALTER name SET NOT NULL, ALTER partition SET NOT NULL, "
    f"ALTER tool SET NOT NULL, {_REWRITE}",
)

# SQLite: the table is made anew, and those that hang on it after it (0002 tells why), as they are.

_PARENTS = """id INTEGER NOT NULL PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    stack_id INTEGER NOT NULL REFERENCES stack (id),"""
_REST = """status VARCHAR(20) NOT NULL, reason TEXT, started_at BIGINT NOT NULL, wall_s DOUBLE,
    facts JSON NOT NULL, UNIQUE (fingerprint)"""
_NEW = (
    f"({_PARENTS} kind_id INTEGER NOT NULL REFERENCES run_kind (id), fingerprint BLOB NOT NULL, {_REST})",
    "id, session_id, stack_id, kind_id, fingerprint, status, reason, started_at, wall_s, facts",
)
_OLD = (
    f"""({_PARENTS} fingerprint BLOB NOT NULL, name TEXT NOT NULL, partition VARCHAR(200) NOT NULL,
    tool VARCHAR(100) NOT NULL, version VARCHAR(200), {_REST})""",
    "id, session_id, stack_id, fingerprint, name, partition, tool, version, status, reason, started_at, "
    "wall_s, facts",
)
_HANGING = ("artefact", "result")


def _make_anew(run: tuple[str, str]) -> None:
    connection = op.get_bind()
    definition, columns = run
    made = "SELECT sql FROM sqlite_master WHERE tbl_name = :name AND type = :type AND sql IS NOT NULL"

    def found(kind: str) -> list[str]:
        tables = ({"name": name, "type": kind} for name in ("run", *_HANGING))
        return [str(row[0]) for table in tables for row in connection.execute(sa.text(made), table)]

    indices, (_, *hanging) = found("index"), found("table")
    for statement in indices:
        op.execute(f"DROP INDEX {statement.split()[2]}")
    tables = {
        "run": (f"CREATE TABLE run {definition}", columns),
        **{name: (statement, "*") for name, statement in zip(_HANGING, hanging, strict=True)},
    }
    for name, (statement, chosen) in tables.items():
        op.execute(f"ALTER TABLE {name} RENAME TO {name}_old")
        op.execute(statement)
        op.execute(" ".join(("INSERT INTO", name, "SELECT", chosen, "FROM", f"{name}_old", "ORDER BY 1, 2")))
    for name in reversed(tables):
        op.execute(f"DROP TABLE {name}_old")
    for statement in indices:
        op.execute(statement)
