"""The pulse: false messages in simulated years, planted stalls, size of the store, cost of a pulse.

    python bench/pulse.py [--years N] [--stalls N] [--months N]

Aims: at most one false message a month; a planted stall is found within 30 minutes (three pulses); 10 years below
100 MB per file system; at most 2 s of wall time and 0.1 % of a node's processor time every ten minutes.

What is simulated: tests/pulse/simulated.py, on a calm and on a restless file system. The first weeks of a year have few
pulses before them and are counted, too.
A stall is planted on a random pulse after eight weeks, one operation, for three hours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.pulse import simulated  # noqa: E402
from tests.pulse.simulated import DAY_S, INTERVAL_S, PULSES_PER_DAY, Bursts  # noqa: E402

FACTORS = (5.0, 10.0, 20.0, 33.0)
WEEKS_BEFORE_STALL = 9
STALL_S, IN_TIME_S = 3 * 3600, 30 * 60


def false_messages(years: int, bursts: Bursts, name: str) -> None:
    """Events in years without a planted stall, one line per year."""
    total = 0
    for year in range(years):
        begin_s = time.process_time()
        pulses = simulated.simulate_pulses(np.random.default_rng(1000 + year), 365, bursts)
        outcome = simulated.replay(pulses)
        total += len(outcome.events)
        thresholds = [np.exp(reference.threshold) for reference in outcome.references.values() if reference]
        print(
            f"{name} year {year}: {len(outcome.events)} events; thresholds x{min(thresholds):.1f} to"
            f" x{max(thresholds):.1f}; {time.process_time() - begin_s:.0f} s",
            flush=True,
        )
    print(f"{name} years: {total / years / 12:.2f} messages a month (aim: at most 1), and as many of ends")


def planted_stalls(number: int, bursts: Bursts, name: str) -> None:
    """Share of planted stalls that are found within three pulses, by factor."""
    rng = np.random.default_rng(7)
    for factor in FACTORS:
        in_time = late = 0
        for _ in range(number):
            pulses = simulated.simulate_pulses(rng, 7 * WEEKS_BEFORE_STALL, bursts)
            begin_s = int(rng.choice(pulses.times[-5 * PULSES_PER_DAY : -20]))
            operation = str(rng.choice(list(simulated.BASE_MS)))
            planted = simulated.plant_stall(pulses, [operation], begin_s, factor, STALL_S)
            outcome = simulated.replay_from(planted, begin_s - DAY_S)
            times = [time_s for (name_, _), time_s in outcome.found.items() if name_ == operation]
            delays_s = [time_s - begin_s for time_s in times if 0 <= time_s - begin_s <= STALL_S]
            in_time += min(delays_s, default=STALL_S) <= IN_TIME_S
            late += min(delays_s, default=0) > IN_TIME_S
        print(f"{name}, planted x{factor:g}: {in_time} of {number} within 30 minutes, {late} later", flush=True)


def store_size(months: int) -> None:
    """Size of a file after some months, and after ten years by extrapolation of its rows per hour."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scratch.db"
        sizes = [simulated.fill_store(path, rng, 30, start_day=30 * month) for month in range(months)]
    for month, size in enumerate(sizes, 1):
        print(f"store after {30 * month} days: {size / 1e6:.2f} MB")
    if months >= 4:
        growth = (sizes[-1] - sizes[2]) / (months - 3)
        print(f"store after 10 years: {(sizes[-1] + growth * (121.7 - months)) / 1e6:.0f} MB (aim: below 100)")


def cost_of_pulse(runs: int = 5) -> None:
    """Wall and processor time of `iowatch pulse run` as a timer starts it, with eight weeks of pulses before."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "IOWATCH_VAR": directory, "PYTHONPATH": str(ROOT / "src")}
        path = Path(directory) / "pulse" / "local" / "login" / "scratch.db"
        days = 57
        simulated.fill_store(path, np.random.default_rng(3), days)
        now_s = simulated.START_S + days * DAY_S
        command = [sys.executable, "-m", "iowatch", "pulse", "run", "--system", "local", "--quiet"]
        for run in range(runs):
            environment["IOWATCH_NOW"] = str(now_s + run * INTERVAL_S)
            begin_s = time.perf_counter()
            process = subprocess.Popen(command, env=environment, cwd=ROOT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall_s, processor_s = time.perf_counter() - begin_s, usage.ru_utime + usage.ru_stime
            what = " (makes the fixed tree and the references of the day)" if run == 0 else ""
            share = 100 * processor_s / INTERVAL_S
            print(
                f"pulse: {wall_s:.2f} s, {processor_s:.2f} s of processor time: {share:.3f} % of one processor,"
                f" {share / 16:.4f} % of a node with 16{what}"
            )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=1)
    parser.add_argument("--stalls", type=int, default=4)
    parser.add_argument("--months", type=int, default=4)
    arguments = parser.parse_args()
    cost_of_pulse()
    store_size(arguments.months)
    for name, bursts in (("calm", simulated.CALM), ("restless", simulated.RESTLESS)):
        if arguments.years:
            false_messages(arguments.years, bursts, name)
        if arguments.stalls:
            planted_stalls(arguments.stalls, bursts, name)


if __name__ == "__main__":
    main()
