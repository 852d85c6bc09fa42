"""References from the history: the accepted level of each series, and the reference files held against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from iowatch import findings
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.findings import detection
from iowatch.metrics import METRICS
from iowatch.reference import bandwidth, digests, peak, policy, published, rewrite, seeded
from iowatch.reference.audit import Measured, Remark, audit
from iowatch.reference.bandwidth import Entry
from iowatch.reference.propose import Change, Level, Proposal, proposals, text_of
from iowatch.store import History, SeriesFilter, SeriesPoints, SeriesRow
from iowatch.systems import load as load_system
from iowatch.systems import names as system_names
from iowatch.units import utc_now

# What ReFrame's checks tell it as performance: the best value of a night of these metrics.
_METRICS = ("bandwidth", "observed_bandwidth", "raw_bandwidth", "rate")
_DAY_S = 86400


@dataclass(frozen=True)
class _Stretch:
    """From when (included) a series is at its accepted level, and the change that ended it; None: until now."""

    start: int
    ended_by: detection.Step | None

    @property
    def note(self) -> str:
        """What a person must know of nights that are left out."""
        if self.ended_by is None:
            return ""
        what = "suspected" if self.ended_by.suspected else "not reviewed"
        return f"a change on {_day(self.ended_by.first_after)} is {what}: nights from then on are left out"


def from_history(history: History, system: str, by: str, why: str, today: date | None = None) -> Change:
    """What the history would make of a system's reference file.

    Raises:
        UsageError: the history has no such system.
        InputError: a file of references, events or reviews is damaged.
    """
    day = today or utc_now().date()
    path = bandwidth.path_of(system)
    text = text_of(path)  # before all else: what changes meanwhile is somebody else's
    references = bandwidth.load(system)
    known = policy.checks()
    offered = levels(history, system, day)
    strange = sorted({level.check for level in offered if level.check not in known})
    found, left_out = proposals(references, [o for o in offered if o.check in known], day, by, why)
    left_out += [f"there is no {check} that could use one" for check in strange]
    return Change(system, path, text, tuple(found), tuple(left_out))


def from_tables(system: str) -> Change:
    """What the published tables make of a system's reference file.

    Raises:
        UsageError: no table has measurements of that system.
        InputError: a table or the reference file is damaged.
    """
    if system not in (known := seeded.systems()):
        raise UsageError(f"no published bandwidths of '{system}'", hint=near_miss(system, known))
    path = bandwidth.path_of(system)
    text = text_of(path)
    references = bandwidth.load(system)
    old = {entry.key: replace(entry, where="") for entry in references.entries}
    found = [_of_table(old.get(entry.key), entry) for entry in seeded.entries(system)]
    return Change(system, path, text, tuple(found))


def _of_table(old: Entry | None, new: Entry) -> Proposal:
    return Proposal("new" if old is None else "same" if rewrite.as_written(new) == old else "changed", old, new)


def levels(history: History, system: str, today: date | None = None) -> list[Level]:
    """The accepted level of every series of a system.

    A level begins with the last accepted change and ends before the first change that nobody has reviewed;
    changes that were dismissed, or that came back, do not end it.

    Raises:
        UsageError: the history has no such system.
        InputError: a file of events or reviews is damaged.
    """
    history.require_system(system)
    known_findings = findings.update(history, system, tell=False)
    rows = [r for r in detection.headline_series(history, system) if r.metric in _METRICS]
    starts = findings.accepted_levels(history, system, today)
    changes = detection.steps(history, rows, starts)
    harmless = {
        (member.series_id, member.first_after)
        for finding in known_findings
        if finding.state in ("dismissed", "resolved")
        for member in finding.members
    }
    points = history.points([row.id for row in rows])
    sessions = history.session_of_runs()
    classes = policy.checks()
    found = []
    for row in rows:
        still_open = [step for step in changes[row.id] if (row.id, step.first_after) not in harmless]
        stretch = _Stretch(starts.get(row.id, 0), min(still_open, key=lambda s: s.first_after, default=None))
        found.append(_level(history, row, points[row.id], stretch, sessions, classes))
    return found


def _level(
    history: History,
    row: SeriesRow,
    points: SeriesPoints,
    stretch: _Stretch,
    sessions: Mapping[int, str],
    classes: Sequence[str],
) -> Level:
    inside = points.time >= stretch.start
    if stretch.ended_by is not None:
        inside &= points.time < stretch.ended_by.first_after
    runs = points.run_id[inside]
    parameters = row.case.parameters
    return Level(
        check=check_of(row.case.benchmark, classes),
        partition=f"{row.system}:{row.partition}",
        stack=row.stack,
        case=bandwidth.case_text(parameters),
        variable=bandwidth.variable(str(parameters.get("operation", "")), row.metric),
        unit=METRICS[row.metric].unit,
        higher_is_better=METRICS[row.metric].direction == "higher",
        values=_nightly(row, points, inside),
        origin=tuple(dict.fromkeys(sessions[int(run)] for run in (*runs[:1], *runs[-1:]))),
        versions=_versions(history.run(int(runs[-1])).stack_document) if len(runs) else {},
        note=stretch.note,
    )


def _nightly(row: SeriesRow, points: SeriesPoints, inside: Any) -> tuple[float, ...]:
    """The best value of each UTC day: seven runs in an hour are not seven nights."""
    values, days = detection.nightly(row, points)[inside], points.time[inside] // _DAY_S
    best = np.maximum if METRICS[row.metric].direction == "higher" else np.minimum
    firsts = np.flatnonzero(np.diff(days, prepend=-1))
    return tuple(float(v) for v in best.reduceat(values, firsts)) if len(values) else ()


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _versions(stack: Mapping[str, Any]) -> dict[str, str]:
    """Parts of a stack with their versions, as stack.json has them."""
    return {str(part["name"]): str(part["version"]) for part in stack.get("parts") or [] if part.get("version")}


def check_of(benchmark: str, classes: Sequence[str]) -> str:
    """The class of a benchmark's check among all classes; the usual form of its name where there is none."""
    usual = f"{benchmark.capitalize()}Check"
    return next((name for name in classes if name.lower() == usual.lower()), usual)


