"""Runs of a table, by a map: every number under status ok is one of the file, in the unit of its metric.

A line that cannot be read as the map states is refused with the reason, and does not stop others.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from iowatch.benchmarks.tables import maps, tables
from iowatch.benchmarks.tables.cells import MAX_CHARACTERS, CellReader
from iowatch.core import (
    AVERAGED_COVARIATES,
    METRICS,
    InputError,
    Output,
    Result,
    Scalar,
    UsageError,
    canonical_json,
    escape_line,
    to_metric_unit,
    units,
)

_MAX_NAME_CHARACTERS = 100  # of a benchmark in the database
# A unit implies the metric, if the map names none.
_METRIC_OF_UNIT = {"MiB/s": "bandwidth", "s": "time", "1/s": "rate"}
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)


Names = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MappedRun:
    """One run of a table.

    Attributes:
        line: of its first row.
        started_at: epoch seconds, UTC.
        session: name of its session within the import.
        identity: equal for the same measurement in every import.
    """

    line: int
    name: str
    partition: str
    stack: str
    started_at: int
    wall_s: float | None
    session: str
    identity: str
    output: Output
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A line that became nothing, and why."""

    line: int
    reason: str


@dataclass
class MappedTable:
    """What a file becomes.

    Attributes:
        runs: in order of the file.
        refused: lines with problems.
        skipped: rows that `keep` excludes.
        empty: rows without any value.
        repeated: rows that are equal to earlier ones.
        ambiguous: local times that occur twice, when summer time ends: the first is used.
        units: number of values by (unit of the file, metric).
    """

    runs: list[MappedRun] = field(default_factory=list)
    refused: list[RefusedLine] = field(default_factory=list)
    skipped: int = 0
    empty: int = 0
    repeated: int = 0
    ambiguous: int = 0
    units: Counter[tuple[str, str]] = field(default_factory=Counter)


