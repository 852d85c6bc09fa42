"""The verdict on a session: received, failed and missing results, changes, references, unavailable cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from iowatch import checks
from iowatch.benchmarks import suites
from iowatch.core import (
    DAY_S,
    METRICS,
    InputError,
    NodeDifference,
    NodePairs,
    ProblemKind,
    RunKey,
    RunProblem,
    UnplannedRun,
    artefacts,
    find_node_differences,
    format_count,
    format_number,
    headline_metrics,
    name_without_turn,
    processor_saturation,
)
from iowatch.findings import (
    BaselinePeriod,
    Finding,
    FitnessAssessment,
    FitnessComparison,
    HistoryExtent,
    NodeOverSessions,
    Retest,
    SlowParts,
    SlowSeries,
    SlowTarget,
    damaged_result_problems,
    find_retests,
    find_slow_from_start,
    find_slow_parts,
    history_extent,
    outside_results,
    update_findings,
)
from iowatch.reference import PublishedFigure, bandwidth, published_counts, skipped_entries
from iowatch.session import conditions, fact_comparison
from iowatch.session.continuity import lost_session_problems
from iowatch.session.coverage import MissingRun, assess_coverage
from iowatch.session.headlines import HeadlineResult, assess_headlines
from iowatch.session.maintenance import maintenance_before
from iowatch.session.missing_reasons import reasons_of_failures, recorded_losses
from iowatch.session.plan import UnavailableCase
from iowatch.session.run import SessionSummary
from iowatch.session.schedule import suggest_schedule
from iowatch.site import NightlySchedule, suite_on_system
from iowatch.statistics.fitness import FitnessSettings
from iowatch.store import History, NewestSessionReport, OutsideResult, RunRow, SeriesRow, SessionFacts, SessionRow

# Exception of ReFrame for a value outside its reference.
_OUTSIDE_REFERENCE = "PerformanceError"
_COLLECTIVE_METRIC, _INDEPENDENT_METRIC = "collective_count", "independent_count"


@dataclass(frozen=True, slots=True)
class TransferCounts:
    """Collective and independent MPI-IO operations of one repetition, as counted by Darshan.

    Attributes:
        printed: the published count of a similar case, as text, or None.
    """

    stack: str
    run: str
    operation: str
    collective: int = 0
    independent: int = 0
    printed: str | None = None
    partition: str = ""


@dataclass(frozen=True, slots=True)
class SaturatedRun:
    """A run of which other processes used the processors of its node; levels and references leave it out.

    Attributes:
        pressure_percent: time in which a process waited for a processor before the run.
    """

    partition: str
    stack: str
    run: str
    pressure_percent: float


@dataclass(frozen=True, slots=True)
class DifferingNodes:
    """What was not the same on all nodes of runs on several nodes, and in how many runs of a partition."""

    partition: str
    difference: NodeDifference
    runs: int


@dataclass(frozen=True, slots=True)
class SlowMessages:
    """A run between all pairs of nodes that found nodes with slow messages."""

    partition: str
    stack: str
    run: str
    pairs: NodePairs


@dataclass(frozen=True, slots=True)
class RetestedResult:
    """Best values of one result in the first run and in its retest, in the unit of its metric."""

    operation: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RetestedRun:
    """A retest of this session, and what both runs measured."""

    retest: Retest
    results: tuple[RetestedResult, ...]


@dataclass(frozen=True)
class NightAfterMaintenance:
    """The first night after a maintenance in the calendar.

    Attributes:
        title, day: of the event; the day is its first one (ISO).
    """

    title: str
    day: str
    assessment: FitnessAssessment


@dataclass(frozen=True)
class Verdict:
    """The verdict on a session; `iowatch.output.text.verdict` has its sentences and its JSON document.

    Attributes:
        extent: extent of the history, including this session.
        newest: what the results of this session show together; None without an assessment.
        changes: open findings, and suspected ones that last with enough probability.
        suspected: the other suspected findings.
        current: all findings of the system that are not resolved.
        unavailable: cases that cannot run on this system, by stack and reason; `install_commands` install what they
            need and no stack provides.
        deferred: runs that did not fit the budget, by stack and reason; they were not expected.
        added: runs with results that no earlier session expected.
        dismissed: findings that a person dismissed and whose level has not returned.
        stopped: reason why the session ended before all runs were executed, or None.
        repeated: number of runs that were repeated because a change is suspected.
        retests: where and when each retest ran, and what it measured.
        saturated: runs on nodes whose processors others used; `run_count` is that of all runs of the session.
        differing_nodes: what differed between nodes without failing a run.
        slow_messages: runs that found nodes whose messages are slow.
        slow_targets: targets that this session found to be slower than the others of their file system.
        nodes_over_sessions: nodes of this session that are the slowest ones far too often.
        slow_from_start: young series that are far slower than their siblings since their first session.
        references: results outside the bounds of their references, and invalid references.
        outside_usual: results without a reference that are outside the usual range of their series; `changes` has those
            whose loss is unusual.
        problems: other reasons for exit code 1, one sentence each.
        published: what papers measured with like cases.
        next_step: in the first sessions what starts the next ones every night.
        maintenance: whether the system is as fast as before a maintenance in the calendar; None without one since the
            last session.
    """

    session: str
    system: str
    suite: str
    status: str
    expected: int
    received: int
    headlines: tuple[HeadlineResult, ...]
    transfers: tuple[TransferCounts, ...]
    failed: tuple[RunProblem, ...]
    missing: tuple[MissingRun, ...]
    extent: HistoryExtent
    changes: tuple[Finding, ...]
    suspected: tuple[Finding, ...]
    unavailable: tuple[RunProblem, ...]
    recovered: tuple[str, ...]
    wall_s: float
    benchmark_s: float
    deferred: tuple[RunProblem, ...] = ()
    added: tuple[RunProblem, ...] = ()
    dismissed: tuple[Finding, ...] = ()
    stopped: str | None = None
    repeated: int = 0
    retests: tuple[RetestedRun, ...] = ()
    saturated: tuple[SaturatedRun, ...] = ()
    slow_messages: tuple[SlowMessages, ...] = ()
    slow_targets: tuple[SlowTarget, ...] = ()
    nodes_over_sessions: tuple[NodeOverSessions, ...] = ()
    slow_from_start: tuple[SlowSeries, ...] = ()
    run_count: int = 0
    references: tuple[RunProblem, ...] = ()
    outside_usual: tuple[RunProblem, ...] = ()
    problems: tuple[str, ...] = ()
    newest: NewestSessionReport | None = None
    current: tuple[Finding, ...] = ()
    install_commands: tuple[str, ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    next_step: NightlySchedule | None = None
    maintenance: NightAfterMaintenance | None = None
    differing_nodes: tuple[DifferingNodes, ...] = ()

    @property
    def has_several_partitions(self) -> bool:
        """Whether names of runs need their partition to be unambiguous."""
        partitions = {headline.partition for headline in self.headlines}
        partitions |= {counts.partition for counts in self.transfers}
        problems = (*self.failed, *self.missing, *self.references, *self.unavailable, *self.deferred, *self.added)
        partitions |= {problem.partition for problem in problems}
        return len(partitions - {""}) > 1

    @property
    def exit_code(self) -> int:
        """0 only if all results were received, none changed, none is outside its reference, and no problem remains."""
        return 0 if self.status == "ok" and not (self.changes or self.references or self.problems) else 1


def assess_session(history: History, summary: SessionSummary) -> Verdict:
    """Assess a session that has ended; updates the findings."""
    session = history.session(summary.uuid)
    runs = history.runs(session.uuid)
    # Why runs are missing: lost ones could not be planned; the others failed, or the session ended before them.
    reasons_of_loss = recorded_losses(session)
    missing = assess_coverage(history, session).missing
    unexplained_keys = [run.key for run in missing if run.key not in reasons_of_loss]
    reasons_of_failure = reasons_of_failures(summary.failures, summary.stop_reason, unexplained_keys)
    coverage = assess_coverage(history, session, {**reasons_of_failure, **reasons_of_loss})
    findings = update_findings(history, session.system)
    # What ran is what ran before.
    fact_differences = fact_comparison.compare_facts(history, session)
    references = _compare_with_references(history, session, runs)
    # Pages and notices read from the facts of the session what is known only now.
    partitions = {result.partition for result in history.expected(session.uuid)}
    partitions |= {case.partition for case in summary.unavailable}
    partitions |= {run.partition for run in summary.deferred_runs}
    names_partitions = len(partitions - {""}) > 1
    unavailable = _count_by_reason("unavailable", summary.unavailable, names_partitions)
    history.add_facts(
        session.uuid,
        SessionFacts(
            unavailable=unavailable,
            install_commands=tuple(summary.install_commands),
            missing_reasons=tuple(reasons_of_failure.values()),
            fact_differences=fact_differences,
            referenced=references.count,
        ),
    )
    problems = [
        *summary.problems,
        *_quarantine_problems(history, session.system),
        *conditions.ended_series(history, session),
        *conditions.repeated_outputs(history, session),
        *_reference_problems(history, session, references, has_all_results=not (missing or coverage.failed)),
        *lost_session_problems(history, session.system),
        *damaged_result_problems(history, session.system),
        *skipped_entries(session.system),
        *fact_comparison.fact_problems(session.system, fact_differences),
        *_damaged_file_problems(session.started_at // DAY_S),
    ]
    maintenance = assess_night_after_maintenance(history, session, runs)
    if maintenance is not None and maintenance.assessment.decision == "not fit":
        problems.append(f"not fit after the maintenance of {maintenance.day} ({maintenance.title})")
    slow_parts = _slow_parts_of_session(history, session)
    headlines = assess_headlines(history, session, runs, set(history.expected(session.uuid)))
    # The update of the findings has added its facts.
    updated_session = history.session(session.uuid)
    return Verdict(
        session=session.uuid,
        system=session.system,
        suite=session.suite,
        status=session.status,
        expected=coverage.expected,
        received=coverage.received,
        headlines=headlines.results,
        transfers=_transfer_counts(history, runs),
        failed=coverage.failed,
        missing=coverage.missing,
        extent=history_extent(history, [session.system]),
        install_commands=summary.install_commands,
        newest=updated_session.facts.report,
        changes=tuple(finding for finding in findings if finding.needs_action),
        suspected=_suspected_without_action(findings),
        current=tuple(finding for finding in findings if finding.resolution is None),
        unavailable=unavailable,
        recovered=summary.recovered,
        wall_s=summary.wall_s,
        benchmark_s=summary.benchmark_s,
        deferred=_count_by_reason("deferred", summary.deferred_runs, names_partitions),
        added=tuple(_added_problem(run) for run in summary.added_runs),
        dismissed=tuple(finding for finding in findings if finding.dismissed_change_remains),
        stopped=summary.stop_reason,
        repeated=summary.retest_count,
        retests=_retested_runs(history, runs),
        saturated=_saturated_runs(runs),
        slow_messages=_slow_messages(runs),
        slow_targets=slow_parts.targets,
        nodes_over_sessions=slow_parts.nodes,
        slow_from_start=tuple(find_slow_from_start(history, [session.system])),
        run_count=len(runs),
        references=(*references.outside, *_reference_errors(summary)),
        outside_usual=_values_outside_usual(history, updated_session, runs),
        problems=_store_problems(history, session, problems),
        published=headlines.published,
        next_step=suggest_schedule(history, session),
        maintenance=maintenance,
        differing_nodes=_differing_nodes(runs),
    )


def assess_night_after_maintenance(
    history: History, session: SessionRow, runs: Sequence[RunRow]
) -> NightAfterMaintenance | None:
    """Whether the results of a session are as good as those before a maintenance; None without one since the last.

    Nothing is measured for it: each series has one value, a retested one the mean of both.
    """
    event = maintenance_before(history, session)
    if event is None:
        return None
    planned = {run.key._replace(run=name_without_turn(run.name)) for run in runs}
    # One value per series is all that there is to look at.
    settings = FitnessSettings(first_look=1)
    comparison = FitnessComparison.load(history, session.system, BaselinePeriod(None, event.start), planned, settings)
    comparison.record_night(history, session.started_at)
    assessment = comparison.assess(runs)
    return NightAfterMaintenance(event.title, event.date.isoformat(), assessment)


def _suspected_without_action(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The suspected findings that do not last with enough probability to need action."""
    return tuple(finding for finding in findings if finding.state == "suspected" and not finding.needs_action)


