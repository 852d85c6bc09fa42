"""Evidence of a finding: differences between the runs before and after a change, and likely causes.

The differences cover stacks, the environment recorded by the runs (kernel, mount, MPI, hints in effect; a stack only
states what a run was configured to use), settings of file systems, Darshan counters and logs, nodes, and covariates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import COVARIATE_FACTS, covariate_label, get_covariate, recorded_covariates, run_covariates
from iowatch.findings.finding import (
    CovariateDifference,
    DifferenceSubject,
    EvidenceDifference,
    FindingMember,
    strongest_first,
)
from iowatch.store import NO_RUN_FACTS, History, RunFacts, SeriesPoints

# Every job collects `machine` on its node (checks/machine.py). The record of benchio has part of it, for
# results measured without the checks of iowatch.
_MACHINE = {
    "kernel": "kernel",
    "lustre": "Lustre client",
    "mount": "mount of scratch",
    "striping": "default striping",
    "requeued": "restarts of the job",
}
_FILE_SYSTEM = {
    "type": "file system",
    "mount": "mount of scratch",
    "source": "source of the mount",
    "directory_stripe_count": "default stripe count",
    "directory_stripe_bytes": "default stripe size",
    "directory_components": "default striping",
}


_SETTING = "setting:"


@dataclass(frozen=True)
class RecordedGroup:
    """What a run recorded about one thing, as names with values; empty if it recorded nothing."""

    subject: DifferenceSubject
    where: str
    values: Mapping[str, Any]


def environment_differences(
    name: str, before: RunFacts, after: RunFacts, *, programs: bool = True
) -> Iterable[EvidenceDifference]:
    """Environment diff of two runs of one case; groups that one of the runs did not record are left out.

    Args:
        name: of the case, for display.
        before, after: facts of the runs.
        programs: also compare the program, MPI and libraries as loaded; False if the stacks are known to differ.
    """
    # What every job collects, unless one of the two runs is older than that: then what benchio prints.
    has_machine_facts = bool(before.machine and after.machine)
    groups_before = _recorded_environment(name, before, has_machine_facts)
    groups_after = _recorded_environment(name, after, has_machine_facts)
    for old, new in zip(groups_before, groups_after, strict=True):
        is_recorded = bool(old.values) and bool(new.values)
        if not is_recorded or (old.subject in ("loaded", "program") and not programs):
            continue
        for what in sorted(old.values.keys() | new.values.keys()):
            value_before, value_after = old.values.get(what, "none"), new.values.get(what, "none")
            if value_before != value_after:
                yield EvidenceDifference(
                    old.subject, old.where, what, _format_value(value_before), _format_value(value_after)
                )


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _recorded_environment(name: str, facts: RunFacts, has_machine_facts: bool) -> list[RecordedGroup]:
    """The recorded environment of a run, always the same groups in the same order.

    Args:
        name: of the case, for display.
        has_machine_facts: whether to use the facts that every job collects, instead of those of benchio.
    """
    if has_machine_facts:
        node = facts.machine
        node_values = {label: node.get(key) for key, label in _MACHINE.items()}
    else:
        node = facts.filesystem
        node_values = {label: node.get(key) for key, label in _FILE_SYSTEM.items()}
        node_values["kernel"] = facts.kernel
    loaded = {"MPI": facts.mpi.get("description") or facts.mpi.get("version"), **facts.libraries}
    # Also where the versions are equal: a program or library was replaced in its place.
    program_libraries = facts.program.get("libraries") or ()
    program_values = {"SHA-256": facts.program.get("sha256"), "libraries": " ".join(program_libraries)}
    settings = {
        name.removeprefix(_SETTING): value
        for name, value in recorded_covariates(facts.document, "before").items()
        if name.startswith(_SETTING)
    }
    hints = _section(facts.hints, "effective")
    groups = (
        RecordedGroup("compute node", "compute node", node_values),
        # A group of its own, so that runs of releases that did not record it are left out.
        RecordedGroup("compute node", "compute node, processor", _processor_mitigations(node)),
        # Only hints in effect: MPI may list others that it ignores.
        RecordedGroup("hints", f"MPI-IO hints, {name}", hints),
        RecordedGroup("loaded", "loaded", loaded),
        RecordedGroup("program", "program", program_values),
        RecordedGroup("tracing", "tracing", {"by": facts.tracing}),
        RecordedGroup("settings", "settings", settings),
    )
    recorded: list[RecordedGroup] = []
    for group in groups:
        values = {what: value for what, value in group.values.items() if value not in (None, "", "unknown")}
        recorded.append(replace(group, values=values))
    return recorded


def _section(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of the facts of a run; empty if it is absent or of another form."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _processor_mitigations(node: Mapping[str, Any]) -> dict[str, str]:
    """Mitigations of vulnerabilities of the processor, from `name: mitigation | name: mitigation`."""
    mitigations: dict[str, str] = {}
    for row in str(node.get("vulnerabilities", "")).split(" | "):
        vulnerability, separator, mitigation = row.partition(": ")
        if separator:
            mitigations[vulnerability] = mitigation
    return mitigations


# Members of one event share stacks, so a few of them show all differences.
_MAX_PAIRS = 12
# Every job may get other nodes: only a difference between several runs on both sides is evidence.
_MAX_NODE_MEMBERS, _MIN_NODE_RUNS, _MAX_NODE_RUNS, _MAX_NODES = 4, 3, 7, 8


def evidence_differences(
    history: History, members: Sequence[FindingMember], points: Mapping[int, SeriesPoints]
) -> tuple[EvidenceDifference, ...]:
    """Differences between the runs before and after the change, for the members with the largest changes.

    Args:
        points: by series id, observations of each member on both sides of the change.
    """
    # Each part or setting once, as the member with the largest change shows it.
    differences: dict[tuple[str, str], EvidenceDifference] = {}
    strongest = strongest_first(members)
    for member in strongest[:_MAX_PAIRS]:
        for difference in _run_differences(history, member):
            differences.setdefault((difference.where, difference.what), difference)
    for member in strongest[:_MAX_NODE_MEMBERS]:
        runs = runs_around_change(member, points[member.series_id])
        facts = history.run_facts([*runs.before, *runs.after], ("nodes",))
        nodes_before = [facts[run].nodes for run in runs.before]
        nodes_after = [facts[run].nodes for run in runs.after]
        for difference in node_differences(member.name, nodes_before, nodes_after):
            differences.setdefault((difference.where, difference.what), difference)
    return tuple(differences.values())


def _run_differences(history: History, member: FindingMember) -> list[EvidenceDifference]:
    """Differences between the run before and the run after the change of a member: stack, environment, counters."""
    if member.run_before is None or member.run_after is None:
        return []
    before, after = history.run(member.run_before), history.run(member.run_after)
    # Programs of other benchmarks did not take part, and may only be known to a newer release of iowatch.
    benchmark = BENCHMARKS.get(str(member.parameters.get("benchmark")))
    other_packages = {tool.package for tool in BENCHMARKS.values()}
    other_packages.discard(benchmark.package if benchmark is not None else None)
    stack_parts: list[EvidenceDifference] = []
    for difference in stack_differences(member.stack, before.stack_document, after.stack_document):
        if difference.what not in other_packages:
            stack_parts.append(difference)
    environment = environment_differences(member.name, before.facts, after.facts, programs=not stack_parts)
    counters = counter_differences(member.name, before.facts, after.facts)
    return [*stack_parts, *environment, *counters]


@dataclass(frozen=True)
class RunsAroundChange:
    """Ids of runs before and after a change."""

    before: list[int]
    after: list[int]


def runs_around_change(member: FindingMember, points: SeriesPoints, most: int = _MAX_NODE_RUNS) -> RunsAroundChange:
    """Ids of the last runs before and of the first runs after the change of a member, at most so many each."""
    before = points.run_id[points.time <= member.last_before][-most:]
    after = points.run_id[points.time >= member.first_after][:most]
    # Numbers of Python, which the history can look up.
    return RunsAroundChange(before.tolist(), after.tolist())


def node_differences(
    name: str, before: Sequence[Collection[str]], after: Sequence[Collection[str]]
) -> Iterable[EvidenceDifference]:
    """Nodes that all runs on one side used and no run on the other; empty with fewer than three runs per side.

    Args:
        name: of the case, for display.
        before, after: nodes of each run; runs without nodes are left out.
    """
    sets_before = [frozenset(map(str, nodes)) for nodes in before if nodes]
    sets_after = [frozenset(map(str, nodes)) for nodes in after if nodes]
    if min(len(sets_before), len(sets_after)) < _MIN_NODE_RUNS:
        return
    only_before = frozenset.intersection(*sets_before) - frozenset.union(*sets_after)
    only_after = frozenset.intersection(*sets_after) - frozenset.union(*sets_before)
    if only_before or only_after:
        nodes_before, nodes_after = _format_nodes(only_before), _format_nodes(only_after)
        yield EvidenceDifference("nodes", f"nodes of {name}", "always there", nodes_before, nodes_after)


def _format_nodes(nodes: frozenset[str]) -> str:
    if not nodes:
        return "none"
    names = " ".join(sorted(nodes)[:_MAX_NODES])
    more = len(nodes) - _MAX_NODES
    return f"{names} and {more} more" if more > 0 else names


def stack_differences(stack: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[EvidenceDifference]:
    """Parts and settings that differ between two `stack.json`; empty if the parts of one of them are unknown."""
    if not before.get("parts") or not after.get("parts"):
        return
    parts_before, parts_after = _parts_by_name(before), _parts_by_name(after)
    for name in sorted(parts_before.keys() | parts_after.keys()):
        old, new = parts_before.get(name), parts_after.get(name)
        if old != new:
            yield EvidenceDifference("stack", f"stack {stack}", name, _format_part(old, new), _format_part(new, old))
    settings_before, settings_after = _section(before, "settings"), _section(after, "settings")
    for name in sorted({*settings_before, *settings_after}):
        value_before, value_after = str(settings_before.get(name, "none")), str(settings_after.get(name, "none"))
        if value_before != value_after:
            yield EvidenceDifference(
                "stack environment", f"environment of stack {stack}", name, value_before, value_after
            )


_COMPARED_FIELDS = ("version", "variants", "compiler", "target", "hash")


def _parts_by_name(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The compared fields of each part of a `stack.json`."""
    fields_by_name: dict[str, dict[str, Any]] = {}
    for part in document.get("parts", ()):
        if isinstance(part, Mapping) and "name" in part:
            fields_by_name[str(part["name"])] = {key: part.get(key) for key in _COMPARED_FIELDS}
    return fields_by_name


