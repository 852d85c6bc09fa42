"""Explanation of one event: rule, magnitudes, control group, exceptions, and likely causes.

Events are ranked by the fit of their date and scope to a change: evidence, not proof. A cause that acts on all accesses
(load, links, disks) changes all series in its scope; a change of software can act on a single code path. So an
unchanged control group is evidence against the former and for the latter (Antypas and Uselton, "MPI-I/O on Franklin
XT4 System at NERSC", CUG 2009, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from iowatch.statistics.constants import DAY_S, Bools, Floats
from iowatch.statistics.rules import (
    Condition,
    ControlGroup,
    Explanation,
    Magnitude,
    Parameters,
    Positions,
    Rule,
    RuleException,
    SeriesResponse,
    condition_coverage,
    find_rule,
    format_conditions,
    stated_conditions,
)
from iowatch.statistics.vocabulary import ParameterVocabulary, Scalar

# Ratios within a factor of 1.5 of each other are reported as one number. With twice as much (as logarithm) a fall to a
# half and one to a quarter would be one.
_MAX_SIMILAR_RATIO = math.log(1.5)
# Share of the variance that a condition has to explain in addition for each bit of its prior cost. It decides between
# conditions that explain about the same variance.
_VARIANCE_PER_BIT = 0.05
# Most groups of magnitudes: more are no summary.
_MAX_GROUPS = 6


def group_magnitudes(
    derived: Sequence[Parameters], log_ratios: Floats, members: Positions, vocabulary: ParameterVocabulary
) -> tuple[Magnitude, ...]:
    """Groups of `members` with similar ratios, largest effect first.

    Args:
        derived: parameters of each case.
        log_ratios: natural logarithm of after / before of each case, shape (n,).
        members: positions of the cases to describe.
        vocabulary: prior costs and words of the parameters.
    """
    if not len(members):
        return ()
    inside = [derived[m] for m in members]
    ratios = log_ratios[members]
    conditions = stated_conditions(inside, np.ones(len(inside), dtype=bool), vocabulary)
    cover = condition_coverage(conditions, inside)
    costs = [condition.bits(vocabulary) for condition in conditions]
    programs = [str(parameters.get("benchmark", "")) for parameters in inside]
    operations = np.asarray([str(parameters.get("operation")) for parameters in inside])
    # Start with one group if the ratios are similar, else with one group per operation.
    pending = [np.arange(len(inside))]
    if np.ptp(ratios) > _MAX_SIMILAR_RATIO:
        pending = [np.flatnonzero(operations == operation) for operation in np.unique(operations)]
    # Repeatedly split the group with the widest range of ratios if a condition explains the range.
    groups: list[Positions] = []
    while pending:
        pending.sort(key=lambda group: float(np.ptp(ratios[group])))
        group = pending.pop()
        split = _best_split(group, ratios, costs, cover)
        if split is None or len(groups) + len(pending) + 2 > _MAX_GROUPS:
            groups.append(group)
        else:
            pending += [group[split], group[~split]]
    magnitudes: list[Magnitude] = []
    for group in groups:
        label = _with_benchmarks(_group_label(group, conditions, cover, vocabulary), group, programs)
        magnitude = Magnitude(
            label=label,
            ratio=float(np.exp(ratios[group].mean())),
            lowest=float(np.exp(ratios[group].min())),
            highest=float(np.exp(ratios[group].max())),
            members=tuple(int(members[position]) for position in group),
        )
        magnitudes.append(magnitude)
    return tuple(sorted(magnitudes, key=lambda m: -abs(math.log(m.ratio))))


def _best_split(group: Positions, log_ratios: Floats, costs: Sequence[float], coverage: Bools) -> Bools | None:
    """The split of a group of cases by the condition that explains most of the variance of their ratios.

    Args:
        group: positions of the members of the group among the cases.
        log_ratios: natural logarithm of after / before of each case, shape (cases,).
        costs: prior cost of each condition, in bits; each bit counts against `_VARIANCE_PER_BIT` of the variance.
        coverage: whether a condition holds for a case, shape (conditions, cases).

    Returns:
        Whether the condition holds, by member of the group, shape (members,). None if the ratios are similar, or no
        condition explains more than its cost.
    """
    member_logs = log_ratios[group]
    if np.ptp(member_logs) <= _MAX_SIMILAR_RATIO:
        return None
    # A condition is worth the share of the variance that it explains, less what it costs.
    best_split, best_value = None, 0.0
    squares = _squared_deviations(member_logs)
    for cost, holds in zip(costs, coverage[:, group], strict=True):
        # A condition that holds for all members, or for none, splits nothing.
        if holds.all() or not holds.any():
            continue
        squares_in_parts = _squared_deviations(member_logs[holds]) + _squared_deviations(member_logs[~holds])
        explained_share = (squares - squares_in_parts) / squares
        value = explained_share - _VARIANCE_PER_BIT * cost
        if value > best_value:
            best_split, best_value = holds, value
    return best_split


def _squared_deviations(values: Floats) -> float:
    """Sum of the squared deviations from the mean."""
    return float(np.var(values)) * len(values)


def _with_benchmarks(label: str, group: Positions, programs: Sequence[str]) -> str:
    """Label with its benchmarks, `HDF5 reads (flash)`.

    They are added if the changed series are of several benchmarks and the group is of at most two.
    """
    benchmarks = sorted({programs[position] for position in group} - {""})
    is_named = any(name in label for name in benchmarks)
    if not label or is_named or len(set(programs)) < 2 or not 0 < len(benchmarks) <= 2:
        return label
    return f"{label} ({', '.join(benchmarks)})"


def _group_label(group: Positions, conditions: list[Condition], cover: Bools, vocabulary: ParameterVocabulary) -> str:
    """The one or two conditions of lowest cost that select exactly the group, or the conditions its members share."""
    is_member = np.zeros(cover.shape[1], dtype=bool)
    is_member[group] = True
    if is_member.all():
        return ""
    exact = _exact_conditions(is_member, conditions, cover, 2, vocabulary)
    if exact:
        return format_conditions(exact, vocabulary)
    # What all members share, and not all cases.
    distinctive: list[Condition] = []
    for condition, covered in zip(conditions, cover, strict=True):
        if condition.operator == "=" and covered[is_member].all() and not covered.all():
            distinctive.append(condition)
    if not distinctive:
        return "others"
    return f"other {format_conditions(distinctive[:2], vocabulary)}"


def _exact_conditions(
    is_member: Bools, conditions: list[Condition], cover: Bools, most: int, vocabulary: ParameterVocabulary
) -> list[Condition]:
    """The conditions of lowest cost, at most `most`, that select exactly the members; empty without such.

    Args:
        is_member: shape (cases,).
        cover: of the conditions, shape (conditions, cases).
    """
    shared = [position for position in range(len(conditions)) if cover[position][is_member].all()]
    cover_of_shared = cover[shared]
    options: list[tuple[float, tuple[int, ...]]] = []
    for size in range(1, most + 1):
        # All choices of `size` conditions: the first ones, then at once each one that may be the last.
        for first in combinations(range(len(shared)), size - 1):
            start = first[-1] + 1 if first else 0
            selected = cover_of_shared[list(first)].all(axis=0) & cover_of_shared[start:]
            for offset in np.flatnonzero((selected == is_member).all(axis=1)):
                positions = tuple(shared[index] for index in (*first, start + int(offset)))
                bits = sum(conditions[position].bits(vocabulary) for position in positions)
                options.append((bits, positions))
    if not options:
        return []
    _, cheapest = min(options)
    return [conditions[position] for position in cheapest]


def describe_largest(
    derived: Sequence[Parameters], changed: Bools, log_ratios: Floats, vocabulary: ParameterVocabulary
) -> Magnitude | None:
    """What only the k largest changes share, for the k > 1 after which the size drops most; None without any.

    Not tested against chance, unlike a rule: too few series may have changed for one.

    Args:
        derived: parameters of each case.
        changed: whether each case changed, shape (n,).
        log_ratios: natural logarithm of after / before of each case, shape (n,).
        vocabulary: prior costs and words of the parameters.
    """
    # Changed cases, the largest change first, and how much larger each is than the next one.
    order = sorted(np.flatnonzero(changed), key=lambda position: -abs(log_ratios[position]))
    drops = -np.diff(np.abs(log_ratios[order]), append=0.0)
    stated = stated_conditions(derived, changed, vocabulary)
    conditions = [condition for condition in stated if condition.operator == "="]
    cover = condition_coverage(conditions, derived)
    # First the number of largest changes after which the size drops most.
    for k in sorted(range(2, len(order) + 1), key=lambda k: -drops[k - 1]):
        is_as_large_as_next = k < len(order) and drops[k - 1] < _MAX_SIMILAR_RATIO
        if is_as_large_as_next:
            continue
        largest = order[:k]
        is_largest = np.zeros(len(derived), dtype=bool)
        is_largest[largest] = True
        # Conditions that hold for these and for no other case.
        exact = _exact_conditions(is_largest, conditions, cover, 3, vocabulary)
        if exact:
            ratios = np.exp(log_ratios[largest])
            return Magnitude(
                label=format_conditions(exact, vocabulary),
                ratio=float(np.exp(log_ratios[largest].mean())),
                lowest=float(ratios.min()),
                highest=float(ratios.max()),
                members=tuple(int(position) for position in largest),
            )
    return None


# Fewer changed series outside a rule are exceptions, not a second event.
_MIN_SECOND_RULE_SERIES = 2


def explain_changes(
    observations: Sequence[SeriesResponse], contrast: Sequence[SeriesResponse] = (), *, vocabulary: ParameterVocabulary
) -> Explanation:
    """Find the rule that separates changed from unchanged series, the magnitudes, control group and exceptions.

    Args:
        observations: all series with data before and after the event; at least one.
        contrast: series that changed in the other direction: outside of the rule, but neither control nor exceptions.
        vocabulary: prior costs and words of the parameters.
    """
    derived = [vocabulary.derive(series.parameters) for series in observations]
    changed = np.asarray([series.changed for series in observations], dtype=bool)
    log_ratios = np.asarray([series.log_ratio for series in observations], dtype=np.float64)
    # The contrast did not change in this direction.
    with_contrast = derived + [vocabulary.derive(series.parameters) for series in contrast]
    labels = np.append(changed, np.zeros(len(contrast), dtype=bool))
    rule = find_rule(with_contrast, labels, vocabulary)
    in_first = _series_inside(rule, derived)
    # Changed series outside of the rule may have a common factor of their own.
    second = None
    others = np.flatnonzero(~_series_inside(rule, with_contrast))
    if labels[others].sum() >= _MIN_SECOND_RULE_SERIES:
        rule_of_others = find_rule([with_contrast[i] for i in others], labels[others], vocabulary)
        has_conditions = rule_of_others is not None and bool(rule_of_others.conditions)
        if rule_of_others and has_conditions and rule_of_others.changed_in >= _MIN_SECOND_RULE_SERIES:
            second = rule_of_others
    in_second = np.zeros_like(in_first)
    if second is not None:
        in_second = _series_inside(second, derived) & ~in_first
    inside = in_first | in_second
    outside = ~inside if rule and rule.conditions else np.ones_like(inside)
    # Without a rule, what only the largest changes share; the contrast did not change in this direction.
    largest = None
    if not rule:
        all_log_ratios = np.append(log_ratios, np.zeros(len(contrast)))
        largest = describe_largest(with_contrast, labels, all_log_ratios, vocabulary)
    return Explanation(
        rule=rule,
        magnitudes=group_magnitudes(derived, log_ratios, np.flatnonzero(changed & in_first), vocabulary),
        control=_find_control_group(derived, changed, outside, log_ratios, vocabulary),
        exceptions=_find_exceptions(derived, changed, inside, log_ratios, vocabulary) if rule else (),
        changed=int(changed.sum()),
        total=len(with_contrast),
        second=second,
        second_magnitudes=group_magnitudes(derived, log_ratios, np.flatnonzero(changed & in_second), vocabulary),
        largest=largest,
    )


def _series_inside(rule: Rule | None, derived: Sequence[Parameters]) -> Bools:
    """Whether each case meets the rule, shape (n,); without a rule all do."""
    if rule is None:
        return np.ones(len(derived), dtype=bool)
    return np.asarray([rule.holds(parameters) for parameters in derived], dtype=bool)


def _find_control_group(
    derived: Sequence[Parameters], changed: Bools, outside: Bools, log_ratios: Floats, vocabulary: ParameterVocabulary
) -> ControlGroup | None:
    """The unchanged series outside the rule and their shared conditions.

    They exclude causes that would act on them, too.
    """
    unchanged = [int(i) for i in np.flatnonzero(~changed & outside)]
    if not unchanged:
        return None
    # Parameters that are equal in all unchanged series, and not in all series.
    first = derived[unchanged[0]]
    distinctive: list[Condition] = []
    for name in vocabulary.control_parameters:
        if name not in first or len({str(derived[i].get(name)) for i in unchanged}) > 1:
            continue
        condition = Condition(name, "=", (first[name],))
        if not all(condition.holds(parameters) for parameters in derived):
            distinctive.append(condition)
    # All series outside the rule that these describe.
    group: list[int] = []
    for i, parameters in enumerate(derived):
        if outside[i] and all(condition.holds(parameters) for condition in distinctive):
            group.append(i)
    if not distinctive and outside.all():  # without a rule the others are those that did not change
        group = unchanged
    return ControlGroup(
        label=format_conditions(distinctive, vocabulary) if distinctive else "the other series",
        unchanged=len(unchanged),
        total=len(group),
        ratio=float(np.exp(np.median(log_ratios[unchanged]))),
        members=tuple(unchanged),
    )


def _find_exceptions(
    derived: Sequence[Parameters], changed: Bools, inside: Bools, log_ratios: Floats, vocabulary: ParameterVocabulary
) -> tuple[RuleException, ...]:
    """Changed series outside the rule, then unchanged series inside it."""
    names = vocabulary.name_cases(derived)
    exceptions: list[RuleException] = []
    for member in [*np.flatnonzero(changed & ~inside), *np.flatnonzero(~changed & inside)]:
        ratio = float(np.exp(log_ratios[member]))
        exceptions.append(RuleException(int(member), names[member], ratio, bool(inside[member])))
    return tuple(exceptions)


EventReach = Literal["uniform", "selective", "unknown"]
"""A cause acts on all accesses, can act on a single code path, or may do either."""

# Days; events farther from the change are ignored. A cause acts at once, but may be recorded late.
DAYS_BEFORE, DAYS_AFTER = 7, 3
# Factor of the score for what administrators recorded; with twice as much a remark outweighs a distance of a day more.
_WEIGHT = {"supports": 1.5, "contradicts": 0.5}


@dataclass(frozen=True)
class PossibleCause:
    """An event, or a part of one, as a possible cause of a change.

    Attributes:
        name: for display.
        event: kind of the event that it is, or is a part of, for display (`maintenance`).
        kind: kind of the cause itself, for display (`workload`).
        start, end: epoch seconds UTC; the event lies between them.
        scope: parameters of the series that it can affect (`file_system: scratch`); empty is the whole system.
        evidence: (`supports` | `contradicts`, text) as recorded by administrators.
        reach: which series a cause of this kind changes.
    """

    name: str
    event: str
    kind: str
    start: int
    end: int
    scope: Mapping[str, Scalar] = field(default_factory=dict)
    evidence: tuple[tuple[Literal["supports", "contradicts"], str], ...] = ()
    reach: EventReach = "unknown"


@dataclass(frozen=True)
class RankedCause:
    """A possible cause with its fit; `score` only orders the causes.

    Attributes:
        when: date of the cause relative to the change, for display.
        is_at_change: whether it lies between the last run at the old level and the first one at the new level.
        speaks_for, speaks_against: sentences of evidence for and against the cause.
    """

    name: str
    event: str
    kind: str
    score: float
    when: str
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    is_at_change: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for or against a cause.

    Attributes:
        factor: of the score of the cause.
        text: for display; may be empty.
    """

    factor: float
    verdict: Literal["supports", "contradicts"]
    text: str


