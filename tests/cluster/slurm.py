"""Slurm on the machines of a box: controller, accounting in MariaDB and munge on `login`, a slurmd on each node.

Partitions are unequal: `small` has two nodes of two cores, `wide` all four, two of them with four cores.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.cluster.machines import LOGIN, NODES, Box, address, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "mariadb", "sacctmgr")

# SlurmdParameters: nodes say that they have more cores than this machine. linuxproc and none need no control groups.
_CONFIGURATION = """
ClusterName=box
SlurmctldHost=login({login})
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
SlurmdTimeout=15
MessageTimeout=30
BatchStartTimeout=30
UnkillableStepTimeout=30
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
NodeName=n[1-2] CPUs=2 RealMemory=2000 State=UNKNOWN
NodeName=n[3-4] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=small Nodes=n[1-2] MaxTime=INFINITE State=UP
PartitionName=wide Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
"""
_DATABASE_CONFIGURATION = """
AuthType=auth/munge
DbdHost=login
SlurmUser=root
PidFile={base}/slurmdbd.pid
LogFile={base}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=accounting
"""


def start_slurm(box: Box) -> None:
    """Start all daemons, and wait until the nodes are idle and jobs are accounted."""
    base = box.directory / "slurm"
    for directory in ("state", "spool", "database"):
        (base / directory).mkdir(parents=True)
    (base / "slurm.conf").write_text(_CONFIGURATION.format(base=base, login=address(LOGIN)))
    box.environment["SLURM_CONF"] = str(base / "slurm.conf")
    _start_munge(box, base)
    _start_accounting(box, base)
    box.start_daemon(LOGIN, "slurmctld", "-D", "-c")
    for node in NODES:
        start_node(box, node)
    wait_until(lambda: states(box) == {"idle"}, 60, "all nodes idle")


def start_node(box: Box, node: str) -> None:
    box.start_daemon(node, "slurmd", "-D", "-N", node)


def rejoin_node(box: Box, node: str) -> None:
    """Let a node that was booted again run jobs."""
    _share_munge(box, node)
    start_node(box, node)
    wait_until(lambda: states(box) == {"idle"}, 60, f"{node} idle")


def states(box: Box) -> set[str]:
    """Return the states of all nodes."""
    answer = box.run(LOGIN, "sinfo", "--noheader", "--Node", "--format=%T", may_fail=True)
    return set(answer.stdout.split())


def _start_munge(box: Box, base: Path) -> None:
    """One munged for all machines."""
    shared = base / "munge"
    shared.mkdir()
    for machine in box.machines:
        _share_munge(box, machine)
    key = base / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    files = [f"--key-file={key}", f"--pid-file={base}/munged.pid"]
    files += [f"--log-file={base}/munged.log", f"--seed-file={base}/munged.seed"]
    box.start_daemon(LOGIN, "munged", "--foreground", "--force", *files)
    wait_until((shared / "munge.socket.2").exists, 20, "munged")


def _share_munge(box: Box, machine: str) -> None:
    """Put the directory of munged's socket where Slurm looks for it on a machine."""
    box.run(machine, "mkdir", "-p", "/run/munge")
    box.run(machine, "mount", "--bind", str(box.directory / "slurm" / "munge"), "/run/munge")


def _start_accounting(box: Box, base: Path) -> None:
    database, socket = base / "database", base / "mariadb.socket"
    box.run(
        LOGIN, "mariadb-install-db", "--user=root", f"--datadir={database}", "--auth-root-authentication-method=socket"
    )
    files = [f"--datadir={database}", f"--socket={socket}", f"--pid-file={base}/mariadb.pid"]
    box.start_daemon(LOGIN, "mariadbd", "--no-defaults", "--user=root", "--skip-networking", *files)
    # slurmdbd looks for the socket where MariaDB has it by default.
    box.run(LOGIN, "mkdir", "-p", "/run/mysqld")
    box.run(LOGIN, "ln", "-sf", str(socket), "/run/mysqld/mysqld.sock")
    create = ["mariadb", f"--socket={socket}", "--execute=create database if not exists accounting"]
    wait_until(lambda: box.run(LOGIN, *create, may_fail=True).returncode == 0, 60, "MariaDB")
    configuration = base / "slurmdbd.conf"
    configuration.write_text(_DATABASE_CONFIGURATION.format(base=base))
    configuration.chmod(0o600)
    box.start_daemon(LOGIN, "slurmdbd", "-D")
    for words in (("cluster", "box"), ("account", "work", "cluster=box"), ("user", "root", "account=work")):
        add = ["sacctmgr", "--immediate", "add", *words]
        wait_until(lambda command=add: _is_added(box, command), 60, "slurmdbd")


def _is_added(box: Box, command: list[str]) -> bool:
    done = box.run(LOGIN, *command, may_fail=True)
    return done.returncode == 0 or "Nothing new added" in done.stdout + done.stderr
