"""Read every output of public archives with the parsers, and compare what they accept with the official figures.

    python bench/corpus.py FOLDER…              table of each folder
    python bench/corpus.py FOLDER --paths       … and all refused and differing outputs

A folder is a work tree of one of these, or any folder of outputs; files are recognised by their contents:
https://github.com/IO500/submission-data, https://github.com/darshan-hpc/darshan-logs, https://github.com/ubccr/akrr.

An output is *complete* if it has what its program prints last and contains its official figure; both are looked up
in `complete_outputs.py`, with a few patterns, and not by the parsers of iowatch:

- IOR and mdtest: one start of the program and its last line (`Finished`, `-- finished at`; IOR inside IO500's program
  prints neither), and, of a phase of IO500, the figure of that phase in the result file beside it. That figure is the
  official one. Elsewhere (AKRR) it is the last line of figures of the program itself (`Max Write`, `File creation`).
  A file with several runs, outside of IO500, is divided at their first lines. Where mdtest's rate counts items that
  were not created (stonewall, before 3.2.1), the output is not complete, and to accept that rate is a difference. Where
  mdtest's maximum, minimum and mean are those over ranks, the official figure is that of the fastest rank; the
  others in that row are equal, too. An output that is not complete is compared with what its program printed.
- `result.txt` and `result_summary.txt`: a score and all twelve phases. The official figures of each are those of the
  other; if only one is there, those that IOR and mdtest printed in the files beside it.
- hpcc: its last line. Darshan logs: the header marks no module as out of memory; official are the bytes of
  `darshan-parser --total`, if that is on PATH.

Aims: at least 95 % of the complete outputs accepted; all accepted ones equal to the official figures, within 0.1 % and
the printed digits. 3,900 files take some minutes on one core.
"""

from __future__ import annotations

import argparse
import atexit
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

from complete_outputs import (
    DARSHAN_3,
    MDTEST_LINES,
    RESULT,
    SCORED_PHASES,
    SHELL_LOG,
    SUMMARY,
    Figure,
    counts_items_not_created,
    figures_of_folder,
    official_figures,
    printed_figures,
    printed_figures_of_folder,
    read_text,
    recognise,
    why_log_incomplete,
    why_phase_incomplete,
    why_run_incomplete,
    why_table_incomplete,
)

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.benchmarks.tables import read_table
from iowatch.benchmarks.tables.maps import load_map
from iowatch.core import InputError, Output
from iowatch.darshan import DarshanReader, read_trace

# Summaries have no time; the value does not matter here.
MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
MAPS = {RESULT: "io500", SUMMARY: "io500-summary", SHELL_LOG: "io500-summary"}
OPERATIONS_OF_MDTEST = {"write": "create", "delete": "remove"}


@dataclass(frozen=True)
class Assessment:
    """What the parsers made of one output.

    Attributes:
        incomplete: why it is not complete; None: it is.
        refusal: reason of the parser; None: accepted.
        compared: number of accepted values with an official figure.
        differences: accepted values that differ from it.
    """

    kind: str
    path: str
    incomplete: str | None
    refusal: str | None
    compared: int = 0
    differences: tuple[str, ...] = ()


def assess_file(path: Path, kinds: Sequence[str]) -> list[Assessment]:
    """Return the assessments of the outputs in a file; none if it is no output of these kinds (empty: of any)."""
    kind = recognise(path)
    if kind is None or (kinds and kind not in kinds):
        return []
    if kind in MAPS:
        return [assess_table(path, kind)]
    if kind == DARSHAN_3:
        return [assess_darshan(path)]
    if kind == "hpcc":
        return [assess_hpcc(path)]
    return assess_runs(path, kind)


def assess_runs(path: Path, tool: str) -> list[Assessment]:
    """Assess a file of IOR or mdtest: of a phase of IO500, or of one or more other runs."""
    text = read_text(path)
    official = figures_of_folder(path.parent)
    phase = path.stem.replace("_", "-")
    first_line = r"^(?=IOR-\d)" if tool == "IOR" else r"^(?=-- started at)"
    runs = re.split(first_line, text, flags=re.MULTILINE)
    # What is before the first run, such as messages of the job script, is read with it.
    runs = ["".join(runs[:2]), *runs[2:]]
    if official:
        incomplete = why_phase_incomplete(tool, phase, runs, official.get(phase))
        figures = {}
        printed = printed_figures(tool, phase, text)
        if incomplete is None:
            figures = {phase.rpartition("-")[2]: official[phase]}
        elif printed:
            figures = {phase.rpartition("-")[2]: printed[0]}
        return [assess_run(path, tool, path.read_bytes(), incomplete, figures)]
    assessments = []
    for run in runs:
        figures = {}
        for operation in MDTEST_LINES:
            printed = printed_figures(tool, operation, run)
            if printed:
                figures[operation] = printed[0]
        assessments.append(assess_run(path, tool, run.encode(), why_run_incomplete(tool, run), figures))
    return assessments


