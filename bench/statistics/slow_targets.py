"""Slow targets of simulated files: false alarms and power (src/iowatch/statistics/slow_targets.py).

    python bench/statistics/slow_targets.py            200 draws per row
    python bench/statistics/slow_targets.py 2000       more

Each draw is the files of one application, placed on targets in rotation from a random one on. Times are lognormal: the
standard deviation of their logarithm is 0.2 (alike), 0.5 (shared file system) or 1.5 (heavy tail). Rows without a slow
target say how often one is named, in percent; those with one, whose files take the factor longer, how often it and no
other is named. Wanted: at most 1 % false alarms; at least 95 % where the factor is 3, with four files per target at
a noise of 0.2 and twenty at 0.5. `lasting` is the standard deviation (ln) of differences between targets that last.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.slow_targets import FilesOnTargets, TargetComparison, compare_targets


@dataclass(frozen=True)
class Draw:
    """What is simulated: `slow` is the factor of target 1, 1 for none."""

    files: int
    targets: int
    stripes: int = 1
    noise: float = 0.2
    lasting: float = 0.0
    slow: float = 1.0


WITHOUT = (
    Draw(16, 2), Draw(40, 2, noise=0.5), Draw(40, 2, noise=1.5), Draw(96, 24), Draw(96, 24, noise=0.5),
    Draw(96, 24, noise=1.5), Draw(480, 24, noise=0.5), Draw(480, 24, noise=1.5), Draw(2048, 24), Draw(2000, 500),
    Draw(480, 24, stripes=4, noise=0.5), Draw(480, 24, lasting=0.2), Draw(480, 24, lasting=0.4),
    Draw(2048, 248, lasting=0.3),
)  # fmt: skip
WITH = (
    Draw(16, 2, slow=3), Draw(40, 2, noise=0.5, slow=3), Draw(96, 24, slow=3), Draw(96, 24, noise=0.5, slow=3),
    Draw(192, 24, noise=0.5, slow=3), Draw(480, 24, noise=0.5, slow=2.5), Draw(480, 24, noise=1.5, slow=10),
    Draw(2048, 24, slow=3), Draw(2000, 500, slow=5), Draw(480, 24, stripes=4, noise=0.5, slow=5),
    Draw(480, 24, lasting=0.2, slow=4),
)  # fmt: skip


def simulate(draw: Draw, rng: np.random.Generator) -> TargetComparison:
    """One draw."""
    first = rng.integers(draw.targets) + np.arange(draw.files)
    layout = (first[:, np.newaxis] + np.arange(draw.stripes)) % draw.targets
    of_target = np.exp(rng.normal(0, draw.lasting, draw.targets))
    # Of a striped file the slowest target decides.
    times = rng.lognormal(0, draw.noise, draw.files) * of_target[layout].max(axis=1)
    times[(layout == 1).any(axis=1)] *= draw.slow
    files = np.repeat(np.arange(draw.files), draw.stripes)
    return compare_targets(FilesOnTargets(times, np.zeros(draw.files, dtype=np.int64), files, layout.ravel()))


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{draws} draws per row")
    for title, rows in (("no slow target: named, %", WITHOUT), ("slow target: it and no other named, %", WITH)):
        print(f"\nfiles targets stripes noise lasting factor  {title}")
        for draw in rows:
            rng = np.random.default_rng([draw.files, draw.targets, draw.stripes, round(10 * draw.noise)])
            start_s = time.process_time()
            hits = 0
            for _ in range(draws):
                named = [slow.target for slow in simulate(draw, rng).slow]
                hits += named == [1] if draw.slow > 1 else bool(named)
            milliseconds = 1000 * (time.process_time() - start_s) / draws
            figures = f"{draw.files:5} {draw.targets:7} {draw.stripes:7} {draw.noise:5} {draw.lasting:7} {draw.slow:6}"
            print(f"{figures}  {100 * hits / draws:5.1f}   ({milliseconds:.1f} ms each)", flush=True)


if __name__ == "__main__":
    main()
