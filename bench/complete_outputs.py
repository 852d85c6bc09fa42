"""Outputs in public archives: their kind, whether they are complete, and their official figures. Used by `corpus.py`.

Nothing here uses iowatch: the parsers are judged by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

RECOGNISED_BYTES = 1 << 18
TOLERANCE = 1e-3
NOT_OUTPUTS = (".md", ".py", ".sh", ".c", ".h", ".yaml", ".yml", ".conf", ".ini", ".html", ".job")
DARSHAN_3 = "Darshan 3 log"
DARSHAN_MAGIC = 6567223
# The phases that make the score of IO500, in the names of its program.
SCORED_PHASES = frozenset(
    (
        "ior-easy-write",
        "ior-easy-read",
        "ior-hard-write",
        "ior-hard-read",
        "mdtest-easy-write",
        "mdtest-easy-stat",
        "mdtest-easy-delete",
        "mdtest-hard-write",
        "mdtest-hard-stat",
        "mdtest-hard-read",
        "mdtest-hard-delete",
        "find",
    )
)
RESULT = "IO500 result.txt"
SUMMARY = "IO500 summary"
SHELL_LOG = "IO500 log of the shell version"
# Files of the first kind are official for those of the others, which may be in the same folder.
TABLE_KINDS = (RESULT, SUMMARY, SHELL_LOG)
MDTEST_LINES = {"write": "File creation", "stat": "File stat", "read": "File read", "delete": "File removal"}


@dataclass(frozen=True)
class Figure:
    """A figure that is not read by iowatch.

    Attributes:
        value: MiB/s of IOR, 1/s of mdtest and find.
        digit: value of one unit of its last printed digit.
    """

    value: float
    digit: float = 0.0

    def equals(self, value: float, digit: float = 0.0) -> bool:
        """Whether a value, whose last digit has the value `digit`, is the same within `TOLERANCE` and the digits."""
        return abs(value - self.value) <= TOLERANCE * self.value + 0.51 * max(self.digit, digit)


def recognise(path: Path) -> str | None:
    """Return the kind of a file, by its contents; None if it is no output."""
    if path.suffix.lower() in NOT_OUTPUTS:
        return None
    with path.open("rb") as stream:
        data = stream.read(RECOGNISED_BYTES)
    magic = data[8:16]
    if DARSHAN_MAGIC in (int.from_bytes(magic, "little"), int.from_bytes(magic, "big")):
        return DARSHAN_3
    text = data.decode("utf-8", "replace")
    patterns = {
        SHELL_LOG: r"^\[Starting\] ior_easy_write",
        SUMMARY: r"^\[RESULT\] ",
        # Its configuration has the same sections, without scores.
        RESULT: r"^\[ior-easy-write\]\s*\n(?s:.)*^score +=",
        "IOR": r"^IOR-\d",
        "mdtest": r"^mdtest-\d",
        "hpcc": r"HPC Challenge Benchmark version",
    }
    for kind, pattern in patterns.items():
        if re.search(pattern, text, re.MULTILINE):
            return kind
    return None


def read_text(path: Path) -> str:
    """Return the contents of a file as text; bytes that are no text are replaced."""
    return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")


def official_figures(text: str) -> dict[str, Figure]:
    """Return phase -> figure of a `result.txt` or summary of IO500; a phase without a result has the value 0."""
    return {phase: figures[-1] for phase, figures in figures_by_phase(text).items()}


def figures_by_phase(text: str) -> dict[str, list[Figure]]:
    """Return all figures of each phase: the log of the shell version prints each twice, or those of several runs."""
    figures: dict[str, list[Figure]] = defaultdict(list)
    # `[RESULT]  ior-easy-write  3.4 GiB/s : time …`; shell version: `[RESULT] BW phase 1 ior_easy_write 3.4 GB/s : …`,
    # whose GB/s are the MiB/s of IOR divided by 1024.
    line = r"^\[(?:RESULT(?:-invalid)?|      )\] *(?:(?:BW|IOPS) +phase \d+ +)?(\S+) +(\d+\.\d+) +\S+ *:"
    for phase, number in re.findall(line, text, re.MULTILINE):
        figures[phase.replace("_", "-")].append(_scaled(phase, number))
    for section in re.split(r"^(?=\[)", text, flags=re.MULTILINE):
        name = re.match(r"\[([\w-]+)\]", section)
        score = re.search(r"^score *= *(\d+\.\d+)", section, re.MULTILINE)
        if name is not None and score is not None:
            figures[name[1]].append(_scaled(name[1], score[1]))
    return figures


def _scaled(phase: str, number: str) -> Figure:
    factor = 1024 if phase.startswith("ior") else 1000
    decimals = len(number.partition(".")[2])
    return Figure(float(number) * factor, factor * 10.0**-decimals)


def printed_figures(tool: str, phase: str, text: str) -> list[Figure]:
    """Return the figures that IOR or mdtest printed for an operation, the last `write`, `read`, … of the phase."""
    operation = phase.rpartition("-")[2]
    if tool == "mdtest":
        lines = re.findall(rf"^ *{MDTEST_LINES.get(operation)} *:? +(\d.*)$", text, re.MULTILINE)
        return [Figure(float(word)) for line in lines for word in line.split() if re.fullmatch(r"\d+\.\d+", word)]
    summary = re.findall(rf"^Max {operation.capitalize()}: +(\d+\.\d+) MiB", text, re.MULTILINE)
    rows = re.findall(rf"^{operation} +(\d+(?:\.\d+)?) +\d", text, re.MULTILINE)
    return [Figure(float(number)) for number in (*summary, *rows)]


@lru_cache(maxsize=64)
def figures_of_folder(folder: Path) -> dict[str, Figure]:
    """Return the official figures of the result files in a folder; those of a `result.txt` go before summaries."""
    figures: dict[str, Figure] = {}
    for kind in reversed(TABLE_KINDS):
        for path in sorted(folder.iterdir()):
            if path.is_file() and recognise(path) == kind:
                figures |= official_figures(read_text(path))
    return figures


def printed_figures_of_folder(folder: Path) -> dict[str, Figure]:
    """Return the figures that IOR and mdtest printed in the files of a folder: the first, as IO500's shell version."""
    figures: dict[str, Figure] = {}
    for path in sorted(folder.glob("*.txt")):
        phase = path.stem.replace("_", "-")
        if phase not in SCORED_PHASES:
            continue
        tool = "mdtest" if phase.startswith("mdtest") else "IOR"
        printed = printed_figures(tool, phase, read_text(path))
        if printed:
            figures[phase] = printed[0]
    return figures


