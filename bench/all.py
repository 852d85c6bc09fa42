"""All benchmarks of iowatch itself, one after the other: `make bench`, or `python bench/all.py NAME …`.

They print figures and assess nothing; targets are in their docstrings and in docs/. Figures of speed
are only comparable within one run: machines differ, and so does one machine from hour to hour.
Those `BY_HAND` need arguments or take long: run them by name or by hand. Those in `SHORT` run a small form.
`statistics/` has the scores of detection, findings and comparison.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BY_HAND = (
    "bisection",
    "corpus",
    "darshan_overhead",
    "gate_erratic",
    "gate_quick",
    "layers_planted",
    "scale",
    "statistics/aggressor",
    "statistics/compare_same_stack",
    "statistics/constants",
    "statistics/cost",
    "statistics/detect_edison",
    "statistics/detect_unseen",
    "statistics/kernel_cpd",
    "statistics/opening",
    "statistics/panels_fresh",
    "statistics/public_histories",
    "statistics/staircases",
)
SHORT = {
    "maintenance": ("replay", "--trials", "10"),
    "statistics/detect_added": ("--series", "10"),
    "targets": ("--nights", "4", "--size", "1m"),
    "systems": ("--systems", "2", "--series", "40", "--years", "1", "--settling", "2", "--sessions", "2"),
}
# Modules that benchmarks share.
PARTS = (
    "all",
    "complete_outputs",
    "runs",
    "sound_outputs",
    "statistics/simulated_panels",
    "statistics/simulated_series",
)


def find_names() -> list[str]:
    """Names of all benchmarks: paths from here without `.py`."""
    names = []
    for folder in (HERE, HERE / "statistics"):
        for path in folder.glob("*.py"):
            name = path.relative_to(HERE).with_suffix("").as_posix()
            if name not in PARTS:
                names.append(name)
    return sorted(names)


NAMES = find_names()


def main() -> int:
    """Run the named benchmarks, or all; the number of those that could not run is the exit code."""
    chosen = sys.argv[1:] or [name for name in NAMES if name not in BY_HAND]
    unknown = sorted(set(chosen) - set(NAMES))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; expected one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    broken = 0
    for name in chosen:
        print(f"\n== {name} ==", flush=True)
        words = () if sys.argv[1:] else SHORT.get(name, ())
        broken += subprocess.run([sys.executable, HERE / f"{name}.py", *words], check=False).returncode != 0
    return broken


if __name__ == "__main__":
    sys.exit(main())
