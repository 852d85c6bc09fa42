"""The shortest rule over case parameters that separates changed from unchanged series.

A rule is a conjunction of conditions. Its score is its description length in bits: the prior cost of its conditions
plus the cost of the labels inside and outside the rule, each with its own unknown share of changed series (marginal
likelihood of a uniform prior, 1 / ((n + 1) C(n, k)); the two-part code of Rissanen and MacKay). The score weighs
precision, recall and brevity in one unit and needs no threshold: a rule that saves no bits is not reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from iowatch.core import HINTS, MIB, Scalar, describe_hints, format_size, split_hints

Parameters = Mapping[str, Scalar]
Operator = Literal["=", "!=", "in", ">=", "<"]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

# HDF5, NetCDF-4 and PnetCDF write a shared file through MPI-IO.
_OVER_MPIIO = {"HDF5", "NETCDF4", "PNETCDF"}

# Prior cost in bits of a condition on each parameter. Interfaces, file layout and alignment are code paths of a file
# system; the name of a benchmark or a size is hardly ever a cause by itself.
_PRIOR_COST_BITS: dict[str, float] = {
    "mpiio": 1.0,
    "file": 1.1,
    "operation": 1.2,
    "aligned": 1.2,
    "file_system": 1.2,
    "stack": 1.3,
    "partition": 1.3,
    "api": 1.5,
    "stripe_count": 1.6,
    "collective": 1.6,
    "cb": 1.6,
    "ds": 2.0,
    "pattern": 2.0,
    "nodes": 2.2,
    "layout": 2.2,
    "ranks": 2.5,
    "transfer_bytes": 2.5,
    "benchmark": 2.6,
    "total_bytes": 5.0,
    "block_bytes": 5.0,
    "segments": 5.0,
    "local_size": 5.0,
    "global_size": 5.0,
}
_DEFAULT_PRIOR_COST_BITS = 3.5
# `POSIX` or `file per process` is more specific than `not MPI-IO`.
_VALUE_BITS: dict[tuple[str, Scalar], float] = {("mpiio", False): 0.6}
# Numbers are ordered, so `ranks >= 64` is simpler than `ranks != 16` or `ranks in 64, 256`.
_NO_ORDER_BITS = 0.6
_SIZES = (
    *("transfer_bytes", "block_bytes", "total_bytes", "stripe_bytes", "alignment_bytes"),
    *(name for name, hint in HINTS.items() if hint.is_size),
)

# Order of the conditions in text: "unaligned MPI-IO shared file reads".
_ORDER = ["file_system", "partition", "stack", "benchmark", "aligned", "mpiio", "api", "file", "operation"]
_VALUE_LABELS: dict[tuple[str, Scalar], str] = {
    ("mpiio", True): "MPI-IO",
    ("mpiio", False): "not MPI-IO",
    ("api", "MPIIO"): "MPI-IO",
    ("api", "NETCDF4"): "NetCDF-4",
    ("api", "PNETCDF"): "PnetCDF",
    ("file", "shared"): "shared file",
    ("file", "per-process"): "file per process",
    ("file", "per-node"): "file per node",
    ("aligned", True): "aligned",
    ("aligned", False): "unaligned",
    ("collective", True): "collective",
    ("collective", False): "independent",
    ("stripe_count", -1): "full striping",
    ("stripe_count", 0): "default striping",
    ("operation", "write"): "writes",
    ("operation", "read"): "reads",
    **{(name, word): describe_hints(f"{name}={word}") for name, hint in HINTS.items() for word in hint.values or ()},
}
_BARE = ("operation", "api", "benchmark", "stack", "partition", "file_system", "pattern", "hints", "layout")


# A parameter with more values than this is compared for equality and order only.
_MAX_VALUES = 24
_ORDER_OPERATORS: tuple[Operator, Operator] = (">=", "<")


def derive_parameters(parameters: Parameters) -> dict[str, Scalar]:
    """Parameters, and those derived from them that matter to a file system.

    `aligned`: whole MiB transfers (Lustre's and GPFS's blocks are multiples of 2^20 bytes, or divide it);
    `mpiio`: the file is reached through MPI-IO, directly or below HDF5, NetCDF-4, PnetCDF; each of the `hints`.
    """
    derived = dict(parameters)
    for name, value in split_hints(str(derived.pop("hints", ""))).items():
        derived.setdefault(name, int(value) if value.isdecimal() else value)
    transfer = parameters.get("transfer_bytes")
    if isinstance(transfer, int) and transfer > 0:
        derived["aligned"] = transfer % MIB == 0
    api = parameters.get("api")
    if isinstance(api, str):
        derived["mpiio"] = api == "MPIIO" or (api in _OVER_MPIIO and parameters.get("file") == "shared")
    return derived


def prior_cost_bits(parameter: str) -> float:
    """Prior cost of a condition on a parameter; lower for parameters that matter more to a file system."""
    return _PRIOR_COST_BITS.get(parameter, _DEFAULT_PRIOR_COST_BITS)


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
        found = derived.get(self.parameter)
        if found is None:
            return False
        if self.operator == "!=":
            return found not in self.values
        if self.operator in ("=", "in"):
            return found in self.values
        assert isinstance(found, (int, float))
        limit = self.values[0]
        assert isinstance(limit, (int, float))
        return found >= limit if self.operator == ">=" else found < limit

    @property
    def bits(self) -> float:
        """Prior cost: that of the parameter, plus a surcharge for operators other than equality."""
        extra = {"=": 0.0, "!=": 0.9, "in": 0.4 * len(self.values), ">=": 1.0, "<": 1.0}[self.operator]
        if self.operator in ("!=", "in") and _is_number(self.values[0]):
            extra += _NO_ORDER_BITS
        return prior_cost_bits(self.parameter) + extra + _VALUE_BITS.get((self.parameter, self.values[0]), 0.0)

    @property
    def words(self) -> str:
        """The condition as text: `MPI-IO`, `unaligned`, `ranks >= 64`."""
        if self.operator == "=" and (self.parameter, self.values[0]) in _VALUE_LABELS:
            return _VALUE_LABELS[self.parameter, self.values[0]]
        values = [format_parameter_value(self.parameter, v) for v in self.values]
        if self.parameter in _BARE and self.operator in ("=", "in"):
            return " or ".join(values)
        if self.parameter in _BARE and self.operator == "!=":
            return f"not {values[0]}"
        return f"{self.parameter} {self.operator} {', '.join(values)}"


def format_parameter_value(parameter: str, value: Scalar) -> str:
    """The value of a parameter as text: `1 MiB`, `1,000,000 B`, `shared file`."""
    if (parameter, value) in _VALUE_LABELS:
        return _VALUE_LABELS[parameter, value]
    if parameter == "hints":
        return describe_hints(str(value))
    if parameter in _SIZES and isinstance(value, int):
        return format_size(value) if value % 1024 == 0 else f"{value:,} B"
    return str(value).lower() if isinstance(value, bool) else str(value)


def format_conditions(conditions: Sequence[Condition]) -> str:
    """A conjunction as text, ordered for reading; `all cases` without a condition."""
    if not conditions:
        return "all cases"
    ordered = sorted(conditions, key=lambda c: _ORDER.index(c.parameter) if c.parameter in _ORDER else 99)
    return " ".join(c.words if c.parameter in _ORDER else f"with {c.words}" for c in ordered)


def candidate_conditions(derived: Sequence[Parameters], changed: Bools) -> list[Condition]:
    """All conditions that could separate the cases, in order of their cost.

    Args:
        derived: parameters of each case, from `derive_parameters`.
        changed: whether each case changed, shape (n,); it orders the values of a parameter for `in`.
    """
    found: list[Condition] = []
    for name in sorted({key for parameters in derived for key in parameters}):
        values = [parameters.get(name) for parameters in derived]
        distinct = sorted({v for v in values if v is not None}, key=lambda v: (str(type(v)), v))
        found += [Condition(name, "=", (v,)) for v in distinct]
        if 2 < len(distinct) <= _MAX_VALUES:
            found += [Condition(name, "!=", (v,)) for v in distinct]
            found += [Condition(name, "in", chosen) for chosen in _value_sets(values, distinct, changed)]
        # Split numbers by their order; stripe counts that mean "default" and "all" are not ordered.
        named = name == "stripe_count" and any((name, v) in _VALUE_LABELS for v in distinct)
        if len(distinct) > 2 and not named and all(_is_number(v) for v in distinct):
            found += [Condition(name, operator, (limit,)) for limit in distinct[1:] for operator in _ORDER_OPERATORS]
    return sorted(found, key=lambda c: (c.bits, c.parameter, str(c.values)))


def stated_conditions(derived: Sequence[Parameters], changed: Bools) -> list[Condition]:
    """`candidate_conditions` that can be a common factor: what an import does not know is none."""
    return [c for c in candidate_conditions(derived, changed) if "unknown" not in c.values]


def _value_sets(
    values: Sequence[Scalar | None], distinct: Sequence[Scalar], changed: Bools
) -> Iterator[tuple[Scalar, ...]]:
    """Sets of the values with the largest shares of changes: in this order a best split is a prefix (CART, 1984)."""
    share = {v: float(np.mean([c for w, c in zip(values, changed, strict=True) if w == v])) for v in distinct}
    ordered = sorted(distinct, key=lambda v: -share[v])
    for size in range(2, min(len(distinct) - 1, 4) + 1):
        yield tuple(sorted(ordered[:size], key=lambda v: (str(type(v)), v)))


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

    def holds(self, parameters: Mapping[str, Scalar]) -> bool:
        """Whether a case with these stored parameters meets all conditions."""
        derived = derive_parameters(parameters)
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
    """A series that does not fit the rule; `member` is its position in the observations."""

    member: int
    name: str
    ratio: float
    inside: bool
    text: str


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


# Each concept is named once: MPI-IO and `api != POSIX` mean the same.
_CONCEPT = {"mpiio": "interface", "api": "interface", "transfer_bytes": "transfer", "aligned": "transfer"}
_MAX_FAMILIAR_COST_BITS = 1.3
_MAX_CONDITIONS = 3
_BEAM = 40
# Bits that a rule has to save beyond its cost, and bits charged for each condition after the first because many
# conjunctions are tried. With both, 48 series with random labels get a rule in 2 to 9 of 100 draws
# (tests/statistics/test_rules.py); without them, in 17.
_MIN_SAVING_BITS = 2.0
_CONJUNCTION_BITS = 0.75
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
    parents: Sequence[_RuleCandidate], chosen: Positions, costs: Floats, cover: Bools, changed: Bools
) -> list[_RuleCandidate]:
    """Rules of one more condition than each parent: for each different cover the one of lowest cost."""
    cheapest: dict[bytes, _RuleCandidate] = {}
    for parent in parents:
        rows = cover[chosen] & parent.cover
        parent_bits = costs[list(parent.conditions)].sum() + _CONJUNCTION_BITS * len(parent.conditions)
        bits = _description_length(rows, changed) + parent_bits + costs[chosen]
        for position in np.argsort(bits, kind="stable")[:_BEAM]:
            row, total = rows[position], float(bits[position])
            known = cheapest.get(row.tobytes())
            new = not (row == parent.cover).all()
            if np.isfinite(total) and new and (known is None or total < known.bits - 1e-9):
                cheapest[row.tobytes()] = _RuleCandidate(total, (*parent.conditions, int(chosen[position])), row)
    return sorted(cheapest.values(), key=lambda f: f.bits)[:_BEAM]


def find_rule(derived: Sequence[Parameters], changed: Bools) -> Rule | None:
    """The shortest rule of at most three conditions, or None if no rule saves enough bits.

    Args:
        derived: parameters of each case, from `derive_parameters`.
        changed: whether each case changed, shape (n,).
    """
    if not changed.any():
        return None
    if changed.all():
        return Rule((), (), len(changed), len(changed), 0, 0, "all cases")
    conditions = stated_conditions(derived, changed)
    cover = condition_coverage(conditions, derived)
    # For a parameter with many values the choice among them costs, too.
    values = Counter(c.parameter for c in conditions if c.operator == "=")
    costs = np.asarray([c.bits + max(0.0, np.log2(values[c.parameter] / _FEW_VALUES)) for c in conditions])
    # For each different cover only the condition of lowest cost.
    cheapest: dict[bytes, int] = {}
    for position in np.argsort(costs, kind="stable"):
        if cover[position].any() and not cover[position].all():
            cheapest.setdefault(cover[position].tobytes(), int(position))
    chosen = np.asarray(sorted(cheapest.values()), dtype=np.intp)
    bits_without_rule = float(_label_bits(np.array([changed.sum()], float), np.array([len(changed)], float))[0])
    beam = [_RuleCandidate(0.0, (), np.ones(len(changed), dtype=bool))]
    found = []
    for _ in range(_MAX_CONDITIONS):
        beam = _extend_rules(beam, chosen, costs, cover, changed)
        found += beam[:1]
    best = min(found, key=lambda candidate: candidate.bits, default=None)
    if best is None or best.bits > bits_without_rule - _MIN_SAVING_BITS:
        return None
    return _make_rule(best, conditions, cover, changed)


def _make_rule(found: _RuleCandidate, conditions: list[Condition], cover: Bools, changed: Bools) -> Rule:
    kept = sorted(found.conditions)
    equivalents = []
    named = [conditions[p] for p in kept]
    for position in kept:
        others = cover[[p for p in kept if p != position]].all(axis=0)
        same = ((cover & others) == found.cover).all(axis=1)
        equivalents.append(tuple(c for p, c in enumerate(conditions) if same[p] and p not in kept))
        # Equivalents of low prior cost are familiar and are named with the conditions of the rule.
        for condition in equivalents[-1]:
            concepts = {_CONCEPT.get(c.parameter, c.parameter) for c in named}
            concept = _CONCEPT.get(condition.parameter, condition.parameter)
            if condition.bits <= _MAX_FAMILIAR_COST_BITS and concept not in concepts:
                named.append(condition)
    inside, hit = int(found.cover.sum()), int((found.cover & changed).sum())
    return Rule(
        conditions=tuple(conditions[p] for p in kept),
        equivalents=tuple(equivalents),
        changed_in=hit,
        total_in=inside,
        changed_out=int(changed.sum()) - hit,
        total_out=len(changed) - inside,
        text=format_conditions(named),
    )


_ALWAYS_NAMED = ("benchmark", "operation", "api", "file")
_HIDDEN = ("aligned", "mpiio", *_ALWAYS_NAMED)


# A case with more differing parameters than this is named without those that have their usual value.
_MAX_NAMED = 4


def short_case_names(cases: Sequence[Parameters]) -> list[str]:
    """One name per case: benchmark, operation, api, file layout, and other parameters that differ in the benchmark.

    Where these are many, those with the usual value of such cases are left out, unless two cases would get one name.

    Args:
        cases: parameters with `benchmark` among them.
    """
    groups: dict[str, list[Parameters]] = defaultdict(list)
    alike: dict[str, list[Parameters]] = defaultdict(list)
    heads = [_format_head(case) for case in cases]
    for case, head in zip(cases, heads, strict=True):
        groups[str(case.get("benchmark"))].append(case)
        alike[head].append(case)
    differing = {name: _differing_parameters(group) for name, group in groups.items()}
    usual = {head: _usual_values(group) for head, group in alike.items()}
    whole: list[str] = []
    brief: list[str] = []
    for case, head in zip(cases, heads, strict=True):
        own = [key for key in differing[str(case.get("benchmark"))] if key in case]
        named = own if len(own) <= _MAX_NAMED else [key for key in own if (case[key] or None) != usual[head][key]]
        for names, keys in ((whole, own), (brief, named)):
            names.append(" ".join([head, *(_format_parameter(key, case[key]) for key in keys)]))
    # Several series may have one case.
    times = Counter(name for name, _ in set(zip(brief, whole, strict=True)))
    return [short if times[short] == 1 else full for short, full in zip(brief, whole, strict=True)]


def _format_head(case: Parameters) -> str:
    """The parameters that every name has: `ior read MPI-IO shared file`."""
    own = {key: case[key] for key in _ALWAYS_NAMED if key in case}
    return " ".join(str(v) if key == "operation" else format_parameter_value(key, v) for key, v in own.items())


def _usual_values(alike: Sequence[Parameters]) -> dict[str, Scalar | None]:
    """The most common value of each parameter; None (absent, false or 0) where it is not set in some of the cases."""
    values = {key: Counter(case.get(key) or None for case in alike) for case in alike for key in case}
    return {key: None if None in found else found.most_common(1)[0][0] for key, found in values.items()}


def _differing_parameters(inside: Sequence[Parameters]) -> list[str]:
    keys = sorted({key for case in inside for key in case} - set(_HIDDEN), key=lambda k: (prior_cost_bits(k), k))
    kept: dict[tuple[int, ...], str] = {}
    for key in keys:
        order: dict[str, int] = {}
        # Two parameters that vary together (transfer and block of IOR) are one difference.
        kept.setdefault(tuple(order.setdefault(str(case.get(key)), len(order)) for case in inside), key)
    return [key for pattern, key in kept.items() if any(pattern)]


def _format_parameter(key: str, value: Scalar) -> str:
    """Text of a parameter: `scratch1`, `full striping`, or with the name of the parameter (`cache drop`, `ranks 4`)."""
    text = format_parameter_value(key, value)
    has_label = text != str(value).lower() and text != value and not key.endswith("_bytes")
    return text if key in _BARE or has_label else f"{key.removesuffix('_bytes')} {text}"