def why_run_incomplete(tool: str, run: str) -> str | None:
    """Return what is missing at the end of a run; None if it is complete."""
    last_line = r"^Finished *: " if tool == "IOR" else r"^-- finished at "
    return None if re.search(last_line, run, re.MULTILINE) else "no last line"


def why_phase_incomplete(tool: str, phase: str, runs: Sequence[str], official: Figure | None) -> str | None:
    """Return why the output of a phase of IO500 is not complete; None if it is."""
    if len(runs) > 1:
        return "several runs in the file"
    if official is None or official.value == 0:
        return "no official figure"
    printed = printed_figures(tool, phase, runs[0])
    if not printed:
        return "the program printed no result"
    if not any(official.equals(figure.value) for figure in printed):
        return "the official figure is of another run"
    if tool == "mdtest" and counts_items_not_created(runs[0]):
        return "its figure counts items that were not created"
    # Inside IO500's program, IOR ends with its rows.
    if tool == "IOR" and not re.search(r"^Max (Write|Read):", runs[0], re.MULTILINE):
        return None
    return why_run_incomplete(tool, runs[0])


def counts_items_not_created(text: str) -> bool:
    """Whether mdtest's rate counts all requested items although its stonewall (-W) ended the phase earlier.

    Versions before 3.2.1 do so (https://github.com/hpc/ior/issues/119), and the official figure repeats it. The line of
    the stonewall has the number of items that each task made at most. A table of times shows which number was divided;
    without one, the time between the first and the last line does: these outputs have one phase.
    """
    stonewall = re.search(r"^Continue stonewall hit min: \d+ max: (\d+)", text, re.MULTILINE)
    numbers = re.search(r"^(\d+) tasks, (\d+) files", text, re.MULTILINE)
    printed = re.findall(r"^ *File creation *:? +(\d+\.\d+) ", text, re.MULTILINE)
    stamps = re.findall(r"^-- (?:started|finished) at (\S+ \S+) --", text, re.MULTILINE)
    if stonewall is None or numbers is None or not printed or len(stamps) != 2 or float(printed[0]) == 0:
        return False
    created, requested, rate = int(numbers[1]) * int(stonewall[1]), int(numbers[2]), float(printed[0])
    if created > 0.95 * requested:
        return False
    if len(printed) > 1:
        return rate * float(printed[1]) > 1.05 * created
    started, finished = (datetime.strptime(stamp, "%m/%d/%Y %H:%M:%S") for stamp in stamps)
    seconds = (finished - started).total_seconds()
    return abs(requested / rate - seconds) < abs(created / rate - seconds)


def why_table_incomplete(kind: str, text: str) -> str | None:
    """Return why a result file of IO500 is not complete; None if it is."""
    figures = figures_by_phase(text)
    absent_phases = SCORED_PHASES - figures.keys()
    if absent_phases:
        return f"{len(absent_phases)} of {len(SCORED_PHASES)} phases are absent"
    if not re.search(r"^\[SCORE(?: |-invalid)?\]", text, re.MULTILINE):
        return "no score"
    if any(len(set(figures[phase])) > 1 for phase in figures):
        return "the results of several runs"
    if kind == RESULT and "\nt_start " not in text:
        return "its times (t_start, t_end) were removed"
    return None


def why_log_incomplete(path: Path) -> str | None:
    """Return what a log states to be missing; None if it is complete."""
    with path.open("rb") as stream:
        header = stream.read(24)
    # Version (8 bytes), magic number (8), compression (1, padded to 4), flags of modules that ran out of memory (4).
    byte_order: Literal["little", "big"] = "little"
    if int.from_bytes(header[8:16], "big") == DARSHAN_MAGIC:
        byte_order = "big"
    if int.from_bytes(header[20:24], byte_order):
        return "Darshan ran out of memory during the run, says its header"
    return None
