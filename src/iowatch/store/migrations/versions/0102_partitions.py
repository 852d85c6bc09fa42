"""Results in PostgreSQL in one partition per year; new histories have them from the first revision."""

from alembic import op

from iowatch.store.partitions import is_partitioned, partition_results
from iowatch.store.schema import VIEW_DEFINITIONS

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and not is_partitioned(connection):
        partition_results(connection)
        connection.exec_driver_sql(next(one for one in VIEW_DEFINITIONS if " iowatch_results " in one))
