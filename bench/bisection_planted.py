"""Real searches of `iowatch bisect` among eight differing parts, of which one or two cost 15 % of the writes.

    python bench/bisection_planted.py --directory /dev/shm/planted [--trials 40] [--kind one|pair|none] [--first 0]

Needs a C compiler, the system's Open MPI, and a directory without blanks in memory (tmpfs); a command `module` of its
own loads the modules. Both stacks are modules on that MPI: six modules, a setting and an MPI-IO hint differ. A library
that both preload makes each write longer by 0.176 of its own duration if the parts that the trial plants are those of
BAD. Printed per trial: what was planted and named, hybrids besides the ends, pairs and minutes. The history stays in
the directory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

MODULES = ("write", "mpiio", "hdf5", "netcdf", "pnetcdf", "close")
PARTS = (*MODULES, "PLANTED_PART_setting", "cb_buffer_size")
APIS = ("posix", "mpiio", "hdf5", "netcdf4")
# The hint has no effect with Debian's OMPIO, so it is never planted.
PLANTABLE = PARTS[:-1]

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

static int depth;  /* one write calls another */

/* PLANTED_NEEDS: names of parts, each of which must be that of BAD (PLANTED_PART_<name>=2). */
static int planted(void) {
  static int known = -1;
  if (known >= 0) return known;
  const char *needs = getenv("PLANTED_NEEDS");
  char words[256], variable[300], *word, *rest = words;
  known = needs && *needs;
  snprintf(words, sizeof words, "%s", needs ? needs : "");
  while ((word = strsep(&rest, ","))) {
    snprintf(variable, sizeof variable, "PLANTED_PART_%s", word);
    const char *value = getenv(variable);
    if (!value || strcmp(value, "2")) known = 0;
  }
  return known;
}

static void lengthen(double start) {
  if (depth || !planted()) return;
  double until = now() + 0.176 * (now() - start);
  while (now() < until) usleep(20);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define MEASURED(type, call) double start = now(); depth++; type r = call; depth--; lengthen(start); return r

ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { REAL(pwrite); MEASURED(ssize_t, real(fd, b, n, at)); }
ssize_t pwrite64(int fd, const void *b, size_t n, off_t at) { REAL(pwrite64); MEASURED(ssize_t, real(fd, b, n, at)); }

int MPI_File_write_at_all(void *f, long long at, const void *b, int n, void *t, void *s);
int MPI_File_write_at_all(void *f, long long at, const void *b, int n, void *t, void *s) {
  REAL(MPI_File_write_at_all); MEASURED(int, real(f, at, b, n, t, s));
}
int H5Dwrite(long d, long t, long m, long f, long p, const void *b);
int H5Dwrite(long d, long t, long m, long f, long p, const void *b) {
  REAL(H5Dwrite); MEASURED(int, real(d, t, m, f, p, b));
}
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b);
int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b) {
  REAL(nc_put_vara); MEASURED(int, real(f, v, s, c, b));
}
"""

SUITE = """format: 1
summary: writes of 32 MiB per rank on 2 ranks
reference: none
time_limit: 120
defaults: {op: write, local: 256x128x128, ranks: 2, repeat: 9}
matrix:
  - {api: posix, file: per-process}
  - {api: [mpiio, hdf5, netcdf4], file: shared}
"""


def write_site(place: Path) -> dict[str, str]:
    """A site with both stacks; returns the environment in which iowatch uses it."""
    shutil.rmtree(place, ignore_errors=True)
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
    return {**os.environ, "IOWATCH_SITE": str(place), "IOWATCH_VAR": str(place / "var"), "MODULESHOME": str(place)}


def plant(place: Path, parts: list[str]) -> None:
    """Make the writes slower where all these parts are those of BAD; none for no difference."""
    needs = ",".join(part.removeprefix("PLANTED_PART_") for part in parts)
    text = f'export LD_PRELOAD={place / "planted.so"} PLANTED_NEEDS={needs}\n'
    (place / "modulefiles" / "planted" / "1.0").write_text(text)


def run_trial(place: Path, environment: dict[str, str], api: str, budget: float, number: int) -> dict[str, object]:
    """One search in a history of its own; the document of `iowatch bisect --json`, or its message."""
    cases = subprocess.run(
        ["iowatch", "run", "--suite", "planted", "--stack", "good", "--dry-run", "--json"],
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    names = {run["name"] for run in json.loads(cases)["runs"]}
    case = next(name for name in sorted(names) if f"api={api}" in name or name.endswith(api) or f"{api}," in name)
    log = (place / f"trial-{number}.log").open("w")
    done = subprocess.run(
        ["iowatch", "bisect", "good", "bad", "--suite", "planted", "--case", case, "--budget", f"{budget}", "--json",
         "--db", place / f"trial-{number}.db", "--markdown", place / f"trial-{number}.md"],
        env=environment, check=False, stdout=subprocess.PIPE, stderr=log, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout)) if done.stdout else {"answer": f"exit code {done.returncode}", "tests": []}


def main() -> None:
    """Run the trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=("one", "pair", "none"), default="one")
    parser.add_argument("--budget", type=float, default=20.0, help="minutes")
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = write_site(given.directory.absolute())
    right = 0
    for number in range(given.first, given.first + given.trials):
        count = {"one": 1, "pair": 2, "none": 0}[given.kind]
        chosen = [str(one) for one in np.random.default_rng(number).choice(PLANTABLE, count, replace=False)]
        api = APIS[number % len(APIS)]
        plant(given.directory.absolute(), chosen)
        started = time.monotonic()
        found = run_trial(given.directory.absolute(), environment, api, given.budget, number)
        minutes = (time.monotonic() - started) / 60
        tests = [test for test in found["tests"] if test["pairs"]]  # type: ignore[attr-defined]
        hybrids = {stack for test in tests for stack in test["stacks"]} - {"good", "bad"}
        named = [[part_name(found, part) for part in one["parts"]] for one in found.get("culprits", [])]  # type: ignore[attr-defined]
        correct = sorted(map(sorted, named)) == ([sorted(chosen)] if chosen else [])
        right += correct
        print(
            f"{number} {api}: planted {' and '.join(chosen) or 'nothing'}; {found['answer']} {named}; "
            f"{'right' if correct else 'WRONG'}; {len(hybrids)} hybrids, {sum(t['pairs'] for t in tests)} pairs, "
            f"{minutes:.1f} min",
            flush=True,
        )
    print(f"{right} of {given.trials} right")


def part_name(found: dict[str, object], part: int) -> str:
    """Name of a part of the report."""
    return str(found["parts"][part]["name"])  # type: ignore[index]


if __name__ == "__main__":
    main()
