"""Comparison of two sides: pairs of equal cases, provenance, differences of Darshan logs, and outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log
from pathlib import Path
from typing import Literal

from iowatch.benchmarks.case_names import names_of_run, require_case_names
from iowatch.comparison.sides import (
    SERIES_AXES,
    Opened,
    SideEntries,
    SideEntry,
    SidePosition,
    SideRun,
    SideSpec,
    described_names,
    filter_entries,
    gather_entries,
    name_sides,
    published_side_entries,
    query_side_results,
    session_labels,
)
from iowatch.core import METRICS, Case, InputError, Scalar, UsageError, canonical_json, get_metric, headline_metrics
from iowatch.darshan import DarshanReader, Trace, TraceChange, diff_trace_groups, read_first_kept_trace
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
    left_by_key, right_by_key = _group_by_key(left, removed), _group_by_key(right, removed)
    # Keys of both sides are pairs.
    shared = [key for key in left_by_key if key in right_by_key]
    left_only = [key for key in left_by_key if key not in right_by_key]
    right_only = [key for key in right_by_key if key not in left_by_key]
    if headlines:
        shared = _monitored_keys(shared)
        # The other metrics of a paired case are not unpaired.
        paired_cases = {case for case, _ in shared}
        left_only, right_only = _monitored_keys(left_only, paired_cases), _monitored_keys(right_only, paired_cases)
    entries = tuple((left_by_key[key], right_by_key[key]) for key in shared)
    # An axis with one value is common to all pairs; the others are shown with each pair.
    axes = _axis_values([left_entry for left_entry, _ in entries], removed)
    pairs: list[Pair[Case]] = []
    for left_entry, right_entry in entries:
        pairs.append(_make_pair(left_entry, right_entry, removed, axes, options.last))
    return MatchedSides(
        pairs=tuple(pairs),
        entries=entries,
        differing=differing,
        common={name: values[0] for name, values in axes.items() if len(values) == 1},
        only_left=tuple(left_by_key[key] for key in left_only),
        only_right=tuple(right_by_key[key] for key in right_only),
    )


def _axis_values(entries: Sequence[SideEntry], removed: Collection[str]) -> dict[str, list[str]]:
    """Values of each axis that is part of the key, sorted."""
    values_by_axis: dict[str, list[str]] = {}
    for axis in SERIES_AXES:
        if axis not in removed:
            values_by_axis[axis] = sorted({entry.axes[axis] for entry in entries if axis in entry.axes})
    return values_by_axis


def _monitored_keys(keys: Iterable[_Key], done: Collection[str] = ()) -> list[_Key]:
    """First of `headline_metrics` of each case that is not in `done`."""
    metrics_of_cases: dict[str, str] = {}
    order = headline_metrics()
    for case, metric in keys:
        if case not in done:
            first_metric = metrics_of_cases.get(case, metric)
            metrics_of_cases[case] = min(first_metric, metric, key=order.index)
    return list(metrics_of_cases.items())


def _find_differing(left: Sequence[SideEntry], right: Sequence[SideEntry], asked: Collection[str]) -> DifferingValues:
    left_described = [entry.described for entry in left]
    right_described = [entry.described for entry in right]
    differing: dict[str, tuple[Scalar | None, Scalar | None]] = {}
    for name in described_names([*left, *right]):
        # Cases of another size are other cases, unless the user asks for this comparison.
        if name in _NEVER_REMOVED and name not in asked:
            continue
        left_values = {parameters.get(name) for parameters in left_described}
        right_values = {parameters.get(name) for parameters in right_described}
        if len(left_values) == 1 and len(right_values) == 1 and left_values != right_values:
            differing[name] = (left_values.pop(), right_values.pop())
    return differing


def _group_by_key(entries: Sequence[SideEntry], removed: Collection[str]) -> dict[_Key, SideEntry]:
    entries_by_key: dict[_Key, SideEntry] = {}
    for entry in entries:
        kept = {name: value for name, value in entry.described.items() if name not in removed}
        key = canonical_json(kept), entry.metric
        same_case = entries_by_key.get(key)
        entries_by_key[key] = entry if same_case is None else _merge_entries(same_case, entry)
    return entries_by_key


def _merge_entries(first: SideEntry, second: SideEntry) -> SideEntry:
    if not (isinstance(first.side, SideSamples) and isinstance(second.side, SideSamples)):
        raise UsageError(
            "two printed figures of one side are the same case once parameters are ignored",
            hint="Ignore fewer parameters, or choose with ,name=value after the side.",
        )
    sessions = dict(first.side.sessions)
    for session, samples in second.side.sessions.items():
        sessions[session] = (*sessions.get(session, ()), *samples)
    runs = dict(first.runs)
    for session, runs_of_session in second.runs.items():
        runs[session] = runs.get(session, frozenset()) | runs_of_session
    return SideEntry(first.case, first.metric, first.axes, SideSamples(sessions), runs)


def _make_pair(
    left: SideEntry, right: SideEntry, removed: Collection[str], axes: Mapping[str, Sequence[str]], last: int
) -> Pair[Case]:
    # Axes that tell the pairs apart are shown as parameters of the case.
    varying_axes = {name: value for name, value in left.axes.items() if len(axes.get(name, ())) > 1}
    if "file_system" in left.axes and "file_system" not in removed:
        varying_axes["file_system"] = left.axes["file_system"]
    case = left.case.without(*removed)
    return Pair(
        case=Case(case.benchmark, {**case.parameters, **varying_axes}),
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
class RunsOnOtherNodes:
    """Of the runs that are compared session by session and whose nodes are known (`of`), those on other nodes.

    Attributes:
        runs: number of these that used other nodes than their counterpart.
    """

    runs: int
    of: int


@dataclass(frozen=True)
class ComparisonProvenance:
    """Provenance of both sides; None for published tables, which have no runs.

    Attributes:
        libraries: stack diff of the sides; None if the stack of a side is not known, or has several contents.
        on_other_nodes: None without runs that are compared session by session and whose nodes are known.
    """

    left: SideProvenance | None
    right: SideProvenance | None
    libraries: StackDiff | None
    on_other_nodes: RunsOnOtherNodes | None = None


def compute_provenance(matched: MatchedSides, history: History | None) -> ComparisonProvenance:
    """Compute the provenance of the pairs.

    Args:
        history: None if neither side is in a history.
    """
    lefts: list[_ComparedEntry] = []
    rights: list[_ComparedEntry] = []
    for pair, (left_entry, right_entry) in zip(matched.pairs, matched.entries, strict=True):
        lefts.append(_ComparedEntry(pair.left, left_entry))
        rights.append(_ComparedEntry(pair.right, right_entry))
    nodes: _NodesOfRuns = {}
    if history is not None:
        numbers = {run.number for run in _runs_of((*lefts, *rights)) if run.number is not None}
        with history.reading() as connection:
            nodes = bulk.run_nodes(connection, sorted(numbers))
    left, right = _side_provenance(lefts, nodes), _side_provenance(rights, nodes)
    libraries = _diff_libraries(left, right, history)
    return ComparisonProvenance(left, right, libraries, _count_runs_on_other_nodes(lefts, rights, nodes))


_NodesOfRuns = Mapping[int, tuple[str, ...]]
"""By number of the run in the history."""


@dataclass(frozen=True)
class _ComparedEntry:
    """An entry of a side, with those of its samples that are compared."""

    side: Side
    entry: SideEntry

    @property
    def sessions(self) -> Collection[str]:
        """Of the compared samples; empty for published figures."""
        return self.side.sessions.keys() if isinstance(self.side, SideSamples) else ()

    @property
    def runs(self) -> set[SideRun]:
        """Runs of the compared sessions."""
        runs: set[SideRun] = set()
        for session in self.sessions:
            runs.update(self.entry.runs.get(session, ()))
        return runs

    def nodes_in(self, session: str, nodes: _NodesOfRuns) -> set[str]:
        """Nodes of its runs in a session, as far as they are known."""
        return _nodes_of(self.entry.runs.get(session, ()), nodes)


def _runs_of(entries: Iterable[_ComparedEntry]) -> set[SideRun]:
    runs: set[SideRun] = set()
    for entry in entries:
        runs |= entry.runs
    return runs


def _nodes_of(runs: Iterable[SideRun], nodes: _NodesOfRuns) -> set[str]:
    names: set[str] = set()
    for run in runs:
        names.update(nodes.get(run.number or 0, ()))
    return names


def _side_provenance(entries: Sequence[_ComparedEntry], nodes: _NodesOfRuns) -> SideProvenance | None:
    """Provenance of a side; None if its runs are not known."""
    runs = _runs_of(entries)
    if not runs:
        return None
    sessions: set[str] = set()
    stacks: set[tuple[str, ...]] = set()
    for compared in entries:
        if isinstance(compared.side, SideSamples):
            sessions.update(compared.sessions)
            stacks.add(tuple(compared.entry.axes.get(name, "") for name in ("stack", "system", "partition")))
    contents = {run.content for run in runs if run.content is not None}
    return SideProvenance(
        runs=len(sessions),
        first=min(run.time for run in runs),
        last=max(run.time for run in runs),
        stacks=tuple(sorted({stack for stack, _system, _partition in stacks if stack})),
        contents=tuple(sorted(contents)),
        # One stack of a partition has one content, unless it was built again.
        rebuilt=len(contents) > len(stacks),
        nodes=tuple(sorted(_nodes_of(runs, nodes))),
    )


def _count_runs_on_other_nodes(
    lefts: Sequence[_ComparedEntry], rights: Sequence[_ComparedEntry], nodes: _NodesOfRuns
) -> RunsOnOtherNodes | None:
    """Count the sessions and cases with known nodes on both sides, and those with different ones."""
    runs_with_nodes = runs_on_other_nodes = 0
    for left, right in zip(lefts, rights, strict=True):
        for session in set(left.sessions) & set(right.sessions):
            left_nodes, right_nodes = left.nodes_in(session, nodes), right.nodes_in(session, nodes)
            if not left_nodes or not right_nodes:
                continue
            runs_with_nodes += 1
            if left_nodes != right_nodes:
                runs_on_other_nodes += 1
    if not runs_with_nodes:
        return None
    return RunsOnOtherNodes(runs_on_other_nodes, runs_with_nodes)


def _diff_libraries(
    left: SideProvenance | None, right: SideProvenance | None, history: History | None
) -> StackDiff | None:
    """Differences between the stacks of the sides; None unless each side has one content with known parts."""
    if history is None or left is None or right is None:
        return None
    if len(left.contents) != 1 or len(right.contents) != 1:
        return None
    with history.reading() as connection:
        documents = bulk.stack_contents(connection, [*left.contents, *right.contents])
    try:
        left_stack = stack_from_json(documents[left.contents[0]], "history")
        right_stack = stack_from_json(documents[right.contents[0]], "history")
    except InputError:
        return None
    if not left_stack.parts or not right_stack.parts:
        return None
    return diff_stacks(left_stack, right_stack)


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
    remaining = _cases_with_logs(compared, matched, history)
    traced_cases: list[TracedCase] = []
    with DarshanReader() as reader:
        while remaining and len(traced_cases) < _MAX_CASES:
            logged_case = remaining.pop(0)
            before, after = _read_traces(logged_case.left, reader), _read_traces(logged_case.right, reader)
            if before and after:
                changes = diff_trace_groups(before, after)
                traced_cases.append(TracedCase(logged_case.case, (len(before), len(after)), changes))
    return TraceComparison(tuple(traced_cases), len(remaining))


@dataclass(frozen=True)
class _LoggedCase:
    """A case, and the digests of the kept logs of each of its newest runs on both sides."""

    case: Case
    left: Sequence[Sequence[str]]
    right: Sequence[Sequence[str]]


@dataclass(frozen=True)
class _NewestRuns:
    """Numbers of the newest runs of a case on both sides."""

    left: tuple[int, ...]
    right: tuple[int, ...]


def _cases_with_logs(
    compared: Sequence[PairComparison[Case]], matched: MatchedSides, history: History
) -> list[_LoggedCase]:
    """The cases with logs of newest runs on both sides, largest measured difference first."""
    # The operations of a case share runs, and are one case here: the first one has the largest difference.
    cases_by_runs: dict[_NewestRuns, Case] = {}
    rows = zip(compared, matched.pairs, matched.entries, strict=True)
    for comparison, pair, (left, right) in sorted(rows, key=lambda row: _difference_rank(row[0])):
        runs = _NewestRuns(
            left=_newest_run_numbers(_ComparedEntry(pair.left, left)),
            right=_newest_run_numbers(_ComparedEntry(pair.right, right)),
        )
        if runs.left and runs.right:
            cases_by_runs.setdefault(runs, comparison.case.without("operation"))
    # The digests of all logs at once: one query for each run would be slow.
    numbers: set[int] = set()
    for runs in cases_by_runs:
        numbers.update(runs.left, runs.right)
    with history.reading() as connection:
        logs = bulk.run_files(connection, sorted(numbers), "darshan")
    logged_cases: list[_LoggedCase] = []
    for runs, case in cases_by_runs.items():
        left_logs = [logs.get(number, ()) for number in runs.left]
        right_logs = [logs.get(number, ()) for number in runs.right]
        if any(left_logs) and any(right_logs):
            logged_cases.append(_LoggedCase(case, left_logs, right_logs))
    return logged_cases


def _read_traces(logs_of_runs: Sequence[Sequence[str]], reader: DarshanReader) -> list[Trace]:
    """The first kept trace of each run that has one."""
    traces: list[Trace] = []
    for logs in logs_of_runs:
        trace = read_first_kept_trace(logs, reader)
        if trace is not None:
            traces.append(trace)
    return traces


def _difference_rank(comparison: PairComparison[Case]) -> tuple[bool, float]:
    """Sort key: pairs with a verdict of a difference first, the largest first."""
    has_no_difference = comparison.verdict not in ("faster", "slower")
    size = abs(log(comparison.ratio)) if comparison.ratio else 0.0
    return has_no_difference, -size


def _newest_run_numbers(compared: _ComparedEntry) -> tuple[int, ...]:
    """Numbers of the newest runs of an entry that are in the history, in order of time."""
    times_and_numbers = {(run.time, run.number) for run in compared.runs if run.number is not None}
    newest = sorted(times_and_numbers)[-_MAX_RUNS:]
    return tuple(number for _, number in newest)


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
        cases: only these, named as `iowatch.benchmarks.case_names` does; empty means all.
    """

    metrics: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    days: int = 28
    last: int = 100
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)
    cases: tuple[str, ...] = ()


