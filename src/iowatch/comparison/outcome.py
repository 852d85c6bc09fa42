"""Two sides, compared: pairs of equal cases, provenance of both sides, differences of their Darshan logs, outcome."""

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
    published_side_entries,
    query_side_results,
    session_labels,
)
from iowatch.core import HEADLINE_METRICS, METRICS, Case, InputError, Scalar, UsageError, canonical_json, format_count
from iowatch.darshan import DarshanReader, TraceChange, diff_trace_groups, read_first_kept_trace
from iowatch.site import StackDiff, diff_stacks, stack_from_json
from iowatch.stats import (
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    Side,
    SideSamples,
    Subgroup,
    compare_pairs,
    find_subgroups,
)
from iowatch.store import History, ResultRow, bulk, export

# What says how large a measurement is, or what was measured: never taken out of the key without being asked.
_NEVER_REMOVED = {
    "benchmark", "operation", "ranks", "nodes", "instances", "local_size", "global_size", "total_bytes",
    "transfer_bytes", "block_bytes", "segments", "files",
}  # fmt: skip

DifferingValues = Mapping[str, tuple[Scalar | None, Scalar | None]]
# A case as both sides have it, and a metric.
_Key = tuple[str, str]


@dataclass(frozen=True)
class MatchedSides:
    """Pairs, what differs between the sides by construction, and the cases that only one side has.

    Attributes:
        entries: what each of `pairs` was made of, left and right.
        differing: parameter or axis to its value on the left and on the right; taken out of the key.
        common: axes that have the same value everywhere.
    """

    pairs: tuple[Pair, ...]
    entries: tuple[tuple[SideEntry, SideEntry], ...]
    differing: DifferingValues
    common: Mapping[str, str]
    only_left: tuple[SideEntry, ...]
    only_right: tuple[SideEntry, ...]


def match_entries(
    left: Sequence[SideEntry], right: Sequence[SideEntry], options: ComparisonOptions, asked: set[str], headlines: bool
) -> MatchedSides:
    """Pair entries by everything but what differs between the sides.

    What differs is what has one value on the whole left and another on the whole right: the stack, the system,
    or a parameter that two published tables differ in.

    Args:
        options: `ignored` names are taken out of the key in any case; samples of cases that become equal are put
            together; of each side of a pair only the `last` sessions.
        asked: names that the user filtered both sides by, which may differ whatever they are.
        headlines: of each case only the first of `HEADLINE_METRICS` that both sides have; all are of those.

    Raises:
        UsageError: printed figures would have to be put together.
    """
    differing = _find_differing(left, right, {*asked, *options.ignored})
    out = {*differing, *options.ignored}
    sides = [_group_by_key(entries, out) for entries in (left, right)]
    shared = [key for key in sides[0] if key in sides[1]]
    alone = [[key for key in side if key not in set(shared)] for side in sides]
    if headlines:
        shared = _monitored_keys(shared)
        alone = [_monitored_keys(keys, {case for case, _ in shared}) for keys in alone]
    entries = tuple((sides[0][key], sides[1][key]) for key in shared)
    # Values of each axis that is part of the key.
    axes = {n: sorted({one.axes[n] for one, _ in entries if n in one.axes}) for n in SERIES_AXES if n not in out}
    pairs = tuple(_make_pair(one, other, out, axes, options.last) for one, other in entries)
    only = [tuple(side[key] for key in keys) for side, keys in zip(sides, alone, strict=True)]
    common = {name: values[0] for name, values in axes.items() if len(values) == 1}
    return MatchedSides(pairs, entries, differing, common, only[0], only[1])


def _monitored_keys(keys: Iterable[_Key], done: Collection[str] = ()) -> list[_Key]:
    """Of each case that is not `done` its first metric."""
    found: dict[str, str] = {}
    for case, name in keys:
        if case not in done:
            found[case] = min(found.get(case, name), name, key=HEADLINE_METRICS.index)
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


def _group_by_key(entries: Sequence[SideEntry], out: Collection[str]) -> dict[_Key, SideEntry]:
    found: dict[_Key, SideEntry] = {}
    for entry in entries:
        case = canonical_json({n: v for n, v in entry.described.items() if n not in out})
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
    left: SideEntry, right: SideEntry, out: Collection[str], axes: Mapping[str, Sequence[str]], last: int
) -> Pair:
    several = {name: value for name, value in left.axes.items() if len(axes.get(name, ())) > 1}
    case = left.case.without(*out)
    samples = (_limit_side_runs(one.side, last) for one in (left, right))
    return Pair(Case(case.benchmark, {**case.parameters, **several}), left.metric, *samples)