def _added_problem(run: UnplannedRun) -> RunProblem:
    results = [f"{operation} {metric}" for operation, metric in run.results]
    return RunProblem("added", run.stack, run.name, ", ".join(results), run.partition)


def _saturated_runs(runs: Sequence[RunRow]) -> tuple[SaturatedRun, ...]:
    saturated: list[SaturatedRun] = []
    for run in runs:
        pressure = processor_saturation(run.facts.document)
        if pressure is not None:
            saturated.append(SaturatedRun(run.partition, run.stack, run.name, pressure))
    return tuple(saturated)


def _differing_nodes(runs: Sequence[RunRow]) -> tuple[DifferingNodes, ...]:
    """The differences between nodes; what differs on the same nodes of several runs is one of them."""
    by_nodes: dict[tuple[str, str, tuple[str, ...]], DifferingNodes] = {}
    for run in runs:
        for difference in find_node_differences(run.facts.each_node):
            key = (run.partition, difference.fact, difference.outliers)
            earlier = by_nodes.get(key)
            if earlier is None:
                by_nodes[key] = DifferingNodes(run.partition, difference, 1)
            else:
                by_nodes[key] = replace(earlier, runs=earlier.runs + 1)
    return tuple(by_nodes.values())


def _slow_messages(runs: Sequence[RunRow]) -> tuple[SlowMessages, ...]:
    slow_messages: list[SlowMessages] = []
    for run in runs:
        pairs = run.facts.node_pairs
        if pairs is not None and pairs.slow_nodes:
            slow_messages.append(SlowMessages(run.partition, run.stack, run.name, pairs))
    return tuple(slow_messages)