def read_table(
    path: Path,
    by: maps.TableMap | str,
    *,
    moment: datetime | None = None,
    latest: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> MappedTable:
    """Return what a file becomes by a map, or by the ready map of that name.

    Args:
        moment: start of the runs, if the map has no column for it.
        latest: times after it are refused.
        partition, stack: of runs for which the map states none.

    Raises:
        InputError: the file is not readable, or not a table with the columns of the map.
        UsageError: no such map; `moment` is missing.
    """
    table_map = maps.load_map(by) if isinstance(by, str) else by
    if table_map.time is None and moment is None:
        hint = "Give it with --time (ISO 8601 or epoch seconds)."
        raise UsageError(f"the map '{table_map.name}' has no time", hint=hint)
    if table_map.reads_time and moment is not None:
        raise UsageError(f"the map '{table_map.name}' reads the times from the file", hint="Omit --time.")
    table = MappedTable()
    reader = _RowReader(path, table_map, _Defaults(moment, latest, partition, stack), table)
    for row in _rows(path, table_map):
        try:
            if row.damage is not None:
                raise ValueError(row.damage)
            reader.add(row)
        except ValueError as error:
            table.refused.append(RefusedLine(row.line, escape_line(str(error))[:MAX_CHARACTERS]))
    table.runs = list(reader.runs.values())
    table.ambiguous = reader.cells.ambiguous
    return table


def _rows(path: Path, table_map: maps.TableMap) -> Iterator[tables.TableRow]:
    """Yield the rows of a file.

    Raises:
        InputError: as `read_rows`, with the hint of the map.
    """
    try:
        yield from tables.read_rows(path, table_map.file, table_map.needed)
    except InputError as error:
        hints = [hint for hint in (error.hint, table_map.hint) if hint]
        raise InputError(error.message, hint="\n  ".join(hints) or None) from error


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Arguments of `read_table`."""

    moment: datetime | None
    latest: datetime | None
    partition: str
    stack: str


class _RowReader:
    """Collects the runs of one file.

    Its methods raise ValueError for a row that is refused.
    """

    def __init__(self, path: Path, table_map: maps.TableMap, defaults: _Defaults, table: MappedTable) -> None:
        """Prepare for the rows of a file.

        Args:
            table: its counts are increased.
        """
        self._path, self._map, self._defaults, self._table = str(path.resolve()), table_map, defaults, table
        self.cells = CellReader(table_map.file)
        self._missing = {"", *table_map.missing}
        self._zone: tzinfo = UTC
        if table_map.time and table_map.time.zone:
            self._zone = units.find_time_zone(table_map.time.zone)
        self._units: Counter[tuple[str, str]] = Counter()  # of the row that is read
        self.runs: dict[str, MappedRun] = {}

    def add(self, row: tables.TableRow) -> None:
        """Add a row to the runs."""
        cells = {name: "" if text in self._missing else text for name, text in row.cells.items()}
        cells[maps.FILE_COLUMN] = self._path
        self._units = Counter()
        # Columns that the map makes of others; they can be used by those that follow.
        for name, source in self._map.columns.items():
            value = self.cells.value(source, cells)
            cells[name] = "" if value is None else str(value)
        if not all(condition.holds(cells, self.cells.number) for condition in self._map.keep):
            self._table.skipped += 1
            return
        run = self._read_run(row.line, cells)
        if run is None:
            self._table.empty += 1
        elif run.identity in self.runs:
            self._merge(self.runs[run.identity], run)
        else:
            self.runs[run.identity] = run
            self._table.units += self._units

    def _merge(self, first: MappedRun, run: MappedRun) -> None:
        """Add the results of a row with the same time and case to the run: as others, or as repetitions."""
        results = {_result_key(result): result for result in first.output.results}
        if first.output.status != run.output.status:
            raise ValueError(f"line {first.line} of the same run states another outcome")
        if first.output == run.output and self._map.repetitions != "rows":
            self._table.repeated += 1
            return
        for result in run.output.results:
            key = _result_key(result)
            earlier_samples = results[key].samples if key in results else ()
            if earlier_samples and self._map.repetitions != "rows":
                raise ValueError(
                    f"same time and case as line {first.line}, other value; if these are repetitions, set "
                    "'repetitions: rows', else map the column that distinguishes them"
                )
            results[key] = replace(result, samples=earlier_samples + result.samples)
        output = replace(first.output, results=tuple(results.values()))
        self.runs[run.identity] = replace(first, output=output)
        self._table.units += self._units

    def _values(
        self, sources: Mapping[str, maps.Source], cells: Mapping[str, str], groups: Mapping[str, str] | None = None
    ) -> dict[str, Scalar]:
        """Return what each source gives for a row; sources with an empty cell are left out."""
        values: dict[str, Scalar] = {}
        for name, source in sources.items():
            value = self.cells.value(source, cells, groups)
            if value is not None:
                values[name] = value
        return values

    def _read_run(self, line: int, cells: dict[str, str]) -> MappedRun | None:
        """Return the run of a row; None if it has no value."""
        table_map = self._map
        started, day = self._start(cells)
        benchmark = self._text(table_map.benchmark, "benchmark", cells)
        case = self._values(table_map.case, cells)
        case |= self._pairs(cells)
        output = self._output(benchmark, case, cells)
        if output.status == "ok" and not output.results:
            return None
        partition = self._text_or_option(table_map.partition, self._defaults.partition, "partition", cells)
        stack = self._text_or_option(table_map.stack, self._defaults.stack, "stack", cells)
        # Identity, name and session can be made of columns and parameters.
        names = {**cells, **case, "benchmark": benchmark, "time": int(started)}
        identity = self._identity(benchmark, case, (partition, stack), names)
        run_name = _run_name(benchmark, case, identity)
        if table_map.run:
            run_name = maps.fill_template(table_map.run, names)
        session = day
        if table_map.session != "day":
            session = self._text(table_map.session, "session", cells)
        return MappedRun(
            line=line,
            name=run_name,
            partition=partition,
            stack=stack,
            started_at=int(started),
            wall_s=self._wall(cells, started),
            session=session,
            identity=identity,
            output=output,
            facts=self._facts(cells),
        )

    def _output(self, benchmark: str, case: Mapping[str, Scalar], cells: Mapping[str, str]) -> Output:
        version = None
        if self._map.version:
            version_value = self.cells.value(self._map.version, cells)
            if version_value is not None:
                version = str(version_value)[:_MAX_NAME_CHARACTERS]
        for condition in self._map.failed:
            if condition.holds(cells, self.cells.number):
                reason = f"{condition.left} is '{escape_line(cells[condition.left].strip())}'"
                return Output(benchmark, version, "failed", reason[:MAX_CHARACTERS], ())
        results = self._results(case, cells)
        if results or self._map.no_value == "skipped":
            return Output(benchmark, version, "ok", None, results)
        names = ", ".join(source.column for source in self._map.values if source.column)
        return Output(benchmark, version, "failed", f"no value {names}".strip()[:MAX_CHARACTERS], ())

    def _identity(
        self, benchmark: str, case: Mapping[str, Scalar], partition_and_stack: tuple[str, str], names: Names
    ) -> str:
        """Return what makes the run unique: not its values, so that a corrected value is found as such."""
        if self._map.identity is not None:
            return f"{self._map.name}\0{maps.fill_template(self._map.identity, names)}"
        document = {"benchmark": benchmark, "case": case, "places": partition_and_stack, "time": names["time"]}
        return f"csv\0{canonical_json(document)}"

    def _start(self, cells: Mapping[str, str]) -> tuple[float, str]:
        """Return the start in epoch seconds, and its day in the zone of the map."""
        moment, latest = self._defaults.moment, self._defaults.latest
        if moment is None:
            moment = self.cells.time(self._map.time, cells)
        if moment < EARLIEST or (latest is not None and moment > latest):
            raise ValueError(f"the time {moment.isoformat()} is before 1990 or in the future")
        return moment.timestamp(), f"{moment.astimezone(self._zone):%Y%m%d}"

    def _wall(self, cells: Mapping[str, str], started: float) -> float | None:
        end = self._map.end
        if end is None:
            return None
        is_optional = set(end.column) <= set(self._map.optional)
        is_empty = not any(cells[name] for name in end.column)
        if is_optional and is_empty:
            return None
        ended = self.cells.time(end, cells).timestamp()
        if ended < started:
            raise ValueError("the end is before the start")
        return ended - started

    def _text(self, source: maps.Source | str, what: str, cells: Mapping[str, str]) -> str:
        value = source if isinstance(source, str) else self.cells.value(source, cells)
        if value is None or not 0 < len(str(value).strip()) <= _MAX_NAME_CHARACTERS:
            raise ValueError(f"no {what}: its column is empty, or longer than {_MAX_NAME_CHARACTERS} characters")
        return str(value)

    def _text_or_option(self, source: maps.Source | None, option: str, what: str, cells: Mapping[str, str]) -> str:
        """Return the text of a source; that of the option without one, or if no condition of its `choose` holds."""
        if source is None:
            return self._text(option, what, cells)
        if source.choose and self.cells.value(source, cells) is None:
            return self._text(option, what, cells)
        return self._text(source, what, cells)

    def _pairs(self, cells: Mapping[str, str]) -> dict[str, Scalar]:
        pairs = self._map.pairs
        if pairs is None:
            return {}
        found = re.findall(pairs.pattern, cells[pairs.column])
        return {pairs.names.get(name, name): self.cells.plain(text) for name, text in found}

    def _results(self, case: Mapping[str, Scalar], cells: Mapping[str, str]) -> tuple[Result, ...]:
        found: dict[str, Result] = {}
        for source in self._map.values:
            for column, groups in _value_columns(source, cells):
                result = self._result(source, column, groups, case, cells)
                if result is None:
                    continue
                key = _result_key(result)
                if key in found and self._map.repetitions != "columns":
                    raise ValueError(
                        f"column '{column}' has the same case and metric as an earlier one; if these are repetitions, "
                        "set 'repetitions: columns'"
                    )
                earlier = found[key].samples if key in found else ()
                found[key] = replace(result, samples=earlier + result.samples)
        return tuple(found.values())

    def _result(
        self,
        source: maps.ValueSource,
        column: str,
        groups: Mapping[str, str],
        case: Mapping[str, Scalar],
        cells: Mapping[str, str],
    ) -> Result | None:
        text = cells[column]
        if not text:
            return None
        if source.pattern is not None:
            match = re.fullmatch(source.pattern, text)
            if match is None:
                raise ValueError(f"column '{column}': '{text}' does not match 'pattern'")
            groups = {**groups, **match.groupdict(default="")}
            text = groups["value"]
            if text in self._missing:
                return None
        texts = {**cells, **groups}
        unit = str(self.cells.value(source.unit, texts, groups) or "")
        try:
            quantity = to_metric_unit(self.cells.number(text), unit)
        except (InputError, ValueError) as error:
            raise ValueError(f"column '{column}': {error.args[0]}") from error
        metric = self._metric(source, quantity.unit, texts, groups, column)
        if not (quantity.value > 0 and METRICS[metric].is_plausible(quantity.value)):
            raise ValueError(f"column '{column}': {text} {unit} is not above 0 and below the ceiling of {metric}")
        parameters = {**case, **self._values(source.case, texts, groups)}
        operation = str(parameters.pop("operation", "run"))
        self._units[unit, metric] += 1
        return Result(operation, metric, quantity.unit, (quantity.value,), parameters)

    def _metric(
        self, source: maps.ValueSource, unit: str, texts: Mapping[str, str], groups: Mapping[str, str], column: str
    ) -> str:
        if source.metric is None:
            metric = _METRIC_OF_UNIT.get(unit)
            if metric is None:
                raise ValueError(f"column '{column}': the unit implies no metric; set 'metric' in the map")
            return metric
        metric = str(self.cells.value(source.metric, texts, groups))
        if metric not in METRICS:
            raise ValueError(f"column '{column}': unknown metric '{metric}'")
        if METRICS[metric].unit != unit:
            raise ValueError(
                f"column '{column}': a value in {unit} is no {metric}, whose unit is {METRICS[metric].unit}"
            )
        return metric

    def _facts(self, cells: Mapping[str, str]) -> dict[str, Any]:
        facts: dict[str, Any] = dict(self._values(self._map.facts, cells))
        for name in AVERAGED_COVARIATES:
            if cells.get(name) and cells[name].lower() not in ("nan", "inf", "-inf"):
                facts[name] = self.cells.number(cells[name])
        return facts


def _value_columns(source: maps.ValueSource, cells: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the columns of a value source with the groups of their names."""
    if source.column is not None:
        yield source.column, {}
        return
    pattern = re.compile(source.columns or "")
    for name in cells:
        match = pattern.fullmatch(name)
        if match is not None:
            yield name, match.groupdict(default="")


def _result_key(result: Result) -> str:
    return canonical_json({"case": dict(result.case), "operation": result.operation, "metric": result.metric})


def _run_name(benchmark: str, case: Mapping[str, Scalar], identity: str) -> str:
    """Return a name that differs for all runs of a session."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"{benchmark}-{case.get('operation', 'run')}-{digest}"
