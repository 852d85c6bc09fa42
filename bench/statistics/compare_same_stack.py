"""How often the verdict of a stack compared with itself is "no difference", from one long A/B run on a real machine.

    iowatch run --suite smoke --ab STACK STACK --pairs 60        # one long session; it is divided below
    python bench/statistics/compare_same_stack.py SESSION [--db FILE] [--until 0.1] [--runs 100]

The pairs of a case are divided into A/B runs: each begins at a pair drawn at random, takes the pairs in the order in
which they were measured, and ends by the rule of `--until-ci`, or where the session ends: it is too short then.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from iowatch.core import Case
from iowatch.statistics import Pair, SideSamples, compare_pairs
from iowatch.statistics.interleaving import AbSchedule, SideName, StopRule
from iowatch.store import History, ResultFilter

Samples = dict[int, dict[SideName, tuple[float, ...]]]


def cases_of(history: History, session: str) -> dict[str, Samples]:
    """Samples of the headline by case, pair and side; only pairs that have both sides."""
    found: dict[str, Samples] = {}
    for row in history.results(ResultFilter(session=history.session(session).uuid)):
        if row.status == "ok" and row.metric == "bandwidth" and row.pair and row.side in ("left", "right"):
            pairs = found.setdefault(row.case.key, {})
            pairs.setdefault(row.pair, {})["left" if row.side == "left" else "right"] = row.samples
    return {
        case: {number: sides for number, sides in sorted(pairs.items()) if len(sides) == 2}
        for case, pairs in found.items()
    }


def simulate_ab_run(pairs: Samples, start: int, half_width: float) -> str:
    """The verdict of the A/B run that begins at the pair in position `start`, or "too short"."""
    schedule = AbSchedule(StopRule(half_width=half_width), seed=start)
    numbers = list(pairs)[start:]
    kept: dict[SideName, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
    for turn in schedule.turns():
        if turn.warm_up:
            continue
        if turn.pair > len(numbers):
            return "too short"
        samples = pairs[numbers[turn.pair - 1]][turn.side]
        schedule.record(turn, {"case": samples}, 1.0)
        kept[turn.side][str(turn.pair)] = samples
    pair = Pair(Case("benchio", {}), "bandwidth", SideSamples(kept["left"]), SideSamples(kept["right"]), sign=1)
    return compare_pairs([pair])[0][0].verdict


def main() -> None:
    """Print the verdicts of all runs, case by case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session")
    parser.add_argument("--db")
    parser.add_argument("--until", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=100, help="of each case")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    total: Counter[str] = Counter()
    with History.open(arguments.db) as history:
        for case, pairs in cases_of(history, arguments.session).items():
            starts = rng.integers(0, len(pairs), arguments.runs)
            verdicts = Counter(simulate_ab_run(pairs, int(start), arguments.until) for start in starts)
            total += verdicts
            print(f"{len(pairs)} pairs, {dict(verdicts)}: {case}", flush=True)
    ended = total.total() - total["too short"]
    print(f"of {ended} runs that ended {total['no difference']} report no difference: {dict(total)}")


if __name__ == "__main__":
    main()
