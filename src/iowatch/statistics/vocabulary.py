"""What the statistics need to know about the parameters of cases: prior costs, and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Scalar = str | int | float | bool
Parameters = Mapping[str, Scalar]


def _format_plain_value(parameter: str, value: Scalar) -> str:
    """A value as it is; the default of `ParameterVocabulary.format_value`."""
    return str(value)


def _name_by_number(cases: Sequence[Parameters]) -> list[str]:
    """`case 1`, `case 2` …; the default of `ParameterVocabulary.name_cases`."""
    return [f"case {number}" for number in range(1, len(cases) + 1)]


@dataclass(frozen=True, kw_only=True)
class ParameterVocabulary:
    """Parameters of cases in one field of application: their prior costs as common factors, and words for them.

    Without any argument all parameters cost the same and are printed as they are.

    Attributes:
        derive: the parameters of a case, and those that follow from them and may be a common factor as well.
        cost_bits: prior cost in bits of a condition on a parameter; low for a parameter that is often a cause.
        default_cost_bits: prior cost of a parameter that is not in `cost_bits`.
        value_cost_bits: bits that a condition on this value of a parameter costs in addition.
        special_numbers: numbers of a parameter that stand for something else than their size, for example 0 for a
            default. A series of cases with one of them is not split by the order of this parameter.
        concepts: concept of a parameter; the text of a rule names each concept once. Others are their own concept.
        control_parameters: parameters that may name a control group; others are usually equal in it by chance.
        labels: a value of a parameter in words, where these words need no name of the parameter.
        format_value: a value of a parameter as text; that of `labels` where there is one.
        named_by_value: parameters whose values need no name of the parameter.
        text_order: parameters whose conditions come first in text, in this order; each other one follows as `with …`.
        name_cases: one name per case, from the parameters of all cases.
    """

    derive: Callable[[Parameters], dict[str, Scalar]] = dict
    cost_bits: Mapping[str, float] = field(default_factory=dict)
    default_cost_bits: float = 3.5
    value_cost_bits: Mapping[tuple[str, Scalar], float] = field(default_factory=dict)
    special_numbers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    concepts: Mapping[str, str] = field(default_factory=dict)
    control_parameters: tuple[str, ...] = ()
    labels: Mapping[tuple[str, Scalar], str] = field(default_factory=dict)
    format_value: Callable[[str, Scalar], str] = _format_plain_value
    named_by_value: frozenset[str] = frozenset()
    text_order: tuple[str, ...] = ()
    name_cases: Callable[[Sequence[Parameters]], list[str]] = _name_by_number

    def prior_cost_bits(self, parameter: str) -> float:
        """Prior cost in bits of a condition on a parameter."""
        return self.cost_bits.get(parameter, self.default_cost_bits)

    def is_free_text(self, parameter: str, value: Scalar) -> bool:
        """Whether a value is text of a parameter that the vocabulary does not know: a name, a comment of an import."""
        return isinstance(value, str) and parameter not in self.cost_bits

    def concept(self, parameter: str) -> str:
        """The concept that a parameter stands for."""
        return self.concepts.get(parameter, parameter)
