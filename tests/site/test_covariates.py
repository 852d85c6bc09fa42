"""Snapshots of what goes on around a run: the real one of this machine, and texts of programs that are not here.

Lustre, Storage Scale (GPFS), NFS and InfiniBand are not on this machine: their texts have the form that `lctl`, `lfs`,
`mmpmon`, `mmlsdisk` and the kernel print (Lustre manual 2.x section 20; IBM documentation of `fs_io_s` and `-Y`;
mountstats(8)), with numbers of our own, from which the expected values are added up by hand. GlusterFS 10.3 and
ceph-fuse 16.2.15 ran on this machine: their texts are what they printed, shortened. The client of Ceph in the kernel
(fs/ceph/debugfs.c of Linux) and BeeGFS (client_module/source/filesystem/ProcFsHelper.c) have the form of these sources.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from iowatch.core import COVARIATES, get_covariate
from iowatch.site import CovariateSettings, covariates
from iowatch.site.compared_facts import COMPARED_FACTS
from iowatch.site.system import PrometheusSettings

NONE = CovariateSettings()


def take_snapshot(place: Path, directory: Path, settings: CovariateSettings = NONE, script: str = "") -> str:
    """Run the line of a job's script; return what it wrote."""
    place.mkdir(exist_ok=True)
    (place / covariates.SCRIPT_NAME).write_text(script or covariates.snapshot_script(settings))
    line = covariates.snapshot_command(str(directory), "before")
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"{line}; echo $?"], cwd=place, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
    return (place / "iowatch.covariates.before").read_text()


def write_program(place: Path, name: str, body: str) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/bash\n{body}\n")
    (place / name).chmod(0o755)


def test_snapshot_of_this_machine(tmp_path: Path) -> None:
    directory = tmp_path / "a directory; with 'quotes'"
    directory.mkdir()
    earlier = time.time()
    text = take_snapshot(tmp_path / "stage", directory)
    snapshot = covariates.parse_snapshot(text, NONE)
    assert covariates.is_complete_snapshot(text)
    assert all(get_covariate(name) for name in snapshot if name != "time_s")
    assert earlier - 1 <= float(snapshot["time_s"]) <= time.time() + 1
    space = os.statvfs(directory)
    assert float(snapshot["used_bytes"]) == pytest.approx((space.f_blocks - space.f_bfree) * space.f_frsize, rel=0.05)
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = 1024 * float(meminfo["MemAvailable"].split()[0])
    assert float(snapshot["memory_available_bytes"]) == pytest.approx(available, rel=0.3)
    assert 0 <= float(snapshot["load_1m"]) < 10_000


def test_writing_is_counted(tmp_path: Path) -> None:
    """The counters are those of the device of the directory: 64 MiB that reached the device are seen."""
    before = covariates.parse_snapshot(take_snapshot(tmp_path / "stage", tmp_path), NONE)
    if "client_written_bytes" not in before:
        pytest.skip("the temporary directory is not on a block device")
    with (tmp_path / "data").open("wb") as stream:
        stream.write(os.urandom(2**26))
        os.fsync(stream.fileno())
    after = covariates.parse_snapshot(take_snapshot(tmp_path / "stage", tmp_path), NONE)
    assert float(after["client_written_bytes"]) - float(before["client_written_bytes"]) >= 2**26


def test_hanging_program_loses_only_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covariates, "_PROGRAM_LIMIT_S", 0.2)
    write_program(tmp_path / "stage", "stat", "exec sleep 60")
    text = take_snapshot(tmp_path / "stage", tmp_path)
    snapshot = covariates.parse_snapshot(text, NONE)
    assert covariates.is_complete_snapshot(text)
    assert "fill" not in snapshot
    assert "load_1m" in snapshot


