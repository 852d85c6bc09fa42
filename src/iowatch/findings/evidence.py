"""Evidence of a finding: differences between the runs before and after a change, and likely causes.

The differences cover stacks, the environment recorded by the runs (kernel, mount, MPI, hints in effect; a stack only
states what a run was configured to use), settings of file systems, Darshan counters and logs, nodes, and covariates.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean, median
from typing import Any

import numpy as np

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import (
    COVARIATE_FACTS,
    covariate_label,
    format_count,
    get_covariate,
    local_day,
    recorded_covariates,
    run_covariates,
)
from iowatch.darshan import (
    DarshanReader,
    Trace,
    TraceChange,
    diff_trace_groups,
    escape_control_characters,
    read_first_kept_trace,
)
from iowatch.findings import grouping
from iowatch.findings.case_parameters import CASE_PARAMETERS, short_case_names
from iowatch.findings.finding import (
    ChangeGroup,
    CovariateDifference,
    EvidenceDifference,
    Finding,
    FindingMember,
    LoadShare,
    Outlook,
)
from iowatch.findings.layers import layer_of_group, probe_responses
from iowatch.findings.series import load_detections
from iowatch.reference import Event
from iowatch.site import system_zone
from iowatch.statistics import ChangePoint, Detection, PossibleCause, explain_changes, rank_causes
from iowatch.statistics.explanation import EventReach
from iowatch.statistics.panel import probability_beside
from iowatch.store import NO_RUN_FACTS, History, RunFacts, RunRow, SeriesPoints, SeriesRow, SessionRow

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


def environment_differences(
    name: str, before: RunFacts, after: RunFacts, *, programs: bool = True
) -> Iterable[EvidenceDifference]:
    """Environment diff of two runs of one case; groups that one of the runs did not record are left out.

    Args:
        name: of the case, for display.
        before, after: facts of the runs.
        programs: also compare the program, MPI and libraries as loaded; False if the stacks are known to differ.
    """
    machine = bool(before.machine and after.machine)
    old, new = (_recorded_environment(name, facts, machine) for facts in (before, after))
    for where in [where for where in old if programs or where not in ("loaded", "program")]:
        one, other = old[where], new[where]
        for what in sorted(one.keys() | other.keys()) if one and other else ():
            values = [side.get(what, "none") for side in (one, other)]
            if values[0] != values[1]:
                yield EvidenceDifference(where, what, *(v if isinstance(v, str) else json.dumps(v) for v in values))


def _recorded_environment(name: str, facts: RunFacts, machine: bool) -> dict[str, dict[str, Any]]:
    """The recorded environment of a run, by group.

    Args:
        name: of the case, for display.
        machine: whether to use the facts that every job collects, instead of those of benchio.
    """
    labels, node = (_MACHINE, facts.machine) if machine else (_FILE_SYSTEM, facts.filesystem)
    effective_hints = facts.hints.get("effective")
    groups: dict[str, Mapping[str, Any]] = {
        "compute node": {label: node.get(key) for key, label in labels.items()}
        | ({} if machine else {"kernel": facts.kernel}),
        # A group of its own, so that runs of releases that did not record it are left out.
        "compute node, processor": dict(
            row.split(": ", 1) for row in str(node.get("vulnerabilities", "")).split(" | ") if ": " in row
        ),
        # Only hints in effect: MPI may list others that it ignores.
        f"MPI-IO hints, {name}": effective_hints if isinstance(effective_hints, Mapping) else {},
        "loaded": {"MPI": facts.mpi.get("description") or facts.mpi.get("version"), **facts.libraries},
        # Also where the versions are equal: a program or library was replaced in its place.
        "program": {
            "SHA-256": facts.program.get("sha256"),
            "libraries": " ".join(facts.program.get("libraries") or ()),
        },
        "tracing": {"by": facts.tracing},
        "settings": {
            name.removeprefix(_SETTING): value
            for name, value in recorded_covariates(facts.document, "before").items()
            if name.startswith(_SETTING)
        },
    }
    return {
        where: {what: value for what, value in group.items() if value not in (None, "", "unknown")}
        for where, group in groups.items()
    }


# Attributes of sessions of `iowatch bisect`: the search, with `finding` if it is about one; and its answer.
BISECT_ATTRIBUTE, BISECT_ANSWER = "bisect", "bisect_answer"


@dataclass(frozen=True)
class FindingBisection:
    """The search for the part of a stack that caused a finding.

    Attributes:
        command: starts it, or goes on.
        sessions: number of its sessions so far.
        answer: the newest answer in sentences, the most important first; empty without one.
    """

    command: str
    sessions: int
    answer: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer, or what to do."""
        if self.answer:
            return self.answer
        state = f"; it has {format_count(self.sessions, 'session')} and goes on" if self.sessions else ""
        return (f"`{self.command}` measures which difference between the stacks causes it{state}",)


