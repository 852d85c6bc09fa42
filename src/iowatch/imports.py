"""Results measured elsewhere or earlier into the history: one session a day, each file once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from iowatch import artefacts, parsers
from iowatch.errors import InputError, IowatchError, UsageError, near_miss
from iowatch.parsers import tokio
from iowatch.store import History, RunRecord, SessionRecord, StackRecord
from iowatch.store.records import Artefact
from iowatch.units import format_time, utc_now
from iowatch.yamlfile import require_system_name

# `benchio_res_c24_20180924115107_write_block_1m.dat`: a date, perhaps with the time; or both in ISO 8601.
_DATE = re.compile(r"(?<!\d)(\d{8})(\d{6})?(?!\d)|(?<!\d)(\d{4}-\d\d-\d\d)(?:T(\d\d[:-]?\d\d[:-]?\d\d))?(?!\d)")
# The number of a job may look like a date; no result that anybody keeps is older.
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_FORMS = "YYYYMMDD, YYYYMMDDhhmmss, YYYY-MM-DD or YYYY-MM-DDThh:mm:ss"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A file that could not be taken in, or was taken in as failed."""

    file: str
    reason: str


@dataclass(frozen=True)
class Imported:
    """What became of an import: runs given, newly stored, known already; files with trouble.

    Attributes:
        files: runs that were read or could not be: a file is a run, but for tables of many runs (`tokio`).
    """

    files: int
    stored: int
    known: int
    troubles: tuple[Trouble, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def time_in_name(path: Path) -> datetime:
    """The first date (and time of day, else midnight) in a file's name, taken as UTC.

    Raises:
        InputError: there is none, or what looks like one is no date from 1990 to today.
    """
    matches = list(_DATE.finditer(path.name))
    found = next(filter(None, map(_moment, matches)), None)
    if found is not None:
        return found
    what = f"no date ({_FORMS})" if not matches else f"'{matches[0].group()}' is no date from 1990 to today"
    raise InputError(f"{what} in the name '{path.name}'; give it with --time (ISO 8601 or epoch seconds)")


def _moment(match: re.Match[str]) -> datetime | None:
    digits = re.sub(r"\D", "", match.group())
    try:
        moment = datetime.strptime(f"{digits:0<14}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment if _plausible(moment) else None


def _plausible(moment: datetime) -> bool:
    # A day more: times are often local.
    return _EARLIEST <= moment <= utc_now() + timedelta(days=1)


def _time_of(path: Path) -> datetime:
    """As `time_in_name`; that a file is not there is told before its name is read."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a directory; name its files")
    return time_in_name(path)


def import_files(
    history: History,
    tool: str,
    files: Sequence[Path],
    *,
    system: str,
    moment: datetime | None = None,
    partition: str = "default",
    stack: str = "unknown",
) -> Imported:
    """Parse files of one tool and store them; a file that fails is told and does not stop the others.

    Args:
        moment: when they ran; None takes it from each file's name.

    Raises:
        UsageError: no such tool; a name that no system can have; a moment before 1990 or after today.
    """
    require_system_name(system)
    if moment is not None and not _plausible(moment):
        raise UsageError(
            f"nothing that is kept ran at {format_time(moment)}", hint="Expected a time from 1990 to today."
        )
    if tool == "tokio":
        return _import_tokio(history, files, system)
    if tool not in parsers.PARSERS:
        raise UsageError(f"no parser for '{tool}'", hint=near_miss(tool, [*parsers.PARSERS, "tokio"]))
    records: list[RunRecord] = []
    troubles: list[Trouble] = []
    for path in files:
        try:
            record = _record(tool, path, moment or _time_of(path), system, partition, stack)
        except IowatchError as error:
            troubles.append(Trouble(str(path), error.message.removeprefix(f"{path}: ")))
            continue
        records.append(record)
        if record.output.status != "ok":
            troubles.append(Trouble(str(path), f"{record.output.status}: {record.output.reason}"))
    stored = store(history, tool, system, records)
    return Imported(len(files), stored, len(records) - stored, tuple(troubles))


def store(history: History, tool: str, system: str, records: Iterable[RunRecord]) -> int:
    """Store runs, one session for each day (UTC) and tool; returns how many were new."""
    stored = 0
    ordered = sorted(records, key=lambda record: record.started_at)
    for day, group in groupby(ordered, key=lambda r: datetime.fromtimestamp(r.started_at, UTC).date()):
        runs = list(group)
        uuid = f"import-{tool}-{system}-{day:%Y%m%d}"
        history.begin_session(SessionRecord(uuid, system, tool, "import", runs[0].started_at))
        stored += history.record_runs(uuid, runs)
        failed = any(run.status != "ok" for run in history.runs(uuid))
        history.end_session(uuid, "failed" if failed else "ok", runs[-1].started_at)
    return stored


def _import_tokio(history: History, files: Sequence[Path], system: str) -> Imported:
    """Summaries of TOKIO-ABC (NERSC): a file holds a year of runs, each with its own time."""
    stored = known = 0
    troubles: list[Trouble] = []
    for path in files:
        try:
            records = [_tokio_record(run, system) for run in tokio.read(path)]
        except InputError as error:
            troubles.append(Trouble(str(path), error.message))
            continue
        new = store(history, "tokio", system, records)
        stored, known = stored + new, known + len(records) - new
    return Imported(stored + known, stored, known, tuple(troubles))


def _tokio_record(run: tokio.ImportedRun, system: str) -> RunRecord:
    return RunRecord(
        name=run.name,
        partition=run.partition,
        stack=StackRecord("unknown"),
        fingerprint=hashlib.sha256(f"tokio\0{system}\0{run.identity}".encode()).hexdigest(),
        started_at=run.started_at,
        output=run.output,
        wall_s=run.wall_s,
        facts=run.facts,
    )


def _record(tool: str, path: Path, moment: datetime, system: str, partition: str, stack: str) -> RunRecord:
    output = parsers.parse_file(tool, path)
    sha256, size = artefacts.keep(path)
    started_at = int(moment.timestamp())
    identity = f"{tool}\0{system}\0{partition}\0{stack}\0{started_at}\0{sha256}"
    name = os.fsencode(path.name).decode("utf-8", "replace")  # a name may be no text
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
