"""The schema of release 0.1.0, created from the models.

The first later revision must copy these models' tables here; otherwise new histories have its changes before it runs.
"""

from alembic import op

from iowatch.store.schema import create_schema

revision = "0100"
down_revision = None


def upgrade() -> None:
    create_schema(op.get_bind())
