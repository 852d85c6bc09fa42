"""Runs on several nodes: here two host names on this machine, each with its own mounts, and an `ssh` that enters them.

MPI takes ranks with different host names for ranks of different nodes.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import launch

# `ssh [-x] HOST COMMAND`; PRIVATE is a directory that each node has for itself.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
export NODE=$1; shift
exec unshare --uts --mount sh -c '
  hostname "$NODE"
  if [ -n "$PRIVATE" ]; then mount -t tmpfs node-$NODE "$PRIVATE"; fi
  eval "$0"' "$*"
"""


def can_make_nodes() -> bool:
    made = subprocess.run(["unshare", "--uts", "--mount", "hostname", "n1"], capture_output=True, check=False)
    return made.returncode == 0


@unittest.skipUnless(can_make_nodes(), "needs root: nodes are namespaces of this machine")
class Nodes(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.scratch = self.home / "scratch"
        self.scratch.mkdir()
        self.ssh = self.home / "ssh"
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)

    def run_on_two_nodes(self, api: str, *options: str, private: str = "") -> subprocess.CompletedProcess[str]:
        """Two ranks on each of two nodes."""
        words = ["--api", api, "--dir", str(self.scratch), "--local", "8x8x8", *options]
        if launch.HYDRA:
            nodes = ["-launcher", "ssh", "-launcher-exec", str(self.ssh), "-hosts", "n1:2,n2:2"]
        else:
            nodes = ["--host", "n1:2,n2:2"]
        environment = {
            "PRIVATE": private,
            # Names of Open MPI 4 and 5. Both nodes are this machine, so that they talk over its loopback device.
            "OMPI_MCA_plm_rsh_agent": str(self.ssh),
            "PRTE_MCA_plm_ssh_agent": str(self.ssh),
            "OMPI_MCA_btl": "self,tcp",
            "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_oob_tcp_if_include": "lo",
        }
        command = ["env", *(f"{name}={value}" for name, value in environment.items())]
        return launch.ended([*command, launch.MPIEXEC, *nodes, "-n", "4", launch.BENCHIO, *words])

    def test_every_interface_writes_and_reads_on_two_nodes(self) -> None:
        """The ranks of the other node read what a node wrote."""
        for api in launch.apis():
            with self.subTest(api=api):
                done = self.run_on_two_nodes(api, "--op", "both", "--repeat", "3", "--verify")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("4 ranks on 2 nodes", done.stdout)
                self.assertIn("all as written", done.stdout)
                self.assertEqual(list(self.scratch.iterdir()), [])

    def test_kept_files_have_the_names_that_are_found_again(self) -> None:
        written = self.run_on_two_nodes("posix", "--keep", "--name", "kept", "--repeat", "3")
        self.assertEqual(written.returncode, 0, written.stderr)
        names = [path.name for path in (self.scratch / "kept").iterdir()]
        self.assertEqual(names, ["data.000000"])
        read = self.run_on_two_nodes("posix", "--op", "read", "--existing", "--name", "kept", "--verify")
        self.assertEqual(read.returncode, 0, read.stderr)

    def test_directory_that_nodes_do_not_share(self) -> None:
        begun = time.monotonic()
        done = self.run_on_two_nodes("posix", private=str(self.scratch))
        if not launch.HYDRA:
            self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"rank 2 on n2: checking that all nodes see the same files of .*scratch/benchio-")
        self.assertIn("n1 made it, and n2 does not see it within 10 s (No such file or directory)", done.stderr)
        self.assertRegex(done.stderr, r"On n2, \S+/scratch is tmpfs \(node-n2\), mounted with rw,")
        self.assertLess(time.monotonic() - begun, 40)


if __name__ == "__main__":
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    unittest.main()
