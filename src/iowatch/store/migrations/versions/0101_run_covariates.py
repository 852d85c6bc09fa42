"""Covariates of runs as numbers; new histories have the table from the models."""

from alembic import op

from iowatch.store.schema import RunCovariatesTable

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    RunCovariatesTable.__table__.create(op.get_bind(), checkfirst=True)  # type: ignore[attr-defined]
