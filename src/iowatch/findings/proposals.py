"""References from the history: the accepted level of each series, and the audit of reference files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from iowatch.core import DAY_S, METRICS, InputError, UsageError, headline_metrics, local_day, settings, suggest_name
from iowatch.findings import series, state
from iowatch.findings.detections import detect_series
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
    check_classes = policy.check_class_names()
    usable: list[ProposalLevel] = []
    checks_without_class: set[str] = set()
    for level in collect_accepted_levels(history, system, day):
        if level.check in check_classes:
            usable.append(level)
        else:
            checks_without_class.add(level.check)
    proposed = make_proposals(references, usable, day, by, why)
    left_out = [*proposed.left_out]
    left_out += [f"there is no {check} that could use one" for check in sorted(checks_without_class)]
    return ReferenceFileChange(system, path, content, proposed.proposals, tuple(left_out))


def collect_accepted_levels(history: History, system: str, today: date | None = None) -> list[ProposalLevel]:
    """The accepted level of each series of a system.

    A level starts with the last accepted change and ends before the first change without a review; dismissed or
    resolved changes do not end it.

    Raises:
        UsageError: the system is not in the history.
        InputError: a file of events or reviews is damaged.
    """
    history.require_system(system)
    # Newer results may have changed them; nothing is reported here.
    findings = state.update_findings(history, system, report=False)
    metrics = _performance_metrics()
    rows = [row for row in series.headline_series(history, system) if row.metric in metrics]
    starts = state.accepted_level_starts(history, system, today)
    detections = detect_series(history, rows, starts)
    # Changes of closed findings do not end a level.
    closed_changes: set[tuple[int, int]] = set()
    for finding in findings:
        if finding.state in ("dismissed", "resolved"):
            closed_changes |= {(member.series_id, member.first_after) for member in finding.members}
    points = series.load_observations(history, rows)
    origin = _LevelOrigin(history, history.session_of_runs(), policy.check_class_names())
    levels: list[ProposalLevel] = []
    for row in rows:
        open_steps = [step for step in detections[row.id].steps if (row.id, int(step.time)) not in closed_changes]
        ended_by = min(open_steps, key=lambda step: step.time, default=None)
        levels.append(_series_level(origin, row, points[row.id], starts.get(row.id, 0), ended_by))
    return levels


@dataclass(frozen=True)
class _LevelOrigin:
    """Where levels come from: the history, the sessions of its runs (by run id), and the names of check classes."""

    history: History
    sessions: Mapping[int, str]
    check_classes: Sequence[str]


def _series_level(
    origin: _LevelOrigin, row: SeriesRow, points: SeriesPoints, start: int, ended_by: ChangePoint | None
) -> ProposalLevel:
    """Proposal from the observations of a series from `start` to the change that ended its accepted level, if any."""
    inside, note = points.time >= start, ""
    if ended_by is not None:
        inside &= points.time < ended_by.time
        state_of_change = "suspected" if ended_by.suspected else "not reviewed"
        day = local_day(ended_by.time, system_zone(row.system))
        note = f"a change on {day} is {state_of_change}: later sessions are excluded"
    runs = points.run_id[inside]
    # The first and the last session of the level, and the stack of its newest run.
    first_and_last = (*runs[:1], *runs[-1:])
    versions = _stack_versions(origin.history.run(int(runs[-1])).stack_document) if len(runs) else {}
    parameters = row.case.parameters
    return ProposalLevel(
        check=check_class_of(row.case.benchmark, origin.check_classes),
        partition=f"{row.system}:{row.partition}",
        stack=row.stack,
        case=bandwidth.format_case_key(parameters),
        variable=bandwidth.performance_variable(str(parameters.get("operation", "")), row.metric),
        unit=METRICS[row.metric].unit,
        higher_is_better=METRICS[row.metric].direction == "higher",
        values=_daily_best(row, points, inside),
        origin=tuple(dict.fromkeys(origin.sessions[int(run)] for run in first_and_last)),
        versions=versions,
        note=note,
    )


def _daily_best(row: SeriesRow, points: SeriesPoints, inside: Any) -> tuple[float, ...]:
    """Best value of each UTC day, because several runs within an hour are not independent observations."""
    values = series.headline_values(row, points)[inside]
    if not len(values):
        return ()
    days = points.time[inside] // DAY_S
    first_of_day = np.flatnonzero(np.diff(days, prepend=-1))
    best = METRICS[row.metric].best_bound(np.minimum, np.maximum)
    return tuple(float(value) for value in best.reduceat(values, first_of_day))


def _stack_versions(stack: Mapping[str, Any]) -> dict[str, str]:
    """Version by part name, from the content of stack.json."""
    return {str(part["name"]): str(part["version"]) for part in stack.get("parts") or [] if part.get("version")}


def check_class_of(benchmark: str, classes: Sequence[str]) -> str:
    """Name of the check class of a benchmark among `classes`, or by naming convention if there is no such class."""
    usual_name = f"{benchmark.capitalize()}Check"
    for name in classes:
        if name.lower() == usual_name.lower():
            return name
    return usual_name


def check_reference_files(history: History | None, system: str | None = None) -> list[policy.AuditRemark]:
    """Audit the reference files of one system, or of all systems with the published tables.

    Args:
        history: source of the measured cases; None to audit the files only.

    Raises:
        UsageError: unknown system.
    """
    if system is not None and system not in system_names():
        raise UsageError(f"no system '{system}'", hint=suggest_name(system, system_names()))
    systems = [system] if system else [name for (name,) in settings.list_files("bandwidth")]
    remarks: list[policy.AuditRemark] = []
    for name in systems:
        remarks += _check_system_references(history, name)
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
    if retired:
        return [remark for remark in remarks if remark.severity == "error"]
    return remarks


def _remarks_from_error(error: InputError) -> list[policy.AuditRemark]:
    """One remark per line `file:line:column: text`."""
    remarks: list[policy.AuditRemark] = []
    for line in error.message.splitlines():
        where, _, wrong = line.partition(": ")
        remarks.append(policy.AuditRemark("error", where, wrong))
    return remarks


def _measured_series(history: History | None, system: str) -> list[policy.MeasuredSeries]:
    if history is None:
        return []
    metrics = _performance_metrics()
    rows = [row for row in history.series(SeriesFilter(system=system)) if row.metric in metrics and row.n]
    stacks = history.last_stacks([row.id for row in rows])
    measured: list[policy.MeasuredSeries] = []
    for row in rows:
        case, versions = row.case.parameters, _stack_versions(stacks[row.id])
        operation = str(case.get("operation", ""))
        measured.append(policy.MeasuredSeries(row.partition, row.stack, case, operation, row.metric, versions))
    return measured
