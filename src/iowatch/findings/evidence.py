"""What differs between the runs on both sides of a change: stacks, machine, Darshan's counters, nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iowatch.findings.records import Difference, Member
from iowatch.findings.surroundings import surrounding_differences
from iowatch.store import History, SeriesPoints

# Members of one event share stacks; a few of them show every difference.
_MOST_PAIRS = 12
# A scheduler gives other nodes every night: only what holds for several nights on both sides says something.
_MOST_NODE_MEMBERS, _LEAST_NIGHTS, _MOST_NIGHTS, _MOST_NODES = 4, 3, 7, 8


def differences(
    history: History, members: Sequence[Member], points: Mapping[int, SeriesPoints]
) -> tuple[Difference, ...]:
    """Differences between the runs before and after, of the strongest members.

    Args:
        points: of each member's series, by its id, some nights on both sides of the change.
    """
    found: dict[tuple[str, str], Difference] = {}
    strongest = sorted(members, key=lambda m: -max(m.gain, 1 / m.gain))
    for member in strongest[:_MOST_PAIRS]:
        if member.run_before is None or member.run_after is None:
            continue
        before, after = history.run(member.run_before), history.run(member.run_after)
        stacks = list(stack_differences(member.stack, before.stack_document, after.stack_document))
        facts = (member.name, before.facts, after.facts)
        around = surrounding_differences(*facts, programs=not stacks)
        for one in (*stacks, *around, *counter_differences(*facts)):
            found.setdefault((one.where, one.what), one)
    for member in strongest[:_MOST_NODE_MEMBERS]:
        old, new = (_node_sets(history, ids) for ids in runs_around(member, points[member.series_id]))
        for one in node_differences(member.name, old, new):
            found.setdefault((one.where, one.what), one)
    return tuple(found.values())


def runs_around(member: Member, points: SeriesPoints) -> tuple[list[int], list[int]]:
    """The last runs before and the first after a member's change."""
    before = points.run_id[points.time <= member.last_before][-_MOST_NIGHTS:]
    after = points.run_id[points.time >= member.first_after][:_MOST_NIGHTS]
    return [int(run) for run in before], [int(run) for run in after]


def _node_sets(history: History, runs: Iterable[int]) -> list[frozenset[str]]:
    return [frozenset(map(str, history.run(run).facts.get("nodes") or ())) for run in runs]


def node_differences(
    name: str, before: Sequence[frozenset[str]], after: Sequence[frozenset[str]]
) -> Iterable[Difference]:
    """Nodes that every run on one side had and none on the other; says nothing below three runs a side.

    Args:
        name: of the case, for people.
        before, after: nodes of each run; runs that name none are left out.
    """
    old, new = [nodes for nodes in before if nodes], [nodes for nodes in after if nodes]
    if min(len(old), len(new)) < _LEAST_NIGHTS:
        return
    left = frozenset.intersection(*old) - frozenset.union(*new)
    joined = frozenset.intersection(*new) - frozenset.union(*old)
    if left or joined:
        yield Difference(f"nodes of {name}", "always there", _listed(left), _listed(joined))


def _listed(nodes: frozenset[str]) -> str:
    told = sorted(nodes)[:_MOST_NODES]
    more = f" and {len(nodes) - len(told)} more" if len(nodes) > len(told) else ""
    return " ".join(told) + more if told else "none"


def stack_differences(stack: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Difference]:
    """Parts that differ between two `stack.json`; nothing where one of them is unknown."""
    if not before.get("parts") or not after.get("parts"):
        return
    old, new = _parts(before), _parts(after)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            one, other = _told(old.get(name), new.get(name))
            yield Difference(f"stack {stack}", name, one, other)


_TOLD = ("version", "variants", "compiler", "target", "hash")


def _parts(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parts = [part for part in document.get("parts", ()) if isinstance(part, Mapping) and "name" in part]
    return {str(part["name"]): {key: part.get(key) for key in _TOLD} for part in parts}


def _told(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[str, str]:
    """The version of both, and of the other facts those that differ."""
    if old is None or new is None:
        return (str(old["version"]) if old else "absent", str(new["version"]) if new else "absent")
    differing = [key for key in _TOLD[1:] if old[key] != new[key]]
    return _described(old, differing), _described(new, differing)


def _described(part: Mapping[str, Any], keys: Sequence[str]) -> str:
    extra = []
    for key in keys:
        value = part[key]
        text = " ".join(f"{k}={v}" for k, v in sorted(value.items())) if isinstance(value, dict) else value
        extra.append(f"{key} {text}")
    return " ".join([str(part["version"]), *(f"({text})" for text in extra)])


# Counters within this factor are the same work; of those that differ the strongest are told.
_SAME_COUNT = 1.05
_MOST_COUNTERS = 5


def counter_differences(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Difference]:
    """Darshan's counters that differ between two runs of one case: it should do the same work every night.

    Args:
        name: of the case, for people.
        before, after: facts of the runs; nothing is said where one of them has no trace.
    """
    old, new = (_counts(run) for run in (before, after))
    differing = sorted(
        (counter for counter in old.keys() & new.keys() if _factor(old[counter], new[counter]) > _SAME_COUNT),
        key=lambda counter: (-_factor(old[counter], new[counter]), counter),
    )
    for counter in differing[:_MOST_COUNTERS]:
        yield Difference(f"Darshan, {name}", counter, f"{old[counter]:g}", f"{new[counter]:g}")


def _counts(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    darshan = facts.get("darshan")
    counts = darshan.get("counts") if isinstance(darshan, Mapping) else None
    return counts if isinstance(counts, Mapping) else {}


def _factor(one: float, other: float) -> float:
    """How many times the larger count is the smaller; infinite from or to nothing."""
    small, large = sorted((one, other))
    if small == large:
        return 1.0
    return large / small if small > 0 else math.inf
