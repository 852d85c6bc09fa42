"""References from the history: the accepted level of each series, and the audit of reference files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from iowatch.core import DAY_S, METRICS, InputError, UsageError, headline_metrics, local_day, settings, suggest_name
from iowatch.findings import series, state
from iowatch.reference import (
    ProposalLevel,
    ReferenceFileChange,
    bandwidth,
    make_proposals,
    policy,
    published,
    read_reference_text,
)
from iowatch.site import load_system, system_names, system_today, system_zone
from iowatch.statistics import ChangePoint
from iowatch.store import History, SeriesFilter, SeriesPoints, SeriesRow


# The checks report the best value per run of these metrics to ReFrame as performance.
def _performance_metrics() -> list[str]:
    return [name for name in headline_metrics() if METRICS[name].direction == "higher"]


def propose_from_history(
    history: History, system: str, by: str, why: str, today: date | None = None
) -> ReferenceFileChange:
    """Propose changes of the reference file of a system from the history.

    Raises:
        UsageError: the system is not in the history.
        InputError: a file of references, events or reviews is damaged.
    """
    day = today or system_today(system)
    path = bandwidth.reference_file_path(system)
    content = read_reference_text(path)  # read first, so that a concurrent edit is detected
    references = bandwidth.load_references(system)
    known = policy.check_class_names()
    levels = collect_accepted_levels(history, system, day)
    unknown = sorted({level.check for level in levels if level.check not in known})
    found, left_out = make_proposals(references, [o for o in levels if o.check in known], day, by, why)
    left_out += [f"there is no {check} that could use one" for check in unknown]
    return ReferenceFileChange(system, path, content, tuple(found), tuple(left_out))


def collect_accepted_levels(history: History, system: str, today: date | None = None) -> list[ProposalLevel]:
    """The accepted level of each series of a system.

    A level starts with the last accepted change and ends before the first change without a review; dismissed or
    resolved changes do not end it.

    Raises:
        UsageError: the system is not in the history.
        InputError: a file of events or reviews is damaged.
    """
    history.require_system(system)
    findings = state.update_findings(history, system, report=False)
    metrics = _performance_metrics()
    rows = [r for r in series.headline_series(history, system) if r.metric in metrics]
    starts = state.accepted_level_starts(history, system, today)
    detections = series.detect_series(history, rows, starts)
    closed = [one for one in findings if one.state in ("dismissed", "resolved")]
    closed_changes = {(member.series_id, member.first_after) for one in closed for member in one.members}
    points = series.load_observations(history, rows)
    sessions = history.session_of_runs()
    classes = policy.check_class_names()
    found = []
    for row in rows:
        open_steps = [step for step in detections[row.id].steps if (row.id, int(step.time)) not in closed_changes]
        ended_by = min(open_steps, key=lambda s: s.time, default=None)
        found.append(_series_level(history, row, points[row.id], starts.get(row.id, 0), ended_by, sessions, classes))
    return found


def _series_level(
    history: History,
    row: SeriesRow,
    points: SeriesPoints,
    start: int,
    ended_by: ChangePoint | None,
    sessions: Mapping[int, str],
    classes: Sequence[str],
) -> ProposalLevel:
    """Proposal from the observations of a series from `start` to the change that ended its accepted level, if any."""
    inside, note = points.time >= start, ""
    if ended_by is not None:
        inside &= points.time < ended_by.time
        what = "suspected" if ended_by.suspected else "not reviewed"
        note = f"a change on {local_day(ended_by.time, system_zone(row.system))} is {what}: later sessions are excluded"
    runs = points.run_id[inside]
    parameters = row.case.parameters
    return ProposalLevel(
        check=check_class_of(row.case.benchmark, classes),
        partition=f"{row.system}:{row.partition}",
        stack=row.stack,
        case=bandwidth.format_case_key(parameters),
        variable=bandwidth.performance_variable(str(parameters.get("operation", "")), row.metric),
        unit=METRICS[row.metric].unit,
        higher_is_better=METRICS[row.metric].direction == "higher",
        values=_daily_best(row, points, inside),
        origin=tuple(dict.fromkeys(sessions[int(run)] for run in (*runs[:1], *runs[-1:]))),
        versions=_stack_versions(history.run(int(runs[-1])).stack_document) if len(runs) else {},
        note=note,
    )


def _daily_best(row: SeriesRow, points: SeriesPoints, inside: Any) -> tuple[float, ...]:
    """Best value of each UTC day, because several runs within an hour are not independent observations."""
    values, days = series.headline_values(row, points)[inside], points.time[inside] // DAY_S
    best = METRICS[row.metric].best_bound(np.minimum, np.maximum)
    firsts = np.flatnonzero(np.diff(days, prepend=-1))
    return tuple(float(v) for v in best.reduceat(values, firsts)) if len(values) else ()


def _stack_versions(stack: Mapping[str, Any]) -> dict[str, str]:
    """Version by part name, from the content of stack.json."""
    return {str(part["name"]): str(part["version"]) for part in stack.get("parts") or [] if part.get("version")}


def check_class_of(benchmark: str, classes: Sequence[str]) -> str:
    """Name of the check class of a benchmark among `classes`, or by naming convention if there is no such class."""
    usual = f"{benchmark.capitalize()}Check"
    return next((name for name in classes if name.lower() == usual.lower()), usual)


def check_reference_files(history: History | None, system: str | None = None) -> list[policy.AuditRemark]:
    """Audit the reference files of one system, or of all systems with the published tables.

    Args:
        history: source of the measured cases; None to audit the files only.

    Raises:
        UsageError: unknown system.
    """
    if system is not None and system not in system_names():
        raise UsageError(f"no system '{system}'", hint=suggest_name(system, system_names()))
    chosen = [system] if system else [name for (name,) in settings.list_files("bandwidth")]
    remarks = [remark for name in chosen for remark in _check_system_references(history, name)]
    if system is None:
        try:
            published.load_all_tables()
        except InputError as error:
            remarks += _remarks_from_error(error)
    return remarks


def _check_system_references(history: History | None, system: str) -> list[policy.AuditRemark]:
    if system not in system_names():
        wrong = f"there is no system '{system}'. {suggest_name(system, system_names())}"
        return [policy.AuditRemark("error", str(bandwidth.reference_file_path(system)), wrong)]
    try:
        references = bandwidth.load_references(system)
        retired = load_system(system).retired
    except InputError as error:
        return _remarks_from_error(error)
    measured, today = _measured_series(history, system), system_today(system)
    remarks = policy.audit_references(references, policy.check_class_names(), measured, today)
    # A retired system is not measured any more: age, bounds and use of its entries do not matter.
    return [r for r in remarks if r.severity == "error"] if retired else remarks


def _remarks_from_error(error: InputError) -> list[policy.AuditRemark]:
    """One remark per line `file:line:column: text`."""
    split = (line.partition(": ") for line in error.message.splitlines())
    return [policy.AuditRemark("error", where, wrong) for where, _, wrong in split]


def _measured_series(history: History | None, system: str) -> list[policy.MeasuredSeries]:
    if history is None:
        return []
    metrics = _performance_metrics()
    rows = [row for row in history.series(SeriesFilter(system=system)) if row.metric in metrics and row.n]
    stacks = history.last_stacks([row.id for row in rows])
    found = []
    for row in rows:
        case, versions = row.case.parameters, _stack_versions(stacks[row.id])
        operation = str(case.get("operation", ""))
        found.append(policy.MeasuredSeries(row.partition, row.stack, case, operation, row.metric, versions))
    return found
