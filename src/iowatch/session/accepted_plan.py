"""The accepted plan: what the sessions of a system and suite deliver until a person accepts less.

Each session stores what it expected and deferred; this is the memory. A result that is not planned any more (a library
disappeared from a stack, a stack or a case was removed) is *lost*: it stays expected, and therefore absent, in every
later session until `iowatch review plan` accepts the loss in `reference/reviews/<system>.yaml`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from iowatch.benchmarks.suites import suite_names
from iowatch.core import InputError, IowatchError, RunKey, UnplannedRun, format_count, utc_now
from iowatch.findings import format_day
from iowatch.reference import reviews
from iowatch.session.context import CaseSelection, SessionContext, make_context, select_cases
from iowatch.session.file_systems import examine_file_systems
from iowatch.session.options import SessionOptions
from iowatch.session.plan import SessionPlan, UnavailableCase, make_session_plan
from iowatch.site import Stack, discover_stacks, system_zone
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
    facts = {
        "stacks": tuple(sorted(context.site.features)),
        "deferred": tuple(deferred),
        "lost": plan.lost,
        "problems": tuple(_plan_problems(history, context.options, plan, deferred)),
    }
    stated: dict[str, Any] = {name: value for name, value in facts.items() if value or name == "stacks"}
    if choice != SessionChoice():
        stated["choice"] = choice
    return SessionFacts(**stated)


def session_choice(selection: CaseSelection, duplicates: Mapping[str, str]) -> SessionChoice:
    """What restricts a session; empty for the whole suite on all stacks.

    Cases that only repeat another one in a chosen scratch directory are not chosen.

    Args:
        duplicates: reasons by name of the runs that would only repeat another one.
    """
    options = selection.options
    repeated = duplicates if options.scratch else {}
    names = [case.run_name for case in selection.cases if case.run_name not in repeated]
    fields = {"stacks": sorted(options.stacks)}
    if set(names) != selection.suite_run_names:
        fields["runs"] = names
        fields["file_systems"] = sorted(options.file_systems)
    # Only what restricts is stored.
    return SessionChoice(**{name: tuple(values) for name, values in fields.items() if values})


def is_restricted(session: SessionRow) -> bool:
    """Whether only some stacks or cases were chosen for the session."""
    return session.facts.choice is not None


def _choice_of(session: SessionRow) -> SessionChoice:
    """What restricted a session; empty if nothing did."""
    return session.facts.choice or SessionChoice()


def loss_reasons(session: SessionRow) -> dict[RunKey, str]:
    """Reasons why results that the session expects cannot be delivered, by run."""
    return {run.key: run.reason for run in session.facts.lost}


def _earlier_sessions(history: History, options: SessionOptions) -> Iterator[SessionRow]:
    """Sessions of the same system and suite, newest first."""
    for session in history.sessions(options.system):
        if session.origin == "run" and session.suite == options.suite and not session.is_interleaved:
            yield session


def _remembered_results(history: History, selection: CaseSelection) -> dict[ExpectedResult, SessionRow]:
    """The memory: results that were expected or deferred, with the newest session whose choice includes them."""
    found: dict[ExpectedResult, SessionRow] = {}
    newer: list[SessionChoice] = []
    known = selection.known_run_names
    for session in _earlier_sessions(history, selection.options):
        choice = _choice_of(session)
        if choice not in newer:
            deferred = [item for run in session.facts.deferred for item in run.expected()]
            for item in (*history.expected(session.uuid), *deferred):
                # Retests are not planned, but added while a session runs; file systems that were chosen for one session
                # are expected only by the next one that chooses them.
                asked = not choice.file_systems or item.run_name in known
                if asked and "#" not in item.run_name and not any(later.includes(item.key) for later in newer):
                    found[item] = session
            if not choice.file_systems:
                newer.append(choice)
        if not is_restricted(session):
            break
    return found


def compare_with_memory(
    history: History,
    context: SessionContext,
    choice: SessionChoice,
    plan: SessionPlan,
    deferred: Sequence[UnplannedRun],
) -> tuple[SessionPlan, tuple[UnplannedRun, ...]]:
    """The plan with its lost runs, and the runs with results that no earlier session expected (none in the first one).

    Cases of a broken stack that no session expected are added to the unavailable ones.
    """
    memory = _remembered_results(history, context.selection)
    accepted = _accepted_losses(context.options)
    planned = dict.fromkeys([*plan.expected(), *(item for run in deferred for item in run.expected())])
    lost = [
        item
        for item, session in memory.items()
        if item not in planned and choice.includes(item.key) and accepted.get(item, 0) < session.started_at
    ]
    # What the suite asks for is expected from the first session on, even on a file system that is not mounted.
    lost += [item for one in plan.unavailable for item in one.expected if not (item in memory or item in accepted)]
    # A session with chosen stacks needs no others; to find stacks takes seconds.
    stacks = {} if context.options.stacks else {stack.name: stack for stack in discover_stacks(context.system.name)}
    reasons = _loss_reasons(history, context, plan, stacks, dict.fromkeys(item.key for item in lost))
    lost_names = {(name, stack) for _, stack, name in reasons}
    unavailable = (*plan.unavailable, *_cases_of_broken_stacks(context, stacks.values()))
    kept = tuple(one for one in unavailable if (one.name, one.stack) not in lost_names)
    added = [item for item in planned if item not in memory] if memory else []
    added_runs = _group_by_run(added, {item.key: "not expected by earlier sessions" for item in added})
    return SessionPlan(plan.runs, kept, _group_by_run(lost, reasons)), added_runs


def _cases_of_broken_stacks(context: SessionContext, stacks: Iterable[Stack]) -> Iterator[UnavailableCase]:
    for stack in (stack for stack in stacks if stack.status == "broken"):
        for case in context.cases:
            yield UnavailableCase(case.run_name, stack.name, f"the stack is broken: {stack.note}")


def _group_by_run(items: Iterable[ExpectedResult], reasons: Mapping[RunKey, str]) -> tuple[UnplannedRun, ...]:
    results: dict[RunKey, list[tuple[str, str]]] = {}
    for item in items:
        results.setdefault(item.key, []).append((item.operation, item.metric))
    return tuple(UnplannedRun(*key, tuple(found), reasons[key]) for key, found in results.items())


def _loss_reasons(
    history: History, context: SessionContext, plan: SessionPlan, stacks: Mapping[str, Stack], keys: Iterable[RunKey]
) -> dict[RunKey, str]:
    found, last_runs, zone = {}, None, system_zone(context.system.name)
    for key in keys:
        last_runs = history.last_run_times(context.system.name) if last_runs is None else last_runs
        when = f"last run on {format_day(last_runs[key], zone)}" if key in last_runs else "it never delivered a result"
        found[key] = f"{_loss_reason(context, plan, stacks, key)}; {when}"
    return found


def _loss_reason(context: SessionContext, plan: SessionPlan, stacks: Mapping[str, Stack], key: RunKey) -> str:
    """Reason why a run, or some of its results, are not planned any more."""
    partition, stack, name = key
    offered = next((place.stacks for place in context.site.partitions if place.name == partition), None)
    if name not in context.selection.known_run_names:
        return f"suite '{context.options.suite}' no longer contains the case"
    if stack not in context.site.features:
        known = stacks.get(stack)
        return f"the stack is {known.status}: {known.note}" if known else "the stack no longer exists"
    if offered is None or stack not in offered:
        return f"partition '{partition}' no longer {'exists' if offered is None else 'offers the stack'}"
    reasons = (one.reason for one in plan.unavailable if (one.name, one.stack) == (name, stack))
    return next(reasons, "the case no longer reports these results")


def _accepted_losses(options: SessionOptions) -> dict[ExpectedResult, int]:
    """Results whose loss is accepted, with the time of the decision (epoch seconds).

    A damaged file must not prevent the measurement: it accepts nothing, and the verdict reports it.
    """
    try:
        decisions = reviews.load_plan_decisions(options.system)
    except InputError as error:
        _LOG.warning("%s", error.message)
        return {}
    return {
        ExpectedResult(run.run, run.partition, run.stack, *result.rsplit(" ", 1)): int(decision.date.timestamp())
        for decision in sorted(decisions, key=lambda one: one.date)
        if decision.suite == options.suite
        for run in decision.lost
        for result in run.results
    }


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
    known = {session.suite for session in history.sessions(system) if session.origin == "run"}
    found = {}
    for name in [suite] if suite else sorted(known & {*suite_names()}):
        selection = select_cases(SessionOptions(system=system, suite=name))
        found[name] = [run for run in _current_losses(history, selection) if not stacks or run.stack in stacks]
    return {name: runs for name, runs in found.items() if runs}


def _current_losses(history: History, selection: CaseSelection) -> tuple[UnplannedRun, ...]:
    """Losses that are not accepted: of the last sessions, and of a session that would start now.

    Both count, because the environment of a nightly session may differ from the one of this command.
    """
    found = {run.key: run for run in _recorded_losses(history, selection)}
    try:
        context = make_context(selection)
        excluded = examine_file_systems(history, context)
        plan = make_session_plan(context.site, context.cases, (), context.limits, excluded)
        choice = session_choice(selection, excluded.duplicates)
        found |= {run.key: run for run in compare_with_memory(history, context, choice, plan, ())[0].lost}
    except IowatchError as error:
        _LOG.warning("Only losses of earlier sessions are known: %s", error.message)
    return tuple(found.values())


def _recorded_losses(history: History, selection: CaseSelection) -> Iterator[UnplannedRun]:
    memory, accepted = _remembered_results(history, selection), _accepted_losses(selection.options)
    for session in {session.id: session for session in memory.values()}.values():
        for run in session.facts.lost:
            newest = [item for item in run.expected() if memory.get(item) is session]
            if any(accepted.get(item, 0) < session.started_at for item in newest):
                yield run


def accept_losses(system: str, suite: str, lost: Iterable[UnplannedRun], reason: str, by: str) -> None:
    """Accept losses: later sessions do not expect these results, unless a session delivers them again.

    Raises:
        InputError: the file of reviews is damaged.
    """
    runs = [
        {"partition": one.partition, "stack": one.stack, "run": one.name, "results": [" ".join(r) for r in one.results]}
        for one in lost
    ]
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
            problems.append(f"{run.stack} {run.name} was deferred in {number} consecutive sessions: {run.reason}")
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
