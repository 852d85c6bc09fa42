"""What `iowatch gate --quick` sees in two minutes: its decisions on recorded runs of one build, with planted losses.

    python bench/gate_quick.py record HISTORY.db SESSION > bench/gate_quick_runs.json
    python bench/gate_quick.py power [--trials 200] [--loss 0 0.05 0.1 0.15 0.2]

`record` reads an A/B run of one stack with itself (`iowatch run --ab system-openmpi system-openmpi --suite gate-quick
--scratch /dev/shm/… --budget 4`): the repetitions of all runs in the order in which they were made. `power` makes gates
of them: each begins at a random run, consecutive runs are the two sides of a pair, in an order that a coin decides, and
the head loses a share of the performance in one result, in one case (both results), or in all. A run costs the mean
time of the recorded runs, and a batch of pairs the start of ReFrame.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from iowatch.experiments.common.pairs import PairedResult, PairedRuns
from iowatch.experiments.gate.run import make_gate_pair
from iowatch.statistics.gate import Gate
from iowatch.store import History, ResultFilter

RUNS_FILE = Path(__file__).resolve().parent / "gate_quick_runs.json"
# Seconds: the time of `--quick` without its reserve, the description of the builds, and one start of ReFrame.
BUDGET_S, BUILDS_S, START_S = 114.0, 4.0, 3.0
FIRST_PAIRS = 6


def record(database: str, session: str) -> dict[str, Any]:
    """The repetitions of all runs of a session by result, and the seconds of a run."""
    with History.existing(database) as history:
        uuid = history.session(session).uuid
        row = history.session(uuid)
        runs: dict[str, list[list[float]]] = defaultdict(list)
        rows = sorted(history.results(ResultFilter(session=uuid)), key=lambda result: (result.time, result.number or 0))
        for result in rows:
            if result.pair and result.metric == "bandwidth":
                operation = result.case.parameters.get("operation")
                name = f"{result.run.partition('#')[0]} {operation}"
                runs[name].append([float(f"{value:.6g}") for value in result.samples])
        run_s = ((row.ended_at or 0) - row.started_at) / max(1, row.runs)
    return {"seconds_per_run": round(run_s, 3), "runs": runs}


def decide(recorded: dict[str, Any], losses: dict[str, float], rng: np.random.Generator) -> tuple[str, float, int]:
    """Decision, seconds and results within the margin of one gate."""
    runs = recorded["runs"]
    names = [*runs]
    results = {name: PairedResult(name.partition(" ")[0], None, "bandwidth") for name in names}  # type: ignore[arg-type]
    positions = {name.partition(" ")[0]: int(rng.integers(10**6)) for name in names}
    gate = Gate(names)
    cases = {name.partition(" ")[0] for name in names}
    # The warm-up is a batch of its own.
    used_s = BUILDS_S + 2 * START_S + 2 * len(cases) * recorded["seconds_per_run"]
    pairs = 0
    while gate.decision == "undecided" and gate.open:
        open_cases = {name.partition(" ")[0] for name in gate.open}
        pair_s = 2 * len(open_cases) * recorded["seconds_per_run"]
        # The gate measures six pairs first, then batches of at least two.
        batch_start_s = START_S if pairs >= FIRST_PAIRS and pairs % 2 == 0 else 0.0
        if used_s + pair_s + batch_start_s > BUDGET_S:
            break
        used_s += pair_s + batch_start_s
        pairs += 1
        is_base_first = rng.random() < 0.5
        for case in open_cases:
            position = positions[case]
            positions[case] += 2
            for name in gate.open:
                if name.partition(" ")[0] != case:
                    continue
                sides = [runs[name][(position + side) % len(runs[name])] for side in (0, 1)]
                base, head = sides if is_base_first else sides[::-1]
                slower_head = tuple(value * (1 - losses.get(name, 0.0)) for value in head)
                gate.record(name, make_gate_pair(results[name], PairedRuns(tuple(base), slower_head)))
        gate.leave_out_hopeless(int((BUDGET_S - used_s) / (2 * recorded["seconds_per_run"])))
    within = sum(result.state == "within" for result in gate.results.values())
    return gate.decision, used_s, within


def power(trials: int, losses: list[float]) -> None:
    """Print the decisions per loss and affected results."""
    recorded = json.loads(RUNS_FILE.read_text(encoding="utf-8"))
    names = [*recorded["runs"]]
    for name in names:
        levels = np.log([np.median(samples) for samples in recorded["runs"][name]])
        noise = 1.4826 * float(np.median(np.abs(np.diff(levels))))
        print(f"{name}: {len(levels)} runs, pairs differ by {100 * noise:.1f} %")
    cases = [*dict.fromkeys(name.partition(" ")[0] for name in names)]
    for loss in losses:
        for affected in ("one result", "one case", "all"):
            if not loss and affected != "all":
                continue
            decisions: Counter[str] = Counter()
            seconds: list[float] = []
            for trial in range(trials):
                rng = np.random.default_rng([trial, round(1000 * loss), len(affected)])
                case = cases[trial % len(cases)]
                chosen = names
                if affected == "one result":
                    chosen = [names[trial % len(names)]]
                elif affected == "one case":
                    chosen = [name for name in names if name.partition(" ")[0] == case]
                decision, used_s, _ = decide(recorded, dict.fromkeys(chosen, loss), rng)
                decisions[decision] += 1
                seconds.append(used_s)
            words = ", ".join(f"{word} {decisions[word]}" for word in ("pass", "regression", "undecided"))
            quantiles = np.percentile(seconds, [50, 90])
            print(
                f"-{100 * loss:g} % in {affected}: {words} of {trials}; {quantiles[0]:.0f} s, 90 % {quantiles[1]:.0f} s"
            )


def main() -> None:
    """Record or measure."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("database")
    recording.add_argument("session")
    measuring = commands.add_parser("power")
    measuring.add_argument("--trials", type=int, default=200)
    measuring.add_argument("--loss", type=float, nargs="*", default=[0.0, 0.05, 0.1, 0.15, 0.2])
    options = parser.parse_args()
    if options.command == "record":
        json.dump(record(options.database, options.session), sys.stdout)
    else:
        power(options.trials, options.loss)


if __name__ == "__main__":
    main()
