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
from iowatch.store import History, ResultFilter


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
    effects: list[LevelEffect] = []
    for contrast, comparison in zip(contrasts, comparisons, strict=True):
        effects.append(_make_effect(contrast, comparison, _aggressor_means(entries, contrast.level)))
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


def _aggressor_means(entries: Sequence[SideEntry], level: int) -> dict[str, float]:
    """Mean of the bandwidths of all aggressors together, by operation."""
    means = {}
    for entry in entries:
        if "victim" in entry.case.parameters and entry.case.parameters["aggressors"] == level:
            means[_operation(entry.case)] = fmean(_samples(entry))
    return means


def _make_effect(
    contrast: _LevelContrast, comparison: PairComparison[Case], aggressors: Mapping[str, float]
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
