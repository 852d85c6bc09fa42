"""Advice: the best value of each parameter that a user can choose, from the history or from published tables.

For each parameter, cases are paired that are equal in everything else. The pairs of two values of the parameter are one
comparison (`statistics.compare_groups`: sessions as blocks). All comparisons of one answer are a family: their
intervals have the level 1 - 5 % / number of comparisons (Bonferroni), so that all of them hold together with 95 %, also
those of the value that was selected for being the best. Whether the gain depends on another parameter is a second
family: the pairs are divided in two by a condition, and the intervals of the two parts must not overlap. Published
figures have no sessions: their sample are the cases, each interval has 95 % by itself, and a dependence is a rule that
selects the cases in which a value is better (`statistics.find_subgroups`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median

import numpy as np

from iowatch.comparison import SideEntry
from iowatch.core import METRICS, Case, Scalar, UsageError, get_metric
from iowatch.experiments.advice.choices import (
    CHOICES,
    EQUAL_SIZES,
    AdvisedWorkload,
    Contrast,
    ParameterChoice,
    Parameters,
    case_volume_bytes,
    count_sessions,
    describe_case,
    find_contrasts,
    suites_that_measure,
)
from iowatch.findings import CASE_PARAMETERS, derive_parameters, reported_as
from iowatch.statistics import (
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    compare_groups,
    find_subgroups,
)
from iowatch.statistics.comparison import decide_pair_verdict
from iowatch.statistics.pairs import VerdictKind
from iowatch.statistics.rules import Condition, candidate_conditions

# Probability that any statement of an answer about a best value (or, separately, about a dependence) is false.
FAMILY_ERROR = 0.05
# Of each of two cases. With fewer, the tails of the intervals of a family are too narrow (docs/advise.md).
MIN_SESSIONS = 8
# Two gains that differ by less are not reported as a dependence, however certain the difference is.
_LARGE_DIFFERENCE = 1.25
_MAX_CONDITIONS = 40
# Positions of pairs, by the two values that they compare.
_Groups = dict[tuple[Scalar, Scalar], list[int]]


@dataclass(frozen=True, slots=True)
class ValueRule:
    """A rule over case parameters: `value` is better by `gain` in `cases` of the `of` cases that meet it."""

    value: Scalar
    rule: str
    gain: float
    cases: int
    of: int


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """The best value against another one.

    Attributes:
        value: the other value.
        gain: performance with the best value / with this one.
        ci: interval of `gain`; the intervals of all comparisons of an answer hold together with 95 %, those of
            published figures (over the cases, from three on) only each by itself.
        verdict: `faster` if the best value is better for sure; `bound` is the x of "no difference above x %".
        cases: number of pairs of cases; `better` of them with the best value ahead.
        sessions: typical number of sessions of a pair; None for published figures.
        rules: of published figures, the cases in which one of the two values is better.
    """

    value: Scalar
    gain: float
    ci: tuple[float, float] | None
    verdict: VerdictKind
    bound: float | None
    cases: int
    better: int
    sessions: int | None
    rules: tuple[ValueRule, ...] = ()


@dataclass(frozen=True, slots=True)
class AdvicePart:
    """The best value where a condition holds.

    Attributes:
        where: the condition as text; empty: everywhere.
        best: the value with the highest estimate.
        others: the comparisons of `best`, largest gain first.
    """

    where: str
    best: Scalar
    others: tuple[ValueComparison, ...]

    @property
    def is_sure(self) -> bool:
        """Whether the best value is better than each of the others for sure."""
        return all(other.verdict == "faster" for other in self.others)

    @property
    def is_difference(self) -> bool:
        """Whether the best value is better than at least one other for sure."""
        return any(other.verdict == "faster" for other in self.others)


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """The size of a case; None where it is unknown.

    Attributes:
        volume_bytes: user data over all ranks.
    """

    volume_bytes: int | None
    ranks: Scalar | None


@dataclass(frozen=True, slots=True)
class ChoiceAdvice:
    """Advice on one parameter.

    Attributes:
        parts: one, or two if the best value depends on a condition; empty if nothing was measured.
        joint: parameters that differ together with it in all pairs, so that the effects cannot be separated.
        sizes: of the cases used, each once.
        few_sessions: number of sessions of the longest pair, if no pair has enough; else None.
        suites: suites that measure several values of the parameter.
    """

    choice: ParameterChoice
    parts: tuple[AdvicePart, ...] = ()
    joint: tuple[str, ...] = ()
    sizes: tuple[MeasuredSize, ...] = ()
    few_sessions: int | None = None
    suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on all parameters for one workload.

    Attributes:
        source: where the results are from, as text.
        system: their system, if they have only one.
        is_published: from published tables.
        file_system: that of all cases, if it is only one.
        cases: number of cases examined.
    """

    source: str
    system: str | None
    file_system: str | None
    workload: AdvisedWorkload
    is_published: bool
    cases: int
    choices: tuple[ChoiceAdvice, ...]


