"""What goes on around a run: a snapshot on the job's first node before and after it, and answers of Prometheus.

`snapshot_commands` run in the job, `parse_snapshot` reads what they wrote; `core.covariates` defines the names. No
command prints names of users, jobs or processes.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import shlex
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from iowatch.core import KIB, SIDES, Side
from iowatch.site.system import CovariateSettings, PrometheusSettings

Snapshot = dict[str, float | str]
"""Values by name of the covariate, and `time_s`."""

SCRIPT_NAME = "iowatch.covariates.sh"
# A program that hangs, and the whole snapshot: a process that waits for a dead file system cannot even be killed.
_PROGRAM_LIMIT_S, _SNAPSHOT_LIMIT_S = 2, 5

# Each output begins with `== name`. `$1` is the scratch directory, `$2` the side. What may hang on a dead file system
# comes last. The shell reads files itself: starting a program takes longer than all of them together.
_SCRIPT = r"""
PATH=$PATH:/usr/sbin:/sbin:/usr/lpp/mmfs/bin
shopt -s nullglob
show() {
    local file lines
    for file; do mapfile -t lines < "$file" && printf '%s\n' "${lines[@]/#/$file:}"; done
}
try() {
    local section=$1; shift
    echo "== $section"
    command -v "$1" > /dev/null || return
    timeout LIMIT "$@" || [ $? != 124 ] || echo "== hung $section"
}
echo "== time"; echo "${EPOCHREALTIME:-$(date +%s.%N)}"
echo "== node"; show /proc/loadavg /proc/meminfo /proc/stat /proc/pressure/io /proc/pressure/cpu
echo "== network"
show /sys/class/net/*/device/net/*/statistics/{rx,tx}_{errors,dropped} \
    /sys/class/infiniband/*/ports/*/counters/{*error*,link_downed,*discards*,*dropped,port_xmit_wait}
for path in ${COUNTERS:+/sys/class/net/*/device/net/*}; do
    try ethtool ethtool -S "${path##*/}" | sed -nE "/^==/p; s/^[[:space:]]*($COUNTERS):/\1:/p"
done
if [ "$2" = before ] && [ -n "$SLURM_JOB_ID" ]; then
    try jobs sdiag | sed -nE '/^(==|Jobs (pending|running):)/p'
    echo "== own-nodes"; timeout LIMIT squeue -h -t R -w "$SLURM_JOB_NODELIST" -o x | wc -l
fi
exec 3< "$1"
while read -r name id; do [ "$name" != mnt_id: ] || break; done < /proc/self/fdinfo/3
while read -r number _ device _ target rest; do
    [ "$number" != "$id" ] || read -r type source _ <<< "${rest#*- }"
    [ "$number" != "$id" ] || break
done < /proc/self/mountinfo
echo "== device"; show "/sys/dev/block/$device/stat" "/sys/class/bdi/$device/read_ahead_kb"
case $type in
ext4) show "/proc/fs/ext4/${source##*/}/options" ;;
nfs*) echo "== nfs"; target=$target awk '$1 == "device" {on = $5 == ENVIRON["target"]} on' /proc/self/mountstats ;;
lustre)
    name=${source##*:/}; name=${name%%/*}
    try lustre lctl get_param "llite.$name-*.stats" "osc.$name-*.stats" "mdc.$name-*.stats" \
        "osc.$name-*.ost_server_uuid" "mdc.$name-*.mds_server_uuid" PARAMETERS
    try lfs lfs df "$1"
    try lfs-inodes lfs df -i "$1" ;;
gpfs)
    try gpfs mmpmon -p <<< fs_io_s | grep -E "^==| _fs_ ${source##*/} "
    try gpfs-disks mmlsdisk "${source##*/}" -Y ;;