def _slow_parts_of_session(history: History, session: SessionRow) -> SlowParts:
    """The slow targets and nodes that this session measured, not those of earlier ones."""
    slow_parts = find_slow_parts(history, session.system)
    return replace(
        slow_parts,
        targets=tuple(target for target in slow_parts.targets if target.session == session.uuid),
        nodes=tuple(node for node in slow_parts.nodes if node.session == session.uuid),
    )


def _quarantine_problems(history: History, system: str) -> list[str]:
    """One sentence per damaged case of any session of the system; a session that is not in the history may be one."""
    damaged_cases = checks.quarantined_cases()
    if not damaged_cases:
        return []
    of_other_systems = {session.uuid for session in history.sessions() if session.system != system}
    return [case.text for case in damaged_cases if case.session not in of_other_systems]


def _damaged_file_problems(day: int) -> list[str]:
    """A sample of the kept files, so that damage of the disk is found before a finding needs them.

    Args:
        day: since 1970; each day has another sample.
    """
    remedy = "remove it, check the disk, run `iowatch history check`"
    damaged_paths = artefacts.damaged_artefacts(day)
    return [f"{path} does not have the content that its name states; {remedy}" for path in damaged_paths]


def _store_problems(history: History, session: SessionRow, problems: Sequence[str]) -> tuple[str, ...]:
    """All problems of the session; new ones are added to its facts, which pages and notices read.

    Args:
        session: as it was before the verdict.
    """
    stored_problems = session.facts.problems
    all_problems = tuple(dict.fromkeys([*stored_problems, *problems]))
    if len(all_problems) > len(stored_problems):
        history.add_facts(session.uuid, SessionFacts(problems=all_problems))
    return all_problems


