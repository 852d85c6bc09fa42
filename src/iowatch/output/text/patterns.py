"""Patterns as text: changes of a finding that are no step of the best repetition, in one clause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iowatch.core import METRICS, format_number
from iowatch.findings import DirectionGroup, Finding, FindingMember, PatternKind, strongest_first
from iowatch.output.text.changes import format_factor, is_small_change
from iowatch.output.text.explanations import name_group


def format_pattern(finding: Finding) -> str:
    """What the series of a finding show, with its size: `bad in 1 of 3 sessions (×0.3), before in 0 of 30`.

    Raises:
        ValueError: the changes of the finding are steps.
    """
    if finding.pattern is None:
        raise ValueError(f"{finding.id} has steps; expected a pattern")
    return _FORMATS[finding.pattern](finding)


def name_pattern_group(group: DirectionGroup) -> str:
    """What the series of a pattern share, without a size: `common factor HDF5`, `all series`, `6 series`."""
    rule = group.explanation.rule
    if rule is not None and rule.conditions:
        return f"common factor {rule.text}"
    return name_group(group) or f"{group.explanation.changed} series without a common factor"


def pattern_headline(finding: Finding) -> str:
    """Series and pattern in one sentence, without the date: `all series: noise between sessions ×20 (3 to 60 %)`."""
    group = finding.groups[0]
    name = name_group(group) or f"{group.explanation.changed} series"
    return f"{name}: {format_pattern(finding)}"


def _format_repetitions(finding: Finding) -> str:
    member = _largest_member(finding)
    levels = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    return f"repetitions slower than the best one, their median {format_factor(finding.size)} ({levels})"


def _format_alternating(finding: Finding) -> str:
    member = _largest_member(finding)
    counts = member.bad_sessions
    if counts is None:
        return f"bad in some sessions ({format_factor(finding.size)})"
    one_in = max(2, round(counts.sessions / counts.bad))
    bad = f"bad in {counts.bad} of {counts.sessions} sessions, about 1 of {one_in} ({format_factor(finding.size)})"
    return f"{bad}, before in {counts.bad_before} of {counts.sessions_before}"


def _format_noise(finding: Finding) -> str:
    member = _largest_member(finding)
    return f"noise between sessions {format_factor(member.ratio)} ({member.before:.0f} to {member.after:.0f} %)"


def _format_drift(finding: Finding) -> str:
    factor = "" if is_small_change(finding.size) else f" ({format_factor(finding.size)})"
    return f"slow loss of {100 * (1 - finding.size):.0f} %{factor}, no step"


def _format_latency(finding: Finding) -> str:
    member = _largest_member(finding)
    times = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    names = {METRICS[m.metric].label.removeprefix("Time ").lower() for m in finding.members}
    return f"time {', '.join(sorted(names))} {format_factor(member.ratio)} ({times})"


def _format_operations(finding: Finding) -> str:
    # One member of each metric: the largest change.
    texts: dict[str, str] = {}
    for member in strongest_first(finding.members):
        label = METRICS[member.metric].label.split(" per ")[0].lower()
        texts.setdefault(label, f"{label} {format_number(member.before)} to {format_number(member.after)}")
    return ", ".join(texts.values())


def _largest_member(finding: Finding) -> FindingMember:
    return strongest_first(finding.members)[0]


_FORMATS: Mapping[PatternKind, Callable[[Finding], str]] = {
    "repetitions": _format_repetitions,
    "alternating": _format_alternating,
    "noise": _format_noise,
    "drift": _format_drift,
    "latency": _format_latency,
    "operations": _format_operations,
}
