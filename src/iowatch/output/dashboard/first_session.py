"""What a system's first sessions show before there are enough observations to detect changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup

from iowatch.core import METRICS, RunProblem, format_count
from iowatch.findings import MIN_OBSERVATIONS, HistoryExtent, format_parameter_value
from iowatch.output.dashboard import data, drawing
from iowatch.output.dashboard.pages import overview
from iowatch.store import NO_SESSION_FACTS

# Smallest ratio between two stacks that is worth a sentence; below it, one session proves nothing.
_MIN_RATIO = 2.0
_MAX_SENTENCES = 6
_MAX_BARS = 16


@dataclass(frozen=True, eq=False)
class FirstSession:
    """The newest session of a system that cannot be assessed yet.

    Attributes:
        progress: how many sessions are needed until changes are detected.
        pictures: best bandwidth per API and stack, one picture per operation, beside the peak where it is known.
        striking: sentences on large differences between stacks.
        missing: what was not measured, with the reason; `install_commands` install what it needs.
    """

    machine: data.SystemEntry
    progress: str
    pictures: tuple[tuple[str, Markup], ...]
    striking: tuple[str, ...]
    missing: tuple[RunProblem, ...]
    install_commands: tuple[str, ...]
    has_peak: bool


def summarise_first_session(site: data.SiteBuild, machine: data.SystemEntry, extent: HistoryExtent) -> FirstSession:
    """Summarise the newest results of all monitored series."""
    rows = [row for row in overview.series_rows(site, machine) if not row.late]
    results = [row for row in rows if row.series.metric.name == "bandwidth"]
    sessions = max((row.series.stamp.n for row in rows), default=0)
    left = max(0, MIN_OBSERVATIONS - sessions)
    facts = machine.newest_session.facts if machine.newest_session else NO_SESSION_FACTS
    return FirstSession(
        machine=machine,
        progress=f"{sessions} of {MIN_OBSERVATIONS} sessions until changes can be detected; {left} to go",
        pictures=tuple(_pictures(results)),
        striking=tuple(stack_differences(rows))[:_MAX_SENTENCES],
        missing=facts.unavailable,
        install_commands=facts.install_commands,
        has_peak=any(row.series.limits.peak for row in results),
    )


def _pictures(rows: Sequence[overview.SeriesTableRow]) -> Iterator[tuple[str, Markup]]:
    for operation, chosen in _grouped(rows, lambda row: _parameter(row, "operation")):
        bars = []
        for api, of_api in _grouped(chosen, lambda row: _parameter(row, "api")):
            for stack, of_stack in _grouped(of_api, lambda row: row.series.row.stack):
                best = max(of_stack, key=lambda row: row.newest)
                name = f"{format_parameter_value('api', api)} {stack}".strip()
                bars.append(drawing.Bar(name, best.newest, best.series.limits.peak))
        label = f"{operation or 'bandwidth'}: best bandwidth of the newest session per API and stack"
        yield operation, drawing.bars_pictures(bars[:_MAX_BARS], "MiB/s", label)


def stack_differences(rows: Sequence[overview.SeriesTableRow]) -> Iterator[str]:
    """Sentences on stacks that are far slower than the fastest one in all their common cases, largest ratio first.

    `benchio with MPI-IO is 5.1 to 8.4 times slower on mpich than on openmpi (4 series)`; each case has one ratio, of
    performance.
    """
    values: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        one = row.series.row
        case = f"{one.partition} {one.case.key} {one.metric}"
        # As performance, so that a larger value is better also for times.
        metric = METRICS[one.metric]
        values[one.case.benchmark, _parameter(row, "api")][one.stack][case] = metric.gain(row.newest, 1.0)
    found = []
    for (benchmark, api), by_stack in values.items():
        found += [(ratios, benchmark, api, *names) for names, ratios in _slower_stacks(by_stack)]
    for ratios, benchmark, api, slow, fast in sorted(found, key=lambda one: -float(np.median(one[0]))):
        low, high = (f"{value:.2g}" for value in (min(ratios), max(ratios)))
        times = low if low == high else f"{low} to {high}"
        what = f"{benchmark} with {format_parameter_value('api', api)}" if api else benchmark
        yield f"{what} is {times} times slower on {slow} than on {fast} ({format_count(len(ratios), 'series')})"


def _slower_stacks(by_stack: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[tuple[str, str], list[float]]]:
    """Names of a slow and of the fastest stack, and the ratio of each common case."""
    typical = {name: float(np.median(list(cases.values()))) for name, cases in by_stack.items()}
    fast = max(typical, key=lambda name: typical[name])
    for slow, cases in by_stack.items():
        ratios = [by_stack[fast][case] / value for case, value in cases.items() if case in by_stack[fast] and value]
        if slow != fast and ratios and min(ratios) >= _MIN_RATIO:
            yield (slow, fast), ratios


def _parameter(row: overview.SeriesTableRow, name: str) -> str:
    return str(row.series.row.case.parameters.get(name, ""))


def _grouped(rows: Iterable[Any], key: Any) -> Iterator[tuple[str, list[Any]]]:
    return ((name, list(group)) for name, group in groupby(sorted(rows, key=key), key=key))