def _operation(series: SeriesRow) -> str:
    return str(series.case.parameters.get("operation", ""))


def _retested_runs(history: History, runs: Sequence[RunRow]) -> tuple[RetestedRun, ...]:
    """Each retest with the best values of the first run and of the retest, of their headline metric."""
    run_ids = {run.key: run.id for run in runs}
    retested_runs: list[RetestedRun] = []
    for retest in find_retests(runs):
        first_run = RunKey(retest.partition, retest.stack, retest.name)
        second_run = first_run._replace(run=checks.turn_run_name(retest.name, {checks.RETEST: True}))
        # The values of the first run are before those of its retest.
        values_by_operation: dict[tuple[str, str], list[float]] = {}
        for key in (first_run, second_run):
            for result in _best_headline_values(history, run_ids[key]):
                values_by_operation.setdefault((result.operation, result.unit), []).extend(result.values)
        results: list[RetestedResult] = []
        for (operation, unit), values in values_by_operation.items():
            results.append(RetestedResult(operation, unit, tuple(values)))
        retested_runs.append(RetestedRun(retest, tuple(results)))
    return tuple(retested_runs)


def _best_headline_values(history: History, run_id: int) -> list[RetestedResult]:
    """The best value of each operation of a run, of its headline metric."""
    results = history.run_results(run_id)
    measured_metrics = {series.metric for series, _ in results}
    headline = next((metric for metric in headline_metrics() if metric in measured_metrics), None)
    best_values: list[RetestedResult] = []
    for series, samples in results:
        if series.metric == headline and samples:
            metric = METRICS[series.metric]
            best_values.append(RetestedResult(_operation(series), metric.unit, (metric.best(samples),)))
    return best_values


