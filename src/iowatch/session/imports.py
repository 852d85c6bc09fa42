"""Import of results measured elsewhere or earlier into the history: one session per day, each file once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import groupby
from pathlib import Path
from typing import Any

from iowatch.benchmarks.importers import tokio
from iowatch.benchmarks.parsing import UNRECOGNISED
from iowatch.core import (
    InputError,
    IowatchError,
    Output,
    UsageError,
    artefacts,
    clean_text,
    escape_line,
    format_time,
    parse_time,
    utc_now,
    yamlfile,
)
from iowatch.darshan import PARSED_TOOLS, parse_tool_file
from iowatch.site import system_zone
from iowatch.store import Artefact, History, RunRecord, SessionRecord, StackRecord

# A format with many runs per file, which no benchmark prints.
TOKIO = "tokio"
IMPORTED_TOOLS = (*PARSED_TOOLS, TOKIO)
# `benchio_res_c24_20180924115107_write_block_1m.dat`: a date, perhaps with the time; or both in ISO 8601.
_DATE = re.compile(r"(?<!\d)(\d{8})(\d{6})?(?!\d)|(?<!\d)(\d{4}-\d\d-\d\d)(?:T(\d\d[:-]?\d\d[:-]?\d\d))?(?!\d)")
# A job number may look like a date, so earlier dates are rejected.
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_DATE_FORMATS = "YYYYMMDD, YYYYMMDDhhmmss, YYYY-MM-DD or YYYY-MM-DDThh:mm:ss"


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A file that was refused, or stored as failed."""

    file: str
    reason: str
    refused: bool = True


@dataclass(frozen=True)
class ImportResult:
    """Result of an import: numbers of runs, of stored and of already known runs; files with problems.

    Attributes:
        files: number of runs, readable or not; a file is one run, except tables of many runs (`tokio`).
    """

    files: int
    stored: int
    known: int
    troubles: tuple[ImportProblem, ...] = field(default_factory=tuple)

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


def _is_plausible_date(moment: datetime) -> bool:
    # One additional day, because times are often local.
    return _EARLIEST <= moment <= utc_now() + timedelta(days=1)


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
    system, partition, stack = clean_text((system, partition, stack))  # a name may be invalid UTF-8
    yamlfile.require_system_name(system)
    yamlfile.require_name("partition", partition)
    yamlfile.require_name("stack", stack)
    if moment is not None and not _is_plausible_date(moment):
        raise UsageError(
            f"the time {format_time(moment)} is before 1990 or in the future",
            hint="Expected a time from 1990 to today.",
        )
    if tool == TOKIO:
        return _import_tokio(history, files, system)
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
    stored = store_imported_runs(history, tool, system, records)
    return ImportResult(len(files), stored, len(records) - stored, tuple(troubles))


def store_imported_runs(history: History, tool: str, system: str, records: Iterable[RunRecord]) -> int:
    """Store runs, one session per day (UTC) and tool; returns the number of new runs."""
    stored = 0
    for day, runs in by_day(map(clean_text, records)):
        uuid = f"import-{tool}-{system}-{day:%Y%m%d}"
        history.begin_session(SessionRecord(uuid, system, tool, "import", runs[0].started_at))
        stored += history.record_runs(uuid, runs)
        failed = any(run.status != "ok" for run in history.runs(uuid))
        history.end_session(uuid, "failed" if failed else "ok", runs[-1].started_at)
    return stored


def by_day(records: Iterable[RunRecord]) -> Iterator[tuple[date, list[RunRecord]]]:
    """Group runs by the day (UTC) on which they started, in order of time."""
    ordered = sorted(records, key=lambda record: record.started_at)
    for day, group in groupby(ordered, key=lambda r: datetime.fromtimestamp(r.started_at, UTC).date()):
        yield day, list(group)


def read_tokio(path: Path, system: str) -> list[RunRecord]:
    """Read the runs of a summary of TOKIO-ABC (NERSC).

    Raises:
        InputError: the file is not such a summary, or damaged.
    """
    return [
        RunRecord(
            name=run.name,
            partition=run.partition,
            stack=StackRecord("unknown"),
            fingerprint=hashlib.sha256(f"{TOKIO}\0{system}\0{run.identity}".encode()).hexdigest(),
            started_at=run.started_at,
            output=run.output,
            wall_s=run.wall_s,
            facts=run.facts,
        )
        for run in tokio.read_tokio_summaries(path)
    ]


def _import_tokio(history: History, files: Sequence[Path], system: str) -> ImportResult:
    """Import summaries of TOKIO-ABC (NERSC); a file contains a year of runs, each with its own time."""
    stored = known = 0
    troubles: list[ImportProblem] = []
    for path in files:
        try:
            records = read_tokio(path, system)
        except InputError as error:
            troubles.append(ImportProblem(str(path), error.message))
            continue
        new = store_imported_runs(history, TOKIO, system, records)
        stored, known = stored + new, known + len(records) - new
    return ImportResult(stored + known, stored, known, tuple(troubles))


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