def rank_causes(
    suspects: Sequence[PossibleCause],
    last_before: int,
    first_after: int,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    *,
    vocabulary: ParameterVocabulary,
) -> tuple[RankedCause, ...]:
    """Possible causes near the change, best fit first.

    Args:
        suspects: all recorded events.
        last_before, first_after: epoch seconds of the last run at the old level and the first run at the new level.
        observations, explanation: series at the change, and their explanation.
        vocabulary: that of the explanation.
    """
    causes: list[RankedCause] = []
    for suspect in suspects:
        # Distance from the gap between the last old and the first new run; negative if the event is earlier.
        days_before = min(suspect.end - last_before, 0) / DAY_S
        days_after = max(suspect.start - first_after, 0) / DAY_S
        days = days_before or days_after
        # What is farther away is no cause.
        if -DAYS_BEFORE <= days <= DAYS_AFTER:
            causes.append(_score_cause(suspect, days, observations, explanation, vocabulary))
    return tuple(sorted(causes, key=lambda cause: -cause.score))


def _score_cause(
    suspect: PossibleCause,
    days: float,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    vocabulary: ParameterVocabulary,
) -> RankedCause:
    """Score a possible cause by all evidence for and against it: date, scope, reach and what administrators recorded.

    Args:
        days: from the change to the cause; negative if the cause is earlier.
    """
    # What the dates and the series say.
    evidence = [
        _date_evidence(days),
        *_scope_evidence(suspect, observations, explanation, vocabulary),
        *_reach_evidence(suspect, observations, explanation, vocabulary),
    ]
    # What administrators recorded.
    for verdict, text in suspect.evidence:
        evidence.append(Evidence(_WEIGHT[verdict], verdict, text))
    # All of it counts for the score; what has no text is not stated.
    stated = [item for item in evidence if item.text]
    return RankedCause(
        name=suspect.name,
        event=suspect.event,
        kind=suspect.kind,
        score=math.prod(item.factor for item in evidence),
        when=_date_text(days),
        speaks_for=tuple(item.text for item in stated if item.verdict == "supports"),
        speaks_against=tuple(item.text for item in stated if item.verdict == "contradicts"),
        is_at_change=days == 0,
    )


