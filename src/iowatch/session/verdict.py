"""The verdict on a session: received, failed and missing results, changes, references, unavailable cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from iowatch import checks
from iowatch.benchmarks import suites
from iowatch.core import (
    DAY_S,
    METRICS,
    InputError,
    ProblemKind,
    RunKey,
    RunProblem,
    artefacts,
    format_count,
    format_number,
    headline_metrics,
)
from iowatch.findings import (
    Finding,
    HistoryExtent,
    Retest,
    find_retests,
    history_extent,
    outside_results,
    update_findings,
)
from iowatch.reference import bandwidth, published_counts
from iowatch.session import conditions
from iowatch.session.coverage import assess_coverage
from iowatch.session.missing_reasons import reasons_of_failures, recorded_losses
from iowatch.session.run import SessionSummary
from iowatch.site import suite_on_system
from iowatch.store import ExpectedResult, History, NewestSessionReport, RunRow, SessionFacts, SessionRow

# Attributes of a session: cases that cannot run on the system, as `RunProblem`, and the commands that install what
# these need.
UNAVAILABLE = "unavailable"
INSTALL_COMMANDS = "install_commands"
# Exception of ReFrame for a value outside its reference.
_OUTSIDE_REFERENCE = "PerformanceError"


@dataclass(frozen=True, slots=True)
class HeadlineResult:
    """The best sample of one expected result of the session (the maximum of bandwidths: [lawrence2017], section 6)."""

    stack: str
    run: str
    operation: str
    metric: str
    value: float
    unit: str
    samples: int


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
        references: results outside the bounds of their references, and invalid references.
        outside_usual: results without a reference that are outside the usual range of their series; `changes` has those
            whose loss is unusual.
        problems: other reasons for exit code 1, one sentence each.
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
    missing: tuple[RunProblem, ...]
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
    references: tuple[RunProblem, ...] = ()
    outside_usual: tuple[RunProblem, ...] = ()
    problems: tuple[str, ...] = ()
    newest: NewestSessionReport | None = None
    current: tuple[Finding, ...] = ()
    install_commands: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 only if all results were received, none changed, none is outside its reference, and no problem remains."""
        return 0 if self.status == "ok" and not (self.changes or self.references or self.problems) else 1


