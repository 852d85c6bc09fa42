"""Differences between the Darshan logs before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.darshan import DarshanReader, Trace, TraceChange, diff_trace_groups, read_first_kept_trace
from iowatch.findings.evidence import runs_around_change
from iowatch.findings.finding import Finding, strongest_first
from iowatch.store import History

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


def find_log_differences(history: History, finding: Finding) -> LogDifferences | None:
    """Log differences of the member with the largest change among those with logs on both sides.

    None without such a member: the logs were pruned, or never existed.
    """
    members = strongest_first(finding.members)
    points = history.points([member.series_id for member in members])
    with DarshanReader() as reader:
        for member in members:
            if member.series_id not in points:
                continue
            runs = runs_around_change(member, points[member.series_id])
            before = _read_run_traces(history, runs.before[-_MAX_TRACED_RUNS:], reader)
            after = _read_run_traces(history, runs.after[:_MAX_TRACED_RUNS], reader)
            if before and after:
                return LogDifferences(member.name, (len(before), len(after)), diff_trace_groups(before, after))
    return None


def _read_run_traces(history: History, runs: Sequence[int], reader: DarshanReader) -> list[Trace]:
    """The first kept trace of each run; runs without one are left out."""
    traces: list[Trace] = []
    for run in runs:
        logs = [artefact.sha256 for artefact in history.artefacts(run) if artefact.kind == "darshan"]
        trace = read_first_kept_trace(logs, reader)
        if trace is not None:
            traces.append(trace)
    return traces
