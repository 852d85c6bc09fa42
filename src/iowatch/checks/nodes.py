"""What each node of a job on several nodes has: its file system of scratch, and its MPI.

    job's script ── launcher sh -c … (one line per node) ──> iowatch.nodes ──> fact `each_node`, reasons of failure

The other facts are those of the first node. A node whose mount is missing, or whose image has another MPI, gives a job
valid numbers of something else.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from iowatch.checks.run import PREPARATION, CheckedRun
from iowatch.core import files, format_count

_FACTS_FILE = "iowatch.nodes"
# Of each task of a program that writes times of ranks: its rank by Open MPI, PMIx, PMI or the scheduler, and its node.
# Tasks that `mpirun` starts in a job of Slurm have the number of Slurm's own task as well, so that it comes last.
_RANK_LINE = r"""
rank="${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${FLUX_TASK_RANK:-${SLURM_PROCID:-}}}}}"
[ -z "$rank" ] || printf "%s\t%s\n" "$rank" "$(uname -n)"
"""
# For `sh -c`: the program is $1, the scratch directory $2. Of the tasks of a node the first one answers, where its
# launcher numbers them. Mount point, type and source are those of the opened directory, as in `identity_commands`.
_SCRIPT = r"""
case "${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}" in 0) ;; *) exit 0 ;; esac
exec 3< "$2"
id=$(sed -n "s/^mnt_id:[[:space:]]*//p" /proc/self/fdinfo/3)
row="s/^$id [^ ]+ [^ ]+ [^ ]+ ([^ ]+) .* - ([^ ]+) ([^ ]*) .*/\1 \2 \3/p"
scratch=$(sed -nE "$row" /proc/self/mountinfo)
mpi=$(timeout 20 ldd "$1" | sed -n "s/.*=> \(\/[^ ]*libmpi[^ ]*\) .*/\1/p" | head -n 1)
[ -z "$mpi" ] || mpi="$(readlink -f "$mpi") ($(stat -L -c %s "$mpi") bytes)"
printf "%s\t%s\t%s\n" "$(uname -n)" "$scratch" "$mpi"
"""


@dataclass(frozen=True)
class NodeFacts:
    """What a node has.

    Attributes:
        scratch: mount point, type and source of the file system of the scratch directory.
        mpi: path and size of the MPI library that the program loads; empty for a static one.
    """

    scratch: str
    mpi: str


def node_commands(run: CheckedRun) -> list[str]:
    """Return the line of a job's script that asks each node; none for a job on one node.

    It follows the lines that find the program.
    """
    if run.case.nodes == 1:
        return []
    text = _SCRIPT
    if run.case.tool.rank_times is not None:
        text = _RANK_LINE + text.lstrip()
    script = shlex.quote(text.strip().replace("\n", "; "))
    directory = shlex.quote(str(run.scratch_base))
    command = f'{run.launcher} sh -c {script} sh "$_iowatch_program" {directory}'
    return [f"{command} > {_FACTS_FILE} 2>> {PREPARATION.stderr}"]


def facts_of_nodes(stage: Path) -> dict[str, NodeFacts]:
    """Return what each node printed, by its name; empty if the job has one node, or did not ask."""
    try:
        text = (stage / _FACTS_FILE).read_text(errors="replace")
    except OSError:
        return {}
    facts: dict[str, NodeFacts] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            name, scratch, mpi = fields
            facts[name] = NodeFacts(files.unescape_octal(scratch), mpi)
    return facts


def nodes_of_ranks(stage: Path, ranks: int) -> list[str]:
    """Return the node of each rank, as the tasks printed it; empty unless each of so many ranks did so once."""
    try:
        text = (stage / _FACTS_FILE).read_text(errors="replace")
    except OSError:
        return []
    node_of_rank: dict[str, str] = {}
    lines = [line.split("\t") for line in text.splitlines()]
    rank_lines = [fields for fields in lines if len(fields) == 2]
    for rank, node in rank_lines:
        node_of_rank[rank] = node
    expected = [str(rank) for rank in range(ranks)]
    if len(rank_lines) != ranks or node_of_rank.keys() != set(expected):
        return []
    return [node_of_rank[rank] for rank in expected]


def each_node_fact(stage: Path) -> dict[str, Mapping[str, Mapping[str, str]]]:
    """Return the fact `each_node` of a finished job; empty for a job on one node."""
    facts = facts_of_nodes(stage)
    if not facts:
        return {}
    return {"each_node": {name: asdict(node) for name, node in sorted(facts.items())}}


def differences_between_nodes(run: CheckedRun) -> list[str]:
    """Return why nodes of a job did not do the same: their number, their scratch, or their MPI; empty if they did."""
    if run.case.nodes == 1:
        return []
    facts = facts_of_nodes(run.stage)
    names = sorted(facts)
    if len(names) < run.case.nodes:
        answered = ", ".join(names) or "none"
        count = format_count(run.case.nodes, "node")
        return [f"of {count} only these reported their scratch and MPI: {answered} (see {PREPARATION.stderr})"]
    first_name, *other_names = names
    first = facts[first_name]
    reasons: list[str] = []
    for name in other_names:
        node = facts[name]
        if node.scratch != first.scratch:
            reasons.append(f"scratch is on '{node.scratch}' on node {name}, on '{first.scratch}' on {first_name}")
        if node.mpi != first.mpi:
            reasons.append(f"node {name} loads the MPI '{node.mpi}', {first_name} '{first.mpi}'")
    return reasons