def _transfer_counts(history: History, runs: Sequence[RunRow]) -> tuple[TransferCounts, ...]:
    """The counts of each run and operation; of several repetitions the last one."""
    all_counts: list[TransferCounts] = []
    for run in runs:
        counts_of_operations: dict[str, TransferCounts] = {}
        for series, samples in history.run_results(run.id):
            if series.metric not in (_COLLECTIVE_METRIC, _INDEPENDENT_METRIC):
                continue
            operation = _operation(series)
            counts = counts_of_operations.get(operation)
            if counts is None:
                published = published_counts(series.case)
                printed = published.text if published else None
                counts = TransferCounts(run.stack, run.name, operation, printed=printed, partition=run.partition)
            number = round(samples[-1])
            # Each of the two metrics is a series of its own.
            if series.metric == _COLLECTIVE_METRIC:
                counts_of_operations[operation] = replace(counts, collective=number)
            else:
                counts_of_operations[operation] = replace(counts, independent=number)
        all_counts += counts_of_operations.values()
    return tuple(all_counts)


@dataclass(frozen=True, slots=True)
class _ReferenceComparison:
    """What the references say of a session.

    Attributes:
        count: results that have a reference; None if the references cannot be read.
        outside: those outside the bounds.
    """

    count: int | None
    outside: tuple[RunProblem, ...] = ()


def _compare_with_references(history: History, session: SessionRow, runs: Sequence[RunRow]) -> _ReferenceComparison:
    """All results outside the bounds of their references; ReFrame itself stops at the first one of each run.

    Runs with `reference: none` in their suite have no reference.
    """
    try:
        references = bandwidth.load_references(session.system)
    except InputError:
        # No check has run: all are reported as missing, with the reason.
        return _ReferenceComparison(None)
    if not references.entries:
        return _ReferenceComparison(0)
    exempt_cases = _cases_without_reference(session)
    count = 0
    problems: list[RunProblem] = []
    for run in runs:
        if name_without_turn(run.name) in exempt_cases:
            continue
        for series, samples in history.run_results(run.id):
            parameters = series.case.parameters
            reference = references.find(run.partition, run.stack, parameters, _operation(series), series.metric)
            if reference is None or not samples:
                continue
            count += 1
            reason = bandwidth.outside_bounds_reason(reference, reference.metric.best(samples))
            if reason is not None:
                problems.append(RunProblem("outside reference", run.stack, run.name, reason, run.partition))
    return _ReferenceComparison(count, tuple(problems))


