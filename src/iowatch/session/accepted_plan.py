"""The accepted plan: what the sessions of a system and suite deliver until a person accepts less.

Each session stores what it expected and deferred; this is the memory. A result that is not planned any more (a library
disappeared from a stack, a stack or a case was removed) is *lost*: it stays expected, and therefore absent, in every
later session until `iowatch review plan` accepts the loss in `reference/reviews/<system>.yaml`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iowatch.benchmarks.suites import current_run_name, suite_names
from iowatch.core import InputError, IowatchError, RunKey, UnplannedRun, format_count, utc_now
from iowatch.reference import reviews
from iowatch.session.context import CaseSelection, SessionContext, make_context, select_cases
from iowatch.session.file_systems import examine_file_systems
from iowatch.session.missing_reasons import reasons_of_losses
from iowatch.session.options import SessionOptions
from iowatch.session.plan import SessionPlan, UnavailableCase, make_session_plan
from iowatch.site import Stack, discover_stacks
from iowatch.store import ExpectedResult, History, SessionChoice, SessionFacts, SessionRow

_LOG = logging.getLogger(__name__)

# From this number of consecutive sessions on, a deferred run is a problem.
_TOO_MANY_DEFERRALS = 3


def plan_facts(
    history: History,
    context: SessionContext,
    choice: SessionChoice,
    plan: SessionPlan,
    deferred: Sequence[UnplannedRun],
) -> SessionFacts:
    """Facts of a session about its plan, from which later sessions, the verdict and the pages read.

    They are its stacks and choice, its deferred and lost runs, and the problems of its plan; what is empty is left out.
    """
    facts: dict[str, Any] = {"stacks": tuple(sorted(context.site.features))}
    if deferred:
        facts["deferred"] = tuple(deferred)
    if plan.lost:
        facts["lost"] = plan.lost
    problems = _plan_problems(history, context.options, plan, deferred)
    if problems:
        facts["problems"] = tuple(problems)
    if choice != SessionChoice():
        facts["choice"] = choice
    return SessionFacts(**facts)


def session_choice(selection: CaseSelection, duplicates: Mapping[str, str]) -> SessionChoice:
    """What the options of a session leave of its suite; empty for the whole suite on all stacks.

    Args:
        selection: cases that the options select, each on one file system.
        duplicates: by name of a run that would only repeat another one in the scratch directory, the sentence that says
            which. In a directory that the options choose they are not part of the choice.
    """
    options = selection.options
    run_names = [case.run_name for case in selection.cases]
    if options.scratch is not None:
        run_names = [name for name in run_names if name not in duplicates]
    restrictions: dict[str, tuple[str, ...]] = {}
    if options.stacks:
        restrictions["stacks"] = tuple(sorted(options.stacks))
    # File systems restrict a session by its runs, whose names contain them: those that the suite names itself leave the
    # same runs, and are no restriction.
    is_part_of_suite = set(run_names) != selection.suite_run_names
    if is_part_of_suite and options.file_systems:
        restrictions["file_systems"] = tuple(sorted(options.file_systems))
    # A field without entries would restrict nothing.
    if is_part_of_suite and run_names:
        restrictions["runs"] = tuple(run_names)
    return SessionChoice(**restrictions)


def is_restricted(session: SessionRow) -> bool:
    """Whether only some stacks or cases were chosen for the session."""
    return session.facts.choice is not None


def _choice_of(session: SessionRow) -> SessionChoice:
    """What restricted a session; empty if nothing did."""
    return session.facts.choice or SessionChoice()


def _earlier_sessions(history: History, options: SessionOptions) -> Iterator[SessionRow]:
    """Sessions of the same system and suite, newest first."""
    for session in history.sessions(options.system):
        if session.origin == "run" and session.suite == options.suite and not session.is_interleaved:
            yield session


def _remembered_results(history: History, selection: CaseSelection) -> dict[ExpectedResult, SessionRow]:
    """The memory: results that were expected or deferred, with the newest session whose choice includes them."""
    remembered: dict[ExpectedResult, SessionRow] = {}
    newer_choices: list[SessionChoice] = []
    for session in _earlier_sessions(history, selection.options):
        choice = _choice_of(session)
        if choice not in newer_choices:
            for result in _expected_and_deferred(history, session):
                is_newer = any(newer.includes(result.key) for newer in newer_choices)
                # File systems that were chosen for one session are expected only by the next one that chooses them.
                is_possible = not choice.file_systems or result.run_name in selection.known_run_names
                # Retests are not planned, but added while a session runs.
                is_retest = "#" in result.run_name
                if is_possible and not is_newer and not is_retest:
                    remembered[result] = session
            if not choice.file_systems:
                newer_choices.append(choice)
        # Nothing older counts: this session stands for the whole suite.
        if not is_restricted(session):
            break
    return remembered


def _expected_and_deferred(history: History, session: SessionRow) -> list[ExpectedResult]:
    """The results that a session expected, and those of the runs that did not fit its budget, under present names."""
    results = [*history.expected(session.uuid)]
    for run in session.facts.deferred:
        results += run.expected()
    return [_with_current_name(result) for result in results]


def _with_current_name(result: ExpectedResult) -> ExpectedResult:
    return replace(result, run_name=current_run_name(result.run_name))


@dataclass(frozen=True)
class CompletedPlan:
    """A plan with its lost runs.

    Attributes:
        added: runs with results that no earlier session expected; none in the first session.
    """

    plan: SessionPlan
    added: tuple[UnplannedRun, ...]


def compare_with_memory(
    history: History,
    context: SessionContext,
    choice: SessionChoice,
    plan: SessionPlan,
    deferred: Sequence[UnplannedRun],
) -> CompletedPlan:
    """Complete a plan by what earlier sessions expected and it does not deliver.

    Cases of a broken stack that no session expected are added to the unavailable ones.
    """
    memory = _remembered_results(history, context.selection)
    accepted = _accepted_losses(context.options)
    planned = [*plan.expected()]
    for run in deferred:
        planned += run.expected()
    lost = _lost_results(memory, accepted, choice, planned)
    # What the suite asks for is expected from the first session on, even on a file system that is not mounted.
    for case in plan.unavailable:
        lost += [result for result in case.expected if result not in memory and result not in accepted]
    # A session with chosen stacks needs no others; to find stacks takes seconds.
    stacks: dict[str, Stack] = {}
    if not context.options.stacks:
        stacks = {stack.name: stack for stack in discover_stacks(context.system.name)}
    reasons = reasons_of_losses(history, context, plan, stacks, dict.fromkeys(result.key for result in lost))
    # What is lost is not reported as unavailable, too.
    lost_cases = {(key.run, key.stack, key.partition) for key in reasons}
    # A case of a broken stack is unavailable on all partitions.
    lost_cases |= {(key.run, key.stack, "") for key in reasons}
    unavailable = (*plan.unavailable, *_cases_of_broken_stacks(context, stacks.values()))
    kept = tuple(case for case in unavailable if (case.name, case.stack, case.partition) not in lost_cases)
    # In the first session everything is new.
    added = [result for result in dict.fromkeys(planned) if result not in memory] if memory else []
    added_runs: list[UnplannedRun] = []
    for key, results in _group_by_run(added).items():
        added_runs.append(UnplannedRun(*key, results, "not expected by earlier sessions"))
    lost_runs = tuple(UnplannedRun.lost(reasons[key], results) for key, results in _group_by_run(lost).items())
    return CompletedPlan(SessionPlan(plan.runs, kept, lost_runs), tuple(added_runs))


def _lost_results(
    memory: Mapping[ExpectedResult, SessionRow],
    accepted: Mapping[ExpectedResult, int],
    choice: SessionChoice,
    planned: Collection[ExpectedResult],
) -> list[ExpectedResult]:
    """Remembered results that are not planned any more, unless a later decision accepted it.

    Args:
        accepted: times of the decisions.
        choice: what restricts the session; the others are not missing.
    """
    planned_results = set(planned)
    lost: list[ExpectedResult] = []
    for result, session in memory.items():
        is_accepted = accepted.get(result, 0) >= session.started_at
        if result not in planned_results and choice.includes(result.key) and not is_accepted:
            lost.append(result)
    return lost


def _cases_of_broken_stacks(context: SessionContext, stacks: Iterable[Stack]) -> Iterator[UnavailableCase]:
    """Every case on every broken stack, with the damage as the reason why it cannot run."""
    for stack in stacks:
        if stack.status != "broken":
            continue
        for case in context.cases:
            yield UnavailableCase(case.run_name, stack.name, f"the stack is broken: {stack.note}")


def _group_by_run(results: Iterable[ExpectedResult]) -> dict[RunKey, tuple[tuple[str, str], ...]]:
    """(Operation, metric) of the results of each run, in their order."""
    results_by_run: dict[RunKey, list[tuple[str, str]]] = {}
    for result in results:
        results_by_run.setdefault(result.key, []).append((result.operation, result.metric))
    return {key: tuple(results_of_run) for key, results_of_run in results_by_run.items()}


def _accepted_losses(options: SessionOptions) -> dict[ExpectedResult, int]:
    """Results whose loss is accepted, with the time of the decision (epoch seconds).

    A damaged file must not prevent the measurement: it accepts nothing, and the verdict reports it.
    """
    try:
        recorded = reviews.read_decisions(options.system)
    except InputError as error:
        _LOG.warning("%s", error.message)
        return {}
    for fault in recorded.faults:
        _LOG.warning("%s", fault)
    accepted: dict[ExpectedResult, int] = {}
    # The last decision about a result counts.
    for decision in sorted(recorded.plans, key=lambda decision: decision.date):
        if decision.suite != options.suite:
            continue
        for run in decision.lost:
            for text in run.results:
                operation, metric = text.rsplit(" ", 1)
                result = ExpectedResult(run.run, run.partition, run.stack, operation, metric)
                accepted[_with_current_name(result)] = int(decision.date.timestamp())
    return accepted


def losses_by_suite(
    history: History, system: str, suite: str | None, stacks: Collection[str]
) -> dict[str, list[UnplannedRun]]:
    """Losses that are not accepted, by suite.

    Args:
        suite: only this one; None means all suites that sessions of the system ran.
        stacks: only these; empty means all.

    Raises:
        UsageError: unknown system or suite.
    """
    history.require_system(system)
    suites = [suite] if suite else []
    if not suites:
        measured = {session.suite for session in history.sessions(system) if session.origin == "run"}
        suites = sorted(measured.intersection(suite_names()))
    losses: dict[str, list[UnplannedRun]] = {}
    for name in suites:
        selection = select_cases(SessionOptions(system=system, suite=name))
        runs = [run for run in _current_losses(history, selection) if not stacks or run.stack in stacks]
        if runs:
            losses[name] = runs
    return losses


def _current_losses(history: History, selection: CaseSelection) -> tuple[UnplannedRun, ...]:
    """Losses that are not accepted: of the last sessions, and of a session that would start now.

    Both count, because the environment of a nightly session may differ from the one of this command.
    """
    # Losses of earlier sessions need no system; those of a new one need its stacks and file systems.
    losses = {run.key: run for run in _recorded_losses(history, selection)}
    try:
        context = make_context(selection)
        excluded = examine_file_systems(history, context)
        plan = make_session_plan(context.site, context.cases, (), context.limits, excluded)
        choice = session_choice(selection, excluded.duplicates)
        completed = compare_with_memory(history, context, choice, plan, ())
        losses |= {run.key: run for run in completed.plan.lost}
    except IowatchError as error:
        _LOG.warning("Only losses of earlier sessions are known: %s", error.message)
    return tuple(losses.values())


def _recorded_losses(history: History, selection: CaseSelection) -> Iterator[UnplannedRun]:
    """Losses that earlier sessions recorded and that are not accepted."""
    memory, accepted = _remembered_results(history, selection), _accepted_losses(selection.options)
    sessions = {session.id: session for session in memory.values()}
    for session in sessions.values():
        for run in session.facts.lost:
            # A newer session may have delivered some of its results.
            results = [result for result in run.expected() if memory.get(result) is session]
            if any(accepted.get(result, 0) < session.started_at for result in results):
                yield run


def accept_losses(system: str, suite: str, lost: Iterable[UnplannedRun], reason: str, by: str) -> None:
    """Accept losses: later sessions do not expect these results, unless a session delivers them again.

    Raises:
        InputError: the file of reviews is damaged.
    """
    runs: list[dict[str, Any]] = []
    for run in lost:
        results = [f"{operation} {metric}" for operation, metric in run.results]
        runs.append({"partition": run.partition, "stack": run.stack, "run": run.name, "results": results})
    now = utc_now().replace(microsecond=0)
    reviews.add_plan_decision(system, {"suite": suite, "lost": runs, "by": by, "reason": reason, "date": now})


def _plan_problems(
    history: History, options: SessionOptions, plan: SessionPlan, deferred: Sequence[UnplannedRun]
) -> list[str]:
    """Problems of a plan that need a person: lost runs, and runs that too many sessions in succession deferred."""
    problems = []
    if plan.lost:
        command = f"iowatch review plan --system {options.system} --suite {options.suite}"
        count = format_count(len(plan.lost), "expected run")
        problems.append(f"{count} cannot be planned; `{command}` lists and accepts this")
    earlier = list(_earlier_sessions(history, options)) if deferred else []
    for run in deferred:
        number = 1 + _count_deferrals(earlier, run.key)
        if number >= _TOO_MANY_DEFERRALS:
            name = f"{run.stack} {run.name}"
            if plan.has_several_partitions:
                name = f"{run.partition} {name}"
            problems.append(f"{name} was deferred in {number} consecutive sessions: {run.reason}")
    return problems


def _count_deferrals(sessions: Iterable[SessionRow], key: RunKey) -> int:
    """Number of the newest sessions that deferred the run, without sessions whose choice excludes it."""
    count = 0
    for session in sessions:
        if not _choice_of(session).includes(key):
            continue
        if key not in {run.key for run in session.facts.deferred}:
            break
        count += 1
    return count
