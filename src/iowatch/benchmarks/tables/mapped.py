"""Runs of a table, by a map: every number under status ok is one of the file, in the unit of its metric.

A line that cannot be read as the map states is refused with the reason, and does not stop others.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
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
    chosen = maps.load_map(by) if isinstance(by, str) else by
    if chosen.time is None and moment is None:
        hint = "Give it with --time (ISO 8601 or epoch seconds)."
        raise UsageError(f"the map '{chosen.name}' has no time", hint=hint)
    if chosen.reads_time and moment is not None:
        raise UsageError(f"the map '{chosen.name}' reads the times from the file", hint="Omit --time.")
    found = MappedTable()
    reader = _RowReader(path, chosen, _Defaults(moment, latest, partition, stack), found)
    for row in tables.read_rows(path, chosen.file, chosen.needed):
        try:
            if row.damage is not None:
                raise ValueError(row.damage)
            reader.add(row)
        except ValueError as error:
            found.refused.append(RefusedLine(row.line, escape_line(str(error))[:MAX_CHARACTERS]))
    found.runs = list(reader.runs.values())
    found.ambiguous = reader.cells.ambiguous
    return found


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

    def __init__(self, path: Path, chosen: maps.TableMap, defaults: _Defaults, found: MappedTable) -> None:
        self._path, self._map, self._defaults, self._found = str(path.resolve()), chosen, defaults, found
        self.cells = CellReader(chosen.file)
        self._missing = {"", *chosen.missing}
        self._zone = units.find_time_zone(chosen.time.zone) if chosen.time and chosen.time.zone else UTC
        self._units: Counter[tuple[str, str]] = Counter()
        self.runs: dict[str, MappedRun] = {}

    def add(self, row: tables.TableRow) -> None:
        """Add a row to the runs."""
        cells = {name: "" if text in self._missing else text for name, text in row.cells.items()}
        cells[maps.FILE_COLUMN] = self._path
        self._units = Counter()
        for name, source in self._map.columns.items():
            cells[name] = "" if (value := self.cells.value(source, cells)) is None else str(value)
        if not all(condition.holds(cells, self.cells.number) for condition in self._map.keep):
            self._found.skipped += 1
            return
        run = self._read_run(row.line, cells)
        if run is None:
            self._found.empty += 1
        elif run.identity in self.runs:
            self._merge(self.runs[run.identity], run)
        else:
            self.runs[run.identity] = run
            self._found.units += self._units

    def _merge(self, first: MappedRun, run: MappedRun) -> None:
        """Add the results of a row with the same time and case to the run: as others, or as repetitions."""
        joined = {_result_key(result): result for result in first.output.results}
        if first.output.status != run.output.status:
            raise ValueError(f"line {first.line} of the same run states another outcome")
        if first.output == run.output and self._map.repetitions != "rows":
            self._found.repeated += 1
            return
        for result in run.output.results:
            key = _result_key(result)
            earlier = joined[key].samples if key in joined else ()
            if earlier and self._map.repetitions != "rows":
                raise ValueError(
                    f"same time and case as line {first.line}, other value; if these are repetitions, set "
                    "'repetitions: rows', else map the column that distinguishes them"
                )
            joined[key] = replace(result, samples=earlier + result.samples)
        output = replace(first.output, results=tuple(joined.values()))
        self.runs[run.identity] = replace(first, output=output)
        self._found.units += self._units

    def _read_run(self, line: int, cells: dict[str, str]) -> MappedRun | None:
        chosen = self._map
        started, day = self._start(cells)
        benchmark = self._text(chosen.benchmark, "benchmark", cells)
        case = {name: value for name, one in chosen.case.items() if (value := self.cells.value(one, cells)) is not None}
        case |= self._pairs(cells)
        output = self._output(benchmark, case, cells)
        if output.status == "ok" and not output.results:
            return None
        partition = self._text(chosen.partition or self._defaults.partition, "partition", cells)
        stack = self._text(chosen.stack or self._defaults.stack, "stack", cells)
        names = {**cells, **case, "benchmark": benchmark, "time": int(started)}
        identity = self._identity(benchmark, case, (partition, stack), names)
        return MappedRun(
            line=line,
            name=maps.fill_template(chosen.run, names) if chosen.run else _run_name(benchmark, case, identity),
            partition=partition,
            stack=stack,
            started_at=int(started),
            wall_s=self._wall(cells, started),
            session=day if chosen.session == "day" else self._text(chosen.session, "session", cells),
            identity=identity,
            output=output,
            facts=self._facts(cells),
        )

    def _output(self, benchmark: str, case: Mapping[str, Scalar], cells: Mapping[str, str]) -> Output:
        version = self.cells.value(self._map.version, cells) if self._map.version else None
        version = None if version is None else str(version)[:_MAX_NAME_CHARACTERS]
        failure = next((one for one in self._map.failed if one.holds(cells, self.cells.number)), None)
        if failure is None:
            results = self._results(case, cells)
            if results or self._map.no_value == "skipped":
                return Output(benchmark, version, "ok", None, results)
            names = ", ".join(one.column for one in self._map.values if one.column)
            return Output(benchmark, version, "failed", f"no value {names}".strip()[:MAX_CHARACTERS], ())
        reason = f"{failure.left} is '{escape_line(cells[failure.left].strip())}'"
        return Output(benchmark, version, "failed", reason[:MAX_CHARACTERS], ())

    def _identity(self, benchmark: str, case: Mapping[str, Scalar], places: tuple[str, str], names: Names) -> str:
        """Return what makes the run unique: not its values, so that a corrected value is found as such."""
        if self._map.identity is not None:
            return f"{self._map.name}\0{maps.fill_template(self._map.identity, names)}"
        own = {"benchmark": benchmark, "case": case, "places": places, "time": names["time"]}
        return f"csv\0{canonical_json(own)}"

    def _start(self, cells: Mapping[str, str]) -> tuple[float, str]:
        """Return the start in epoch seconds, and its day in the zone of the map."""
        given, latest = self._defaults.moment, self._defaults.latest
        moment = self.cells.time(self._map.time, cells) if given is None else given
        if moment < EARLIEST or (latest is not None and moment > latest):
            raise ValueError(f"the time {moment.isoformat()} is before 1990 or in the future")
        return moment.timestamp(), f"{moment.astimezone(self._zone):%Y%m%d}"

    def _wall(self, cells: Mapping[str, str], started: float) -> float | None:
        end = self._map.end
        if end is None or (set(end.column) <= set(self._map.optional) and not any(cells[name] for name in end.column)):
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
        known = {**cells, **groups}
        unit = str(self.cells.value(source.unit, known, groups) or "")
        try:
            value, stored_unit = to_metric_unit(self.cells.number(text), unit)
        except (InputError, ValueError) as error:
            raise ValueError(f"column '{column}': {error.args[0]}") from error
        metric = self._metric(source, stored_unit, known, groups, column)
        if not 0 < value <= METRICS[metric].ceiling:
            raise ValueError(f"column '{column}': {text} {unit} is not above 0 and below the ceiling of {metric}")
        own = {
            name: found
            for name, one in source.case.items()
            if (found := self.cells.value(one, known, groups)) is not None
        }
        merged = {**case, **own}
        operation = str(merged.pop("operation", "run"))
        self._units[unit, metric] += 1
        return Result(operation, metric, stored_unit, (value,), merged)

    def _metric(
        self, source: maps.ValueSource, unit: str, known: Mapping[str, str], groups: Mapping[str, str], column: str
    ) -> str:
        if source.metric is None:
            metric = _METRIC_OF_UNIT.get(unit)
            if metric is None:
                raise ValueError(f"column '{column}': the unit implies no metric; set 'metric' in the map")
            return metric
        metric = str(self.cells.value(source.metric, known, groups))
        if metric not in METRICS:
            raise ValueError(f"column '{column}': unknown metric '{metric}'")
        if METRICS[metric].unit != unit:
            raise ValueError(
                f"column '{column}': a value in {unit} is no {metric}, whose unit is {METRICS[metric].unit}"
            )
        return metric

    def _facts(self, cells: Mapping[str, str]) -> dict[str, Any]:
        read = {name: self.cells.value(one, cells) for name, one in self._map.facts.items()}
        facts: dict[str, Any] = {name: value for name, value in read.items() if value is not None}
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
        if match := pattern.fullmatch(name):
            yield name, match.groupdict(default="")


def _result_key(result: Result) -> str:
    return canonical_json({"case": dict(result.case), "operation": result.operation, "metric": result.metric})


def _run_name(benchmark: str, case: Mapping[str, Scalar], identity: str) -> str:
    """Return a name that differs for all runs of a session."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"{benchmark}-{case.get('operation', 'run')}-{digest}"