@dataclass(frozen=True)
class SideProvenance:
    """One side: sessions used, start of the first and the last (epoch s), names of its stacks.

    Attributes:
        contents: numbers, in the history, of what its stacks consisted of.
        rebuilt: whether a stack consisted of something else in some of these runs than in others.
        nodes: all that some of its runs used, as far as they are known.
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
    """Both sides; None for files of tables, which have no runs.

    Attributes:
        libraries: what differs between the libraries; None where either side's are not known, or are several.
        elsewhere: of the runs that are compared session by session, and whose nodes are known, how many had other
            nodes than their counterpart, and of how many; None where there are none.
    """

    left: SideProvenance | None
    right: SideProvenance | None
    libraries: StackDiff | None
    elsewhere: tuple[int, int] | None = None


def compute_provenance(matched: MatchedSides, history: History | None) -> ComparisonProvenance:
    """What the pairs rest on.

    Args:
        history: None where neither side is of one.
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
    """Runs of the sessions that are compared."""
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
    """Runs of the same session and case on both sides that had other nodes, and all of which nodes are known."""
    apart = known = 0
    for (left, one), (right, other) in zip(lefts, rights, strict=True):
        if isinstance(left, SideSamples) and isinstance(right, SideSamples):
            for name in left.sessions.keys() & right.sessions.keys():
                runs = one.facts.get(name, ()), other.facts.get(name, ())
                used = [{node for run in side for node in nodes.get(run.number or 0, ())} for side in runs]
                known += all(used)
                apart += all(used) and used[0] != used[1]
    return (apart, known) if known else None


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


# Newest runs of each side whose logs are read, and cases; a log takes some 20 ms.
_MOST_RUNS = 3
_MOST_CASES = 12


@dataclass(frozen=True)
class TracedCase:
    """What differs between the logs of one case; its operations share them.

    Attributes:
        logs: how many were read, left and right.
    """

    case: Case
    logs: tuple[int, int]
    changes: tuple[TraceChange, ...]


@dataclass(frozen=True)
class TraceComparison:
    """Cases with logs on both sides, those that differ most in what they measured first.

    Attributes:
        left_out: further cases that were not looked at, because there are so many.
    """

    cases: tuple[TracedCase, ...] = ()
    left_out: int = 0


def compare_side_traces(compared: Sequence[PairComparison], matched: MatchedSides, history: History) -> TraceComparison:
    """Read the logs of the newest runs on both sides of each case, and compare them.

    Args:
        compared: in the order of the pairs.
    """
    # By numbers of the newest runs on both sides.
    cases: dict[tuple[tuple[int, ...], tuple[int, ...]], Case] = {}
    rows = zip(compared, matched.pairs, matched.entries, strict=True)
    for one, pair, (left, right) in sorted(rows, key=lambda row: _difference_rank(row[0])):
        runs = _newest_runs(pair.left, left), _newest_runs(pair.right, right)
        if all(runs):
            cases.setdefault(runs, one.case.without("operation"))
    numbers = sorted({number for runs in cases for side in runs for number in side})
    with history.reading() as connection:
        logs = bulk.run_files(connection, numbers, "darshan")
    waiting = [(case, runs) for runs, case in cases.items() if all(any(n in logs for n in side) for side in runs)]
    found: list[TracedCase] = []
    with DarshanReader() as reader:
        while waiting and len(found) < _MOST_CASES:
            case, both = waiting.pop(0)
            read = ([read_first_kept_trace(logs.get(run, ()), reader) for run in side] for side in both)
            before, after = ([trace for trace in traces if trace] for traces in read)
            if before and after:
                found.append(TracedCase(case, (len(before), len(after)), diff_trace_groups(before, after)))
    return TraceComparison(tuple(found), len(waiting))


def _difference_rank(one: PairComparison) -> tuple[bool, float]:
    """Differences first, the largest in front."""
    return one.verdict not in ("faster", "slower"), -abs(log(one.ratio)) if one.ratio else 0.0


def _newest_runs(side: Side, entry: SideEntry) -> tuple[int, ...]:
    known = {(run.time, run.number) for run in _compared_runs(side, entry) if run.number is not None}
    return tuple(number for _, number in sorted(known)[-_MOST_RUNS:])


