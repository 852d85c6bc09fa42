"""Tables of the history as SQLAlchemy models, and the views that other programs read (Grafana, psql, R).

    system ─< session ─< run ─< result >─ series >─ case_definition
              session >─ expected_set      run >─ stack,  run ─< artefact,  run ── run_covariates

A `run` is one execution of a benchmark program; a `result` holds all samples of one metric of a run as little-endian
float64. Sessions with equal expected sets share one `expected_set`; runs with the same stack.json share one `stack`.
Times are epoch seconds, UTC. The tables and views of a release form a schema version (`iowatch.store.engine`): a
change of either needs an Alembic revision in `migrations/versions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BigInteger, Connection, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import JSON, Double

from iowatch.store.partitions import partition_results

SAMPLE_BYTES = 8
# SQLite assigns row ids automatically only for INTEGER keys.
_BigId = BigInteger().with_variant(Integer, "sqlite")


def encode_samples(samples: Sequence[float]) -> bytes:
    """Return samples as little-endian float64."""
    return np.asarray(samples, dtype="<f8").tobytes()


def decode_samples(blob: bytes) -> tuple[float, ...]:
    """Return the samples encoded by `encode_samples`, bit-identical.

    Raises:
        ValueError: the length is not a multiple of 8 bytes.
    """
    return tuple(np.frombuffer(blob, dtype="<f8").tolist())


def decode_many_samples(blobs: Sequence[bytes]) -> NDArray[np.float64]:
    """Return the samples of many results, concatenated."""
    return np.frombuffer(b"".join(blobs), dtype="<f8")


class Base(DeclarativeBase):
    """Base of all tables."""


class SystemTable(Base):
    """The name of a system."""

    __tablename__ = "system"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)


class StackTable(Base):
    """One version of a stack's stack.json: the content changes over the years, the name does not."""

    __tablename__ = "stack"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class ExpectedSetTable(Base):
    """Expected sets of sessions: `items` are [run name, partition, stack, operation, metric].

    The digest is unique, because PostgreSQL cannot index texts of more than 2,704 bytes.
    """

    __tablename__ = "expected_set"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    items: Mapped[list[list[str]]] = mapped_column(JSON)


class SessionTable(Base):
    """One execution of a suite, one import, one demonstration; its expected set is written before it starts.

    The sessions of a system are a chain (`iowatch.store.chain`): `number` counts them in the order in which they began,
    and `previous_uuid`, `previous_digest`, `previous_runs` and `previous_results` are of the one before, None for the
    first.
    """

    __tablename__ = "session"
    __table_args__ = (Index("ix_session_system_number", "system_id", "number"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(64), unique=True)
    system_id: Mapped[int] = mapped_column(ForeignKey("system.id"))
    suite: Mapped[str] = mapped_column(String(200))
    origin: Mapped[str] = mapped_column(String(20))
    status: Mapped[str] = mapped_column(String(20))
    started_at: Mapped[int] = mapped_column(BigInteger, index=True)
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    attributes: Mapped[dict[str, Any]] = mapped_column(JSON)
    expected_set_id: Mapped[int | None] = mapped_column(ForeignKey("expected_set.id"))
    # A session that names none before it is the first of a chain.
    number: Mapped[int] = mapped_column(Integer, server_default="1")
    previous_uuid: Mapped[str | None] = mapped_column(String(64))
    previous_digest: Mapped[str | None] = mapped_column(String(64))
    previous_runs: Mapped[int | None] = mapped_column(Integer)
    previous_results: Mapped[int | None] = mapped_column(Integer)


class CaseTable(Base):
    """A benchmark with all its parameters."""

    __tablename__ = "case_definition"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    key: Mapped[str] = mapped_column(String(16), unique=True)
    benchmark: Mapped[str] = mapped_column(String(100), index=True)
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)


