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

    def run_on_two_nodes(
        self, api: str, *options: str, private: str = "", lie: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Two ranks on each of two nodes; `lie` is one of lies.c."""
        size = [] if "--global" in options else ["--local", "8x8x8"]
        words = ["--api", api, "--dir", str(self.scratch), *size, *options]
        if launch.HYDRA:
            nodes = ["-launcher", "ssh", "-launcher-exec", str(self.ssh), "-hosts", "n1:2,n2:2"]
        else:
            nodes = ["--host", "n1:2,n2:2"]
        environment = {
            "PRIVATE": private,
            "BENCHIO_LIE": lie,
            "LD_PRELOAD": ":".join(filter(None, (os.environ["BENCHIO_LIES"], os.environ.get("LD_PRELOAD")))),
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

    def record_of_two_nodes(self, api: str, *options: str, lie: str = "") -> dict:
        record = self.home / "record.json"
        done = self.run_on_two_nodes(api, "--json", str(record), *options, lie=lie)
        self.assertEqual(done.returncode, 0, done.stderr)
        return launch.record(record)

    def test_record_has_bytes_and_times_of_each_node(self) -> None:
        """Of 9 planes of 9 x 9 doubles the ranks of the first node write 5 and those of the second one 4."""
        record = self.record_of_two_nodes("posix", "--op", "both", "--repeat", "2", "--global", "9x9x9")
        self.assertEqual([host["name"] for host in record["hosts"]], ["n1", "n2"])
        for operation in record["operations"]:
            self.assertEqual(len(operation["node_bytes"]), 2)
            self.assertEqual(sum(operation["node_bytes"]), operation["bytes"])
            for repetition in operation["repetitions"]:
                nodes = repetition["nodes"]
                self.assertEqual([len(nodes["seconds"]), len(nodes["own_seconds"])], [2, 2])
                for node, seconds in enumerate(nodes["seconds"]):
                    self.assertLessEqual(seconds, repetition["seconds"] * 1.00001)
                    self.assertGreater(nodes["own_seconds"][node], 0)
                    self.assertLessEqual(nodes["own_seconds"][node], seconds * 1.00001)
        write, read = record["operations"]
        self.assertEqual(write["node_bytes"], [5 * 648, 4 * 648])
        # A node reads what the other one wrote.
        self.assertEqual(read["node_bytes"], write["node_bytes"][::-1])

    def test_slow_node_has_the_longest_times_of_its_own(self) -> None:
        record = self.record_of_two_nodes("posix", "--sync=end", "--repeat", "3", lie="slow")
        names = [host["name"] for host in record["hosts"]]
        slow, fast = names.index("n2"), names.index("n1")
        for repetition in record["operations"][0]["repetitions"]:
            own_seconds = repetition["nodes"]["own_seconds"]
            self.assertGreater(own_seconds[slow], 0.1)
            self.assertLess(own_seconds[fast], 0.1)

    def test_where_calls_wait_for_other_ranks_no_node_has_a_time_of_its_own(self) -> None:
        """The flush is collective: the fast node waits in it for the slow one. A transfer is what was asked for."""
        options = ("--sync=end", "--repeat", "1")
        for access in ("collective", "independent"):
            with self.subTest(access=access):
                record = self.record_of_two_nodes("mpiio", *options, "--access", access, lie="slow")
                nodes = record["operations"][0]["repetitions"][0]["nodes"]
                self.assertGreater(min(nodes["seconds"]), 0.1)
                if access == "collective":
                    self.assertIsNone(nodes["own_seconds"])
                else:
                    self.assertLess(max(nodes["own_seconds"]), 0.1)

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
