"""The evidence of a finding as text: layers, probes, load, covariates, recorded events, logs, the search in stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import tzinfo

from iowatch.core import covariate_label, format_count, format_day, format_number, format_size
from iowatch.darshan import escape_control_characters, format_targets
from iowatch.findings import (
    CovariateDifference,
    EvidenceDifference,
    Finding,
    FindingExperiment,
    LoadShare,
    LogDifferences,
    MovedLayer,
    NodeOverSessions,
    NodeRatio,
    ProbeResponse,
    SlowNode,
    SlowTarget,
    SlowTargetOfRuns,
    TargetRatio,
    slow_nodes_of_run,
    slow_targets_of_run,
)
from iowatch.output.text.changes import format_percent, join_names
from iowatch.statistics.explanation import RankedCause
from iowatch.store import RunFacts

_MAX_NAMED_COVARIATES = 2
# Smallest share of a change that the line of a finding attributes to the load.
_MIN_STATED_SHARE = 0.5


def is_load_stated(finding: Finding) -> bool:
    """Whether so much of the change goes along with the load that the short texts state it."""
    return finding.load is not None and finding.load.share >= _MIN_STATED_SHARE


def format_load(load: LoadShare, relation: str) -> str:
    """`80 % explained by jobs on the file system`: the share of a change that goes along with the load."""
    labels = " and ".join(covariate_label(name) for name in load.covariates[:_MAX_NAMED_COVARIATES])
    return f"{100 * load.share:.0f} % {relation} {labels}"


def load_lines(finding: Finding) -> Iterator[str]:
    """How much of the change goes along with the load, and what the members are adjusted for; empty without."""
    if finding.load is not None:
        yield format_load(finding.load, "of the change goes along with")
        adjusted = f"{finding.load.members} of {len(finding.members)} series are adjusted for it"
        yield f"{adjusted}; it predicts {100 * finding.load.explained:.0f} % of their variance between sessions"


def format_probe(probe: ProbeResponse) -> str:
    """`raw disk (fio) unchanged`, `raw disk (fio) −46 % (×0.54), too`, or how many of its series changed."""
    if not probe.changed:
        return f"{probe.what} unchanged"
    count = ""
    if probe.changed != probe.total:
        count = f" in {probe.changed} of {probe.total} series"
    return f"{probe.what} {format_percent(probe.gain)}{count}, too"


def format_moved_layer(layer: MovedLayer) -> str:
    """The answer in one sentence.

    `lowest layer that moved: HDF5 (NetCDF moved with it; MPI-IO, disk did not)`, or
    `cannot be distinguished between disk and file system (a series of raw disk (fio) would distinguish them)`.
    """
    if layer.named is not None:
        return _format_named_layer(layer)
    if not layer.candidates:
        return "cannot be named: no single layer explains the changes"
    names = [candidate.layer for candidate in layer.candidates]
    if len(names) == 1:
        text, outcome = f"probably {names[0]}, not certain", "would show it"
    else:
        text, outcome = f"cannot be distinguished between {join_names(names)}", "would distinguish them"
    if layer.would_tell:
        text += f" (a series of {' or of '.join(layer.would_tell)} {outcome})"
    return text


def _format_named_layer(layer: MovedLayer) -> str:
    text = f"lowest layer that moved: {layer.named}"
    if layer.direction:
        text += f", {layer.direction}s only"
    others: list[str] = []
    if layer.moved:
        others.append(f"{join_names(layer.moved)} moved with it")
    if layer.unmoved:
        others.append(f"{join_names(layer.unmoved)} did not")
    return f"{text} ({'; '.join(others)})" if others else text


def format_cause_date(cause: RankedCause) -> str:
    """When a possible cause happened, in the line of a finding that states the day: `that day`."""
    return "that day" if cause.is_at_change else cause.when


def cause_lines(causes: Iterable[RankedCause]) -> Iterator[str]:
    """The possible causes of a finding with what speaks for and against each, and a blank line."""
    ranked = list(causes)
    if ranked:
        yield "Likely causes near the date, best match first. Evidence, not proof:"
    else:
        yield "Nothing is recorded near the date (`iowatch event add` records what happened)."
    for position, cause in enumerate(ranked, start=1):
        yield f"  {position}. {cause.name} [{cause.kind}, {cause.when}]"
        yield from (f"     + {text}" for text in cause.speaks_for)
        yield from (f"     - {text}" for text in cause.speaks_against)
    yield ""


def administered_differences(finding: Finding) -> list[EvidenceDifference]:
    """The differences that administrators cause, each part once; counters and nodes follow from them."""
    by_part: dict[str, EvidenceDifference] = {}
    for difference in finding.differences:
        if difference.is_administered:
            by_part[difference.what] = difference
    return list(by_part.values())


def format_difference(difference: EvidenceDifference) -> str:
    """`stack gnu14: hdf5 1.10 -> 1.14`."""
    return f"{difference.where}: {difference.what} {difference.before} -> {difference.after}"


# Values of a difference that the short texts state, and the letters of each. With twice as many a card has several
# lines of mount options; the table of differences has all of them.
_MAX_CHANGED_VALUES, _MAX_VALUE_LETTERS = 3, 60
# `1.14 (variants build_type=Debug mpi=True) (hash abc)` of a part of a stack.
_PART_FIELD = re.compile(r"\((?P<name>variants|compiler|target|hash) (?P<value>[^()]*)\)")
# `stripe_count: -1 stripe_size: 1048576`, and nothing else.
_NAMED_WITH_COLONS = re.compile(r"(?:\w+:\s+\S+\s*)+")


def format_short_difference(difference: EvidenceDifference) -> str:
    """What differs, without what both sides have in common: `default striping: stripe_count -1 -> 1`.

    Of settings with several values, and of variants, only those that differ are stated; hashes are stated where nothing
    else differs.
    """
    before, after = _split_value(difference.before), _split_value(difference.after)
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if len(changed) > 1:
        # A part that is built in another way has another hash.
        changed = [name for name in changed if name != "hash"]
    texts: list[str] = []
    for name in changed[:_MAX_CHANGED_VALUES]:
        old, new = before.get(name, "none"), after.get(name, "none")
        if not name:
            old, new = _without_common_words(old, new)
        texts.append(f"{name} {_shorten_value(old)} -> {_shorten_value(new)}".strip())
    if len(changed) > _MAX_CHANGED_VALUES:
        texts.append(f"{len(changed) - _MAX_CHANGED_VALUES} more")
    separator = "" if changed == [""] else ":"
    return f"{difference.what}{separator} {', '.join(texts)}"


def _split_value(text: str) -> dict[str, str]:
    """The values of a difference by name; what has no name has the name "".

    For example `1.14 (variants mpi=True) (hash abc)` has the values 1.14, `mpi` True and `hash` abc.
    """
    values: dict[str, str] = {}
    for part_field in _PART_FIELD.finditer(text):
        if part_field["name"] == "variants":
            values |= _split_value(part_field["value"])
        else:
            values[part_field["name"]] = part_field["value"]
    rest = _PART_FIELD.sub(" ", text).strip()
    if _NAMED_WITH_COLONS.fullmatch(rest):
        words = rest.split()
        for name, value in zip(words[::2], words[1::2], strict=True):
            values[name.rstrip(":")] = value
        return values
    # `rw,vers=4.2,hard`: options are separated by commas, and only some have a value.
    unnamed: list[str] = []
    for word in re.split(r"[\s,]+", rest):
        name, separator, value = word.partition("=")
        if separator and name.isidentifier():
            values[name] = value
        else:
            unnamed.append(word)
    if len(unnamed) == len(re.split(r"[\s,]+", rest)):
        # A text without named values stays as it is.
        values[""] = rest
    elif unnamed:
        values[""] = " ".join(unnamed)
    return values


def _without_common_words(before: str, after: str) -> tuple[str, str]:
    """Two texts without the words that both have: `rw hard` and `rw soft` are `hard` and `soft`.

    Lists of flaws (`a | b`) and of options (`a,b`) are compared item by item. Texts without a common word stay as they
    are, and so do JSON documents.
    """
    if before.startswith(("{", "[")):
        return before, after
    separator: str | None = None
    if " | " in before or " | " in after:
        separator = " | "
    elif " " not in before and " " not in after:
        separator = ","
    before_words, after_words = before.split(separator), after.split(separator)
    only_before = [word for word in before_words if word not in after_words]
    only_after = [word for word in after_words if word not in before_words]
    is_in_other_order = not only_before and not only_after
    if is_in_other_order or (len(only_before) == len(before_words) and len(only_after) == len(after_words)):
        return before, after
    joint = separator or " "
    return joint.join(only_before) or "none", joint.join(only_after) or "none"


def _shorten_value(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_LETTERS else f"{text[: _MAX_VALUE_LETTERS - 1]}…"


def covariate_cells(difference: CovariateDifference) -> tuple[str, str, str, str, str]:
    """Label, before, after, usual value and its range; sizes in powers of 1024."""
    label = difference.label
    if difference.includes_run:
        label = f"{label} (with the runs themselves)"
    unit = difference.unit
    before = _format_covariate_value(difference.before, unit)
    after = _format_covariate_value(difference.after, unit)
    usual = _format_covariate_value(difference.usual, unit)
    lowest = _format_covariate_value(difference.lowest, unit)
    highest = _format_covariate_value(difference.highest, unit)
    return label, before, after, usual, f"{lowest} to {highest}"


def _format_covariate_value(value: float, unit: str) -> str:
    if unit.startswith("bytes"):
        return format_size(value) + unit.removeprefix("bytes")
    return f"{format_number(value)} {unit}".strip()


def format_covariate(difference: CovariateDifference) -> str:
    """`jobs: 12 before, 40 after; usually 11 (3 to 20)`."""
    label, before, after, usual, span = covariate_cells(difference)
    return f"{label}: {before} before, {after} after; usually {usual} ({span})"


def format_slow_node(slow: SlowNode | NodeRatio) -> str:
    """`n3 was 3.1 times slower than the median of the other 3 nodes in 10 of 10 repetitions`.

    Of two nodes neither is the usual one: `n3 took 2.9 times as long as n4 in 3 of 3 repetitions`.
    """
    repetitions = f"in {slow.slow_repetitions} of {format_count(slow.repetitions, 'repetition')}"
    if slow.other is not None:
        return f"{slow.node} took {slow.ratio:.1f} times as long as {slow.other} {repetitions}"
    others = f"the median of the other {slow.other_nodes} nodes"
    return f"{slow.node} was {slow.ratio:.1f} times slower than {others} {repetitions}"


def slow_node_lines(facts: RunFacts) -> Iterator[str]:
    """The slow nodes of a run, `write: n3 was 3.1 times slower than …`; empty without."""
    for operation, times in facts.node_times.items():
        yield from (f"{operation}: {format_slow_node(slow)}" for slow in slow_nodes_of_run(times))


def format_slow_node_evidence(slow: SlowNode) -> str:
    """The sentence of `format_slow_node`, with the series and with how often the node was slow around the change."""
    after = f"so in {slow.slow_after} of {format_count(slow.runs_after, 'run')} on it since the change"
    before = "no run on it is known before"
    if slow.runs_before:
        before = f"in {slow.slow_before} of {slow.runs_before} before"
    return f"{format_slow_node(slow)} ({slow.series}); {after}, {before}"


def format_target_in_logs(slow: SlowTargetOfRuns) -> str:
    """`OST 14: 45.8 times the median of the other 23 targets (IOR write); so in 5 of 5 runs …, in 0 of 7 before`."""
    others = format_count(slow.other_targets, "target")
    ratio = f"{format_targets([slow.target])}: {slow.ratio:.1f} times the median of the other {others}"
    after = f"so in {slow.slow_after} of {format_count(slow.runs_after, 'run')} with files on it since the change"
    before = "no run with files on it is known before"
    if slow.runs_before:
        before = f"in {slow.slow_before} of {slow.runs_before} before"
    return f"{ratio} ({slow.series}); {after}, {before}"


def format_slow_target(slow: SlowTarget | TargetRatio) -> str:
    """`target OST 14 (work-OST000e) writes at 0.1 of the median of the other 23 in all 3 repetitions`.

    The figure is that of the rate: 0.1 takes ten times as long.
    """
    location = ""
    if slow.location != slow.target:
        location = f" ({slow.location})"
    rate = f"{slow.operation}s at {format_speed(1 / slow.ratio)} of the median of the other {slow.others}"
    return f"target {slow.target}{location} {rate} in all {slow.repetitions} repetitions"


def format_slow_target_since(slow: SlowTarget, zone: tzinfo) -> str:
    """The sentence of `format_slow_target`, with since when it is so.

    `…; so in its newest 5 of 20 sessions, since 3 Nov 2026`.
    """
    text = format_slow_target(slow)
    if slow.file_system is not None:
        text = f"{slow.file_system}: {text}"
    if slow.usual_ratio > _LEAST_STATED_RATIO:
        text = f"{text} (usually at {format_speed(1 / slow.usual_ratio)})"
    if slow.sessions == 1:
        return f"{text}; the first session that measured it"
    since = format_day(slow.since, zone)
    if slow.slow_sessions == slow.sessions:
        return f"{text}; so in all {slow.sessions} sessions since {since}"
    if slow.slow_sessions == 1:
        return f"{text}; not so in the {format_count(slow.sessions - 1, 'session')} before"
    return f"{text}; so in its newest {slow.slow_sessions} of {slow.sessions} sessions, since {since}"


# What was usually slower than the others by less than this is not stated.
_LEAST_STATED_RATIO = 1.1


def format_speed(speed: float) -> str:
    """A speed relative to others in two digits: `0.97`, `0.1`, `0.042`, `12`."""
    return f"{speed:.2g}" if speed < 0.995 else f"{speed:.1f}"


def slow_target_lines(facts: RunFacts) -> Iterator[str]:
    """The slow targets of a run, `target OST 14 (…) writes at 0.1 …`; empty without."""
    if facts.target_rates is not None:
        yield from (format_slow_target(slow) for slow in slow_targets_of_run(facts.target_rates))


def format_node_over_sessions(slow: NodeOverSessions, zone: tzinfo) -> str:
    """`n5 has 0.4 of the speed of the other nodes, the slowest one in 6 of 7 sessions since 9 Nov 2026`."""
    speed = f"{slow.node} has {format_speed(1 / slow.ratio)} of the speed of the other nodes"
    sessions = f"{slow.slowest} of {format_count(slow.sessions, 'session')}"
    return f"{speed}, the slowest one in {sessions} since {format_day(slow.since, zone)}"


def log_difference_lines(differences: LogDifferences | None) -> Iterator[str]:
    """Lines that show what differs between the Darshan logs before and after; empty without logs."""
    if differences is None:
        return
    before, after = differences.logs
    yield ""
    yield f"How the I/O was done: {differences.member}, {format_count(before, 'log')} before and {after} after"
    yield from (f"  {escape_control_characters(change.text)}" for change in differences.changes)
    if not differences.changes:
        yield "  in the same way: the change lies below the program"


def experiment_lines(experiment: FindingExperiment) -> tuple[str, ...]:
    """The answer of an experiment that explains a finding, or what to do."""
    if experiment.answer:
        return experiment.answer
    sessions = format_count(experiment.sessions, "session")
    if not experiment.purpose:
        return (f"`{experiment.command}` has {sessions} and no answer yet",)
    progress = f"; it has {sessions} and goes on" if experiment.sessions else ""
    return (f"`{experiment.command}` {experiment.purpose}{progress}",)