@dataclass(frozen=True)
class ComparisonOptions:
    """What is compared and how strictly.

    Attributes:
        metrics: names; empty means the headline metric of each case, or where neither side has one all that have a
            better direction.
        ignored: parameters taken out of the key.
        days: before and after an event.
        last: newest sessions of each case used; older levels of a stack show little, and cost time.
    """

    metrics: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    days: int = 28
    last: int = 100
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)


@dataclass(frozen=True)
class Outcome:
    """A comparison with all that a report says of it.

    Attributes:
        provenance: when each side was measured, and with which libraries.
        notes: what was left out and why.
        traced: how the I/O of the sides differs by their Darshan logs.
    """

    left: SideSpec
    right: SideSpec
    matched: MatchedSides
    compared: tuple[PairComparison, ...]
    overall: OverallComparison
    subgroups: tuple[Subgroup, ...]
    options: ComparisonOptions
    provenance: ComparisonProvenance
    notes: tuple[str, ...]
    traced: TraceComparison = field(default_factory=TraceComparison)


def compare_sides(left: SideSpec, right: SideSpec, history: Opened, options: ComparisonOptions) -> Outcome:
    """Resolve both sides, pair their cases, compare.

    Args:
        history: opens the history; not called for published tables and files.

    Raises:
        UsageError: a side has no results, or nothing is on both sides.
        InputError: a file is damaged.
    """
    gathered = _gather_sides(left, right, history, options)
    found = [filter_entries(spec, side.entries) for spec, side in zip((left, right), gathered, strict=True)]
    watched = not options.metrics and any(entry.metric in HEADLINE_METRICS for side in found for entry in side)
    better = HEADLINE_METRICS if watched else [name for name in METRICS if METRICS[name].direction != "neutral"]
    sides = [[entry for entry in entries if entry.metric in (options.metrics or better)] for entries in found]
    asked = set(left.filters) & set(right.filters)
    matched = match_entries(sides[0], sides[1], options, asked, headlines=watched)
    if not matched.pairs:
        why = _no_pairs_reason(sides[0], sides[1])
        raise UsageError(f"no case is on both sides of '{left.text}' and '{right.text}'", hint=why)
    compared, overall = compare_pairs(matched.pairs, options.settings)
    groups = find_subgroups(compared, options.settings)
    notes = _exclusion_notes(gathered, options)
    measured_here = bool({left.kind, right.kind} - {"file", "published"})
    opened = history() if measured_here else None
    rests_on = compute_provenance(matched, opened)
    logs = compare_side_traces(compared, matched, opened) if opened else TraceComparison()
    return Outcome(left, right, matched, tuple(compared), overall, groups, options, rests_on, notes, logs)


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


def _no_pairs_reason(left: Sequence[SideEntry], right: Sequence[SideEntry]) -> str:
    """Which parameters have no value in common."""
    if not left or not right:
        return f"The {'left' if not left else 'right'} side has no case of these metrics and filters."
    names = sorted({name for entry in (*left, *right) for name in entry.described})
    apart = []
    for name in names:
        values = [sorted({str(entry.described.get(name)) for entry in side}) for side in (left, right)]
        if not set(values[0]) & set(values[1]):
            shown = (", ".join(each[:4] + ["…"] * (len(each) > 4)) for each in values)
            apart.append(f"{name} ({' | '.join(shown)})")
    return f"Nothing in common in: {'; '.join(apart) or 'the combinations'}. --ignore NAME takes one out."


def _exclusion_notes(gathered: Sequence[SideEntries], options: ComparisonOptions) -> tuple[str, ...]:
    found = []
    for name, side in zip(("left", "right"), gathered, strict=True):
        texts = ("of failed or incomplete runs", "of warm-ups", "with a value of 0")
        excluded = zip((side.not_ok, side.warm_ups, side.not_positive), texts, strict=True)
        found += [f"{name}: {format_count(n, 'result')} {what} left out" for n, what in excluded if n]
        longest = max((len(e.side.sessions) for e in side.entries if isinstance(e.side, SideSamples)), default=0)
        if longest > options.last:
            found.append(f"{name}: the newest {options.last} of up to {longest} runs used (--last)")
    return tuple(found)


def describe_entry(entry: SideEntry) -> Mapping[str, Scalar]:
    """An unpaired case with its metric, as reports list it."""
    return {**entry.described, "metric": entry.metric}
