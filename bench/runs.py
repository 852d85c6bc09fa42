"""Runs as of a real nightly session: names, facts, kept files. `bench/scale.py` fills its history with them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.dashboard import cases

from iowatch.store import Artefact

DAY_S = 86400
START = 1_451_606_400 + 2 * 3600
SERIES = 200
CASES = cases(SERIES)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def session_of(system: str, night: int) -> str:
    return str(uuid.UUID(digest(system, night)[:32]))


def facts_of_ior(system: str, session: str, night: int, run: int) -> dict[str, Any]:
    nodes, scratch = ran_on(system, session, night, run)
    return {
        "began": f"Sat Nov 21 02:{run % 60:02d}:{night % 60:02d} 2026",
        "machine": f"Linux {nodes[0]}",
        "path": f"{scratch}/ior",
        "api_version": "(3.1)",
        "darshan": {"status": "ok", "reason": None, "logs": ["start-0.darshan"], "repetitions": {}},
        "command": f"ior -a MPIIO -t 1048576 -b 1048576 -s 16 -c -e -C -o {scratch}/ior -w -r -i 10",
        "reframe_test": f"IorCheck_{run:02d}",
        "exit_code": 0.0,
        "nodes": nodes,
    }


def facts_of_benchio(system: str, session: str, night: int, run: int) -> dict[str, Any]:
    """1.3 KB, as Open MPI's; MPICH describes itself in 2 KB more."""
    nodes, scratch = ran_on(system, session, night, run)
    minute, number = f"2026-11-21T02:{run % 60:02d}", night * 100 + run
    about = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022"
    options = "--op=both --local=256x256x128 --repeat=10 --sync --cache=drop --api=mpiio --file=shared"
    return {
        "started": f"{minute}:01.{number:06d}Z",
        "finished": f"{minute}:22.{number:06d}Z",
        "mpi": {"implementation": "Open MPI", "version": "4.1.4", "standard": "3.1", "description": about},
        "libraries": {"hdf5": "1.10.8", "netcdf4": "4.9.0", "pnetcdf": "1.12.3", "api_library": None},
        "kernel": "5.14.0-427.42.1.el9_4.x86_64",
        "options_hash": digest("options", run),
        "filesystem": {
            "directory": f"{scratch}/benchio-{START + night * DAY_S}-{number % 32768}",
            "type": "lustre", "mount": "/lustre", "source": "10.0.0.1@o2ib:/scratch",
            "free_bytes": 10**15 - number * 2**20, "directory_stripe_count": 4, "directory_stripe_bytes": 2**20,
        },
        "cache": {"asked": "drop", "achieved": "drop"},
        "hints": {"source": "file handle", "effective": {}},
        "hosts": nodes,
        "below_resolution": ["read sync_time"],
        "darshan": {"status": "no trace", "reason": "the stack has no darshan-runtime"},
        "command": f"/home/iowatch/var/build/benchio/gnu/benchio {options} --dir={scratch} --json=benchio.json",
        "reframe_test": f"BenchioCheck_{run:02d}",
        "exit_code": 0.0,
        "nodes": nodes,
    }  # fmt: skip


def ran_on(system: str, session: str, night: int, run: int) -> tuple[list[str], str]:
    """Nodes, which differ from session to session, and the directory of a case."""
    nodes = [f"{system}-{(night * 7 + run + n) % 500:04d}" for n in range(4)]
    return nodes, f"/lustre/iowatch-{session}/{digest(run)[:12]}"


@dataclass(frozen=True)
class Tool:
    """Form of a benchmark's runs: results of a run, facts, names of the files that are kept.

    `decimals` are those of a bandwidth, None for all digits of a float64. IOR prints two, and none above 1,000.
    """

    name: str
    version: str
    results: int
    decimals: int | None
    facts: Callable[[str, str, int, int], dict[str, Any]]
    files: tuple[tuple[str, str], ...]

    def run_name(self, run: int) -> str:
        p = CASES[self.results * run].parameters
        axes = f"transfer={p['transfer_bytes']},nodes={p['nodes']},stripes={p['stripe_count']}"
        return f"{self.name}:op=both,api={p['api']},{axes}"

    def kept_files(self, system: str, night: int, run: int) -> tuple[Artefact, ...]:
        return tuple(Artefact(kind, name, digest(system, night, run, kind), 20_000) for kind, name in self.files)


_JOB = (("script", "rfm_job.sh"), ("stderr", "rfm_job.err"), ("stdout", "rfm_job.out"))
_TRACE = ("darshan", "start-0.darshan")
IOR = Tool("ior", "4.0.0", 2, 2, facts_of_ior, (*_JOB[1:], _TRACE))
BENCHIO = Tool("benchio", "1.0.0", 11, None, facts_of_benchio, (*_JOB, _TRACE, ("record", "start-0.benchio.json")))