def test_snapshot_that_cannot_end_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that waits for a dead file system, `timeout` included: signals do not end it."""
    monkeypatch.setattr(covariates, "_SNAPSHOT_LIMIT_S", 1)
    stage = tmp_path / "stage"
    write_program(stage, "timeout", 'trap "" TERM; for i in {1..40}; do /bin/sleep 0.1; done')
    began = time.monotonic()
    take_snapshot(stage, tmp_path)
    assert time.monotonic() - began < 3
    (stage / "iowatch.covariates.after").write_text((stage / "iowatch.covariates.before").read_text())
    facts = covariates.read_snapshots(stage, NONE)["covariates"]
    assert "load_1m" in facts["before"]
    assert "hung" in facts["missing"]["before"]


def test_job_that_did_not_start_has_no_covariates(tmp_path: Path) -> None:
    assert covariates.read_snapshots(tmp_path, NONE) == {}


LUSTRE = """\
llite.scratch-ffff9d.stats=
snapshot_time             1700000000.123 secs.nsecs
read_bytes                10 samples [bytes] 4096 1048576 9000000
write_bytes               10 samples [bytes] 4096 1048576 8000000
osc.scratch-OST0000-osc-ffff9d.stats=
snapshot_time             1700000000.123 secs.nsecs
req_waittime              100 samples [usec] 60 5000 2000000 789
req_active                100 samples [reqs] 1 5 200 400
read_bytes                3 samples [bytes] 4096 1048576 3000000 99
write_bytes               4 samples [bytes] 4096 1048576 4000000 99
osc.scratch-OST0001-osc-ffff9d.stats=
req_waittime              50 samples [usec] 60 5000 1000000 789
write_bytes               4 samples [bytes] 4096 1048576 500000 99
mdc.scratch-MDT0000-mdc-ffff9d.stats=
req_waittime              7 samples [usec] 60 5000 500000 789
osc.scratch-OST0000-osc-ffff9d.ost_server_uuid=scratch-OST0000_UUID\tFULL
osc.scratch-OST0001-osc-ffff9d.ost_server_uuid=scratch-OST0001_UUID\tDISCONN
osc.scratch-OST0002-osc-ffff9d.ost_server_uuid=scratch-OST0002_UUID\tFULL\tDEACTIVATED
mdc.scratch-MDT0000-mdc-ffff9d.mds_server_uuid=scratch-MDT0000_UUID\tIDLE
osc.scratch-OST0000-osc-ffff9d.max_rpcs_in_flight=8
osc.scratch-OST0001-osc-ffff9d.max_rpcs_in_flight=8
osc.scratch-OST0002-osc-ffff9d.max_rpcs_in_flight=16
llite.scratch-ffff9d.max_read_ahead_mb=64
"""
LFS_DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
scratch-MDT0000_UUID   1000000       10000      990000   1% /scratch[MDT:0]
scratch-OST0000_UUID   1000000      250000      750000  25% /scratch[OST:0]
scratch-OST0001_UUID   1000000      900000      100000  90% /scratch[OST:1]
OST0002             : inactive device
scratch-OST0003_UUID : Resource temporarily unavailable

filesystem_summary:    2000000     1150000      850000  58% /scratch
"""
LFS_INODES = """\
UUID                      Inodes       IUsed       IFree IUse% Mounted on
scratch-MDT0000_UUID     5000000      400000     4600000   8% /scratch[MDT:0]
scratch-OST0000_UUID      700000      100000      600000  15% /scratch[OST:0]
"""
NFS = """\
device server:/export mounted on /scratch with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tbytes:\t11 22 33 44 5500 6600 2 2
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 1 0 0 12755 12754 0 51500 0 32 101086 25994
\tper-op statistics
\t        NULL: 0 0 0 0 0 0 0 0 0
\t        READ: 10 11 0 2200 5500 1 300 400 0
\t       WRITE: 20 23 0 6600 2880 1 500 600 0
\t        OPEN: 2 2 0 632 704 0 140 1000 0
"""
GPFS = (
    "_fs_io_s_ _n_ 10.0.0.1 _nn_ n1 _rc_ 0 _t_ 1579358234 _tu_ 53212 _cl_ gpfs.site _fs_ scratch _d_ 48 "
    "_br_ 2000 _bw_ 3000 _oc_ 5 _cc_ 6 _rdc_ 70 _wc_ 80 _dir_ 9 _iu_ 10\n"
)
MMLSDISK = """\
mmlsdisk::HEADER:version:reserved:reserved:nsdName:driverType:sectorSize:failureGroup:metadata:data:status:availability:
mmlsdisk::0:1:::nsd1:nsd:512:1:yes:yes:ready:up:
mmlsdisk::0:1:::nsd2:nsd:512:1:yes:yes:ready:down:
mmlsdisk::0:1:::nsd3:nsd:512:1:yes:yes:suspended:up:
"""
GLUSTER = """\
{
  "Cmdlinestr": "/usr/sbin/glusterfs --attribute-timeout=0 --process-name fuse --volfile-server=s1 /sc"
}volume scratch-client-0
    type protocol/client
    option client-version 10.3
end-volume

volume scratch-client-1
    type protocol/client
    option client-version 10.3
end-volume

volume scratch-dht
    type cluster/distribute
    option lock-migration off
    subvolumes scratch-client-0 scratch-client-1
end-volume

volume scratch-write-behind
    type performance/write-behind
    option cache-size 4MB
    subvolumes scratch-dht
end-volume

volume meta-autoload
    type meta
    subvolumes scratch-write-behind
end-volume

[xlator.protocol.client.scratch-client-0.priv]
fd.0.remote_fd = 0
connected = 1
total_bytes_read = 8000
ping_timeout = 42
total_bytes_written = 11000
ping_msgs_sent = 1
msgs_sent = 33
[xlator.protocol.client.scratch-client-1.priv]
connected = 0
total_bytes_read = 700
ping_timeout = 42
total_bytes_written = 900
[scratch-client-0.latency]
scratch-client-0.latency.WRITE = AVG:471367.959596 CNT:99 TOTAL:46000000 MIN:169686 MAX:2148016
scratch-client-0.latency.FLUSH = AVG:384545.750000 CNT:4 TOTAL:1500000 MIN:126957 MAX:920017
[scratch-client-1.latency]
scratch-client-1.latency.READ = AVG:1000.000000 CNT:1 TOTAL:500000 MIN:1000 MAX:1000
scratch-client-1.latency.LOOKUP = AVG:575152.130435 CNT:23 TOTAL:12000000 MIN:143117 MAX:1556534
"""
GLUSTER_SETTINGS = {
    "setting:mount.attribute-timeout": "0",
    "setting:bricks": "2",
    "setting:cluster/distribute": "on",
    "setting:cluster/distribute.lock-migration": "off",
    "setting:performance/write-behind": "on",
    "setting:performance/write-behind.cache-size": "4MB",
    "setting:performance/read-ahead": "off",
    "setting:performance/readdir-ahead": "off",
    "setting:performance/io-cache": "off",
    "setting:performance/io-threads": "off",
    "setting:performance/quick-read": "off",
    "setting:performance/open-behind": "off",
    "setting:performance/md-cache": "off",
    "setting:performance/nl-cache": "off",
    "setting:protocol/client.client-version": "10.3",
}
CEPH_FUSE = """\
{
    "AsyncMessenger::Worker-0": {"msgr_recv_bytes": 1270, "msgr_send_bytes": 9831995},
    "AsyncMessenger::Worker-1": {"msgr_recv_bytes": 4352, "msgr_send_bytes": 480},
    "client": {
        "reply": {
            "avgcount": 12,
            "sum": 0.014088830,
            "avgtime": 0.001174069
        },
        "rdops": 0,
        "writeavg": 0.000133306,
        "rdops": 150
    },
    "objecter": {"op_active": 0, "op_send": 7, "op_resend": 2, "op": 5, "op_r": 0, "op_w": 5}
}
"""
CEPH_SETTINGS = """\
    "client_cache_size": "16384",
    "client_oc": "true",
    "fuse_disable_pagecache": "false",
"""
CEPH_STATUS = (
    '{"fsid":"c3f60a03","health":{"status":"HEALTH_WARN","checks":{"OSD_DOWN":{"severity":"HEALTH_WARN"},'
    '"MON_DISK_LOW":{"severity":"HEALTH_WARN"}},"mutes":[]},"osdmap":{"epoch":11,"num_osds":4,"num_up_osds":3}}\n'
)
CEPH = """\
item                               total
------------------------------------------
opened files  / total inodes       0 / 4

item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
-----------------------------------------------------------------------------------
read          10          2000            0               0               0
write         5           400000          824797          1092343         103476
metadata      79          10000           1572            114572          13262

item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)
----------------------------------------------------------------------------------------
read          10          4096            4096            4096            40960
write         5           4194304         4194304         4194304         20971520

item          total           miss            hit
-------------------------------------------------
caps          4               0               130
"""
CEPH = "".join(f"/sys/kernel/debug/ceph/c3f6.client4142/metrics:{line}\n" for line in CEPH.splitlines())
BEEGFS_CLIENT = "/proc/fs/beegfs/1A2B-65600000-n1"
BEEGFS = f"""\
{BEEGFS_CLIENT}/config:cfgFile = /etc/beegfs/beegfs-client.conf
{BEEGFS_CLIENT}/config:connMaxInternodeNum = 12
{BEEGFS_CLIENT}/config:connAuthFile = /etc/beegfs/connauth
{BEEGFS_CLIENT}/config:tuneFileCacheType = buffered
{BEEGFS_CLIENT}/config:tunePreferredMetaFile =\x20
{BEEGFS_CLIENT}/storage_target_state:[Target ID: 101] @ storage1 [ID: 1]: Online / Good\x20
{BEEGFS_CLIENT}/storage_target_state:[Target ID: 102] @ storage2 [ID: 2]: Probably-offline / Needs-resync\x20
{BEEGFS_CLIENT}/meta_target_state:[Target ID: 1] @ meta1 [ID: 1]: Online / Good\x20
{BEEGFS_CLIENT}/netbench_mode:0
{BEEGFS_CLIENT}/netbench_mode:# Enabled netbench_mode (=1) means that storage servers will not read from or
"""
IB = "/sys/class/infiniband/mlx5_0/ports/1/counters"