def _days_apart(days: float) -> str:
    """A distance in whole days as text, at least one."""
    count = max(1, round(abs(days)))
    return "1 day" if count == 1 else f"{count} days"


def _date_text(days: float) -> str:
    """Date of a cause relative to the change."""
    if days == 0:
        return "at the change"
    return f"{_days_apart(days)} {'before' if days < 0 else 'after'} the change"


def _date_evidence(days: float) -> Evidence:
    """The evidence that the date of a cause gives: a cause acts at once, but may be recorded late."""
    if days == 0:
        text = "lies between the last run at the old level and the first at the new level"
        return Evidence(1.0, "supports", text)
    if days < 0:
        text = f"{_days_apart(days)} earlier, with unchanged runs in between"
        return Evidence(math.exp(days / 2), "contradicts", text)
    text = f"began {_days_apart(days)} after the first changed run"
    return Evidence(0.1 * math.exp(-days), "contradicts", text)


def _is_in_scope(suspect: PossibleCause, observation: SeriesResponse, vocabulary: ParameterVocabulary) -> bool:
    derived = vocabulary.derive(observation.parameters)
    return all(derived.get(name) == value for name, value in suspect.scope.items())


def _scope_evidence(
    suspect: PossibleCause,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    vocabulary: ParameterVocabulary,
) -> Iterator[Evidence]:
    """Share of the changed series that lie in a stated scope; of two common factors, the better share counts."""
    changed = [series for series in observations if series.changed]
    if not suspect.scope or not changed:
        return
    # All changed series, and those of each of two common factors.
    groups = [("changed series", changed)]
    for rule in (explanation.rule, explanation.second):
        if rule is not None and explanation.second:
            inside = [series for series in changed if rule.holds(vocabulary.derive(series.parameters))]
            groups.append((f"changed series of {rule.text}", inside))
    in_scope = [sum(_is_in_scope(suspect, series, vocabulary) for series in group) for _, group in groups]
    best = max(range(len(groups)), key=lambda i: in_scope[i] / len(groups[i][1]))
    description, group = groups[best]
    scope = ", ".join(f"{name} {value}" for name, value in suspect.scope.items())
    text = f"{in_scope[best]} of {len(group)} {description} lie in its scope ({scope})"
    are_all = in_scope[best] == len(group)
    yield Evidence(max(in_scope[best] / len(group), 0.05), "supports" if are_all else "contradicts", text)


