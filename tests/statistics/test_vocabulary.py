"""The statistics in another field than storage: without words and prior costs of parameters."""

from __future__ import annotations

import math

from iowatch.statistics import ParameterVocabulary, SeriesResponse, explain_changes
from iowatch.statistics.rules import Condition

COMPILERS = ("gcc", "clang", "icx")
CASES = [{"compiler": compiler, "level": level} for compiler in COMPILERS for level in range(6)]


def explain(vocabulary: ParameterVocabulary) -> str:
    responses = [SeriesResponse(case, case["compiler"] == "icx", math.log(0.5)) for case in CASES]
    rule = explain_changes(responses, vocabulary=vocabulary).rule
    assert rule is not None
    assert rule.conditions == (Condition("compiler", "=", ("icx",)),)
    return rule.text


def test_rule_is_found_without_a_vocabulary() -> None:
    assert explain(ParameterVocabulary()) == "with compiler = icx"


def test_words_are_those_of_the_vocabulary() -> None:
    assert explain(ParameterVocabulary(text_order=("compiler",))) == "compiler = icx"
    assert explain(ParameterVocabulary(text_order=("compiler",), named_by_value=frozenset({"compiler"}))) == "icx"
    assert explain(ParameterVocabulary(labels={("compiler", "icx"): "oneAPI"})) == "with oneAPI"


def test_prior_cost_decides_between_conditions_of_the_same_series() -> None:
    vocabulary = ParameterVocabulary(cost_bits={"vendor": 1.0}, text_order=("vendor", "compiler"))
    responses = []
    for case in CASES:
        is_changed = case["compiler"] == "icx"
        vendor = "intel" if is_changed else "other"
        responses.append(SeriesResponse({**case, "vendor": vendor}, is_changed, 0.0))
    rule = explain_changes(responses, vocabulary=vocabulary).rule
    assert rule is not None
    assert rule.conditions == (Condition("vendor", "=", ("intel",)),)
