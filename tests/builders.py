"""Records of iowatch for tests: one function for each, whose defaults form a valid record.

A test passes by keyword what it is about, and nothing else. Only this file calls the classes with all their fields: a
field that is renamed or added changes its builder, and no test.

Times are epoch seconds UTC, bandwidths MiB/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment
from numpy.typing import ArrayLike

from iowatch.benchmarks.registry import get_benchmark
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import SpooledCase
from iowatch.checks.order import RunOrder
from iowatch.checks.run import CheckedRun
from iowatch.core import DAY_S, METRICS, Case, ExpectedResult, Output, OutputStatus, Result, RunKey, Scalar, local_day
from iowatch.darshan.log import ModuleRecords, load_library
from iowatch.darshan.trace import Trace
from iowatch.findings import AppliedDecision, EvidenceDifference, Finding, FindingMember, FindingState, FindingUpdate
from iowatch.findings.finding import Outlook, PerformanceDirection, Resolution
from iowatch.findings.grouping import SeriesChange
from iowatch.output.dashboard.data import Catalogue, SeriesEntry, SeriesLimits, SiteBuild, SystemEntry
from iowatch.output.dashboard.site import SiteWriter
from iowatch.reference.events import Event
from iowatch.session.plan import PlannedRun
from iowatch.site import System
from iowatch.site.stack.records import Stack, StackKind, StackPart, StackStatus
from iowatch.site.system import NightlyPolicy
from iowatch.statistics import ChangePoint, Detection, Explanation
from iowatch.statistics.method import StepDirection
from iowatch.statistics.panel import PanelEvent, PanelGroup, PanelMember
from iowatch.store import (
    NO_SESSION_FACTS,
    Artefact,
    History,
    RunRecord,
    SeriesExtent,
    SeriesPoints,
    SeriesRow,
    SeriesSamples,
    SessionFacts,
    SessionRecord,
    SessionRow,
    SessionStatus,
    StackRecord,
)
from iowatch.store.records import Origin

START_S = 1_735_700_000
"""1 January 2025, 02:53:20 UTC: the start of sessions and runs of which a test does not say more."""


# What was measured


def build_case(benchmark: str = "ior", **parameters: Scalar) -> Case:
    """A case with these parameters only."""
    return Case(benchmark, parameters)


def build_result(
    *samples: float, operation: str = "write", metric: str = "bandwidth", case: Mapping[str, Scalar] | None = None
) -> Result:
    """A result of a case without parameters; one sample of 1000 if none is given, in the unit of the metric."""
    return Result(operation, metric, METRICS[metric].unit, samples or (1000.0,), dict(case or {}))


def build_output(
    *results: Result,
    tool: str = "ior",
    version: str | None = "4.0.0",
    status: OutputStatus = "ok",
    reason: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Output:
    """The output of IOR; one with a status other than `ok` has a reason."""
    if reason is None and status != "ok":
        reason = f"the output is {status}"
    return Output(tool, version, status, reason, results, dict(facts or {}))


def build_stack(
    *parts: StackPart,
    name: str = "gnu",
    system: str = "local",
    kind: StackKind = "spack",
    status: StackStatus = "installed",
    features: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    paths: Mapping[str, tuple[str, ...]] | None = None,
    modules: tuple[str, ...] = (),
    tools: Mapping[str, str] | None = None,
    note: str | None = None,
) -> Stack:
    """A stack that Spack installed, of these parts.

    Args:
        settings: environment variables.
        paths: environment variables to directories that are prepended.
        tools: names that jobs use to programs.
    """
    return Stack(
        name=name,
        system=system,
        kind=kind,
        status=status,
        parts=parts,
        features=features,
        settings=dict(settings or {}),
        paths=dict(paths or {}),
        modules=modules,
        tools=dict(tools or {}),
        note=note,
    )


def build_trace(
    *, modules: Mapping[str, Mapping[str, float]] | None = None, job: Mapping[str, Any] | None = None, **derived: float
) -> Trace:
    """A complete trace.

    Args:
        modules: module to counters.
        job: facts of the job.
        derived: figures derived from the counters.
    """
    return Trace("ok", None, dict(job or {}), dict(modules or {}), {"performance": {}, "targets": [], **derived})


def build_module_records(module: str, n: int, counters: Mapping[str, Sequence[float]]) -> ModuleRecords:
    """The records of one module of a Darshan log, of `n` files.

    Args:
        counters: name to the value of each record; the others are 0.
    """
    library = load_library()
    zeros = [0.0] * n
    integers = [counters.get(name, zeros) for name in library.counter_names(module)]
    floats = [counters.get(name, zeros) for name in library.fcounter_names(module)]
    return ModuleRecords(
        module=module,
        ids=np.arange(n, dtype=np.uint64),
        ranks=np.full(n, -1, dtype=np.int64),
        integers=np.array(integers, dtype=np.int64).T,
        floats=np.array(floats, dtype=np.float64).T,
        raw=b"",
    )


# What the suite plans and the checks leave


def build_suite_case(
    name: str = "single", *, suite: str = "smoke", benchmark: str = "benchio", time_limit_s: int = 60, **options: Scalar
) -> SuiteCase:
    """A case of a suite; `options` are those of the benchmark that differ from its defaults."""
    return SuiteCase(suite, benchmark, name, get_benchmark(benchmark).read_options(options), "optional", time_limit_s)


def build_checked_run(
    stage: Path = Path("/stage"), *, options: Mapping[str, Scalar] | None = None, **fields: Any
) -> CheckedRun:
    """A run of a check, of a case of IOR that writes with 4 ranks, on an unknown system; without ReFrame.

    Args:
        stage: directory of the job.
        options: of the case, besides or instead of these.
        fields: of `CheckedRun` that have other values.
    """
    case_options: dict[str, Scalar] = {"op": "write", "ranks": 4, "nodes": 1, "repeat": 3, **(options or {})}
    named: dict[str, Any] = {**case_options}
    case = build_suite_case(suite="mine", benchmark="ior", **named)
    run = CheckedRun(
        case=case,
        key=RunKey("default", "gnu", case.run_name),
        order=RunOrder(session="s1"),
        turn=None,
        system="unknown",
        environment="gnu",
        scheduler="local",
        test="IorCheck_1",
        stack={},
        program="ior",
        built_version=None,
        stage=stage,
        scratch_base=Path("/var/scratch/x.y"),
        stdout="rfm_job.out",
        stderr="rfm_job.err",
        run_id="0123",
        is_traced=False,
        traces_accesses=False,
        launcher="mpirun -np 4",
    )
    return replace(run, **fields)


def build_planned_run(case: SuiteCase | None = None, *, partition: str = "default", stack: str = "gnu") -> PlannedRun:
    """A run of a case on the only stack of the only partition."""
    return PlannedRun(case or build_suite_case(), partition, stack)


def build_expected_result(
    run: str = "ior:write",
    *,
    partition: str = "default",
    stack: str = "gnu",
    operation: str = "write",
    metric: str = "bandwidth",
) -> ExpectedResult:
    """One result of a run that a session expects."""
    return ExpectedResult(run_name=run, partition=partition, stack=stack, operation=operation, metric=metric)


def build_spooled_case(
    *results: Result,
    name: str = "ior:write",
    partition: str = "default",
    stack: str = "gnu",
    stack_document: Mapping[str, Any] | None = None,
    started_at: int = START_S,
    wall_s: float = 1.0,
    output: Output | None = None,
    facts: Mapping[str, Any] | None = None,
) -> SpooledCase:
    """A finished case in the spool; without an output, its benchmark is the first word of its name.

    Args:
        results: of the output of the benchmark, if `output` is None.
        stack_document: content of stack.json.
    """
    if output is None:
        output = build_output(*results, tool=name.partition(":")[0])
    return SpooledCase(
        name=name,
        benchmark=output.tool,
        partition=partition,
        stack_name=stack,
        stack=dict(stack_document or {}),
        started_at=started_at,
        wall_s=wall_s,
        output=output.to_json(),
        facts=dict(facts or {}),
    )


# What the history stores


def build_session(
    uuid: str = "session-1",
    *,
    system: str = "local",
    suite: str = "nightly",
    origin: Origin = "run",
    started_at: int = START_S,
    facts: SessionFacts = NO_SESSION_FACTS,
) -> SessionRecord:
    """A nightly session at its start."""
    return SessionRecord(uuid, system, suite, origin, started_at, facts)


def build_run(
    *results: Result,
    name: str = "ior:write",
    partition: str = "default",
    stack: str | StackRecord = "gnu",
    fingerprint: str | None = None,
    started_at: int = START_S,
    wall_s: float | None = None,
    output: Output | None = None,
    facts: Mapping[str, Any] | None = None,
    artefacts: tuple[Artefact, ...] = (),
) -> RunRecord:
    """A run of a session.

    Args:
        results: of the output of IOR, if `output` is None.
        stack: its name, if what it consists of does not matter.
        fingerprint: None: another one for each name, partition, stack and start.
    """
    if isinstance(stack, str):
        stack = StackRecord(stack)
    if fingerprint is None:
        fingerprint = f"{partition} {stack.name} {name} {started_at}"
    return RunRecord(
        name=name,
        partition=partition,
        stack=stack,
        fingerprint=fingerprint,
        started_at=started_at,
        output=output or build_output(*results),
        wall_s=wall_s,
        facts=dict(facts or {}),
        artefacts=artefacts,
    )


def store_session(
    history: History,
    session: SessionRecord,
    runs: Iterable[RunRecord],
    *,
    expected: Iterable[ExpectedResult] = (),
    status: SessionStatus = "ok",
    duration_s: int = 3600,
) -> None:
    """Write a session with its runs into a history.

    Args:
        status: at its end.
        duration_s: from its start to its end.
    """
    history.begin_session(session, list(expected))
    history.record_runs(session.uuid, list(runs))
    history.end_session(session.uuid, status, session.started_at + duration_s)


# What the history returns


def build_session_row(
    number: int = 1,
    *,
    uuid: str | None = None,
    system: str = "local",
    suite: str = "nightly",
    origin: Origin = "run",
    status: SessionStatus = "ok",
    started_at: int = START_S,
    duration_s: int | None = 3600,
    facts: SessionFacts = NO_SESSION_FACTS,
    runs: int = 4,
) -> SessionRow:
    """A nightly session in the history.

    Args:
        number: id in the history; the uuid is this number if it does not matter.
        duration_s: from its start to its end; None if it is running.
    """
    return SessionRow(
        id=number,
        uuid=uuid or str(number),
        system=system,
        suite=suite,
        origin=origin,
        status=status,
        started_at=started_at,
        ended_at=None if duration_s is None else started_at + duration_s,
        facts=facts,
        runs=runs,
    )


def build_series_row(
    number: int = 1,
    *,
    system: str = "local",
    partition: str = "default",
    stack: str = "gnu",
    case: Case | None = None,
    metric: str = "bandwidth",
    n: int = 90,
    first: int = 0,
    last: int = 89 * DAY_S,
) -> SeriesRow:
    """A series of one result a day; `number` is its id."""
    return SeriesRow(number, system, partition, stack, case or build_case(), metric, n, first, last)


def build_points(
    values: ArrayLike, *, series_id: int = 1, times: ArrayLike | None = None, run_ids: ArrayLike | None = None
) -> SeriesPoints:
    """Results of one sample each.

    Args:
        values: in the unit of the metric, shape (n,).
        times: shape (n,); None: one a day from 0 on.
        run_ids: shape (n,); None: numbers from 1 on.
    """
    samples = np.asarray(values, dtype=np.float64)
    number = len(samples)
    return SeriesPoints(
        series_id=series_id,
        time=np.arange(number) * DAY_S if times is None else np.asarray(times),
        max=samples,
        median=samples,
        min=samples,
        mean=samples,
        count=np.ones(number, dtype=np.int64),
        run_id=np.arange(1, number + 1) if run_ids is None else np.asarray(run_ids),
    )


def build_samples(values: ArrayLike, *, series_id: int = 1) -> SeriesSamples:
    """Results of one sample each, one a day from 0 on; `values` of shape (n,) are in the unit of the metric."""
    points = build_points(values, series_id=series_id)
    return SeriesSamples(
        series_id=series_id,
        time=points.time,
        run_id=points.run_id,
        max=points.max,
        median=points.median,
        min=points.min,
        count=points.count,
        samples=points.max,
    )


# What statistics finds


def build_change_point(
    time: float,
    ratio: float = 0.5,
    *,
    last_before: float | None = None,
    before: float = 100.0,
    confidence: float = 0.9,
    observations: int = 10,
    suspected: bool = False,
) -> ChangePoint:
    """A step in a series of one observation a day from 0 on.

    Args:
        time: of the first observation at the new level.
        ratio: level after / level before.
        last_before: time of the last observation before; None: a day earlier.
        before: level before.
    """
    return ChangePoint(
        index=int(time) // DAY_S,
        time=time,
        last_before=time - DAY_S if last_before is None else last_before,
        direction="up" if ratio > 1 else "down",
        ratio=ratio,
        before=before,
        after=before * ratio,
        confidence=confidence,
        observations=observations,
        suspected=suspected,
    )


def build_panel_event(
    gains: Mapping[int, float], first_after: int, *, sessions: int = 1, before: float = -2.0
) -> PanelEvent:
    """An event of the newest sessions of all series.

    Args:
        gains: position of each series that moved to the natural logarithm of its gain.
        first_after: of the first run of the session in which it began; the session before was a day earlier.
        sessions: number of sessions since then.
        before: level of each series before (ln).
    """
    last_before = first_after - DAY_S
    members: dict[StepDirection, list[PanelMember]] = {"down": [], "up": []}
    for series, log_gain in gains.items():
        member = PanelMember(series, last_before, first_after, before, log_gain, distance=5.0)
        members["up" if log_gain > 0 else "down"].append(member)
    groups: list[PanelGroup] = []
    for direction, moved in members.items():
        if moved:
            groups.append(PanelGroup(direction, tuple(moved), rule=None, probability_lasting=0.6))
    return PanelEvent(
        last_before=last_before,
        first_after=first_after,
        groups=tuple(groups),
        sessions=sessions,
        probability_real=0.8,
        probability_lasting=0.6,
        is_open=False,
        similar=9,
        over_next=8,
    )


# Findings


def build_series_change(row: SeriesRow | None = None, change: ChangePoint | None = None) -> SeriesChange:
    """The change of a series: it lost half of its performance on the day after 1 January 1970."""
    row = row or build_series_row()
    change = change or build_change_point(DAY_S)
    return SeriesChange(row, change, METRICS[row.metric].log_gain(change.ratio))


def build_member(
    series_id: int = 1,
    *,
    name: str = "case",
    stack: str = "gnu",
    parameters: Mapping[str, Scalar] | None = None,
    metric: str = "bandwidth",
    last_before: int = 0,
    first_after: int = 1,
    before: float = 100.0,
    gain: float = 0.5,
    run_before: int | None = None,
    run_after: int | None = None,
) -> FindingMember:
    """A series of IOR that lost half of its performance, without runs on both sides.

    Args:
        before: level before, in the unit of the metric.
        gain: factor of the performance, above 1 is better.
    """
    # The gain of a gain is the ratio: both are the same, or inverse.
    ratio = METRICS[metric].gain(gain, 1.0)
    return FindingMember(
        series_id=series_id,
        name=name,
        partition="default",
        stack=stack,
        case_key="case",
        parameters=dict(parameters or {"benchmark": "ior"}),
        metric=metric,
        unit=METRICS[metric].unit,
        last_before=last_before,
        first_after=first_after,
        before=before,
        after=before * ratio,
        ratio=ratio,
        gain=gain,
        confidence=1.0,
        suspected=False,
        run_before=run_before,
        run_after=run_after,
    )


def build_finding(
    *members: FindingMember,
    id: str = "planted-19700101-down",
    system: str = "planted",
    state: FindingState = "open",
    direction: PerformanceDirection = "down",
    last_before: int = 0,
    first_after: int = 0,
    anchor: int | None = None,
    missed_since: int | None = None,
    resolution: Resolution | None = None,
    outlook: Outlook | None = None,
    explanation: Explanation | None = None,
    compared: tuple[str, ...] = ("write POSIX",),
    differences: tuple[EvidenceDifference, ...] = (),
    updates: tuple[FindingUpdate, ...] = (),
    pending: tuple[FindingUpdate, ...] = (),
    review: AppliedDecision | None = None,
    is_alarm: bool = False,
) -> Finding:
    """An open finding: one of three series of a system lost half of its performance on 1 January 1970.

    Args:
        direction: one that is `up` doubled its performance.
        anchor: None: it always had the date that it has.
        explanation: None: the series has no common factor with others.
    """
    if explanation is None:
        explanation = Explanation(changed=1, total=3, rule=None, magnitudes=(), control=None, exceptions=())
    return Finding(
        id=id,
        system=system,
        state=state,
        direction=direction,
        date=local_day(first_after, UTC).isoformat(),
        last_before=last_before,
        first_after=first_after,
        size=2.0 if direction == "up" else 0.5,
        members=members,
        explanation=explanation,
        compared=compared,
        without_data=0,
        changed_otherwise=0,
        causes=(),
        differences=differences,
        first_seen_at=0,
        updated_at=0,
        updates=updates,
        pending=pending,
        anchor=first_after if anchor is None else anchor,
        missed_since=missed_since,
        resolution=resolution,
        review=review,
        outlook=outlook,
        is_alarm=is_alarm,
    )


# Systems


def build_system(name: str = "local", *, retired: str | None = None, night: NightlyPolicy | None = None) -> System:
    """The description of a system: `retired` is the reason; `night` is the policy of its sessions."""
    return System(name=name, title=name, retired=retired, night=night or NightlyPolicy())


def build_event(day: date, *, until: date | None = None, title: str = "maintenance") -> Event:
    """A maintenance of one day, or until a later day."""
    return Event(date=day, until=until, kind="maintenance", title=title)


# What pages show


def build_series_entry(
    row: SeriesRow | None = None,
    *,
    last: int = 99 * DAY_S,
    detection: Detection | None = None,
    limits: SeriesLimits | None = None,
    findings: Sequence[Finding] = (),
) -> SeriesEntry:
    """A monitored series on the pages of its system; `last` is the time of its newest result."""
    row = row or build_series_row()
    return SeriesEntry(
        row=row,
        name=f"series {row.id}",
        stamp=SeriesExtent(n=100, first=0, last=last, newest=100),
        headline=True,
        detection=detection,
        limits=limits or SeriesLimits(),
        findings=tuple(findings),
        stacks=(),
    )


def build_system_entry(
    name: str = "local",
    *,
    facts: System | None = None,
    sessions: Sequence[SessionRow] = (),
    series: Sequence[SeriesEntry] = (),
    findings: Sequence[Finding] = (),
    events: Sequence[Event] = (),
) -> SystemEntry:
    """A system with its sessions, the newest first, and its series."""
    return SystemEntry(
        name=name,
        facts=facts,
        sessions=tuple(sessions),
        series=tuple(series),
        findings=tuple(findings),
        events=tuple(events),
        decisions=(),
        references=None,
        stacks=(),
        faults=(),
    )


def build_site_build(
    history: History, directory: Path, *, systems: Sequence[SystemEntry] = (), templates: Environment | None = None
) -> SiteBuild:
    """The build of a site into a directory; without templates, unless they are given."""
    return SiteBuild(
        history=history,
        catalogue=Catalogue(tuple(systems)),
        templates=templates or Environment(autoescape=True),
        writer=SiteWriter(directory, None),
        zone=UTC,
        sessions=2,
        reports=0,
        now=START_S,
    )
