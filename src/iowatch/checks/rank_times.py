"""Times of nodes from times of ranks, of programs that write these to a file without the names of the nodes.

    job's script ── executable knows the option? ──> argument of each start ──> start-N.<file> ─┐
                    launcher sh -c … (iowatch.nodes: rank, node) ───────────────────────────────┴─> fact `node_times`

Which rank is where is that of the same launcher with the same tasks in the same allocation. There is no fact unless
each rank of the job is there once, and on as many nodes as the case has.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from iowatch.benchmarks.rank_times import RankTimes, RankTimesOption
from iowatch.checks.nodes import nodes_of_ranks
from iowatch.checks.run import CheckedRun, JobScript, StartFiles
from iowatch.core import NODE_TIMES_FACT, reduce_node_times

# Variable of the job's script with the arguments that ask for the file; empty if the executable does not know them.
_VARIABLE = "_iowatch_rank_times"


def ask_for_rank_times(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script with a program that writes the times of its ranks, if it can and there are several nodes.

    It follows the lines that find the program. An executable that only starts the real one is not asked.
    """
    option = run.case.tool.rank_times
    if option is None or run.case.nodes == 1:
        return script
    search = f'LC_ALL=C grep -qaF {shlex.quote(option.name)} "$_iowatch_program"'
    arguments = shlex.quote(shlex.join(option.arguments))
    script = script.preparing([f"{_VARIABLE}=; if {search} 2> /dev/null; then {_VARIABLE}={arguments}; fi"])
    # Without quotes: it is no word, or several.
    return script.with_command([*script.command, f"${_VARIABLE}"])


def node_times_of_ranks(run: CheckedRun) -> dict[str, Any]:
    """Return the fact `node_times` of a finished job; empty if its program wrote no times of ranks, or damaged ones."""
    option = run.case.tool.rank_times
    if option is None or run.case.nodes == 1:
        return {}
    nodes = nodes_of_ranks(run.stage, run.case.ranks)
    if len(set(nodes)) != run.case.nodes:
        return {}
    # What a program does besides, such as reading back what it compares, is no measurement.
    measured = {operation for operation, _metric in run.case.tool.expects(run.case.options)}
    times_by_operation: dict[str, Any] = {}
    for operation, repetitions in _times_of_starts(run, option).items():
        if operation not in measured or not option.is_own_time(run.case.options, operation):
            continue
        fact = _node_times(nodes, repetitions, option.bytes_per_rank(run.case.options))
        if fact is not None:
            times_by_operation[operation] = fact
    return {NODE_TIMES_FACT: times_by_operation} if times_by_operation else {}


def _times_of_starts(run: CheckedRun, option: RankTimesOption) -> RankTimes:
    """The times of all starts, by operation; empty if a file of them is absent or damaged."""
    times: dict[str, list[Sequence[float]]] = defaultdict(list)
    for start in range(run.case.tool.runs(run.case.options)):
        path: Path = run.stage / StartFiles(start).result(option.file)
        try:
            times_of_start = option.read(path.read_text(errors="replace"))
        except (OSError, ValueError):
            return {}
        for operation, repetitions in times_of_start.items():
            times[operation] += repetitions
    return times


def _node_times(
    nodes: Sequence[str], repetitions: Sequence[Sequence[float]], bytes_per_rank: int
) -> Mapping[str, Any] | None:
    """What a run keeps of one operation; None if a repetition has not all ranks, or the times cannot be compared.

    Args:
        nodes: the node of each rank.
        repetitions: of each repetition the times of all ranks, in s.
    """
    if any(len(times) != len(nodes) for times in repetitions):
        return None
    ranks_by_node = Counter(nodes)
    means: list[list[float]] = []
    for times in repetitions:
        by_node: dict[str, list[float]] = defaultdict(list)
        for node, seconds in zip(nodes, times, strict=True):
            by_node[node].append(seconds)
        # One late rank is not a slow node: the mean of its ranks.
        means.append([fmean(by_node[node]) for node in ranks_by_node])
    sizes = [count * bytes_per_rank for count in ranks_by_node.values()]
    node_times = reduce_node_times(list(ranks_by_node), sizes, means)
    return None if node_times is None else node_times.to_json()
