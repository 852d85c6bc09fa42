"""Work of a session beyond its measurements: the overhead of Darshan, and verification of the data by rotation.

Both follow the measurement of a run in its job. They count in its time limit and in the budget, but not in its samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from iowatch.checks import OVERHEAD_PAIRS, ExtraWork, verifying_options
from iowatch.core import RunKey
from iowatch.session.budget import RunHistory
from iowatch.session.plan import PlannedRun

# Every seventh session measures the overhead of tracing on one run; within seven sessions every run is verified once.
ROTATION_SESSIONS = 7
# A start may take so many times its longest time in the last sessions.
_MARGIN = 2.0


def add_extra_work(
    runs: Sequence[PlannedRun],
    history: Mapping[RunKey, RunHistory],
    session_number: int,
    *,
    traced_stacks: Collection[str],
    verify: bool,
    total_bytes: int | None,
) -> tuple[PlannedRun, ...]:
    """Return the runs with the extra work of this session.

    Args:
        session_number: number of earlier sessions of the system.
        traced_stacks: stacks whose runs have Darshan traces.
        verify: whether the data of a seventh of the runs are verified.
        total_bytes: largest volume of the session; beyond it there is no extra work.
    """
    measures_overhead = session_number % ROTATION_SESSIONS == 1
    overhead_key = _first_traced_run(runs, history, traced_stacks) if measures_overhead else None
    runs_with_work: list[PlannedRun] = []
    for run in runs:
        work: list[ExtraWork] = []
        if run.key == overhead_key:
            work.append(_overhead(run, _longest_s(run, history)))
        if verify and _is_due(run, session_number):
            work += _verification(run, history)
        runs_with_work.append(replace(run, extra_work=tuple(work)))
    volume_bytes = sum(run.volume_bytes for run in runs_with_work)
    if total_bytes is not None and volume_bytes > total_bytes:
        return tuple(runs)
    return tuple(runs_with_work)


def _first_traced_run(
    runs: Sequence[PlannedRun], history: Mapping[RunKey, RunHistory], traced_stacks: Collection[str]
) -> RunKey | None:
    """The first run that has a trace and a known time; None without one. Darshan does not trace probes."""
    for run in runs:
        if run.stack in traced_stacks and run.case.tool.is_traced and _longest_s(run, history):
            return run.key
    return None


def _longest_s(run: PlannedRun, history: Mapping[RunKey, RunHistory]) -> float:
    """Longest time of the run in the last sessions, seconds; 0 if it is not known."""
    if run.key not in history:
        return 0.0
    return history[run.key].longest_wall_s or 0.0


def _overhead(run: PlannedRun, longest_s: float) -> ExtraWork:
    tool, options = run.case.tool, run.case.options
    starts = 2 * OVERHEAD_PAIRS
    volume_bytes = starts * tool.volume_bytes(options) // tool.runs(options)
    expected_s = starts * (longest_s / tool.runs(options))
    return ExtraWork("overhead", volume_bytes, expected_s, _MARGIN * expected_s)


def _is_due(run: PlannedRun, session_number: int) -> bool:
    """Whether it is the turn of this run: a seventh of the runs in each session, the same by name at all times."""
    digest = hashlib.sha256("\0".join(run.key).encode()).digest()
    return digest[0] % ROTATION_SESSIONS == session_number % ROTATION_SESSIONS


def _verification(run: PlannedRun, history: Mapping[RunKey, RunHistory]) -> Iterator[ExtraWork]:
    """The verification of a run; nothing if its benchmark cannot, or compares the data in its own timed part."""
    options = verifying_options(run.case)
    if options is not None:
        tool, limit_s = run.case.tool, float(run.case.time_limit_s)
        volume = tool.volume_bytes(options)
        share = volume / max(tool.volume_bytes(run.case.options), 1)
        yield ExtraWork("verification", volume, share * (_longest_s(run, history) or limit_s), limit_s)
