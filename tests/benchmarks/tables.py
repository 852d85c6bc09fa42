"""Tables and maps that several tests read."""

from __future__ import annotations

import textwrap
from pathlib import Path

from iowatch.benchmarks.tables import MappedTable, read_table
from iowatch.benchmarks.tables.maps import TableMap, load_map

DATA = Path(__file__).parent / "tables_data"
# A German spreadsheet: semicolon, decimal comma, point for thousands, day.month.year, one column per metric. The second
# night has no read; remarks are not mapped.
SPREADSHEET = (
    "\ufeffDatum;Uhrzeit;Dateisystem;Prozesse;Schreiben [MB/s];Lesen [MB/s];Bemerkung\r\n"
    '30.12.2025;02:30;/scratch;96;12.345,6;9.876,5;"nach der ""Wartung"";\r\nzweite Zeile"\r\n'
    "31.12.2025;02:30;/scratch;96;12.001,0;;\r\n"
    "01.01.2026;02:30;/home;96;812,25;640,5;\r\n"
)
SPREADSHEET_MAP = """
    title: nights of a spreadsheet
    file: {decimal: ",", thousands: "."}
    time: {column: [Datum, Uhrzeit], format: "%d.%m.%Y %H:%M", zone: Europe/Berlin}
    benchmark: ior
    case:
      ranks: {column: Prozesse, values: {96: 96}}
      file_system: {column: Dateisystem, values: {/scratch: scratch, /home: home}}
    values:
      - {column: "Schreiben [MB/s]", unit: MB/s, case: {operation: write}}
      - {column: "Lesen [MB/s]", unit: MB/s, case: {operation: read}}
    """
# A long table: one row per metric, tabs, ISO times with offsets, units in a column.
LONG = (
    "time\ttest\tmetric\tunit\tvalue\n"
    "2025-03-30T01:30:00+01:00\twrite\tBW\tGiB/s\t1.5\n"
    "2025-03-30T01:30:00+01:00\twrite\tT\tms\t250\n"
    "2025-03-31T01:30:00+02:00\tread\tBW\tMiB/s\t2000\n"
)
LONG_MAP = """
    title: one row per metric
    time: {column: time}
    benchmark: ior
    case: {operation: {column: test, values: {write: write, read: read}}}
    values:
      - {column: value, unit: {column: unit, values: {GiB/s: GiB/s, MiB/s: MiB/s, ms: ms}},
         metric: {column: metric, values: {BW: bandwidth, T: time}}}
    """


def write_map(folder: Path, text: str, name: str = "own.yaml") -> TableMap:
    """A map of this text."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return load_map(str(path))


def read(folder: Path, content: str | bytes, chosen: TableMap | str, name: str = "table.csv") -> MappedTable:
    """What a file of this content becomes."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    own = write_map(folder, chosen) if isinstance(chosen, str) and "\n" in chosen else chosen
    return read_table(path, own)


Point = tuple[int, str, str, str, tuple[tuple[str, object], ...], str, tuple[float, ...]]


def points(table: MappedTable) -> set[Point]:
    """All results of runs with status ok: time, place, tool, case, metric, samples."""
    return {
        (
            run.started_at,
            run.partition,
            run.stack,
            str(run.output.tool),
            tuple(sorted({**result.case, "operation": result.operation}.items())),
            result.metric,
            result.samples,
        )
        for run in table.runs
        if run.output.status == "ok"
        for result in run.output.results
    }
