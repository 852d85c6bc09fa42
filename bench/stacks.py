"""Time to activate a stack in a job, and of `iowatch stack diff`: `python bench/stacks.py`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from iowatch.site import Stack, StackPart, activation_script, discover_stacks, write_stack_files

REPEAT = 30
MANY = sorted(Path("/usr/lib").glob("**/lib*.so*"))[:500]
IOWATCH = str(Path(sys.executable).parent / "iowatch")


def median_ms(command: list[str], repeat: int = REPEAT) -> float:
    """Median wall time of a command, ms."""
    samples = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples) * 1e3


def many() -> str:
    """The script of a stack with as many files to look for as one that Spack built from the bottom."""
    parts = tuple(StackPart(path.name, "1", files=(str(path),)) for path in MANY)
    return activation_script(Stack("many", "local", "spack", "installed", parts, ()), None)


def main() -> None:
    """Print one line a figure."""
    empty = median_ms(["bash", "-c", ":"])
    for stack in discover_stacks("local"):
        if stack.status == "installed":
            path = write_stack_files(stack) / "activate.sh"
            print(f"activation of {stack.name}: {median_ms(['bash', '-c', f'. {path}']) - empty:.1f} ms")
    print(f"activation of a stack of {len(MANY)} libraries: {median_ms(['bash', '-c', many()]) - empty:.1f} ms")
    diff = [IOWATCH, "stack", "diff", "netcdf-4.3.3.1", "netcdf-4.4.0"]
    print(f"iowatch {' '.join(diff[1:])}: {median_ms(diff, 5):.0f} ms")


if __name__ == "__main__":
    main()
