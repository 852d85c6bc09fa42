"""sshd on the nodes of a box, with keys and settings of the box only."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.machines import LOGIN, NODES, Box, wait_until

_SERVER = """
Port 22
HostKey {base}/host
AuthorizedKeysFile {base}/user.pub
PidFile none
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
"""
_CLIENT = """
IdentityFile {base}/user
IdentitiesOnly yes
UserKnownHostsFile {base}/known
StrictHostKeyChecking accept-new
BatchMode yes
LogLevel ERROR
"""


def find_sshd() -> str | None:
    """The path of sshd, which starts itself again by it."""
    return shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


def start_ssh(box: Box) -> Path:
    """Start sshd on all nodes; return a program for `ssh` with the settings of the box."""
    base = box.directory / "ssh"
    base.mkdir()
    for key in ("host", "user"):
        box.run(LOGIN, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / key))
    (base / "sshd_config").write_text(_SERVER.format(base=base))
    (base / "ssh_config").write_text(_CLIENT.format(base=base))
    client = base / "ssh"
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {base}/ssh_config "$@"\n')
    client.chmod(0o755)
    accounts = _accounts(base)
    for node in NODES:
        # Its directory, and the account of the part that has no privileges.
        box.run(node, "mkdir", "-p", "/run/sshd")
        box.run(node, "mount", "--bind", str(accounts), "/etc/passwd")
        box.start_daemon(node, str(find_sshd()), "-D", "-e", "-f", str(base / "sshd_config"))
    for node in NODES:
        wait_until(lambda host=node: _answers(box, client, host), 20, f"sshd of {node}")
    return client


def _accounts(base: Path) -> Path:
    """The accounts of this machine and `sshd`."""
    text = Path("/etc/passwd").read_text()
    if "\nsshd:" not in text:
        text += "sshd:x:998:65534::/run/sshd:/usr/sbin/nologin\n"
    accounts = base / "passwd"
    accounts.write_text(text)
    return accounts


def _answers(box: Box, client: Path, node: str) -> bool:
    return box.run(LOGIN, str(client), node, "true", may_fail=True).returncode == 0
