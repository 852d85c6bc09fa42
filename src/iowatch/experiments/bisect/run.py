"""`iowatch bisect`: which parts of two stacks of modules cause their difference (docs/bisect.md).

The search (iowatch.experiments.bisect.search) requests pairs; each of its tests is one session of `iowatch run --ab`,
whose attribute `bisect` names the search and both hybrids. An interrupted search goes on from the pairs in the history.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Protocol

import numpy as np

from iowatch.core import MachineError, UsageError, format_count
from iowatch.experiments.bisect import STACK_EXPERIMENT
from iowatch.experiments.bisect.search import Bisection, BisectionAnswer, BisectionSettings, PairRequest
from iowatch.experiments.common.commits import Group
from iowatch.experiments.common.hybrids import HybridPart, HybridSource, recorded_hybrids
from iowatch.experiments.common.pairs import (
    PairDemand,
    PairedResult,
    PairOptions,
    PairRuns,
    log_gains,
    make_pair_context,
    measure_pairs,
    read_pairs,
)
from iowatch.findings import find_finding, find_stack_exchange, require_steps
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, request_allocation
from iowatch.session.interleaved import WarmUpError
from iowatch.session.options import SessionOptions
from iowatch.session.plan import PlannedRun
from iowatch.session.runner import lock_system
from iowatch.site import Stack, stack_from_json
from iowatch.site.stack import probe as stack_probe
from iowatch.statistics.interleaving import StopRule
from iowatch.store import ExperimentFacts, History, RunRow, SessionFacts, SessionRow

_LOG = logging.getLogger(__name__)

# Key of what a session records of the search: its `id`, and `screening` or the parts of both hybrids.
_SEARCH = "bisect"
_SCREENING_PAIRS = 4
# Of the log ratio of a pair: with four pairs a spread that is small by chance must not decide.
_SMALLEST_SPREAD = 0.02
# A hybrid with more parts is named by their number.
_MOST_NAMED_PARTS = 8


class StackSource(Protocol):
    """Two stacks, the parts in which they differ, and stacks between them, as `HybridSource` has them."""

    @property
    def system(self) -> str: ...
    @property
    def good(self) -> str: ...
    @property
    def bad(self) -> str: ...
    @property
    def parts(self) -> tuple[HybridPart, ...]: ...
    def stack(self, chosen: Group, /) -> Stack: ...
    def resolved(self, chosen: Group, /) -> Stack: ...


@dataclass(frozen=True)
class BisectOptions:
    """What a search is asked for.

    Attributes:
        like: a stack in whose partitions hybrids run.
        benchmarks, cases: only these; empty means all of the suite.
        operation, metric: the result on which the search is decided, or None for the one that differs most.
        finding: ID of the finding that is searched, or None.
        budget_s: seconds until the search ends; what was measured earlier does not count.
        seed: of the order of turns, or None.
    """

    suite: str
    like: str
    benchmarks: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    scratch: Path | None = None
    budget_s: float = 3600.0
    settings: BisectionSettings = field(default_factory=BisectionSettings)
    seed: int | None = None
    operation: str | None = None
    metric: str | None = None
    finding: str | None = None


@dataclass(frozen=True)
class FindingSearch:
    """What a search for the cause of a finding compares, and what it is asked for."""

    source: HybridSource
    options: BisectOptions


def finding_search(history: History, name: str, options: BisectOptions) -> FindingSearch:
    """The search for the part that caused a finding: its stacks as runs recorded them, its case that changed most.

    Args:
        name: ID of the finding, or a beginning of it.
        options: of the search; suite, stack, case and result are those of the finding.

    Raises:
        UsageError: unknown finding; the stacks do not differ, are no longer what was recorded, or cannot be exchanged.
    """
    finding = find_finding(history, name)
    require_steps(finding)
    exchange = find_stack_exchange(history, finding)
    if exchange is None:
        raise UsageError(
            f"finding {finding.id}: the stacks before and after do not differ, as far as runs recorded them",
            hint=f"`iowatch findings show {finding.id}` lists what else differs; a new measurement of both sides is "
            "only possible for stacks.",
        )
    # The search is decided on the result that changed, in the case of the run.
    member = exchange.member
    after = exchange.after
    operation = member.parameters.get("operation")
    search_options = replace(
        options,
        suite=history.session(after.session_uuid).suite,
        like=member.stack,
        cases=(after.name.partition("#")[0],),
        finding=finding.id,
        metric=member.metric,
        operation=str(operation) if operation else None,
    )
    good = _recorded_stack(exchange.before, "before")
    bad = _recorded_stack(after, "after")
    return FindingSearch(recorded_hybrids(finding.system, good, bad), search_options)


def _recorded_stack(run: RunRow, name: str) -> Stack:
    """The stack that a run recorded, under a name for reports."""
    stack = stack_from_json(run.stack_document, f"the stack of run {run.id}")
    return replace(stack, name=name)


@dataclass(frozen=True)
class ScreenedResult:
    """A result of the whole difference.

    Attributes:
        pairs: their number.
        log_gain: median of ln(BAD / GOOD) of the performance.
    """

    result: PairedResult
    pairs: int
    log_gain: float


@dataclass(frozen=True)
class BisectResult:
    """A search and its answer.

    Attributes:
        groups: parts (positions in `source.parts`) that move together; the answer counts groups.
        target: the result on which the search is decided.
        screening: results of the screening, that which differs most for its noise first.
        pair_s: seconds per pair.
        pairs_left: estimate of the pairs until the answer; 0 if the search is complete.
        sessions: UUIDs, oldest first.
        skipped: hybrids that cannot be used, in words, with the reason.
    """

    options: BisectOptions
    source: StackSource
    groups: tuple[Group, ...]
    target: PairedResult
    screening: tuple[ScreenedResult, ...]
    answer: BisectionAnswer
    pair_s: float
    pairs_left: int
    sessions: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def group_parts(count: int, usable: Callable[[Group], bool]) -> tuple[Group, ...]:
    """Join each part that cannot be used alone with the first one that makes it usable, until none is left."""
    groups = [frozenset([part]) for part in range(count)]
    while True:
        pair = _pair_to_join(groups, usable)
        if pair is None:
            return tuple(sorted(groups, key=min))
        first, second = pair
        others = [group for group in groups if group not in pair]
        groups = [*others, first | second]


def _pair_to_join(groups: Sequence[Group], usable: Callable[[Group], bool]) -> tuple[Group, Group] | None:
    """A group that cannot be used, and one that makes it usable; None if there is no such pair."""
    for first, second in permutations(groups, 2):
        if not usable(first) and usable(first | second):
            return first, second
    return None


class BisectRun:
    """A search, from the pairs in the history to its answer or the end of its budget.

    Raises:
        UsageError: stacks that cannot be bisected, or that no case can run on; a budget that is too small.
    """

    def __init__(self, history: History, source: StackSource, options: BisectOptions) -> None:
        self.history, self.source, self.options = history, source, options
        self.site = reframe.load_site(source.system)
        # Log gains of pairs that the search has not requested yet, by parts of the left and the right hybrid.
        self.waiting_gains: dict[tuple[Group, Group], list[float]] = defaultdict(list)
        self.skipped: dict[str, None] = {}  # in the order in which they were tried
        for end, name in ((frozenset[int](), source.good), (self._everything, source.bad)):
            stack = source.stack(end)
            if stack.status != "installed":
                raise UsageError(f"{name} cannot be measured: {stack.note}", hint="Choose other ends of the search.")
        self.ends = self._context(frozenset(), self._everything, options.cases)
        self._refuse_one_sided_cases()
        self.started = time.monotonic()

    @property
    def _everything(self) -> Group:
        return frozenset(range(len(self.source.parts)))

    @cached_property
    def identity(self) -> str:
        """Equal for searches whose pairs may be joined: the same stacks, parts, cases and thresholds."""
        stacks = [self.source.stack(end).identity() for end in (frozenset(), self._everything)]
        parts = [str(part) for part in self.source.parts]
        # Another budget or order of execution is the same search.
        options = replace(self.options, budget_s=0.0, seed=None)
        text = json.dumps([stacks, parts, repr(options)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> BisectResult:
        """Measure until the answer is known or the budget used up."""
        request_allocation(self.ends, StopRule(budget_s=self.options.budget_s))
        with lock_system(self.history, self.ends.session.system):
            pass  # recovers the results of an interrupted search
        # The screening chooses the result on which the search is decided.
        screening = self._screen()
        target = screening[0].result
        planned_runs = self.ends.plan_sides()["left"].runs
        target_run = next(run for run in planned_runs if run.name == target.run)
        groups = self._groups(target_run)
        bisection = self._new_bisection(groups, target_run)
        # An interrupted search goes on from the pairs in the history.
        self._read_earlier_pairs(target)
        self._record_waiting(bisection, groups)
        self._require_budget(bisection)
        while bisection.request is not None and self._left_s() > self._pair_s():
            self._measure(bisection, groups, target)
        # What is still open is reported with the pairs that it needs.
        pairs_left = 0
        if bisection.request is not None:
            pairs_left = bisection.pairs_left()
        bisection.stop()
        return BisectResult(
            options=self.options,
            source=self.source,
            groups=groups,
            target=target,
            screening=screening,
            answer=bisection.answer(),
            pair_s=self._pair_s(),
            pairs_left=pairs_left,
            sessions=tuple(session.uuid for session in self._sessions()),
            skipped=tuple(self.skipped),
        )

    def keep_answer(self, lines: Sequence[str]) -> None:
        """Store the answer with the newest session of the search, where `iowatch findings show` reads it."""
        answered = self._experiment().model_copy(update={"answer": tuple(lines)})
        self.history.add_facts(self._sessions()[-1].uuid, SessionFacts(experiment=answered))

    def _experiment(self) -> ExperimentFacts:
        """What each session of this search records of it, for the pages and the evidence of the finding."""
        finding, title = self.options.finding, STACK_EXPERIMENT.title
        if finding is None:
            return ExperimentFacts(title=title, command=f"iowatch {STACK_EXPERIMENT.name}")
        return ExperimentFacts(title=title, command=STACK_EXPERIMENT.command(finding), finding=finding)

    def _groups(self, planned: PlannedRun) -> tuple[Group, ...]:
        """Parts that must move together; nothing is built to find them."""

        def fits(parts: Group) -> bool:
            return self._fits(self.source.resolved(parts), parts, planned)

        return group_parts(len(self.source.parts), fits)

    def _new_bisection(self, groups: Sequence[Group], planned: PlannedRun) -> Bisection:
        def is_usable(numbers: frozenset[int]) -> bool:
            return self._is_usable(_union(groups, numbers), planned)

        return Bisection(len(groups), is_usable, self.options.settings)

    # Sessions

    def _context(self, left: Group, right: Group, cases: Sequence[str]) -> AbContext:
        stacks = self.source.stack(left), self.source.stack(right)
        options = SessionOptions(
            system=self.source.system,
            suite=self.options.suite,
            benchmarks=self.options.benchmarks,
            case_names=cases,
            scratch=self.options.scratch,
        )
        return make_pair_context(options, stacks, self.options.like, self.site)

    def _refuse_one_sided_cases(self) -> None:
        """A case that the user named must run on both sides."""
        if self.options.cases:
            self._require_features()
        self.ends.plan_sides()  # refuses what no stack can run

    def _require_features(self) -> None:
        """Require that both stacks provide what the cases need.

        Raises:
            UsageError: one does not; names what it lacks.
        """
        features = self.ends.session.site.features
        for stack in self.ends.stacks:
            # A stack that the system does not have is refused by the plan.
            if stack not in features:
                continue
            missing: set[str] = set()
            for case in self.ends.session.cases:
                missing.update(case.unmet_requirements(features[stack]))
            if missing:
                raise UsageError(
                    f"case {', '.join(self.options.cases)} cannot run on '{stack}': it does not provide "
                    f"{', '.join(sorted(missing))}",
                    hint="Choose a case that both stacks can run (`iowatch run --dry-run --stack …`).",
                )

    def _is_usable(self, parts: Group, planned: PlannedRun) -> bool:
        return self._fits(self.source.stack(parts), parts, planned)

    def _fits(self, stack: Stack, parts: Group, planned: PlannedRun) -> bool:
        """Whether a hybrid is complete and has the features of the case; what is not is reported once."""
        if stack.status not in ("installed", "locked"):
            self._report_skipped(parts, stack.note or stack.status)
            return False
        missing = planned.case.unmet_requirements(stack_probe.features_of_stack(stack))
        if missing:
            self._report_skipped(parts, f"it does not provide {', '.join(missing)}")
            return False
        return True

    def _report_skipped(self, parts: Group, reason: str) -> None:
        line = f"{self._describe(parts)}: {reason}"
        if line not in self.skipped:
            self.skipped[line] = None
            _LOG.info("skipped: %s", line)

    def _sessions(self) -> list[SessionRow]:
        """Sessions of this search, oldest first."""
        sessions = self.history.sessions(self.source.system)
        return [session for session in reversed(sessions) if _search_facts(session).get("id") == self.identity]

    def _seed(self) -> int:
        return int(np.random.default_rng(self.options.seed).integers(2**31))

    def _measure_session(self, context: AbContext, demand: PairDemand, **facts: object) -> None:
        """Measure pairs in one session.

        Args:
            facts: of the session, besides the search to which it belongs.
        """
        attributes = {
            _SEARCH: {"id": self.identity, **facts},
            "experiment": self._experiment().model_dump(mode="json", exclude_defaults=True),
        }
        # The screening has few pairs, and without all of them nothing can be searched.
        budget_s = None if "screening" in facts else self._left_s()
        measure_pairs(self.history, context, demand, PairOptions(self._seed(), attributes, budget_s))

    # Screening

    def _screen(self) -> tuple[ScreenedResult, ...]:
        """The results of the whole difference, that which differs most for its noise first.

        If there is only one, nothing was selected by its value, and its pairs are also the first ones of the search.
        """
        gains_by_result = self._read_screening()
        if not gains_by_result:
            self._measure_screening()
            gains_by_result = self._read_screening()
        if not gains_by_result:
            raise MachineError(
                "the screening has no result on both sides in all its pairs",
                hint="`iowatch history show` of its session has the reasons.",
            )
        if len(gains_by_result) == 1:
            (gains,) = gains_by_result.values()
            self.waiting_gains[frozenset(), self._everything] += gains
        clearest_first = sorted(gains_by_result, key=lambda result: -_difference_to_noise(gains_by_result[result]))
        screened: list[ScreenedResult] = []
        for result in clearest_first:
            gains = gains_by_result[result]
            screened.append(ScreenedResult(result, len(gains), median(gains)))
        return tuple(screened)

    def _measure_screening(self) -> None:
        """Measure some pairs of the whole difference, with all cases; the session stores them (`_read_screening`)."""
        _LOG.info("screening: %s pairs of the whole difference", _SCREENING_PAIRS)
        measured: list[PairRuns] = []  # only counted here

        def pairs_needed() -> int:
            return _SCREENING_PAIRS - len(measured)

        self._measure_session(self.ends, PairDemand(pairs_needed, measured.append), screening=True)

    def _read_screening(self) -> dict[PairedResult, list[float]]:
        """The log gains of the first screening with a usable result, by result; empty without one."""
        for session in self._sessions():
            if not _search_facts(session).get("screening"):
                continue
            gains_by_result: dict[PairedResult, list[float]] = defaultdict(list)
            for pair_gains in read_pairs(self.history, session.uuid, best=True).values():
                for result, gain in pair_gains.items():
                    if self._is_asked(result):
                        gains_by_result[result].append(gain)
            # One pair may have failed.
            fewest_pairs = _SCREENING_PAIRS - 1
            usable = {result: gains for result, gains in gains_by_result.items() if len(gains) >= fewest_pairs}
            if usable:
                return usable
        return {}

    def _is_asked(self, result: PairedResult) -> bool:
        """Whether the search may be decided on a result."""
        operation, metric = self.options.operation, self.options.metric
        if operation is not None and result.case.parameters.get("operation") != operation:
            return False
        return metric is None or result.metric == metric

    # Search

    def _read_earlier_pairs(self, target: PairedResult) -> None:
        """The pairs of an earlier start of this search."""
        count = 0
        for session in self._sessions():
            facts = _search_facts(session)
            if "left" not in facts:  # the screening
                continue
            pairs = read_pairs(self.history, session.uuid, best=True).values()
            gains = [pair[target] for pair in pairs if target in pair]
            self.waiting_gains[frozenset(facts["left"]), frozenset(facts["right"])] += gains
            count += len(gains)
        if count:
            _LOG.info("%s of an earlier start of this search in the history", format_count(count, "pair"))

    def _record_waiting(self, bisection: Bisection, groups: Sequence[Group]) -> None:
        """Record the pairs in the order in which the search requests them; the search depends on nothing else."""
        while bisection.request is not None:
            gains = self.waiting_gains[_stacks_of(groups, bisection.request)]
            if not gains:
                return
            bisection.record(gains.pop(0))

    def _measure(self, bisection: Bisection, groups: Sequence[Group], target: PairedResult) -> None:
        """One test, or a part of it: pairs until the search requests other stacks, or the budget is used up."""
        request = bisection.request
        assert request is not None
        left, right = _stacks_of(groups, request)
        context = self._context(left, right, [target.run])
        left_name, right_name = context.stacks
        _LOG.info("%s is %s; against %s, %s", right_name, self._describe(right), left_name, self._describe(left))

        def record(runs: PairRuns) -> None:
            gains = log_gains(runs, best=True)
            if target in gains:
                self.waiting_gains[left, right].append(gains[target])
                self._record_waiting(bisection, groups)

        def pairs_needed() -> int:
            # After its last pair the search requests another one.
            return bisection.pairs_needed() if bisection.request == request else 0

        try:
            demand = PairDemand(pairs_needed, record)
            self._measure_session(context, demand, left=sorted(left), right=sorted(right))
        except WarmUpError as error:
            # Without GOOD or BAD there is nothing to search; a hybrid that does not run is left out.
            if bisection.is_end(request.right):
                raise
            self._report_skipped(right, error.message)
            bisection.skip()

    def _describe(self, parts: Group) -> str:
        if not parts:
            return "GOOD"
        if parts == self._everything:
            return "BAD"
        names = [str(self.source.parts[part]) for part in sorted(parts)]
        if len(names) > _MOST_NAMED_PARTS:
            return f"GOOD with {len(names)} parts up to {names[-1]}"
        return f"GOOD with {'; '.join(names)}"

    # Budget

    def _left_s(self) -> float:
        return self.options.budget_s - (time.monotonic() - self.started)

    def _pair_s(self) -> float:
        """Seconds per pair: median of the sessions of this search, from their first run to the last one's start."""
        seconds: list[float] = []
        for session in self._sessions():
            starts = [run.started_at for run in self.history.runs(session.uuid)]
            if len(starts) > 2:
                run_s = (max(starts) - min(starts)) / (len(starts) - 1)
                seconds.append(2 * run_s)
        return median(seconds) if seconds else 0.0

    def _require_budget(self, bisection: Bisection) -> None:
        """Require that the budget is enough without noise; warn if it is probably not enough with noise.

        Raises:
            UsageError: it is too small; names the budget that is enough.
        """
        if bisection.request is None:
            return
        # Each test starts with a warm-up of both stacks.
        warm_ups = bisection.planned_tests()
        pair_s = self._pair_s()
        fewest_pairs = bisection.pairs_left(without_noise=True)
        fewest_s = (fewest_pairs + warm_ups) * pair_s
        left_s = max(0.0, self._left_s())
        if fewest_s > left_s:
            raise UsageError(
                f"the budget is too small: {format_count(bisection.parts, 'part')} need at least {fewest_pairs} pairs, "
                f"about {fewest_s / 60:.0f} minutes; {left_s / 60:.0f} are left",
                hint=f"--budget {fewest_s / 40:.0f}, or --case with a shorter case. What was measured is kept.",
            )
        probable_pairs = bisection.pairs_left()
        probable_s = (probable_pairs + warm_ups) * pair_s
        if probable_s > left_s:
            _LOG.warning(
                "with the noise so far about %s pairs (%.0f minutes) are needed; %.0f are left",
                probable_pairs,
                probable_s / 60,
                left_s / 60,
            )


def _difference_to_noise(gains: Sequence[float]) -> float:
    return abs(fmean(gains)) / (stdev(gains) + _SMALLEST_SPREAD)


def _search_facts(session: SessionRow) -> Mapping[str, Any]:
    """The attribute `bisect` of a session, or nothing."""
    facts = session.facts.document.get(_SEARCH)
    return facts if isinstance(facts, Mapping) else {}


def _union(groups: Sequence[Group], numbers: frozenset[int]) -> Group:
    """The parts of the groups with these numbers."""
    return frozenset[int]().union(*(groups[number] for number in numbers))


def _stacks_of(groups: Sequence[Group], request: PairRequest) -> tuple[Group, Group]:
    return _union(groups, request.left), _union(groups, request.right)
