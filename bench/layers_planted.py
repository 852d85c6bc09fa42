"""Nine faults planted in real short sessions of the suite `layers`: which layer is named, from each session alone.

    python bench/layers_planted.py --directory /dev/shm/planted [--sessions 10] [--minutes 9]     # repeated, it goes on
    python bench/layers_planted.py --directory /dev/shm/planted --summary      # answers of the sessions so far
    python bench/layers_planted.py --directory /dev/shm/planted --clean        # also after a kill

Needs root, a C compiler, libfuse3-dev, Debian's Open MPI, fio, hpcc, IOR and mdtest. Twelve sessions without a fault
come first; each faulty one then runs against a copy of their history, dated to the days before. All is in the
directory: the site, the histories, and a disk of 200 MiB/s with ext4, a loop device on a file of FUSE in memory (the
limits of blkio let bursts pass that are longer than these repetitions). MPI messages go by TCP through a network
namespace with 8 Gbit/s. A preloaded library delays the calls of the faults in the ranks, and only there, and puts
them into the control group of the fault `cpu`. `netem` is used where the kernel has it, else `tbf`.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# In the place of bench/, where files have names of packages.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np  # noqa: E402
from tests.slow_storage import PacedDisk, SlowStorageError, mount_paced_disk, run_command, unmount_paced_disk  # noqa: E402

from iowatch.benchmarks.registry import BENCHMARKS  # noqa: E402
from iowatch.findings import assess_newest_layer  # noqa: E402
from iowatch.output.text.evidence import format_moved_layer  # noqa: E402
from iowatch.store import History  # noqa: E402

NAME = "iowatch-layers"
CGROUP = Path(f"/sys/fs/cgroup/cpu/{NAME}")
DAY_S = 86400
USUAL_RATE, SLOW_RATE = 200 << 20, 80 << 20
USUAL_NETWORK, SLOW_NETWORK = "8gbit", "1gbit"

ANSWERS = ("right", "wrong", "cannot tell")


@dataclass(frozen=True)
class Fault:
    """A planted fault: the layer that is right, and the value of PLANTED, or empty for what is planted outside."""

    layer: str
    planted: str = ""


FAULTS = {
    "cpu": Fault("CPU or memory"),
    "memory": Fault("CPU or memory"),
    "network": Fault("network"),
    "disk": Fault("disk"),
    "write": Fault("file system", "write"),
    "mpiio": Fault("MPI-IO", "mpiio"),
    "hdf5": Fault("HDF5", "hdf5"),
    "netcdf": Fault("NetCDF", "netcdf"),
    "close": Fault("metadata server", "close"),
}

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Only in MPI processes. PLANTED: what is slow; PLANTED_CGROUP: the control group that the process joins. */
static int planted(const char *what) {
  const char *found = getenv("PLANTED");
  return found && !strcmp(found, what) && getenv("OMPI_COMM_WORLD_SIZE");
}
static void wait_ms(double ms) {
  struct timespec t = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (long)(ms / 1e3)) * 1e6)};
  nanosleep(&t, NULL);
}
static int is_file(int fd) { struct stat s; return !fstat(fd, &s) && S_ISREG(s.st_mode); }
static int is_cached(int fd) { return is_file(fd) && !(fcntl(fd, F_GETFL) & O_DIRECT); }

__attribute__((constructor)) static void join(void) {
  const char *group = getenv("PLANTED_CGROUP");
  FILE *file = group && getenv("OMPI_COMM_WORLD_SIZE") ? fopen(group, "w") : NULL;
  if (file) { fprintf(file, "%d", getpid()); fclose(file); }
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define MIB (1.0 / (1 << 20))
static void slow_write(int fd, double bytes) {
  if (planted("write") && is_cached(fd)) wait_ms(20 * bytes * MIB);
}
static double length(const struct iovec *v, int n) { double sum = 0; while (n-- > 0) sum += v[n].iov_len; return sum; }

ssize_t write(int fd, const void *b, size_t n) { REAL(write); slow_write(fd, n); return real(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) {
  REAL(pwrite); slow_write(fd, n); return real(fd, b, n, at);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t at) {
  REAL(pwrite64); slow_write(fd, n); return real(fd, b, n, at);
}
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) {
  REAL(pwritev); slow_write(fd, length(v, n)); return real(fd, v, n, at);
}
ssize_t pwritev64(int fd, const struct iovec *v, int n, off_t at) {
  REAL(pwritev64); slow_write(fd, length(v, n)); return real(fd, v, n, at);
}
ssize_t writev(int fd, const struct iovec *v, int n) {
  REAL(writev); slow_write(fd, length(v, n)); return real(fd, v, n);
}
int close(int fd) { REAL(close); if (planted("close") && is_file(fd)) wait_ms(1.0); return real(fd); }

int MPI_Type_size(void *t, int *size);
static int depth; /* one write of MPI-IO calls another */
static void slow_mpi(int n, void *t) {
  int size = 0;
  if (planted("mpiio") && !depth && !MPI_Type_size(t, &size)) wait_ms(20 * size * n * MIB);
}
#define OF_MPI(name) \
  int name(void *f, long long at, const void *b, int n, void *t, void *s); \
  int name(void *f, long long at, const void *b, int n, void *t, void *s) { \
    REAL(name); slow_mpi(n, t); depth++; int r = real(f, at, b, n, t, s); depth--; return r; \
  }
OF_MPI(MPI_File_write_at)
OF_MPI(MPI_File_write_at_all)
#define OF_MPI_POINTER(name) \
  int name(void *f, const void *b, int n, void *t, void *s); \
  int name(void *f, const void *b, int n, void *t, void *s) { \
    REAL(name); slow_mpi(n, t); depth++; int r = real(f, b, n, t, s); depth--; return r; \
  }
OF_MPI_POINTER(MPI_File_write)
OF_MPI_POINTER(MPI_File_write_all)

int H5Dwrite(long d, long t, long m, long f, long p, const void *b);
int H5Dwrite(long d, long t, long m, long f, long p, const void *b) {
  REAL(H5Dwrite); if (planted("hdf5")) wait_ms(60); return real(d, t, m, f, p, b);
}
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b);
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b) {
  REAL(nc_put_vara); if (planted("netcdf")) wait_ms(60); return real(f, v, s, c, b);
}
"""

