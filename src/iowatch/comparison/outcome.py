"""Comparison of two sides: pairs of equal cases, provenance, differences of Darshan logs, and outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import log
from pathlib import Path

from iowatch.comparison.sides import (
    SERIES_AXES,
    Opened,
    SideEntries,
    SideEntry,
    SidePosition,
    SideRun,
    SideSpec,
    filter_entries,
    gather_entries,
    name_sides,
    published_side_entries,
    query_side_results,
    session_labels,
)
from iowatch.core import (
    METRICS,
    Case,
    InputError,
    Scalar,
    UsageError,
    canonical_json,
    format_count,
    get_metric,
    headline_metrics,
)
from iowatch.darshan import DarshanReader, TraceChange, diff_trace_groups, read_first_kept_trace
from iowatch.findings import CASE_PARAMETERS, reported_as
from iowatch.site import StackDiff, diff_stacks, stack_from_json
from iowatch.statistics import (
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    Side,
    SideSamples,
    compare_pairs,
    find_subgroups,
)
from iowatch.statistics.comparison import Subgroup
from iowatch.store import History, ResultRow, bulk, export

# Parameters that define the size or the object of a measurement; only removed from the key on request.
_NEVER_REMOVED = {
    "benchmark", "operation", "ranks", "nodes", "instances", "local_size", "global_size", "total_bytes",
    "transfer_bytes", "block_bytes", "segments", "files",
}  # fmt: skip

DifferingValues = Mapping[str, tuple[Scalar | None, Scalar | None]]
# Canonical JSON of a case without the differing axes, and metric.
_Key = tuple[str, str]


@dataclass(frozen=True)
class MatchedSides:
    """Pairs, parameters and axes in which the sides differ, and cases that only one side has.

    Attributes:
        entries: left and right entry of each of `pairs`.
        differing: values on the left and on the right by parameter or axis; removed from the key.
        common: axes with the same value in all pairs.
    """

    pairs: tuple[Pair[Case], ...]
    entries: tuple[tuple[SideEntry, SideEntry], ...]
    differing: DifferingValues
    common: Mapping[str, str]
    only_left: tuple[SideEntry, ...]
    only_right: tuple[SideEntry, ...]


def match_entries(
    left: Sequence[SideEntry], right: Sequence[SideEntry], options: ComparisonOptions, asked: set[str], headlines: bool
) -> MatchedSides:
    """Pair entries by all parameters and axes except those that differ between the sides.

    A parameter or axis differs if it has one value on the whole left side and another on the whole right side: the
    stack, the system, or a parameter in which two published tables differ.

    Args:
        options: `ignored` names are always removed from the key, and samples of cases that become equal are merged;
            only the `last` sessions of each side of a pair are used.
        asked: names that the user filtered both sides by; any of them may differ.
        headlines: use only the first of `headline_metrics` that both sides of a case have; all entries are of these.

    Raises:
        UsageError: published figures would have to be merged.
    """
    differing = _find_differing(left, right, {*asked, *options.ignored})
    removed = {*differing, *options.ignored}
    sides = [_group_by_key(entries, removed) for entries in (left, right)]
    shared = [key for key in sides[0] if key in sides[1]]
    unmatched = [[key for key in side if key not in set(shared)] for side in sides]
    if headlines:
        shared = _monitored_keys(shared)
        unmatched = [_monitored_keys(keys, {case for case, _ in shared}) for keys in unmatched]
    entries = tuple((sides[0][key], sides[1][key]) for key in shared)
    # Values of each axis that is part of the key.
    axes = {n: sorted({one.axes[n] for one, _ in entries if n in one.axes}) for n in SERIES_AXES if n not in removed}
    pairs = tuple(_make_pair(one, other, removed, axes, options.last) for one, other in entries)
    only = [tuple(side[key] for key in keys) for side, keys in zip(sides, unmatched, strict=True)]
    common = {name: values[0] for name, values in axes.items() if len(values) == 1}
    return MatchedSides(pairs, entries, differing, common, only[0], only[1])


def _monitored_keys(keys: Iterable[_Key], done: Collection[str] = ()) -> list[_Key]:
    """First of `headline_metrics` of each case that is not in `done`."""
    found: dict[str, str] = {}
    order = headline_metrics()
    for case, name in keys:
        if case not in done:
            found[case] = min(found.get(case, name), name, key=order.index)
    return list(found.items())


def _find_differing(left: Sequence[SideEntry], right: Sequence[SideEntry], asked: Collection[str]) -> DifferingValues:
    described = [[entry.described for entry in entries] for entries in (left, right)]
    names = {name for side in described for one in side for name in one}
    found = {}
    for name in sorted(names):
        values = [{one.get(name) for one in side} for side in described]
        single = all(len(each) == 1 for each in values) and values[0] != values[1]
        if single and (name not in _NEVER_REMOVED or name in asked):
            found[name] = (values[0].pop(), values[1].pop())
    return found


def _group_by_key(entries: Sequence[SideEntry], removed: Collection[str]) -> dict[_Key, SideEntry]:
    found: dict[_Key, SideEntry] = {}
    for entry in entries:
        case = canonical_json({n: v for n, v in entry.described.items() if n not in removed})
        key = case, entry.metric
        found[key] = _merge_entries(found[key], entry) if key in found else entry
    return found


def _merge_entries(first: SideEntry, second: SideEntry) -> SideEntry:
    if not (isinstance(first.side, SideSamples) and isinstance(second.side, SideSamples)):
        raise UsageError(
            "two printed figures of one side are the same case once parameters are ignored",
            hint="Ignore fewer parameters, or choose with ,name=value after the side.",
        )
    one, other = first.side.sessions, second.side.sessions
    sessions = {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}
    none: frozenset[SideRun] = frozenset()
    facts = {n: first.facts.get(n, none) | second.facts.get(n, none) for n in {**first.facts, **second.facts}}
    return SideEntry(first.case, first.metric, first.axes, SideSamples(sessions), facts)


def _make_pair(
    left: SideEntry, right: SideEntry, removed: Collection[str], axes: Mapping[str, Sequence[str]], last: int
) -> Pair[Case]:
    several = {name: value for name, value in left.axes.items() if len(axes.get(name, ())) > 1}
    if "file_system" in left.axes and "file_system" not in removed:
        several["file_system"] = left.axes["file_system"]
    case = left.case.without(*removed)
    return Pair(
        case=Case(case.benchmark, {**case.parameters, **several}),
        metric=left.metric,
        left=_limit_side_runs(left.side, last),
        right=_limit_side_runs(right.side, last),
        sign=get_metric(left.metric).sign,
    )


@dataclass(frozen=True)
class SideProvenance:
    """One side: number of sessions, start of the first and of the last run (epoch s), names of its stacks.

    Attributes:
        contents: numbers of the contents of its stacks in the history.
        rebuilt: whether the content of a stack differs between these runs.
        nodes: all known nodes of its runs.
    """

    runs: int
    first: int
    last: int
    stacks: tuple[str, ...]
    contents: tuple[int, ...]
    rebuilt: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparisonProvenance:
    """Provenance of both sides; None for published tables, which have no runs.

    Attributes:
        libraries: stack diff of the sides; None if the stack of a side is not known, or has several contents.
        elsewhere: of the runs compared session by session with known nodes, the number that used other nodes than
            their counterpart, and the total; None without such runs.
    """

    left: SideProvenance | None
    right: SideProvenance | None
    libraries: StackDiff | None
    elsewhere: tuple[int, int] | None = None


def compute_provenance(matched: MatchedSides, history: History | None) -> ComparisonProvenance:
    """Compute the provenance of the pairs.

    Args:
        history: None if neither side is in a history.
    """
    both = list(zip(matched.pairs, matched.entries, strict=True))
    lefts, rights = [(pair.left, one) for pair, (one, _) in both], [(pair.right, one) for pair, (_, one) in both]
    numbers = {run.number for one in (*lefts, *rights) for run in _compared_runs(*one) if run.number is not None}
    nodes: _Nodes = {}
    if history is not None:
        with history.reading() as connection:
            nodes = bulk.run_nodes(connection, sorted(numbers))
    left, right = _side_provenance(lefts, nodes), _side_provenance(rights, nodes)
    elsewhere = _count_runs_on_other_nodes(lefts, rights, nodes)
    return ComparisonProvenance(left, right, _diff_libraries(left, right, history), elsewhere)


_ComparedSides = Sequence[tuple[Side, SideEntry]]
_Nodes = Mapping[int, tuple[str, ...]]


def _compared_runs(side: Side, entry: SideEntry) -> set[SideRun]:
    """Runs of the compared sessions."""
    sessions = side.sessions if isinstance(side, SideSamples) else ()
    return {run for session in sessions for run in entry.facts.get(session, ())}


def _side_provenance(sides: _ComparedSides, nodes: _Nodes) -> SideProvenance | None:
    runs = {run for one in sides for run in _compared_runs(*one)}
    if not runs:
        return None
    sampled = [(side, entry.axes) for side, entry in sides if isinstance(side, SideSamples)]
    stacks = {tuple(axes.get(name, "") for name in ("stack", "system", "partition")) for _, axes in sampled}
    contents = {run.content for run in runs if run.content is not None}
    return SideProvenance(
        runs=len({session for side, _ in sampled for session in side.sessions}),
        first=min(run.time for run in runs),
        last=max(run.time for run in runs),
        stacks=tuple(sorted({stack for stack, *_ in stacks if stack})),
        contents=tuple(sorted(contents)),
        rebuilt=len(contents) > len(stacks),
        nodes=tuple(sorted({node for run in runs for node in nodes.get(run.number or 0, ())})),
    )


def _count_runs_on_other_nodes(lefts: _ComparedSides, rights: _ComparedSides, nodes: _Nodes) -> tuple[int, int] | None:
    """Number of runs with different nodes on the two sides of a session and case, and of all with known nodes."""
    differing = known = 0
    for (left, one), (right, other) in zip(lefts, rights, strict=True):
        if isinstance(left, SideSamples) and isinstance(right, SideSamples):
            for name in left.sessions.keys() & right.sessions.keys():
                runs = one.facts.get(name, ()), other.facts.get(name, ())
                used = [{node for run in side for node in nodes.get(run.number or 0, ())} for side in runs]
                known += all(used)
                differing += all(used) and used[0] != used[1]
    return (differing, known) if known else None


def _diff_libraries(
    left: SideProvenance | None, right: SideProvenance | None, history: History | None
) -> StackDiff | None:
    if history is None or not left or not right or not len(left.contents) == len(right.contents) == 1:
        return None
    with history.reading() as connection:
        documents = bulk.stack_contents(connection, [*left.contents, *right.contents])
    try:
        stacks = [stack_from_json(documents[one.contents[0]], "history") for one in (left, right)]
    except InputError:
        return None
    return diff_stacks(stacks[0], stacks[1]) if stacks[0].parts and stacks[1].parts else None


# Number of newest runs per side, and of cases, whose logs are read; reading a log takes about 20 ms.
_MAX_RUNS = 3
_MAX_CASES = 12


@dataclass(frozen=True)
class TracedCase:
    """Differences between the logs of one case; the operations of a case share logs.

    Attributes:
        logs: number of logs read, left and right.
    """

    case: Case
    logs: tuple[int, int]
    changes: tuple[TraceChange, ...]


@dataclass(frozen=True)
class TraceComparison:
    """Cases with logs on both sides, largest measured difference first.

    Attributes:
        left_out: number of further cases whose logs were not read, because of the limit.
    """

    cases: tuple[TracedCase, ...] = ()
    left_out: int = 0


def compare_side_traces(
    compared: Sequence[PairComparison[Case]], matched: MatchedSides, history: History
) -> TraceComparison:
    """Compare the logs of the newest runs on both sides of each case.

    Args:
        compared: in the order of the pairs of `matched`.
    """
    # Case by the numbers of the newest runs on both sides.
    cases: dict[tuple[tuple[int, ...], tuple[int, ...]], Case] = {}
    rows = zip(compared, matched.pairs, matched.entries, strict=True)
    for one, pair, (left, right) in sorted(rows, key=lambda row: _difference_rank(row[0])):
        runs = _newest_runs(pair.left, left), _newest_runs(pair.right, right)
        if all(runs):
            cases.setdefault(runs, one.case.without("operation"))
    numbers = sorted({number for runs in cases for side in runs for number in side})
    with history.reading() as connection:
        logs = bulk.run_files(connection, numbers, "darshan")
    remaining = [(case, runs) for runs, case in cases.items() if all(any(n in logs for n in side) for side in runs)]
    found: list[TracedCase] = []
    with DarshanReader() as reader:
        while remaining and len(found) < _MAX_CASES:
            case, both = remaining.pop(0)
            read = ([read_first_kept_trace(logs.get(run, ()), reader) for run in side] for side in both)
            before, after = ([trace for trace in traces if trace] for traces in read)
            if before and after:
                found.append(TracedCase(case, (len(before), len(after)), diff_trace_groups(before, after)))
    return TraceComparison(tuple(found), len(remaining))


def _difference_rank(one: PairComparison[Case]) -> tuple[bool, float]:
    """Sort key: pairs with a verdict of a difference first, the largest first."""
    return one.verdict not in ("faster", "slower"), -abs(log(one.ratio)) if one.ratio else 0.0


def _newest_runs(side: Side, entry: SideEntry) -> tuple[int, ...]:
    known = {(run.time, run.number) for run in _compared_runs(side, entry) if run.number is not None}
    return tuple(number for _, number in sorted(known)[-_MAX_RUNS:])


@dataclass(frozen=True)
class ComparisonOptions:
    """Selection and thresholds of a comparison.

    Attributes:
        metrics: names; empty means the headline metric of each case or, if neither side has one, all metrics with a
            direction.
        ignored: parameters removed from the key.
        days: number of days before and after an event.
        last: number of newest sessions used of each case; older levels of a stack add little information and take
            time.
    """

    metrics: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    days: int = 28
    last: int = 100
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)


@dataclass(frozen=True)
class Outcome:
    """A comparison with all data of its report.

    Attributes:
        names: of both sides, for reports.
        provenance: dates and libraries of each side.
        notes: excluded results and the reasons.
        traced: differences between the sides in their Darshan logs.
    """

    left: SideSpec
    right: SideSpec
    names: tuple[str, str]
    matched: MatchedSides
    compared: tuple[PairComparison[Case], ...]
    overall: OverallComparison
    subgroups: tuple[Subgroup, ...]
    options: ComparisonOptions
    provenance: ComparisonProvenance
    notes: tuple[str, ...]
    traced: TraceComparison = field(default_factory=TraceComparison)


def compare_sides(left: SideSpec, right: SideSpec, history: Opened, options: ComparisonOptions) -> Outcome:
    """Resolve both sides, pair their cases, and compare the pairs.

    Args:
        history: opens the history; not called for published tables and files.

    Raises:
        UsageError: a side has no results, results are on both sides, or no case is on both sides.
        InputError: a file is damaged.
    """
    gathered = _gather_sides(left, right, history, options)
    found = [filter_entries(spec, side.entries) for spec, side in zip((left, right), gathered, strict=True)]
    _refuse_shared_results(left, right, found)
    headlines = headline_metrics()
    headlines_only = not options.metrics and any(entry.metric in headlines for side in found for entry in side)
    default_metrics = (
        headlines if headlines_only else [name for name in METRICS if METRICS[name].direction != "neutral"]
    )
    sides = [[entry for entry in entries if entry.metric in (options.metrics or default_metrics)] for entries in found]
    asked = set(left.filters) & set(right.filters)
    matched = match_entries(sides[0], sides[1], options, asked, headlines=headlines_only)
    if not matched.pairs:
        why = _no_pairs_reason(left, right, sides[0], sides[1])
        raise UsageError(f"no case is on both sides of '{left.text}' and '{right.text}'", hint=why)
    with reported_as(UsageError):
        compared, overall = compare_pairs(matched.pairs, options.settings)
    groups = find_subgroups(compared, options.settings, CASE_PARAMETERS)
    names = name_sides(left, right, matched.differing, matched.common)
    notes = _exclusion_notes(names, gathered, options)
    measured_here = bool({left.kind, right.kind} - {"file", "published"})
    opened = history() if measured_here else None
    provenance = compute_provenance(matched, opened)
    logs = compare_side_traces(compared, matched, opened) if opened else TraceComparison()
    return Outcome(left, right, names, matched, tuple(compared), overall, groups, options, provenance, notes, logs)


def _refuse_shared_results(left: SideSpec, right: SideSpec, found: Sequence[Sequence[SideEntry]]) -> None:
    """Raise a `UsageError` if a result is on both sides: it would be compared with itself."""
    axes = SERIES_AXES if "side" in left.filters and "side" in right.filters else SERIES_AXES[:-1]
    results = [_result_identities(entries, axes) for entries in found]
    shared, total = len(results[0] & results[1]), len(results[0] | results[1])
    if shared or (results == [set(), set()] and found[0] == found[1]):
        which = "are the same results" if shared == total else f"share {shared} of {total} results"
        raise UsageError(
            f"'{left.text}' and '{right.text}' {which}: a result cannot be compared with itself",
            hint="Name two stacks, systems, sessions, or periods that do not overlap (a period includes its last day).",
        )


def _result_identities(entries: Sequence[SideEntry], axes: Sequence[str]) -> set[tuple[object, ...]]:
    """What identifies each result of a side, in a history and in its export; empty for published figures."""
    return {
        (*(entry.axes.get(axis) for axis in axes), entry.case.key, entry.metric, session, samples)
        for entry in entries
        if isinstance(entry.side, SideSamples)
        for session, samples in entry.side.sessions.items()
    }


def _gather_sides(left: SideSpec, right: SideSpec, history: Opened, options: ComparisonOptions) -> list[SideEntries]:
    places: tuple[tuple[SideSpec, SidePosition], ...] = ((left, "left"), (right, "right"))
    files = cache(export.read_export_file)  # both sides may be in one file

    def results(spec: SideSpec, place: SidePosition) -> list[ResultRow]:
        return files(Path(spec.name)) if spec.kind == "file" else query_side_results(spec, place, history, options.days)

    found = [None if spec.kind == "published" else results(spec, place) for spec, place in places]
    names = session_labels(chain.from_iterable(each for each in found if each is not None))
    return [
        SideEntries(tuple(published_side_entries(spec.name)))
        if each is None
        else gather_entries(each, names, "side" in spec.filters)
        for (spec, _), each in zip(places, found, strict=True)
    ]


def _limit_side_runs(side: Side, last: int) -> Side:
    if not isinstance(side, SideSamples) or len(side.sessions) <= last:
        return side
    return SideSamples(dict(list(side.sessions.items())[-last:]))


def _no_pairs_reason(one: SideSpec, other: SideSpec, left: Sequence[SideEntry], right: Sequence[SideEntry]) -> str:
    """Parameters without a common value, as the hint of an error."""
    if not left or not right:
        return f"'{one.text if not left else other.text}' has no case of these metrics and filters."
    names = sorted({name for entry in (*left, *right) for name in entry.described})
    disjoint = []
    for name in names:
        values = [sorted({str(entry.described.get(name)) for entry in side}) for side in (left, right)]
        if not set(values[0]) & set(values[1]):
            shown = (", ".join(each[:4] + ["…"] * (len(each) > 4)) for each in values)
            disjoint.append(f"{name} ({' | '.join(shown)})")
    return f"Nothing in common in: {'; '.join(disjoint) or 'the combinations'}. --ignore NAME takes one out."


def _exclusion_notes(
    names: tuple[str, str], gathered: Sequence[SideEntries], options: ComparisonOptions
) -> tuple[str, ...]:
    found = []
    for name, side in zip(names, gathered, strict=True):
        texts = ("of failed or incomplete runs", "of warm-ups", "with a value of 0")
        excluded = zip((side.not_ok, side.warm_ups, side.not_positive), texts, strict=True)
        found += [f"{name}: {format_count(n, 'result')} {what} left out" for n, what in excluded if n]
        longest = max((len(e.side.sessions) for e in side.entries if isinstance(e.side, SideSamples)), default=0)
        if longest > options.last:
            found.append(f"{name}: the newest {options.last} of up to {longest} runs used (--last)")
    return tuple(found)


def describe_entry(entry: SideEntry) -> Mapping[str, Scalar]:
    """Axes, parameters and metric of an unpaired case for reports."""
    return {**entry.described, "metric": entry.metric}
