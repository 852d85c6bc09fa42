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

from iowatch.statistics.rules import (
    Bools,
    Condition,
    ControlGroup,
    Explanation,
    Floats,
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

# Ratios within a factor of 1.5 of each other are reported as one number.
_MAX_SIMILAR_RATIO = math.log(1.5)
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
    start = [np.arange(len(inside))]
    if np.ptp(ratios) > _MAX_SIMILAR_RATIO:
        start = [np.flatnonzero(operations == one) for one in np.unique(operations)]
    # Repeatedly split the group with the widest range of ratios if a condition explains the range.
    done: list[Positions] = []
    while start:
        start.sort(key=lambda g: float(np.ptp(ratios[g])))
        group = start.pop()
        best = _best_split(group, ratios, costs, cover)
        if best is None or len(done) + len(start) + 2 > _MAX_GROUPS:
            done.append(group)
        else:
            start += [group[best], group[~best]]
    magnitudes = [
        Magnitude(
            label=_with_benchmarks(_group_label(group, conditions, cover, vocabulary), group, programs),
            ratio=float(np.exp(ratios[group].mean())),
            lowest=float(np.exp(ratios[group].min())),
            highest=float(np.exp(ratios[group].max())),
            members=tuple(int(members[g]) for g in group),
        )
        for group in done
    ]
    return tuple(sorted(magnitudes, key=lambda m: -abs(math.log(m.ratio))))


def _best_split(group: Positions, ratios: Floats, costs: Sequence[float], cover: Bools) -> Bools | None:
    """Coverage, shape (members,), of the condition that best explains the variance at low prior cost.

    None if the ratios are similar.
    """
    inside = ratios[group]
    if np.ptp(inside) <= _MAX_SIMILAR_RATIO:
        return None
    best, best_value = None, 0.0
    spread = float(np.var(inside)) * len(inside)
    for cost, row in zip(costs, cover[:, group], strict=True):
        if row.all() or not row.any():
            continue
        rest = sum(float(np.var(part)) * len(part) for part in (inside[row], inside[~row]))
        # Of conditions that explain about the same variance, prefer the one with the lower prior cost.
        value = (spread - rest) / spread - 0.05 * cost
        if value > best_value:
            best, best_value = row, value
    return best


def _with_benchmarks(label: str, group: Positions, programs: Sequence[str]) -> str:
    """Label with its benchmarks, `HDF5 reads (flash)`.

    They are added if the changed series are of several benchmarks and the group is of at most two.
    """
    benchmarks = sorted({programs[g] for g in group} - {""})
    distinctive = len(set(programs)) > 1 and 0 < len(benchmarks) <= 2 and not any(name in label for name in benchmarks)
    return f"{label} ({', '.join(benchmarks)})" if label and distinctive else label


def _group_label(group: Positions, conditions: list[Condition], cover: Bools, vocabulary: ParameterVocabulary) -> str:
    """The one or two conditions of lowest cost that select exactly the group, or the conditions its members share."""
    wanted = np.zeros(cover.shape[1], dtype=bool)
    wanted[group] = True
    if wanted.all():
        return ""
    exact = _exact_conditions(wanted, conditions, cover, 2, vocabulary)
    if exact:
        return format_conditions(exact, vocabulary)
    shared = [p for p in range(len(conditions)) if cover[p][wanted].all()]
    distinctive = [conditions[p] for p in shared if conditions[p].operator == "=" and not cover[p].all()]
    return f"other {format_conditions(distinctive[:2], vocabulary)}" if distinctive else "others"


def _exact_conditions(
    wanted: Bools, conditions: list[Condition], cover: Bools, most: int, vocabulary: ParameterVocabulary
) -> list[Condition]:
    """The conditions of lowest cost, at most `most`, that select exactly the `wanted` cases; empty without such."""
    shared = [p for p in range(len(conditions)) if cover[p][wanted].all()]
    options: list[tuple[float, tuple[int, ...]]] = []
    for size in range(1, most + 1):
        for chosen in combinations(shared, size):
            if (cover[list(chosen)].all(axis=0) == wanted).all():
                options.append((sum(conditions[p].bits(vocabulary) for p in chosen), chosen))
    return [conditions[p] for p in min(options)[1]] if options else []


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
    order = sorted(np.flatnonzero(changed), key=lambda p: -abs(log_ratios[p]))
    drops = -np.diff(np.abs(log_ratios[order]), append=0.0)
    conditions = [c for c in stated_conditions(derived, changed, vocabulary) if c.operator == "="]
    cover = condition_coverage(conditions, derived)
    for k in sorted(range(2, len(order) + 1), key=lambda k: -drops[k - 1]):
        if k < len(order) and drops[k - 1] < _MAX_SIMILAR_RATIO:
            continue  # as large as the next one
        wanted = np.zeros(len(derived), dtype=bool)
        wanted[order[:k]] = True
        if exact := _exact_conditions(wanted, conditions, cover, 3, vocabulary):
            ratios = np.exp(log_ratios[order[:k]])
            mean = float(np.exp(log_ratios[order[:k]].mean()))
            members = tuple(int(p) for p in order[:k])
            return Magnitude(
                format_conditions(exact, vocabulary), mean, float(ratios.min()), float(ratios.max()), members
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
    derived = [vocabulary.derive(o.parameters) for o in observations]
    apart = [vocabulary.derive(o.parameters) for o in contrast]
    changed = np.asarray([o.changed for o in observations], dtype=bool)
    log_ratios = np.asarray([o.log_ratio for o in observations], dtype=np.float64)
    everything, labels = [*derived, *apart], np.append(changed, np.zeros(len(apart), dtype=bool))
    rule = find_rule(everything, labels, vocabulary)
    first = _series_inside(rule, derived)
    second = None
    others = np.flatnonzero(~_series_inside(rule, everything))
    if labels[others].sum() >= _MIN_SECOND_RULE_SERIES:
        found = find_rule([everything[i] for i in others], labels[others], vocabulary)
        if found and found.conditions and found.changed_in >= _MIN_SECOND_RULE_SERIES:
            second = found
    rest = _series_inside(second, derived) & ~first if second else np.zeros_like(first)
    inside = first | rest
    outside = ~inside if rule and rule.conditions else np.ones_like(inside)
    # Without a rule, what only the largest changes share; the contrast did not change in this direction.
    largest = None
    if not rule:
        all_log_ratios = np.append(log_ratios, np.zeros(len(apart)))
        largest = describe_largest(everything, labels, all_log_ratios, vocabulary)
    return Explanation(
        rule=rule,
        magnitudes=group_magnitudes(derived, log_ratios, np.flatnonzero(changed & first), vocabulary),
        control=_find_control_group(derived, changed, outside, log_ratios, vocabulary),
        exceptions=_find_exceptions(derived, changed, inside, log_ratios, vocabulary) if rule else (),
        changed=int(changed.sum()),
        total=len(everything),
        second=second,
        second_magnitudes=group_magnitudes(derived, log_ratios, np.flatnonzero(changed & rest), vocabulary),
        largest=largest,
    )


def _series_inside(rule: Rule | None, derived: Sequence[Parameters]) -> Bools:
    conditions: tuple[Condition, ...] = rule.conditions if rule else ()
    return np.asarray([all(c.holds(d) for c in conditions) for d in derived], dtype=bool)


def _find_control_group(
    derived: Sequence[Parameters], changed: Bools, outside: Bools, log_ratios: Floats, vocabulary: ParameterVocabulary
) -> ControlGroup | None:
    """The unchanged series outside the rule and their shared conditions.

    They exclude causes that would act on them, too.
    """
    unchanged = [int(i) for i in np.flatnonzero(~changed & outside)]
    if not unchanged:
        return None
    shared = [
        Condition(name, "=", (derived[unchanged[0]][name],))
        for name in vocabulary.control_parameters
        if name in derived[unchanged[0]] and len({str(derived[u].get(name)) for u in unchanged}) == 1
    ]
    distinctive = [c for c in shared if any(not c.holds(d) for d in derived)]
    group = [i for i, d in enumerate(derived) if outside[i] and all(c.holds(d) for c in distinctive)]
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
    found = []
    for member in [*np.flatnonzero(changed & ~inside), *np.flatnonzero(~changed & inside)]:
        ratio = float(np.exp(log_ratios[member]))
        why = (
            f"changed ×{ratio:.3g} although outside the common factor"
            if changed[member]
            else f"did not change (×{ratio:.3g}) although inside the common factor"
        )
        name = names[member]
        found.append(RuleException(int(member), name, ratio, bool(inside[member]), f"{name}: {why}"))
    return tuple(found)


EventReach = Literal["uniform", "selective", "unknown"]
"""A cause acts on all accesses, can act on a single code path, or may do either."""

# Days; events farther from the change are ignored. A cause acts at once, but may be recorded late.
DAYS_BEFORE, DAYS_AFTER = 7, 3
_DAY_S = 86_400
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


Evidence = tuple[float, Literal["supports", "contradicts"], str]
"""Factor of the score of a cause, verdict, and text for display; the text may be empty."""


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
    causes = []
    for suspect in suspects:
        # Distance from the gap between the last old and the first new run; negative if the event is earlier.
        days = min(suspect.end - last_before, 0) / _DAY_S or max(suspect.start - first_after, 0) / _DAY_S
        if -DAYS_BEFORE <= days <= DAYS_AFTER:
            causes.append(_score_cause(suspect, days, observations, explanation, vocabulary))
    return tuple(sorted(causes, key=lambda c: -c.score))


def _score_cause(
    suspect: PossibleCause,
    days: float,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    vocabulary: ParameterVocabulary,
) -> RankedCause:
    when, by_date = _date_evidence(days)
    evidence = [
        by_date,
        *_scope_evidence(suspect, observations, explanation, vocabulary),
        *_reach_evidence(suspect, observations, explanation, vocabulary),
        *((_WEIGHT[verdict], verdict, text) for verdict, text in suspect.evidence),
    ]
    supports, contradicts = (
        tuple(text for _, verdict, text in evidence if verdict == wanted and text)
        for wanted in ("supports", "contradicts")
    )
    score = math.prod(factor for factor, _, _ in evidence)
    return RankedCause(suspect.name, suspect.event, suspect.kind, score, when, supports, contradicts, days == 0)


def _date_evidence(days: float) -> tuple[str, Evidence]:
    """Date relative to the change as text, and the evidence that it gives."""
    if days == 0:
        text = "lies between the last run at the old level and the first at the new level"
        return "at the change", (1.0, "supports", text)
    count = max(1, round(abs(days)))
    apart = "1 day" if count == 1 else f"{count} days"
    if days < 0:
        text = f"{apart} earlier, with unchanged runs in between"
        return f"{apart} before the change", (math.exp(days / 2), "contradicts", text)
    text = f"began {apart} after the first changed run"
    return f"{apart} after the change", (0.1 * math.exp(-days), "contradicts", text)


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
    changed = [o for o in observations if o.changed]
    if not suspect.scope or not changed:
        return
    groups = [("changed series", changed)]
    for rule in (explanation.rule, explanation.second):
        if rule is not None and explanation.second:
            inside = [o for o in changed if rule.holds(vocabulary.derive(o.parameters))]
            groups.append((f"changed series of {rule.text}", inside))
    held = [sum(_is_in_scope(suspect, o, vocabulary) for o in group) for _, group in groups]
    best = max(range(len(groups)), key=lambda i: held[i] / len(groups[i][1]))
    description, group = groups[best]
    stated = ", ".join(f"{name} {value}" for name, value in suspect.scope.items())
    text = f"{held[best]} of {len(group)} {description} lie in its scope ({stated})"
    yield max(held[best] / len(group), 0.05), "supports" if held[best] == len(group) else "contradicts", text


def _reach_evidence(
    suspect: PossibleCause,
    observations: Sequence[SeriesResponse],
    explanation: Explanation,
    vocabulary: ParameterVocabulary,
) -> Iterator[Evidence]:
    """Whether the changed series are those that a cause of this kind affects."""
    reach, rule, control = suspect.reach, explanation.rule, explanation.control
    in_scope = [o for o in observations if _is_in_scope(suspect, o, vocabulary)] or observations
    share = sum(o.changed for o in in_scope) / len(in_scope)
    outside = [e.name for e in explanation.exceptions if not e.inside]
    others = f"{', '.join(outside)} changed too, outside the common factor"
    if reach == "uniform":
        yield max(share, 0.05), "supports", "every series that it acts on changed" if share == 1 else ""
        if control is not None and share < 1:
            text = (
                f"{suspect.kind} acts on every access, yet {control.label} did not change "
                f"({control.unchanged} of {control.total} series, ×{control.ratio:.2g})"
            )
            yield 1.0, "contradicts", text
        if outside:
            yield 1.0, "supports", others
    elif reach == "selective":
        if rule is not None and rule.conditions and control is not None:
            paths = f"one path ({explanation.paths}) and spare another ({control.label})"
            yield 1.0, "supports", f"a change of software or settings can act on {paths}"
        elif share == 1:
            # All series changed: a cause that acts on all series is the simpler one.
            yield 0.8, "contradicts", ""
        if outside:
            yield 0.9, "contradicts", others
    else:
        yield 0.8, "contradicts", ""
