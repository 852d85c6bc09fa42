"""Measuring pairs of two stacks: n pairs for chosen cases, each pair in an order that a coin decides.

`measure_pairs` makes one session of `iowatch run --ab`, whose runs are in the history like any other, and returns when
no more pairs are wanted; `read_pairs` reads the log gains of a session back. The stacks need not belong to the system:
`make_pair_context` also takes stacks that no folder contains, such as hybrids.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from iowatch.core import METRICS, Case, MachineError, format_count, headline_metrics, write_atomically
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, AbRunResult, make_ab_context, run_ab
from iowatch.session.options import SessionOptions
from iowatch.site import Stack, stack_directory, write_stack_files
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule
from iowatch.store import History, ResultFilter

_MAX_FAULTS = 3


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


PairGains = Mapping[PairedResult, float]


def read_pairs(history: History, session: str, best: bool = False) -> dict[int, dict[PairedResult, float]]:
    """Return the log gains of a session by the number of the pair, in their order.

    Gains are those of medians, or of the `best` repetitions.

    Results that failed, are not positive, or lack a side are absent; so are pairs without any result.
    """
    order = headline_metrics()
    samples: dict[tuple[str, Case], dict[str, dict[int, dict[str, tuple[float, ...]]]]] = defaultdict(dict)
    for row in history.results(ResultFilter(session=session)):
        if row.status == "ok" and row.pair and row.side and row.metric in order and min(row.samples) > 0:
            by_metric = samples[row.run.rpartition("#")[0], row.case].setdefault(row.metric, {})
            by_metric.setdefault(row.pair, {})[row.side] = row.samples
    gains: dict[int, dict[PairedResult, float]] = defaultdict(dict)
    for (run, case), metrics in samples.items():
        result = PairedResult(run, case, min(metrics, key=order.index))
        for pair, sides in metrics[result.metric].items():
            if len(sides) == 2:
                gains[pair][result] = result.log_gain(sides["left"], sides["right"], best)
    return dict(sorted(gains.items()))


def measure_pairs(
    history: History,
    context: AbContext,
    wanted: Callable[[], int],
    record: Callable[[PairGains], None],
    *,
    seed: int,
    budget_s: float | None = None,
    runs: Callable[[], Collection[str]] | None = None,
    best: bool = False,
    attributes: Mapping[str, object],
) -> AbRunResult:
    """Measure pairs of the two stacks of the context in one session, each stack after a warm-up.

    Args:
        wanted: number of further pairs that are certainly needed; asked before each start of ReFrame, which measures at
            most these, and fewer if they take longer than a minute. 0 ends the session.
        record: receives the log gains (right / left) of each pair that has any, in their order.
        seed: of the order within pairs; stored with the session.
        budget_s: seconds until the session ends, with the pairs that were measured by then.
        runs: names of the runs that the next pairs have; asked after `wanted`, not for warm-ups [default: all].
        best: as in `read_pairs`.
        attributes: stored with the session.

    Raises:
        WarmUpError: a stack produced no result at all.
        MachineError: three pairs in a row without a result on both sides; see `run_ab`.
        UsageError: see `run_ab`.
    """
    rule = StopRule(budget_s=math.inf if budget_s is None else budget_s, most=10**6)
    schedule = _WantedPairs(rule, seed, history=history, wanted=wanted, record_pair=record, runs=runs, best=best)
    return run_ab(history, context, schedule, attributes)


@dataclass
class _WantedPairs(AbSchedule):
    """Pairs as long as some are wanted; `stopped` is `decided` then."""

    history: History = field(kw_only=True)
    wanted: Callable[[], int] = field(kw_only=True)
    record_pair: Callable[[PairGains], None] = field(kw_only=True)
    runs: Callable[[], Collection[str]] | None = field(kw_only=True)
    best: bool = field(kw_only=True)
    _names: Collection[str] | None = None
    _run_seconds: list[float] = field(default_factory=list)

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
        rng = np.random.default_rng(self.seed)
        yield tuple(AbTurn(0, side) for side in self.random_block(rng))
        done, faults = 0, 0
        while True:
            count = self.wanted()
            if count <= 0:
                self.stopped = "decided"
                return
            reason = self._stop(done)
            if reason is not None:
                self.stopped = reason
                return
            self._names = self.runs() if self.runs else None
            # One start of ReFrame measures several pairs.
            pairs = range(done + 1, done + 1 + self.fitting_pairs(done, min(count, most)))
            yield tuple(AbTurn(pair, side) for pair in pairs for side in self.random_block(rng))
            gains = read_pairs(self.history, self.session, self.best)
            for pair in pairs:
                if pair in gains:
                    faults = 0
                    self.record_pair(gains[pair])
                else:
                    faults += 1
            if faults >= _MAX_FAULTS:
                raise MachineError(
                    f"{format_count(faults, 'consecutive pair')} without a result on both sides",
                    hint=f"`iowatch history show {self.session}` has the reasons.",
                )
            done = pairs[-1]


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
    further_stacks = [stack for stack in sides if stack.name not in site.features]
    options = replace(options, stacks=tuple(stack.name for stack in sides))
    return make_ab_context(options, _site_with(site, like, further_stacks))


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