def assess_session(history: History, summary: SessionSummary) -> Verdict:
    """Assess a session that has ended; updates the findings."""
    row = history.session(summary.uuid)
    runs = history.runs(row.uuid)
    # Why runs that could be planned are missing: their failure, or the end of the session.
    lost = recorded_losses(row)
    absent = [problem.key for problem in assess_coverage(history, row).missing if problem.key not in lost]
    reasons = reasons_of_failures(summary.failures, summary.stop_reason, absent)
    findings = update_findings(history, row.system)
    unavailable = _count_by_reason("unavailable", ((item.stack, item.reason) for item in summary.unavailable))
    history.add_facts(
        row.uuid,
        SessionFacts(
            unavailable=tuple(unavailable),
            install_commands=tuple(summary.install_commands),
            missing_reasons=tuple(reasons.values()),
        ),
    )
    coverage = assess_coverage(history, row, {**reasons, **lost})
    return Verdict(
        session=row.uuid,
        system=row.system,
        suite=row.suite,
        status=row.status,
        expected=coverage.expected,
        received=coverage.received,
        headlines=_headline_results(history, runs, set(history.expected(row.uuid))),
        transfers=_transfer_counts(history, runs),
        failed=coverage.failed,
        missing=coverage.missing,
        extent=history_extent(history, [row.system]),
        install_commands=summary.install_commands,
        newest=history.session(row.uuid).facts.report,
        changes=tuple(f for f in findings if f.needs_action),
        suspected=tuple(f for f in findings if f.state == "suspected" and not f.needs_action),
        current=tuple(f for f in findings if f.resolution is None),
        unavailable=unavailable,
        recovered=summary.recovered,
        wall_s=summary.wall_s,
        benchmark_s=summary.benchmark_s,
        deferred=_count_by_reason("deferred", ((item.stack, item.reason) for item in summary.deferred_runs)),
        added=tuple(
            RunProblem("added", run.stack, run.name, ", ".join(map(" ".join, run.results)), run.partition)
            for run in summary.added_runs
        ),
        dismissed=tuple(f for f in findings if f.dismissed_change_remains),
        stopped=summary.stop_reason,
        repeated=summary.retest_count,
        retests=_retested_runs(history, runs),
        references=(*_values_outside_references(history, row, runs), *_reference_errors(summary)),
        outside_usual=_values_outside_usual(history, history.session(row.uuid), runs),
        problems=_store_problems(
            history,
            row,
            [
                *summary.problems,
                *_quarantine_problems(history, row.system),
                *conditions.ended_series(history, row),
                *_damaged_file_problems(row.started_at // DAY_S),
            ],
        ),
    )


def _quarantine_problems(history: History, system: str) -> list[str]:
    """One sentence per damaged case of any session of the system; a session that is not in the history may be one."""
    found = checks.quarantined_cases()
    others = {session.uuid for session in history.sessions() if session.system != system} if found else set()
    return [one.text for one in found if one.session not in others]


def _damaged_file_problems(day: int) -> list[str]:
    """A sample of the kept files, so that damage of the disk is found before a finding needs them."""
    return [
        f"{path} does not have the content that its name states; remove it, check the disk, run `iowatch history check`"
        for path in artefacts.damaged_artefacts(day)
    ]


def _store_problems(history: History, session: SessionRow, found: Sequence[str]) -> tuple[str, ...]:
    """All problems of the session; new ones are added to its facts, which pages and notices read."""
    known = session.facts.problems
    problems = tuple(dict.fromkeys([*known, *found]))
    if len(problems) > len(known):
        history.add_facts(session.uuid, SessionFacts(problems=problems))
    return problems


def _headline_results(
    history: History, runs: Sequence[RunRow], expected: Set[ExpectedResult]
) -> tuple[HeadlineResult, ...]:
    found = []
    for run in runs:
        for series, samples in history.run_results(run.id):
            operation = str(series.case.parameters.get("operation", ""))
            if ExpectedResult(run.name, run.partition, run.stack, operation, series.metric) in expected:
                metric = METRICS[series.metric]
                best = metric.best(samples), metric.unit, len(samples)
                found.append(HeadlineResult(run.stack, run.name, operation, metric.name, *best))
    return tuple(found)


def _retested_runs(history: History, runs: Sequence[RunRow]) -> tuple[RetestedRun, ...]:
    """Each retest with the best values of the first run and of the retest, of their headline metric."""
    run_ids = {run.key: run.id for run in runs}
    retested: list[RetestedRun] = []
    for retest in find_retests(runs):
        values: dict[tuple[str, str], list[float]] = {}
        for name in (retest.name, checks.turn_run_name(retest.name, {checks.RETEST: True})):
            results = history.run_results(run_ids[RunKey(retest.partition, retest.stack, name)])
            measured_metrics = {series.metric for series, _ in results}
            headline = next((metric for metric in headline_metrics() if metric in measured_metrics), None)
            for series, samples in results:
                if series.metric == headline and samples:
                    metric = METRICS[series.metric]
                    result = str(series.case.parameters.get("operation", "")), metric.unit
                    values.setdefault(result, []).append(metric.best(samples))
        retested_results: list[RetestedResult] = []
        for (operation, unit), best_values in values.items():
            retested_results.append(RetestedResult(operation, unit, tuple(best_values)))
        retested.append(RetestedRun(retest, tuple(retested_results)))
    return tuple(retested)


def _transfer_counts(history: History, runs: Sequence[RunRow]) -> tuple[TransferCounts, ...]:
    found: list[TransferCounts] = []
    for run in runs:
        counts: dict[str, TransferCounts] = {}
        for series, samples in history.run_results(run.id):
            if series.metric in ("collective_count", "independent_count"):
                operation = str(series.case.parameters.get("operation", ""))
                paper = published_counts(series.case)
                made = TransferCounts(run.stack, run.name, operation, printed=paper.text if paper else None)
                count: dict[str, Any] = {series.metric.removesuffix("_count"): round(samples[-1])}
                counts[operation] = replace(counts.get(operation, made), **count)
        found += counts.values()
    return tuple(found)


def _values_outside_references(history: History, session: SessionRow, runs: Sequence[RunRow]) -> tuple[RunProblem, ...]:
    """All results outside the bounds of their references; ReFrame itself stops at the first one of each run.

    Runs with `reference: none` in their suite have no reference.
    """
    known = session.suite in suites.suite_names()
    cases = suite_on_system(session.suite, session.system, (suites.ALL_FILE_SYSTEMS,)) if known else []
    without = {case.run_name for case in cases if case.reference == "none"}
    try:
        references = bandwidth.load_references(session.system)
    except InputError:
        return ()  # no check has run: all are reported as missing, with the reason
    found = []
    for run in (run for run in runs if references.entries and run.name.partition("#")[0] not in without):
        for series, samples in history.run_results(run.id):
            case = series.case.parameters
            place = run.partition, run.stack, case, str(case.get("operation", "")), series.metric
            entry = references.find(*place)
            reason = bandwidth.outside_bounds_reason(entry, entry.metric.best(samples)) if entry and samples else None
            if reason:
                found.append(RunProblem("outside reference", run.stack, run.name, reason, run.partition))
    return tuple(found)


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
            result = outside.pop(series.id, None)
            if result is None:
                continue
            case = series.case.parameters
            operation = str(case.get("operation", ""))
            if references.find(run.partition, run.stack, case, operation, series.metric) is None:
                metric = METRICS[series.metric]
                bounds = f"{format_number(result.lowest_usual)} to {format_number(result.highest_usual)} {metric.unit}"
                earlier = format_count(result.earlier, "session")
                reason = (
                    f"{operation} {metric.label.lower()} {format_number(result.value)}, usually {bounds} ({earlier})"
                )
                problems.append(RunProblem("outside usual range", run.stack, run.name, reason, run.partition))
    return tuple(problems)


def _reference_errors(summary: SessionSummary) -> tuple[RunProblem, ...]:
    """Failures of checks after the measurement: an invalid reference, or a missing required entry."""
    wrong = [f for f in summary.failures if f.phase == "performance" and f.error != _OUTSIDE_REFERENCE]
    reasons = ((failure.stack, failure.reason.removeprefix("input error: ")) for failure in wrong)
    return _count_by_reason("outside reference", reasons)


def _count_by_reason(kind: ProblemKind, stacks_and_reasons: Iterable[tuple[str, str]]) -> tuple[RunProblem, ...]:
    """One entry per stack and reason, with the number of cases."""
    counts = Counter(stacks_and_reasons)
    return tuple(RunProblem(kind, stack, format_count(n, "case"), reason) for (stack, reason), n in counts.items())
