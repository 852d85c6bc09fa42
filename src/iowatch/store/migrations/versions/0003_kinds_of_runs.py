"""Kinds of runs: name, tool and facts that repeat from night to night are kept once."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from iowatch.store.kinds import Kind, split, whole
from iowatch.store.packing import pack_digest
from iowatch.store.views import DROP, VIEWS

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


# PostgreSQL: `run` and `result` are made anew, which also drops what removed columns and updates leave behind.
# Wide columns come first, so that no row has holes for alignment: 16 bytes a result.

_RUN_COLUMNS = "id, started_at, wall_s, session_id, stack_id, kind_id, fingerprint, status, reason, facts"
_RESULT_COLUMNS = "run_id, time, max, median, min, mean, series_id, n, samples"


def _required(columns: str, optional: tuple[str, ...] = ()) -> str:
    return ", ".join(f"ALTER {name} SET NOT NULL" for name in columns.split(", ") if name not in optional)


_POSTGRESQL_UP = (
    *DROP,
    "ALTER SEQUENCE run_id_seq OWNED BY NONE",
    " ".join(("CREATE TABLE run_new AS SELECT", _RUN_COLUMNS, "FROM run ORDER BY id")),
    " ".join(("CREATE TABLE result_new AS SELECT", _RESULT_COLUMNS, "FROM result ORDER BY run_id, series_id")),
    "ALTER TABLE artefact DROP CONSTRAINT artefact_run_id_fkey",
    "DROP TABLE result",
    "DROP TABLE run",
    "ALTER TABLE run_new RENAME TO run",
    "ALTER TABLE result_new RENAME TO result",
    f"ALTER TABLE run {_required(_RUN_COLUMNS, ('wall_s', 'reason'))}, "
    "ALTER id SET DEFAULT nextval('run_id_seq'), ADD PRIMARY KEY (id), ADD UNIQUE (fingerprint), "
    "ADD FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE CASCADE, "
    "ADD FOREIGN KEY (stack_id) REFERENCES stack (id), ADD FOREIGN KEY (kind_id) REFERENCES run_kind (id)",
    "ALTER SEQUENCE run_id_seq OWNED BY run.id",
    "CREATE INDEX ix_run_session_id ON run (session_id)",
    f"ALTER TABLE result {_required(_RESULT_COLUMNS)}, ADD PRIMARY KEY (run_id, series_id), "
    "ADD FOREIGN KEY (run_id) REFERENCES run (id) ON DELETE CASCADE, "
    "ADD FOREIGN KEY (series_id) REFERENCES series (id)",
    "CREATE INDEX ix_result_series_time ON result (series_id, time)",
    "ALTER TABLE artefact ADD FOREIGN KEY (run_id) REFERENCES run (id) ON DELETE CASCADE",
    *VIEWS,
)
_POSTGRESQL_DOWN = (
    "ALTER TABLE run DROP COLUMN kind_id, ALTER name SET NOT NULL, ALTER partition SET NOT NULL, "
    "ALTER tool SET NOT NULL",
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