@pytest.mark.parametrize(
    ("section", "text", "expected"),
    [
        (
            "lustre",
            LUSTRE,
            {
                "client_read_bytes": 3e6,
                "client_written_bytes": 4.5e6,
                "client_data_ops": 150.0,
                "client_metadata_ops": 7.0,
                "client_wait_s": 3.5,
                "targets_disconnected": 2.0,
                "setting:osc.*.max_rpcs_in_flight": "8 (2), 16 (1)",
                "setting:llite.*.max_read_ahead_mb": "64",
            },
        ),
        (
            "lustre",  # a client whose object statistics only root may read
            "\n".join(LUSTRE.splitlines()[:4]),
            {"client_read_bytes": 9e6, "client_written_bytes": 8e6},
        ),
        (
            "lfs",
            LFS_DF,
            {
                "targets": 3.0,
                "targets_down": 2.0,
                "target_fill_max": 90.0,
                "target_fill_mean": 57.5,
                "target_fill:OST0001": 90.0,
                "target_fill:OST0000": 25.0,
            },
        ),
        ("lfs-inodes", LFS_INODES, {"target_inodes_free_min": 600_000.0}),
        (
            "nfs",
            NFS,
            {
                "client_read_bytes": 5500.0,
                "client_written_bytes": 6600.0,
                "client_data_ops": 30.0,
                "client_metadata_ops": 2.0,
                "client_retransmissions": 4.0,
                "client_wait_s": 2.0,
            },
        ),
        (
            "gpfs",
            GPFS,
            {
                "client_read_bytes": 2000.0,
                "client_written_bytes": 3000.0,
                "client_data_ops": 150.0,
                "client_metadata_ops": 30.0,
            },
        ),
        ("gpfs-disks", MMLSDISK, {"targets": 3.0, "targets_down": 2.0}),
        (
            "gluster",
            GLUSTER,
            {
                "client_read_bytes": 8700.0,
                "client_written_bytes": 11900.0,
                "client_data_ops": 100.0,
                "client_metadata_ops": 27.0,
                "client_wait_s": pytest.approx(0.06),
                "targets": 1.0,
                "targets_down": 1.0,
                **GLUSTER_SETTINGS,
            },
        ),
        # A connection that was being changed: without its counters the totals would look reset.
        ("gluster", GLUSTER.replace("connected = 0", ""), GLUSTER_SETTINGS),
        (
            "ceph-fuse",
            CEPH_FUSE,
            {
                "client_read_bytes": 5622.0,
                "client_written_bytes": 9832475.0,
                "client_data_ops": 5.0,
                "client_metadata_ops": 12.0,
                "client_retransmissions": 2.0,
            },
        ),
        (
            "ceph-settings",
            CEPH_SETTINGS,
            {
                "setting:client_cache_size": "16384",
                "setting:client_oc": "true",
                "setting:fuse_disable_pagecache": "false",
            },
        ),
        (
            "ceph-version",
            '        "ceph_version": "ceph version 16.2.15 (618f440892) pacific (stable)",\n',
            {"setting:ceph_version": "16.2.15"},
        ),
        ("ceph-cluster", CEPH_STATUS, {"targets": 3.0, "targets_down": 1.0, "health_checks": 2.0}),
        (
            "ceph",
            CEPH,
            {
                "client_read_bytes": 40960.0,
                "client_written_bytes": 20971520.0,
                "client_data_ops": 15.0,
                "client_metadata_ops": 79.0,
                "client_wait_s": pytest.approx(0.02 + 2.0 + 0.79),
            },
        ),
        (
            "beegfs",
            BEEGFS,
            {
                "setting:connMaxInternodeNum": "12",
                "setting:tuneFileCacheType": "buffered",
                "setting:tunePreferredMetaFile": "none",
                "setting:netbench_mode": "0",
                "targets": 2.0,
                "targets_down": 1.0,
            },
        ),
        ("jobs", "Jobs pending:   17\nJobs running:   205\n", {"jobs_pending": 17.0, "jobs_running": 205.0}),
        ("own-nodes", "3\n", {"jobs_own_nodes": 2.0}),
        (
            "network",
            f"{IB}/symbol_error:2\n{IB}/port_rcv_errors:3\n{IB}/port_xmit_discards:5\n{IB}/port_xmit_wait:7\n"
            f"{IB}/port_rcv_switch_relay_errors:11\n/sys/class/net/ib0/device/net/ib0/statistics/rx_dropped:13\n",
            {"network_errors": 5.0, "network_discards": 18.0, "network_wait": 7.0},
        ),
        ("ethtool", "rx_discards_phy: 4\n", {"network_errors:rx_discards_phy": 4.0}),
        ("space", "4096 1000 400 200 77\n", {"used_bytes": 600 * 4096.0, "fill": 75.0, "free_inodes": 77.0}),
        ("space", "4096 1000 400 nan 77\n", {"used_bytes": 600 * 4096.0, "free_inodes": 77.0}),
    ],
)
def test_values_of_a_section(section: str, text: str, expected: dict[str, float | str]) -> None:
    settings = CovariateSettings(lustre_parameters=("osc.*.max_rpcs_in_flight", "llite.*.max_read_ahead_mb"))
    snapshot = covariates.parse_snapshot(f"== {section}\n{text}", settings)
    assert {name: value for name, value in snapshot.items() if value or name in expected} == expected