def find_bisection(
    history: History, finding: Finding, sessions: Sequence[SessionRow] | None = None
) -> FindingBisection | None:
    """Return the search of a finding; None if its stacks do not differ on both sides, so that there is none.

    Args:
        sessions: those of its system, newest first, if the caller has loaded them.
    """
    rows = [
        row
        for row in (history.sessions(finding.system) if sessions is None else sessions)
        if isinstance(of := row.facts.document.get(BISECT_ATTRIBUTE), Mapping) and of.get("finding") == finding.id
    ]
    if not rows and bisected_member(history, finding) is None:
        return None
    answer = next((row.facts.document[BISECT_ANSWER] for row in rows if BISECT_ANSWER in row.facts.document), ())
    return FindingBisection(f"iowatch bisect --finding {finding.id}", len(rows), tuple(map(str, answer)))


def bisected_member(history: History, finding: Finding) -> tuple[FindingMember, RunRow, RunRow] | None:
    """The member with the largest change whose stack differs, and its runs before and after; None without one.

    The date of a change is exact to five observations (docs/detection.md, step 7): where no stack differs at the date,
    the nearest exchange of a stack within these is taken.
    """
    strongest = sorted(finding.members, key=lambda m: -max(m.gain, 1 / m.gain))[:_MAX_PAIRS]
    nearest = [(m, [(m.run_before, m.run_after)]) for m in strongest if m.run_before and m.run_after]
    around = [
        (m, list(pairwise(history.runs_near(m.series_id, m.first_after, _DATE_ERROR + 1))))
        for m in strongest[:_MAX_NODE_MEMBERS]
    ]
    members = [*nearest, *around]
    stacks = history.stack_of_runs([run for _, pairs in members for pair in pairs for run in pair])
    for member, pairs in members:
        # Most runs have the very same stack: only the others are read.
        changed = [(history.run(a), history.run(b)) for a, b in pairs if stacks.get(a) != stacks.get(b)]
        exchanges = [pair for pair in changed if _has_other_stack(*pair)]
        if exchanges:
            return member, *min(exchanges, key=lambda pair: abs(pair[1].started_at - member.first_after))
    return None


def _has_other_stack(before: RunRow, after: RunRow) -> bool:
    old, new = before.stack_document, after.stack_document
    return old.get("modules") != new.get("modules") or any(stack_differences(after.stack, old, new))


# Observations by which the date of a change may be wrong.
_DATE_ERROR = 5
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
    found: dict[tuple[str, str], EvidenceDifference] = {}
    strongest = sorted(members, key=lambda m: -max(m.gain, 1 / m.gain))
    for member in strongest[:_MAX_PAIRS]:
        if member.run_before is None or member.run_after is None:
            continue
        before, after = history.run(member.run_before), history.run(member.run_after)
        found_parts = stack_differences(member.stack, before.stack_document, after.stack_document)
        # Programs of other benchmarks did not take part, and may only be known to a newer release of iowatch.
        own = BENCHMARKS.get(str(member.parameters.get("benchmark")))
        others = {tool.package for tool in BENCHMARKS.values()} - {own.package if own else None}
        stacks = [one for one in found_parts if one.what not in others]
        facts = (member.name, before.facts, after.facts)
        around = environment_differences(*facts, programs=not stacks)
        for one in (*stacks, *around, *counter_differences(*facts)):
            found.setdefault((one.where, one.what), one)
    for member in strongest[:_MAX_NODE_MEMBERS]:
        around_change = runs_around_change(member, points[member.series_id])
        facts_of_runs = history.run_facts([run for runs in around_change for run in runs], ("nodes",))
        old, new = ([facts_of_runs[run].nodes for run in runs] for runs in around_change)
        for one in node_differences(member.name, old, new):
            found.setdefault((one.where, one.what), one)
    return tuple(found.values())


