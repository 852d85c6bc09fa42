"""What `iowatch gate --quick` sees in two minutes: its decisions on recorded runs of one build, with planted losses.

    python bench/gate_quick.py record PROGRAM DIRECTORY [--minutes 4] > bench/gate_quick_runs.json
    python bench/gate_quick.py power [--trials 200] [--loss 0 0.05 0.1 0.15 0.2] [--noise 0.02]

`record` runs benchio (PROGRAM, of one build) with the cases of suite `gate-quick` in DIRECTORY (in memory), six
consecutive runs of each case at a time, as a gate does, and keeps all repetitions. `power` makes gates of them: each
begins at a random run, consecutive runs are the two sides of a pair, in an order that a coin decides, and the head
loses a share of the performance in one result, in one case (both results), or in all. A run costs `RUN_S`, and a
batch of pairs the start of ReFrame.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from iowatch.benchmarks.suites import load_suite
from iowatch.experiments.common.pairs import PairedResult, PairedRuns
from iowatch.experiments.gate.run import make_gate_pair
from iowatch.statistics.constants import MAD_TO_SD
from iowatch.statistics.gate import Gate

RUNS_FILE = Path(__file__).resolve().parent / "gate_quick_runs.json"
# Seconds: the time of `--quick` without its reserve, the description of the builds, and one start of ReFrame.
BUDGET_S, BUILDS_S, START_S = 114.0, 4.0, 3.0
# Seconds of a run with all that its job records; 8 pairs of 12 cases take 3.5 minutes (docs/gate.md).
RUN_S = 1.0
SUITE, RUNS_IN_A_ROW = "gate-quick", 6
FIRST_PAIRS = 6


def record(program: str, directory: Path, minutes: float) -> dict[str, Any]:
    """The seconds of all repetitions of the runs by result, and the load of the machine at start and end."""
    runs: dict[str, list[list[float]]] = defaultdict(list)
    record_file = directory / "benchio.json"
    load = [os.getloadavg()[0]]
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for case in load_suite(SUITE):
            options = [f"--{name}={value}" for name, value in case.options.items() if name != "ranks"]
            for _ in range(RUNS_IN_A_ROW):
                command = ["mpirun", "-np", "1", program, *options, f"--dir={directory}", f"--json={record_file}"]
                subprocess.run(command, check=True, capture_output=True)
                for result in json.loads(record_file.read_text(encoding="utf-8"))["operations"]:
                    seconds = [float(f"{repetition['seconds']:.5g}") for repetition in result["repetitions"]]
                    runs[f"{case.run_name} {result['operation']}"].append(seconds)
    return {"load": [*load, os.getloadavg()[0]], "runs": runs}


def decide(recorded: dict[str, Any], losses: dict[str, float], rng: np.random.Generator) -> tuple[str, float, int]:
    """Decision, seconds and results within the margin of one gate."""
    runs = recorded["runs"]
    names = [*runs]
    results = {name: PairedResult(name.partition(" ")[0], None, "time") for name in names}  # type: ignore[arg-type]
    positions = {name.partition(" ")[0]: int(rng.integers(10**6)) for name in names}
    gate = Gate(names)
    cases = {name.partition(" ")[0] for name in names}
    # The warm-up is a batch of its own.
    used_s = BUILDS_S + 2 * START_S + 2 * len(cases) * RUN_S
    pairs = 0
    while gate.decision == "undecided" and gate.open:
        open_cases = {name.partition(" ")[0] for name in gate.open}
        pair_s = 2 * len(open_cases) * RUN_S
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
                slower_head = tuple(value / (1 - losses.get(name, 0.0)) for value in head)
                gate.record(name, make_gate_pair(results[name], PairedRuns(tuple(base), slower_head)))
        gate.leave_out_hopeless(int((BUDGET_S - used_s) / (2 * RUN_S)))
    within = sum(result.state == "within" for result in gate.results.values())
    return gate.decision, used_s, within


def pair_noise(runs: list[list[float]]) -> float:
    """Robust standard deviation of the log ratio of consecutive runs."""
    levels = np.log([np.median(samples) for samples in runs])
    return MAD_TO_SD * float(np.median(np.abs(np.diff(levels))))


def scale_noise(runs: list[list[float]], noise: float) -> list[list[float]]:
    """The runs with this noise of a pair: all distances from the median are multiplied alike, outliers as well."""
    logs = np.log(runs)
    middle = np.median(logs)
    scaled: list[list[float]] = np.exp(middle + (logs - middle) * noise / pair_noise(runs)).tolist()
    return scaled


def power(trials: int, losses: list[float], noise: float | None) -> None:
    """Print the decisions per loss and affected results."""
    recorded = json.loads(RUNS_FILE.read_text(encoding="utf-8"))
    names = [*recorded["runs"]]
    for name in names:
        runs = recorded["runs"][name]
        print(f"{name}: {len(runs)} runs, pairs differ by {100 * pair_noise(runs):.1f} %")
        if noise is not None:
            recorded["runs"][name] = scale_noise(runs, noise)
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
                slower_names = names
                if affected == "one result":
                    slower_names = [names[trial % len(names)]]
                elif affected == "one case":
                    slower_names = [name for name in names if name.partition(" ")[0] == case]
                decision, used_s, _ = decide(recorded, dict.fromkeys(slower_names, loss), rng)
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
    recording.add_argument("program")
    recording.add_argument("directory", type=Path)
    recording.add_argument("--minutes", type=float, default=4.0)
    measuring = commands.add_parser("power")
    measuring.add_argument("--trials", type=int, default=200)
    measuring.add_argument("--loss", type=float, nargs="*", default=[0.0, 0.05, 0.1, 0.15, 0.2])
    measuring.add_argument("--noise", type=float, help="of a pair, for all results [default: as recorded]")
    options = parser.parse_args()
    if options.command == "record":
        json.dump(record(options.program, options.directory, options.minutes), sys.stdout)
    else:
        power(options.trials, options.loss, options.noise)


if __name__ == "__main__":
    main()
