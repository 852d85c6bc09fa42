"""Slowdown of the victim of an interference run by level, from the results of its session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from iowatch.comparison import SideEntry, sides
from iowatch.core import METRICS, Case, UsageError, headline_metrics
from iowatch.findings import reported_as
from iowatch.statistics import Pair, PairComparison, SideSamples, compare_pairs
from iowatch.store import History, ResultFilter, bulk


@dataclass(frozen=True)
class LevelNodes:
    """Nodes of the jobs in the pairs that are compared: a ratio of two nodes is no effect of the aggressors.

    Attributes:
        reference: names, of the victim at level 0.
        victim, aggressors: names, at this level.
        pairs: that are compared.
        pairs_with_known_nodes: of these, pairs in which the nodes of the victim at both levels are known.
        pairs_on_other_nodes: of these, pairs in which the nodes at both levels differ.
        pairs_with_shared_nodes: pairs in which an aggressor ran on a node of the victim.
    """

    reference: tuple[str, ...]
    victim: tuple[str, ...]
    aggressors: tuple[str, ...]
    pairs: int
    pairs_with_known_nodes: int
    pairs_on_other_nodes: int
    pairs_with_shared_nodes: int


@dataclass(frozen=True)
class LevelEffect:
    """What a number of aggressors does to one result of the victim.

    Attributes:
        case: of the victim, without the number of aggressors.
        level: number of aggressors; above 0.
        comparison: level 0 (left) against this level (right), pair by pair.
        slowdown, ci: how many times slower the victim is, with its interval; None without enough pairs.
        samples: slowdown of each sample against the median of level 0 in the same pair.
        values: samples in the unit of the metric.
        aggressors: mean over the pairs of the bandwidths of all aggressors together, by operation.
        nodes: where the jobs ran.
    """

    case: Case
    metric: str
    level: int
    comparison: PairComparison[Case]
    slowdown: float | None
    ci: tuple[float, float] | None
    samples: tuple[float, ...]
    values: tuple[float, ...]
    aggressors: Mapping[str, float]
    nodes: LevelNodes

    @property
    def operation(self) -> str:
        """What was timed."""
        return _operation(self.case)


@dataclass(frozen=True)
class InterferenceEffects:
    """All effects of one session, by operation and level; empty if no level has results with a reference.

    Attributes:
        reference: samples of level 0 in the unit of the metric, by operation.
    """

    session: str
    effects: tuple[LevelEffect, ...]
    reference: Mapping[str, tuple[float, ...]]


def interference_effects(history: History, session: str) -> InterferenceEffects:
    """Compare each level of an interference run with level 0: only pairs in which both have results.

    Args:
        session: UUID.
    """
    rows = list(history.results(ResultFilter(session=session)))
    gathered = sides.gather_entries(rows, sides.session_labels(rows), by_side=True)
    # Results of victims and of aggressors, which have the level as a parameter.
    entries: list[SideEntry] = []
    for entry in gathered.entries:
        if "aggressors" in entry.case.parameters and isinstance(entry.side, SideSamples):
            entries.append(entry)
    # Each level against level 0 of the same case.
    contrasts: list[_LevelContrast] = []
    reference: dict[str, tuple[float, ...]] = {}
    for case, entry_by_level in _victim_entries(entries).items():
        if 0 not in entry_by_level:
            continue
        reference[_operation(case)] = _samples(entry_by_level[0])
        for level, entry in sorted(entry_by_level.items()):
            if level > 0:
                contrasts.append(_LevelContrast(case, level, entry_by_level[0], entry))
    comparisons: list[PairComparison[Case]] = []
    if contrasts:
        with reported_as(UsageError):
            comparisons, *_ = compare_pairs([contrast.pair() for contrast in contrasts])
    nodes_of_runs = _query_nodes(history, entries)
    effects: list[LevelEffect] = []
    for contrast, comparison in zip(contrasts, comparisons, strict=True):
        aggressors = _aggressor_entries(entries, contrast.level)
        nodes = _level_nodes(contrast, aggressors, nodes_of_runs)
        effects.append(_make_effect(contrast, comparison, _aggressor_means(aggressors), nodes))
    return InterferenceEffects(session, tuple(effects), reference)


@dataclass(frozen=True)
class _LevelContrast:
    """The results of a victim without aggressors, and with this number of them."""

    case: Case
    level: int
    without: SideEntry
    with_aggressors: SideEntry

    @property
    def metric(self) -> str:
        return self.with_aggressors.metric

    def pair(self) -> Pair[Case]:
        left, right = self.without.side, self.with_aggressors.side
        return Pair(self.case, self.metric, left, right, METRICS[self.metric].sign)


def _victim_entries(entries: Sequence[SideEntry]) -> dict[Case, dict[int, SideEntry]]:
    """Results of victims by case (without the number of aggressors) and level, each of one metric: the headline."""
    headline_order = headline_metrics()
    victim_entries: list[SideEntry] = []
    for entry in entries:
        if "aggressor" in entry.case.parameters and entry.metric in headline_order:
            victim_entries.append(entry)
    victim_entries.sort(key=lambda entry: headline_order.index(entry.metric))
    # The first metric of a case is its headline; results of others are left out.
    victims: dict[Case, dict[int, SideEntry]] = defaultdict(dict)
    for entry in victim_entries:
        entry_by_level = victims[entry.case.without("aggressors")]
        metrics = {other.metric for other in entry_by_level.values()}
        if not metrics or entry.metric in metrics:
            entry_by_level[int(entry.case.parameters["aggressors"])] = entry
    return victims


def _aggressor_entries(entries: Sequence[SideEntry], level: int) -> list[SideEntry]:
    """Results of the aggressors of a level."""
    aggressors: list[SideEntry] = []
    for entry in entries:
        if "victim" in entry.case.parameters and entry.case.parameters["aggressors"] == level:
            aggressors.append(entry)
    return aggressors


def _aggressor_means(entries: Sequence[SideEntry]) -> dict[str, float]:
    """Mean of the bandwidths of all aggressors together, by operation."""
    return {_operation(entry.case): fmean(_samples(entry)) for entry in entries}


_NodesOfRuns = Mapping[int, tuple[str, ...]]
"""By number of the run in the history."""


def _query_nodes(history: History, entries: Sequence[SideEntry]) -> _NodesOfRuns:
    """Nodes of all runs of some entries, as far as they are known."""
    numbers: set[int] = set()
    for entry in entries:
        for runs in entry.runs.values():
            numbers.update(run.number for run in runs if run.number is not None)
    with history.reading() as connection:
        return bulk.run_nodes(connection, sorted(numbers))


def _nodes_in(entry: SideEntry, pair: str, nodes_of_runs: _NodesOfRuns) -> set[str]:
    """Nodes of an entry in a pair; empty if they are not known."""
    nodes: set[str] = set()
    for run in entry.runs.get(pair, ()):
        nodes.update(nodes_of_runs.get(run.number or 0, ()))
    return nodes


def _level_nodes(contrast: _LevelContrast, aggressors: Sequence[SideEntry], nodes_of_runs: _NodesOfRuns) -> LevelNodes:
    reference_nodes: set[str] = set()
    victim_nodes: set[str] = set()
    aggressor_nodes: set[str] = set()
    pairs_with_known_nodes = 0
    pairs_on_other_nodes = 0
    pairs_with_shared_nodes = 0
    # The pairs in which both levels have results are those that are compared.
    pairs = contrast.without.runs.keys() & contrast.with_aggressors.runs.keys()
    for pair in pairs:
        of_reference = _nodes_in(contrast.without, pair, nodes_of_runs)
        of_victim = _nodes_in(contrast.with_aggressors, pair, nodes_of_runs)
        of_aggressors: set[str] = set()
        for entry in aggressors:
            of_aggressors |= _nodes_in(entry, pair, nodes_of_runs)
        if of_reference and of_victim:
            pairs_with_known_nodes += 1
            if of_reference != of_victim:
                pairs_on_other_nodes += 1
        if of_victim & of_aggressors:
            pairs_with_shared_nodes += 1
        reference_nodes |= of_reference
        victim_nodes |= of_victim
        aggressor_nodes |= of_aggressors
    return LevelNodes(
        reference=tuple(sorted(reference_nodes)),
        victim=tuple(sorted(victim_nodes)),
        aggressors=tuple(sorted(aggressor_nodes)),
        pairs=len(pairs),
        pairs_with_known_nodes=pairs_with_known_nodes,
        pairs_on_other_nodes=pairs_on_other_nodes,
        pairs_with_shared_nodes=pairs_with_shared_nodes,
    )


def _make_effect(
    contrast: _LevelContrast, comparison: PairComparison[Case], aggressors: Mapping[str, float], nodes: LevelNodes
) -> LevelEffect:
    # `gain` is performance relative to a level; its inverse is the slowdown.
    gain = METRICS[contrast.metric].gain
    reference = contrast.without.side
    with_aggressors = contrast.with_aggressors.side
    assert isinstance(reference, SideSamples)
    assert isinstance(with_aggressors, SideSamples)
    # Each sample against level 0 of its own pair, so that a slow change of the machine cancels.
    slowdowns: list[float] = []
    for pair, samples in with_aggressors.sessions.items():
        if pair in reference.sessions:
            reference_median = median(reference.sessions[pair])
            slowdowns += [1 / gain(sample, reference_median) for sample in samples]
    # The comparison has ratios of the metric; of a time, a higher one is a slowdown.
    slowdown = None
    if comparison.ratio is not None:
        slowdown = 1 / gain(comparison.ratio, 1.0)
    ci = None
    if comparison.ci is not None:
        low, high = sorted(1 / gain(end, 1.0) for end in comparison.ci)
        ci = (low, high)
    return LevelEffect(
        case=contrast.case,
        metric=contrast.metric,
        level=contrast.level,
        comparison=comparison,
        slowdown=slowdown,
        ci=ci,
        samples=tuple(slowdowns),
        values=_samples(contrast.with_aggressors),
        aggressors=aggressors,
        nodes=nodes,
    )


def _operation(case: Case) -> str:
    return str(case.parameters.get("operation", ""))


def _samples(entry: SideEntry) -> tuple[float, ...]:
    """All samples, in the order of the pairs."""
    assert isinstance(entry.side, SideSamples)
    samples: list[float] = []
    for values in entry.side.sessions.values():
        samples += values
    return tuple(samples)
