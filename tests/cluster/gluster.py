"""GlusterFS over the three file servers of a box, mounted on login and all nodes with its default options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.cluster.machines import LOGIN, NODES, SERVERS, Box, wait_until

PROGRAMS = ("glusterd", "glusterfs", "gluster", "mkfs.ext4")
VOLUME = "scratch"
CLIENTS = (LOGIN, *NODES)
_BRICK_BYTES = "8G"


def start_gluster(box: Box) -> Path:
    """Start the servers, make a distributed volume, and mount it; return the directory of the mount."""
    for server in SERVERS:
        _start_server(box, server)
    wait_until(lambda: _gluster(box, "peer", "status", may_fail=True), 30, "glusterd")
    for server in SERVERS[1:]:
        wait_until(lambda peer=server: _gluster(box, "peer", "probe", peer, may_fail=True), 30, f"peer {server}")
    # The second and the third server learn of each other later than the first one of them.
    for server in SERVERS:
        wait_until(lambda name=server: _connected_peers(box, name) == len(SERVERS) - 1, 60, f"peers of {server}")
    bricks = [f"{server}:{brick_directory(box, server)}/data" for server in SERVERS]
    _gluster(box, "volume", "create", VOLUME, *bricks, "force")
    _gluster(box, "volume", "start", VOLUME)
    for client in CLIENTS:
        mount(box, client)
    return mount_directory(box)


def mount_directory(box: Box) -> Path:
    return box.directory / "scratch"


def brick_directory(box: Box, server: str) -> Path:
    return box.directory / "machines" / server / "brick"


def mount(box: Box, client: str, *options: str, environment: Mapping[str, str] | None = None) -> None:
    """Mount the volume on a machine, by default without any option.

    Args:
        environment: of the client's program.
    """
    directory = mount_directory(box)
    directory.mkdir(exist_ok=True)
    words = ["-o", ",".join(options)] if options else []
    source = f"{SERVERS[0]}:/{VOLUME}"
    box.run(client, "mount", "-t", "glusterfs", *words, source, str(directory), environment=environment)


def unmount(box: Box, client: str) -> None:
    box.run(client, "umount", str(mount_directory(box)))


def _start_server(box: Box, server: str) -> None:
    """A file system of its own for each brick, as servers have, so that one can be slow or full alone."""
    machine = box.directory / "machines" / server
    image, brick = machine / "brick.img", brick_directory(box, server)
    brick.mkdir()
    box.run(server, "truncate", f"--size={_BRICK_BYTES}", str(image))
    box.run(server, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(image))
    box.run(server, "mount", "-o", "loop", str(image), str(brick))
    for directory, shared in (("state", "/var/lib/glusterd"), ("log", "/var/log/glusterfs")):
        box.run(server, "mount", "--bind", str(machine / directory), shared)
    box.run(server, "mkdir", "-p", "/run/gluster")
    box.start_daemon(server, "glusterd", "--no-daemon")


def _connected_peers(box: Box, server: str) -> int:
    answer = box.run(server, "gluster", "--mode=script", "peer", "status", may_fail=True)
    return answer.stdout.count("Peer in Cluster (Connected)")


def _gluster(box: Box, *words: str, may_fail: bool = False) -> bool:
    """Run a command of the administrator; return whether it succeeded."""
    done = box.run(SERVERS[0], "gluster", "--mode=script", *words, may_fail=may_fail)
    return done.returncode == 0


def set_option(box: Box, option: str, value: str) -> None:
    _gluster(box, "volume", "set", VOLUME, option, value)


def reset_option(box: Box, option: str) -> None:
    """Give an option its default again."""
    _gluster(box, "volume", "reset", VOLUME, option)


def _brick_process(box: Box, server: str) -> list[str]:
    """Return the number of a server's brick process and its command; empty if there is none."""
    listed = box.run(server, "pgrep", "--list-full", "glusterfsd", may_fail=True).stdout.splitlines()
    return listed[0].split() if listed else []


def stop_brick(box: Box, server: str) -> None:
    """End the process that serves a server's brick; the brick's command is kept for `start_brick`."""
    number, *command = _brick_process(box, server)
    (box.directory / "machines" / server / "brick.command").write_text("\n".join(command))
    box.run(server, "kill", number)
    wait_until(lambda: not _brick_process(box, server), 20, f"end of the brick of {server}")


def start_brick(box: Box, server: str, environment: Mapping[str, str]) -> None:
    """Start the process of a stopped brick again, with more variables."""
    command = (box.directory / "machines" / server / "brick.command").read_text().splitlines()
    box.run(server, *command, environment=environment)
    wait_until(lambda: _brick_process(box, server), 20, f"brick of {server}")


def start_bricks(box: Box) -> None:
    """Let the servers start the bricks that are not running."""
    _gluster(box, "volume", "start", VOLUME, "force")
