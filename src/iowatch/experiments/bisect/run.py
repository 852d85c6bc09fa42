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
from iowatch.experiments.bisect.search import Bisection, BisectionAnswer, BisectionSettings, PairRequest
from iowatch.experiments.common.commits import Group
from iowatch.experiments.common.hybrids import HybridPart, HybridSource, recorded_hybrids
from iowatch.experiments.common.pairs import PairedResult, PairGains, make_pair_context, measure_pairs, read_pairs
from iowatch.findings import BISECT_ANSWER, BISECT_ATTRIBUTE, bisected_member, find_finding
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, request_allocation
from iowatch.session.interleaved import WarmUpError
from iowatch.session.options import SessionOptions
from iowatch.session.plan import PlannedRun
from iowatch.session.runner import lock_system
from iowatch.site import Stack, stack_from_json
from iowatch.site.stack import probe as stack_probe
from iowatch.statistics.interleaving import StopRule
from iowatch.store import History, SessionFacts

_LOG = logging.getLogger(__name__)

_SCREENING_PAIRS = 4
# Of the log ratio of a pair: with four pairs a spread that is small by chance must not decide.
_SMALLEST_SPREAD = 0.02
RecordPair = Callable[[PairGains], None]


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


def finding_search(history: History, name: str, options: BisectOptions) -> tuple[HybridSource, BisectOptions]:
    """The search for the part that caused a finding: its stacks as runs recorded them, its case that changed most.

    Args:
        name: ID of the finding, or a beginning of it.
        options: of the search; suite, stack, case and result are those of the finding.

    Raises:
        UsageError: unknown finding; the stacks do not differ, are no longer what was recorded, or cannot be exchanged.
    """
    finding = find_finding(history, name)
    found = bisected_member(history, finding)
    if found is None:
        raise UsageError(
            f"finding {finding.id}: the stacks before and after do not differ, as far as runs recorded them",
            hint=f"`iowatch findings show {finding.id}` lists what else differs; a new measurement of both sides is "
            "only possible for stacks.",
        )
    member, *runs = found
    where = [f"the stack of run {run.id}" for run in runs]
    good, bad = (stack_from_json(run.stack_document, text) for run, text in zip(runs, where, strict=True))
    suite, case = history.session(runs[1].session_uuid).suite, runs[1].name.partition("#")[0]
    operation = member.parameters.get("operation")
    chosen = replace(
        options, suite=suite, like=member.stack, cases=(case,), finding=finding.id, metric=member.metric,
        operation=str(operation) if operation else None,
    )  # fmt: skip
    ends = replace(good, name="before"), replace(bad, name="after")
    return recorded_hybrids(finding.system, *ends), chosen


@dataclass(frozen=True)
class BisectResult:
    """A search and its answer.

    Attributes:
        groups: parts (positions in `source.parts`) that move together; the answer counts groups.
        screening: (target, number of pairs, median log gain BAD / GOOD) of each result of the screening.
        pair_s: seconds per pair.
        pairs_left: estimate of the pairs until the answer; 0 if the search is complete.
        sessions: UUIDs, oldest first.
        skipped: hybrids that cannot be used, in words, with the reason.
    """

    options: BisectOptions
    source: StackSource
    groups: tuple[Group, ...]
    target: PairedResult
    screening: tuple[tuple[PairedResult, int, float], ...]
    answer: BisectionAnswer
    pair_s: float
    pairs_left: int
    sessions: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def group_parts(count: int, usable: Callable[[Group], bool]) -> tuple[Group, ...]:
    """Join each part that cannot be used alone with the first one that makes it usable, until none is left."""
    groups = [frozenset([part]) for part in range(count)]
    while True:
        joined = next((p for p in permutations(groups, 2) if not usable(p[0]) and usable(p[0] | p[1])), None)
        if joined is None:
            return tuple(sorted(groups, key=min))
        groups = [group for group in groups if group not in joined] + [joined[0] | joined[1]]