def _format_part(part: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """Version of a part, and its other compared fields that differ from the part of the other stack."""
    if part is None:
        return "none"
    texts = [str(part["version"])]
    for key in _COMPARED_FIELDS[1:]:
        if other is None or part[key] == other[key]:
            continue
        value = part[key]
        if isinstance(value, dict):
            value = " ".join(f"{name}={setting}" for name, setting in sorted(value.items()))
        texts.append(f"({key} {value})")
    return " ".join(texts)


# The usual state is that of so many runs; a shift of the median by fewer of its standard errors is chance among some
# twenty covariates, and less than this share of the usual value is not worth a line.
_USUAL_RUNS, _MIN_SHIFT, _MIN_RELATIVE_SHIFT, _MAX_COVARIATES = 30, 4.0, 0.02, 5
# Standard error of a median / (standard deviation / root n).
_MEDIAN_ERROR = 1.25


def covariate_differences(
    history: History, members: Sequence[FindingMember], points: Mapping[int, SeriesPoints]
) -> tuple[CovariateDifference, ...]:
    """Covariates that differ between the runs before and after, of the member with the largest change that has them.

    Those that do not contain the runs' own traffic come first, then the largest shift in standard errors.

    Args:
        points: by series id, observations of each member on both sides of the change.
    """
    runs_around = {m.series_id: runs_around_change(m, points[m.series_id], _USUAL_RUNS) for m in members}
    # One query for all members: most systems record no covariates, and then none of them has any.
    runs_after: set[int] = set()
    for runs in runs_around.values():
        runs_after.update(runs.after[:_MAX_NODE_RUNS])
    facts_after = history.run_facts(sorted(runs_after), COVARIATE_FACTS)
    for member in strongest_first(members):
        usual_runs = runs_around[member.series_id].before
        later_runs = runs_around[member.series_id].after
        covariates_after = [
            run_covariates(facts_after.get(run, NO_RUN_FACTS).document) for run in later_runs[:_MAX_NODE_RUNS]
        ]
        if not any(covariates_after):
            continue
        facts_before = history.run_facts(usual_runs, COVARIATE_FACTS)
        covariates_before = [run_covariates(facts_before.get(run, NO_RUN_FACTS).document) for run in usual_runs]
        if any(covariates_before):
            return _largest_shifts(covariates_before, covariates_after)
    return ()


def _largest_shifts(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> tuple[CovariateDifference, ...]:
    """The covariates that differ most; those without the runs' own traffic first."""
    shifts: list[_CovariateShift] = []
    for name in set().union(*before):
        shift = _covariate_shift(name, before, after)
        if shift is not None:
            shifts.append(shift)
    shifts.sort(key=lambda shift: (shift.difference.includes_run, -shift.standard_errors, shift.difference.name))
    return tuple(shift.difference for shift in shifts[:_MAX_COVARIATES])


@dataclass(frozen=True)
class _CovariateShift:
    """The difference of a covariate, and its size in standard errors."""

    standard_errors: float
    difference: CovariateDifference


def _covariate_shift(
    name: str, runs_before: Sequence[Mapping[str, float]], runs_after: Sequence[Mapping[str, float]]
) -> _CovariateShift | None:
    """The shift of one covariate; None if it is chance or negligible, or if too few runs recorded it."""
    covariate = get_covariate(name)
    before = np.array([values[name] for values in runs_before if name in values])
    after = np.array([values[name] for values in runs_after if name in values])
    if covariate is None or min(len(before), len(after)) < _MIN_NODE_RUNS:
        return None
    usual, now = float(np.median(before)), float(np.median(after))
    spread = float(np.std(np.concatenate([before - usual, after - now])))
    standard_error = _MEDIAN_ERROR * spread * math.sqrt(1 / len(before) + 1 / len(after))
    shift = abs(now - usual)
    if shift <= max(_MIN_SHIFT * standard_error, _MIN_RELATIVE_SHIFT * abs(usual)):
        return None
    difference = CovariateDifference(
        name=name,
        label=covariate_label(name),
        unit=covariate.run_unit,
        before=float(np.median(before[-_MAX_NODE_RUNS:])),
        after=now,
        usual=usual,
        lowest=float(before.min()),
        highest=float(before.max()),
        includes_run=covariate.includes_run,
    )
    return _CovariateShift(shift / standard_error if standard_error else math.inf, difference)


# Counters within this factor are the same work; of the others, those with the largest ratios are reported.
_SIMILAR_COUNT_RATIO = 1.05
_MAX_COUNTERS = 5


def counter_differences(name: str, before: RunFacts, after: RunFacts) -> Iterable[EvidenceDifference]:
    """Darshan counters that differ between two runs of one case, which should always do the same work.

    Args:
        name: of the case, for display.
        before, after: facts of the runs; the result is empty if one of them has no trace.
    """
    counts_before, counts_after = _darshan_counts(before), _darshan_counts(after)
    ratios: list[tuple[float, str]] = []
    for counter in counts_before.keys() & counts_after.keys():
        ratio = _count_ratio(counts_before[counter], counts_after[counter])
        if ratio > _SIMILAR_COUNT_RATIO:
            ratios.append((ratio, counter))
    # The largest ratio first; of equal ones in the order of the names.
    ratios.sort(key=lambda ratio_and_counter: (-ratio_and_counter[0], ratio_and_counter[1]))
    for _, counter in ratios[:_MAX_COUNTERS]:
        count_before, count_after = f"{counts_before[counter]:g}", f"{counts_after[counter]:g}"
        yield EvidenceDifference("counters", f"Darshan, {name}", counter, count_before, count_after)


def _darshan_counts(facts: RunFacts) -> Mapping[str, float]:
    """The counters of the trace of a run; empty without one."""
    if facts.darshan is None:
        return {}
    return facts.darshan.counts


def _count_ratio(before: float, after: float) -> float:
    """Larger count / smaller count; infinite if only one of them is 0."""
    small, large = sorted((before, after))
    if small == large:
        return 1.0
    return large / small if small > 0 else math.inf