# Decision


@dataclass(frozen=True)
class _PairCondition:
    """A condition that divides the pairs of a parameter in two: texts for both parts, and the pairs that meet it."""

    inside: str
    outside: str
    cover: tuple[bool, ...]


@dataclass
class _Plan:
    """The pairs of one parameter at the nearest size; `first` is the position of its first pair among all pairs."""

    choice: ParameterChoice
    contrasts: list[Contrast] = field(default_factory=list)
    few_sessions: int | None = None
    first: int = 0
    divisions: list[_PairCondition] = field(default_factory=list)

    def groups(
        self, cover: Sequence[bool] | None = None, inside: bool = True
    ) -> dict[tuple[Scalar, Scalar], list[int]]:
        """Positions of the pairs of each two values, of all or of those inside (outside) of a condition."""
        groups: _Groups = defaultdict(list)
        for index, contrast in enumerate(self.contrasts):
            if cover is None or cover[index] == inside:
                groups[contrast.values].append(self.first + index)
        return groups


def advise(
    entries: Sequence[SideEntry],
    workload: AdvisedWorkload,
    source: str,
    *,
    system: str | None = None,
    is_published: bool = False,
) -> Advice:
    """The best value of each parameter for a workload.

    Args:
        entries: cases with samples by session, or published figures.
        source: where the results are from, for reports.
        system: their system, if they have only one.
        is_published: `entries` are published figures.
    """
    cases = [describe_case(entry) for entry in entries]
    plans = [_plan(choice, entries, cases, workload, is_published) for choice in CHOICES]
    # The pairs of all parameters are compared together, because their intervals are one family.
    pairs: list[Pair[Case]] = []
    for plan in plans:
        plan.first = len(pairs)
        if not is_published:
            plan.divisions = _divisions(plan)
        for contrast in plan.contrasts:
            pairs.append(_pair_of(contrast, entries))
    decisions = _Decisions(plans, pairs, is_published)
    # For parameters that were not measured: suites that would.
    suites: Mapping[str, tuple[str, ...]] = {}
    if not is_published:
        suites = suites_that_measure([plan.choice for plan in plans if not plan.contrasts], workload)
    choice_advice: list[ChoiceAdvice] = []
    for plan in plans:
        if plan.contrasts:
            choice_advice.append(_choice_advice(plan, decisions, cases))
        else:
            suites_of_choice = suites.get(plan.choice.name, ())
            choice_advice.append(ChoiceAdvice(plan.choice, few_sessions=plan.few_sessions, suites=suites_of_choice))
    return Advice(
        source=source,
        system=system,
        file_system=_only_file_system(cases),
        workload=workload,
        is_published=is_published,
        cases=len(cases),
        choices=tuple(choice_advice),
    )


def _pair_of(contrast: Contrast, entries: Sequence[SideEntry]) -> Pair[Case]:
    """The samples of the two cases of a contrast, for a comparison; its case has what they have in common."""
    left, right = entries[contrast.left], entries[contrast.right]
    parameters = {name: value for name, value in contrast.common.items() if name != "benchmark"}
    case = Case(left.case.benchmark, parameters)
    return Pair(case, left.metric, left.side, right.side, get_metric(left.metric).sign)


