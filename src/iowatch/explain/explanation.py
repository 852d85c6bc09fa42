"""The explanation of one event: rule, sizes, control group, exceptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iowatch.explain.conditions import Condition, Parameters, derive, words
from iowatch.explain.magnitudes import magnitudes
from iowatch.explain.naming import names
from iowatch.explain.records import ControlGroup, Explanation, Misfit, Observation, Rule
from iowatch.explain.rules import find_rule

# Parameters that a control group may be named by: others are true of it by accident more often than not.
_TELLING = ("api", "file", "aligned", "operation", "collective", "file_system", "partition", "stack")

# Fewer series outside of a rule are exceptions, and no second event.
_LEAST_SECOND = 2


def explain(observations: Sequence[Observation]) -> Explanation:
    """What separates the changed from the unchanged, how large the changes are, and what does not fit.

    Args:
        observations: every series that has data before and after the event; at least one.
    """
    derived = [derive(o.parameters) for o in observations]
    changed = np.asarray([o.changed for o in observations], dtype=bool)
    log_ratios = np.asarray([o.log_ratio for o in observations], dtype=np.float64)
    rule = find_rule(derived, changed)
    first = _inside(rule, derived)
    second = _second(derived, changed, first)
    rest = _inside(second, derived) & ~first if second else np.zeros_like(first)
    inside = first | rest
    return Explanation(
        rule=rule,
        magnitudes=magnitudes(derived, log_ratios, _positions(changed & first)),
        control=_control(derived, changed, inside, log_ratios, rule),
        exceptions=_exceptions(derived, changed, inside, log_ratios) if rule else (),
        changed=int(changed.sum()),
        total=len(observations),
        second=second,
        second_magnitudes=magnitudes(derived, log_ratios, _positions(changed & rest)),
    )


def _positions(which: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.flatnonzero(which)]


def _second(derived: Sequence[Parameters], changed: NDArray[np.bool_], first: NDArray[np.bool_]) -> Rule | None:
    """What several changed series outside the rule have in common, or None."""
    outside = _positions(~first)
    if changed[outside].sum() < _LEAST_SECOND:
        return None
    found = find_rule([derived[i] for i in outside], changed[outside])
    return found if found and found.conditions and found.changed_in >= _LEAST_SECOND else None


def _inside(rule: Rule | None, derived: Sequence[Parameters]) -> NDArray[np.bool_]:
    conditions: tuple[Condition, ...] = rule.conditions if rule else ()
    return np.asarray([all(c.holds(d) for c in conditions) for d in derived], dtype=bool)


def _control(
    derived: Sequence[Parameters],
    changed: NDArray[np.bool_],
    inside: NDArray[np.bool_],
    log_ratios: NDArray[np.float64],
    rule: Rule | None,
) -> ControlGroup | None:
    """The unchanged series outside the rule, and what they share: they rule causes out that act on them too."""
    outside = ~inside if rule is not None and rule.conditions else np.ones(len(changed), dtype=bool)
    unchanged = [int(u) for u in np.flatnonzero(~changed & outside)]
    if not unchanged:
        return None
    shared = [
        Condition(name, "=", (derived[unchanged[0]][name],))
        for name in _TELLING
        if name in derived[unchanged[0]] and len({str(derived[u].get(name)) for u in unchanged}) == 1
    ]
    telling = [c for c in shared if any(not c.holds(d) for d in derived)]
    group = [i for i, d in enumerate(derived) if outside[i] and all(c.holds(d) for c in telling)]
    return ControlGroup(
        label=words(telling) if telling else "the other series",
        unchanged=len(unchanged),
        total=len(group),
        ratio=float(np.exp(np.median(log_ratios[unchanged]))),
        members=tuple(unchanged),
    )


def _exceptions(
    derived: Sequence[Parameters],
    changed: NDArray[np.bool_],
    inside: NDArray[np.bool_],
    log_ratios: NDArray[np.float64],
) -> tuple[Misfit, ...]:
    """Series that changed outside the rule, then those inside it that did not."""
    called = names(derived)
    found = []
    for member in [*np.flatnonzero(changed & ~inside), *np.flatnonzero(~changed & inside)]:
        ratio = float(np.exp(log_ratios[member]))
        why = (
            f"changed ×{ratio:.3g} although outside the common factor"
            if changed[member]
            else f"did not change (×{ratio:.3g}) although inside the common factor"
        )
        found.append(
            Misfit(int(member), called[member], ratio, bool(inside[member]), f"{called[member]}: {why}")
        )
    return tuple(found)
