"""Import of results measured elsewhere or earlier into the history: one session per day, each file once."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import groupby
from pathlib import Path
from typing import Any

from iowatch.benchmarks.parsing import UNRECOGNISED
from iowatch.benchmarks.tables import MappedRun, MappedTable, read_table
from iowatch.benchmarks.tables.mapped import EARLIEST
from iowatch.benchmarks.tables.maps import IMPORT_FORMATS, TableMap, load_map
from iowatch.core import (
    METRICS,
    Case,
    InputError,
    IowatchError,
    Output,
    Result,
    UsageError,
    artefacts,
    clean_text,
    escape_line,
    format_time,
    local_day,
    parse_time,
    settings,
    summarise_samples,
    utc_now,
    yamlfile,
)
from iowatch.darshan import parse_tool_file, parsed_tools
from iowatch.site import default_file_system, load_system, system_zone
from iowatch.store import (
    Artefact,
    History,
    ResultFilter,
    RunRecord,
    SeriesFilter,
    SessionRecord,
    StackRecord,
    damaged_results,
)

# Tables of many runs per file, which no benchmark prints, by a map.
CSV = "csv"
# `benchio_res_c24_20180924115107_write_block_1m.dat`: a date, perhaps with the time; or both in ISO 8601.
_DATE = re.compile(r"(?<!\d)(\d{8})(\d{6})?(?!\d)|(?<!\d)(\d{4}-\d\d-\d\d)(?:T(\d\d[:-]?\d\d[:-]?\d\d))?(?!\d)")
_UUID_CHARACTERS = 64  # of the column in the database
_DATE_FORMATS = "YYYYMMDD, YYYYMMDDhhmmss, YYYY-MM-DD or YYYY-MM-DDThh:mm:ss"


def imported_tools() -> tuple[str, ...]:
    """Return the tools and formats that `iowatch import` reads."""
    return (*parsed_tools(), CSV, *IMPORT_FORMATS)


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A file or line of a table that was refused, or stored as failed.

    Attributes:
        file: path; `path:line` of a line.
    """

    file: str
    reason: str
    refused: bool = True


@dataclass(frozen=True)
class ImportResult:
    """Result of an import: numbers of runs, of stored and of already known runs; files with problems.

    Attributes:
        files: number of runs, readable or not; a file is one run, except tables of many runs.
        skipped: rows of tables that the map excludes, that have no value, or that repeat an earlier row.
    """

    files: int
    stored: int
    known: int
    troubles: tuple[ImportProblem, ...] = field(default_factory=tuple)
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def time_in_name(path: Path, zone: tzinfo) -> datetime:
    """The first date (with time of day, else midnight) in a file name, interpreted in a time zone; in UTC.

    Raises:
        InputError: the name contains no date, or only invalid dates or dates outside 1990 to today.
    """
    matches = list(_DATE.finditer(path.name))
    for match in matches:
        moment = _moment_from_match(match, zone)
        if moment is not None:
            return moment
    fault = f"no date ({_DATE_FORMATS})"
    if matches:
        fault = f"'{matches[0].group()}' is no date from 1990 to today"
    raise InputError(f"{fault} in the name '{path.name}'; give it with --time (ISO 8601 or epoch seconds)")


def _moment_from_match(match: re.Match[str], zone: tzinfo) -> datetime | None:
    digits = re.sub(r"\D", "", match.group())
    try:
        moment = datetime.strptime(f"{digits:0<14}", "%Y%m%d%H%M%S")
        moment = moment.replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if _is_plausible_date(moment) else None


def _latest() -> datetime:
    return utc_now() + timedelta(days=1)  # one additional day, because times are often local


def _is_plausible_date(moment: datetime) -> bool:
    # A job number may look like a date, so dates before 1990 are rejected.
    return EARLIEST <= moment <= _latest()


