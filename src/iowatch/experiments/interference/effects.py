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
        return str(self.case.parameters.get("operation", ""))


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
    entries = [
        entry
        for entry in sides.gather_entries(rows, sides.session_labels(rows), by_side=True).entries
        if "aggressors" in entry.case.parameters and isinstance(entry.side, SideSamples)
    ]
    victims: dict[Case, dict[int, SideEntry]] = defaultdict(dict)
    order = headline_metrics()
    for entry in sorted(entries, key=lambda one: order.index(one.metric) if one.metric in order else len(order)):
        if "aggressor" in entry.case.parameters and entry.metric in order:
            levels = victims[entry.case.without("aggressors")]
            known = next(iter(levels.values()), None)
            if known is None or known.metric == entry.metric:  # one metric per case, the headline
                levels[int(entry.case.parameters["aggressors"])] = entry
    chosen = [
        (case, level, levels[0], entry)
        for case, levels in victims.items()
        for level, entry in sorted(levels.items())
        if level and 0 in levels
    ]
    pairs = [Pair(case, one.metric, zero.side, one.side, METRICS[one.metric].sign) for case, _, zero, one in chosen]
    with reported_as(UsageError):
        compared = compare_pairs(pairs)[0] if pairs else []
    found = [
        _make_effect(case, level, zero, one, comparison, entries)
        for (case, level, zero, one), comparison in zip(chosen, compared, strict=True)
    ]
    reference = {
        str(case.parameters.get("operation", "")): _samples(levels[0].side)
        for case, levels in victims.items()
        if 0 in levels
    }
    return InterferenceEffects(session, tuple(found), reference)


def _make_effect(
    case: Case,
    level: int,
    zero: SideEntry,
    one: SideEntry,
    comparison: PairComparison[Case],
    entries: Sequence[SideEntry],
) -> LevelEffect:
    gain = METRICS[one.metric].gain
    assert isinstance(zero.side, SideSamples)
    assert isinstance(one.side, SideSamples)
    # `gain` is performance relative to a level; its inverse is the slowdown.
    samples = tuple(
        1 / gain(value, median(zero.side.sessions[pair]))
        for pair, values in one.side.sessions.items()
        if pair in zero.side.sessions
        for value in values
    )
    slowdown = None if comparison.ratio is None else 1 / gain(comparison.ratio, 1.0)
    ci = None
    if comparison.ci is not None:
        ends = sorted(1 / gain(end, 1.0) for end in comparison.ci)
        ci = (ends[0], ends[1])
    aggressors = {
        str(entry.case.parameters.get("operation", "")): fmean(_samples(entry.side))
        for entry in entries
        if "victim" in entry.case.parameters and entry.case.parameters["aggressors"] == level
    }
    return LevelEffect(case, one.metric, level, comparison, slowdown, ci, samples, _samples(one.side), aggressors)


def _samples(side: object) -> tuple[float, ...]:
    assert isinstance(side, SideSamples)
    return tuple(value for values in side.sessions.values() for value in values)
