"""Real gates: a build against itself, and against one whose nc_put_vara costs the writes 10 % of their bandwidth.

    python bench/gate_planted.py --directory /dev/shm/gate --kind equal|slower|instructions [--minutes 9]

Needs a C compiler and the system's Open MPI and netCDF; a command `module` of its own loads the stacks. The case is the
one of the suite `gate` with many calls of nc_put_vara, so that a gate takes half a minute and not five. `instructions`
adds 5 % to the instructions of a run (some 580 million with MPI_Init), which valgrind counts. The record of each trial
is in `trials.jsonl`: the same command goes on with the next one, and prints a summary of all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

CASE = "benchio:api=netcdf4,pattern=disjoint,access=independent,transfer=4k,block=16m"
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

int nc_put_vara(int f, int v, const size_t *s, const size_t *c, const void *b) {
  static int (*real)(int, int, const size_t *, const size_t *, const void *);
  static double share, lost;
  static long extra;
  if (!real) {
    real = dlsym(RTLD_NEXT, "nc_put_vara");
    share = atof(getenv("PLANTED_SHARE"));
    extra = atol(getenv("PLANTED_INSTRUCTIONS"));
  }
  double start = now();
  int r = real(f, v, s, c, b);
  for (volatile long i = 0; i < extra; i++) { }
  lost += share * (now() - start);
  for (start = now(); now() - start < lost;) { }
  lost -= now() - start;
  return r;
}
"""
# nc_put_vara takes 88 % of the time of a write (on two idle cores; open, synchronise and close are the rest). With a
# little less than that here, the plant costs the writes about 10.4 % of their bandwidth: not less than the margin.
PUT_SHARE = 0.84
# Share of its own time that each call of the head takes longer, and turns of a loop of six instructions per call: 4,096
# calls of one repetition, 5 % of 580 million instructions.
KINDS = {"equal": (0.0, 0), "slower": ((1 / 0.9 - 1) / PUT_SHARE, 0), "instructions": (0.0, 1170)}


def write_site(place: Path) -> dict[str, str]:
    """A site with a stack per kind; returns the environment in which iowatch uses it."""
    environment = {
        **os.environ, "IOWATCH_SITE": str(place), "IOWATCH_VAR": str(place / "var"), "MODULESHOME": str(place)
    }  # fmt: skip
    if (place / "site.yaml").exists():
        return environment
    subprocess.run(["iowatch", "init", place], check=True, stdout=subprocess.DEVNULL)
    (place / "planted.c").write_text(SOURCE)
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", place / "planted.so", place / "planted.c", "-ldl"], check=True
    )
    (place / "init").mkdir()
    (place / "init" / "sh").write_text(f'module() {{ . "{place}/modulefiles/$2"; }}\n')
    (place / "modulefiles").mkdir()
    for kind, (share, extra) in KINDS.items():
        variables = f"LD_PRELOAD={place / 'planted.so'} PLANTED_SHARE={share} PLANTED_INSTRUCTIONS={extra}"
        (place / "modulefiles" / kind).write_text(f"export {variables}\n")
        (place / "stacks" / kind).mkdir(parents=True)
        (place / "stacks" / kind / "modules.yaml").write_text(f"modules: [{kind}]\n")
    return environment


def run_trial(environment: dict[str, str], kind: str) -> dict[str, object]:
    """One gate of 15 minutes at most."""
    started, load = time.monotonic(), os.getloadavg()[0]
    # The counts are what matters there, and come first; a second count confirms a difference in the first half.
    counted = ["--instructions", "valgrind", "--minutes", "2"] if kind == "instructions" else ["--no-counts"]
    done = subprocess.run(
        ["iowatch", "gate", "--base", "equal", "--head", kind, "--case", CASE, "--json", *counted],
        env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout) if done.stdout else {"decision": done.stderr[-300:], "results": [], "counts": []}
    write = next((one for one in found["results"] if one["case"]["operation"] == "write"), {})
    return {
        "kind": kind, "decision": found["decision"], "change": write.get("change"), "noise": write.get("noise"),
        "pairs": max((one["pairs"] for one in found["results"]), default=0),
        "counts": {one["name"]: one["head"] / one["base"] - 1 for one in found["counts"] or []},
        "seconds": round(time.monotonic() - started, 1), "load": round(load, 1),
    }  # fmt: skip


def main() -> None:
    """Make trials until the minutes are over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--kind", choices=[*KINDS], default="equal")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--most", type=int, default=1000, help="trials")
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = write_site(given.directory.absolute())
    record, end = given.directory / "trials.jsonl", time.monotonic() + 60 * given.minutes
    for _ in range(given.most):
        if time.monotonic() > end - 60:
            break
        with record.open("a") as file:
            print(line := json.dumps(run_trial(environment, given.kind)), flush=True)
            file.write(f"{line}\n")
    trials = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    for kind in KINDS:
        if own := [one for one in trials if one["kind"] == kind]:
            decisions = ", ".join(f"{word} {n}" for word, n in Counter(one["decision"] for one in own).most_common())
            figures = {
                name: median(one[name] or 0.0 for one in own) for name in ("change", "noise", "pairs", "seconds")
            }
            medians = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
            print(f"{kind}: {len(own)} trials: {decisions}; medians: {medians}")


if __name__ == "__main__":
    main()
