"""What the changed series of a finding share, and how much they changed, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iowatch.findings import CASE_PARAMETERS, DirectionGroup
from iowatch.output.text.changes import format_factor
from iowatch.statistics import Explanation
from iowatch.statistics.rules import Condition, Magnitude, Rule, RuleException

_MAX_EXCEPTIONS = 3
# Groups of at most so many series without a common factor are called by the names of their series.
_MAX_NAMED_SERIES = 2
_MAX_EQUIVALENTS = 6


def name_group(group: DirectionGroup) -> str | None:
    """What the series of a group share, or their names if these are few; None for many without a common factor."""
    explanation = group.explanation
    if explanation.rule is not None:
        return explanation.rule.text if explanation.rule.conditions else "all series"
    if explanation.largest is not None and len(explanation.largest.members) == explanation.changed:
        return explanation.largest.label
    if explanation.changed <= _MAX_NAMED_SERIES:
        return " and ".join(group.compared[: explanation.changed])
    return None


def format_common_factor(group: DirectionGroup) -> str:
    """Common factor and sizes of one group, for the line of a finding."""
    explanation = group.explanation
    rule = explanation.rule
    size = format_factor(group.size)
    sizes = format_magnitudes(explanation.magnitudes) or size
    if rule is None and explanation.changed <= _MAX_NAMED_SERIES:
        return f"{', '.join(group.compared[: explanation.changed])} ({size})"
    if rule is None and explanation.largest is not None:
        return f"no tested common factor ({sizes}); {format_largest(explanation.largest, explanation.changed)}"
    if rule is None:
        return f"no common factor ({sizes})"
    if not rule.conditions:
        return f"all series ({sizes})"
    text = f"common factor {rule.text} ({sizes})"
    if explanation.second is None:
        return text
    return f"{text}, and {explanation.second.text} ({format_magnitudes(explanation.second_magnitudes)})"


def format_largest(largest: Magnitude, changed: int) -> str:
    """What the largest of `changed` changes share: `largest changes: all 3 series of ior shared file reads (×0.14)`."""
    count = len(largest.members)
    which = "changed" if count == changed else "largest changes"
    return f"{which}: all {count} series of {largest.label} ({format_factor(largest.ratio)})"


def format_magnitudes(magnitudes: Sequence[Magnitude]) -> str:
    """`unaligned reads ×50, writes ×2.9`."""
    texts = [f"{magnitude.label} {format_factor(magnitude.ratio)}".strip() for magnitude in magnitudes]
    return ", ".join(texts)


def format_exceptions(exceptions: Sequence[RuleException]) -> str:
    """`does not fit: ior read MPI-IO shared file unchanged`, or the number of series that do not fit."""
    if len(exceptions) > _MAX_EXCEPTIONS:
        return f"{len(exceptions)} series do not fit"
    texts: list[str] = []
    for exception in exceptions:
        if exception.inside:
            texts.append(f"{exception.name} unchanged")
        else:
            texts.append(f"{exception.name} {format_factor(exception.ratio)} too")
    return f"does not fit: {', '.join(texts)}"


def format_exception(exception: RuleException) -> str:
    """`write POSIX: did not change (+0.4 %) although inside the common factor`."""
    factor = format_factor(exception.ratio)
    if exception.inside:
        return f"{exception.name}: did not change ({factor}) although inside the common factor"
    return f"{exception.name}: changed ({factor}) although outside the common factor"


def explanation_sections(explanation: Explanation) -> Iterator[tuple[str, list[str]]]:
    """Titles and lines about the common factors of one group; a title without lines is not shown."""
    yield "Common factor", list(_rule_lines(explanation.rule))
    if explanation.second is not None:
        yield "And of the rest", list(_rule_lines(explanation.second))
    if explanation.largest is not None:
        yield "Not tested", [format_largest(explanation.largest, explanation.changed)]
    yield "Sizes", _magnitude_lines(explanation)


def _rule_lines(rule: Rule | None) -> Iterator[str]:
    if rule is None:
        yield "none: no parameter separates changed from unchanged series better than chance"
        return
    if not rule.conditions:
        yield f"all series changed ({rule.changed_in} of {rule.total_in})"
        return
    yield (
        f"{rule.text}: {rule.changed_in} of {rule.total_in} changed, of the others {rule.changed_out} of "
        f"{rule.total_out} (precision {rule.precision:.0%}, recall {rule.recall:.0%})"
    )
    yield from format_equivalents(rule)


def _magnitude_lines(explanation: Explanation) -> list[str]:
    """One line per common factor, prefixed with the rule if there are two."""
    if explanation.rule is None or explanation.second is None:
        return [format_magnitudes(explanation.magnitudes)]
    return [
        f"{explanation.rule.text}: {format_magnitudes(explanation.magnitudes)}",
        f"{explanation.second.text}: {format_magnitudes(explanation.second_magnitudes)}",
    ]


def format_equivalents(rule: Rule) -> Iterator[str]:
    """Equivalents of the conditions of a rule, one line per condition; each parameter is listed once."""
    for condition, equivalents in zip(rule.conditions, rule.equivalents, strict=True):
        condition_words = condition.words(CASE_PARAMETERS)
        others = _other_words(condition, equivalents)
        if others:
            listed = "; ".join(others[:_MAX_EQUIVALENTS])
            yield f"these data do not distinguish '{condition_words}' from: {listed}"


def _other_words(condition: Condition, equivalents: Sequence[Condition]) -> list[str]:
    """Words of the equivalents of a condition that have other words than the condition; one per parameter."""
    words_by_parameter: dict[str, str] = {}
    for equivalent in equivalents:
        words = equivalent.words(CASE_PARAMETERS)
        if equivalent.parameter != condition.parameter and words != condition.words(CASE_PARAMETERS):
            words_by_parameter.setdefault(equivalent.parameter, words)
    # `api = MPIIO` and the derived `mpiio` have one name.
    return list(dict.fromkeys(words_by_parameter.values()))
