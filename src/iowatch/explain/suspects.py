"""Ranks what happened on the machine by how well date and scope fit a change: evidence, never proof.

A cause that acts on every access (load, links, disks) has to change every series in its scope; a change of
software can act on one code path and leave the others alone. So a control group that stayed the same speaks
against the former and agrees with the latter: the reasoning of section 6 of Antypas and Uselton, "MPI-I/O on
Franklin XT4 System at NERSC", CUG 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from iowatch.explain.conditions import derive
from iowatch.explain.records import Explanation, Observation
from iowatch.model import Scalar

Reach = Literal["uniform", "selective", "unknown"]
REACH: dict[str, Reach] = {
    "workload": "uniform",
    "hardware": "uniform",
    "network": "uniform",
    "outage": "uniform",
    "software": "selective",
    "upgrade": "selective",
    "configuration": "selective",
    "maintenance": "unknown",
    "other": "unknown",
}

_DAY_S = 86400
# Dates farther from the change are not looked at: a cause acts at once, but people write it down late.
DAYS_BEFORE, DAYS_AFTER = 7, 3
_WEIGHT = {"supports": 1.5, "contradicts": 0.5}


@dataclass(frozen=True)
class Suspect:
    """Something that happened, as a possible cause.

    Attributes:
        name: for people.
        event: the kind of the event that it is, or is a part of, for people (`maintenance`).
        kind: a key of `REACH`.
        start, end: epoch seconds UTC; the event lies between them.
        scope: parameters that it can act on (`file_system: scratch`); empty is the whole system.
        evidence: (`supports` | `contradicts`, text), what people found out about it.
    """

    name: str
    event: str
    kind: str
    start: int
    end: int
    scope: Mapping[str, Scalar] = field(default_factory=dict)
    evidence: tuple[tuple[Literal["supports", "contradicts"], str], ...] = ()


@dataclass(frozen=True)
class Cause:
    """A suspect with its fit: `score` orders suspects and means nothing else.

    Attributes:
        when: its date in relation to the change, for people.
        speaks_for, speaks_against: sentences of evidence.
    """

    name: str
    event: str
    kind: str
    score: float
    when: str
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]


@dataclass
class _Balance:
    score: float
    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def rank(
    suspects: Sequence[Suspect],
    last_before: int,
    first_after: int,
    observations: Sequence[Observation],
    explanation: Explanation,
) -> tuple[Cause, ...]:
    """Suspects near the change, best fit first.

    Args:
        suspects: everything that is known to have happened.
        last_before, first_after: epoch seconds of the last run at the old and the first at the new level.
        observations, explanation: of the change.
    """
    causes = []
    for suspect in suspects:
        days = _distance(suspect, last_before, first_after)
        if -DAYS_BEFORE <= days <= DAYS_AFTER:
            causes.append(_judge(suspect, days, observations, explanation))
    return tuple(sorted(causes, key=lambda c: -c.score))


def _distance(suspect: Suspect, last_before: int, first_after: int) -> float:
    """Days from the gap between the last old and the first new run to the suspect; negative is before it."""
    if suspect.end < last_before:
        return (suspect.end - last_before) / _DAY_S
    if suspect.start > first_after:
        return (suspect.start - first_after) / _DAY_S
    return 0.0


def _judge(
    suspect: Suspect, days: float, observations: Sequence[Observation], explanation: Explanation
) -> Cause:
    balance = _Balance(1.0)
    when = _judge_date(balance, days)
    _judge_scope(balance, suspect, observations, explanation)
    _judge_reach(balance, suspect, observations, explanation)
    for verdict, text in suspect.evidence:
        balance.score *= _WEIGHT[verdict]
        (balance.good if verdict == "supports" else balance.bad).append(text)
    good, bad = tuple(balance.good), tuple(balance.bad)
    return Cause(suspect.name, suspect.event, suspect.kind, balance.score, when, good, bad)


def _judge_date(balance: _Balance, days: float) -> str:
    if days == 0:
        balance.good.append("lies between the last run at the old level and the first at the new one")
        return "at the change"
    whole = max(1, round(abs(days)))
    plural = "" if whole == 1 else "s"
    if days < 0:
        balance.score *= math.exp(days / 2)
        balance.bad.append(f"{whole} day{plural} earlier, with unchanged runs in between")
        return f"{whole} day{plural} before the change"
    balance.score *= 0.1 * math.exp(-days)
    balance.bad.append(f"began {whole} day{plural} after the first changed run")
    return f"{whole} day{plural} after the change"


def _inside(suspect: Suspect, observation: Observation) -> bool:
    derived = derive(observation.parameters)
    return all(derived.get(name) == value for name, value in suspect.scope.items())


def _judge_scope(
    balance: _Balance, suspect: Suspect, observations: Sequence[Observation], explanation: Explanation
) -> None:
    """A stated scope has to hold the changed series; of two common factors, those of the better one."""
    groups = _changed(observations, explanation)
    if not suspect.scope or not groups[0][1]:
        return
    held = [sum(_inside(suspect, o) for o in group) for _, group in groups]
    best = max(range(len(groups)), key=lambda i: held[i] / len(groups[i][1]))
    whose, group = groups[best]
    stated = ", ".join(f"{name} {value}" for name, value in suspect.scope.items())
    balance.score *= max(held[best] / len(group), 0.05)
    target = balance.good if held[best] == len(group) else balance.bad
    target.append(f"{held[best]} of {len(group)} {whose} lie in its scope ({stated})")


def _changed(
    observations: Sequence[Observation], explanation: Explanation
) -> list[tuple[str, list[Observation]]]:
    """The changed series, and where they have two common factors those of each."""
    changed = [o for o in observations if o.changed]
    rules = [explanation.rule, explanation.second] if explanation.second else []
    return [("changed series", changed)] + [
        (f"changed series of {rule.text}", [o for o in changed if rule.holds(o.parameters)])
        for rule in rules
        if rule is not None
    ]


def _judge_reach(
    balance: _Balance, suspect: Suspect, observations: Sequence[Observation], explanation: Explanation
) -> None:
    reach = REACH[suspect.kind]
    in_scope = [o for o in observations if _inside(suspect, o)] or list(observations)
    share = sum(o.changed for o in in_scope) / len(in_scope)
    outside = [e.name for e in explanation.exceptions if not e.inside]
    if reach == "uniform":
        balance.score *= max(share, 0.05)
        _judge_uniform(balance, suspect, share, outside, explanation)
    elif reach == "selective":
        _judge_selective(balance, share, outside, explanation)
    else:
        balance.score *= 0.8


def _judge_uniform(
    balance: _Balance, suspect: Suspect, share: float, outside: list[str], explanation: Explanation
) -> None:
    """`share`: how many of the series that it acts on changed."""
    control = explanation.control
    if control is not None and share < 1:
        balance.bad.append(
            f"{suspect.kind} acts on every access, yet {control.label} did not change "
            f"({control.unchanged} of {control.total} series, ×{control.ratio:.2g})"
        )
    elif share == 1:
        balance.good.append("every series that it acts on changed")
    if outside:
        balance.good.append(f"{', '.join(outside)} changed too, outside the common factor")


def _judge_selective(balance: _Balance, share: float, outside: list[str], explanation: Explanation) -> None:
    rule, control = explanation.rule, explanation.control
    if rule is not None and rule.conditions and control is not None:
        balance.good.append(
            f"a change of software or settings can act on one path ({explanation.paths}) "
            f"and spare another ({control.label})"
        )
    elif share == 1:
        # Everything changed: a cause that acts on everything is the simpler one.
        balance.score *= 0.8
    if outside:
        balance.score *= 0.9
        balance.bad.append(f"{', '.join(outside)} changed too, outside the common factor")
