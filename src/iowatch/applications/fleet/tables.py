"""The Darshan logs of a system as Parquet files, one row per log, and DuckDB on them (docs/fleet.md).

`var/fleet/system=S/day=D/part-N.parquet` has the rows of the logs that started on a day (UTC), `day=none` those of
files that are not counted. A row contains the file's name (hashed), size and time: the rows are the ledger of what was
read, and one rename writes both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iowatch.applications.fleet.batch import COPY, COUNTED, import_engines, log_schema
from iowatch.core import InputError, MachineError, UsageError, exclusive_file_lock, files, settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table

# Rows of a part; a smaller one is written anew with more rows, so that many small additions leave few files.
_PART_ROWS = 20_000
_NO_DAY = "none"
_DATABASE_MEMORY = "1GB"


# The storage layers pass data to the operating system: MPI-IO and HDF5 use them, so only they are added up. The first
# four of Darshan's bins are accesses to 100 KiB (docs/darshan.md, "Derived figures").
_LAYERS = """
CREATE VIEW layers AS SELECT *, layer IN ('POSIX', 'STDIO', 'DFS') AS is_storage,
    read_time_s + write_time_s + meta_time_s AS io_time_s,
    coalesce(list_sum(read_sizes[1:4]), 0) AS small_reads, coalesce(list_sum(write_sizes[1:4]), 0) AS small_writes