def _only_file_system(cases: Sequence[Parameters]) -> str | None:
    """The file system of all cases that name one; None if there are several, or none."""
    file_systems = {str(case["file_system"]) for case in cases if "file_system" in case}
    if len(file_systems) != 1:
        return None
    return file_systems.pop()


def _choice_advice(plan: _Plan, decisions: _Decisions, cases: Sequence[Parameters]) -> ChoiceAdvice:
    """The advice on a parameter that was measured."""
    joint = frozenset.intersection(*(contrast.joint for contrast in plan.contrasts))
    sizes: dict[MeasuredSize, None] = {}  # each once, in their order
    for contrast in plan.contrasts:
        for case in (cases[contrast.left], cases[contrast.right]):
            sizes[MeasuredSize(case_volume_bytes(case), case.get("ranks"))] = None
    parts = tuple(decisions.parts(plan))
    return ChoiceAdvice(plan.choice, parts, joint=tuple(sorted(joint)), sizes=tuple(sizes))


def _plan(
    choice: ParameterChoice,
    entries: Sequence[SideEntry],
    cases: Sequence[Parameters],
    workload: AdvisedWorkload,
    stated: bool,
) -> _Plan:
    """Pairs at the size that is nearest to the workload, of those with enough sessions."""
    # Pairs that differ in other parameters, too, are used only if there are no others.
    joint_attempts = (False, True) if choice.joint else (False,)
    few_sessions: int | None = None
    for joint in joint_attempts:
        usable: list[Contrast] = []
        for contrast in find_contrasts(choice, cases, joint=joint, stated=stated):
            sessions = count_sessions(entries[contrast.left], entries[contrast.right])
            if sessions is None or sessions >= MIN_SESSIONS:
                usable.append(contrast)
            else:
                few_sessions = max(sessions, few_sessions or 0)
        if usable:
            return _Plan(choice, _nearest(usable, cases, workload, per_rank=stated))
    return _Plan(choice, few_sessions=few_sessions)


def _nearest(
    contrasts: Sequence[Contrast], cases: Sequence[Parameters], workload: AdvisedWorkload, *, per_rank: bool
) -> list[Contrast]:
    """The pairs whose sizes are nearest to those of the workload."""
    distances: list[float] = []
    for contrast in contrasts:
        # Of a pair the farther case counts.
        left = workload.distance(cases[contrast.left], per_rank=per_rank)
        right = workload.distance(cases[contrast.right], per_rank=per_rank)
        distances.append(max(left, right))
    limit = min(distances) + EQUAL_SIZES
    return [contrast for contrast, distance in zip(contrasts, distances, strict=True) if distance <= limit]


def _divisions(plan: _Plan) -> list[_PairCondition]:
    """Divisions of the pairs in two, the simplest first."""
    parameters_of_pairs = [derive_parameters(contrast.common) for contrast in plan.contrasts]
    nothing_changed = np.zeros(len(parameters_of_pairs), dtype=bool)
    divisions: dict[tuple[bool, ...], _PairCondition] = {}
    for condition in candidate_conditions(parameters_of_pairs, nothing_changed, CASE_PARAMETERS):
        cover = tuple(condition.holds(parameters) for parameters in parameters_of_pairs)
        # A condition that divides as a simpler one does, or as its opposite, adds nothing.
        opposite = tuple(not is_met for is_met in cover)
        if condition.operator not in ("=", ">=") or cover in divisions or opposite in divisions:
            continue
        # Only where both parts compare the same two values.
        if plan.groups(cover).keys().isdisjoint(plan.groups(cover, inside=False)):
            continue
        values_outside: set[Scalar | None] = set()
        for parameters, is_met in zip(parameters_of_pairs, cover, strict=True):
            if not is_met:
                values_outside.add(parameters.get(condition.parameter))
        inside = condition.words(CASE_PARAMETERS)
        outside = _words_outside(condition, values_outside)
        divisions[cover] = _PairCondition(inside, outside, cover)
    return list(divisions.values())[:_MAX_CONDITIONS]


