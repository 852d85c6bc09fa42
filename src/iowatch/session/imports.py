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
from iowatch.store import Artefact, History, ResultFilter, RunRecord, SeriesFilter, SessionRecord, StackRecord

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
    found = next(filter(None, (_moment_from_match(match, zone) for match in matches)), None)
    if found is not None:
        return found
    what = f"no date ({_DATE_FORMATS})" if not matches else f"'{matches[0].group()}' is no date from 1990 to today"
    raise InputError(f"{what} in the name '{path.name}'; give it with --time (ISO 8601 or epoch seconds)")


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
    if path.is_dir() or not path.exists():
        raise InputError(f"{path}: {'is a directory; name its files' if path.is_dir() else 'no such file'}")
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
    records: list[RunRecord] = []
    troubles: list[ImportProblem] = []
    for path in files:
        try:
            record = _make_run_record(tool, _require_file(path), moment, system, partition, stack)
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
        series = [{**asdict(one), "case": json.loads(one.case.canonical)} for one in self.series]
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
        self.places: dict[str, str] = {}
        self._outputs: dict[str, Output] = {}
        self.repeated = 0

    def add(self, path: Path, table: MappedTable) -> None:
        self.tables.append(table)
        self.repeated += table.repeated
        self.troubles += [ImportProblem(f"{path}:{one.line}", one.reason) for one in table.refused]
        for run in table.runs:
            self._add_run(run, f"{path}:{run.line}")

    def _add_run(self, run: MappedRun, place: str) -> None:
        record = run_record(run, self._system)
        known = self._outputs.setdefault(record.fingerprint, record.output)
        if record.fingerprint not in self.places:
            self.places[record.fingerprint] = place
            self.sessions.setdefault(run.session, []).append(record)
            if record.output.status != "ok":
                self.troubles.append(ImportProblem(place, f"failed: {record.output.reason}", refused=False))
        elif known == record.output:
            self.repeated += 1
        else:
            other = self.places[record.fingerprint]
            self.troubles.append(ImportProblem(place, f"same time and case as {other}, other value"))

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
    cases = ({k: v for k, v in one.case.items() if (k, v) != ("file_system", default)} for one in output.results)
    return replace(
        output, results=tuple(replace(one, case=case) for one, case in zip(output.results, cases, strict=True))
    )


def _read_tables(
    chosen: TableMap, files: Sequence[Path], system: str, moment: datetime | None, partition: str, stack: str
) -> _Tables:
    system, partition, stack = _require_names(system, partition, stack)
    _require_plausible(moment)
    found = _Tables(system)
    for path in files:
        try:
            table = read_table(
                _require_file(path), chosen, moment=moment, latest=_latest(), partition=partition, stack=stack
            )
        except InputError as error:
            line, reason = _line_and_reason(path, str(error))
            found.troubles.append(ImportProblem(f"{path}{line}", reason))
        else:
            found.add(path, table)
    return found


def _line_and_reason(path: Path, message: str) -> tuple[str, str]:
    """Return `:LINE` or an empty text, and the rest, of a message about a file."""
    match = re.match(rf"{re.escape(str(path))}(:\d+)?: ", message)
    return (match[1] or "", message[match.end() :]) if match else ("", message)


def preview_tables(
    chosen: TableMap,
    files: Sequence[Path],
    *,
    system: str,
    moment: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> TablePreview:
    """Return what `import_tables` would store; arguments and errors as there."""
    found = _read_tables(chosen, files, system, moment, partition, stack)
    units: Counter[tuple[str, str]] = sum((table.units for table in found.tables), Counter())
    return TablePreview(
        map=chosen.name,
        system=system,
        sessions=len(found.sessions),
        runs=len(found.runs),
        failed=sum(run.output.status != "ok" for run in found.runs),
        series=_previewed_series(found.runs),
        units=tuple((unit, name, METRICS[name].unit, n) for (unit, name), n in sorted(units.items())),
        skipped=found.total("skipped"),
        empty=found.total("empty"),
        repeated=found.repeated,
        ambiguous=found.total("ambiguous"),
        troubles=tuple(found.troubles),
    )


def _previewed_series(runs: Iterable[RunRecord]) -> tuple[PreviewedSeries, ...]:
    points: dict[tuple[str, str, Case, str], list[tuple[int, float]]] = {}
    for run in runs:
        for result in run.output.results:
            key = (run.partition, run.stack.name, result.full_case(run.output.tool), result.metric)
            points.setdefault(key, []).extend((run.started_at, value) for value in result.samples)
    rows = []
    for (partition, stack, case, metric), found in points.items():
        times = [time for time, _ in found]
        values = summarise_samples([value for _, value in found])
        unit, n = METRICS[metric].unit, len(set(times))
        numbers = (values.min, values.median, values.max)
        rows.append(PreviewedSeries(partition, stack, case, metric, unit, n, min(times), max(times), *numbers))
    return tuple(sorted(rows, key=lambda row: (row.partition, row.stack, row.case.canonical, row.metric)))


def import_tables(
    history: History,
    chosen: TableMap,
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
    found = _read_tables(chosen, files, system, moment, partition, stack)
    stored, troubles = 0, list(found.troubles)
    for name, records in found.sessions.items():
        runs = sorted(records, key=lambda record: record.started_at)
        new = _store_session(history, chosen.name, system, name, runs)
        stored += new
        if new < len(runs):
            troubles += _unstored_results(history, system, runs, found.places)
    known = len(found.runs) - stored
    skipped = found.total("skipped") + found.total("empty") + found.repeated
    return ImportResult(len(found.runs), stored, known, tuple(troubles), skipped)


def _unstored_results(
    history: History, system: str, runs: Sequence[RunRecord], places: Mapping[str, str]
) -> Iterator[ImportProblem]:
    """Yield results that the history does not have although it knows their runs: the file was corrected since."""
    stored: dict[tuple[str, str, int, str, str], set[tuple[float, ...]]] = {}
    chosen = ResultFilter(SeriesFilter(system=system), since=runs[0].started_at, until=runs[-1].started_at + 1)
    for row in history.results(chosen):
        key = (row.partition, row.stack, row.time, row.case.key, row.metric)
        stored.setdefault(key, set()).add(row.samples)
    for run in runs:
        for result in run.output.results:
            case = result.full_case(run.output.tool)
            found = stored.get((run.partition, run.stack.name, run.started_at, case.key, result.metric), set())
            if result.samples not in found:
                kept = " or ".join(sorted(str(list(samples)) for samples in found)) or "this run without it"
                what = f"{result.operation} {result.metric} is {list(result.samples)}"
                reason = f"{what}, but an earlier import stored {kept}, which is kept"
                yield ImportProblem(places[run.fingerprint], reason)


def _time_in_output(output: Output, path: Path) -> datetime | None:
    """Return the start in UTC that the output states with its zone; None if it states none.

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
    sha256, size = artefacts.store_artefact(path)
    started_at = int(moment.timestamp())
    identity = f"{tool}\0{system}\0{partition}\0{stack}\0{started_at}\0{sha256}"
    name = escape_line(os.fsencode(path.name).decode("utf-8", "replace"))  # a name may be invalid UTF-8
    return RunRecord(
        name=name,
        partition=partition,
        stack=StackRecord(stack),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        started_at=started_at,
        output=output,
        facts={"file": name},
        artefacts=(Artefact("stdout", name, sha256, size),),
    )
