"""What it costs to add usual observations to a detection without a new one (`extend_detection`).

    python bench/statistics/detect_added.py [--series 60] [--seed 0]

Simulated series (`simulated_series.py`: noise of Edison's nights, and of other families) of 200 observations, then 60
more, with a step of 0.5 to 4 times their noise or without one. They are assessed after each of the 60, once with all
observations, and once only where an observation cannot be added. Printed are the shares of series whose step was
reported, and when, the false reports, and the share of assessments that were necessary.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from detect_edison import DAY
from simulated_series import Floats, kinds

from iowatch.statistics import Detection, detect_many
from iowatch.statistics.detection import extend_detection

BEFORE, AFTER, SIZES, NEAR = 200, 60, (0.0, 0.5, 1.0, 2.0, 4.0), 10


@dataclass
class Replay:
    """One series; per way the first session in which its step was reported, and the numbers of false reports."""

    size: float
    values: Floats
    number: int
    added: Detection | None = None
    assessed: int = 0

    def __post_init__(self) -> None:
        self.found: dict[str, int] = {}
        self.false: dict[str, set[int]] = {"all": set(), "added": set()}

    def see(self, n: int, whole: Detection) -> None:
        """The detections after `n` observations."""
        known, times = self.added, DAY * np.arange(n)
        longer = None
        if known is not None:
            part = times >= (known.added_since or times[n - 1])
            longer = extend_detection(known, times[part], self.values[:n][part], 7 + self.number % 8)
        self.added = longer or whole
        self.assessed += longer is None
        for way, one in (("all", whole), ("added", self.added)):
            for change in one.changes:
                is_step = self.size > 0 and abs(change.index - BEFORE) <= NEAR
                if is_step:
                    self.found.setdefault(way, n - BEFORE)
                elif change.index >= BEFORE - NEAR:
                    self.false[way].add(change.index // NEAR)


def main() -> None:
    """Replay all series, and print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=60, help="of each kind of noise and size")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng, replays = np.random.default_rng(chosen.seed), []
    for noise in kinds().values():
        for size in SIZES:
            for _ in range(chosen.series):
                logs = noise(rng, BEFORE + AFTER)
                spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
                logs[BEFORE:] -= size * spread
                replays.append(Replay(size, np.exp(logs), len(replays)))
    for n in range(BEFORE, BEFORE + AFTER + 1):
        found = detect_many([(DAY * np.arange(n), one.values[:n]) for one in replays])
        for one, detection in zip(replays, found, strict=True):
            one.see(n, detection)
    print("step / noise   reported: all, added   after (median, mean): all; added   false: all, added   assessed")
    for size in SIZES:
        some = [one for one in replays if one.size == size]
        nights = {way: [one.found[way] for one in some if way in one.found] for way in ("all", "added")}
        when = "; ".join(f"{np.median(v):.0f}, {np.mean(v):.1f}" if v else "–" for v in nights.values())
        shares = ", ".join(f"{len(v) / len(some):.1%}" for v in nights.values())
        false = ", ".join(str(sum(len(one.false[way]) for one in some)) for way in nights)
        assessed = np.mean([one.assessed for one in some]) / (AFTER + 1)
        print(f"{size:12.1f}   {shares:>20}   {when:>33}   {false:>18}   {assessed:8.0%}")


if __name__ == "__main__":
    main()
