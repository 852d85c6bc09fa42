"""Measuring pairs of two stacks: n pairs for chosen cases, each pair in an order that a coin decides.

`measure_pairs` makes one session of `iowatch run --ab`, whose runs are in the history like any other, and returns when
no more pairs are needed; `read_pairs` reads the log gains of a session back, `read_pair_runs` the runs. The stacks need
not belong to the system: `make_pair_context` also takes stacks that no folder contains, such as hybrids.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from iowatch.core import METRICS, Case, MachineError, format_count, headline_metrics, write_atomically
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, AbRunResult, make_ab_context, run_ab
from iowatch.session.deadline import Deadline
from iowatch.session.options import SessionOptions
from iowatch.site import Stack, stack_directory, write_stack_files
from iowatch.statistics.interleaving import AbSchedule, AbTurn, SideName, StopRule
from iowatch.store import History, ResultFilter

_MAX_FAULTS = 3
_OTHER_SIDES: Mapping[SideName, SideName] = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class PairedResult:
    """What a pair compares: the headline metric of one case (with its operation); `run` is the planned run's name."""

    run: str
    case: Case
    metric: str

    def log_gain(self, left: Sequence[float], right: Sequence[float], best: bool = False) -> float:
        """ln of the gain right / left of the medians (or best repetitions) of two runs: below 0 the right is slower."""
        metric = METRICS[self.metric]
        summary = metric.best if best else median
        return metric.log_gain(summary(right) / summary(left))


@dataclass(frozen=True)
class PairedRuns:
    """The samples of one result on both sides of a pair: one per repetition, in the unit of the metric."""

    left: tuple[float, ...]
    right: tuple[float, ...]


PairGains = Mapping[PairedResult, float]
PairRuns = Mapping[PairedResult, PairedRuns]


def log_gains(runs: PairRuns, best: bool = False) -> dict[PairedResult, float]:
    """Return the log gains of a pair: those of the medians, or of the `best` repetitions."""
    return {result: result.log_gain(sides.left, sides.right, best) for result, sides in runs.items()}


def read_pairs(history: History, session: str, best: bool = False) -> dict[int, dict[PairedResult, float]]:
    """Return the log gains of a session by the number of the pair, in their order; see `read_pair_runs`."""
    return {pair: log_gains(runs, best) for pair, runs in read_pair_runs(history, session).items()}


def read_pair_runs(history: History, session: str) -> dict[int, dict[PairedResult, PairedRuns]]:
    """Return the runs of a session by the number of the pair, in their order.

    Results that failed, are not positive, or lack a side are absent; so are pairs without any result.
    """
    headline_order = headline_metrics()
    # The samples of each result, by pair and side, and the results of each case: it can report several metrics.
    samples: dict[PairedResult, dict[int, dict[str, tuple[float, ...]]]] = {}
    results_of_case: dict[tuple[str, Case], set[PairedResult]] = defaultdict(set)
    for row in history.results(ResultFilter(session=session)):
        if row.status != "ok" or not row.pair or not row.side:
            continue
        if row.metric not in headline_order or min(row.samples) <= 0:
            continue
        result = PairedResult(row.run.rpartition("#")[0], row.case, row.metric)
        results_of_case[result.run, result.case].add(result)
        samples.setdefault(result, {}).setdefault(row.pair, {})[row.side] = row.samples
    # Only the headline metric of a case is compared.
    runs: dict[int, dict[PairedResult, PairedRuns]] = defaultdict(dict)
    for results in results_of_case.values():
        headline = min(results, key=lambda result: headline_order.index(result.metric))
        for pair, sides in samples[headline].items():
            if len(sides) == 2:
                runs[pair][headline] = PairedRuns(sides["left"], sides["right"])
    return dict(sorted(runs.items()))


@dataclass(frozen=True)
class OneSidedFailure:
    """A run that failed on one side of a pair and works on the other.

    Attributes:
        run: name of the planned run.
        side: that failed.
    """

    run: str
    side: SideName


