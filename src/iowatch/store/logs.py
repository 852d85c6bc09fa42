"""The Darshan logs of a system as Parquet files, one row per log, and DuckDB on them (docs/fleet.md).

`var/fleet/system=S/day=D/part-N.parquet` has the rows of the logs that started on a day (UTC), `day=none` those of
files that are not counted. A row contains the file's name (hashed), size and time: the rows are the ledger of what was
read, and one rename writes both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from iowatch.core import InputError, UsageError, exclusive_file_lock, files, settings
from iowatch.darshan import COPY, COUNTED, import_engines, log_schema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table

# Rows of a part; a smaller one is written anew with more rows, so that many small additions leave few files.
_PART_ROWS = 20_000
_NO_DAY = "none"
_DATABASE_MEMORY = "1GB"


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
        pa, _, _ = import_engines()
        listing = offered.append_column("position", pa.array(range(len(offered)), pa.int64()))
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
        with exclusive_file_lock(self.root / "parts"):
            days, outcomes = self._days(rows), rows["outcome"].to_pylist()
            known = {day: self._known_logs(day) for day in set(days) - {_NO_DAY}}
            positions: dict[str, list[int]] = {}
            for i, (day, log) in enumerate(zip(days, rows["log"].to_pylist(), strict=True)):
                is_copy = day != _NO_DAY and log in known[day]
                if is_copy:
                    outcomes[i] = COPY
                elif day != _NO_DAY:
                    known[day].add(log)
                positions.setdefault(_NO_DAY if is_copy else day, []).append(i)
            for day, chosen in sorted(positions.items()):
                part = rows.take(chosen)
                self._append(day, part if day != _NO_DAY else _without_figures(part, [outcomes[i] for i in chosen]))
        return Counter(outcomes)

    def _days(self, rows: Table) -> list[str]:
        """Return the day (UTC) of each row; `none` for files that are not counted."""
        import numpy as np

        seconds = rows["start_s"].to_numpy(zero_copy_only=False)
        counted = [outcome == COUNTED for outcome in rows["outcome"].to_pylist()]
        days = np.where(counted, seconds, 0).astype("datetime64[s]").astype("datetime64[D]").astype(str)
        return [str(day) if is_log else _NO_DAY for day, is_log in zip(days, counted, strict=True)]

    def _parts(self, day: str) -> list[Path]:
        return sorted(self.root.glob(f"day={day}/part-*.parquet"))

    def _has_parts(self, day: str) -> bool:
        return next(iter(self.root.glob(f"day={day}/part-*.parquet")), None) is not None

    def _known_logs(self, day: str) -> set[str]:
        _, pq, _ = import_engines()
        return {
            log
            for part in self._parts(day)
            for log in pq.read_table(part, columns=["log"], partitioning=None)["log"].to_pylist()
        }

    def _append(self, day: str, rows: Table) -> None:
        """Write rows into a new part, or with those of the last one in its place; the rename is the commit."""
        pa, pq, _ = import_engines()
        parts = self._parts(day)
        path = parts[-1] if parts else self.root / f"day={day}" / "part-00001.parquet"
        if parts:
            if pq.read_metadata(path).num_rows + len(rows) <= _PART_ROWS:
                rows = pa.concat_tables([pq.read_table(path, partitioning=None).cast(log_schema()), rows])
            else:
                path = path.with_name(f"part-{int(path.stem[5:]) + 1:05d}.parquet")
        with files.open_atomically(path) as stream:
            pq.write_table(rows, stream, compression="zstd")

    @contextmanager
    def connect(self, day: str = "[0-9]*") -> Iterator[DuckDBPyConnection]:
        """Open DuckDB with the views `ledger` (rows of the days that match), `logs` and `layers`; commits wait.

        `layers` has one row per log, file system, layer and layout, with the columns of the log.

        Raises:
            InputError: no logs were added.
        """
        if not self._has_parts(day):
            raise InputError(
                f"no Darshan logs of '{self.system}'", hint=f"iowatch logs add DIRECTORY --system {self.system}"
            )
        _, _, duckdb = import_engines()
        pattern = str(self.root / f"day={day}" / "part-*.parquet").replace("'", "''")
        with exclusive_file_lock(self.root / "parts"), duckdb.connect() as database:
            # What exceeds the memory is written to disk, by default below the working directory.
            spill = str(self.root / "spill").replace("'", "''")
            database.execute(f"SET memory_limit = '{_DATABASE_MEMORY}'; SET temp_directory = '{spill}'")
            database.execute(
                f"CREATE VIEW ledger AS FROM read_parquet('{pattern}', hive_partitioning = true, "
                "hive_types_autocast = false)"
            )
            database.execute(f"CREATE VIEW logs AS FROM ledger WHERE outcome = '{COUNTED}'")
            database.execute(
                "CREATE VIEW layers AS SELECT * EXCLUDE (layers), unnest(layers, recursive := true) FROM logs"
            )
            yield database


def _without_figures(rows: Table, outcomes: Sequence[str]) -> Table:
    """Return rows with the columns of the ledger only; the others are null."""
    pa, _, _ = import_engines()
    kept = {"file", "size", "mtime_ns"}
    columns = {
        field.name: rows[field.name] if field.name in kept else pa.nulls(len(rows), field.type) for field in rows.schema
    }
    return pa.table(columns | {"outcome": pa.array(outcomes, pa.string())}, schema=rows.schema)
