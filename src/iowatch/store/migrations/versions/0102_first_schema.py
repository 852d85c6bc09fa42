"""The schema of release 0.1.0, created from the models.

New histories have the tables of later revisions before these run, so those that add tables skip existing ones. The
first one that changes a table must copy these models' tables here.
"""

from alembic import op

from iowatch.store.schema import create_schema

revision = "0102"
down_revision = None


def upgrade() -> None:
    create_schema(op.get_bind())