def assess_run(path: Path, tool: str, data: bytes, incomplete: str | None, figures: Mapping[str, Figure]) -> Assessment:
    """Assess one run of IOR or mdtest; `figures` by operation as IO500 names it."""
    output = parse_output(tool.lower(), data, RunContext())
    differences, compared = [], 0
    for operation, figure in figures.items():
        value = accepted_value(output, tool, operation)
        if value is None:
            continue
        compared += 1
        if not figure.equals(value) and not (tool == "mdtest" and is_of_the_row(operation, figure, value, data)):
            differences.append(f"{operation} {value:g}, official {figure.value:g}")
    created = accepted_value(output, tool, "write")
    text = data.decode("utf-8", "replace")
    if tool == "mdtest" and created is not None and counts_items_not_created(text):
        printed = printed_figures(tool, "write", text)
        if any(figure.equals(created) for figure in printed):
            differences.append(f"create {created:g} counts items that were not created")
    return Assessment(tool, str(path), incomplete, refusal(output), compared, tuple(differences))


def is_of_the_row(operation: str, official: Figure, value: float, data: bytes) -> bool:
    """Whether a rate and the official figure are in one row of mdtest.

    Maximum, minimum and mean of 3.3 and 3.4-dev are those over ranks; the official figure is that of the fastest rank.
    """
    figures = printed_figures("mdtest", operation, data.decode("utf-8", "replace"))
    values = [figure.value for figure in figures]
    has_value = any(figure.equals(value) for figure in figures)
    return has_value and any(official.equals(printed) for printed in values)


def refusal(output: Output) -> str | None:
    """Return the reason why an output is not `ok`; None if it is."""
    return None if output.status == "ok" else f"{output.status}: {output.reason}"


def accepted_value(output: Output, tool: str, operation: str) -> float | None:
    """Return the largest accepted sample of an operation; None without one."""
    if output.status != "ok":
        return None
    metric = "bandwidth"
    if tool == "mdtest":
        metric = "rate"
        operation = OPERATIONS_OF_MDTEST.get(operation, operation)
    for result in output.results:
        if result.operation == operation and result.metric == metric:
            return max(result.samples)
    return None


def assess_table(path: Path, kind: str) -> Assessment:
    """Assess a result file of IO500."""
    text = read_text(path)
    printed = official_figures(text)
    official = _figures_of_other_files(path, kind)
    # Where several runs left their files in one folder, only the file itself has its figures.
    is_of_this_run = all(_same_printed(printed[phase], official[phase]) for phase in printed.keys() & official.keys())
    if not is_of_this_run:
        official = printed
    incomplete = why_table_incomplete(kind, text)
    table_map = load_map(MAPS[kind]).with_zone("UTC", None)
    moment = None if kind == RESULT else MOMENT
    try:
        table = read_table(path, table_map, moment=moment)
    except InputError as error:
        return Assessment(kind, str(path), incomplete, error.message.replace(str(path), "FILE"))
    if table.refused:
        return Assessment(kind, str(path), incomplete, table.refused[0].reason)
    if len(table.runs) < len(printed.keys() & SCORED_PHASES):
        return Assessment(kind, str(path), incomplete, f"{len(table.runs)} of {len(printed)} phases were read")
    # Invalid phases are stored as failed, without a value.
    values: dict[str, float] = {}
    for run in table.runs:
        for result in run.output.results:
            values[_phase(str(result.case["test"]), result.operation)] = result.samples[0]
    compared = values.keys() & official.keys()
    differences = []
    for phase in sorted(compared):
        if not official[phase].equals(values[phase], printed[phase].digit):
            differences.append(f"{phase} {values[phase]:g}, official {official[phase].value:g}")
    return Assessment(kind, str(path), incomplete, None, len(compared), tuple(differences))


def _same_printed(first: Figure, second: Figure) -> bool:
    return second.equals(first.value, first.digit)


def _phase(test: str, operation: str) -> str:
    """Return the phase of IO500 that a case is."""
    if test == "find":
        return test
    words = {"create": "write", "remove": "delete"}
    return f"{test}-{words.get(operation, operation)}"


def _figures_of_other_files(path: Path, kind: str) -> dict[str, Figure]:
    """Return the official figures for a result file: of `result.txt` or a summary, else as printed by the programs."""
    twin_name = "result_summary.txt" if kind == RESULT else "result.txt"
    twin = path.with_name(twin_name)
    if twin.is_file():
        return official_figures(read_text(twin))
    return printed_figures_of_folder(path.parent)


def assess_hpcc(path: Path) -> Assessment:
    """Assess an output of hpcc."""
    text = read_text(path)
    incomplete = None if "End of HPC Challenge tests." in text else "no last line"
    return Assessment("hpcc", str(path), incomplete, refusal(parse_output("hpcc", path.read_bytes(), RunContext())))


