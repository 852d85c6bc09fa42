"""Error rates and duration of `iowatch.statistics.gate`, on simulated pairs whose noise is that of Edison's nights.

    python bench/gate.py [--trials 1000] [--results 10] [--noise 0.03 …] [--only EFFECT …]

As in bench/bisection.py, a run has the residual of one night of Edison's year, scaled to the noise of the row, and
consecutive runs have consecutive nights. Each result belongs to one case (two results per case: write and read). A pair
costs the seconds of its open cases on both sides, and a gate has 15 minutes. Printed per row: decisions in %, minutes
and pairs (median, 90 %), and results that were left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.gate import Gate, GatePair

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bisection import nights, pieces

BUDGET_S, TURN_S, CASE_S = 900.0, 1.5, 1.5
# Loss of performance by result: none, one, all, or one between none and the margin.
EFFECTS = {"nothing": (0.0, 0.0), "one -10 %": (0.1, 0.0), "all -10 %": (0.1, 0.1), "one -20 %": (0.2, 0.0),
           "one -5 %": (0.05, 0.0)}  # fmt: skip


def trial(
    effect: str, noise: float, count: int, seed: int, known: list[NDArray[np.float64]]
) -> tuple[str, float, int, int]:
    """Decision, seconds, pairs and results left out of one gate."""
    rng = np.random.default_rng(seed)
    lost = [EFFECTS[effect][0]] + [EFFECTS[effect][1]] * (count - 1)
    gate = Gate([str(number) for number in range(count)])
    runs = [nights(rng, known) for _ in range(count)]
    used, pairs = 0.0, 0
    while gate.decision == "undecided":
        cases = {int(name) // 2 for name in gate.open}
        cost = 2 * (TURN_S + CASE_S * len(cases))
        if not cases or used + cost > BUDGET_S:
            break
        used, pairs = used + cost, pairs + 1
        coin = 1 if rng.random() < 0.5 else -1
        for name in gate.open:
            first, second = next(runs[int(name)]) * noise, next(runs[int(name)]) * noise
            gain = math.log1p(-lost[int(name)]) + coin * (second - first)
            gate.record(name, GatePair(gain, gain, first))
        gate.leave_out_hopeless(int((BUDGET_S - used) / (2 * (TURN_S + CASE_S))))
    left_out = [name for name, result in gate.results.items() if result.state == "left out"]
    unseen = gate.decision == "pass" and lost[0] >= gate.settings.margin and "0" in left_out
    return "pass without the slower result" if unseen else gate.decision, used, pairs, len(left_out)


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--results", type=int, default=10)
    parser.add_argument("--noise", type=float, nargs="*", default=[0.02, 0.05, 0.1, 0.2])
    parser.add_argument("--only", nargs="*", default=[*EFFECTS], help="effects, such as nothing")
    given = parser.parse_args()
    known = pieces()
    for effect in given.only:
        for noise in given.noise:
            found = [trial(effect, noise, given.results, seed, known) for seed in range(given.trials)]
            words = Counter(one[0] for one in found)
            shares = ", ".join(f"{word} {100 * n / len(found):.1f} %" for word, n in words.most_common())
            minutes = np.percentile([one[1] / 60 for one in found], [50, 90])
            pairs = np.percentile([one[2] for one in found], [50, 90])
            out = np.mean([one[3] for one in found])
            print(
                f"{effect:10} noise {100 * noise:2.0f} %: {shares}; minutes {minutes[0]:.1f}/{minutes[1]:.1f}; "
                f"pairs {pairs[0]:.0f}/{pairs[1]:.0f}; {out:.1f} left out",
                flush=True,
            )


if __name__ == "__main__":
    main()
