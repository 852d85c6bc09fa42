"""Real searches of `iowatch bisect` among eight differing parts, of which one or two cost 15 % of the writes, or none.

    python bench/bisection_planted.py --directory /dev/shm/planted [--minutes 600] [--kind one|pair|none]

Needs a C compiler, the system's Open MPI, and a directory without blanks in memory (tmpfs); a command `module` of its
own loads the modules. Both stacks are modules on that MPI: six modules, a setting and an MPI-IO hint differ. A library
that both preload makes each call of one function (write, MPI_File_write_at_all, H5Dwrite, nc_put_vara,
ncmpi_put_vara_all, close) take at least 40 ms per 8 MiB, as with a disk, so that the load of a shared machine is not
all of the result; and 0.176 longer if the parts that the trial plants are those of BAD. The record of each trial
is in `trials.jsonl`: the same command goes on where it was interrupted, and prints a summary at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MODULES = ("write", "mpiio", "hdf5", "netcdf", "pnetcdf", "close")
SETTING, HINT = "PLANTED_PART_setting", "cb_buffer_size"
# What a planted part makes longer, and the API of the case that shows it.
SLOWED = {
    "write": ("pwrite", "posix"),
    "mpiio": ("MPI_File_write_at_all", "mpiio"),
    "hdf5": ("H5Dwrite", "hdf5"),
    "netcdf": ("nc_put_vara", "netcdf4"),
    "pnetcdf": ("ncmpi_put_vara_all", "pnetcdf"),
    "close": ("close", "posix"),
    SETTING: ("pwrite", "posix"),
    HINT: ("MPI_File_write_at_all", "mpiio"),
}
# Trials of each kind in the issue, and parts that are planted together; the order mixes the kinds.
KINDS = {"one": (40, 1), "pair": (20, 2), "none": (40, 0)}
ORDER = ("one", "pair", "one", "none", "none")

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

#define DEVICE_S 0.04
#define WRITTEN_BYTES (8 << 20)
static int depth;  /* one write calls another */
static double first_write;

static int is_of_bad(const char *part) {
  char variable[300], line[300];
  if (strcmp(part, "cb_buffer_size") == 0) {
    FILE *hints = fopen(getenv("ROMIO_HINTS") ? getenv("ROMIO_HINTS") : "", "r");
    int found = 0;
    while (hints && fgets(line, sizeof line, hints)) found |= strncmp(line, "cb_buffer_size 8388608", 22) == 0;
    if (hints) fclose(hints);
    return found;
  }
  snprintf(variable, sizeof variable, "PLANTED_PART_%s", part);
  const char *value = getenv(variable);
  return value && strcmp(value, "2") == 0;
}

/* PLANTED_NEEDS: names of parts, each of which must be that of BAD. */
static int planted(void) {
  static int known = -1;
  if (known < 0) {
    const char *needs = getenv("PLANTED_NEEDS");
    char words[256], *word, *rest = words;
    known = needs && *needs;
    snprintf(words, sizeof words, "%s", needs ? needs : "");
    while (known && (word = strsep(&rest, ","))) known = is_of_bad(word);
  }
  return known;
}

/* share: of the bytes that a rank writes, where a call moves a part of them only */
static void lengthen(const char *function, double start, double share) {
  const char *chosen = getenv("PLANTED_FUNCTION");
  if (depth || !chosen || strcmp(chosen, function) != 0) return;
  double lasted = now() - start < share * DEVICE_S ? share * DEVICE_S : now() - start;
  double left = start + lasted * (planted() ? 1.176 : 1) - now();
  if (left > 0) usleep(left * 1e6);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define MEASURED(type, name, share, call) \
  double start = now(); depth++; type r = call; depth--; lengthen(#name, start, share); return r

ssize_t pwrite(int fd, const void *b, size_t n, off_t at) {
  REAL(pwrite);
  if (first_write == 0) first_write = now();
  MEASURED(ssize_t, pwrite, (double)n / WRITTEN_BYTES, real(fd, b, n, at));
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t at) { return pwrite(fd, b, n, at); }
int close(int fd) {
  REAL(close);
  double start = first_write;
  first_write = 0;
  if (start > 0) lengthen("close", start, 1);
  return real(fd);
}

int MPI_File_write_at_all(void *f, long long at, const void *b, int n, void *t, void *s);
int MPI_File_write_at_all(void *f, long long at, const void *b, int n, void *t, void *s) {
  REAL(MPI_File_write_at_all); MEASURED(int, MPI_File_write_at_all, 1, real(f, at, b, n, t, s));
}
int H5Dwrite(long d, long t, long m, long f, long p, const void *b);
int H5Dwrite(long d, long t, long m, long f, long p, const void *b) {
  REAL(H5Dwrite); MEASURED(int, H5Dwrite, 1, real(d, t, m, f, p, b));
}
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b);
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b) {
  REAL(nc_put_vara); MEASURED(int, nc_put_vara, 1, real(f, v, s, c, b));
}
int ncmpi_put_vara_all(int f, int v, const long long *s, const long long *c, const void *b, long long n, void *t);
int ncmpi_put_vara_all(int f, int v, const long long *s, const long long *c, const void *b, long long n, void *t) {
  REAL(ncmpi_put_vara_all); MEASURED(int, ncmpi_put_vara_all, 1, real(f, v, s, c, b, n, t));
}
"""