def _require_file(path: Path) -> Path:
    """Return the path if it is a file, so that a missing file is reported before its name is parsed."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory; name its files")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return path


def import_files(
    history: History,
    tool: str,
    files: Sequence[Path],
    *,
    system: str,
    moment: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> ImportResult:
    """Parse files of one tool and store them; a file that fails is reported and does not stop the others.

    Args:
        moment: start of the runs; None takes it from each output (benchio's record, Darshan), else from its name.

    Raises:
        UsageError: unknown tool; invalid name of a system, partition or stack; `moment` before 1990 or after today.
    """
    if tool in IMPORT_FORMATS:
        return import_tables(history, load_map(tool), files, system=system, partition=partition, stack=stack)
    system, partition, stack = _require_names(system, partition, stack)
    _require_plausible(moment)
    # One session per day, so that a file that is imported later joins those of its day.
    records: list[RunRecord] = []
    troubles: list[ImportProblem] = []
    for path in files:
        try:
            record = _make_run_record(tool, _require_file(path), moment, system, partition, stack)
            damaged_results.require_plausible_samples(record)
        except IowatchError as error:
            troubles.append(ImportProblem(str(path), error.message.removeprefix(f"{path}: ")))
            continue
        records.append(record)
        if record.output.status != "ok":
            troubles.append(ImportProblem(str(path), f"{record.output.status}: {record.output.reason}", refused=False))
    stored = 0
    for day, runs in by_day(map(clean_text, records)):
        stored += _store_session(history, tool, system, f"{day:%Y%m%d}", runs)
    return ImportResult(len(files), stored, len(records) - stored, tuple(troubles))


def _require_names(system: str, partition: str, stack: str) -> tuple[str, str, str]:
    """Return the names without characters that no database stores: an argument may be invalid UTF-8."""
    system, partition, stack = clean_text((system, partition, stack))
    yamlfile.require_system_name(system)
    yamlfile.require_name("partition", partition)
    yamlfile.require_name("stack", stack)
    return system, partition, stack


def _require_plausible(moment: datetime | None) -> None:
    if moment is not None and not _is_plausible_date(moment):
        raise UsageError(
            f"the time {format_time(moment)} is before 1990 or in the future",
            hint="Expected a time from 1990 to today.",
        )


def _store_session(history: History, suite: str, system: str, name: str, runs: Sequence[RunRecord]) -> int:
    """Store runs, in order of time, as one session; return the number of new runs."""
    uuid = f"import-{suite}-{system}-{name}"
    if len(uuid) > _UUID_CHARACTERS or escape_line(uuid) != uuid:
        uuid = f"import-{hashlib.sha256(uuid.encode()).hexdigest()[:40]}"
    history.begin_session(SessionRecord(uuid, system, suite, "import", runs[0].started_at))
    stored = history.record_runs(uuid, runs)
    failed = any(run.status != "ok" for run in history.runs(uuid))
    history.end_session(uuid, "failed" if failed else "ok", runs[-1].started_at)
    return stored


def by_day(records: Iterable[RunRecord]) -> Iterator[tuple[date, list[RunRecord]]]:
    """Group runs by the day (UTC) on which they started, in order of time."""
    ordered = sorted(records, key=lambda record: record.started_at)
    for day, group in groupby(ordered, key=lambda r: local_day(r.started_at, UTC)):
        yield day, list(group)


@dataclass(frozen=True, slots=True)
class PreviewedSeries:
    """A series of a preview: times in epoch seconds, values in the unit of the metric; `n` observations."""

    partition: str
    stack: str
    case: Case
    metric: str
    unit: str
    n: int
    first: int
    last: int
    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True)
class TablePreview:
    """What tables become.

    Attributes:
        sessions, runs, failed: numbers; `runs` includes the failed ones.
        units: (unit of the file, metric, unit of the metric, number of values).
        ambiguous: local times that occur twice, when summer time ends; the first is used.
    """

    map: str
    system: str
    sessions: int
    runs: int
    failed: int
    series: tuple[PreviewedSeries, ...]
    units: tuple[tuple[str, str, str, int], ...]
    skipped: int
    empty: int
    repeated: int
    ambiguous: int
    troubles: tuple[ImportProblem, ...]

    def to_json(self) -> dict[str, Any]:
        series = [{**asdict(row), "case": json.loads(row.case.canonical)} for row in self.series]
        return {**asdict(self), "series": series}


def stated_zone(system: str) -> str | None:
    """Return the time zone that the system or the site states; None if it is only UTC by default."""
    try:
        declared = load_system(system).timezone
    except IowatchError:  # imported data need no system
        declared = None
    return declared or settings.stated_timezone()


class _Tables:
    """The runs of several tables, each once, by session."""

    def __init__(self, system: str) -> None:
        self._system = system
        self.sessions: dict[str, list[RunRecord]] = {}
        self.tables: list[MappedTable] = []
        self.troubles: list[ImportProblem] = []
        self.line_of_run: dict[str, str] = {}  # `path:line` by fingerprint
        self._outputs: dict[str, Output] = {}
        self.repeated = 0

    def add(self, path: Path, table: MappedTable) -> None:
        self.tables.append(table)
        self.repeated += table.repeated
        self.troubles += [ImportProblem(f"{path}:{line.line}", line.reason) for line in table.refused]
        for run in table.runs:
            self._add_run(run, f"{path}:{run.line}")

    def _add_run(self, run: MappedRun, line: str) -> None:
        """Add a run, if no earlier line has it.

        Args:
            line: `path:line`.
        """
        record = run_record(run, self._system)
        earlier_line = self.line_of_run.get(record.fingerprint)
        if earlier_line is None:
            self.line_of_run[record.fingerprint] = line
            self._outputs[record.fingerprint] = record.output
            self.sessions.setdefault(run.session, []).append(record)
            if record.output.status != "ok":
                self.troubles.append(ImportProblem(line, f"failed: {record.output.reason}", refused=False))
        elif self._outputs[record.fingerprint] == record.output:
            self.repeated += 1
        else:
            self.troubles.append(ImportProblem(line, f"same time and case as {earlier_line}, other value"))

    @property
    def runs(self) -> list[RunRecord]:
        return [run for runs in self.sessions.values() for run in runs]

    def total(self, name: str) -> int:
        return sum(getattr(table, name) for table in self.tables)


def run_record(run: MappedRun, system: str) -> RunRecord:
    """Return a run of a table as a record of the history."""
    prefix, _, identity = run.identity.partition("\0")
    return clean_text(
        RunRecord(
            name=run.name,
            partition=run.partition,
            stack=StackRecord(run.stack),
            fingerprint=hashlib.sha256(f"{prefix}\0{system}\0{identity}".encode()).hexdigest(),
            started_at=run.started_at,
            output=_on_file_system(run.output, default_file_system(system)),
            wall_s=run.wall_s,
            facts=run.facts,
        )
    )


def _on_file_system(output: Output, default: str | None) -> Output:
    """Return the output of a table without `file_system` where it is the default one: as runs of a session have it."""
    if default is None:
        return output
    results: list[Result] = []
    for result in output.results:
        if result.case.get("file_system") == default:
            case = {name: value for name, value in result.case.items() if name != "file_system"}
            result = replace(result, case=case)
        results.append(result)
    return replace(output, results=tuple(results))


def _read_tables(
    table_map: TableMap, files: Sequence[Path], system: str, moment: datetime | None, partition: str, stack: str
) -> _Tables:
    system, partition, stack = _require_names(system, partition, stack)
    _require_plausible(moment)
    tables = _Tables(system)
    for path in files:
        try:
            table = read_table(
                _require_file(path), table_map, moment=moment, latest=_latest(), partition=partition, stack=stack
            )
        except InputError as error:
            line, reason = _line_and_reason(path, str(error))
            tables.troubles.append(ImportProblem(f"{path}{line}", reason))
        else:
            tables.add(path, table)
    return tables


def _line_and_reason(path: Path, message: str) -> tuple[str, str]:
    """Return `:LINE` or an empty text, and the rest, of a message about a file."""
    match = re.match(rf"{re.escape(str(path))}(:\d+)?: ", message)
    if match is None:
        return "", message
    return match[1] or "", message[match.end() :]


def preview_tables(
    table_map: TableMap,
    files: Sequence[Path],
    *,
    system: str,
    moment: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> TablePreview:
    """Return what `import_tables` would store; arguments and errors as there."""
    tables = _read_tables(table_map, files, system, moment, partition, stack)
    units: Counter[tuple[str, str]] = sum((table.units for table in tables.tables), Counter())
    return TablePreview(
        map=table_map.name,
        system=system,
        sessions=len(tables.sessions),
        runs=len(tables.runs),
        failed=sum(run.output.status != "ok" for run in tables.runs),
        series=_previewed_series(tables.runs),
        units=tuple((unit, name, METRICS[name].unit, n) for (unit, name), n in sorted(units.items())),
        skipped=tables.total("skipped"),
        empty=tables.total("empty"),
        repeated=tables.repeated,
        ambiguous=tables.total("ambiguous"),
        troubles=tuple(tables.troubles),
    )


def _previewed_series(runs: Iterable[RunRecord]) -> tuple[PreviewedSeries, ...]:
    points: dict[tuple[str, str, Case, str], list[tuple[int, float]]] = {}
    for run in runs:
        for result in run.output.results:
            key = (run.partition, run.stack.name, result.full_case(run.output.tool), result.metric)
            points.setdefault(key, []).extend((run.started_at, value) for value in result.samples)
    rows: list[PreviewedSeries] = []
    for (partition, stack, case, metric), series_points in points.items():
        times = [time for time, _ in series_points]
        values = summarise_samples([value for _, value in series_points])
        row = PreviewedSeries(
            partition=partition,
            stack=stack,
            case=case,
            metric=metric,
            unit=METRICS[metric].unit,
            n=len(set(times)),
            first=min(times),
            last=max(times),
            min=values.min,
            median=values.median,
            max=values.max,
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (row.partition, row.stack, row.case.canonical, row.metric)))


def import_tables(
    history: History,
    table_map: TableMap,
    files: Sequence[Path],
    *,
    system: str,
    moment: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> ImportResult:
    """Store the runs of tables by a map; a line that is refused is reported and does not stop the others.

    Args:
        moment: start of the runs, for a map without a time.
        partition, stack: of runs for which the map states none.

    Raises:
        UsageError: invalid name of a system, partition or stack; no time.
    """
    tables = _read_tables(table_map, files, system, moment, partition, stack)
    stored, troubles = 0, list(tables.troubles)
    # Stored again, a run is recognised by its fingerprint; its results may have been corrected in the file.
    for name, records in tables.sessions.items():
        runs = sorted(records, key=lambda record: record.started_at)
        new = _store_session(history, table_map.name, system, name, runs)
        stored += new
        if new < len(runs):
            troubles += _unstored_results(history, system, runs, tables.line_of_run)
    known = len(tables.runs) - stored
    skipped = tables.total("skipped") + tables.total("empty") + tables.repeated
    return ImportResult(len(tables.runs), stored, known, tuple(troubles), skipped)


def _unstored_results(
    history: History, system: str, runs: Sequence[RunRecord], line_of_run: Mapping[str, str]
) -> Iterator[ImportProblem]:
    """Yield results that the history does not have although it knows their runs: the file was corrected since.

    Args:
        line_of_run: `path:line` by fingerprint.
    """
    # What the history has of the time of these runs.
    stored: dict[tuple[str, str, int, str, str], set[tuple[float, ...]]] = {}
    time_of_runs = ResultFilter(SeriesFilter(system=system), since=runs[0].started_at, until=runs[-1].started_at + 1)
    for row in history.results(time_of_runs):
        key = (row.partition, row.stack, row.time, row.case.key, row.metric)
        stored.setdefault(key, set()).add(row.samples)
    for run in runs:
        for result in run.output.results:
            case = result.full_case(run.output.tool)
            key = (run.partition, run.stack.name, run.started_at, case.key, result.metric)
            stored_samples = stored.get(key, set())
            if result.samples in stored_samples:
                continue
            kept = " or ".join(sorted(str(list(samples)) for samples in stored_samples)) or "this run without it"
            reason = (
                f"{result.operation} {result.metric} is {list(result.samples)}, but an earlier import stored {kept}, "
                "which is kept"
            )
            yield ImportProblem(line_of_run[run.fingerprint], reason)


def _time_in_output(output: Output, path: Path) -> datetime | None:
    """Return the start in UTC, which readers give only where the output has its time zone; None without one.

    Raises:
        InputError: it is not a time from 1990 to today.
    """
    text = output.facts.get("started") or output.facts.get("job", {}).get("start")
    if text is None:
        return None
    moment = parse_time(str(text))
    if not _is_plausible_date(moment):
        raise InputError(f"{path}: its start, {text}, is before 1990 or in the future; give it with --time")
    return moment


def _make_run_record(
    tool: str, path: Path, moment: datetime | None, system: str, partition: str, stack: str
) -> RunRecord:
    output = parse_tool_file(tool, path)
    if output.facts.get(UNRECOGNISED):
        raise InputError(f"{path}: refused, nothing is stored: {output.reason}")
    moment = moment or _time_in_output(output, path) or time_in_name(path, system_zone(system))
    stored = artefacts.store_artefact(path)
    started_at = int(moment.timestamp())
    identity = f"{tool}\0{system}\0{partition}\0{stack}\0{started_at}\0{stored.sha256}"
    name = escape_line(os.fsencode(path.name).decode("utf-8", "replace"))  # a name may be invalid UTF-8
    return RunRecord(
        name=name,
        partition=partition,
        stack=StackRecord(stack),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        started_at=started_at,
        output=output,
        facts={"file": name},
        artefacts=(Artefact("stdout", name, stored.sha256, stored.size_bytes),),
    )