FROM (SELECT * EXCLUDE (layers, targets), unnest(layers, recursive := true) FROM logs)
"""


# One row per log, file system and target; a log compares its own files, so one target alone shows nothing.
_TARGETS = """
CREATE VIEW targets AS
FROM (SELECT log, day, application, start_s, unnest(targets, recursive := true) FROM logs WHERE NOT partial)
"""


class LogStore:
    """The logs of one system.

    Args:
        system: its name.

    Raises:
        UsageError: a name that cannot be part of a path.
    """

    def __init__(self, system: str) -> None:
        if not re.fullmatch(r"[\w.+-]+", system) or system.startswith("."):
            raise UsageError(f"--system '{system}': letters, digits and . _ + - are possible")
        self.system = system
        self.root = settings.var_directory() / "fleet" / f"system={system}"

    @contextmanager
    def adding(self) -> Iterator[None]:
        """One process at a time adds logs; another waits, and then finds them known."""
        with exclusive_file_lock(self.root / "adding"):
            yield

    def unknown(self, offered: Table) -> list[int]:
        """Return the positions of files that the ledger does not have, or has with another size or time.

        Args:
            offered: columns `file`, `size` and `mtime_ns`.
        """
        if not self._has_parts("*"):
            return list(range(len(offered)))
        pyarrow = import_engines().pyarrow
        listing = offered.append_column("position", pyarrow.array(range(len(offered)), pyarrow.int64()))
        with self.connect("*") as database:
            database.register("offered", listing)
            rows = database.execute(
                "SELECT position FROM offered ANTI JOIN ledger USING (file, size, mtime_ns) ORDER BY position"
            )
            return [position for (position,) in rows.fetchall()]

    def commit(self, rows: Table) -> dict[str, int]:
        """Add rows of `log_schema`; a log that is known or occurs twice becomes a `copy`, without its figures.

        Returns:
            outcome to number of rows.
        """
        with exclusive_file_lock(self.root / "parts"), self._readable():
            days = _days_of(rows)
            outcomes = rows["outcome"].to_pylist()
            logs_of_day = {day: self._stored_logs(day) for day in set(days) - {_NO_DAY}}
            # Copies go to the files that are not counted.
            positions_of_day: dict[str, list[int]] = {}
            for position, (day, log) in enumerate(zip(days, rows["log"].to_pylist(), strict=True)):
                day_of_row = day
                if day != _NO_DAY:
                    if log in logs_of_day[day]:
                        outcomes[position] = COPY
                        day_of_row = _NO_DAY
                    logs_of_day[day].add(log)
                positions_of_day.setdefault(day_of_row, []).append(position)
            for day, positions in sorted(positions_of_day.items()):
                rows_of_day = rows.take(positions)
                if day == _NO_DAY:
                    rows_of_day = _without_figures(rows_of_day, [outcomes[position] for position in positions])
                self._append(day, rows_of_day)
        return Counter(outcomes)

    def _parts(self, day: str) -> list[Path]:
        return sorted(self.root.glob(f"day={day}/part-*.parquet"))

    def _has_parts(self, day: str) -> bool:
        return next(iter(self.root.glob(f"day={day}/part-*.parquet")), None) is not None

    def _stored_logs(self, day: str) -> set[str]:
        """The identities of the logs of a day."""
        parquet = import_engines().parquet
        logs: set[str] = set()
        for part in self._parts(day):
            logs.update(parquet.read_table(part, columns=["log"], partitioning=None)["log"].to_pylist())
        return logs

    def _append(self, day: str, rows: Table) -> None:
        """Write rows into a new part, or with those of the last one in its place; the rename is the commit."""
        engines = import_engines()
        path = self.root / f"day={day}" / "part-00001.parquet"
        parts = self._parts(day)
        if parts:
            path = parts[-1]
            if engines.parquet.read_metadata(path).num_rows + len(rows) <= _PART_ROWS:
                # The last part is written anew with the rows that it has already.
                stored_rows = _with_all_columns(engines.parquet.read_table(path, partitioning=None))
                rows = engines.pyarrow.concat_tables([stored_rows, rows])
            else:
                number = int(path.stem.removeprefix("part-")) + 1
                path = path.with_name(f"part-{number:05d}.parquet")
        with files.open_atomically(path) as stream:
            engines.parquet.write_table(rows, stream, compression="zstd")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Report a damaged file of the tables.

        Raises:
            MachineError: DuckDB or pyarrow cannot read one.
        """
        engines = import_engines()
        try:
            yield
        except (engines.duckdb.Error, engines.pyarrow.ArrowException) as error:
            reason = " ".join(str(error).split())[:300]
            hint = "Restore the directory, or move it away and add the logs again."
            raise MachineError(f"{self.root}: the tables of logs cannot be read: {reason}", hint=hint) from error

    @contextmanager
    def connect(self, day: str = "[0-9]*") -> Iterator[DuckDBPyConnection]:
        """Open DuckDB with the views `ledger` (rows of the days that match), `logs`, `layers` and `targets`.

        `layers` has one row per log, file system, layer and layout, with the columns of the log. Bytes and times of
        rows with `is_storage` can be added up; `io_time_s`, `small_reads` and `small_writes` are derived. `targets` has
        one row per log, file system and target. Commits wait until it is closed.

        Raises:
            InputError: no logs were added.
        """
        if not self._has_parts(day):
            raise InputError(
                f"no Darshan logs of '{self.system}'", hint=f"iowatch logs add DIRECTORY --system {self.system}"
            )
        duckdb = import_engines().duckdb
        pattern = str(self.root / f"day={day}" / "part-*.parquet").replace("'", "''")
        with exclusive_file_lock(self.root / "parts"), self._readable(), duckdb.connect() as database:
            # What exceeds the memory is written to disk, by default below the working directory.
            spill = str(self.root / "spill").replace("'", "''")
            database.execute(f"SET memory_limit = '{_DATABASE_MEMORY}'; SET temp_directory = '{spill}'")
            database.execute("SET autoinstall_known_extensions = false")  # no query loads anything from the network
            # Parts that an earlier version wrote lack columns, which the empty table adds.
            database.register("no_rows", log_schema().empty_table())
            database.execute(
                f"CREATE VIEW ledger AS FROM read_parquet('{pattern}', hive_partitioning = true, "
                "hive_types_autocast = false, union_by_name = true) UNION ALL BY NAME FROM no_rows"
            )
            database.execute(f"CREATE VIEW logs AS FROM ledger WHERE outcome = '{COUNTED}'")
            database.execute(_LAYERS)
            database.execute(_TARGETS)
            yield database


