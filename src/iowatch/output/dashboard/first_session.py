"""What a system's first sessions show before there are enough observations to detect changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from iowatch.core import METRICS, RunProblem, format_count
from iowatch.findings import MIN_OBSERVATIONS, HistoryExtent, format_parameter_value
from iowatch.output.dashboard import data, drawing
from iowatch.output.dashboard.pages import overview
from iowatch.output.text.sessions import format_early_steps
from iowatch.output.text.verdict import format_published
from iowatch.reference import published_of_like_cases
from iowatch.store import SessionRow

# Smallest ratio between two stacks that is worth a sentence; below it, one session proves nothing.
_MIN_RATIO = 2.0
_MAX_SENTENCES = 6
_MAX_BARS = 16


@dataclass(frozen=True)
class OperationPicture:
    """The picture of the results of one operation."""

    operation: str
    picture: Markup


@dataclass(frozen=True, eq=False)
class FirstSession:
    """The newest session of a system that cannot be assessed yet.

    Attributes:
        progress: how many days are needed until changes are detected, and what was found all the same.
        pictures: best bandwidth per API and stack, one picture per operation, beside the peak where it is known.
        sessions: those that measured them, oldest first: the newest one, and one that completed it with another stack.
        striking: sentences on large differences between stacks.
        missing: what was not measured, with the reason; `install_commands` install what it needs.
        has_peak: whether the peak of a file system is known.
        published: what papers measured with like cases, one sentence each.
    """

    machine: data.SystemEntry
    sessions: tuple[SessionRow, ...]
    progress: str
    pictures: tuple[OperationPicture, ...]
    striking: tuple[str, ...]
    missing: tuple[RunProblem, ...]
    install_commands: tuple[str, ...]
    has_peak: bool
    published: tuple[str, ...]


def summarise_first_session(site: data.SiteBuild, machine: data.SystemEntry, extent: HistoryExtent) -> FirstSession:
    """Summarise the newest results of all monitored series."""
    # A late series has no result in the newest session.
    rows = [row for row in overview.series_rows(site, machine) if not row.late]
    bandwidths = [row for row in rows if row.series.metric.name == "bandwidth"]
    published = published_of_like_cases(machine.name, [row.series.row.case for row in bandwidths])
    remaining = max(0, MIN_OBSERVATIONS - extent.days)
    sessions = _first_sessions(machine)
    # The last one knows all stacks: what the first one lacked may be measured by now.
    missing: tuple[RunProblem, ...] = ()
    install_commands: tuple[str, ...] = ()
    if sessions:
        missing = sessions[-1].facts.unavailable
        install_commands = sessions[-1].facts.install_commands
    return FirstSession(
        machine=machine,
        sessions=sessions,
        progress=(
            f"{extent.days} of {MIN_OBSERVATIONS} days with observations until changes can be detected; "
            f"{remaining} to go{format_early_steps(extent)}"
        ),
        pictures=tuple(_operation_pictures(bandwidths)),
        striking=tuple(stack_differences(rows)[:_MAX_SENTENCES]),
        missing=missing,
        install_commands=install_commands,
        has_peak=any(row.series.limits.peak for row in bandwidths),
        published=tuple(map(format_published, published)),
    )


def _first_sessions(machine: data.SystemEntry) -> tuple[SessionRow, ...]:
    """The newest session, and a later one of a stack that it did not have, such as the first of the stack `quick`."""
    newest = machine.newest_session
    if newest is None:
        return ()
    # Sessions are in order of time, newest first.
    for session in machine.sessions:
        if session.uuid == newest.uuid:
            break
        choice = session.facts.choice
        if session.status != "ok" or choice is None:
            continue
        new_stacks = set(choice.stacks) - set(newest.facts.stacks)
        if new_stacks:
            return newest, session
    return (newest,)


def _operation_pictures(rows: Sequence[overview.SeriesTableRow]) -> list[OperationPicture]:
    """One picture per operation, with one bar per API and stack."""
    # An API with a stack may have many cases; its bar is the best of them.
    rows_by_operation: dict[str, dict[_ApiStack, list[overview.SeriesTableRow]]] = defaultdict(dict)
    for row in rows:
        rows_by_bar = rows_by_operation[_parameter(row, "operation")]
        api_stack = _ApiStack(_parameter(row, "api"), row.series.row.stack)
        rows_by_bar.setdefault(api_stack, []).append(row)
    pictures: list[OperationPicture] = []
    for operation in sorted(rows_by_operation):
        bars: list[drawing.Bar] = []
        rows_by_bar = rows_by_operation[operation]
        for api_stack in sorted(rows_by_bar):
            best = max(rows_by_bar[api_stack], key=lambda row: row.newest)
            name = f"{format_parameter_value('api', api_stack.api)} {api_stack.stack}".strip()
            bars.append(drawing.Bar(name, best.newest, best.series.limits.peak))
        label = f"{operation or 'bandwidth'}: best bandwidth of the newest session per API and stack"
        picture = drawing.bars_pictures(bars[:_MAX_BARS], "MiB/s", label)
        pictures.append(OperationPicture(operation, picture))
    return pictures


@dataclass(frozen=True, order=True)
class _ApiStack:
    """What a bar is of."""

    api: str
    stack: str


@dataclass(frozen=True)
class _SlowerStack:
    """A stack that is slower than the fastest one.

    Attributes:
        slow, fast: their names.
        ratios: performance of the fast stack relative to the slow one, of each common case.
    """

    slow: str
    fast: str
    ratios: Sequence[float]


def stack_differences(rows: Sequence[overview.SeriesTableRow]) -> list[str]:
    """Sentences on stacks that are far slower than the fastest one in all their common cases, largest ratio first.

    `benchio with MPI-IO is 5.1 to 8.4 times slower on mpich than on openmpi (4 series)`; each case has one ratio, of
    performance.
    """
    # By benchmark and API: the performance of each case by stack.
    groups: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        series = row.series.row
        case = f"{series.partition} {series.case.key} {series.metric}"
        # As performance, so that a larger value is better also for times.
        performance = METRICS[series.metric].gain(row.newest, 1.0)
        groups[series.case.benchmark, _parameter(row, "api")][series.stack][case] = performance
    sentences: list[tuple[float, str]] = []
    for (benchmark, api), cases_by_stack in groups.items():
        subject = f"{benchmark} with {format_parameter_value('api', api)}" if api else benchmark
        for slower in _slower_stacks(cases_by_stack):
            sentence = _slower_sentence(subject, slower)
            sentences.append((float(np.median(slower.ratios)), sentence))
    sentences.sort(key=lambda entry: -entry[0])
    return [sentence for _, sentence in sentences]


def _slower_sentence(subject: str, slower: _SlowerStack) -> str:
    low, high = f"{min(slower.ratios):.2g}", f"{max(slower.ratios):.2g}"
    times = low if low == high else f"{low} to {high}"
    series = format_count(len(slower.ratios), "series")
    return f"{subject} is {times} times slower on {slower.slow} than on {slower.fast} ({series})"


def _slower_stacks(cases_by_stack: Mapping[str, Mapping[str, float]]) -> list[_SlowerStack]:
    """Stacks that are far slower than the fastest one; `cases_by_stack` is the performance of each case."""
    medians = {stack: float(np.median(list(cases.values()))) for stack, cases in cases_by_stack.items()}
    fast = max(medians, key=lambda stack: medians[stack])
    slower_stacks: list[_SlowerStack] = []
    for slow, cases in cases_by_stack.items():
        if slow == fast:
            continue
        ratios: list[float] = []
        for case, performance in cases.items():
            if case in cases_by_stack[fast] and performance:
                ratios.append(cases_by_stack[fast][case] / performance)
        # Slower in all cases: one exceptional case is no difference between stacks.
        if ratios and min(ratios) >= _MIN_RATIO:
            slower_stacks.append(_SlowerStack(slow, fast, ratios))
    return slower_stacks


def _parameter(row: overview.SeriesTableRow, name: str) -> str:
    return str(row.series.row.case.parameters.get(name, ""))
