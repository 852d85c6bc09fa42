"""What each node of a job on several nodes has: scratch, MPI and other software, settings, clock, load and memory.

    job's script ── launcher sh -c … (one line per node) ──> iowatch.nodes ──> fact `each_node`, reasons of failure
                                                                                    └──> core.find_node_differences

The other facts are those of the first node. A node whose mount is missing, or whose image has another MPI, gives a job
valid numbers of something else. Other differences are recorded, and named by the verdict.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from iowatch.checks.run import PREPARATION, CheckedRun
from iowatch.core import KIB, files, format_count
from iowatch.site import compared_facts

_FACTS_FILE = "iowatch.nodes"
# Of each task of a program that writes times of ranks: its rank by Open MPI, PMIx, PMI or the scheduler, and its node.
# Tasks that `mpirun` starts in a job of Slurm have the number of Slurm's own task as well, so that it comes last.
_RANK_LINE = r"""
rank="${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${FLUX_TASK_RANK:-${SLURM_PROCID:-}}}}}"
[ -z "$rank" ] || printf "%s\t%s\n" "$rank" "$(uname -n)"
"""
# Two lines: the clock of the job's first node before the nodes are asked, and after.
_TIMES_FILE = "iowatch.nodes.times"
# For `sh -c`: the program is $1, the scratch directory $2. Of the tasks of a node the first one answers, where its
# launcher numbers them. Mount point, type and source are those of the opened directory, as in `identity_commands`.
# The kernel does not list the options of a client of GlusterFS. ldd prints `name => path (address)`, and `path
# (address)` for what is preloaded. Each line ends with a command: they are joined.
_SCRIPT = r"""
case "${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}" in 0) ;; *) exit 0 ;; esac
exec 3< "$2"
id=$(sed -n "s/^mnt_id:[[:space:]]*//p" /proc/self/fdinfo/3)
row="s/^$id [^ ]+ [^ ]+ [^ ]+ ([^ ]+) .* - ([^ ]+) ([^ ]*) .*/\1 \2 \3/p"
scratch=$(sed -nE "$row" /proc/self/mountinfo)
row="s/^$id [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) (.* )?- [^ ]+ [^ ]* (.*)/\1,\3/p"
options=$(sed -nE "$row" /proc/self/mountinfo)
client=
meta="${scratch%% *}/.meta"
case "$scratch" in *" fuse.glusterfs "*) client=$(timeout 5 cat "$meta/version" "$meta/cmdline") ;; esac
version=$(echo "$client" | sed -n "s/.*\"Package Version\": \"\(.*\)\".*/GlusterFS \1/p")
client=$(echo $client | grep -oE -- " --[a-z-]+(=[^ \"]*)?" | grep -vE "volfile|process-name|log-file|pid-file")
loaded=$(timeout 20 ldd "$1")
mpi=$(echo "$loaded" | sed -n "s/.*=> \(\/[^ ]*libmpi[^ ]*\) .*/\1/p" | head -n 1)
[ -z "$mpi" ] || mpi="$(readlink -f "$mpi") ($(stat -L -c %s "$mpi") bytes)"
libraries=$(echo "$loaded" | sed -nE "s/^[[:space:]]*(.* => )?(\/[^ ]*) \(0x.*/\2/p" | sort)
libraries=$(timeout 20 sha256sum $libraries < /dev/null | sha256sum | cut -c 1-12)
case "$scratch" in *" lustre "*) version="Lustre $(cat /sys/fs/lustre/version)" ;; esac
writeback=$(grep -s . /proc/sys/vm/dirty_* | sed "s|^.*/dirty_||; s/:/=/" | paste -s -d , -)
load=$(cut -d " " -f 1 /proc/loadavg)
memory=$(sed -nE "s/^(MemTotal|MemAvailable|Cached): *([0-9]+) kB/\2/p" /proc/meminfo | paste -s -d " " -)
pressure=$(sed -nE "s/^some avg10=([^ ]+).*/\1/p" /proc/pressure/cpu 2> /dev/null)
row=$(printf "\t%s" "$(date +%s.%N)" "$(uname -r)" "$version" "$libraries" "$options" "$(echo $client)" "$writeback")
printf "%s\t%s\t%s%s\t%s\t%s\t%s\n" "$(uname -n)" "$scratch" "$mpi" "$row" "$load" "$memory" "$pressure"
"""


@dataclass(frozen=True)
class NodeFacts:
    """What a node has; texts, empty where it did not say.

    Attributes:
        scratch: mount point, type and source of the file system of the scratch directory.
        mpi: path and size of the MPI library that the program loads; empty for a static one.
        clock: epoch seconds, when it answered.
        file_system_client: name and version of the client of GlusterFS or Lustre that has mounted scratch.
        libraries: digest of the files of all libraries that the program loads.
        mount_options: of scratch, without those that differ from client to client.
        writeback: `vm.dirty_*` as `ratio=20,…`.
        load_1m, memory_available_bytes, memory_cached_bytes, cpu_pressure: before the run; as the covariates.
        memory_available: the same in percent of all memory of the node.
    """

    scratch: str
    mpi: str
    clock: str = ""
    kernel: str = ""
    file_system_client: str = ""
    libraries: str = ""
    mount_options: str = ""
    writeback: str = ""
    load_1m: str = ""
    memory_available_bytes: str = ""
    memory_available: str = ""
    memory_cached_bytes: str = ""
    cpu_pressure: str = ""


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
    asked = f"{command} > {_FACTS_FILE} 2>> {PREPARATION.stderr}"
    return [f"date +%s.%N > {_TIMES_FILE}; {asked}; date +%s.%N >> {_TIMES_FILE}"]


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
        elif len(fields) == 13:
            facts[fields[0]] = _parse_fields(fields[1:])
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


def _parse_fields(fields: Sequence[str]) -> NodeFacts:
    """The facts of one line, in the order in which the script prints them."""
    scratch, mpi, clock, kernel, version, libraries, options, client, writeback, load, memory, pressure = fields
    all_options = ",".join([options, *client.split()])
    mount_point = scratch.partition(" ")[0]
    memory_facts = _parse_memory(memory)
    return NodeFacts(
        scratch=files.unescape_octal(scratch),
        mpi=mpi,
        clock=clock,
        kernel=kernel,
        file_system_client=version,
        libraries=libraries,
        mount_options=compared_facts.comparable_mount_options(mount_point, all_options),
        writeback=writeback,
        load_1m=load,
        **memory_facts,
        cpu_pressure=pressure,
    )


def _parse_memory(text: str) -> dict[str, str]:
    """The facts of all, available and cached memory in KiB; none where the node did not say."""
    amounts = [int(amount) * KIB for amount in text.split() if amount.isdecimal()]
    if len(amounts) != 3:
        return {}
    total_bytes, available_bytes, cached_bytes = amounts
    return {
        "memory_available_bytes": str(available_bytes),
        "memory_available": f"{100 * available_bytes / max(total_bytes, 1):.0f}",
        "memory_cached_bytes": str(cached_bytes),
    }


def each_node_fact(stage: Path) -> dict[str, Mapping[str, Mapping[str, str]]]:
    """Return the fact `each_node` of a finished job; empty for a job on one node.

    Instead of the time of its answer a node has the range in which its clock is ahead of that of the first node: at
    least `clock_ahead_min_s`, at most `clock_ahead_max_s`. The node answered between two readings of that clock: the
    range is as wide as the answers of all nodes took; a smaller difference cannot be detected.
    """
    facts = facts_of_nodes(stage)
    if not facts:
        return {}
    times_file = stage / _TIMES_FILE
    times = times_file.read_text(errors="replace").split() if times_file.is_file() else []
    each_node: dict[str, Mapping[str, str]] = {}
    for name, node in sorted(facts.items()):
        document = asdict(node)
        clock = document.pop("clock")
        recorded = {fact: text for fact, text in document.items() if text or fact in ("scratch", "mpi")}
        each_node[name] = recorded | _clock_range(clock, times)
    return {"each_node": each_node}


def _clock_range(clock: str, times: Sequence[str]) -> dict[str, str]:
    """Least and largest seconds by which a clock is ahead of that of the first node; empty if a time is unknown."""
    try:
        answered, asked, ended = (float(moment) for moment in (clock, *times))
    except ValueError:
        return {}
    return {"clock_ahead_min_s": f"{answered - ended:.2f}", "clock_ahead_max_s": f"{answered - asked:.2f}"}


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