def list_systems() -> list[str]:
    """Return the systems whose logs were added."""
    folders_of_days = (settings.var_directory() / "fleet").glob("system=*/day=[0-9]*")
    return sorted({folder.parent.name.removeprefix("system=") for folder in folders_of_days})


def _days_of(rows: Table) -> list[str]:
    """Return the day (UTC) of each row; `none` for files that are not counted."""
    import numpy as np

    seconds = rows["start_s"].to_numpy(zero_copy_only=False)
    is_counted = np.array([outcome == COUNTED for outcome in rows["outcome"].to_pylist()], dtype=bool)
    days = np.where(is_counted, seconds, 0).astype("datetime64[s]").astype("datetime64[D]").astype(str)
    named_days: list[str] = np.where(is_counted, days, _NO_DAY).tolist()
    return named_days


def _with_all_columns(rows: Table) -> Table:
    """Rows of an earlier version, with nulls in the columns that they lack."""
    pyarrow = import_engines().pyarrow
    schema = log_schema()
    columns = {}
    for field in schema:
        columns[field.name] = pyarrow.nulls(len(rows), field.type)
        if field.name in rows.column_names:
            columns[field.name] = rows[field.name]
    return pyarrow.table(columns).cast(schema)


def _without_figures(rows: Table, outcomes: Sequence[str]) -> Table:
    """Return rows with the columns of the ledger only; the others are null."""
    pyarrow = import_engines().pyarrow
    columns = {}
    for field in rows.schema:
        if field.name in ("file", "size", "mtime_ns"):
            columns[field.name] = rows[field.name]
        elif field.name == "outcome":
            columns[field.name] = pyarrow.array(outcomes, pyarrow.string())
        else:
            columns[field.name] = pyarrow.nulls(len(rows), field.type)
    return pyarrow.table(columns, schema=rows.schema)


def _records(database: DuckDBPyConnection, sql: str, *values: object) -> list[dict[str, Any]]:
    answer = database.execute(sql, values)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


_COUNTS = """
SELECT count(*) AS logs, coalesce(sum(partial::INT), 0)::BIGINT AS partial, min(day) AS first_day, max(day) AS last_day,
    count(DISTINCT application) AS applications,
    (SELECT coalesce(sum(bytes_read), 0)::BIGINT FROM layers WHERE is_storage AND start_s >= $1) AS bytes_read,
    (SELECT coalesce(sum(bytes_written), 0)::BIGINT FROM layers WHERE is_storage AND start_s >= $1) AS bytes_written
FROM logs WHERE start_s >= $1
"""


def count_logs(database: DuckDBPyConnection, since_s: float) -> dict[str, Any]:
    """Return number of logs, of partial ones, of applications, first and last day, and bytes moved since a time."""
    return _records(database, _COUNTS, since_s)[0]


_APPLICATIONS = """
SELECT application, count(DISTINCT log) AS runs, sum(bytes_read)::BIGINT AS bytes_read,
    sum(bytes_written)::BIGINT AS bytes_written, sum(io_time_s) AS io_time_s,
    coalesce(list_sort(list(DISTINCT file_system) FILTER (bytes_read + bytes_written > 0)), []) AS file_systems
FROM layers WHERE start_s >= $1 AND is_storage GROUP BY application
ORDER BY sum(bytes_read + bytes_written) DESC, application LIMIT $2
"""


def list_applications(database: DuckDBPyConnection, since_s: float, limit: int) -> list[dict[str, Any]]:
    """Return the applications that moved most data: runs, bytes, seconds in I/O calls of all ranks, file systems."""
    return _records(database, _APPLICATIONS, since_s, limit)


