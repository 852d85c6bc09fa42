"""A finding in one line: date, how many, common factor with sizes, what stayed the same, what happened then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from iowatch.explain import Cause, Explanation, Magnitude, Misfit
from iowatch.findings.records import Difference, Direction, State

_MOST_MISFITS = 3
_MOST_NAMED = 2
# Where differences are that people make: iowatch.findings.evidence and .surroundings.
_MADE = ("stack ", "compute node", "loaded", "MPI-IO hints")


def factor(value: float) -> str:
    """A ratio for people: two significant digits below ten, whole above: `×0.48`, `×2.9`, `×51`."""
    return f"×{value:.0f}" if value >= 9.95 else f"×{value:.2g}"


def day(moment: int) -> str:
    """`17 Mar 2009`, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%-d %b %Y")


def line(
    direction: Direction,
    state: State,
    first_after: int,
    explanation: Explanation,
    causes: Sequence[Cause],
    size: float,
    compared: Sequence[str],
    differences: Sequence[Difference] = (),
) -> str:
    """The finding in one line, as DESIGN.md's first paragraph wants it.

    Args:
        compared: names of the compared series, changed ones first.
        differences: between the runs before and after.
    """
    parts = [
        f"{day(first_after)}: {explanation.changed} of {explanation.total} series {direction}"
        + (" (suspected, not yet confirmed)" if state == "suspected" else ""),
        _factor_words(explanation, size, [compared[i] for i in range(explanation.changed)]),
    ]
    control = explanation.control
    if control is not None and explanation.rule is not None:
        parts.append(f"{control.label} unchanged ({control.unchanged} of {control.total})")
    if explanation.exceptions:
        parts.append(_misfits(explanation.exceptions))
    if causes:
        parts.append(f"{causes[0].event} {causes[0].when}".replace("at the change", "that day"))
    else:
        parts.append("no event recorded near")
    parts += _differing(differences)
    return "; ".join(parts)


def _factor_words(explanation: Explanation, size: float, changed: Sequence[str]) -> str:
    rule = explanation.rule
    sizes = sizes_words(explanation.magnitudes) or factor(size)
    if rule is None and len(changed) <= _MOST_NAMED:
        return f"{', '.join(changed)} ({factor(size)})"
    if rule is None:
        return f"no common factor ({sizes})"
    if not rule.conditions:
        return f"all series ({sizes})"
    told = f"common factor {rule.text} ({sizes})"
    if explanation.second is None:
        return told
    return f"{told}, and {explanation.second.text} ({sizes_words(explanation.second_magnitudes)})"


def sizes_words(magnitudes: Sequence[Magnitude]) -> str:
    """`unaligned reads ×50, writes ×2.9`."""
    return ", ".join(f"{m.label} {factor(m.ratio)}".strip() for m in magnitudes)


def _differing(differences: Sequence[Difference]) -> list[str]:
    """Names of what somebody changed; counters and nodes follow from it, or change by themselves."""
    names = list(dict.fromkeys(one.what for one in differences if one.where.startswith(_MADE)))
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return [f"{', '.join(names[:_MOST_NAMED])}{more} {'differs' if len(names) == 1 else 'differ'}"]


def _misfits(misfits: Sequence[Misfit]) -> str:
    if len(misfits) > _MOST_MISFITS:
        return f"{len(misfits)} series do not fit"
    told = [f"{m.name} unchanged" if m.inside else f"{m.name} {factor(m.ratio)} too" for m in misfits]
    return f"does not fit: {', '.join(told)}"