def test_damaged_section_loses_only_its_values() -> None:
    text = "== time\n12.5\n== space\nno number\n== unknown\n1\n== jobs\nJobs running: 4\n== lfs\n\n== end\n"
    assert covariates.parse_snapshot(text, NONE) == {"time_s": 12.5, "jobs_running": 4.0}


def test_two_interfaces_are_added() -> None:
    text = "== ethtool\nrx_discards_phy:4\n== ethtool\nrx_discards_phy:5\n"
    assert covariates.parse_snapshot(text, NONE) == {"network_errors:rx_discards_phy": 9.0}


def test_only_counts_of_jobs_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sdiag` lists users and `squeue` jobs: neither is in the snapshot."""
    stage = tmp_path / "stage"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    write_program(stage, "sdiag", r"printf 'Jobs running: 5\nRemote Procedure Call statistics by user\n alice ( 1)\n'")
    write_program(stage, "squeue", r'[ "$*" = "-h -t R -w n1 -o x" ] && printf "x\nx\n"')
    text = take_snapshot(stage, tmp_path)
    assert "alice" not in text
    snapshot = covariates.parse_snapshot(text, NONE)
    assert (snapshot["jobs_running"], snapshot["jobs_own_nodes"]) == (5.0, 1.0)


def test_lustre_is_asked_for_its_own_file_system(tmp_path: Path) -> None:
    stage, mounts = tmp_path / "stage", tmp_path / "mountinfo"
    number = next(
        line.split()[0]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if line.split()[4] == str(mount_of(tmp_path))
    )
    mounts.write_text(f"{number} 1 0:44 / /scratch rw shared:1 - lustre 10.0.0.1@o2ib:/scratch/project rw,flock\n")
    settings = CovariateSettings(lustre_parameters=("osc.*.max_rpcs_in_flight",))
    write_program(
        stage, "lctl", f'echo "$@" > {tmp_path}/asked; echo osc.scratch-OST0000-osc-ffff.max_rpcs_in_flight=8'
    )
    script = covariates.snapshot_script(settings).replace("/proc/self/mountinfo", str(mounts))
    snapshot = covariates.parse_snapshot(take_snapshot(stage, tmp_path, settings, script), settings)
    statistics = "llite.scratch-*.stats osc.scratch-*.stats mdc.scratch-*.stats"
    states = "osc.scratch-*.ost_server_uuid mdc.scratch-*.mds_server_uuid"
    asked = (tmp_path / "asked").read_text()
    assert asked == f"get_param {statistics} {states} osc.scratch-*.max_rpcs_in_flight\n"
    assert snapshot["setting:osc.*.max_rpcs_in_flight"] == "8"


def take_snapshot_on(kernel_type: str, tmp_path: Path, target: Path, options: str = "rw", **paths: Path) -> str:
    """Take a snapshot where the temporary directory seems to be a mount of another type at `target`.

    Args:
        paths: replacements of absolute paths in the script, by their names with `_` for `/`.
    """
    mounts = tmp_path / "mountinfo"
    number = next(
        line.split()[0]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if line.split()[4] == str(mount_of(tmp_path))
    )
    escaped = str(target).replace(" ", "\\040")
    mounts.write_text(f"{number} 1 0:44 / {escaped} rw shared:1 - {kernel_type} server {options}\n")
    script = covariates.snapshot_script(NONE).replace("/proc/self/mountinfo", str(mounts))
    for name, path in paths.items():
        script = script.replace(name.replace("_", "/"), str(path))
    return take_snapshot(tmp_path / "stage", tmp_path, NONE, script)


def test_client_of_glusterfs_is_asked_by_its_mount(tmp_path: Path) -> None:
    """The mount's directory `.meta`; passwords of its connections are not written to the snapshot."""
    mount = tmp_path / "a mount"
    graph = mount / ".meta" / "graphs" / "active"
    for number, state in enumerate(("connected = 1", "connected = 1")):
        (graph / f"scratch-client-{number}").mkdir(parents=True)
        (graph / f"scratch-client-{number}" / "private").write_text(f"{state}\ntotal_bytes_read = 5\n")
        (graph / f"scratch-client-{number}" / "profile").write_text("")
    (mount / ".meta" / "cmdline").write_text('{\n  "Cmdlinestr": "/usr/sbin/glusterfs --entry-timeout=0 /a"\n}')
    volfile = "".join(
        f"volume scratch-client-{number}\n    type protocol/client\n    option username u-{number}\n"
        f"    option password secret-{number}\n    option event-threads 4\nend-volume\n"
        for number in (0, 1)
    )
    (graph / "volfile").write_text(volfile + "volume scratch-io-cache\n    type performance/io-cache\nend-volume\n")
    text = take_snapshot_on("fuse.glusterfs", tmp_path, mount)
    assert "secret" not in text
    snapshot = covariates.parse_snapshot(text, NONE)
    assert (snapshot["targets"], snapshot["targets_down"], snapshot["client_read_bytes"]) == (2, 0, 10.0)
    # No requests yet: without a 0 the first run after a mount has no rate.
    assert (snapshot["client_data_ops"], snapshot["client_wait_s"]) == (0.0, 0.0)
    assert snapshot["setting:mount.entry-timeout"] == "0"
    assert snapshot["setting:protocol/client.event-threads"] == "4"
    assert (snapshot["setting:performance/io-cache"], snapshot["setting:performance/write-behind"]) == ("on", "off")


def test_client_of_beegfs_is_that_of_the_mount(tmp_path: Path) -> None:
    for client, cache in (("1-n1", "native"), ("2-n1", "buffered")):
        directory = tmp_path / "proc" / client
        directory.mkdir(parents=True)
        (directory / "config").write_text(f"cfgFile = /etc/{client}.conf\ntuneFileCacheType = {cache}\n")
        (directory / "storage_target_state").write_text("[Target ID: 1] @ s [ID: 1]: Offline / Good \n")
    options = "rw,cfgFile=/etc/2-n1.conf,_netdev"
    text = take_snapshot_on("beegfs", tmp_path, tmp_path, options, _proc_fs_beegfs=tmp_path / "proc")
    snapshot = covariates.parse_snapshot(text, NONE)
    assert snapshot["setting:tuneFileCacheType"] == "buffered"
    assert (snapshot["targets"], snapshot["targets_down"]) == (0, 1)


def test_program_that_hangs_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that were not read in time must not look like removed ones."""
    monkeypatch.setattr(covariates, "_PROGRAM_LIMIT_S", 0.2)
    stage = tmp_path / "stage"
    write_program(stage, "stat", "exec sleep 60")
    text = take_snapshot(stage, tmp_path)
    (stage / "iowatch.covariates.after").write_text(text)
    facts = covariates.read_snapshots(stage, NONE)
    assert facts["covariates"]["missing"]["before"] == "space: no answer within 0.2 s"
    assert COMPARED_FACTS["file_system_settings"].read(facts) is None


def mount_of(path: Path) -> Path:
    while not path.is_mount():
        path = path.parent
    return path


class Prometheus(BaseHTTPRequestHandler):
    """Answers as Prometheus 2.42 does: `two` with two series, `late` with one value, others with their two times."""

    def do_GET(self) -> None:
        words = {name: values[0] for name, values in parse_qs(urlparse(self.path).query).items()}
        times = [float(words["start"]), float(words["start"]) + float(words["step"])]
        values = [[moment, str(moment)] for moment in times if moment <= float(words["end"])]
        row = {"metric": {}, "values": values[: 1 if words["query"] == "late" else 2]}
        rows = [row] * {"two": 2, "none": 0}.get(words["query"], 1)
        body = str({"status": "success", "data": {"resultType": "matrix", "result": rows}}).replace("'", '"').encode()
        self.send_response(400 if words["query"] == "bad" else 200)
        self.end_headers()
        self.wfile.write(b'{"error": "parse error"}' if words["query"] == "bad" else body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Prometheus)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_answers_of_prometheus(prometheus: str) -> None:
    queries = {name: name for name in ("ops", "two", "none", "late", "bad")}
    answers = covariates.ask_prometheus(PrometheusSettings(url=prometheus, queries=queries), 100.0, 107.3)
    missing = answers.missing
    assert (answers.before, answers.after) == ({"prometheus:ops": 100.0}, {"prometheus:ops": 107.3})
    assert missing.keys() == {f"prometheus:{name}" for name in ("two", "none", "late", "bad")}
    assert missing["prometheus:two"].startswith("2 series, expected one")
    assert "parse error" in missing["prometheus:bad"]


def test_silent_prometheus_is_asked_once() -> None:
    settings = PrometheusSettings(url="http://127.0.0.1:9", queries={"one": "up", "two": "up"})
    answers = covariates.ask_prometheus(settings, 1.0, 2.0)
    missing = answers.missing
    assert (answers.before, answers.after) == ({}, {})
    assert "no answer of http://127.0.0.1:9" in missing["prometheus:one"]
    assert covariates._silent.pop(settings.url) == missing["prometheus:two"]


def test_every_recorded_name_is_in_the_table() -> None:
    """A name that is not in it would be recorded and never used."""
    sections = {"lustre": LUSTRE, "lfs": LFS_DF, "nfs": NFS, "gpfs": GPFS, "gpfs-disks": MMLSDISK}
    sections |= {"gluster": GLUSTER, "ceph-fuse": CEPH_FUSE, "ceph-cluster": CEPH_STATUS, "beegfs": BEEGFS}
    snapshot = covariates.parse_snapshot("".join(f"== {name}\n{text}" for name, text in sections.items()), NONE)
    assert {name.split(":")[0] for name in snapshot} <= COVARIATES.keys()
