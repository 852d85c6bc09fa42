"""IOR's default output: a table of rows and a summary, versions 3.0 to 4.1.

Rows are left-justified in fixed columns with a precision that follows from the value (`PPDouble`), so that a
character that was lost or added shows.
"""

from __future__ import annotations

import re

from iowatch.parsers.draft import MOST_ROWS
from iowatch.parsers.ior_run import (
    ROW_BLOCK,
    ROW_TRANSFER,
    CommandLine,
    Row,
    Run,
    Summary,
    Test,
    is_count,
)

_TITLE = re.compile(r"IOR-(\S+): MPI Coordinated Test of Parallel I/O")
_OPTION = re.compile(r"([A-Za-z][A-Za-z ]*?) *: ?(.*)")
_OLD_OPTION = re.compile(r"\s+([A-Za-z][A-Za-z ]*?) *= ?(.*)")
_OLD_TEST = re.compile(r"Test (\d+) started: (.*)")
_OLD_CLIENTS = re.compile(r"(\d+) \((\d+) per node\)")
_OLD_ORDER = {"sequential offsets": "sequential", "random offsets": "random"}

# What `PPDouble` prints: six decimals below 1, two below 3,600, then none.
_NUMBER = (
    r"0\.\d{6}|[1-9]\d{0,2}\.\d\d|[4-9]\d{3}|[1-9]\d{4,17}|3[6-9]\d\d"
    r"|[12]\d{3}\.\d\d|3[0-5]\d\d\.\d\d|3600\.00|1\.000000"
)
_FIELD = rf"({_NUMBER}) +"
# Columns of a row: ten characters and a blank each, two blanks behind the latency.
_LAYOUT = "%-10s%-10s %-10s %-10s  %-10s %-10s %-10s %-10s %-10s %-10s %s"
_OLD_LAYOUT = "%-10s%-10s %-10s %-10s %-10s %-10s %-10s %-10s %s"
# before 3.3: no IOPS and no latency
_ROW = re.compile(rf"(write|read) +{_FIELD}(?:{_FIELD}{_FIELD})?{_FIELD * 6}(\d+)")
_LIKE_ROW = re.compile(r"(?:write|read) +(?:[-+.\d]|inf|nan)")
_UNREAL = re.compile(r"(?<![^\s])-?(?:inf|nan)\b|(?<![^\s])-(?:\d|(?= ))", re.IGNORECASE)
_SIZE_WARNING = re.compile(r"(?:ior )?WARNING: (Expected|Stat\(\)|Using actual) aggregate .*?= (\d{1,18})\b")
_WARNING = re.compile(r"(?:ior )?WARNING: ")
_DECIMAL = re.compile(r"\d+\.\d\d")
_MOST_WARNINGS = 20

_FACTS = {"Began": "began", "Machine": "machine", "Path": "path", "apiVersion": "api_version"}