class BisectRun:
    """A search, from the pairs in the history to its answer or the end of its budget.

    Raises:
        UsageError: stacks that cannot be bisected, or that no case can run on; a budget that is too small.
    """

    def __init__(self, history: History, source: StackSource, options: BisectOptions) -> None:
        self.history, self.source, self.options = history, source, options
        self.site = reframe.load_site(source.system)
        self.known: dict[tuple[Group, Group], list[float]] = defaultdict(list)
        self.skipped: dict[str, None] = {}  # in the order in which they were tried
        for end, name in ((frozenset[int](), source.good), (self._everything, source.bad)):
            if (stack := source.stack(end)).status != "installed":
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
        described = [self.source.stack(end).identity() for end in (frozenset(), self._everything)]
        asked = replace(self.options, budget_s=0.0, seed=None)
        text = json.dumps([described, [str(part) for part in self.source.parts], repr(asked)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> BisectResult:
        """Measure until the answer is known or the budget used up."""
        request_allocation(self.ends, StopRule(budget_s=self.options.budget_s))
        with lock_system(self.history, self.ends.session.system):
            pass  # recovers the results of an interrupted search
        screening = self._screened()
        target = screening[0][0]
        planned = next(run for run in self.ends.plan_sides()["left"].runs if run.name == target.run)
        groups = self._groups(planned)
        bisection = self._new_bisection(groups, planned)
        self._read_known(target)
        self._use_known(bisection, groups)
        self._require_budget(bisection)
        while bisection.request is not None and self._left_s() > self._pair_s():
            self._measure(bisection, groups, target)
        left = bisection.pairs_left() if bisection.request is not None else 0
        bisection.stop()
        sessions = tuple(row.uuid for row in self._sessions())
        pair_s = self._pair_s()
        return BisectResult(
            self.options, self.source, groups, target, screening, bisection.answer(), pair_s, left, sessions,
            tuple(self.skipped),
        )  # fmt: skip

    def keep_answer(self, lines: Sequence[str]) -> None:
        """Store the answer with the newest session of the search, where `iowatch findings show` reads it."""
        self.history.add_facts(self._sessions()[-1].uuid, SessionFacts.from_document({BISECT_ANSWER: [*lines]}))

    def _groups(self, planned: PlannedRun) -> tuple[Group, ...]:
        """Parts that must move together; nothing is built to find them."""
        return group_parts(
            len(self.source.parts), lambda parts: self._fits(self.source.resolved(parts), parts, planned)
        )

    def _new_bisection(self, groups: Sequence[Group], planned: PlannedRun) -> Bisection:
        return Bisection(
            len(groups), lambda chosen: self._is_usable(_union(groups, chosen), planned), self.options.settings
        )

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
        if not self.options.cases:
            self.ends.plan_sides()
            return
        for stack in self.ends.stacks:
            missing = set(self._required(self.ends)) - set(self.ends.session.site.features.get(stack, ()))
            if stack in self.ends.session.site.features and missing:
                raise UsageError(
                    f"case {', '.join(self.options.cases)} cannot run on '{stack}': it does not provide "
                    f"{', '.join(sorted(missing))}",
                    hint="Choose a case that both stacks can run (`iowatch run --dry-run --stack …`).",
                )
        self.ends.plan_sides()

    @staticmethod
    def _required(context: AbContext) -> list[str]:
        return [feature for case in context.session.cases for feature in case.requires]

    def _is_usable(self, parts: Group, planned: PlannedRun) -> bool:
        return self._fits(self.source.stack(parts), parts, planned)

    def _fits(self, stack: Stack, parts: Group, planned: PlannedRun) -> bool:
        """Whether a hybrid is complete and has the features of the case; what is not is reported once."""
        missing = sorted({*planned.case.requires} - {*stack_probe.features_of_stack(stack)})
        if stack.status not in ("installed", "locked"):
            self._report_skipped(parts, stack.note or stack.status)
        elif missing:
            self._report_skipped(parts, f"it does not provide {', '.join(missing)}")
        else:
            return True
        return False

    def _report_skipped(self, parts: Group, reason: str) -> None:
        line = f"{self._describe(parts)}: {reason}"
        if line not in self.skipped:
            self.skipped[line] = None
            _LOG.info("skipped: %s", line)

    def _sessions(self) -> list[Any]:
        """Sessions of this search, oldest first."""
        rows = self.history.sessions(self.source.system)
        return [row for row in reversed(rows) if _of_search(row).get("id") == self.identity]

    def _seed(self) -> int:
        return int(np.random.default_rng(self.options.seed).integers(2**31))

    def _measure_session(self, context: AbContext, wanted: Callable[[], int], record: RecordPair, **of: object) -> None:
        document = {"id": self.identity, **({"finding": self.options.finding} if self.options.finding else {}), **of}
        budget_s = None if "screening" in of else self._left_s()
        measure_pairs(
            self.history, context, wanted, record, seed=self._seed(), budget_s=budget_s, best=True,
            attributes={BISECT_ATTRIBUTE: document},
        )  # fmt: skip

    # Screening

    def _screened(self) -> tuple[tuple[PairedResult, int, float], ...]:
        """The results of the whole difference, that which differs most for its noise first.

        If there is only one, nothing was selected by its value, and its pairs are also the first ones of the search.
        """
        found = self._read_screening()
        if not found:
            _LOG.info("screening: %s pairs of the whole difference", _SCREENING_PAIRS)
            pairs: list[PairGains] = []
            self._measure_session(self.ends, lambda: _SCREENING_PAIRS - len(pairs), pairs.append, screening=True)
            found = self._read_screening()
        if not found:
            raise MachineError(
                "the screening has no result on both sides in all its pairs",
                hint="`iowatch history show` of its session has the reasons.",
            )
        if len(found) == 1:
            self.known[frozenset(), self._everything] += next(iter(found.values()))
        ordered = sorted(found.items(), key=lambda item: -_difference_to_noise(item[1]))
        return tuple((target, len(gains), median(gains)) for target, gains in ordered)

    def _read_screening(self) -> dict[PairedResult, list[float]]:
        for row in self._sessions():
            if _of_search(row).get("screening"):
                gains: dict[PairedResult, list[float]] = defaultdict(list)
                for pair in read_pairs(self.history, row.uuid, best=True).values():
                    for target, gain in pair.items():
                        if self._is_asked(target):
                            gains[target].append(gain)
                if found := {target: each for target, each in gains.items() if len(each) >= _SCREENING_PAIRS - 1}:
                    return found
        return {}

    def _is_asked(self, target: PairedResult) -> bool:
        asked = self.options
        is_operation = asked.operation is None or target.case.parameters.get("operation") == asked.operation
        return is_operation and asked.metric in (None, target.metric)

    # Search

    def _read_known(self, target: PairedResult) -> None:
        """The pairs of an earlier start of this search."""
        count = 0
        for row in self._sessions():
            sides = _of_search(row)
            if "left" in sides:
                gains = [
                    pair[target] for pair in read_pairs(self.history, row.uuid, best=True).values() if target in pair
                ]
                self.known[frozenset(sides["left"]), frozenset(sides["right"])] += gains
                count += len(gains)
        if count:
            _LOG.info("%s of an earlier start of this search in the history", format_count(count, "pair"))

    def _use_known(self, bisection: Bisection, groups: Sequence[Group]) -> None:
        """Record the pairs in the order in which the search requests them; the search depends on nothing else."""
        while bisection.request is not None and (gains := self.known[_stacks_of(groups, bisection.request)]):
            bisection.record(gains.pop(0))

    def _measure(self, bisection: Bisection, groups: Sequence[Group], target: PairedResult) -> None:
        """One test, or a part of it: pairs until the search requests other stacks, or the budget is used up."""
        request = bisection.request
        assert request is not None
        left, right = _stacks_of(groups, request)
        context = self._context(left, right, [target.run])
        new, old = self._describe(right), self._describe(left)
        _LOG.info("%s is %s; against %s, %s", context.stacks[1], new, context.stacks[0], old)

        def record(pair: PairGains) -> None:
            if target in pair:
                self.known[left, right].append(pair[target])
                self._use_known(bisection, groups)

        def wanted() -> int:
            return bisection.pairs_needed() if bisection.request == request else 0

        try:
            self._measure_session(context, wanted, record, left=sorted(left), right=sorted(right))
        except WarmUpError as error:
            if bisection.is_end(request.right):
                raise
            self._report_skipped(right, error.message)
            bisection.skip()

    def _describe(self, parts: Group) -> str:
        if parts in (frozenset(), self._everything):
            return "BAD" if parts else "GOOD"
        named = [str(self.source.parts[part]) for part in sorted(parts)]
        return "GOOD with " + "; ".join(named if len(named) <= 8 else [f"{len(named)} parts up to {named[-1]}"])

    # Budget

    def _left_s(self) -> float:
        return self.options.budget_s - (time.monotonic() - self.started)

    def _pair_s(self) -> float:
        """Seconds per pair: median of the sessions of this search, from their first run to the last one's start."""
        found = []
        for row in self._sessions():
            starts = [run.started_at for run in self.history.runs(row.uuid)]
            if len(starts) > 2:
                found.append(2 * (max(starts) - min(starts)) / (len(starts) - 1))
        return median(found) if found else 0.0

    def _require_budget(self, bisection: Bisection) -> None:
        if bisection.request is None:
            return
        least, probable = bisection.pairs_left(least=True), bisection.pairs_left()
        needed_s, probable_s = ((pairs + bisection.planned_tests()) * self._pair_s() for pairs in (least, probable))
        left_s = max(0.0, self._left_s())
        if needed_s > left_s:
            raise UsageError(
                f"the budget is too small: {format_count(bisection.parts, 'part')} need at least {least} pairs, about "
                f"{needed_s / 60:.0f} minutes; {left_s / 60:.0f} are left",
                hint=f"--budget {needed_s / 40:.0f}, or --case with a shorter case. What was measured is kept.",
            )
        if probable_s > left_s:
            _LOG.warning(
                "with the noise so far about %s pairs (%.0f minutes) are needed; %.0f are left",
                probable,
                probable_s / 60,
                left_s / 60,
            )


def _difference_to_noise(gains: Sequence[float]) -> float:
    return abs(fmean(gains)) / (stdev(gains) + _SMALLEST_SPREAD)


def _of_search(row: Any) -> Mapping[str, Any]:
    """The attribute `bisect` of a session, or nothing."""
    found = row.facts.document.get(BISECT_ATTRIBUTE)
    return found if isinstance(found, Mapping) else {}


def _union(groups: Sequence[Group], chosen: frozenset[int]) -> Group:
    return frozenset(part for number in chosen for part in groups[number])


def _stacks_of(groups: Sequence[Group], request: PairRequest) -> tuple[Group, Group]:
    return _union(groups, request.left), _union(groups, request.right)