_PATTERNS = """
WITH uses AS (
    SELECT log, application, file_system, layout, any_value(ranks) AS ranks,
        CASE WHEN bool_or(layer IN ('H5D', 'H5F')) THEN 'HDF5' WHEN bool_or(layer LIKE 'PNETCDF%') THEN 'PnetCDF'
             WHEN bool_or(layer = 'MPI-IO') THEN 'MPI-IO' WHEN bool_or(layer = 'DFS') THEN 'DFS'
             WHEN bool_or(layer = 'POSIX') THEN 'POSIX' ELSE 'STDIO' END AS interface,
        sum(bytes_read) FILTER (is_storage) AS bytes_read, sum(bytes_written) FILTER (is_storage) AS bytes_written,
        sum(io_time_s) FILTER (is_storage) AS io_time_s, max(alignment) AS alignment,
        sum(reads) FILTER (layer = 'POSIX') AS reads, sum(writes) FILTER (layer = 'POSIX') AS writes,
        sum(small_reads) FILTER (layer = 'POSIX') AS small_reads,
        sum(small_writes) FILTER (layer = 'POSIX') AS small_writes,
        sum(unaligned) FILTER (layer = 'POSIX') AS unaligned,
        sum(collective_writes) AS collective_writes, sum(independent_writes) AS independent_writes,
        sum(small_writes) FILTER (layer = 'MPI-IO') AS small_mpiio_writes
    FROM layers WHERE start_s >= $1 GROUP BY log, application, file_system, layout
)
SELECT application, file_system, layout, interface, count(*) AS runs, min(ranks) AS min_ranks, max(ranks) AS max_ranks,
    sum(io_time_s) AS io_time_s, max(alignment) AS alignment,
    COLUMNS(['bytes_read', 'bytes_written', 'reads', 'writes', 'small_reads', 'small_writes', 'unaligned',
             'collective_writes', 'independent_writes', 'small_mpiio_writes']).sum().coalesce(0)::BIGINT
FROM uses GROUP BY application, file_system, layout, interface HAVING sum(io_time_s) > 0
ORDER BY sum(io_time_s) DESC, application, file_system, layout LIMIT $2
"""


def list_patterns(database: DuckDBPyConnection, since_s: float, limit: int) -> list[dict[str, Any]]:
    """Return the patterns that take most time in I/O calls, most first.

    A pattern is what an application does with the files of one layout on one file system, through the topmost
    interface that its logs show. Accesses, small and unaligned ones are those of POSIX; collective and independent
    ones of MPI-IO.
    """
    return _records(database, _PATTERNS, since_s, limit)