SUITE = """format: 1
summary: writes of 8 MiB per rank on 2 ranks
reference: none
time_limit: 120
defaults: {op: write, local: 128x128x64, ranks: 2, repeat: 9}
matrix:
  - {api: posix, file: per-process}
  - {api: [mpiio, hdf5, netcdf4, pnetcdf], file: shared}
"""


def write_site(place: Path) -> dict[str, str]:
    """A site with both stacks; returns the environment in which iowatch uses it."""
    environment = {
        **os.environ, "IOWATCH_SITE": str(place), "IOWATCH_VAR": str(place / "var"), "MODULESHOME": str(place)
    }  # fmt: skip
    if (place / "site.yaml").exists():
        return environment
    subprocess.run(["iowatch", "init", place], check=True, stdout=subprocess.DEVNULL)
    (place / "planted.c").write_text(SOURCE)
    library = place / "planted.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, place / "planted.c", "-ldl"], check=True)
    (place / "init").mkdir()
    (place / "init" / "sh").write_text(f'module() {{ . "{place}/modulefiles/$2"; }}\n')
    modules = place / "modulefiles"
    for name in MODULES:
        (modules / name).mkdir(parents=True)
        for version in (1, 2):
            (modules / name / f"{version}.0").write_text(f"export PLANTED_PART_{name}={version}\n")
    (modules / "planted").mkdir()
    for side, version in (("good", 1), ("bad", 2)):
        folder = place / "stacks" / side
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hints").write_text(f"cb_buffer_size {version * 2**22}\n")
        listed = ", ".join(["planted/1.0", *(f"{name}/{version}.0" for name in MODULES)])
        settings = f"PLANTED_PART_setting: '{version}', ROMIO_HINTS: {folder / 'hints'}"
        (folder / "modules.yaml").write_text(f"modules: [{listed}]\nsettings: {{{settings}}}\n")
    (place / "suites" / "benchio").mkdir(parents=True, exist_ok=True)
    (place / "suites" / "benchio" / "planted.yaml").write_text(SUITE)
    return environment


def plant(place: Path, parts: list[str]) -> None:
    """Make the writes slower where all these parts are those of BAD; none for no difference."""
    needs = ",".join(part.removeprefix("PLANTED_PART_") for part in parts)
    function = SLOWED[parts[0]][0] if parts else "pwrite"
    text = f"export LD_PRELOAD={place / 'planted.so'} PLANTED_NEEDS={needs} PLANTED_FUNCTION={function}\n"
    (place / "modulefiles" / "planted" / "1.0").write_text(text)