# Streams through 3 arrays of 64 MiB until it is ended.
PRESSURE = r"""
#include <stdlib.h>
#define N (8 << 20)
int main(void) {
  volatile double *a = malloc(N * 8), *b = malloc(N * 8), *c = malloc(N * 8);
  for (long i = 0; i < N; i++) a[i] = b[i] = c[i] = i;
  for (double s = 1;; s += 1) for (long i = 0; i < N; i++) a[i] = b[i] + s * c[i];
}
"""


def clean(place: Path) -> None:
    """Remove what a run leaves on the machine; safe to repeat."""
    for hog in place.glob("pressure-*.pid"):
        run_command("kill", hog.read_text(), check=False)
        hog.unlink()
    unmount_paced_disk(place)
    run_command("ip", "netns", "del", NAME, check=False)
    if CGROUP.is_dir():
        CGROUP.rmdir()


def prepare(place: Path) -> dict[str, str]:
    """Disk, network and control groups, and the site at the first time; the environment of the sessions."""
    clean(place)
    if not (place / "site").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "planted.c").write_text(SOURCE)
        (place / "pressure.c").write_text(PRESSURE)
        run_command("cc", "-O2", "-shared", "-fPIC", "-o", place / "planted.so", place / "planted.c", "-ldl")
        run_command("cc", "-O2", "-o", place / "pressure", place / "pressure.c")
        run_command("iowatch", "init", place / "site")
    disk = mount_paced_disk(place)
    run_command("ip", "netns", "add", NAME)
    in_network("ip", "link", "set", "lo", "up")
    if CGROUP.parent.is_dir():
        CGROUP.mkdir(exist_ok=True)
    disk.set_rate(USUAL_RATE)
    limit_network(USUAL_NETWORK)
    return os.environ | {
        "LD_PRELOAD": str(place / "planted.so"),
        **{f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")},
        **{"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "tcp,self"},
        **{f"OMPI_MCA_{layer}_tcp_if_include": "lo" for layer in ("btl", "oob")},
    }


def in_network(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run_command("nsenter", f"--net=/var/run/netns/{NAME}", *command, check=check)


def limit_network(rate: str) -> None:
    limit = ("tbf", "rate", rate, "burst", "256k", "latency", "1s")
    in_network("tc", "qdisc", "replace", "dev", "lo", "root", *limit)


@contextmanager
def planted(place: Path, fault: str) -> Iterator[None]:
    """A fault outside of the processes, for one session."""
    with ExitStack() as undo:
        if fault == "cpu" and not CGROUP.is_dir():
            raise SlowStorageError(f"no {CGROUP.parent}: the limit of processors needs control groups of version 1")
        if fault == "cpu":
            quota = CGROUP / "cpu.cfs_quota_us"
            (CGROUP / "cpu.cfs_period_us").write_text("20000")
            quota.write_text("6000")  # 0.3 processors for all ranks
            undo.callback(quota.write_text, "-1")
        if fault == "memory":
            for number in range(4):
                # A session of its own, because the scheduler divides the processors among sessions first.
                hog = subprocess.Popen([place / "pressure"], start_new_session=True)
                note = place / f"pressure-{number}.pid"
                note.write_text(str(hog.pid))
                for end in (note.unlink, hog.wait, hog.kill):
                    undo.callback(end)
        if fault == "network":
            delay = ("netem", "delay", "1ms", "rate", USUAL_NETWORK)
            if in_network("tc", "qdisc", "replace", "dev", "lo", "root", *delay, check=False).returncode:
                limit_network(SLOW_NETWORK)
            undo.callback(limit_network, USUAL_NETWORK)
        if fault == "disk":
            disk = PacedDisk(place)
            disk.set_rate(SLOW_RATE)
            undo.callback(disk.set_rate, USUAL_RATE)
        yield


def planted_variables(fault: str) -> dict[str, str]:
    """What the preloaded library does."""
    known = FAULTS.get(fault)
    group = {"PLANTED_CGROUP": str(CGROUP / "cgroup.procs")} if fault == "cpu" else {}
    return {"PLANTED": known.planted if known else "", **group}


def run_session(place: Path, environment: dict[str, str], database: Path, fault: str) -> float:
    """One session; its seconds."""
    started = time.monotonic()
    with planted(place, fault), database.with_suffix(".log").open("w") as log:
        done = subprocess.run(
            ["nsenter", f"--net=/var/run/netns/{NAME}", "iowatch", "run", "--suite", "layers", "--stack",
             "system-openmpi", "--scratch", str(place / "mnt"), "--db", str(database)],
            cwd=place / "site", env=environment | planted_variables(fault), check=False,
            stdout=log, stderr=log,
        )  # fmt: skip
    if done.returncode > 1:
        sys.exit(f"iowatch run: exit code {done.returncode}, see {database.with_suffix('.log')}")
    return time.monotonic() - started


def copy_history(source: Path, target: Path) -> None:
    """With what its journal holds."""
    target.unlink(missing_ok=True)
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        old.backup(new)


def date_back(database: Path) -> None:
    """Date all sessions one day earlier, so that each is a day of its own."""
    with sqlite3.connect(database) as connection:
        for table, column in (("session", "started_at"), ("session", "ended_at"), ("run", "started_at"),
                              ("result", "time")):  # fmt: skip
            connection.execute(f"UPDATE {table} SET {column} = {column} - {DAY_S}")  # noqa: S608
        connection.execute("DELETE FROM detection")
        connection.execute("DELETE FROM finding")


def plan(sessions: int, baseline: int, seed: int) -> list[str]:
    """Names of the sessions in their order: `usual-3`, then rounds of all faults, each in random order: `disk-0`."""
    rng, faults = np.random.default_rng(seed), list(FAULTS)
    rounds = [[f"{fault}-{number}" for fault in rng.permutation(faults)] for number in range(sessions)]
    return [*(f"usual-{number}" for number in range(baseline)), *(name for one in rounds for name in one)]


def summarize(place: Path) -> None:
    """Answers of all faulty sessions so far."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in (place / "sessions.jsonl").read_text().splitlines():
        name, fault = json.loads(line)["name"], json.loads(line)["name"].rsplit("-", 1)[0]
        if fault not in FAULTS:
            continue
        with History.open(str(place / f"{name}.db")) as history:
            found = assess_newest_layer(history, "local")
        named = found.named if found else None
        answer = "right" if named == FAULTS[fault].layer else "wrong" if named else "cannot tell"
        counts[fault, answer] += 1
        print(f"{name:12} {answer:12} {format_moved_layer(found) if found else 'nothing moved'}")
    print_share_of_probes(place / "usual.db")
    for fault in [*FAULTS, "all"]:
        numbers = [sum(counts[one, answer] for one in FAULTS if fault in (one, "all")) for answer in ANSWERS]
        print(f"{fault:8}", ", ".join(f"{answer} {number}" for answer, number in zip(ANSWERS, numbers, strict=True)))


def print_share_of_probes(database: Path) -> None:
    """Time of fio and hpcc in the usual sessions, of the whole session."""
    with History.open(str(database)) as history:
        sessions = history.sessions("local")
        whole = [float((one.ended_at or one.started_at) - one.started_at) for one in sessions]
        probes = [
            sum(run.wall_s or 0.0 for run in history.runs(one.uuid) if BENCHMARKS[run.tool].probes) for one in sessions
        ]
    shares = [one / all_ for one, all_ in zip(probes, whole, strict=True)]
    print(f"{len(whole)} usual sessions: median {median(whole):.0f} s, probes {100 * median(shares):.0f} % of them")


def main() -> None:
    """Run sessions, or summarize or clean."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--sessions", type=int, default=10, help="of each fault")
    parser.add_argument("--baseline", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--minutes", type=float, default=9, help="start no session after this time")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--clean", action="store_true")
    given = parser.parse_args()
    place = given.directory.absolute()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if given.summary:
        summarize(place)
        return
    if given.clean:
        clean(place)
        return
    started, results = time.monotonic(), place / "sessions.jsonl"
    try:
        environment = prepare(place)
        done = {json.loads(line)["name"] for line in results.read_text().splitlines()} if results.exists() else set()
        for name in plan(given.sessions, given.baseline, given.seed):
            if name in done or time.monotonic() - started > 60 * given.minutes:
                continue
            usual, fault = place / "usual.db", name.rsplit("-", 1)[0]
            database = usual if fault == "usual" else place / f"{name}.db"
            if fault == "usual":
                if usual.exists():
                    date_back(usual)
            else:
                copy_history(usual, database)
                date_back(database)
            try:
                seconds = run_session(place, environment, database, fault)
            except SlowStorageError as error:
                print(f"{name}: not planted: {error}", flush=True)
                continue
            with results.open("a") as file:
                file.write(json.dumps({"name": name, "seconds": seconds}) + "\n")
            print(f"{name}: {seconds:.1f} s", flush=True)
    except SlowStorageError as error:
        sys.exit(f"cannot prepare the sessions: {error}")
    finally:
        clean(place)


if __name__ == "__main__":
    main()