def _reach_evidence(
    suspect: PossibleCause,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    vocabulary: ParameterVocabulary,
) -> Iterator[Evidence]:
    """Whether the changed series are those that a cause of this kind affects."""
    reach, rule, control = suspect.reach, explanation.rule, explanation.control
    in_scope = [series for series in observations if _is_in_scope(suspect, series, vocabulary)] or observations
    share = sum(series.changed for series in in_scope) / len(in_scope)
    outside = [exception.name for exception in explanation.exceptions if not exception.inside]
    others = f"{', '.join(outside)} changed too, outside the common factor"
    if reach == "uniform":
        # A cause that acts on all accesses changes all series, and spares no control group.
        yield Evidence(max(share, 0.05), "supports", "every series that it acts on changed" if share == 1 else "")
        if control is not None and share < 1:
            unchanged = f"{control.label} did not change ({control.unchanged} of {control.total} series)"
            text = f"{suspect.kind} acts on every access, yet {unchanged}"
            yield Evidence(1.0, "contradicts", text)
        if outside:
            yield Evidence(1.0, "supports", others)
    elif reach == "selective":
        if rule is not None and rule.conditions and control is not None:
            paths = f"one path ({explanation.paths}) and spare another ({control.label})"
            yield Evidence(1.0, "supports", f"a change of software or settings can act on {paths}")
        elif share == 1:
            # All series changed: a cause that acts on all series is the simpler one.
            yield Evidence(0.8, "contradicts", "")
        if outside:
            yield Evidence(0.9, "contradicts", others)
    else:
        yield Evidence(0.8, "contradicts", "")