def case_of(environment: dict[str, str], api: str) -> str:
    """Name of the case with this API."""
    words = ["iowatch", "run", "--suite", "planted", "--stack", "good", "--dry-run", "--json"]
    listed = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
    return str(next(one["run"] for one in json.loads(listed)["runs"] if f"api={api}," in one["run"]))


def run_trial(
    place: Path, environment: dict[str, str], kind: str, number: int, budget: float, seed: int
) -> dict[str, Any]:
    """One search in a history of its own, which goes on from what an interrupted one left there."""
    chosen = [str(one) for one in np.random.default_rng([seed, number]).permutation(list(SLOWED))[: KINDS[kind][1]]]
    api = SLOWED[chosen[0]][1] if chosen else "posix"
    plant(place, chosen)
    name = f"{kind}-{number}"
    started = time.monotonic()
    with (place / f"{name}.log").open("a") as log:
        done = subprocess.run(
            ["iowatch", "bisect", "good", "bad", "--suite", "planted", "--case", case_of(environment, api), "--budget",
             f"{budget}", "--json", "--db", place / f"{name}.db", "--markdown", place / f"{name}.md"],
            env=environment, check=False, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    if not done.stdout:
        sys.exit(f"{name}: exit code {done.returncode}, see {name}.log; the same command repeats this search")
    found = json.loads(done.stdout)
    tests = [test for test in found["tests"] if test["pairs"]]
    named = [sorted(found["parts"][part]["name"] for part in one["parts"]) for one in found.get("culprits", [])]
    return {
        "kind": kind, "number": number, "api": api, "planted": chosen, "answer": found["answer"], "named": named,
        "right": found["answer"] == ("found" if chosen else "no difference")
        and named == ([sorted(chosen)] if chosen else []),
        "blamed": sorted({part for each in named for part in each} - {*chosen}),
        "hybrids": len({stack for test in tests for stack in test["stacks"]} - {"good", "bad"}),
        "pairs": sum(test["pairs"] for test in tests),
        "seconds_per_pair": found.get("seconds_per_pair"),
        "minutes": round((time.monotonic() - started) / 60, 2),
        "load": os.getloadavg()[1],
    }  # fmt: skip


def print_summary(trials: list[dict[str, Any]]) -> None:
    """One line per kind."""
    for kind, (wanted, _) in KINDS.items():
        own = [trial for trial in trials if trial["kind"] == kind]
        if not own:
            continue
        middle = {name: np.median([trial[name] for trial in own]) for name in ("hybrids", "pairs", "minutes")}
        print(
            f"{kind}: {sum(trial['right'] for trial in own)} of {len(own)} right (of {wanted} planned), a part blamed "
            f"wrongly in {sum(bool(trial['blamed']) for trial in own)}; median {middle['hybrids']:.0f} hybrids, "
            f"{middle['pairs']:.0f} pairs, {middle['minutes']:.1f} minutes (longest "
            f"{max(trial['minutes'] for trial in own):.1f})"
        )


def main() -> None:
    """Run the trials that are not in the directory yet, until the time is used up, and print all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=600.0, help="start no further trial after this time")
    parser.add_argument("--kind", choices=tuple(KINDS), action="append", help="only this kind")
    parser.add_argument("--budget", type=float, default=20.0, help="minutes per search")
    parser.add_argument("--seed", type=int, default=1, help="of the parts that are planted")
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    place, record, end = given.directory.absolute(), given.directory / "trials.jsonl", time.monotonic()
    end += 60 * given.minutes
    environment = write_site(place)
    trials = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known, started = {(trial["kind"], trial["number"]) for trial in trials}, dict.fromkeys(KINDS, 0)
    for kind in ORDER * 20:
        started[kind] += 1
        if (kind, started[kind]) in known or kind not in (given.kind or KINDS) or time.monotonic() > end:
            continue
        trials.append(run_trial(place, environment, kind, started[kind], given.budget, given.seed))
        print(json.dumps(trials[-1]), flush=True)
        with record.open("a") as stream:
            stream.write(json.dumps(trials[-1]) + "\n")
    print_summary(trials)


if __name__ == "__main__":
    main()