def _reference_problems(
    history: History, session: SessionRow, references: _ReferenceComparison, *, has_all_results: bool
) -> list[str]:
    """Report lost references; without a result its reference is not compared, and the missing result is reported."""
    if references.count is None or not has_all_results:
        return []
    sentence = conditions.lost_references(history, session, references.count)
    return [sentence] if sentence else []


def _cases_without_reference(session: SessionRow) -> set[str]:
    """Names of the cases of a suite that state `reference: none`; empty if the suite no longer exists."""
    if session.suite not in suites.suite_names():
        return set()
    cases = suite_on_system(session.suite, session.system, (suites.ALL_FILE_SYSTEMS,))
    return {case.run_name for case in cases if case.reference == "none"}


def _values_outside_usual(history: History, session: SessionRow, runs: Sequence[RunRow]) -> tuple[RunProblem, ...]:
    """Results outside the usual range of their series, which is the reference until a person accepts one."""
    outside = {result.series_id: result for result in outside_results(session)}
    if not outside:
        return ()
    try:
        references = bandwidth.load_references(session.system)
    except InputError:
        return ()  # reported with the checks
    problems: list[RunProblem] = []
    for run in runs:
        for series, _ in history.run_results(run.id):
            # The run and its retest are one observation, which is reported with the first of both.
            result = outside.pop(series.id, None)
            if result is None:
                continue
            parameters = series.case.parameters
            reference = references.find(run.partition, run.stack, parameters, _operation(series), series.metric)
            if reference is None:
                reason = _outside_usual_reason(series, result)
                problems.append(RunProblem("outside usual range", run.stack, run.name, reason, run.partition))
    return tuple(problems)


def _outside_usual_reason(series: SeriesRow, result: OutsideResult) -> str:
    """`write bandwidth 80, usually 90 to 120 MiB/s (14 sessions)`."""
    metric = METRICS[series.metric]
    value = f"{_operation(series)} {metric.label.lower()} {format_number(result.value)}"
    bounds = f"{format_number(result.lowest_usual)} to {format_number(result.highest_usual)} {metric.unit}"
    return f"{value}, usually {bounds} ({format_count(result.earlier, 'session')})"


def _reference_errors(summary: SessionSummary) -> tuple[RunProblem, ...]:
    """Failures of checks after the measurement: an invalid reference, or a missing required entry."""
    errors: list[_ReasonOfStack] = []
    for failure in summary.failures:
        if failure.phase != "performance" or failure.error == _OUTSIDE_REFERENCE:
            continue
        # The message of an error that iowatch reports is complete without the class of the error.
        is_reported = failure.error == InputError.__name__ and failure.message
        errors.append(_ReasonOfStack("", failure.stack, failure.message if is_reported else failure.reason))
    return _count_by_reason("outside reference", errors, names_partitions=False)


@dataclass(frozen=True, slots=True)
class _ReasonOfStack:
    """Why something is said of a case on a stack; the partition is empty if it is not known, or not named."""

    partition: str
    stack: str
    reason: str


def _count_by_reason(
    kind: ProblemKind, cases: Iterable[UnavailableCase | UnplannedRun | _ReasonOfStack], names_partitions: bool
) -> tuple[RunProblem, ...]:
    """One entry per partition, stack and reason, with the number of cases.

    Args:
        names_partitions: whether there are several partitions; the only one is not named.
    """
    reasons: list[_ReasonOfStack] = []
    for case in cases:
        partition = case.partition if names_partitions else ""
        reasons.append(_ReasonOfStack(partition, case.stack, case.reason))
    problems: list[RunProblem] = []
    for group, number in Counter(reasons).items():
        count = format_count(number, "case")
        problems.append(RunProblem(kind, group.stack, count, group.reason, group.partition))
    return tuple(problems)
