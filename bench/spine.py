"""From clone to verdict: time to the first verdict, and overhead of the harness per case.

    python bench/spine.py [--skip-clone]

Clones this checkout into a temporary directory with an empty home, runs `make nightly` twice there, and one
`iowatch run --json` for the harness's own time. Targets: first session <= 6 minutes on 2 cores with packages
downloaded, second <= 90 s, harness <= 1.5 s per case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def timed(label: str, words: list[str], place: Path, environment: dict[str, str], target_s: float) -> None:
    """Run, print the wall time next to its target, and the output if it failed."""
    started = time.monotonic()
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    wall = time.monotonic() - started
    print(f"{label}: {wall:.0f} s (target {target_s:.0f} s), exit code {done.returncode}", flush=True)
    if done.returncode > 1:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")


def nights(home: Path) -> None:
    """Two nightly sessions of a fresh clone."""
    clone = home / "iowatch"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PIP_INDEX_URL")}
    environment = {**kept, "HOME": str(home)}
    timed("clone to verdict", ["make", "nightly"], clone, environment, 360)
    timed("make nightly, second time", ["make", "nightly"], clone, environment, 90)


def harness(home: Path) -> None:
    """Wall time of `iowatch run` minus the time inside the benchmark processes, for each case."""
    environment = {**os.environ, "IOWATCH_VAR": str(home / "var")}
    words = [str(ROOT / ".venv" / "bin" / "iowatch"), "run", "--suite", "smoke", "--json"]
    for label in ("first", "second"):  # the first builds benchio
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        verdict = json.loads(done.stdout)
        runs = len({(line["stack"], line["run"]) for line in verdict["headlines"]}) or 1
        own = verdict["wall_s"] - verdict["benchmark_s"]
        print(
            f"harness ({label}): {verdict['wall_s']:.1f} s wall, {verdict['benchmark_s']:.1f} s in benchmarks, "
            f"{runs} runs: {own / runs:.2f} s per case (target 1.5 s)",
            flush=True,
        )


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as place:
        if "--skip-clone" not in sys.argv:
            nights(Path(place))
        harness(Path(place))


if __name__ == "__main__":
    main()