class TextReader:
    """Fills a `Run` from the lines of a default output."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._test = run.nobodys
        self._inside = ""
        self._columns: list[str] = []
        self._sizes: dict[str, int] = {}
        self._shown = ("", "")
        self._old = False

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        word = line[:5]
        if self._inside == "rows" and word in ("write", "read "):
            if self._test.count < MOST_ROWS:
                self._read_row(line)
        elif self._inside == "summary" and word in ("write", "read "):
            self._read_summary(line)
        elif "WARNING" in line[:12]:
            self._read_warning(line)
        elif (start := _STARTS.get(word)) is not None:
            start(self, line)
        elif self._inside == "options" or line[0] == "\t":
            self._read_option(line)

    def _begin(self, line: str) -> None:
        title = _TITLE.match(line)
        if title is not None:
            self._run.titles += 1
            self._run.version = title[1]

    def _name(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name.strip() in _FACTS:
            self._run.facts.setdefault(_FACTS[name.strip()], value.strip())

    def _command(self, line: str) -> None:
        self._run.set_command(CommandLine.read(line.partition(":")[2]))

    def _begin_test(self, line: str) -> None:
        old = _OLD_TEST.match(line)
        number = old[1] if old else line.rpartition(" ")[2]
        self._inside, self._shown = "", ("", "")
        if is_count(number):
            self._old = old is not None
            self._test = self._run.begin_test(int(number), self._old)
        else:
            self._run.damaged += 1
            self._test = self._run.nobodys

    def _begin_options(self, line: str) -> None:
        if line in ("Options:", "Summary:"):
            self._inside = "options"
        elif line.startswith("Summary of all tests:"):
            self._inside = "summary"

    def _begin_rows(self, line: str) -> None:
        if line.startswith("access    bw(MiB/s)"):
            self._inside = "rows"
        elif self._inside == "options":
            self._read_option(line)

    def _header(self, line: str) -> None:
        if line.startswith("Operation ") and self._inside == "summary":
            self._columns = line.split()

    def _max(self, line: str) -> None:
        if line.startswith(("Max Write:", "Max Read:")):
            self._inside = ""

    def _finish(self, line: str) -> None:
        if line.startswith(("Finished  ", "Finished:")):
            self._run.ends += 1
            self._inside = ""

    def _elsewhere(self, line: str) -> None:
        if line.startswith("Writing output to "):
            self._run.facts["written_to"] = line[len("Writing output to ") :].strip()

    def _read_option(self, line: str) -> None:
        match = _OLD_OPTION.fullmatch(line) if line[0] == "\t" else _OPTION.fullmatch(line)
        if match is None:
            return
        name, value = match[1], match[2].strip()
        if line[0] == "\t":
            self._read_old_option(name, value)
        elif name in _FACTS:
            self._run.facts.setdefault(_FACTS[name], value)
        else:
            self._test.set_option(name, value)

    def _read_old_option(self, name: str, value: str) -> None:
        if name == "clients" and (clients := _OLD_CLIENTS.fullmatch(value)):
            self._test.set_option("tasks", clients[1])
            self._test.set_option("clients per node", clients[2])
        elif name == "access":
            access, _, kind = value.partition(", ")
            self._test.set_option("access", access)
            if kind:
                self._test.set_option("type", kind)
        elif name == "ordering in a file":
            self._test.set_option(name, _OLD_ORDER.get(value, value))
        elif name == "ordering inter file":
            words = re.match(r"\w+ tasks? offsets?", value)
            self._test.set_option(name, words[0].replace("task offsets", "task offset") if words else value)
        else:
            self._test.set_option(name, value)

    def _read_warning(self, line: str) -> None:
        size = _SIZE_WARNING.match(line)
        if size is not None:
            self._sizes[size[1]] = int(size[2])
        elif _WARNING.match(line) and len(self._run.warnings) < _MOST_WARNINGS:
            self._run.warnings.append(line)

    def _read_row(self, line: str) -> None:
        match = _ROW.fullmatch(line)
        sizes, self._sizes = self._sizes, {}
        if match is None:
            self._blame(line)
            return
        cells = match.groups()
        operation, bandwidth, rate, _latency, block, transfer, *times, iteration = cells
        old = rate is None
        if line != (_OLD_LAYOUT % (*cells[:2], *cells[4:]) if old else _LAYOUT % cells):
            self._run.damaged += 1
            return
        row = Row(float(bandwidth), None if old else float(rate), *map(float, times))
        if not self._test.add(operation, int(iteration), row):
            self._run.damaged += 1
            return
        if self._shown != (block, transfer):
            self._shown = block, transfer
            self._test.set_option(ROW_BLOCK, block)
            self._test.set_option(ROW_TRANSFER, transfer)
        if sizes:
            self._take_sizes(operation, int(iteration), sizes)

    def _take_sizes(self, operation: str, iteration: int, sizes: dict[str, int]) -> None:
        """What warnings in front of a row said about the file."""
        if "Using actual" in sizes:
            self._test.moved[operation, iteration] = sizes["Using actual"]
        self._check_file(sizes)

    def _check_file(self, sizes: dict[str, int]) -> None:
        found, moved = sizes.get("Stat()"), sizes.get("Using actual")
        if found is not None and moved is not None and found < moved:
            self._run.short_file = f"the file holds {found} bytes although {moved} were moved"

    def _blame(self, line: str) -> None:
        if _LIKE_ROW.match(line):
            if _UNREAL.search(line):
                self._run.unreal += 1
            else:
                self._run.damaged += 1

    def _read_summary(self, line: str) -> None:
        values = dict(zip(reversed(self._columns), reversed(line.split()), strict=False))
        numbers = [values.get(name, "") for name in ("Max(MiB)", "Min(MiB)", "Mean(MiB)")]
        test = values.get("Test#", "")
        columns_whole = len(line.split()) == len(self._columns) and set(self._columns) >= _SUMMARY_COLUMNS
        if not columns_whole or not all(map(_DECIMAL.fullmatch, numbers)):
            return
        if is_count(test) and int(test) in self._run.tests:
            self._add_summary(self._run.tests[int(test)], line.split()[0], numbers, values)
        else:
            self._run.damaged += 1

    def _add_summary(self, test: Test, operation: str, numbers: list[str], values: dict[str, str]) -> None:
        high, low, mean = map(float, numbers)
        test.summaries[operation] = Summary(high, low, mean, 0.005)
        for column, name in _SUMMARY_EXACT.items():
            if is_count(values[column]):
                test.set_exact(name, int(values[column]))
        if not self._old:
            test.set_option("api", values["API"])
        test.set_option("access", "file-per-process" if values["fPP"] == "1" else "single-shared-file")


_SUMMARY_EXACT = {
    **{"#Tasks": "tasks", "tPN": "per_node", "reps": "repetitions"},
    **{"segcnt": "segments", "blksiz": "block", "xsize": "transfer"},
}
_SUMMARY_COLUMNS = {*_SUMMARY_EXACT, "API", "fPP"}
_STARTS = {
    "IOR-3": TextReader._begin,
    "IOR-4": TextReader._begin,
    "Began": TextReader._name,
    "Machi": TextReader._name,
    "Path ": TextReader._name,
    "Comma": TextReader._command,
    "TestI": TextReader._begin_test,
    "Test ": TextReader._begin_test,
    "Optio": TextReader._begin_options,
    "Summa": TextReader._begin_options,
    "acces": TextReader._begin_rows,
    "Opera": TextReader._header,
    "Max W": TextReader._max,
    "Max R": TextReader._max,
    "Finis": TextReader._finish,
    "Writi": TextReader._elsewhere,
}
