"""`iowatch bisect`: which parts of two stacks of modules cause their difference (docs/bisect.md).

The search (iowatch.stats.bisection) requests pairs; each of its tests is one session of `iowatch run --ab`, whose
attribute `bisect` names the search and both hybrids. An interrupted search goes on from the pairs in the history.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from iowatch.core import METRICS, Case, MachineError, UsageError, format_count, headline_metrics, write_atomically
from iowatch.session import reframe, session
from iowatch.session.ab_run import AbContext, RunPlacement, WarmUpError, place_in_allocation, request_allocation, run_ab
from iowatch.session.plan import PlannedRun
from iowatch.site import (
    HYBRID_PREFIX,
    HybridSource,
    Stack,
    compare_for_hybrids,
    current_allocation,
    stack_directory,
    write_stack_files,
)
from iowatch.stats import AbSchedule, AbTurn, Bisection, BisectionAnswer, BisectionSettings, PairRequest, StopRule
from iowatch.store import History, ResultFilter

_SCREENING_PAIRS = 4
# Of the log ratio of a pair: with four pairs a spread that is small by chance must not decide.
_SMALLEST_SPREAD = 0.02
_MAX_FAULTS = 3
_ATTRIBUTE = "bisect"
Group = frozenset[int]


@dataclass(frozen=True)
class BisectTarget:
    """The result on which a search is decided; `run` is the name of the planned run."""

    run: str
    case: Case
    metric: str

    def log_gain(self, left: Sequence[float], right: Sequence[float]) -> float:
        """ln of the gain right / left of the medians of two runs: below 0 the right is slower."""
        return METRICS[self.metric].log_gain(median(right) / median(left))


@dataclass(frozen=True)
class BisectOptions:
    """What a search is asked for.

    Attributes:
        benchmarks, cases: only these; empty means all of the suite.
        budget_s: seconds until the search ends; what was measured earlier does not count.
        seed: of the order of turns, or None.
    """

    system: str
    suite: str
    good: str
    bad: str
    benchmarks: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    scratch: Path | None = None
    budget_s: float = 3600.0
    settings: BisectionSettings = field(default_factory=BisectionSettings)
    seed: int | None = None


@dataclass(frozen=True)
class BisectResult:
    """A search and its answer.

    Attributes:
        groups: parts (positions in `source.parts`) that move together; the answer counts groups.
        screening: (target, number of pairs, median log gain BAD / GOOD) of each result of the screening.
        pair_s: seconds per pair.
        pairs_left: estimate of the pairs until the answer; 0 if the search is complete.
        sessions: UUIDs, oldest first.
    """

    options: BisectOptions
    source: HybridSource
    groups: tuple[Group, ...]
    target: BisectTarget
    screening: tuple[tuple[BisectTarget, int, float], ...]
    answer: BisectionAnswer
    pair_s: float
    pairs_left: int
    sessions: tuple[str, ...]


@dataclass
class HybridContext(AbContext):
    """Context of an A/B run in which stacks may be hybrids, which no folder of the system contains.

    Attributes:
        hybrids: both sides.
        like: a stack of the system in whose partitions the hybrids run.
    """

    hybrids: tuple[Stack, ...] = ()
    like: str = ""

    @cached_property
    def placement(self) -> RunPlacement:
        site = reframe.load_site(self.system_name)
        made = [stack for stack in self.hybrids if stack.name.startswith(HYBRID_PREFIX)]
        return place_in_allocation(_site_with(site, self.like, made), current_allocation())


_CONFIGURATION = """import json

import iowatch.site.reframe_config  # its launchers

