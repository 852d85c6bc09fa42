"""Slow targets: which OST of a file system was slow beside the others in the runs since a change, and before it.

    Darshan log of a run -> relative time of its files on each target (iowatch.darshan) -> fact `darshan.targets`
      -> evidence of a finding

One run has few files per target. Therefore the runs since the change are compared together, too: the relative times of
a run are one kind of `iowatch.statistics.slow_targets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from iowatch.darshan import FileSystemTargets
from iowatch.findings.evidence import runs_around_change
from iowatch.findings.finding import FindingMember, SlowTargetOfRuns, strongest_first
from iowatch.statistics.slow_targets import MIN_RATIO, FilesOnTargets, compare_targets
from iowatch.store import NO_RUN_FACTS, History, RunFacts, SeriesPoints

# Members of one event use the same targets, so a few of them name all slow ones.
_MAX_MEMBERS, _MAX_SLOW_TARGETS = 4, 5


def targets_in_logs(
    history: History, members: Sequence[FindingMember], points: Mapping[int, SeriesPoints]
) -> tuple[SlowTargetOfRuns, ...]:
    """Targets that were slow in the runs since the change, of the members with the largest ones.

    Args:
        points: by series id, observations of each member on both sides of the change.
    """
    by_target: dict[int, SlowTargetOfRuns] = {}
    for member in strongest_first(members)[:_MAX_MEMBERS]:
        runs = runs_around_change(member, points[member.series_id])
        facts = history.run_facts([*runs.before, *runs.after], ("darshan",))
        before = list(_targets_of_runs(runs.before, facts))
        after = list(_targets_of_runs(runs.after, facts))
        for slow in _slow_since_change(member.name, before, after):
            # Each target once, as the member with the largest change shows it.
            by_target.setdefault(slow.target, slow)
    slowest_first = sorted(by_target.values(), key=lambda slow: -slow.ratio)
    return tuple(slowest_first[:_MAX_SLOW_TARGETS])


def _targets_of_runs(runs: Sequence[int], facts: Mapping[int, RunFacts]) -> Iterator[FileSystemTargets]:
    """What the runs with a comparison of targets show, in order of time."""
    for run in runs:
        targets = targets_of_run(facts.get(run, NO_RUN_FACTS))
        if targets is not None:
            yield targets


def targets_of_run(facts: RunFacts) -> FileSystemTargets | None:
    """The comparison of targets of a run; None without one, or where the fact is of another program."""
    if facts.darshan is None or facts.darshan.targets is None:
        return None
    try:
        return FileSystemTargets.from_json(facts.darshan.targets)
    except (KeyError, TypeError):
        return None


def _slow_since_change(
    name: str, before: Sequence[FileSystemTargets], after: Sequence[FileSystemTargets]
) -> Iterator[SlowTargetOfRuns]:
    """The slow targets of the runs of one member.

    Args:
        name: of the member, for display.
        before, after: of each run on both sides of the change.
    """
    ratios_after = _ratios_by_target(after)
    ratios_before = _ratios_by_target(before)
    ratio_of_slow = _slow_in_all_runs(after) | _slow_in_half_of_the_runs(after)
    for target, ratio in ratio_of_slow.items():
        in_runs_after = ratios_after.get(target, [])
        in_runs_before = ratios_before.get(target, [])
        yield SlowTargetOfRuns(
            target=target,
            series=name,
            ratio=ratio,
            other_targets=len(ratios_after) - 1,
            slow_after=_count_slow(in_runs_after),
            runs_after=len(in_runs_after),
            slow_before=_count_slow(in_runs_before),
            runs_before=len(in_runs_before),
        )


def _ratios_by_target(runs: Sequence[FileSystemTargets]) -> dict[int, list[float]]:
    """Of each target its time / the median of the others, in each run that has files on it and on others."""
    ratios: dict[int, list[float]] = {}
    for run in runs:
        times = {entry.target: entry.relative_time for entry in run.figures if entry.relative_time is not None}
        for target, relative_time in times.items():
            others = [other_time for other, other_time in times.items() if other != target]
            if others:
                ratios.setdefault(target, []).append(relative_time / float(np.median(others)))
    return ratios


def _count_slow(ratios: Sequence[float]) -> int:
    return sum(ratio >= MIN_RATIO for ratio in ratios)


def _slow_in_half_of_the_runs(runs: Sequence[FileSystemTargets]) -> dict[int, float]:
    """Targets that the files of at least half of the runs on them name, with the ratio in the newest such run."""
    used: dict[int, int] = {}
    named: dict[int, list[float]] = {}
    for run in runs:
        for entry in run.figures:
            used[entry.target] = used.get(entry.target, 0) + 1
        for slow in run.slow:
            named.setdefault(slow.target, []).append(slow.ratio)
    return {target: ratios[-1] for target, ratios in named.items() if 2 * len(ratios) >= used.get(target, 0)}


def _slow_in_all_runs(runs: Sequence[FileSystemTargets]) -> dict[int, float]:
    """Targets that the runs together show to be slow, with the ratio."""
    times: list[float] = []
    kinds: list[int] = []
    targets: list[int] = []
    for number, run in enumerate(runs):
        for entry in run.figures:
            if entry.relative_time is not None:
                times.append(entry.relative_time)
                kinds.append(number)
                targets.append(entry.target)
    placed = FilesOnTargets(
        times=np.array(times, dtype=np.float64),
        kinds=np.array(kinds, dtype=np.int64),
        files=np.arange(len(times)),
        targets=np.array(targets, dtype=np.int64),
    )
    return {slow.target: slow.ratio for slow in compare_targets(placed).slow}
