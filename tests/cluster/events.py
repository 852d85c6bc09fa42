"""What a maintenance or a fault makes of a distributed file system: events on the servers and nodes of a box.

Each event is a context manager; after it everything is as before.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import gluster
from tests.cluster.machines import LOGIN, Box, wait_until

Event = Callable[[Box], AbstractContextManager[None]]

_DELAYS = Path(__file__).with_name("delays.c")
# Of a link: 16 Mbit/s, about 2 MB/s. A burst holds a whole segment of the virtual network card.
_SLOW_LINK = ("root", "tbf", "rate", "16mbit", "burst", "64k", "latency", "400ms")
_METADATA_LOAD = """
cd "$1" && while :; do
  mkdir busy.$$ && for file in 1 2 3 4 5 6 7 8 9 10; do : > busy.$$/$file; stat busy.$$/$file > /dev/null; done
  rm -r busy.$$
done
"""


@contextmanager
def slow_link(box: Box, machine: str) -> Iterator[None]:
    """Limit what a machine sends and receives."""
    box.run(machine, "tc", "qdisc", "add", "dev", "eth0", *_SLOW_LINK)
    box.run_on_switch("tc", "qdisc", "add", "dev", f"port-{machine}", *_SLOW_LINK)
    try:
        yield
    finally:
        box.run(machine, "tc", "qdisc", "del", "dev", "eth0", "root")
        box.run_on_switch("tc", "qdisc", "del", "dev", f"port-{machine}", "root")


@contextmanager
def slow_disk(box: Box, server: str, delay_us: int) -> Iterator[None]:
    """Each read and write of the disk of a server takes longer."""
    gluster.stop_brick(box, server)
    gluster.start_brick(box, server, preloaded(box, "disk", delay_us))
    try:
        yield
    finally:
        gluster.stop_brick(box, server)
        gluster.start_bricks(box)


@contextmanager
def dead_brick(box: Box, server: str) -> Iterator[None]:
    """A server's part of the file system is gone."""
    gluster.stop_brick(box, server)
    try:
        yield
    finally:
        gluster.start_bricks(box)


@contextmanager
def volume_option(box: Box, option: str, value: str) -> Iterator[None]:
    """A setting of the file system that all clients take over."""
    gluster.set_option(box, option, value)
    try:
        yield
    finally:
        gluster.reset_option(box, option)


@contextmanager
def slow_clients(box: Box, nodes: Sequence[str], delay_us: int) -> Iterator[None]:
    """Some nodes get another client of the file system, which takes longer for each message."""
    for node in nodes:
        gluster.unmount(box, node)
        gluster.mount(box, node, environment=preloaded(box, "connection", delay_us))
    try:
        yield
    finally:
        for node in nodes:
            gluster.unmount(box, node)
            gluster.mount(box, node)


@contextmanager
def metadata_load(box: Box, machine: str, processes: int) -> Iterator[None]:
    """Another job makes and removes small files."""
    directory = gluster.mount_directory(box) / "other-job"
    box.run(machine, "mkdir", "-p", str(directory))
    script = ["bash", "-c", _METADATA_LOAD, "load", str(directory)]
    loads: list[subprocess.Popen[bytes]] = []
    for _ in range(processes):
        command = box.command(machine, *script)
        loads.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        # The parent of each is nsenter, which ends with its child and not before it.
        box.run(machine, "pkill", "-f", "other-job", may_fail=True)
        for load in loads:
            load.wait(timeout=20)
        box.run(machine, "rm", "-rf", str(directory), may_fail=True)


def preloaded(box: Box, calls: str, delay_us: int) -> Mapping[str, str]:
    """Return the environment of a program whose calls take longer (delays.c)."""
    library = box.directory / "delays.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(_DELAYS), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "DELAY_CALLS": calls, "DELAY_US": str(delay_us)}


@dataclass(frozen=True)
class Scenario:
    """An event of the table in docs/cluster.md.

    Attributes:
        description: what an administrator would call it.
    """

    name: str
    description: str
    event: Event


SCENARIOS = (
    Scenario("throttled server", "one of three servers at 16 Mbit/s", lambda box: slow_link(box, "s2")),
    Scenario(
        "slow disk", "each call to the disk of a server takes 20 ms longer", lambda box: slow_disk(box, "s3", 20_000)
    ),
    Scenario("dead brick", "one of three servers has lost its brick", lambda box: dead_brick(box, "s2")),
    Scenario(
        "write-behind off",
        "performance.write-behind off",
        lambda box: volume_option(box, "performance.write-behind", "off"),
    ),
    Scenario(
        "read-ahead off", "performance.read-ahead off", lambda box: volume_option(box, "performance.read-ahead", "off")
    ),
    Scenario(
        "small cache",
        "performance.cache-size from 32 MB to 4 MB",
        lambda box: volume_option(box, "performance.cache-size", "4MB"),
    ),
    Scenario("slow node", "the link of one of four nodes at 16 Mbit/s", lambda box: slow_link(box, "n3")),
    Scenario(
        "new client",
        "each message of the client takes 2 ms longer on two of four nodes",
        lambda box: slow_clients(box, ("n3", "n4"), 2_000),
    ),
    Scenario("metadata load", "another job makes and removes small files", lambda box: metadata_load(box, "n1", 4)),
)


def settle(box: Box) -> None:
    """Wait until the file system answers on the login node and its servers have had time to notice an event."""
    directory = str(gluster.mount_directory(box))
    wait_until(lambda: box.run(LOGIN, "stat", "-f", directory, may_fail=True).returncode == 0, 60, "the file system")
    time.sleep(3)