def _words_outside(condition: Condition, values: set[Scalar | None]) -> str:
    """The pairs that do not meet a condition, in words: by their value, if they have only one.

    Args:
        values: of the parameter, of these pairs.
    """
    if len(values) == 1:
        (value,) = values
        if value is not None:
            return replace(condition, operator="=", values=(value,)).words(CASE_PARAMETERS)
    return f"not {condition.words(CASE_PARAMETERS)}"


@dataclass(frozen=True)
class _GroupKey:
    """Which pairs of a plan a group has.

    Attributes:
        first: position of the first pair of the plan.
        cover: pairs that meet a condition; None: all pairs of the plan.
        is_inside: whether the group has the pairs that meet it, or the others.
    """

    first: int
    cover: tuple[bool, ...] | None = None
    is_inside: bool = True


@dataclass(frozen=True)
class _GroupComparison:
    """The comparison of two values over a group of pairs; `pairs` are the positions of these."""

    overall: OverallComparison
    pairs: list[int]


_Comparisons = dict[tuple[Scalar, Scalar], _GroupComparison]


class _Decisions:
    """Comparisons of all plans, and the parts of the advice that follow from them."""

    def __init__(self, plans: Sequence[_Plan], pairs: Sequence[Pair[Case]], is_published: bool) -> None:
        self.settings = ComparisonSettings()
        # Statements about best values, and those about dependences, are two families.
        best_values: dict[_GroupKey, _Groups] = {}
        dependences: dict[_GroupKey, _Groups] = {}
        for plan in plans:
            if plan.contrasts:
                best_values[_GroupKey(plan.first)] = plan.groups()
            for division in plan.divisions:
                for is_inside in (True, False):
                    key = _GroupKey(plan.first, division.cover, is_inside)
                    dependences[key] = plan.groups(division.cover, is_inside)
        # All groups are compared in one call; `members` says what each is.
        groups: list[tuple[list[int], float]] = []
        members: list[tuple[_GroupKey, tuple[Scalar, Scalar]]] = []
        for family in (best_values, dependences):
            # The error is divided among the statements of a family; printed figures have an interval each.
            statement_count = 1 if is_published else sum(map(len, family.values()))
            for key, groups_of_key in family.items():
                for values, positions in groups_of_key.items():
                    members.append((key, values))
                    groups.append((positions, 1 - FAMILY_ERROR / statement_count))
        with reported_as(UsageError):
            pair_comparisons, overall = compare_groups(pairs, groups, self.settings)
        self.pair_comparisons: list[PairComparison[Case]] = pair_comparisons
        self.comparisons: dict[_GroupKey, _Comparisons] = defaultdict(dict)
        for (key, values), (positions, _), comparison in zip(members, groups, overall, strict=True):
            self.comparisons[key][values] = _GroupComparison(comparison, positions)

    def parts(self, plan: _Plan) -> Iterator[AdvicePart]:
        """One part, or two if the gain depends on a condition for sure."""
        # The condition that explains most of the differences.
        best_division: _PairCondition | None = None
        largest_explained = 0.0
        for division in plan.divisions:
            explained = self._separation(plan, division.cover)
            if explained > largest_explained:
                best_division = division
                largest_explained = explained
        if best_division is None:
            yield self._part("", self.comparisons[_GroupKey(plan.first)])
            return
        inside = _GroupKey(plan.first, best_division.cover, is_inside=True)
        outside = _GroupKey(plan.first, best_division.cover, is_inside=False)
        yield self._part(best_division.inside, self.comparisons[inside])
        yield self._part(best_division.outside, self.comparisons[outside])

    def _separation(self, plan: _Plan, cover: tuple[bool, ...]) -> float:
        """Variance of the log gains that a condition explains; 0 if no gain differs between its parts for sure."""
        inside = self.comparisons[_GroupKey(plan.first, cover, is_inside=True)]
        outside = self.comparisons[_GroupKey(plan.first, cover, is_inside=False)]
        is_sure = False
        explained = 0.0
        for values in inside.keys() & outside.keys():
            left, right = inside[values].overall, outside[values].overall
            if left.ratio is None or right.ratio is None:
                continue
            # The squares between two groups, weighted by their sizes.
            log_difference = log(left.ratio / right.ratio)
            left_count, right_count = len(inside[values].pairs), len(outside[values].pairs)
            explained += log_difference**2 * left_count * right_count / (left_count + right_count)
            # It is sure if the two intervals do not overlap.
            if left.ci is None or right.ci is None:
                continue
            are_apart = left.ci[0] > right.ci[1] or left.ci[1] < right.ci[0]
            if are_apart and abs(log_difference) > log(_LARGE_DIFFERENCE):
                is_sure = True
        return explained if is_sure else 0.0

    def _part(self, where: str, comparisons: _Comparisons) -> AdvicePart:
        """The value with the highest mean log gain over the values that it was compared with, and its comparisons."""
        log_gains: dict[Scalar, list[float]] = defaultdict(list)
        for (left, right), comparison in comparisons.items():
            ratio = comparison.overall.ratio
            log_gain = log(ratio) if ratio else 0.0
            log_gains[right].append(log_gain)
            log_gains[left].append(-log_gain)
        best = max(log_gains, key=lambda value: sum(log_gains[value]) / len(log_gains[value]))
        # Only the comparisons of the best value are reported.
        others: list[ValueComparison] = []
        for (left, right), comparison in comparisons.items():
            if best == right:
                others.append(self._comparison(best, left, comparison))
            elif best == left:
                others.append(self._comparison(best, right, comparison))
        others.sort(key=lambda other: -other.gain)
        return AdvicePart(where, best, tuple(others))

    def _comparison(self, best: Scalar, value: Scalar, group: _GroupComparison) -> ValueComparison:
        """The best value against another one."""
        gain = group.overall.ratio or 1.0
        ci = group.overall.ci
        # The left value of a pair is the first in this order, and the ratio is right / left.
        is_best_left = repr(best) < repr(value)
        if is_best_left:
            gain = 1 / gain
            if ci is not None:
                low, high = ci
                ci = (1 / high, 1 / low)
        # The level of the interval accounts for the family, so the interval alone decides.
        verdict, bound, _ = decide_pair_verdict(0.0 if ci else None, ci, 1, self.settings)
        # In how many cases the best value is ahead, and in how many sessions they were measured.
        sign = -1 if is_best_left else 1
        compared = [self.pair_comparisons[position] for position in group.pairs]
        better_count = 0
        session_counts: list[int] = []
        for pair in compared:
            if pair.ratio is not None and sign * METRICS[pair.metric].log_gain(pair.ratio) > 0:
                better_count += 1
            if pair.left.runs is not None and pair.right.runs is not None:
                session_counts.append(min(pair.left.runs, pair.right.runs))
        # Printed figures have no sessions; their dependences are rules.
        rules: tuple[ValueRule, ...] = ()
        sessions = None
        if session_counts:
            sessions = int(median(session_counts))
        else:
            rules = tuple(self._rules(best, value, compared, sign))
        return ValueComparison(
            value=value,
            gain=gain,
            ci=ci,
            verdict=verdict,
            bound=bound,
            cases=len(compared),
            better=better_count,
            sessions=sessions,
            rules=rules,
        )

    def _rules(
        self, best: Scalar, value: Scalar, compared: Sequence[PairComparison[Case]], sign: int
    ) -> Iterator[ValueRule]:
        """The cases in which one of two values is better, as rules over case parameters.

        Args:
            sign: 1 if the best value is the right one of each pair, else -1.
        """
        for subgroup in find_subgroups(compared, self.settings, CASE_PARAMETERS):
            is_right_better = subgroup.direction == "faster"
            is_best_right = sign > 0
            better_value = best if is_right_better == is_best_right else value
            gain = max(subgroup.ratio, 1 / subgroup.ratio)
            yield ValueRule(better_value, subgroup.rule, gain, subgroup.inside, subgroup.inside_total)