site_configuration = json.loads({!r})
"""


def _site_with(site: reframe.ReframeSite, like: str, hybrids: Sequence[Stack]) -> reframe.ReframeSite:
    """The site with the hybrids wherever `like` is.

    Its ReFrame configuration is written as data, once: that of the system describes all stacks in each turn again.
    """
    from iowatch.site import reframe_config  # ReFrame takes 0.7 s to import

    files = [str(write_stack_files(stack) / "stack.json") for stack in hybrids]
    found = reframe_config.configuration_with_stacks(str(site.configuration), site.system, like, files)
    text = _CONFIGURATION.format(json.dumps(found))
    path = (
        stack_directory(site.system, f"{HYBRID_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:8]}") / "reframe.py"
    )
    write_atomically(path, text)
    names = tuple(stack.name for stack in hybrids)
    partitions = (replace(p, stacks=p.stacks + names) if like in p.stacks else p for p in site.partitions)
    features = {stack.name: frozenset(reframe_config.reframe_environment(stack)["features"]) for stack in hybrids}
    return replace(site, configuration=path, partitions=tuple(partitions), features={**site.features, **features})


class _ScreeningSchedule(AbSchedule):
    """A few pairs, of which no interval is computed."""

    def half_widths(self) -> dict[str, float]:
        return {}


class _SearchSchedule(_ScreeningSchedule):
    """Pairs of one test: as long as the search requests the same two stacks, each in an order that a coin decides."""

    def __init__(self, seed: int, budget_s: float, go_on: Callable[[], bool], record: Callable[[_PairSamples], bool]):
        super().__init__(StopRule(budget_s=budget_s), seed)
        self.go_on, self.record_pair = go_on, record
        self._pair: dict[str, _CaseSamples] = {}
        self._faults = 0

    def turns(self) -> Iterator[AbTurn]:
        rng = np.random.default_rng(self.seed)
        yield from (AbTurn(0, side) for side in self.random_block(rng))
        pair = 0
        while self.go_on():
            if self._stop(pair) is not None:
                self.stopped = "budget"
                return
            pair += 1
            self._pair = {}
            yield from (AbTurn(pair, side) for side in self.random_block(rng))
            if self.record_pair(self._pair):
                self._faults = 0
            elif (faults := self._faults + 1) >= _MAX_FAULTS:
                raise MachineError(
                    f"{format_count(faults, 'consecutive pair')} without a result on both sides",
                    hint="`iowatch history list` names the session; `iowatch history show` has the reasons.",
                )
            else:
                self._faults = faults
        self.stopped = "decided"

    def record(self, turn: AbTurn, samples: Mapping[str, Sequence[float]], seconds: float) -> None:
        self._seconds.append(seconds)
        self._pair[turn.side] = samples


_CaseSamples = Mapping[str, Sequence[float]]
_PairSamples = Mapping[str, _CaseSamples]


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

    def __init__(self, history: History, options: BisectOptions, report_message: session.MessageCallback) -> None:
        self.history, self.options, self.report_message = history, options, report_message
        self.source = compare_for_hybrids(options.system, options.good, options.bad)
        self.ends = self._context(frozenset(), self._everything, options.cases)
        self._refuse_one_sided_cases()
        self.started = time.monotonic()

    @property
    def _everything(self) -> Group:
        return frozenset(range(len(self.source.parts)))

    @cached_property
    def identity(self) -> str:
        """Equal for searches whose pairs may be joined: the same stacks, parts, cases and thresholds."""
        described = [self.source.stack(end).to_json() for end in (frozenset(), self._everything)]
        asked = replace(self.options, budget_s=0.0, seed=None)
        text = json.dumps([described, [str(part) for part in self.source.parts], repr(asked)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> BisectResult:
        """Measure until the answer is known or the budget used up."""
        request_allocation(self.ends, StopRule(budget_s=self.options.budget_s))
        with self.ends.system_lock(self.history):
            pass  # recovers the results of an interrupted search
        screening = self._screened()
        target = screening[0][0]
        planned = next(run for run in self.ends.plans()["left"].runs if run.name == target.run)
        groups = group_parts(len(self.source.parts), lambda parts: self._is_usable(parts, planned))
        bisection = Bisection(
            len(groups), lambda chosen: self._is_usable(_union(groups, chosen), planned), self.options.settings
        )
        self._repeat_known(bisection, groups, target)
        self._require_budget(bisection)
        while bisection.request is not None and self._left_s() > self._pair_s():
            self._measure(bisection, groups, target)
        left = bisection.pairs_left() if bisection.request is not None else 0
        bisection.stop()
        sessions = tuple(row.uuid for row in self._sessions())
        pair_s = self._pair_s()
        return BisectResult(
            self.options, self.source, groups, target, screening, bisection.answer(), pair_s, left, sessions
        )

    # Sessions

    def _context(self, left: Group, right: Group, cases: Sequence[str]) -> HybridContext:
        stacks = self.source.stack(left), self.source.stack(right)
        options = self.options
        return HybridContext(
            options.system, options.suite, [stack.name for stack in stacks], options.benchmarks, options.scratch, None,
            self.report_message, None, cases, hybrids=stacks, like=options.good,
        )  # fmt: skip

    def _refuse_one_sided_cases(self) -> None:
        """A case that the user named must run on both sides."""
        if not self.options.cases:
            self.ends.plans()
            return
        for stack in self.ends.stacks:
            missing = set(self._required(self.ends)) - set(self.ends.site.features.get(stack, ()))
            if stack in self.ends.site.features and missing:
                raise UsageError(
                    f"case {', '.join(self.options.cases)} cannot run on '{stack}': it does not provide "
                    f"{', '.join(sorted(missing))}",
                    hint="Choose a case that both stacks can run (`iowatch run --dry-run --stack …`).",
                )
        self.ends.plans()

    @staticmethod
    def _required(context: HybridContext) -> list[str]:
        return [feature for case in context.cases for feature in case.requires]

    def _is_usable(self, parts: Group, planned: PlannedRun) -> bool:
        """Whether the hybrid is complete and has the features of the case."""
        stack = self.source.stack(parts)
        features = {"mpi", *(["romio"] if stack.mpi_io == "ROMIO" else []), *stack.features}
        return stack.status == "installed" and set(planned.case.requires) <= features

    def _sessions(self) -> list[Any]:
        """Sessions of this search, oldest first."""
        rows = self.history.sessions(self.options.system)
        return [row for row in reversed(rows) if _of_search(row).get("id") == self.identity]

    def _measure_session(self, context: HybridContext, schedule: AbSchedule, left: Group, right: Group) -> None:
        document = {"id": self.identity, "left": sorted(left), "right": sorted(right)}
        run_ab(self.history, context, schedule, **{_ATTRIBUTE: document})

    def _seed(self) -> int:
        return int(np.random.default_rng(self.options.seed).integers(2**31))

    # Screening

    def _screened(self) -> tuple[tuple[BisectTarget, int, float], ...]:
        """The results of the whole difference, that which differs most for its noise first."""
        found = self._read_screening()
        if not found:
            self.report_message(f"screening: {_SCREENING_PAIRS} pairs of the whole difference")
            schedule = _ScreeningSchedule(StopRule(pairs=_SCREENING_PAIRS), self._seed())
            document = {"id": self.identity, "screening": True}
            run_ab(self.history, self.ends, schedule, **{_ATTRIBUTE: document})
            found = self._read_screening()
        if not found:
            raise MachineError(
                "the screening has no result on both sides in all its pairs",
                hint="`iowatch history show` of its session has the reasons.",
            )
        return found

    def _read_screening(self) -> tuple[tuple[BisectTarget, int, float], ...]:
        for row in self._sessions():
            if _of_search(row).get("screening"):
                pairs = {target: gains for target, gains in self._pairs(row.uuid).items() if len(gains) > 2}
                ordered = sorted(pairs.items(), key=lambda item: -_difference_to_noise(item[1]))
                if ordered and len(ordered[0][1]) >= _SCREENING_PAIRS - 1:
                    return tuple((target, len(gains), median(gains)) for target, gains in ordered)
        return ()

    def _pairs(self, uuid: str) -> dict[BisectTarget, list[float]]:
        """Log gains of all pairs of a session in their order, by result."""
        samples: dict[tuple[str, Case], dict[str, dict[int, dict[str, tuple[float, ...]]]]] = defaultdict(dict)
        order = headline_metrics()
        for row in self.history.results(ResultFilter(session=uuid)):
            if row.status == "ok" and row.pair and row.side and row.metric in order and min(row.samples) > 0:
                of_run = samples[row.run.rpartition("#")[0], row.case].setdefault(row.metric, {})
                of_run.setdefault(row.pair, {})[row.side] = row.samples
        found = {}
        for (run, case), metrics in samples.items():
            target = BisectTarget(run, case, min(metrics, key=order.index))
            sides = [both for _, both in sorted(metrics[target.metric].items()) if len(both) == 2]
            found[target] = [target.log_gain(both["left"], both["right"]) for both in sides]
        return found

    # Search

    def _repeat_known(self, bisection: Bisection, groups: Sequence[Group], target: BisectTarget) -> None:
        """Record the pairs in the history in the order in which the search requests them."""
        known: dict[tuple[Group, Group], list[float]] = defaultdict(list)
        for row in self._sessions():
            sides = _of_search(row)
            if "left" in sides:
                gains = self._pairs(row.uuid).get(target, [])
                known[frozenset(sides["left"]), frozenset(sides["right"])] += gains
        count = 0
        while bisection.request is not None and (pairs := known[_stacks_of(groups, bisection.request)]):
            bisection.record(pairs.pop(0))
            count += 1
        if count:
            self.report_message(f"{format_count(count, 'pair')} of an earlier start of this search in the history")

    def _measure(self, bisection: Bisection, groups: Sequence[Group], target: BisectTarget) -> None:
        """One test, or a part of it: pairs until the search requests other stacks, or the budget is used up."""
        request = bisection.request
        assert request is not None
        left, right = _stacks_of(groups, request)
        context = self._context(left, right, [target.run])
        self.report_message(f"{context.stacks[1]}: {self._describe(right)}; against {context.stacks[0]}")

        def record(pair: _PairSamples) -> bool:
            sides = [pair.get(side, {}).get(target.case.key, ()) for side in ("left", "right")]
            if not all(len(side) and min(side) > 0 for side in sides):
                return False
            bisection.record(target.log_gain(*sides))
            return True

        schedule = _SearchSchedule(self._seed(), self._left_s(), lambda: bisection.request == request, record)
        try:
            self._measure_session(context, schedule, left, right)
        except WarmUpError as error:
            if bisection.is_end(request.right):
                raise
            self.report_message(f"skipped: {error.message}")
            bisection.skip()

    def _describe(self, parts: Group) -> str:
        if parts == self._everything:
            return "BAD"
        return "GOOD with " + "; ".join(str(self.source.parts[part]) for part in sorted(parts))

    # Budget

    def _left_s(self) -> float:
        return self.options.budget_s - (time.monotonic() - self.started)

    def _pair_s(self) -> float:
        """Seconds per pair: median of the sessions of this search; their warm-ups, with builds, count as a pair."""
        found = [
            (row.ended_at - row.started_at) / (pairs + 1)
            for row in self._sessions()
            if row.ended_at and (pairs := max(map(len, self._pairs(row.uuid).values()), default=0))
        ]
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
            self.report_message(
                f"with the noise so far about {probable} pairs ({probable_s / 60:.0f} minutes) are needed; "
                f"{left_s / 60:.0f} are left"
            )


def _difference_to_noise(gains: Sequence[float]) -> float:
    return abs(fmean(gains)) / (stdev(gains) + _SMALLEST_SPREAD)


def _of_search(row: Any) -> Mapping[str, Any]:
    """The attribute `bisect` of a session, or nothing."""
    found = row.attributes.get(_ATTRIBUTE)
    return found if isinstance(found, Mapping) else {}


def _union(groups: Sequence[Group], chosen: frozenset[int]) -> Group:
    return frozenset(part for number in chosen for part in groups[number])


def _stacks_of(groups: Sequence[Group], request: PairRequest) -> tuple[Group, Group]:
    return _union(groups, request.left), _union(groups, request.right)
