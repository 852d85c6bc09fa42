"""Tables of the history, as SQLAlchemy models. Times are epoch seconds UTC.

    system ─< session ─< run ─< result >─ series >─ case_definition
                  └─ expected >─ expected_set      run >─ stack,  run >─ run_kind,  run ─< artefact

A `run` is one execution of a benchmark program; a `result` holds all samples of one metric of it, in one blob
(`iowatch.store.packing`): ten samples take 25 to 80 bytes, where ten rows would take about 600. What decides
the size is written small (docs/scale.md): nights that expect the same share one expected set, runs that differ
in nothing but the night share one kind, digests are bytes, names of nodes one text, and only those indices
exist that a query uses.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import JSON, Double

from iowatch.store.packing import pack_digest, unpack_digest

# SQLite numbers rows by itself only for INTEGER keys.
_Id = BigInteger().with_variant(Integer, "sqlite")


class Digest(TypeDecorator[str]):
    """Text that is nearly always a SHA-256 in hexadecimal, as bytes: half the size in row and index."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack_digest(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else unpack_digest(value)


class Base(DeclarativeBase):
    """Base of all tables."""


class SystemTable(Base):
    __tablename__ = "system"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)


class StackTable(Base):
    """One content of stack.json: a stack's name may come with several over the years."""

    __tablename__ = "stack"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class SessionTable(Base):
    """One night, one import, one demonstration."""

    __tablename__ = "session"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(64), unique=True)
    system_id: Mapped[int] = mapped_column(ForeignKey("system.id"), index=True)
    suite: Mapped[str] = mapped_column(String(200))
    origin: Mapped[str] = mapped_column(String(20))
    status: Mapped[str] = mapped_column(String(20))
    started_at: Mapped[int] = mapped_column(BigInteger, index=True)
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    attributes: Mapped[dict[str, Any]] = mapped_column(JSON)


class ExpectedSetTable(Base):
    """What sessions set out to measure: `items` are [run name, partition, stack, operation, metric]."""

    __tablename__ = "expected_set"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(Digest, unique=True)
    items: Mapped[list[list[str]]] = mapped_column(JSON)


class ExpectedTable(Base):
    """Which set a session expects, written before it starts."""

    __tablename__ = "expected"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"), primary_key=True)
    set_id: Mapped[int] = mapped_column(ForeignKey("expected_set.id"))


class CaseTable(Base):
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


class RunKindTable(Base):
    """What runs have in common from night to night (`iowatch.store.kinds`)."""

    __tablename__ = "run_kind"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(Digest, unique=True)
    name: Mapped[str] = mapped_column(Text)
    partition: Mapped[str] = mapped_column(String(200))
    tool: Mapped[str] = mapped_column(String(100))
    version: Mapped[str | None] = mapped_column(String(200))
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    texts: Mapped[dict[str, str]] = mapped_column(JSON)


class RunTable(Base):
    """One execution; `facts` are those of its own, its kind has the others."""

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"), index=True)
    stack_id: Mapped[int] = mapped_column(ForeignKey("stack.id"))
    kind_id: Mapped[int] = mapped_column(ForeignKey("run_kind.id"))
    fingerprint: Mapped[str] = mapped_column(Digest, unique=True)
    status: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[int] = mapped_column(BigInteger)
    wall_s: Mapped[float | None] = mapped_column(Double)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class ResultTable(Base):
    __tablename__ = "result"
    # SQLite: rows lie in the order of the key, so that the key costs no index of its own.
    __table_args__ = (Index("ix_result_series_time", "series_id", "time"), {"sqlite_with_rowid": False})
    run_id: Mapped[int] = mapped_column(_Id, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    n: Mapped[int] = mapped_column(Integer)
    time: Mapped[int] = mapped_column(BigInteger)
    max: Mapped[float] = mapped_column(Double)
    median: Mapped[float] = mapped_column(Double)
    min: Mapped[float] = mapped_column(Double)
    mean: Mapped[float] = mapped_column(Double)
    samples: Mapped[bytes] = mapped_column(LargeBinary)


class ArtefactTable(Base):
    """A file that a run left, kept content-addressed under `var/artefacts/`."""

    __tablename__ = "artefact"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run_id: Mapped[int] = mapped_column(_Id, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(50), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    sha256: Mapped[str] = mapped_column(Digest)
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class FindingTable(Base):
    """A finding's identity and state from night to night; its content is computed anew from the history."""

    __tablename__ = "finding"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    system_id: Mapped[int] = mapped_column(ForeignKey("system.id"), index=True)
    first_seen_at: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20))
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class DetectionTable(Base):
    """What detection last said of a series, and of how many points, so that a night touches only new data."""

    __tablename__ = "detection"
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    points: Mapped[int] = mapped_column(Integer)
    last_time: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[str] = mapped_column(String(40))
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
