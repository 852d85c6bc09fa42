"""benchio on several nodes of a distributed file system: starts without failure, and its speed beside IOR's.

    PATH=$PATH:/where/ior/is python bench/cluster_benchio.py [--starts 100] [--pairs 20]

On a cluster in a box (tests/cluster; root, and what `make test-cluster` needs), two ranks on each of three nodes.
Starts are on mounts with the default options of GlusterFS, in turn with each interface, reading what another node
wrote. The comparison (benchmarks/benchio/bench/peers.py) is on mounts on which names and sizes are not remembered,
because IOR writes its file again under the same name.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import cycle
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.cluster import gluster  # noqa: E402
from tests.cluster.machines import LOGIN, NODES, Box  # noqa: E402
from tests.cluster.programs import ALLOCATION, ENVIRONMENT, build_benchio, on_three_nodes  # noqa: E402
from tests.cluster.site import running_cluster  # noqa: E402

_APIS = ("posix", "mpiio", "hdf5", "netcdf4", "pnetcdf")
_LIMIT_S = 60
# On mounts without memory all programs see the same.
_COHERENT = ("entry-timeout=0", "attribute-timeout=0")
_CACHES = ("performance.stat-prefetch", "performance.quick-read", "performance.open-behind")


def start_often(box: Box, program: Path, starts: int) -> None:
    """Count the starts that end as they should, by interface."""
    directory = str(gluster.mount_directory(box))
    options = ["--op", "both", "--local", "32x32x32", "--repeat", "4", "--verify", "--quiet", "--dir", directory]
    good: Counter[str] = Counter()
    for number, api in zip(range(starts), cycle(_APIS), strict=False):
        done = on_three_nodes(box, str(program), "--api", api, *options, seconds=_LIMIT_S)
        if done.returncode == 0 and "all as written" in done.stdout:
            good[api] += 1
        else:
            print(f"start {number}, {api}: exit code {done.returncode} (124: time limit)\n{done.stderr[-2000:]}")
    print(f"{good.total()} of {starts} starts on {len(NODES) - 1} nodes: {dict(good)}", flush=True)


def compare_with_ior(box: Box, program: Path, pairs: int) -> None:
    for option in _CACHES:
        gluster.set_option(box, option, "off")
    for node in (LOGIN, *NODES):
        gluster.unmount(box, node)
        gluster.mount(box, node, *_COHERENT)
    peers = [sys.executable, str(ROOT / "benchmarks" / "benchio" / "bench" / "peers.py"), "--benchio", str(program)]
    peers += ["--mpiexec", "mpirun", "--dir", str(gluster.mount_directory(box)), "--ranks", "6", "--peer", "ior"]
    peers += ["--api", "posix", "mpiio", "--pairs", str(pairs), "--best-of", "3", "--block", "4"]
    done = box.run(LOGIN, *ALLOCATION, *peers, seconds=3600, environment=ENVIRONMENT, may_fail=True)
    print(done.stdout, done.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=20)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="iowatch-box-", dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        with running_cluster(directory) as box:
            program = build_benchio(box)
            start_often(box, program, arguments.starts)
            if arguments.pairs and shutil.which("ior"):
                compare_with_ior(box, program, arguments.pairs)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: {error.stderr.decode(errors='replace')}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