def runs_around_change(
    member: FindingMember, points: SeriesPoints, most: int = _MAX_NODE_RUNS
) -> tuple[list[int], list[int]]:
    """Ids of the last runs before and of the first runs after the change of a member, at most so many each."""
    before = points.run_id[points.time <= member.last_before][-most:]
    after = points.run_id[points.time >= member.first_after][:most]
    return [int(run) for run in before], [int(run) for run in after]


def node_differences(
    name: str, before: Sequence[Collection[str]], after: Sequence[Collection[str]]
) -> Iterable[EvidenceDifference]:
    """Nodes that all runs on one side used and no run on the other; empty with fewer than three runs per side.

    Args:
        name: of the case, for display.
        before, after: nodes of each run; runs without nodes are left out.
    """
    old, new = ([frozenset(map(str, nodes)) for nodes in runs if nodes] for runs in (before, after))
    if min(len(old), len(new)) < _MIN_NODE_RUNS:
        return
    left = frozenset.intersection(*old) - frozenset.union(*new)
    joined = frozenset.intersection(*new) - frozenset.union(*old)
    if left or joined:
        yield EvidenceDifference(f"nodes of {name}", "always there", _format_nodes(left), _format_nodes(joined))


def _format_nodes(nodes: frozenset[str]) -> str:
    named = sorted(nodes)[:_MAX_NODES]
    more = f" and {len(nodes) - len(named)} more" if len(nodes) > len(named) else ""
    return " ".join(named) + more if named else "none"


