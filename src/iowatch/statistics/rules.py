"""The shortest rule over case parameters that separates changed from unchanged series.

A rule is a conjunction of conditions. Its score is its description length in bits: the prior cost of its conditions
plus the cost of the labels inside and outside the rule, each with its own unknown share of changed series (marginal
likelihood of a uniform prior, 1 / ((n + 1) C(n, k)); the two-part code of Rissanen and MacKay). The score weighs
precision, recall and brevity in one unit and needs no threshold: a rule that saves no bits is not reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from iowatch.statistics.constants import Bools, Floats
from iowatch.statistics.vocabulary import Parameters, ParameterVocabulary, Scalar

Operator = Literal["=", "!=", "in", ">=", "<"]
Positions = NDArray[np.intp]

# Numbers are ordered, so `ranks >= 64` is simpler than `ranks != 16` or `ranks in 64, 256`.
_NO_ORDER_BITS = 0.6
# A parameter with more values than this is compared for equality and order only.
_MAX_VALUES = 24
# Most values of a free text that a condition lists. Of 100 draws of random labels for 48 series with 24 names, 1 gets a
# rule with such a list; with three 10, and with four 14.
_MAX_FREE_TEXTS = 2
_ORDER_OPERATORS: tuple[Operator, Operator] = (">=", "<")


@dataclass(frozen=True, slots=True)
class Condition:
    """One parameter compared with one value (`in`: with several).

    A case without the parameter does not meet the condition, because an absent parameter cannot be the cause.
    """

    parameter: str
    operator: Operator
    values: tuple[Scalar, ...]

    def holds(self, derived: Parameters) -> bool:
        """Whether `derived` parameters meet the condition."""
        value = derived.get(self.parameter)
        if value is None:
            return False
        if self.operator == "!=":
            return value not in self.values
        if self.operator in ("=", "in"):
            return value in self.values
        assert isinstance(value, (int, float))
        limit = self.values[0]
        assert isinstance(limit, (int, float))
        if self.operator == ">=":
            return value >= limit
        return value < limit

    def bits(self, vocabulary: ParameterVocabulary) -> float:
        """Prior cost: that of the parameter, plus a surcharge for operators other than equality."""
        extra = {"=": 0.0, "!=": 0.9, "in": 0.4 * len(self.values), ">=": 1.0, "<": 1.0}[self.operator]
        if self.operator in ("!=", "in") and _is_number(self.values[0]):
            extra += _NO_ORDER_BITS
        value_bits = vocabulary.value_cost_bits.get((self.parameter, self.values[0]), 0.0)
        return vocabulary.prior_cost_bits(self.parameter) + extra + value_bits

    def words(self, vocabulary: ParameterVocabulary) -> str:
        """The condition as text: `MPI-IO`, `unaligned`, `ranks >= 64`."""
        if self.operator == "=" and (self.parameter, self.values[0]) in vocabulary.labels:
            return vocabulary.labels[self.parameter, self.values[0]]
        values = [vocabulary.format_value(self.parameter, v) for v in self.values]
        if self.parameter in vocabulary.named_by_value and self.operator in ("=", "in"):
            return " or ".join(values)
        if self.parameter in vocabulary.named_by_value and self.operator == "!=":
            return f"not {values[0]}"
        return f"{self.parameter} {self.operator} {', '.join(values)}"


def format_conditions(conditions: Sequence[Condition], vocabulary: ParameterVocabulary) -> str:
    """A conjunction as text, ordered for reading; `all cases` without a condition."""
    if not conditions:
        return "all cases"
    order = vocabulary.text_order

    def position(condition: Condition) -> int:
        return order.index(condition.parameter) if condition.parameter in order else len(order)

    ordered = sorted(conditions, key=position)
    words = []
    for condition in ordered:
        text = condition.words(vocabulary)
        words.append(text if condition.parameter in order else f"with {text}")
    return " ".join(words)


def candidate_conditions(
    derived: Sequence[Parameters], changed: Bools, vocabulary: ParameterVocabulary
) -> list[Condition]:
    """All conditions that could separate the cases, in order of their cost.

    Args:
        derived: parameters of each case, from `vocabulary.derive`.
        changed: whether each case changed, shape (n,); it orders the values of a parameter for `in`.
        vocabulary: prior costs and special numbers of the parameters.
    """
    names: set[str] = set()
    for parameters in derived:
        names |= parameters.keys()
    conditions: list[Condition] = []
    for name in sorted(names):
        values = [parameters.get(name) for parameters in derived]
        distinct = sorted({value for value in values if value is not None}, key=_order_of_value)
        conditions += [Condition(name, "=", (value,)) for value in distinct]
        # With two values the others follow from these.
        if 2 < len(distinct) <= _MAX_VALUES:
            conditions += [Condition(name, "!=", (value,)) for value in distinct]
            conditions += [Condition(name, "in", values_in) for values_in in _value_sets(values, distinct, changed)]
        # Split numbers by their order; numbers that mean "default" or "all" are not ordered.
        special = vocabulary.special_numbers.get(name, frozenset())
        has_order = all(_is_number(value) for value in distinct) and not any(value in special for value in distinct)
        if len(distinct) > 2 and has_order:
            for limit in distinct[1:]:
                conditions += [Condition(name, operator, (limit,)) for operator in _ORDER_OPERATORS]
    return sorted(conditions, key=lambda c: (c.bits(vocabulary), c.parameter, str(c.values)))


def _order_of_value(value: Scalar) -> tuple[str, Scalar]:
    """Values of one type in their order, types apart."""
    return str(type(value)), value


def stated_conditions(
    derived: Sequence[Parameters], changed: Bools, vocabulary: ParameterVocabulary
) -> list[Condition]:
    """`candidate_conditions` that can be a common factor.

    What an import does not know is none, and neither is a list of free texts: it names the changed series one by one.
    """
    stated: list[Condition] = []
    for condition in candidate_conditions(derived, changed, vocabulary):
        is_free_text = vocabulary.is_free_text(condition.parameter, condition.values[0])
        is_list = is_free_text and len(condition.values) > _MAX_FREE_TEXTS
        if "unknown" not in condition.values and not is_list:
            stated.append(condition)
    return stated


def _value_sets(
    values: Sequence[Scalar | None], distinct: Sequence[Scalar], changed: Bools
) -> Iterator[tuple[Scalar, ...]]:
    """Sets of the values with the largest shares of changes: in this order a best split is a prefix (CART, 1984)."""
    share_changed: dict[Scalar, float] = {}
    for value in distinct:
        with_value = [is_changed for other, is_changed in zip(values, changed, strict=True) if other == value]
        share_changed[value] = float(np.mean(with_value))
    ordered = sorted(distinct, key=lambda value: -share_changed[value])
    for size in range(2, min(len(distinct) - 1, 4) + 1):
        yield tuple(sorted(ordered[:size], key=_order_of_value))


def _is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class SeriesResponse:
    """One series at one event.

    Attributes:
        parameters: case parameters, and the axes `benchmark`, `stack`, `partition`, `file_system` if known.
        changed: whether the series changed at the event.
        log_ratio: natural logarithm of after / before; 0.0 if equal.
    """

    parameters: Mapping[str, Scalar]
    changed: bool
    log_ratio: float


@dataclass(frozen=True)
class Rule:
    """A conjunction that separates changed from unchanged series.

    Attributes:
        conditions: empty if every series changed.
        equivalents: for each condition, others that select the same series; the data cannot distinguish them.
        changed_in, total_in: number of changed series and of all series that meet the rule.
        changed_out, total_out: the same for the other series.
        text: the rule as text, with familiar equivalents.
    """

    conditions: tuple[Condition, ...]
    equivalents: tuple[tuple[Condition, ...], ...]
    changed_in: int
    total_in: int
    changed_out: int
    total_out: int
    text: str

    def holds(self, derived: Parameters) -> bool:
        """Whether a case with these `derived` parameters meets all conditions."""
        return all(condition.holds(derived) for condition in self.conditions)

    @property
    def precision(self) -> float:
        """Share of the series inside the rule that changed."""
        return self.changed_in / self.total_in

    @property
    def recall(self) -> float:
        """Share of the changed series that the rule covers."""
        return self.changed_in / (self.changed_in + self.changed_out)


@dataclass(frozen=True)
class Magnitude:
    """Size of the change in one subgroup: geometric mean and range of the ratios after / before.

    `members` are positions in the observations.
    """

    label: str
    ratio: float
    lowest: float
    highest: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class ControlGroup:
    """Unchanged series: `unchanged` of the `total` series that `label` describes, and their median ratio."""

    label: str
    unchanged: int
    total: int
    ratio: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class RuleException:
    """A series that does not fit the rule; `member` is its position in the observations.

    Inside the rule it is one that did not change, outside one that did.
    """

    member: int
    name: str
    ratio: float
    inside: bool


@dataclass(frozen=True)
class Explanation:
    """Common factor of the changed series, magnitudes of the changes, control group, and exceptions.

    `rule` is None if no condition separates changed from unchanged series better than chance. `second` is a rule for
    the changed series outside `rule` if these have a common factor, too: two events at one time. `largest` describes,
    without a rule, what only the largest changes share; it is not tested against chance.
    """

    rule: Rule | None
    magnitudes: tuple[Magnitude, ...]
    control: ControlGroup | None
    exceptions: tuple[RuleException, ...]
    changed: int
    total: int
    second: Rule | None = None
    second_magnitudes: tuple[Magnitude, ...] = ()
    largest: Magnitude | None = None

    @property
    def paths(self) -> str:
        """The common factors as text."""
        return " and ".join(rule.text for rule in (self.rule, self.second) if rule is not None)


# Conditions with this prior cost or less are familiar: they are named in the text of a rule that is equivalent to them.
_MAX_FAMILIAR_COST_BITS = 1.3
# Most conditions of a rule. With twice as many the search takes twice as long, and chance has more conjunctions.
_MAX_CONDITIONS = 3
# Rules that are kept for the next condition. With twice as many the search takes twice as long.
_BEAM = 40
# Bits that a rule has to save beyond its cost, and bits charged for each condition after the first because many
# conjunctions are tried. With both, 48 series with random labels get a rule in 2 to 9 of 100 draws
# (tests/statistics/test_rules.py); without them, in 17.
_MIN_SAVING_BITS = 2.0
CONJUNCTION_BITS = 0.75
# Number of values of a parameter that the prior cost of a condition includes.
_FEW_VALUES = 4


@dataclass(frozen=True)
class _RuleCandidate:
    bits: float
    conditions: tuple[int, ...]
    cover: Bools


def _label_bits(changed: Floats, total: Floats) -> Floats:
    """Bits needed to encode which of `total` are the `changed`: log2 of (n + 1) C(n, k)."""
    gammaln = scipy.special.gammaln
    choose = gammaln(total + 1) - gammaln(changed + 1) - gammaln(total - changed + 1)
    return np.asarray((choose + np.log(total + 1)) / np.log(2), dtype=np.float64)


def condition_coverage(conditions: Sequence[Condition], derived: Sequence[Parameters]) -> Bools:
    """Whether each condition holds for each case: shape (conditions, cases)."""
    table = [[condition.holds(parameters) for parameters in derived] for condition in conditions]
    return np.asarray(table, dtype=bool).reshape(len(conditions), len(derived))


def _description_length(cover: Bools, changed: Bools) -> Floats:
    """Bits of the labels for each row of `cover`; infinite if changes are not more frequent inside."""
    inside = cover.sum(axis=1).astype(float)
    hit = (cover & changed).sum(axis=1).astype(float)
    outside, missed = len(changed) - inside, changed.sum() - hit
    bits = _label_bits(hit, inside) + _label_bits(missed, outside)
    return np.where(hit * outside > missed * inside, bits, np.inf)


def _extend_rules(
    parents: Sequence[_RuleCandidate], usable: Positions, costs: Floats, cover: Bools, changed: Bools
) -> list[_RuleCandidate]:
    """Rules of one more condition than each parent: for each different cover the one of lowest cost.

    Args:
        usable: positions of the conditions that may be added.
        costs, cover: of all conditions, shapes (conditions,) and (conditions, cases).
        changed: whether each case changed, shape (cases,).
    """
    cheapest: dict[bytes, _RuleCandidate] = {}
    for parent in parents:
        rows = cover[usable] & parent.cover
        parent_bits = costs[list(parent.conditions)].sum() + CONJUNCTION_BITS * len(parent.conditions)
        bits = _description_length(rows, changed) + parent_bits + costs[usable]
        for position in np.argsort(bits, kind="stable")[:_BEAM]:
            row, total = rows[position], float(bits[position])
            adds_nothing = (row == parent.cover).all()
            if adds_nothing or not np.isfinite(total):
                continue
            rival = cheapest.get(row.tobytes())
            if rival is None or total < rival.bits - 1e-9:
                conditions = (*parent.conditions, int(usable[position]))
                cheapest[row.tobytes()] = _RuleCandidate(total, conditions, row)
    return sorted(cheapest.values(), key=lambda candidate: candidate.bits)[:_BEAM]


def find_rule(derived: Sequence[Parameters], changed: Bools, vocabulary: ParameterVocabulary) -> Rule | None:
    """The shortest rule of at most three conditions, or None if no rule saves enough bits.

    Args:
        derived: parameters of each case, from `vocabulary.derive`.
        changed: whether each case changed, shape (n,).
        vocabulary: prior costs of the parameters, and words for the text of the rule.
    """
    if not changed.any():
        return None
    if changed.all():
        return Rule((), (), len(changed), len(changed), 0, 0, "all cases")
    conditions = stated_conditions(derived, changed, vocabulary)
    cover = condition_coverage(conditions, derived)
    # For a parameter with many values the choice among them costs, too.
    values = Counter(condition.parameter for condition in conditions if condition.operator == "=")
    costs = np.zeros(len(conditions))
    for position, condition in enumerate(conditions):
        bits_of_choice = max(0.0, np.log2(values[condition.parameter] / _FEW_VALUES))
        costs[position] = condition.bits(vocabulary) + bits_of_choice
    # For each different cover only the condition of lowest cost.
    cheapest: dict[bytes, int] = {}
    for position in np.argsort(costs, kind="stable"):
        if cover[position].any() and not cover[position].all():
            cheapest.setdefault(cover[position].tobytes(), int(position))
    usable = np.asarray(sorted(cheapest.values()), dtype=np.intp)
    # The best rule of each number of conditions, and the best of these.
    beam = [_RuleCandidate(0.0, (), np.ones(len(changed), dtype=bool))]
    best_of_size: list[_RuleCandidate] = []
    for _ in range(_MAX_CONDITIONS):
        beam = _extend_rules(beam, usable, costs, cover, changed)
        best_of_size += beam[:1]
    best = min(best_of_size, key=lambda candidate: candidate.bits, default=None)
    # It must be shorter than the list of the changed cases.
    bits_without_rule = float(_label_bits(np.array([changed.sum()], float), np.array([len(changed)], float))[0])
    if best is None or best.bits > bits_without_rule - _MIN_SAVING_BITS:
        return None
    return _make_rule(best, conditions, cover, changed, vocabulary)


def _make_rule(
    best: _RuleCandidate, conditions: list[Condition], cover: Bools, changed: Bools, vocabulary: ParameterVocabulary
) -> Rule:
    """The rule of a candidate, with its text."""
    positions = sorted(best.conditions)
    equivalents: list[tuple[Condition, ...]] = []
    named = [conditions[position] for position in positions]
    for position in positions:
        # Conditions that select the same cases in the place of this one.
        rest = cover[[other for other in positions if other != position]].all(axis=0)
        selects_the_same = ((cover & rest) == best.cover).all(axis=1)
        alternatives = [p for p in np.flatnonzero(selects_the_same) if p not in positions]
        equivalents.append(tuple(conditions[p] for p in alternatives))
        # Equivalents of low prior cost are familiar and are named with the conditions of the rule.
        for condition in equivalents[-1]:
            concepts = {vocabulary.concept(other.parameter) for other in named}
            concept = vocabulary.concept(condition.parameter)
            if condition.bits(vocabulary) <= _MAX_FAMILIAR_COST_BITS and concept not in concepts:
                named.append(condition)
    inside, hit = int(best.cover.sum()), int((best.cover & changed).sum())
    return Rule(
        conditions=tuple(conditions[position] for position in positions),
        equivalents=tuple(equivalents),
        changed_in=hit,
        total_in=inside,
        changed_out=int(changed.sum()) - hit,
        total_out=len(changed) - inside,
        text=format_conditions(named, vocabulary),
    )