def read_one_sided_failures(
    history: History, session: str, *, counts_missing: bool = True
) -> dict[int, list[OneSidedFailure]]:
    """Return the runs of a session that failed on one side only, by the number of the pair.

    Args:
        counts_missing: whether a run that left nothing in the history has failed, as one that hangs until its limit;
            False for pairs whose execution was ended.
    """
    # Whether each run works, by pair and name, then by side.
    works: dict[tuple[int, str], dict[str, bool]] = defaultdict(dict)
    for row in history.runs(session):
        if row.facts.pair and row.facts.side:
            works[row.facts.pair, row.name.rpartition("#")[0]][row.facts.side] = row.status == "ok"
    failures: dict[int, list[OneSidedFailure]] = defaultdict(list)
    for (pair, run), works_on_side in works.items():
        for side, other_side in _OTHER_SIDES.items():
            is_missing = side not in works_on_side
            has_failed = counts_missing if is_missing else not works_on_side[side]
            if has_failed and works_on_side.get(other_side, False):
                failures[pair].append(OneSidedFailure(run, side))
    return failures


@dataclass(frozen=True)
class PairDemand:
    """Who asks for pairs: how many, and what happens to them.

    Attributes:
        pairs_needed: number of further pairs that are certainly needed; asked before each start of ReFrame, which
            measures at most these, and fewer if they take longer than a minute. 0 ends the session.
        record: receives the runs of each pair that has results on both sides, in their order.
        record_failure: receives each run of a pair that failed on one side only, before the other runs of the pair;
            None ignores them.
        run_names: names of the runs that the next pairs have; asked after `pairs_needed`, not for warm-ups; None for
            all runs.
    """

    pairs_needed: Callable[[], int]
    record: Callable[[PairRuns], None]
    run_names: Callable[[], Collection[str]] | None = None
    record_failure: Callable[[OneSidedFailure], None] | None = None


@dataclass(frozen=True)
class PairOptions:
    """How pairs are measured.

    Attributes:
        seed: of the order within pairs; stored with the session.
        attributes: stored with the session.
        budget_s: seconds until the session ends, with the pairs that were measured by then; None without an end.
        deadline: when a batch of pairs that is running is ended; None lets it end.
    """

    seed: int
    attributes: Mapping[str, object]
    budget_s: float | None = None
    deadline: Deadline | None = None


def measure_pairs(history: History, context: AbContext, demand: PairDemand, options: PairOptions) -> AbRunResult:
    """Measure pairs of the two stacks of the context in one session, each stack after a warm-up.

    Raises:
        WarmUpError: a stack produced no result at all.
        MachineError: three pairs in a row without a result on both sides; see `run_ab`.
        UsageError: see `run_ab`.
    """
    budget_s = math.inf if options.budget_s is None else options.budget_s
    # The demand ends the session, not a number of pairs.
    rule = StopRule(budget_s=budget_s, most=10**6)
    schedule = _DemandedPairs(rule, options.seed, history=history, demand=demand)
    result = run_ab(history, context, schedule, options.attributes, options.deadline)
    schedule.report_ended_batch()
    return result


