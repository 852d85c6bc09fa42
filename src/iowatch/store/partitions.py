"""Results in PostgreSQL, partitioned by year (UTC), so that what reads recent results leaves the other years alone.

A function of the database creates the partition of a year when its first result arrives, with the rights of the owner:
the account of a session may not create tables. A table that becomes a partition, unlike one created as such, does not
wait for readers, and a build of the site reads for minutes. SQLite has one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select, text

_PARTITIONED_TABLE = (
    "ALTER TABLE result RENAME TO result_columns",
    "CREATE TABLE result (LIKE result_columns) PARTITION BY RANGE (time)",
    "DROP TABLE result_columns",
    "ALTER TABLE result ADD PRIMARY KEY (run_id, series_id, time)",
    "ALTER TABLE result ADD CONSTRAINT result_run_id_fkey1 FOREIGN KEY (run_id) REFERENCES run (id) ON DELETE CASCADE",
    "ALTER TABLE result ADD CONSTRAINT result_series_id_fkey1 FOREIGN KEY (series_id) REFERENCES series (id)",
    "CREATE INDEX ix_result_series_time ON result (series_id, time)",
)
_FUNCTION = """CREATE OR REPLACE FUNCTION iowatch_result_partition(year int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET timezone = 'UTC' SET search_path FROM CURRENT AS $$
DECLARE
    name text := format('result_%s', year);
    begins timestamptz := make_timestamptz(year, 1, 1, 0, 0, 0, 'UTC');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock(4911);
    IF to_regclass(name) IS NOT NULL THEN RETURN; END IF;
    EXECUTE format('CREATE TABLE %I (LIKE result INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE result ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name,
        extract(epoch FROM begins)::bigint, extract(epoch FROM begins + interval '1 year')::bigint);
END $$"""


def partition_results(connection: Connection) -> None:
    """Replace the empty table of results by one with a partition per year; nothing in SQLite."""
    if connection.dialect.name != "postgresql":
        return
    for statement in _PARTITIONED_TABLE:
        connection.exec_driver_sql(statement)
    connection.execute(text(_FUNCTION))  # the driver would take %I for a placeholder
    connection.exec_driver_sql("REVOKE EXECUTE ON FUNCTION iowatch_result_partition FROM PUBLIC")


def require_partitions(connection: Connection, times: Iterable[int]) -> None:
    """Create the partitions for results at these times (epoch seconds), if they are missing; nothing in SQLite."""
    if connection.dialect.name != "postgresql":
        return
    years = {datetime.fromtimestamp(time, UTC).year for time in times}
    for year in sorted(years):
        connection.execute(select(func.iowatch_result_partition(year)))
