"""Tables of the history, as SQLAlchemy models. Times are epoch seconds UTC; samples are packed float64.

    system ─< session ─< run ─< result >─ series >─ case_definition
                  └─< expected      run >─ stack,  run ─< artefact

A `run` is one execution of a benchmark program; a `result` holds all samples of one metric of it. Samples are
one BLOB of little-endian float64 a result: ten samples cost 80 bytes, where ten rows would cost about 600.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import JSON, Double

# SQLite numbers rows by itself only for INTEGER keys.
_Id = BigInteger().with_variant(Integer, "sqlite")


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


class ExpectedTable(Base):
    """What a session set out to measure, written before it starts."""

    __tablename__ = "expected"
    __table_args__ = (UniqueConstraint("session_id", "run_name", "partition", "stack", "operation", "metric"),)
    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"))
    run_name: Mapped[str] = mapped_column(Text)
    partition: Mapped[str] = mapped_column(String(200))
    stack: Mapped[str] = mapped_column(String(200))
    operation: Mapped[str] = mapped_column(String(100))
    metric: Mapped[str] = mapped_column(String(100))


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


class RunTable(Base):
    __tablename__ = "run"
    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"), index=True)
    stack_id: Mapped[int] = mapped_column(ForeignKey("stack.id"))
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(Text)
    partition: Mapped[str] = mapped_column(String(200))
    tool: Mapped[str] = mapped_column(String(100))
    version: Mapped[str | None] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[int] = mapped_column(BigInteger, index=True)
    wall_s: Mapped[float | None] = mapped_column(Double)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class ResultTable(Base):
    __tablename__ = "result"
    __table_args__ = (
        UniqueConstraint("run_id", "series_id"),
        Index("ix_result_series_time", "series_id", "time"),
    )
    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    time: Mapped[int] = mapped_column(BigInteger)
    n: Mapped[int] = mapped_column(Integer)
    max: Mapped[float] = mapped_column(Double)
    median: Mapped[float] = mapped_column(Double)
    min: Mapped[float] = mapped_column(Double)
    mean: Mapped[float] = mapped_column(Double)
    samples: Mapped[bytes] = mapped_column(LargeBinary)


class ArtefactTable(Base):
    """A file that a run left, kept content-addressed under `var/artefacts/`."""

    __tablename__ = "artefact"
    __table_args__ = (UniqueConstraint("run_id", "kind", "name"),)
    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(50))
    name: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
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