@dataclass
class _DemandedPairs(AbSchedule):
    """Pairs as long as some are needed; `stopped` is `decided` then."""

    history: History = field(kw_only=True)
    demand: PairDemand = field(kw_only=True)
    _names: Collection[str] | None = None
    _run_seconds: list[float] = field(default_factory=list)
    _consecutive_faults: int = 0
    _unreported_pairs: Sequence[int] = ()

    def run_names(self) -> Collection[str] | None:
        return self._names

    def record(self, turn: AbTurn, samples: Mapping[str, Sequence[float]], seconds: float) -> None:
        super().record(turn, samples, seconds)
        if self._names:
            self._run_seconds.append(seconds / len(self._names))

    def _turn_s(self) -> float:
        """Turns become shorter with the number of their runs."""
        if self._names and self._run_seconds:
            return len(self._names) * median(self._run_seconds)
        return super()._turn_s()

    def half_widths(self) -> dict[str, float]:
        return {}

    def left_s(self, done: int) -> float | None:
        left_s = super().left_s(done)
        if left_s is None or not math.isfinite(left_s):
            return None
        return left_s

    def batches(self, most: int = 10**6) -> Iterator[tuple[AbTurn, ...]]:
        """Yield a warm-up, which is pair 0, then pairs as long as they are needed and the budget allows it."""
        rng = np.random.default_rng(self.seed)
        yield self._turns_of([0], rng)
        measured_count = 0
        while True:
            needed_count = self.demand.pairs_needed()
            if needed_count <= 0:
                self.stopped = "decided"
                return
            reason = self._stop(measured_count)
            if reason is not None:
                self.stopped = reason
                return
            self._names = self.demand.run_names() if self.demand.run_names else None
            # One start of ReFrame measures several pairs.
            batch_count = self.fitting_pairs(measured_count, min(needed_count, most))
            pairs = range(measured_count + 1, measured_count + 1 + batch_count)
            self._unreported_pairs = pairs
            yield self._turns_of(pairs, rng)
            # Their results are in the history when the caller asks for the next batch.
            self._report_runs(pairs)
            measured_count += batch_count

    def _turns_of(self, pairs: Iterable[int], rng: np.random.Generator) -> tuple[AbTurn, ...]:
        """Both turns of each pair, in an order that a coin decides."""
        turns: list[AbTurn] = []
        for pair in pairs:
            turns += [AbTurn(pair, stack_side) for stack_side in self.random_block(rng)]
        return tuple(turns)

    def _report_runs(self, pairs: Iterable[int]) -> None:
        """Report the runs of pairs that were measured.

        Raises:
            MachineError: too many pairs in a row have no result on both sides.
        """
        self._unreported_pairs = ()
        runs = read_pair_runs(self.history, self.session)
        failures = read_one_sided_failures(self.history, self.session)
        for pair in pairs:
            self._report_failures(failures.get(pair, ()))
            if pair in runs:
                self._consecutive_faults = 0
                self.demand.record(runs[pair])
            else:
                self._consecutive_faults += 1
        if self._consecutive_faults >= _MAX_FAULTS:
            raise MachineError(
                f"{format_count(self._consecutive_faults, 'consecutive pair')} without a result on both sides",
                hint=f"`iowatch history show {self.session}` has the reasons.",
            )

    def report_ended_batch(self) -> None:
        """Report the pairs of a batch that the deadline ended, as far as they were measured."""
        if not self._unreported_pairs:
            return
        runs = read_pair_runs(self.history, self.session)
        failures = read_one_sided_failures(self.history, self.session, counts_missing=False)
        for pair in self._unreported_pairs:
            self._report_failures(failures.get(pair, ()))
            if pair in runs:
                self.demand.record(runs[pair])

    def _report_failures(self, failures: Iterable[OneSidedFailure]) -> None:
        if self.demand.record_failure is None:
            return
        for failure in failures:
            self.demand.record_failure(failure)


def make_pair_context(
    options: SessionOptions, sides: tuple[Stack, Stack], like: str, site: reframe.ReframeSite | None = None
) -> AbContext:
    """Make the context of an A/B run of any two stacks.

    Args:
        options: without stacks.
        sides: both stacks.
        like: a stack of the system, in whose partitions those run that no folder of the system contains.
        site: the system, if it was loaded before, which takes a second.

    Raises:
        UsageError: as `make_ab_context`.
    """
    if site is None:
        site = reframe.load_site(options.system)
    new_stacks = [stack for stack in sides if stack.name not in site.features]
    options = replace(options, stacks=tuple(stack.name for stack in sides))
    return make_ab_context(options, _site_with(site, like, new_stacks))


_CONFIGURATION = """import json

import iowatch.site.reframe_config  # its launchers

site_configuration = json.loads({!r})
"""


def _site_with(site: reframe.ReframeSite, like: str, stacks: Sequence[Stack]) -> reframe.ReframeSite:
    """The site with these stacks wherever `like` is.

    Its ReFrame configuration is written as data, once: that of the system describes all stacks in each start again.
    """
    from iowatch.site import reframe_config  # ReFrame takes 0.7 s to import

    files = [str(write_stack_files(stack) / "stack.json") for stack in stacks]
    configuration = reframe_config.configuration_with_stacks(str(site.configuration), site.system, like, files)
    text = _CONFIGURATION.format(json.dumps(configuration))
    path = stack_directory(site.system, f"pairs-{hashlib.sha256(text.encode()).hexdigest()[:8]}") / "reframe.py"
    write_atomically(path, text)
    # The same in the description of the site.
    partitions = []
    for partition in site.partitions:
        if like in partition.stacks:
            names = tuple(stack.name for stack in stacks)
            partition = replace(partition, stacks=partition.stacks + names)
        partitions.append(partition)
    features = dict(site.features)
    environments = dict(site.environments)
    for stack in stacks:
        environment = reframe_config.reframe_environment(stack)
        features[stack.name] = frozenset(environment["features"])
        # Only names that ReFrame has in another form.
        if environment["name"] != stack.name:
            environments[stack.name] = environment["name"]
    return replace(site, configuration=path, partitions=tuple(partitions), features=features, environments=environments)
