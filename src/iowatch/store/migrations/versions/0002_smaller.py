"""Smaller rows, and views for other programs.

Nights that expect the same share one expected set; fingerprints and SHA-256 are bytes; results and files of
runs have no number of their own; indices that no query uses go. PostgreSQL gets views (docs/operations.md).
"""

import hashlib
import json
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from iowatch.store.packing import pack_digest, unpack_digest
from iowatch.store.views import DROP, VIEWS

revision = "0002"
down_revision = "0001"

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ITEM = "run_name, partition, stack, operation, metric"


def upgrade() -> None:
    _share_expected()
    if op.get_bind().dialect.name == "sqlite":
        _rebuild(_NEW, "pack_digest")
        return
    for statement in _POSTGRESQL_UP:
        op.execute(statement)
    for statement in VIEWS:
        op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild(_OLD, "unpack_digest")
    else:
        for statement in (*DROP, *_POSTGRESQL_DOWN):
            op.execute(statement)
    _spread_expected()


def _share_expected() -> None:
    connection = op.get_bind()
    op.create_table(
        "expected_set",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False, unique=True),
        sa.Column("items", sa.JSON(), nullable=False),
    )
    op.create_table(
        "expected_new",
        sa.Column(
            "session_id", sa.Integer(), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("set_id", sa.Integer(), sa.ForeignKey("expected_set.id"), nullable=False),
    )
    query = " ".join(("SELECT session_id,", _ITEM, "FROM expected ORDER BY session_id, id"))
    rows = connection.execute(sa.text(query))
    known: dict[str, int] = {}
    links = []
    for session, group in groupby(rows, key=lambda row: row[0]):
        text = json.dumps([list(row[1:]) for row in group])
        if text not in known:
            known[text] = len(known) + 1
            digest = pack_digest(hashlib.sha256(text.encode()).hexdigest())
            statement = sa.text("INSERT INTO expected_set (digest, items) VALUES (:digest, :items)")
            connection.execute(statement, {"digest": digest, "items": text})
        links.append({"session": session, "set": known[text]})
    if links:
        connection.execute(sa.text("INSERT INTO expected_new VALUES (:session, :set)"), links)
    op.drop_table("expected")
    op.rename_table("expected_new", "expected")


def _spread_expected() -> None:
    connection = op.get_bind()
    op.rename_table("expected", "expected_new")
    op.create_table(
        "expected",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("session_id", sa.Integer(), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
        sa.Column("run_name", sa.Text(), nullable=False),
        sa.Column("partition", sa.String(200), nullable=False),
        sa.Column("stack", sa.String(200), nullable=False),
        sa.Column("operation", sa.String(100), nullable=False),
        sa.Column("metric", sa.String(100), nullable=False),
        sa.UniqueConstraint("session_id", "run_name", "partition", "stack", "operation", "metric"),
    )
    sets = sa.table("expected_set", sa.column("id"), sa.column("items", sa.JSON()))
    items = {row[0]: row[1] for row in connection.execute(sa.select(sets))}
    names = ", ".join(f":{name}" for name in _ITEM.split(", "))
    statement = sa.text(
        " ".join(("INSERT INTO expected (session_id,", _ITEM, ") VALUES (:session,", names, ")"))
    )
    for session, number in connection.execute(sa.text("SELECT session_id, set_id FROM expected_new")).all():
        rows = [dict(zip(_ITEM.split(", "), item, strict=True), session=session) for item in items[number]]
        if rows:
            connection.execute(statement, rows)
    op.drop_table("expected_new")
    op.drop_table("expected_set")


# PostgreSQL changes tables where they are.

_PACKED = (
    "CASE WHEN {0} ~ '^[0-9a-f]{{64}}$' THEN '\\x01'::bytea || decode({0}, 'hex') "
    "ELSE '\\x00'::bytea || convert_to({0}, 'UTF8') END"
)
_UNPACKED = (
    "CASE WHEN get_byte({0}, 0) = 1 THEN encode(substring({0} from 2), 'hex') "
    "ELSE convert_from(substring({0} from 2), 'UTF8') END"
)
_POSTGRESQL_UP = (
    "DROP INDEX ix_run_started_at",
    "DROP INDEX ix_artefact_sha256",
    f"ALTER TABLE run ALTER fingerprint TYPE bytea USING {_PACKED.format('fingerprint')}",
    "ALTER TABLE result DROP COLUMN id",
    "ALTER TABLE result DROP CONSTRAINT result_run_id_series_id_key, ADD PRIMARY KEY (run_id, series_id)",
    f"ALTER TABLE artefact DROP COLUMN id, ALTER sha256 TYPE bytea USING {_PACKED.format('sha256')}",
    "ALTER TABLE artefact DROP CONSTRAINT artefact_run_id_kind_name_key, ADD PRIMARY KEY (run_id, kind, name)",
)
_POSTGRESQL_DOWN = (
    "ALTER TABLE artefact DROP CONSTRAINT artefact_pkey",
    f"ALTER TABLE artefact ALTER sha256 TYPE varchar(64) USING {_UNPACKED.format('sha256')}",
    "ALTER TABLE artefact ADD COLUMN id bigserial PRIMARY KEY, "
    "ADD CONSTRAINT artefact_run_id_kind_name_key UNIQUE (run_id, kind, name)",
    "ALTER TABLE result DROP CONSTRAINT result_pkey",
    "ALTER TABLE result ADD COLUMN id bigserial PRIMARY KEY, "
    "ADD CONSTRAINT result_run_id_series_id_key UNIQUE (run_id, series_id)",
    f"ALTER TABLE run ALTER fingerprint TYPE varchar(64) USING {_UNPACKED.format('fingerprint')}",
    "CREATE INDEX ix_artefact_sha256 ON artefact (sha256)",
    "CREATE INDEX ix_run_started_at ON run (started_at)",
)

# SQLite cannot change a key or a type: tables are made anew. The parent first, so that dropping the old one
# finds no child that still hangs on it. `{digest}` packs or unpacks.

_RUN = (
    "id, session_id, stack_id, {digest}(fingerprint), name, partition, tool, version, status, reason, "
    "started_at, wall_s, facts"
)
_REST = """name TEXT NOT NULL, partition VARCHAR(200) NOT NULL, tool VARCHAR(100) NOT NULL,
    version VARCHAR(200), status VARCHAR(20) NOT NULL, reason TEXT,
    started_at BIGINT NOT NULL, wall_s DOUBLE, facts JSON NOT NULL,
    UNIQUE (fingerprint)"""
_OF_RUN = "run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE"
_VALUES = """max DOUBLE NOT NULL, median DOUBLE NOT NULL, min DOUBLE NOT NULL, mean DOUBLE NOT NULL,
    samples BLOB NOT NULL"""
_PARENTS = """session_id INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    stack_id INTEGER NOT NULL REFERENCES stack (id)"""
_SERIES = "series_id INTEGER NOT NULL REFERENCES series (id)"

_NEW = {
    "run": (
        f"(id INTEGER NOT NULL PRIMARY KEY, {_PARENTS}, fingerprint BLOB NOT NULL, {_REST})",
        _RUN,
        ("CREATE INDEX ix_run_session_id ON run (session_id)",),
    ),
    "artefact": (
        f"({_OF_RUN}, kind VARCHAR(50) NOT NULL, name TEXT NOT NULL, sha256 BLOB NOT NULL, "
        "size_bytes BIGINT NOT NULL, PRIMARY KEY (run_id, kind, name)) WITHOUT ROWID",
        "run_id, kind, name, {digest}(sha256), size_bytes",
        (),
    ),
    "result": (
        f"({_OF_RUN}, {_SERIES}, n INTEGER NOT NULL, time BIGINT NOT NULL, {_VALUES}, "
        "PRIMARY KEY (run_id, series_id)) WITHOUT ROWID",
        "run_id, series_id, n, time, max, median, min, mean, samples",
        ("CREATE INDEX ix_result_series_time ON result (series_id, time)",),
    ),
}
_OLD = {
    "run": (
        f"(id INTEGER NOT NULL PRIMARY KEY, {_PARENTS}, fingerprint VARCHAR(64) NOT NULL, {_REST})",
        _RUN,
        (
            "CREATE INDEX ix_run_session_id ON run (session_id)",
            "CREATE INDEX ix_run_started_at ON run (started_at)",
        ),
    ),
    "artefact": (
        f"(id INTEGER NOT NULL PRIMARY KEY, {_OF_RUN}, kind VARCHAR(50) NOT NULL, name TEXT NOT NULL, "
        "sha256 VARCHAR(64) NOT NULL, size_bytes BIGINT NOT NULL, UNIQUE (run_id, kind, name))",
        "NULL, run_id, kind, name, {digest}(sha256), size_bytes",
        ("CREATE INDEX ix_artefact_sha256 ON artefact (sha256)",),
    ),
    "result": (
        f"(id INTEGER NOT NULL PRIMARY KEY, {_OF_RUN}, {_SERIES}, time BIGINT NOT NULL, n INTEGER NOT NULL, "
        f"{_VALUES}, UNIQUE (run_id, series_id))",
        "NULL, run_id, series_id, time, n, max, median, min, mean, samples",
        ("CREATE INDEX ix_result_series_time ON result (series_id, time)",),
    ),
}
_INDICES = ("ix_run_session_id", "ix_run_started_at", "ix_artefact_sha256", "ix_result_series_time")


def _rebuild(tables: dict[str, tuple[str, str, tuple[str, ...]]], digest: str) -> None:
    driver: Any = op.get_bind().connection.driver_connection
    for function in (pack_digest, unpack_digest):
        driver.create_function(function.__name__, 1, function, deterministic=True)
    for name in _INDICES:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    for name, (definition, columns, _) in tables.items():
        op.execute(f"ALTER TABLE {name} RENAME TO {name}_old")
        op.execute(f"CREATE TABLE {name} {definition}")
        chosen = columns.format(digest=digest)
        op.execute(" ".join(("INSERT INTO", name, "SELECT", chosen, "FROM", f"{name}_old", "ORDER BY 1, 2")))
    for name in reversed(tables):
        op.execute(f"DROP TABLE {name}_old")
    for _, _, indices in tables.values():
        for statement in indices:
            op.execute(statement)
