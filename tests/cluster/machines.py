"""A cluster in a box: machines are namespaces of this one, each with host name, address, processes and mounts.

    host ── switch (a bridge) ── login, n1 … n4 (nodes), s1 … s3 (file servers); 10.77.0.x, in these namespaces only

Everything ends with the first process of a machine, so that a machine that is stopped is a machine that lost its power;
and that process ends with the program that booted the machine, however that ends.
What the cluster writes is in one directory, which all machines see under the same path.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

LOGIN = "login"
NODES = ("n1", "n2", "n3", "n4")
SERVERS = ("s1", "s2", "s3")
MACHINES = (LOGIN, *NODES, *SERVERS)
_NETWORK = "10.77.0"

# The first process of a machine, which also waits for processes whose parent has ended.
_INIT = "trap : TERM; sleep infinity & wait"

# /tmp and /dev/shm of its own: names of Open MPI's files, made of process numbers, are the same on several machines.
_PREPARE = """
set -e
ip link set lo up
hostname "$MACHINE"
mount --bind "$BOX/hosts" /etc/hosts
mkdir -p "$BOX/machines/$MACHINE/log" "$BOX/machines/$MACHINE/state"
for path in $KEPT; do
  mkdir -p "$BOX/kept/$path"
  mount --bind "/$path" "$BOX/kept/$path"
done
for directory in /tmp /dev/shm /run; do mount -t tmpfs -o size=1g,mode=1777 tmpfs "$directory"; done
for path in $KEPT; do
  mkdir -p "/$path"
  mount --bind "$BOX/kept/$path" "/$path"
done
mount -t proc proc /proc
"""


def address(machine: str) -> str:
    return f"{_NETWORK}.{10 + MACHINES.index(machine)}"


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition of other processes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)


@dataclass
class Machine:
    """A running machine.

    Attributes:
        holder: the process outside that started it; `init`: its first process, by the number outside.
    """

    name: str
    holder: subprocess.Popen[bytes]
    init: int

    def enter(self) -> list[str]:
        """Return the words before a command that runs on this machine."""
        return ["nsenter", "--target", str(self.init), "--net", "--uts", "--mount", "--pid", "--"]

    def stop(self) -> None:
        """Take its power away."""
        self.holder.kill()
        self.holder.wait()


@dataclass
class Box:
    """The machines and their directory.

    Attributes:
        directory: of everything that the cluster writes; not below /tmp, which each machine has for itself.
        kept: directories below /tmp that all machines see, such as a checkout.
    """

    directory: Path
    kept: Sequence[Path] = ()
    environment: dict[str, str] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _switch: Machine | None = None

    def start(self, names: Sequence[str] = MACHINES) -> None:
        hosts = ["127.0.0.1 localhost", *(f"{address(name)} {name}" for name in MACHINES)]
        (self.directory / "hosts").write_text("\n".join(hosts) + "\n")
        self._switch = self._boot("switch")
        self._run_outside("ip", "link", "add", "bridge", "type", "bridge", inside=self._switch)
        self._run_outside("ip", "link", "set", "bridge", "up", inside=self._switch)
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Boot a machine and connect it to the switch."""
        assert self._switch is not None
        machine = self._boot(name)
        port = f"port-{name}"
        self._run_outside("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", inside=self._switch)
        self._run_outside("ip", "link", "set", port, "master", "bridge", "up", inside=self._switch)
        self._run_outside("ip", "link", "set", "eth0", "netns", str(machine.init), inside=self._switch)
        self._run_outside("ip", "address", "add", f"{address(name)}/24", "dev", "eth0", inside=machine)
        self._run_outside("ip", "link", "set", "eth0", "up", inside=machine)
        self.machines[name] = machine

    def _boot(self, name: str) -> Machine:
        namespaces = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        kept = " ".join(str(path.resolve()).lstrip("/") for path in self.kept)
        environment = {**os.environ, "MACHINE": name, "BOX": str(self.directory), "KEPT": kept}
        message = self.directory / f"{name}.boot"
        with message.open("wb") as errors:
            holder = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "unshare",
                    *namespaces,
                    "bash",
                    "-c",
                    _PREPARE + 'echo > "$BOX/machines/$MACHINE/up"\n' + _INIT,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        up = self.directory / "machines" / name / "up"
        wait_until(lambda: up.exists() or holder.poll() is not None, 20, f"boot of {name}")
        assert holder.poll() is None, message.read_text()
        up.unlink()
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        return Machine(name, holder, int(children[0]))

    def _run_outside(self, *words: str, inside: Machine) -> None:
        """Run a program of this machine in the network of another one."""
        done = subprocess.run(
            ["nsenter", "--target", str(inside.init), "--net", "--", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"

    def run_on_switch(self, *words: str) -> None:
        """Run a program in the network that connects the machines; the end of a machine's cable is `port-<machine>`."""
        assert self._switch is not None
        self._run_outside(*words, inside=self._switch)

    def command(self, machine: str, *words: str) -> list[str]:
        """Return a command that runs `words` on a machine."""
        return [*self.machines[machine].enter(), *words]

    def run(
        self,
        machine: str,
        *words: str,
        seconds: float = 60,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        may_fail: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine to its end.

        Args:
            seconds: time limit.
            environment: added to that of the cluster.
            directory: to run in; the cluster's by default.
        """
        words = ("env", f"--chdir={directory or self.directory}", *words)
        done = subprocess.run(
            self.command(machine, *words),
            env={**os.environ, **self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"{machine}: {words}: {done.stdout}{done.stderr}"
        return done

    def start_daemon(self, machine: str, *words: str) -> None:
        """Start a program that stays; its output goes to the machine's log."""
        log = self.directory / "machines" / machine / "log" / f"{Path(words[0]).name}.out"
        with log.open("ab") as output:
            daemon = subprocess.Popen(
                self.command(machine, *words),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.daemons.append(daemon)

    def stop(self) -> None:
        for machine in self.machines.values():
            machine.stop()
        # They ended with their machines.
        for daemon in self.daemons:
            daemon.wait(timeout=20)
        self.machines.clear()
        if self._switch is not None:
            self._switch.stop()
            self._switch = None


@contextmanager
def booted(directory: Path, kept: Sequence[Path] = (), names: Sequence[str] = MACHINES) -> Iterator[Box]:
    """Boot machines, and end them and all their processes whatever happens."""
    box = Box(directory, kept)
    try:
        box.start(names)
        yield box
    finally:
        box.stop()
