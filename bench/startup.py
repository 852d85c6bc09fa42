"""Start of commands: processor time of short commands, and which libraries they import for it.

    python bench/startup.py [--runs N]

Prints one line for each command: the minimum of N runs in seconds of processor time (user and system, processes that
it starts included), the aim, and the libraries whose modules take longest to import (`python -X importtime`, in ms).
The history is that of `iowatch demo franklin`, in a temporary directory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 6
REFRAME = str(Path(sys.executable).with_name("reframe"))


@dataclass(frozen=True)
class TimedCommand:
    """A command whose start is measured.

    Attributes:
        label: what is printed.
        arguments: of Python.
        aim_s: processor time that it should need at most; None without an aim.
    """

    label: str
    arguments: tuple[str, ...]
    aim_s: float | None = None


def iowatch_command(words: str, aim_s: float) -> TimedCommand:
    return TimedCommand(f"iowatch {words}", ("-m", "iowatch", *words.split()), aim_s)


COMMANDS = (
    iowatch_command("--help", 0.2),
    iowatch_command("system list", 0.3),
    iowatch_command("findings list", 0.7),
    iowatch_command("history list", 0.7),
    iowatch_command("doctor", 2.0),
    TimedCommand("reframe -l", (REFRAME, "-C", "systems/local/reframe.py", "-c", "reframe_tests", "-R", "-l")),
)


def run_command(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[float, str]:
    """Run Python once; its processor time in seconds, with that of processes that it started, and its stderr."""
    words = [sys.executable, *arguments]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read()
    if process.returncode not in (0, 1):  # 1: a finding is open, or something is missing
        raise RuntimeError(f"{' '.join(words)}: exit code {process.returncode}\n{text}")
    return usage.ru_utime + usage.ru_stime, text


def import_times(report: str) -> Counter[str]:
    """Milliseconds of imports by library, those of iowatch by its packages, from what `-X importtime` wrote."""
    times: Counter[str] = Counter()
    for line in report.splitlines():
        columns = line.removeprefix("import time:").split("|")
        if len(columns) != 3 or not columns[0].strip().isdigit():
            continue
        names = columns[2].strip().split(".")
        library = ".".join(names[:2]) if names[0] == "iowatch" else names[0]
        times[library] += int(columns[0]) / 1000  # without the modules that it imports itself
    return times


def print_command(command: TimedCommand, runs: int, environment: dict[str, str]) -> None:
    """Measure a command and print its line."""
    run_command(command.arguments, environment)  # writes the bytecode of its modules
    seconds: list[float] = []
    for _ in range(runs):
        processor_s, _ = run_command(command.arguments, environment)
        seconds.append(processor_s)
    _, report = run_command(("-X", "importtime", *command.arguments), environment)
    slowest = import_times(report).most_common(LARGEST)
    imports = ", ".join(f"{library} {milliseconds:.0f}" for library, milliseconds in slowest)
    aim = "no aim" if command.aim_s is None else f"aim {command.aim_s:.1f}"
    print(f"{command.label:<22} {min(seconds):5.2f} s ({aim}); imports in ms: {imports}", flush=True)


def main() -> None:
    """Print the line of each command."""
    parser = argparse.ArgumentParser(description="Processor time of short commands.")
    parser.add_argument("--runs", type=int, default=5, help="the minimum of this many runs is printed")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        history = Path(directory) / "demo-franklin.db"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "IOWATCH_VAR": directory}
        # Installed modules have their bytecode.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        run_command(("-m", "iowatch", "demo", "franklin"), environment)
        environment["IOWATCH_DB"] = str(history)
        for command in COMMANDS:
            print_command(command, runs, environment)


if __name__ == "__main__":
    main()