def stack_differences(stack: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[EvidenceDifference]:
    """Parts and settings that differ between two `stack.json`; empty if the parts of one of them are unknown."""
    if not before.get("parts") or not after.get("parts"):
        return
    old, new = _parts_by_name(before), _parts_by_name(after)
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if one != other:
            yield EvidenceDifference(f"stack {stack}", name, _format_part(one, other), _format_part(other, one))
    settings = [known if isinstance(known := side.get("settings"), Mapping) else {} for side in (before, after)]
    for name in sorted({*settings[0], *settings[1]}):
        values = [str(side.get(name, "none")) for side in settings]
        if values[0] != values[1]:
            yield EvidenceDifference(f"environment of stack {stack}", name, *values)


_COMPARED_FIELDS = ("version", "variants", "compiler", "target", "hash")


def _parts_by_name(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parts = [part for part in document.get("parts", ()) if isinstance(part, Mapping) and "name" in part]
    return {str(part["name"]): {key: part.get(key) for key in _COMPARED_FIELDS} for part in parts}


def _format_part(part: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """Version of a part, and its other compared fields that differ from the part of the other stack."""
    if part is None:
        return "none"
    texts = [str(part["version"])]
    for key in [key for key in _COMPARED_FIELDS[1:] if other is not None and part[key] != other[key]]:
        value = part[key]
        shown = " ".join(f"{k}={v}" for k, v in sorted(value.items())) if isinstance(value, dict) else value
        texts.append(f"({key} {shown})")
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
    around = {m.series_id: runs_around_change(m, points[m.series_id], _USUAL_RUNS) for m in members}
    # One query for all members: most systems record no covariates, and then none of them has any.
    newer = sorted({run for _, after in around.values() for run in after[:_MAX_NODE_RUNS]})
    known = history.run_facts(newer, COVARIATE_FACTS)
    for member in sorted(members, key=lambda m: -max(m.gain, 1 / m.gain)):
        usual, after = around[member.series_id]
        new = [run_covariates(known.get(run, NO_RUN_FACTS).document) for run in after[:_MAX_NODE_RUNS]]
        if not any(new):
            continue
        facts = history.run_facts(usual, COVARIATE_FACTS)
        old = [run_covariates(facts.get(run, NO_RUN_FACTS).document) for run in usual]
        if any(old):
            found = [one for name in set().union(*old) for one in _covariate_shift(name, old, new)]
            ranked = sorted(found, key=lambda one: (one[1].includes_run, -one[0], one[1].name))
            return tuple(one for _, one in ranked[:_MAX_COVARIATES])
    return ()


def _covariate_shift(
    name: str, old: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]
) -> Iterator[tuple[float, CovariateDifference]]:
    """The difference of one covariate, with its size in standard errors; nothing if it is chance or negligible."""
    before, after = (np.array([one[name] for one in runs if name in one]) for runs in (old, new))
    known = get_covariate(name)
    if min(len(before), len(after)) < _MIN_NODE_RUNS or known is None:
        return
    usual, now = float(np.median(before)), float(np.median(after))
    spread = float(np.std(np.concatenate([before - usual, after - now])))
    error = _MEDIAN_ERROR * spread * math.sqrt(1 / len(before) + 1 / len(after))
    shift = abs(now - usual)
    if shift > max(_MIN_SHIFT * error, _MIN_RELATIVE_SHIFT * abs(usual)):
        last = float(np.median(before[-_MAX_NODE_RUNS:]))
        numbers = (last, now, usual, float(before.min()), float(before.max()))
        one = CovariateDifference(name, covariate_label(name), known.run_unit, *numbers, known.includes_run)
        yield (shift / error if error else math.inf), one


# Counters within this factor are the same work; of the others, those with the largest ratios are reported.
_SIMILAR_COUNT_RATIO = 1.05
_MAX_COUNTERS = 5


def counter_differences(name: str, before: RunFacts, after: RunFacts) -> Iterable[EvidenceDifference]:
    """Darshan counters that differ between two runs of one case, which should always do the same work.

    Args:
        name: of the case, for display.
        before, after: facts of the runs; the result is empty if one of them has no trace.
    """
    old, new = (run.darshan.counts if run.darshan else {} for run in (before, after))
    ratios = {counter: _count_ratio(old[counter], new[counter]) for counter in old.keys() & new.keys()}
    differing = sorted((-ratio, counter) for counter, ratio in ratios.items() if ratio > _SIMILAR_COUNT_RATIO)
    for _, counter in differing[:_MAX_COUNTERS]:
        yield EvidenceDifference(f"Darshan, {name}", counter, f"{old[counter]:g}", f"{new[counter]:g}")


def _count_ratio(one: float, other: float) -> float:
    """Larger count / smaller count; infinite if only one of them is 0."""
    small, large = sorted((one, other))
    if small == large:
        return 1.0
    return large / small if small > 0 else math.inf


# Runs per side whose logs are read; a counter that differs among the runs of one side is not due to the change.
_MAX_TRACED_RUNS = 3


@dataclass(frozen=True)
class LogDifferences:
    """Differences in the logs between all runs before and all runs after a change, for one member.

    Attributes:
        member: name of the member.
        logs: number of logs read, before and after.
    """

    member: str
    logs: tuple[int, int]
    changes: tuple[TraceChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def format_log_differences(found: LogDifferences | None) -> Iterator[str]:
    """Lines that show the differences; empty without logs."""
    if found is not None:
        before, after = found.logs
        yield ""
        yield f"How the I/O was done: {found.member}, {format_count(before, 'log')} before and {after} after"
        yield from (f"  {escape_control_characters(change.text)}" for change in found.changes)
        if not found.changes:
            yield "  in the same way: the change lies below the program"


def find_log_differences(history: History, finding: Finding) -> LogDifferences | None:
    """Log differences of the member with the largest change among those with logs on both sides.

    None without such a member: the logs were pruned, or never existed.
    """
    members = sorted(finding.members, key=lambda member: -max(member.gain, 1 / member.gain))
    points = history.points([member.series_id for member in members])
    with DarshanReader() as reader:
        for member in members:
            if member.series_id not in points:
                continue
            before, after = runs_around_change(member, points[member.series_id])
            left = _read_run_traces(history, before[-_MAX_TRACED_RUNS:], reader)
            right = _read_run_traces(history, after[:_MAX_TRACED_RUNS], reader)
            if left and right:
                return LogDifferences(member.name, (len(left), len(right)), diff_trace_groups(left, right))
    return None


def _read_run_traces(history: History, runs: list[int], reader: DarshanReader) -> list[Trace]:
    logs = ([one.sha256 for one in history.artefacts(run) if one.kind == "darshan"] for run in runs)
    return [trace for digests in logs if (trace := read_first_kept_trace(digests, reader))]


def build_finding(
    history: History,
    system: str,
    name: str,
    group: grouping.ChangeGroup,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    points: Mapping[int, SeriesPoints],
    happened: Sequence[Event],
) -> Finding:
    """Build the finding `name` from the current history, without state, line, updates and decisions.

    Args:
        rows, changes, points: of all headline series of the system; changes and points by series id.
        happened: events of the system.
    """
    compared = grouping.compare_around_date(group, rows, changes, points)
    main, opposite, unchanged = compared.main, compared.opposite, compared.unchanged
    names = tuple(short_case_names([one.parameters for one in (*main, *opposite, *unchanged)]))
    changed = zip((*group.main, *group.opposite), names, strict=False)
    members = tuple(grouping.make_member(one, points[one.row.id], member_name) for one, member_name in changed)
    steady = names[len(members) :]
    explanation = explain_changes([*main, *unchanged], opposite, vocabulary=CASE_PARAMETERS)
    possible_causes = [s for event in happened for s in _causes_from_event(event)]
    run = next((m.run_after for m in members if m.run_after is not None), None)
    # Origin stated by the run if it was not measured on this installation.
    label = history.run(run).facts.label if run is not None else None
    return Finding(
        id=name,
        system=system,
        state="suspected",
        direction=group.direction,
        date=local_day(group.first_after, system_zone(system)).isoformat(),
        last_before=group.last_before,
        first_after=group.first_after,
        size=_mean_gain(group.main),
        line="",
        members=members,
        explanation=explanation,
        compared=names[: len(main)] + steady,
        without_data=compared.without_data,
        changed_otherwise=compared.changed_otherwise,
        causes=rank_causes(
            possible_causes,
            group.last_before,
            group.first_after,
            [*main, *unchanged],
            explanation,
            vocabulary=CASE_PARAMETERS,
        ),
        differences=evidence_differences(history, members, points),
        first_seen_at=0,
        updated_at=0,
        label=str(label) if label else None,
        outlook=_outlook(group),
        opposite=ChangeGroup(
            size=_mean_gain(group.opposite),
            explanation=explain_changes([*opposite, *unchanged], main, vocabulary=CASE_PARAMETERS),
            compared=names[len(main) : len(members)] + steady,
        )
        if opposite
        else None,
        probes=probe_responses(main, opposite, unchanged),
        layer=layer_of_group(group, rows, changes, points),
        load=share_of_load(group.changes, load_detections(history, [m.series_id for m in members])),
        covariates=covariate_differences(history, members, points),
    )


def _outlook(group: grouping.ChangeGroup) -> Outlook | None:
    e = group.event
    if e is None:
        return None
    moved = tuple((m.row.id, m.log_gain) for m in group.changes)
    directions = {one.direction: one.probability_lasting for one in e.groups}
    for direction in {m.direction for m in group.changes} - set(directions):
        joined = mean(m.change.confidence for m in group.changes if m.direction == direction)
        directions[direction] = probability_beside(e.probability_lasting, joined)
    return Outlook(
        e.probability_lasting,
        e.sessions,
        e.is_open,
        e.similar,
        e.over_next,
        moved=moved,
        new_load=e.new_load,
        directions=tuple(sorted(directions.items())),
        observed=e.observed,
    )


def _mean_gain(changes: Sequence[grouping.SeriesChange]) -> float:
    """Geometric mean."""
    return math.exp(sum(m.log_gain for m in changes) / len(changes))


def share_of_load(changes: Sequence[grouping.SeriesChange], detections: Mapping[int, Detection]) -> LoadShare | None:
    """The part of the changes that goes along with covariates; None if no series is adjusted.

    Args:
        detections: of these series, by series id.
    """
    used = [
        (one, found.adjustment)
        for one in changes
        if (found := detections.get(one.row.id)) is not None and found.adjustment is not None
    ]
    whole = sum(abs(one.log_gain) for one in changes)
    if not used or not whole:
        return None
    part = sum(abs(one.log_gain) * (one.change.load_share or 0.0) for one, _ in used)
    names = Counter(adjustment.covariate for _, adjustment in used)
    explained = median(adjustment.explained for _, adjustment in used)
    return LoadShare(part / whole, tuple(name for name, _ in names.most_common()), len(used), explained)


# Which series an event of each kind changes.
REACH_BY_KIND: dict[str, EventReach] = {
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


def _causes_from_event(event: Event) -> Iterator[PossibleCause]:
    """Possible causes from an event: each of its parts, or the event itself if it has no parts."""
    parts = [
        (f"{event.title}: {part.title}", part.kind, part.scope or event.scope, (*part.evidence, *event.evidence))
        for part in event.parts
    ]
    for name, kind, scope, evidence in parts or [(event.title, event.kind, event.scope, event.evidence)]:
        texts = tuple((e.verdict, f"{e.text} ({e.source})" if e.source else e.text) for e in evidence)
        yield PossibleCause(name, event.kind, kind, event.start, event.end, scope, texts, REACH_BY_KIND[kind])