ExclusionReason = Literal["not ok", "warm-up", "zero", "older"]


@dataclass(frozen=True)
class Exclusion:
    """Results of a side that were left out.

    Attributes:
        side: its name.
        reason: of failed or incomplete runs, warm-ups, with a value of 0, or older than the newest sessions.
        count: number of results; of `older` the largest number of sessions of a case.
    """

    side: str
    reason: ExclusionReason
    count: int


@dataclass(frozen=True)
class Outcome:
    """A comparison with all data of its report.

    Attributes:
        names: of both sides, for reports.
        provenance: dates and libraries of each side.
        exclusions: results that were left out.
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
    exclusions: tuple[Exclusion, ...]
    traced: TraceComparison = field(default_factory=TraceComparison)


def compare_sides(left: SideSpec, right: SideSpec, history: Opened, options: ComparisonOptions) -> Outcome:
    """Resolve both sides, pair their cases, and compare the pairs.

    Args:
        history: opens the history; not called for published tables and files.

    Raises:
        UsageError: a side has no results, results are on both sides, or no case is on both sides.
        InputError: a file is damaged.
    """
    return compare_gathered_sides(left, right, _gather_sides(left, right, history, options), history, options)


def compare_gathered_sides(
    left: SideSpec, right: SideSpec, gathered: GatheredSides, history: Opened, options: ComparisonOptions
) -> Outcome:
    """Compare two sides whose results were read before, as `compare_sides` does.

    Args:
        gathered: entries of both sides, before their filters.

    Raises:
        UsageError: as `compare_sides`.
    """
    left_entries = filter_entries(left, gathered.left.entries)
    right_entries = filter_entries(right, gathered.right.entries)
    _refuse_shared_results(left, right, left_entries, right_entries)
    # Headline metrics of monitored cases; of sides without any all metrics with a direction.
    headlines = headline_metrics()
    has_headlines = any(entry.metric in headlines for entry in (*left_entries, *right_entries))
    headlines_only = not options.metrics and has_headlines
    metrics: Collection[str] = options.metrics
    if headlines_only:
        metrics = headlines
    elif not metrics:
        metrics = [name for name in METRICS if METRICS[name].direction != "neutral"]
    left_entries = tuple(entry for entry in left_entries if entry.metric in metrics)
    right_entries = tuple(entry for entry in right_entries if entry.metric in metrics)
    # Equal cases are pairs.
    asked = set(left.filters) & set(right.filters)
    matched = match_entries(left_entries, right_entries, options, asked, headlines=headlines_only)
    if not matched.pairs:
        reason = _no_pairs_reason(left, right, left_entries, right_entries)
        raise UsageError(f"no case is on both sides of '{left.text}' and '{right.text}'", hint=reason)
    with reported_as(UsageError):
        compared, overall = compare_pairs(matched.pairs, options.settings)
    # Where the results come from.
    has_side_in_history = bool({left.kind, right.kind} - {"file", "published"})
    opened = history() if has_side_in_history else None
    names = name_sides(left, right, matched.differing, matched.common)
    return Outcome(
        left=left,
        right=right,
        names=names,
        matched=matched,
        compared=tuple(compared),
        overall=overall,
        subgroups=find_subgroups(compared, options.settings, CASE_PARAMETERS),
        options=options,
        provenance=compute_provenance(matched, opened),
        exclusions=(
            *_list_exclusions(names[0], gathered.left, options),
            *_list_exclusions(names[1], gathered.right, options),
        ),
        traced=compare_side_traces(compared, matched, opened) if opened is not None else TraceComparison(),
    )


def _refuse_shared_results(
    left: SideSpec, right: SideSpec, left_entries: Sequence[SideEntry], right_entries: Sequence[SideEntry]
) -> None:
    """Raise a `UsageError` if a result is on both sides: it would be compared with itself."""
    axes = SERIES_AXES if "side" in left.filters and "side" in right.filters else SERIES_AXES[:-1]
    left_results, right_results = _result_identities(left_entries, axes), _result_identities(right_entries, axes)
    shared, total = len(left_results & right_results), len(left_results | right_results)
    # Published figures have no results, and are the same ones if their entries are equal.
    are_same_figures = not left_results and not right_results and left_entries == right_entries
    if shared or are_same_figures:
        which = "are the same results" if shared == total else f"share {shared} of {total} results"
        raise UsageError(
            f"'{left.text}' and '{right.text}' {which}: a result cannot be compared with itself",
            hint="Name two stacks, systems, sessions, or periods that do not overlap (a period includes its last day).",
        )


def _result_identities(entries: Sequence[SideEntry], axes: Sequence[str]) -> set[tuple[object, ...]]:
    """What identifies each result of a side, in a history and in its export; empty for published figures."""
    identities: set[tuple[object, ...]] = set()
    for entry in entries:
        if not isinstance(entry.side, SideSamples):
            continue
        series = (*(entry.axes.get(axis) for axis in axes), entry.case.key, entry.metric)
        for session, samples in entry.side.sessions.items():
            identities.add((*series, session, samples))
    return identities


@dataclass(frozen=True)
class GatheredSides:
    """The entries of both sides, before their filters."""

    left: SideEntries
    right: SideEntries


def _gather_sides(left: SideSpec, right: SideSpec, history: Opened, options: ComparisonOptions) -> GatheredSides:
    read_file = cache(export.read_export_file)  # both sides may be in one file

    def side_results(spec: SideSpec, position: SidePosition) -> list[ResultRow]:
        if spec.kind == "published":
            return []
        if spec.kind == "file":
            return read_file(Path(spec.name))
        return query_side_results(spec, position, history, options.days)

    if options.cases and "published" in (left.kind, right.kind):
        raise UsageError(
            "--case names runs, which a published table does not have",
            hint="Narrow the sides by parameters, for example published:lawrence2017/13,api=HDF5.",
        )
    left_rows, right_rows = side_results(left, "left"), side_results(right, "right")
    if options.cases:
        runs = [row.run for row in (*left_rows, *right_rows)]
        require_case_names(
            options.cases,
            list(dict.fromkeys(runs)),
            owner=f"'{left.text}' and '{right.text}'",
            listing=f"iowatch compare {left.text} {right.text}",
        )
        left_rows, right_rows = _of_cases(left_rows, options.cases), _of_cases(right_rows, options.cases)
    # A session that is split by days is split alike on both sides.
    labels = session_labels((*left_rows, *right_rows))

    def side_entries(spec: SideSpec, rows: Sequence[ResultRow]) -> SideEntries:
        if spec.kind == "published":
            return SideEntries(tuple(published_side_entries(spec.name)))
        return gather_entries(rows, labels, "side" in spec.filters)

    return GatheredSides(side_entries(left, left_rows), side_entries(right, right_rows))


def _of_cases(rows: Sequence[ResultRow], cases: Sequence[str]) -> list[ResultRow]:
    """The results of the runs that cases name."""
    return [row for row in rows if not names_of_run(row.run).isdisjoint(cases)]


def _limit_side_runs(side: Side, last: int) -> Side:
    if not isinstance(side, SideSamples) or len(side.sessions) <= last:
        return side
    return SideSamples(dict(list(side.sessions.items())[-last:]))


_MAX_LISTED_VALUES = 4


def _no_pairs_reason(left: SideSpec, right: SideSpec, lefts: Sequence[SideEntry], rights: Sequence[SideEntry]) -> str:
    """Parameters without a common value, as the hint of an error."""
    if not lefts or not rights:
        empty_side = right if lefts else left
        return f"'{empty_side.text}' has no case of these metrics and filters."
    disjoint: list[str] = []
    for name in described_names([*lefts, *rights]):
        left_values = sorted({str(entry.described.get(name)) for entry in lefts})
        right_values = sorted({str(entry.described.get(name)) for entry in rights})
        if not set(left_values) & set(right_values):
            disjoint.append(f"{name} ({_list_values(left_values)} | {_list_values(right_values)})")
    return f"Nothing in common in: {'; '.join(disjoint) or 'the combinations'}. --ignore NAME takes one out."


def _list_values(values: Sequence[str]) -> str:
    listed = list(values[:_MAX_LISTED_VALUES])
    if len(values) > _MAX_LISTED_VALUES:
        listed.append("…")
    return ", ".join(listed)


def _list_exclusions(name: str, side: SideEntries, options: ComparisonOptions) -> Iterator[Exclusion]:
    """What was left out of a side."""
    if side.not_ok:
        yield Exclusion(name, "not ok", side.not_ok)
    if side.warm_ups:
        yield Exclusion(name, "warm-up", side.warm_ups)
    if side.not_positive:
        yield Exclusion(name, "zero", side.not_positive)
    longest = 0
    for entry in side.entries:
        if isinstance(entry.side, SideSamples):
            longest = max(longest, len(entry.side.sessions))
    if longest > options.last:
        yield Exclusion(name, "older", longest)


def describe_entry(entry: SideEntry) -> Mapping[str, Scalar]:
    """Axes, parameters and metric of an unpaired case for reports."""
    return {**entry.described, "metric": entry.metric}