fuse.glusterfs)
    # The client's own view, which every account may read. Options of connections have passwords.
    printf -v target "${target//%/%%}"
    try gluster sh -c 'cd "$1/.meta/graphs/active" && cat ../../cmdline volfile *-client-*/private *-client-*/profile' \
        sh "$target" |
        awk '/^ *type / {type = $2} !/^ *option / || type !~ "^protocol/" || $2 ~ "^(CONNECTION_OPTIONS)$"' ;;
fuse.ceph-fuse)
    for socket in /run/ceph/*client*.asok; do
        # Of root, as the client is.
        [ -w "$socket" ] || continue
        status=$(timeout LIMIT ceph --admin-daemon "$socket" status)
        [[ $status == *"\"mount_point\": \"$target\""* ]] || continue
        try ceph-fuse ceph --admin-daemon "$socket" perf dump
        try ceph-settings ceph --admin-daemon "$socket" config show | grep -E '^==|^ *"(CEPH_OPTIONS)":'
        echo "== ceph-version"; grep ceph_version <<< "$status"
        break
    done ;;
ceph)
    # Of root. Which of several clients belongs to the mount is not known.
    clients=(/sys/kernel/debug/ceph/*.client*)
    echo "== ceph"
    [ ${#clients[@]} != 1 ] || show "$clients/metrics" "$clients"/metrics/{latency,size} ;;
beegfs)
    for path in /proc/fs/beegfs/*/config; do
        [[ ,${rest##* }, == *",cfgFile=$(sed -n 's/^cfgFile = //p' "$path"),"* ]] || continue
        echo "== beegfs"
        show "$path" "${path%config}"{storage_target_state,meta_target_state,netbench_mode}
    done ;;
esac
case $type in *ceph*)
    for keyring in /etc/ceph/*.keyring; do
        [ -r "$keyring" ] || continue
        id=${keyring##*client.}
        try ceph-cluster ceph --id "${id%.keyring}" -s -f json
        break
    done ;;
esac
try space stat -f -c "%S %b %f %a %d" "$1"
echo "== end"
"""


# Options of a connection of GlusterFS that are recorded.
_CONNECTION_OPTIONS = (
    "client-version",
    "event-threads",
    "filter-O_DIRECT",
    "ping-timeout",
    "send-gids",
    "strict-locks",
    "transport-type",
    "transport.address-family",
    "transport.socket.ssl-enabled",
    "transport.tcp-user-timeout",
)
# Settings of ceph-fuse that change its speed, as regular expressions.
_CEPH_OPTIONS = (
    "client_cache_size",
    "client_oc",
    "client_oc_(max_dirty|max_dirty_age|max_objects|size|target_dirty)",
    "client_readahead_(max_bytes|max_periods|min)",
    "client_(debug_force_sync_read|force_lazyio|dirsize_rbytes)",
    "fuse_(big_writes|disable_pagecache|max_write|multithreaded|splice_[a-z]+)",
    "objecter_inflight_(op_bytes|ops)",
    "ms_(crc_data|type|async_op_threads)",
)


def snapshot_script(settings: CovariateSettings) -> str:
    """Return the script that prints a snapshot; bash. Its arguments are the scratch directory and the side."""
    parameters: list[str] = []
    for pattern in settings.lustre_parameters:
        # A client may have mounted several file systems: `*` are the devices of that of the scratch directory.
        own_pattern = re.sub(r"^(\w+)\.\*\.", r"\1.$name-*.", pattern)
        parameters.append(f'"{own_pattern}"')
    body = _SCRIPT
    for word, text in (
        ("LIMIT", str(_PROGRAM_LIMIT_S)),
        ("CONNECTION_OPTIONS", "|".join(_CONNECTION_OPTIONS)),
        ("CEPH_OPTIONS", "|".join(_CEPH_OPTIONS)),
        ("PARAMETERS", " ".join(parameters)),
    ):
        body = body.replace(word, text)
    counters = shlex.quote("|".join(settings.network_counters))
    return f"COUNTERS={counters}" + body


def snapshot_command(directory: str, side: Side) -> str:
    """Return the line of a job's script (bash) that writes a snapshot, and waits some seconds at most."""
    script = f"bash {SCRIPT_NAME} {shlex.quote(directory)} {side} > {_snapshot_name(side)}"
    # What is left behind must not keep the job's error stream open.
    return f"read -r -t {_SNAPSHOT_LIMIT_S} < <(exec 2> /dev/null; {script}; echo) || true"


def _snapshot_name(side: Side) -> str:
    return f"iowatch.covariates.{side}"


def parse_snapshot(text: str, settings: CovariateSettings) -> Snapshot:
    """Return the covariates of a snapshot by name.

    Args:
        text: what the script printed; a damaged section is left out.
    """
    readers = _READERS | {"lustre": partial(_read_lustre, patterns=settings.lustre_parameters)}
    snapshot: Snapshot = {}
    for section in re.split(r"(?m)^== ", text)[1:]:
        title, _, lines = section.partition("\n")
        try:
            values = list(readers[title.strip()](lines.splitlines()))
        except (KeyError, ValueError, IndexError):
            continue
        for name, value in values:
            # Numbers of several interfaces, targets or operations have one name: the total of the node.
            if name in snapshot and not isinstance(value, str):
                value += float(snapshot[name])
            snapshot[name] = value
    return {name: value for name, value in snapshot.items() if isinstance(value, str) or math.isfinite(value)}


def is_complete_snapshot(text: str) -> bool:
    """Return whether the script printed everything in time."""
    return "\n== end" in text


def hung_programs(text: str) -> list[str]:
    """Return the sections of a snapshot whose program did not end in time."""
    return re.findall(r"(?m)^== hung (\S+)$", text)


_Lines = Sequence[str]
_Values = Iterator[tuple[str, float | str]]

_MEMORY = {
    "MemAvailable:": "memory_available_bytes",
    "Cached:": "memory_cached_bytes",
    "Dirty:": "memory_dirty_bytes",
    "Writeback:": "memory_dirty_bytes",
}


def _read_time(lines: _Lines) -> _Values:
    yield "time_s", float(lines[0])


def _read_node(lines: _Lines) -> _Values:
    for line in lines:
        path, _, text = line.partition(":")
        words = text.split()
        if words[0] in _MEMORY:
            yield _MEMORY[words[0]], float(words[1]) * KIB
        elif words[0] == "procs_blocked":
            yield "processes_blocked", float(words[1])
        elif path == "/proc/loadavg":
            yield "load_1m", float(words[0])
        elif words[0] == "some":
            yield f"{path.rpartition('/')[2]}_pressure", float(words[1].removeprefix("avg10="))


def _read_network(lines: _Lines) -> _Values:
    for line in lines:
        path, _, value = line.rpartition(":")
        counter = path.rpartition("/")[2]
        if counter == "port_xmit_wait":
            yield "network_wait", float(value)
        elif counter.endswith(("dropped", "discards")):
            yield "network_discards", float(value)
        elif counter != "port_rcv_switch_relay_errors":  # also counts multicast packets of the port itself
            yield "network_errors", float(value)


def _read_ethtool(lines: _Lines) -> _Values:
    for line in lines:
        name, _, value = line.partition(":")
        yield f"network_errors:{name.strip()}", float(value)


def _read_space(lines: _Lines) -> _Values:
    """Block size, blocks: all, free, available to users; free inodes. The fill is that of `df`."""
    size, total, free, available, inodes = map(float, lines[0].split())
    yield "used_bytes", (total - free) * size
    yield "fill", 100 * (total - free) / max(total - free + available, 1)
    if inodes:  # 0 where inodes are not limited
        yield "free_inodes", inodes


def _read_device(lines: _Lines) -> _Values:
    """`stat` of a block device: Documentation/block/stat.rst of Linux; sectors have 512 bytes, times are in ms."""
    for line in lines:
        path, _, text = line.rpartition(":")
        if path.endswith("/read_ahead_kb"):
            yield "setting:read_ahead_kib", float(text)
        elif text.startswith("commit="):
            yield "setting:commit_s", float(text.removeprefix("commit="))
        elif path.endswith("/stat"):
            reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, in_flight = text.split()[:9]
            yield "client_read_bytes", 512 * float(sectors_read)
            yield "client_written_bytes", 512 * float(sectors_written)
            yield "client_data_ops", float(reads) + float(writes)
            yield "client_wait_s", (float(read_ms) + float(write_ms)) / 1000
            yield "device_in_flight", float(in_flight)


def _read_nfs(lines: _Lines) -> _Values:
    """One mount of /proc/self/mountstats; see mountstats(8) and net/sunrpc/stats.c of Linux. Times are in ms."""
    for line in lines:
        words = line.split()
        if line.strip().startswith("bytes:"):
            yield "client_read_bytes", float(words[5])
            yield "client_written_bytes", float(words[6])
        elif re.match(r"\s+[A-Z_]+: \d", line):
            sent, transmitted, *_, execute_ms = map(float, words[1:9])
            if words[0] in ("READ:", "WRITE:", "COMMIT:"):
                yield "client_data_ops", sent
            else:
                yield "client_metadata_ops", sent
            yield "client_retransmissions", transmitted - sent
            yield "client_wait_s", execute_ms / 1000


def _read_lustre(lines: _Lines, patterns: Sequence[str]) -> _Values:
    """`lctl get_param` of statistics (`name count samples [unit] min max sum`) and of the parameters of the site."""
    totals: dict[tuple[str, str], float] = defaultdict(float)
    parameters: dict[str, Counter[str]] = {}
    device = ""
    disconnected: list[bool] = []
    for line in lines:
        words = line.split()
        header = re.match(r"(\w+)\.\S+\.stats=$", line)
        server = re.match(r"(?:osc|mdc)\.\S+\.(?:ost|mds)_server_uuid=\S+\t(.+)$", line)
        parameter = re.match(r"([^\s=]+)=(.+)$", line)
        if header:
            device = header[1]
        elif server:
            # State of the import, and `DEACTIVATED` behind it; IDLE connects with the next request.
            disconnected.append(server[1].strip() not in ("FULL", "IDLE"))
        elif parameter:
            for pattern in patterns:
                if fnmatchcase(parameter[1], pattern):
                    parameters.setdefault(pattern, Counter())[parameter[2].strip()] += 1
        elif words[2:3] == ["samples"]:
            counter, count = words[0], float(words[1])
            # The sum of the samples, or their number where they have no values.
            totals[device, counter] += float(words[6]) if len(words) > 6 else count
            if counter == "req_waittime":
                totals[device, "requests"] += count
    yield from _lustre_totals(totals)
    if disconnected:
        yield "targets_disconnected", sum(disconnected)
    for pattern, counts in parameters.items():
        yield f"setting:{pattern}", _format_parameter(counts)


def _lustre_totals(totals: dict[tuple[str, str], float]) -> _Values:
    """Covariates from the totals of counters.

    Args:
        totals: by device (`llite`: the mount; `osc`, `mdc`: clients of its object and metadata servers) and counter.
    """
    devices = {device for device, _ in totals}
    # The object clients count what the network carried; the mount also counts what its cache answered.
    bytes_device = "llite"
    if ("osc", "read_bytes") in totals or ("osc", "write_bytes") in totals:
        bytes_device = "osc"
    counters = {
        "client_read_bytes": (bytes_device, "read_bytes"),
        "client_written_bytes": (bytes_device, "write_bytes"),
        "client_data_ops": ("osc", "requests"),
        "client_metadata_ops": ("mdc", "requests"),
    }
    for name, (device, counter) in counters.items():
        if device in devices:
            yield name, totals[device, counter]
    # In microseconds.
    yield "client_wait_s", (totals["osc", "req_waittime"] + totals["mdc", "req_waittime"]) / 1e6


def _format_parameter(counts: Counter[str]) -> str:
    """Return the value of a parameter, or each value and the number of devices that have it, most frequent first."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count})" for value, count in counts.most_common())


_TARGET = re.compile(r"(\S+) +(\d+) +(\d+) +(\d+) +\d+% .*\[(OST|MDT):")
# Larger file systems have a thousand targets; a run keeps the fullest.
_MAX_TARGETS = 64


def _read_lfs_df(lines: _Lines) -> _Values:
    """Lines `UUID blocks used available use% mount[OST:0]`; a target that does not answer has ` : ` and the reason."""
    rows = [row for row in map(_TARGET.match, lines) if row is not None]
    fill_percent: dict[str, float] = {}
    for row in rows:
        if row[5] == "OST":
            name = row[1].removesuffix("_UUID").rpartition("-")[2]
            fill_percent[name] = _fill_percent(row)
    yield "targets", len(rows)
    yield "targets_down", sum(" : " in line for line in lines)
    yield "target_fill_max", max(fill_percent.values())
    yield "target_fill_mean", sum(fill_percent.values()) / len(fill_percent)
    fullest_first = sorted(fill_percent, key=lambda name: -fill_percent[name])
    for name in fullest_first[:_MAX_TARGETS]:
        yield f"target_fill:{name}", fill_percent[name]


def _fill_percent(row: re.Match[str]) -> float:
    used, available = float(row[3]), float(row[4])
    return round(100 * used / max(used + available, 1), 2)


def _read_lfs_inodes(lines: _Lines) -> _Values:
    rows = [row for row in map(_TARGET.match, lines) if row is not None]
    yield "target_inodes_free_min", min(float(row[4]) for row in rows)


def _read_mmpmon(lines: _Lines) -> _Values:
    """`fs_io_s` of IBM Storage Scale: bytes read and written, opens, closes, reads, writes, directories, inodes."""
    for line in lines:
        words = line.split()
        counts = dict(zip(words[1::2], words[2::2], strict=False))
        if words[:1] == ["_fs_io_s_"] and "_br_" in counts:
            yield "client_read_bytes", float(counts["_br_"])
            yield "client_written_bytes", float(counts["_bw_"])
            yield "client_data_ops", float(counts["_rdc_"]) + float(counts["_wc_"])
            yield "client_metadata_ops", sum(float(counts[name]) for name in ("_oc_", "_cc_", "_dir_", "_iu_"))


def _read_mmlsdisk(lines: _Lines) -> _Values:
    rows = [line.split(":") for line in lines if line.startswith("mmlsdisk:")]
    header = next(row for row in rows if "HEADER" in row)
    disks = [dict(zip(header, row, strict=False)) for row in rows if "HEADER" not in row]
    yield "targets", len(disks)
    yield "targets_down", sum((disk["status"], disk["availability"]) != ("ready", "up") for disk in disks)


# Of the performance translators of GlusterFS, which an administrator switches on and off.
_PERFORMANCE_TRANSLATORS = (
    "io-cache",
    "io-threads",
    "md-cache",
    "nl-cache",
    "open-behind",
    "quick-read",
    "read-ahead",
    "readdir-ahead",
    "write-behind",
)
_GLUSTER_COUNTERS = (
    "client_read_bytes",
    "client_written_bytes",
    "client_data_ops",
    "client_metadata_ops",
    "client_wait_s",
)
_GLUSTER_DATA_REQUESTS = ("READ", "WRITE", "FSYNC")
# Of the command line of a client: what names servers, files and processes.
_GLUSTER_PLACES = ("volfile", "process-name", "log-file", "pid-file", "volume-id", "subdir-mount")


def _read_gluster(lines: _Lines) -> _Values:
    """Command line, graph and counters of a client of GlusterFS, from the directory `.meta` of its mount.

    A graph has `volume NAME`, `type TYPE`, `option NAME VALUE` and `end-volume`. Each brick has a connection with lines
    `connected = 1`, `total_bytes_read = N`, and `NAME.latency.WRITE = AVG:a CNT:n TOTAL:ns MIN:b MAX:c`. Connections
    are new, and count from 0, when the graph changes.
    """
    translators: Counter[str] = Counter()
    options: dict[str, Counter[str]] = defaultdict(Counter)
    # A client that has just been mounted has no requests yet: 0, not unknown.
    totals = dict.fromkeys(_GLUSTER_COUNTERS, 0.0)
    states: list[str] = []
    translator = ""
    for line in lines:
        words = line.split()
        latency = re.match(r"\S+\.latency\.(\w+) = .*CNT:(\d+) TOTAL:(\d+)", line)
        if latency:
            is_data = latency[1] in _GLUSTER_DATA_REQUESTS
            totals["client_data_ops" if is_data else "client_metadata_ops"] += float(latency[2])
            totals["client_wait_s"] += float(latency[3]) / 1e9
        elif words[:1] == ["type"]:
            translator = words[1]
            translators[translator] += 1
        elif words[:1] == ["option"]:
            options[f"{translator}.{words[1]}"][" ".join(words[2:])] += 1
        elif words[:2] == ["connected", "="]:
            states.append(words[2])
        elif words[:2] == ["total_bytes_read", "="]:
            totals["client_read_bytes"] += float(words[2])
        elif words[:2] == ["total_bytes_written", "="]:
            totals["client_written_bytes"] += float(words[2])
        elif '"Cmdlinestr"' in line:
            yield from _gluster_mount_options(line)
    bricks = translators.pop("protocol/client", 0)
    yield from _gluster_settings(translators, options, bricks)
    # A connection that is being changed has no counters; a total without them would look like a reset.
    if bricks and len(states) == bricks:
        yield from totals.items()
        yield "targets", states.count("1")
        yield "targets_down", bricks - states.count("1")


def _gluster_mount_options(line: str) -> _Values:
    """Options of the client's command line, as `--attribute-timeout=0`; the kernel does not list them."""
    for name, value in re.findall(r" --([\w-]+)(?:=([^\s\"]*))?", line):
        if not name.startswith(_GLUSTER_PLACES):
            yield f"setting:mount.{name}", value or "set"


def _gluster_settings(translators: Counter[str], options: dict[str, Counter[str]], bricks: int) -> _Values:
    """Which translators a client has, how often where there are several, and their options that are set."""
    if not translators:
        return
    yield "setting:bricks", str(bricks)
    for name in _PERFORMANCE_TRANSLATORS:
        translators.setdefault(f"performance/{name}", 0)
    words = {0: "off", 1: "on"}
    for translator, count in translators.items():
        if translator != "meta":
            yield f"setting:{translator}", words.get(count, str(count))
    for option, values in options.items():
        yield f"setting:{option}", _format_parameter(values)


def _read_ceph_fuse(lines: _Lines) -> _Values:
    """`perf dump` of ceph-fuse: JSON. Bytes are those of all connections, to metadata and object servers."""
    counters = json.loads("\n".join(lines))
    connections = [counts for name, counts in counters.items() if name.startswith("AsyncMessenger::")]
    yield "client_read_bytes", sum(counts["msgr_recv_bytes"] for counts in connections)
    yield "client_written_bytes", sum(counts["msgr_send_bytes"] for counts in connections)
    yield "client_data_ops", counters["objecter"]["op"]
    yield "client_retransmissions", counters["objecter"]["op_resend"]
    yield "client_metadata_ops", counters["client"]["reply"]["avgcount"]


def _read_ceph_settings(lines: _Lines) -> _Values:
    """Lines `"name": "value",` of `config show`."""
    for line in lines:
        name, value = re.findall(r'"([^"]*)"', line)
        yield f"setting:{name}", value


def _read_ceph_version(lines: _Lines) -> _Values:
    """The line `"ceph_version": "ceph version 16.2.15 (commit) …"` of `status`."""
    yield "setting:ceph_version", lines[0].split()[3]


def _read_ceph(lines: _Lines) -> _Values:
    """`metrics` of a client in the kernel: fs/ceph/debugfs.c of Linux; one file, or `latency` and `size`.

    Tables have a header `item total avg_lat(us) …` or `item total avg_sz(bytes) … total_sz(bytes)`, and rows `read`,
    `write` and, of the first, `metadata`.
    """
    header: list[str] = []
    for line in lines:
        words = line.partition(":")[2].split()
        if words[:1] == ["item"]:
            header = words
        elif words[:1] in (["read"], ["write"], ["metadata"]) and len(words) == len(header):
            yield from _ceph_row(dict(zip(header, words, strict=True)))


def _ceph_row(row: dict[str, str]) -> _Values:
    """The counters of one row of a table of `metrics`."""
    item, total = row["item"], float(row["total"])
    if "avg_lat(us)" in row:
        yield "client_metadata_ops" if item == "metadata" else "client_data_ops", total
        yield "client_wait_s", total * float(row["avg_lat(us)"]) / 1e6
    elif "total_sz(bytes)" in row:
        yield "client_read_bytes" if item == "read" else "client_written_bytes", float(row["total_sz(bytes)"])


def _read_ceph_cluster(lines: _Lines) -> _Values:
    """`ceph -s -f json`: object servers that are up, and the warnings and errors of the cluster."""
    status = json.loads("\n".join(lines))
    servers = status["osdmap"]
    # Before Ceph 15 one level deeper.
    servers = servers.get("osdmap", servers)
    yield "targets", servers["num_up_osds"]
    yield "targets_down", servers["num_osds"] - servers["num_up_osds"]
    yield "health_checks", len(status["health"]["checks"])


_BEEGFS_SETTINGS = (
    "tune",
    "connUseRDMA",
    "connMaxInternodeNum",
    "connRDMABuf",
    "sysSession",
    "sysSyncOnClose",
    "sysACLsEnabled",
    "sysXAttrsEnabled",
    "sysInodeIDStyle",
    "quotaEnabled",
)


def _read_beegfs(lines: _Lines) -> _Values:
    """Files of /proc/fs/beegfs/CLIENT: client_module/source/filesystem/ProcFsHelper.c of BeeGFS.

    `config` has lines `name = value`; states of targets are `[Target ID: 1] @ node: Online / Good`.
    """
    states: list[str] = []
    for line in lines:
        path, _, text = line.partition(":")
        name, separator, value = text.partition(" = ")
        file_name = path.rpartition("/")[2]
        if file_name.endswith("_target_state"):
            states.append(text.rpartition(": ")[2].strip())
        elif file_name == "netbench_mode" and text.isdecimal():
            # Servers that neither read nor write: the network is measured.
            yield "setting:netbench_mode", text
        elif separator and name.startswith(_BEEGFS_SETTINGS):
            yield f"setting:{name}", value.strip() or "none"
    if states:
        online = [state for state in states if state.startswith("Online")]
        yield "targets", len(online)
        yield "targets_down", len(states) - len(online)


def _read_jobs(lines: _Lines) -> _Values:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower().replace(" ", "_"), float(value)


def _read_own_nodes(lines: _Lines) -> _Values:
    yield "jobs_own_nodes", max(float(lines[0]) - 1, 0)


_READERS: dict[str, Callable[[_Lines], _Values]] = {
    "time": _read_time,
    "node": _read_node,
    "network": _read_network,
    "ethtool": _read_ethtool,
    "space": _read_space,
    "device": _read_device,
    "nfs": _read_nfs,
    "lfs": _read_lfs_df,
    "lfs-inodes": _read_lfs_inodes,
    "gpfs": _read_mmpmon,
    "gpfs-disks": _read_mmlsdisk,
    "gluster": _read_gluster,
    "ceph-fuse": _read_ceph_fuse,
    "ceph-settings": _read_ceph_settings,
    "ceph-version": _read_ceph_version,
    "ceph": _read_ceph,
    "ceph-cluster": _read_ceph_cluster,
    "beegfs": _read_beegfs,
    "jobs": _read_jobs,
    "own-nodes": _read_own_nodes,
}

_PROMETHEUS_LIMIT_S = 2.0
# Why a server did not answer: each further run of this process would wait again.
_silent: dict[str, str] = {}


@dataclass(frozen=True)
class PrometheusAnswers:
    """Answers at two times, by `prometheus:<name>`.

    Attributes:
        missing: why a query has no answer.
    """

    before: Snapshot
    after: Snapshot
    missing: dict[str, str]


def ask_prometheus(settings: PrometheusSettings, start: float, end: float) -> PrometheusAnswers:
    """Return the answers to the queries of a system at the start and the end of a run.

    The host of ReFrame asks after the run: nodes need no route to the server, and the run does not wait.

    Args:
        start, end: epoch seconds.
    """
    before: Snapshot = {}
    after: Snapshot = {}
    missing: dict[str, str] = {}
    for name, query in settings.queries.items():
        key = f"prometheus:{name}"
        try:
            before[key], after[key] = _ask(settings.url, query, start, end)
        except urllib.error.HTTPError as error:
            with error:
                missing[key] = f"{settings.url} answered {error.code}: {error.read(300).decode(errors='replace')}"
        except (OSError, http.client.HTTPException) as error:
            _silent[settings.url] = missing[key] = f"no answer of {settings.url}: {error}"
        except (ValueError, LookupError, TypeError) as error:
            missing[key] = str(error)
    return PrometheusAnswers(before, after, missing)


def _ask(url: str, query: str, start: float, end: float) -> tuple[float, float]:
    """The two answers.

    Raises:
        OSError, HTTPException: no answer.
        ValueError, LookupError, TypeError: not one number at each time, or the server did not answer before.
    """
    if url in _silent:
        raise ValueError(_silent[url])
    step = max(round(end - start, 3), 0.01)
    # Up to the middle of the second step: rounding must not lose its beginning.
    words = {"query": query, "start": f"{start:.3f}", "end": f"{start + 1.5 * step:.3f}", "step": f"{step:.3f}"}
    address = f"{url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(address, timeout=_PROMETHEUS_LIMIT_S) as answer:  # noqa: S310  # nosec B310 # scheme checked
        rows = json.load(answer)["data"]["result"]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} series, expected one: use sum(), avg() or max()")
    before, after = (float(value) for _, value in rows[0]["values"])
    if not (math.isfinite(before) and math.isfinite(after)):
        raise ValueError("not a finite number")
    return before, after


def read_snapshots(stage: Path, settings: CovariateSettings) -> dict[str, Any]:
    """Return the fact `covariates` of a run: values `before` and `after`, and the reasons of `missing` ones.

    Args:
        stage: directory of the snapshots; empty without both of them, because the job did not start or end.
    """
    try:
        texts = {side: (stage / _snapshot_name(side)).read_text(errors="replace") for side in SIDES}
    except OSError:
        return {}
    snapshots: dict[str, dict[str, float | str]] = {}
    for side, text in texts.items():
        snapshots[side] = parse_snapshot(text, settings)
    missing: dict[str, str] = {}
    for side, text in texts.items():
        hung = hung_programs(text)
        if hung:
            missing[side] = f"{', '.join(hung)}: no answer within {_PROGRAM_LIMIT_S} s"
        if not is_complete_snapshot(text):
            missing[side] = f"the snapshot took longer than {_SNAPSHOT_LIMIT_S} s: a program or the file system hung"
    # Prometheus is asked for the times of the two snapshots.
    start, end = (snapshot.get("time_s") for snapshot in snapshots.values())
    if settings.prometheus and isinstance(start, float) and isinstance(end, float):
        answers = ask_prometheus(settings.prometheus, start, end)
        for snapshot, answer in zip(snapshots.values(), (answers.before, answers.after), strict=True):
            snapshot.update(answer)
        missing |= answers.missing
    covariates: dict[str, Any] = {}
    covariates.update(snapshots)
    if missing:
        covariates["missing"] = missing
    return {"covariates": covariates}
