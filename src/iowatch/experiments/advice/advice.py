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
    Contrast,
    ParameterChoice,
    Parameters,
    Workload,
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
from iowatch.statistics.rules import candidate_conditions

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
        return all(one.verdict == "faster" for one in self.others)

    @property
    def is_difference(self) -> bool:
        """Whether the best value is better than at least one other for sure."""
        return any(one.verdict == "faster" for one in self.others)


@dataclass(frozen=True, slots=True)
class ChoiceAdvice:
    """Advice on one parameter.

    Attributes:
        parts: one, or two if the best value depends on a condition; empty if nothing was measured.
        joint: parameters that differ together with it in all pairs, so that the effects cannot be separated.
        sizes: (volume in bytes, ranks) of the cases used, each once; None where unknown.
        few_sessions: number of sessions of the longest pair, if no pair has enough; else None.
        suites: suites that measure several values of the parameter.
    """

    choice: ParameterChoice
    parts: tuple[AdvicePart, ...] = ()
    joint: tuple[str, ...] = ()
    sizes: tuple[tuple[int | None, Scalar | None], ...] = ()
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
    workload: Workload
    is_published: bool
    cases: int
    choices: tuple[ChoiceAdvice, ...]


# Decision


@dataclass(frozen=True)
class _Division:
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
    covers: list[_Division] = field(default_factory=list)

    def groups(
        self, cover: Sequence[bool] | None = None, inside: bool = True
    ) -> dict[tuple[Scalar, Scalar], list[int]]:
        """Positions of the pairs of each two values, of all or of those inside (outside) of a condition."""
        found: _Groups = defaultdict(list)
        for index, contrast in enumerate(self.contrasts):
            if cover is None or cover[index] == inside:
                found[contrast.values].append(self.first + index)
        return found