# log2 in steps of 0.5 and shares in steps of 0.1: a pattern is what many runs share exactly.
_RUNS = """
CREATE TEMP TABLE interfaces AS SELECT log, file_system,
    CASE WHEN bool_or(layer IN ('H5D', 'H5F')) THEN 'HDF5' WHEN bool_or(layer LIKE 'PNETCDF%') THEN 'PNETCDF'
         WHEN bool_or(layer = 'MPI-IO') THEN 'MPIIO' ELSE 'POSIX' END AS api
    FROM layers GROUP BY log, file_system;
CREATE TEMP TABLE figures AS SELECT log, file_system, application, ranks, day,
    sum(bytes_read + bytes_written) / 1048576 / sum(slowest_s) AS bandwidth,
    CASE WHEN 2 * coalesce(sum(bytes_read + bytes_written) FILTER (layout = 'shared'), 0)
        >= sum(bytes_read + bytes_written) THEN 'shared' ELSE 'per-process' END AS file,
    sum(unaligned) <= 0.1 * sum(reads + writes) AS aligned,
    CASE WHEN sum(bytes_written) >= sum(bytes_read) THEN 'write' ELSE 'read' END AS operation,
    [sum(bytes_read) / 1048576, sum(bytes_written) / 1048576, sum(files) FILTER (layout = 'shared'),
     sum(files) FILTER (layout = 'unique')] AS amounts,
    greatest(sum(reads), 1) AS reads, greatest(sum(writes), 1) AS writes,
    [sum(read_sizes[1]), sum(read_sizes[2]), sum(read_sizes[3]), sum(read_sizes[4]), sum(read_sizes[5]),
     sum(read_sizes[6]), sum(read_sizes[7]), sum(read_sizes[8]), sum(read_sizes[9]), sum(read_sizes[10])] AS read_bins,
    [sum(write_sizes[1]), sum(write_sizes[2]), sum(write_sizes[3]), sum(write_sizes[4]), sum(write_sizes[5]),
     sum(write_sizes[6]), sum(write_sizes[7]), sum(write_sizes[8]), sum(write_sizes[9]), sum(write_sizes[10])]
     AS write_bins
    FROM layers WHERE is_storage AND NOT partial GROUP BY log, file_system, application, ranks, day
    HAVING sum(bytes_read + bytes_written) >= getvariable('min_bytes') AND sum(slowest_s) >= getvariable('min_time_s');
CREATE TEMP TABLE runs AS
    SELECT application, ranks, file_system, api, file, aligned, operation, day, bandwidth,
        [round(2 * log2(1 + coalesce(x, 0))) / 2 FOR x IN amounts]
        || [round(10 * coalesce(x, 0) / reads) / 10 FOR x IN read_bins]
        || [round(10 * coalesce(x, 0) / writes) / 10 FOR x IN write_bins] AS features,
        dense_rank() OVER (ORDER BY application, ranks, file_system, api, file, aligned, operation, features) AS pattern
    FROM figures JOIN interfaces USING (log, file_system)
"""
_RUN_PATTERNS = """
SELECT application, ranks, file_system, api, file, aligned, operation, features, pattern, count(*) AS runs
FROM runs GROUP BY ALL ORDER BY pattern
"""


def make_run_table(database: DuckDBPyConnection, *, min_bytes: int, min_time_s: float) -> list[dict[str, Any]]:
    """Create the table `runs` (a log on a file system) and return its distinct patterns with their numbers of runs.

    `features` are those of [costa2021]: log2 of MiB read and written and of the numbers of shared and unique files, and
    the shares of Darshan's ten bins of sizes, read and written; shape (24,), rounded.

    Args:
        min_bytes, min_time_s: smaller or shorter runs, whose bandwidth is that of caches and latencies, are left out.
    """
    database.execute("SET VARIABLE min_bytes = $1", [min_bytes])
    database.execute("SET VARIABLE min_time_s = $1", [min_time_s])
    database.execute(_RUNS)
    return _records(database, _RUN_PATTERNS)


@dataclass(frozen=True)
class DailyBandwidth:
    """What a cluster of runs reached on one day: `start_s` of the day in epoch seconds, median in MiB/s."""

    cluster: int
    start_s: int
    runs: int
    median: float


def daily_bandwidths(database: DuckDBPyConnection, clusters: Mapping[int, int]) -> list[DailyBandwidth]:
    """Return the median bandwidths of the days on which a cluster had runs, in order of cluster and day.

    Args:
        clusters: pattern (of `make_run_table`) to cluster.
    """
    pyarrow = import_engines().pyarrow
    table_of_clusters = pyarrow.table(
        {
            "pattern": pyarrow.array(list(clusters), pyarrow.int64()),
            "cluster": pyarrow.array(list(clusters.values()), pyarrow.int64()),
        }
    )
    database.register("clusters", table_of_clusters)
    rows = database.execute(
        "SELECT cluster, epoch(day::DATE)::BIGINT AS start, count(*), median(bandwidth) FROM runs JOIN clusters "
        "USING (pattern) GROUP BY cluster, start ORDER BY cluster, start"
    ).fetchall()
    return [DailyBandwidth(*row) for row in rows]