class SeriesTable(Base):
    """(system, partition, stack, case, metric) over time."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("system_id", "partition", "stack", "case_id", "metric"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    system_id: Mapped[int] = mapped_column(ForeignKey("system.id"))
    partition: Mapped[str] = mapped_column(String(200))
    stack: Mapped[str] = mapped_column(String(200))
    case_id: Mapped[int] = mapped_column(ForeignKey("case_definition.id"))
    metric: Mapped[str] = mapped_column(String(100))


class RunTable(Base):
    """One execution of a benchmark program."""

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(_BigId, primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"), index=True)
    stack_id: Mapped[int] = mapped_column(ForeignKey("stack.id"))
    fingerprint: Mapped[str] = mapped_column(Text, unique=True)
    name: Mapped[str] = mapped_column(Text)
    partition: Mapped[str] = mapped_column(String(200))
    tool: Mapped[str] = mapped_column(String(100))
    version: Mapped[str | None] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[int] = mapped_column(BigInteger)
    wall_s: Mapped[float | None] = mapped_column(Double)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class ResultTable(Base):
    """All samples of one metric of one run, with their summary.

    In PostgreSQL it has one partition per year, and the time is part of the key (`iowatch.store.partitions`).
    """

    __tablename__ = "result"
    # SQLite: rows are stored in key order, so that the key needs no separate index.
    __table_args__ = (Index("ix_result_series_time", "series_id", "time"), {"sqlite_with_rowid": False})
    run_id: Mapped[int] = mapped_column(_BigId, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    n: Mapped[int] = mapped_column(Integer)
    time: Mapped[int] = mapped_column(BigInteger)
    max: Mapped[float] = mapped_column(Double)
    median: Mapped[float] = mapped_column(Double)
    min: Mapped[float] = mapped_column(Double)
    mean: Mapped[float] = mapped_column(Double)
    samples: Mapped[bytes] = mapped_column(LargeBinary)


class ArtefactTable(Base):
    """An output file of a run, kept under its SHA-256 in `var/artefacts/`."""

    __tablename__ = "artefact"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run_id: Mapped[int] = mapped_column(_BigId, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(50), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    sha256: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class RunCovariatesTable(Base):
    """The covariates of a run as numbers, computed from its facts when detection first needs them.

    Facts are large JSON documents; reading those of a year for every detection takes longer than the detection.
    `names` are separated by line breaks, `numbers` has little-endian float64 in the same order; both may be empty.
    """

    __tablename__ = "run_covariates"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run_id: Mapped[int] = mapped_column(_BigId, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    names: Mapped[str] = mapped_column(Text)
    numbers: Mapped[bytes] = mapped_column(LargeBinary)


class FindingTable(Base):
    """Identity and state of a finding; its content is recomputed from the history."""

    __tablename__ = "finding"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    system_id: Mapped[int] = mapped_column(ForeignKey("system.id"), index=True)
    first_seen_at: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20))
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class DetectionTable(Base):
    """The last detection of a series and the number of points used: series without new points are skipped."""

    __tablename__ = "detection"
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    points: Mapped[int] = mapped_column(Integer)
    last_time: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[str] = mapped_column(String(40))
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


# Views of a PostgreSQL history: stable names, units in the columns, UTC. docs/history.md lists them.
VIEW_DEFINITIONS = (
    """CREATE VIEW iowatch_series AS
SELECT series.id AS series_id, system.name AS system, series.partition, series.stack,
    case_definition.benchmark, case_definition.key AS case_key, series.metric,
    case_definition.parameters ->> 'operation' AS operation, case_definition.parameters ->> 'api' AS api,
    case_definition.parameters ->> 'file' AS file, (case_definition.parameters ->> 'nodes')::int AS nodes,
    (case_definition.parameters ->> 'ranks')::int AS ranks, case_definition.parameters,
    concat_ws(' ', case_definition.benchmark, case_definition.parameters ->> 'operation',
        case_definition.parameters ->> 'api', case_definition.parameters ->> 'file',
        (case_definition.parameters ->> 'ranks') || ' ranks', left(case_definition.key, 6)) AS label
FROM series JOIN system ON system.id = series.system_id
JOIN case_definition ON case_definition.id = series.case_id""",
    """CREATE VIEW iowatch_results AS
SELECT result.series_id, to_timestamp(result.time) AS time, result.time AS epoch_s, result.run_id,
    result.max, result.median, result.min, result.mean, result.n
FROM result""",
    """CREATE VIEW iowatch_sessions AS
SELECT session.id AS session_id, session.uuid, system.name AS system, session.suite, session.origin,
    session.status, to_timestamp(session.started_at) AS time, session.started_at AS epoch_s,
    session.ended_at - session.started_at AS wall_s,
    coalesce(json_array_length(expected_set.items), 0) AS expected,
    (SELECT count(*) FROM run WHERE run.session_id = session.id) AS runs,
    (SELECT count(*) FROM run WHERE run.session_id = session.id AND run.status <> 'ok') AS failed_runs
FROM session JOIN system ON system.id = session.system_id
LEFT JOIN expected_set ON expected_set.id = session.expected_set_id""",
    """CREATE VIEW iowatch_findings AS
SELECT finding.id AS finding_id, system.name AS system, finding.state,
    concat(
        finding.document ->> 'date', ': ', finding.document -> 'explanation' ->> 'changed', ' of ',
        finding.document -> 'explanation' ->> 'total', ' series ',
        coalesce(finding.document ->> 'pattern', finding.document ->> 'direction'),
        ' ×' || trim_scale(round((finding.document ->> 'size')::numeric, 2)),
        '; ' || nullif(finding.document -> 'explanation' -> 'rule' ->> 'text', '')
    ) AS line,
    to_timestamp((finding.document ->> 'first_after')::bigint) AS time,
    (finding.document ->> 'first_after')::bigint AS epoch_s,
    to_timestamp(finding.first_seen_at) AS first_seen, to_timestamp(finding.updated_at) AS updated,
    json_array_length(finding.document -> 'members') AS members
FROM finding JOIN system ON system.id = finding.system_id""",
)
VIEW_NAMES = tuple(statement.split()[2] for statement in VIEW_DEFINITIONS)


def create_schema(connection: Connection) -> None:
    """Create all tables; in PostgreSQL the partitions of results and the views, too."""
    Base.metadata.create_all(connection)
    partition_results(connection)
    if connection.dialect.name == "postgresql":
        for statement in VIEW_DEFINITIONS:
            connection.exec_driver_sql(statement)