def advise(
    entries: Sequence[SideEntry],
    workload: Workload,
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
    pairs: list[Pair[Case]] = []
    for plan in plans:
        plan.first = len(pairs)
        plan.covers = [] if is_published else _conditions(plan)
        for contrast in plan.contrasts:
            left, right = entries[contrast.left], entries[contrast.right]
            case = Case(left.case.benchmark, {k: v for k, v in contrast.common.items() if k != "benchmark"})
            pairs.append(Pair(case, left.metric, left.side, right.side, get_metric(left.metric).sign))
    decided = _Decisions(plans, pairs, is_published)
    silent = [plan.choice for plan in plans if not plan.contrasts]
    suites = {} if is_published else suites_that_measure(silent, workload)
    found = []
    for plan in plans:
        if not plan.contrasts:
            few, known = plan.few_sessions, suites.get(plan.choice.name, ())
            found.append(ChoiceAdvice(plan.choice, few_sessions=few, suites=known))
            continue
        joint = frozenset.intersection(*(contrast.joint for contrast in plan.contrasts))
        used = [cases[index] for contrast in plan.contrasts for index in (contrast.left, contrast.right)]
        sizes = tuple(dict.fromkeys((case_volume_bytes(case), case.get("ranks")) for case in used))
        found.append(ChoiceAdvice(plan.choice, tuple(decided.parts(plan)), tuple(sorted(joint)), sizes))
    names = {str(case["file_system"]) for case in cases if "file_system" in case}
    file_system = names.pop() if len(names) == 1 else None
    return Advice(source, system, file_system, workload, is_published, len(cases), tuple(found))


def _plan(
    choice: ParameterChoice, entries: Sequence[SideEntry], cases: Sequence[Parameters], workload: Workload, stated: bool
) -> _Plan:
    """Pairs at the size that is nearest to the workload, of those with enough sessions."""
    most = None
    for joint in (False, True) if choice.joint else (False,):
        contrasts = find_contrasts(choice, cases, joint=joint, stated=stated)
        sessions = [count_sessions(entries[c.left], entries[c.right]) for c in contrasts]
        usable = [c for c, n in zip(contrasts, sessions, strict=True) if n is None or n >= MIN_SESSIONS]
        if usable:
            far = [max(workload.distance(cases[i], per_rank=stated) for i in (c.left, c.right)) for c in usable]
            return _Plan(choice, [c for c, d in zip(usable, far, strict=True) if d <= min(far) + EQUAL_SIZES])
        most = max([n for n in sessions if n is not None], default=most)
    return _Plan(choice, few_sessions=most)


def _conditions(plan: _Plan) -> list[_Division]:
    """Divisions of the pairs in two, the simplest first."""
    derived = [derive_parameters(contrast.common) for contrast in plan.contrasts]
    found: dict[tuple[bool, ...], _Division] = {}
    nothing_changed = np.zeros(len(derived), dtype=bool)
    for condition in candidate_conditions(derived, nothing_changed, CASE_PARAMETERS):
        cover = tuple(condition.holds(parameters) for parameters in derived)
        opposite = tuple(not one for one in cover)
        if condition.operator not in ("=", ">=") or cover in found or opposite in found:
            continue
        if set(plan.groups(cover)) & set(plan.groups(cover, inside=False)):
            others = {p.get(condition.parameter) for p, met in zip(derived, cover, strict=True) if not met}
            only = others.pop() if len(others) == 1 else None
            inside = condition.words(CASE_PARAMETERS)
            if only is None:
                outside = f"not {inside}"
            else:
                outside = replace(condition, operator="=", values=(only,)).words(CASE_PARAMETERS)
            found[cover] = _Division(inside, outside, cover)
    return list(found.values())[:_MAX_CONDITIONS]


_Key = tuple[int, tuple[bool, ...] | None, bool]
# Comparison and positions of its pairs, by the two values.
_Found = dict[tuple[Scalar, Scalar], tuple[OverallComparison, list[int]]]


class _Decisions:
    """Comparisons of all plans, and the parts of the advice that follow from them."""

    def __init__(self, plans: Sequence[_Plan], pairs: Sequence[Pair[Case]], is_published: bool) -> None:
        self.settings = ComparisonSettings()
        families: list[dict[_Key, _Groups]] = [
            {(plan.first, None, True): plan.groups() for plan in plans if plan.contrasts},
            {
                (plan.first, cover, inside): plan.groups(cover, inside)
                for plan in plans
                for cover in (one.cover for one in plan.covers)
                for inside in (True, False)
            },
        ]
        groups, keys = [], []
        for family in families:
            members = [(key, values, of) for key, found in family.items() for values, of in found.items()]
            size = 1 if is_published else len(members)
            groups += [(of, 1 - FAMILY_ERROR / size) for _, _, of in members]
            keys += [(key, values, of) for key, values, of in members]
        with reported_as(UsageError):
            compared, overall = compare_groups(pairs, groups, self.settings)
        self.compared: list[PairComparison[Case]] = compared
        self.found: dict[_Key, _Found] = defaultdict(dict)
        for (key, values, of), one in zip(keys, overall, strict=True):
            self.found[key][values] = one, of

    def parts(self, plan: _Plan) -> Iterator[AdvicePart]:
        """One part, or two if the gain depends on a condition for sure."""
        depends = [(self._separation(plan, one.cover), one) for one in plan.covers]
        explained, best = max(depends, key=lambda row: row[0], default=(0.0, None))
        if best is None or explained <= 0:
            yield self._part("", self.found[plan.first, None, True])
            return
        yield self._part(best.inside, self.found[plan.first, best.cover, True])
        yield self._part(best.outside, self.found[plan.first, best.cover, False])

    def _separation(self, plan: _Plan, cover: tuple[bool, ...]) -> float:
        """Variance of the log gains that a condition explains; 0 if no gain differs between its parts for sure."""
        inside, outside = (self.found[plan.first, cover, of] for of in (True, False))
        sure, explained = False, 0.0
        for values in inside.keys() & outside.keys():
            (one, of_one), (other, of_other) = inside[values], outside[values]
            if one.ratio is None or other.ratio is None:
                continue
            gap = log(one.ratio / other.ratio)
            explained += gap**2 * len(of_one) * len(of_other) / (len(of_one) + len(of_other))
            if one.ci is not None and other.ci is not None and abs(gap) > log(_LARGE_DIFFERENCE):
                sure |= one.ci[0] > other.ci[1] or one.ci[1] < other.ci[0]
        return explained if sure else 0.0

    def _part(
        self, where: str, found: Mapping[tuple[Scalar, Scalar], tuple[OverallComparison, list[int]]]
    ) -> AdvicePart:
        """The value with the highest mean log gain over the values that it was compared with, and its comparisons."""
        gains: dict[Scalar, list[float]] = defaultdict(list)
        for (left, right), (one, _) in found.items():
            gain = log(one.ratio) if one.ratio else 0.0
            gains[right].append(gain)
            gains[left].append(-gain)
        best = max(gains, key=lambda value: sum(gains[value]) / len(gains[value]))
        others = []
        for (left, right), (one, of) in found.items():
            if best in (left, right):
                others.append(self._comparison(best, left if best == right else right, one, of))
        return AdvicePart(where, best, tuple(sorted(others, key=lambda one: -one.gain)))

    def _comparison(self, best: Scalar, value: Scalar, one: OverallComparison, of: Sequence[int]) -> ValueComparison:
        compared = [self.compared[i] for i in of]
        ratio, ci, sign = one.ratio or 1.0, one.ci, 1
        if repr(best) < repr(value):  # pairs are in this order, and their ratio is right / left
            ratio, ci, sign = 1 / ratio, (1 / ci[1], 1 / ci[0]) if ci else None, -1
        # The level of the interval accounts for the family, so the interval alone decides.
        verdict, bound, _ = decide_pair_verdict(0.0 if ci else None, ci, 1, self.settings)
        counts = [min(runs) for pair in compared if (runs := _runs(pair)) is not None]
        ahead = sum(
            pair.ratio is not None and sign * METRICS[pair.metric].log_gain(pair.ratio) > 0 for pair in compared
        )
        rules = () if counts else tuple(self._rules(best, value, compared, sign))
        sessions = int(median(counts)) if counts else None
        return ValueComparison(value, ratio, ci, verdict, bound, len(of), ahead, sessions, rules)

    def _rules(
        self, best: Scalar, value: Scalar, compared: Sequence[PairComparison[Case]], sign: int
    ) -> Iterator[ValueRule]:
        for group in find_subgroups(compared, self.settings, CASE_PARAMETERS):
            ahead = (group.direction == "faster") == (sign > 0)
            gain = max(group.ratio, 1 / group.ratio)
            yield ValueRule(best if ahead else value, group.rule, gain, group.inside, group.inside_total)


def _runs(one: PairComparison[Case]) -> tuple[int, int] | None:
    if one.left.runs is None or one.right.runs is None:
        return None
    return one.left.runs, one.right.runs