def accepted(system: str) -> dict[str, Any]:
    """The references of a system as JSON, each bandwidth with its per cent of the theoretical peak.

    Raises:
        UsageError: no such system.
        InputError: its file is damaged.
    """
    storages = load_system(system).file_systems
    references = bandwidth.load(system)
    entries = []
    for entry in references.entries:
        file_system = dict(p.split("=", 1) for p in entry.parameters).get("file_system")
        known = peak.has_peak(entry.metric.name)
        limit = peak.peak_mib_per_s(storages, entry.operation, file_system) if known else None
        percent = peak.percent_of_peak(entry.value, limit)
        entries.append({**entry.to_json(), "peak": limit, "percent_of_peak": percent})
    return {"system": system, "path": str(references.path), "exists": references.exists, "entries": entries}


def check_files(history: History | None, system: str | None = None) -> list[Remark]:
    """Everything that is wrong or doubtful about the reference files of one system, or of all with the tables.

    Args:
        history: tells which cases there are; None to look at the files alone.

    Raises:
        UsageError: no such system.
    """
    if system is not None and system not in system_names():
        raise UsageError(f"no system '{system}'", hint=near_miss(system, system_names()))
    chosen = [system] if system else sorted(p.stem for p in bandwidth.path_of("x").parent.glob("*.yaml"))
    remarks = [remark for name in chosen for remark in _of_system(history, name)]
    of_tables = _of_tables()
    if not of_tables:
        remarks += _of_papers(chosen)
    return remarks if system else remarks + of_tables


def _of_system(history: History | None, system: str) -> list[Remark]:
    if system not in system_names():
        hint = near_miss(system, system_names())
        return [Remark("error", str(bandwidth.path_of(system)), f"there is no system '{system}'. {hint}")]
    try:
        references = bandwidth.load(system)
        retired = load_system(system).retired
    except InputError as error:
        return _faults(error)
    remarks = audit(references, policy.checks(), _measured(history, system), utc_now().date())
    # Nothing will be measured there again: age, bounds and use of its entries are no news.
    return [r for r in remarks if r.severity == "error"] if retired else remarks


def _of_tables() -> list[Remark]:
    """Faults of the published tables; where there are none, what changed since they were compared."""
    try:
        published.load_all()
        return [Remark("error", *_split(line)) for line in digests.changes()]
    except InputError as error:
        return _faults(error)


def _of_papers(systems: Sequence[str]) -> list[Remark]:
    """Where the reference files of published machines are not what the tables give."""
    printed = seeded.by_system()
    remarks = []
    for system in (name for name in systems if name in printed):
        try:
            references = bandwidth.load(system)
        except InputError:
            continue  # told already
        if references.exists:
            remarks += [Remark("error", *what) for what in seeded.differences(references, printed[system])]
    return remarks


def _faults(error: InputError) -> list[Remark]:
    """One remark a line `file:line:column: text`."""
    return [Remark("error", *_split(line)) for line in error.message.splitlines()]


def _split(line: str) -> tuple[str, str]:
    where, _, text = line.partition(": ")
    return where, text


def _measured(history: History | None, system: str) -> list[Measured]:
    if history is None:
        return []
    rows = [row for row in history.series(SeriesFilter(system=system)) if row.metric in _METRICS and row.n]
    stacks = history.last_stacks([row.id for row in rows])
    found = []
    for row in rows:
        operation = str(row.case.parameters.get("operation", ""))
        versions = _versions(stacks[row.id])
        found.append(Measured(row.partition, row.stack, row.case.parameters, operation, row.metric, versions))
    return found