def assess_darshan(path: Path) -> Assessment:
    """Assess a Darshan log: bytes of each module against `darshan-parser --total`."""
    incomplete = why_log_incomplete(path)
    try:
        trace = read_trace(path, darshan_reader())
    except InputError as error:
        return Assessment(DARSHAN_3, str(path), incomplete, str(error).replace(str(path), "FILE"))
    reason = None if trace.status == "ok" else f"{trace.status}: {trace.reason}"
    differences, compared = [], 0
    for counter, total in darshan_totals(path).items():
        value = trace.figure(counter)
        if value is None:
            continue
        compared += 1
        if value != total:
            differences.append(f"{counter} {value:.0f}, darshan-parser {total}")
    return Assessment(DARSHAN_3, str(path), incomplete, reason, compared, tuple(differences))


@lru_cache(maxsize=1)
def darshan_reader() -> DarshanReader:
    """Return the reader of this process, which starts a worker at the first log."""
    reader = DarshanReader()
    atexit.register(reader.close)
    return reader


def darshan_totals(path: Path) -> dict[str, int]:
    """Return the bytes that `darshan-parser --total` counts; empty without the program."""
    if shutil.which("darshan-parser") is None:
        return {}
    command = ["darshan-parser", "--total", "--show-incomplete", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    pattern = r"^total_((?:POSIX|MPIIO|STDIO)_BYTES_(?:READ|WRITTEN)): (-?\d+)$"
    return {name: int(number) for name, number in re.findall(pattern, text, re.MULTILINE)}


def print_table(assessments: Sequence[Assessment]) -> None:
    """Print one row of Markdown per kind."""
    print("| kind | outputs | complete | accepted | complete and accepted | compared | equal | differ |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, members in by_kind(assessments):
        complete = [item for item in members if item.incomplete is None]
        accepted = [item for item in members if item.refusal is None]
        complete_and_accepted = [item for item in complete if item.refusal is None]
        compared = [item for item in accepted if item.compared]
        equal = [item for item in compared if not item.differences]
        differing = [item for item in members if item.differences]
        share = f"{len(complete_and_accepted)} ({100 * len(complete_and_accepted) / max(1, len(complete)):.1f} %)"
        numbers = (len(members), len(complete), len(accepted), share, len(compared), len(equal), len(differing))
        print(f"| {kind} | " + " | ".join(map(str, numbers)) + " |")


def by_kind(assessments: Iterable[Assessment]) -> Iterator[tuple[str, list[Assessment]]]:
    """Yield each kind and its assessments, in order of their names."""
    groups: dict[str, list[Assessment]] = defaultdict(list)
    for assessment in assessments:
        groups[assessment.kind].append(assessment)
    yield from sorted(groups.items())


def print_reasons(assessments: Sequence[Assessment]) -> None:
    """Print, of each kind, why outputs are not complete, why complete ones are refused, and what differs."""
    for kind, members in by_kind(assessments):
        not_complete = [(item.incomplete, item) for item in members if item.incomplete is not None]
        refused = [(item.refusal, item) for item in members if item.incomplete is None and item.refusal is not None]
        differing = [(text, item) for item in members for text in item.differences]
        for title, group in (("not complete", not_complete), ("complete, refused", refused), ("differ", differing)):
            if group:
                print(f"\n{kind}: {title}")
                print_counts([(str(reason), item) for reason, item in group])


def print_counts(reasons: Sequence[tuple[str, Assessment]]) -> None:
    """Print equal reasons, whatever their numbers and quoted lines, with their number and the first file."""
    counts: Counter[str] = Counter()
    examples: dict[str, tuple[str, str]] = {}
    for reason, assessment in reasons:
        general = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'…'", reason))[:110]
        counts[general] += 1
        examples.setdefault(general, (reason, assessment.path))
    for general, count in counts.most_common():
        reason, path = examples[general]
        print(f"{count:6}  {reason[:240]}\n        {path}")


def print_paths(assessments: Sequence[Assessment]) -> None:
    """Print each output that is refused or differs."""
    print()
    for item in assessments:
        if item.refusal is not None or item.differences:
            completeness = item.incomplete or "complete"
            print(f"{item.kind}\t{item.path}\t{completeness}\t{item.refusal or '; '.join(item.differences)}")


def main() -> None:
    """Assess the folders of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--paths", action="store_true", help="list all outputs that are refused or differ")
    parser.add_argument("--kind", action="append", default=[], help="only outputs of this kind; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default 1)")
    arguments = parser.parse_args()
    for folder in arguments.folder:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
        with ProcessPoolExecutor(arguments.jobs) as pool:
            assessed_files = list(pool.map(partial(assess_file, kinds=arguments.kind), files, chunksize=16))
        assessments = [assessment for assessments_of_file in assessed_files for assessment in assessments_of_file]
        print(f"\n{folder.name}: {len(assessments)} outputs\n")
        print_table(assessments)
        print_reasons(assessments)
        if arguments.paths:
            print_paths(assessments)


if __name__ == "__main__":
    main()
