"""Output of IOR, as text or JSON, before validation. Source: hpc/ior 3.0.1 to 4.1, `ior-output.c`.

Rows of the text are left-justified in fixed columns with a precision that follows from the value (`PPDouble`), so a
missing or additional character is detected. JSON is read line by line, because `-v` and warnings make it invalid.
Versions 3.2 and 3.3 nest the repetitions, later ones do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from iowatch.benchmarks.ior_command import OPERATIONS, IorCommand
from iowatch.benchmarks.parsing import MAX_NAMES, MAX_ROWS

# Sizes in KiB as repeated in the rows, kept among the options.
ROW_SIZES = "block(KiB)", "xfer(KiB)"

# No script has more tests; limits memory.
_MAX_TESTS = 10_000


class IorRow(NamedTuple):
    """One repetition in MiB/s, 1/s (None before 3.3) and seconds."""

    bandwidth: float
    rate: float | None
    open_time: float
    transfer_time: float
    close_time: float
    time: float


class IorSummary(NamedTuple):
    """Summary of the bandwidth of one operation, in MiB/s; `half_unit` is half a unit of its last digit."""

    max: float
    min: float
    mean: float
    half_unit: float


def table_half_unit(value: float) -> float:
    """Return half a unit (or more) of the last digit of a number in IOR's table (`PPDouble`)."""
    if value >= 3600:
        return 0.5
    if value >= 1:
        return 0.005
    return 0.0000005


@dataclass
class IorTest:
    """One test.

    Attributes:
        options: as printed under `Options`, keys of version 3.2 and later.
        exact: parameters that are printed exactly elsewhere (summary, JSON's parameters): `transfer`, `block`,
            `segments`, `tasks`, `per_node`, `repetitions`, `fsync`.
        rows: operation -> iteration -> numbers; count: number of all rows.
        half_unit: a printed number -> half a unit of its last digit.
        moved: (operation, iteration) -> bytes, if IOR reported other than the requested ones.
        summaries: operation -> summary, if it is complete.
        contradictions: names of options that were printed twice with different values.
        summary_api: interface as the summary names it.
        old: printed by version 3.0 or 3.1, which omit some options and count large sizes in GiB.
    """

    options: dict[str, str] = field(default_factory=dict)
    exact: dict[str, int] = field(default_factory=dict)
    rows: dict[str, dict[int, IorRow]] = field(default_factory=lambda: {name: {} for name in OPERATIONS})
    count: int = 0
    half_unit: Callable[[float], float] = table_half_unit
    moved: dict[tuple[str, int], int] = field(default_factory=dict)
    summaries: dict[str, IorSummary] = field(default_factory=dict)
    contradictions: set[str] = field(default_factory=set)
    summary_api: str | None = None
    old: bool = False

    def set_option(self, name: str, value: str) -> None:
        """Record an option."""
        if len(self.options) > MAX_NAMES:
            self.contradictions.add("too many options")
        elif self.options.setdefault(name, value) != value:
            self.contradictions.add(name)

    def set_exact(self, name: str, value: int) -> None:
        """Record an exact parameter."""
        if self.exact.setdefault(name, value) != value:
            self.contradictions.add(name)

    def set_summary(
        self, operation: str, numbers: list[str], half_unit: float, exact: Mapping[str, str], values: Mapping[str, str]
    ) -> None:
        """Record a summary: maximum, minimum and mean, and the exact parameters (column -> name) among its values."""
        high, low, mean = map(float, numbers)
        self.summaries[operation] = IorSummary(high, low, mean, half_unit)
        self.summary_api = values.get("API", self.summary_api)
        for column, name in exact.items():
            if is_count(values.get(column, "")):
                self.set_exact(name, int(values[column]))

    def add(self, operation: str, iteration: int, row: IorRow) -> bool:
        """Add a row; return False if the repetition already exists or there are too many rows."""
        rows = self.rows[operation]
        if iteration in rows or self.count >= MAX_ROWS:
            return False
        rows[iteration] = row
        self.count += 1
        return True


@dataclass
class IorRun:
    """One output.

    Attributes:
        unassigned: content printed before the first test, or under a damaged number.
        titles: number of run starts; more than one: two runs wrote to one output.
        ends: number of runs that reported their end.
        damaged: rows that are incomplete or duplicated.
        unreal: rows with inf, nan or negative numbers.
        short_file: IOR's report that a file has fewer bytes than were written.
        is_whole_text: text whose last line is complete.
        hints: `passed` to and `returned` from MPI-IO -> key -> value, if `showHints` printed them.
    """

    version: str | None = None
    command: IorCommand | None = None
    tests: dict[int, IorTest] = field(default_factory=dict)
    unassigned: IorTest = field(default_factory=IorTest)
    titles: int = 0
    ends: int = 0
    damaged: int = 0
    unreal: int = 0
    short_file: str | None = None
    is_whole_text: bool = False
    hints: dict[str, dict[str, str]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_without_summary(self) -> bool:
        """Whether this is IOR as part of another program (`ior_run`): its rows are the last that it prints.

        A program of IOR prints the same up to its summary, so all requested rows have to be there.
        """
        if not self.is_whole_text or self.ends or self.command is None or self.command.is_scripted:
            return False
        return list(self.tests) == [0] and not self.tests[0].summaries

    def begin_test(self, number: int, old: bool = False) -> IorTest:
        """Begin and return the test with this number; `unassigned` if there are too many tests."""
        if len(self.tests) >= _MAX_TESTS and number not in self.tests:
            self.damaged += 1
            return self.unassigned
        return self.tests.setdefault(number, IorTest(old=old))

    def find_test(self, number: str) -> IorTest | None:
        """Return the test that a summary names; an unknown number marks it as damaged."""
        test = self.tests.get(int(number)) if is_count(number) else None
        self.damaged += test is None
        return test

    def add_warning(self, line: str) -> None:
        """Keep a line if it is a warning of IOR, up to a limit."""
        if _WARNING.match(line) and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(line)

    def set_command(self, command: IorCommand) -> None:
        """Record the command line; a second one belongs to another run."""
        if self.command is not None and self.command != command:
            self.titles += 1
        self.command = command


def is_count(text: str) -> bool:
    """Return whether a text is a plausible whole number (less than 10^18)."""
    return len(text) <= 18 and text.isascii() and text.isdecimal()


_TITLE = re.compile(r"IOR-(\S+): MPI Coordinated Test of Parallel I/O")
# Words with single or several blanks between them, and none at the end.
_OPTION_NAME = "[A-Za-z](?:[A-Za-z ]*[A-Za-z])?"
_OPTION = re.compile(rf"({_OPTION_NAME}) *: ?(.*)")
_OLD_OPTION = re.compile(rf"\s+({_OPTION_NAME}) *= ?(.*)")
_OLD_TEST = re.compile(r"Test (\d+) started: (.*)")
# Option of 3.0 and 3.1 -> its value, and the equivalent options of later versions.
_OLD_OPTIONS = {
    "clients": (re.compile(r"(\d+) \((\d+) per node\)"), ("tasks", "clients per node")),
    "access": (re.compile(r"(.*?)(?:, (.*))?"), ("access", "type")),
    "ordering in a file": (re.compile(r"(.*?)(?: offsets)?"), ("ordering in a file",)),
    "ordering inter file": (re.compile(r"(no tasks offsets|\w+ task offset).*"), ("ordering inter file",)),
    "Using stonewalling": (re.compile(r"(\d+) second\(s\)"), ("stonewallingTime",)),
}

# Output of `PPDouble`: six decimals below 1, two below 3,600, then none.
_NUMBER = (
    r"0\.\d{6}|[1-9]\d{0,2}\.\d\d|[4-9]\d{3}|[1-9]\d{4,17}|3[6-9]\d\d"
    r"|[12]\d{3}\.\d\d|3[0-5]\d\d\.\d\d|3600\.00|1\.000000"
)
_FIELD = rf"({_NUMBER}) +"
# Columns of a row: ten characters and a blank each, two blanks after the latency.
_LAYOUT = "%-10s%-10s %-10s %-10s  %-10s %-10s %-10s %-10s %-10s %-10s %s"
_OLD_LAYOUT = "%-10s%-10s %-10s %-10s %-10s %-10s %-10s %-10s %s"
# before 3.3: no IOPS and no latency
_ROW = re.compile(rf"(write|read) +{_FIELD}(?:{_FIELD}{_FIELD})?{_FIELD * 6}(\d+)")
_DAMAGED_ROW = re.compile(r"(?:write|read) +(?:[-+.\d]|inf|nan)")
_UNREAL = re.compile(r"(?<![^\s])-?(?:inf|nan)\b|(?<![^\s])-(?:\d|(?= ))", re.IGNORECASE)
_SIZE_WARNING = re.compile(r"(?:ior )?WARNING: (Expected|Stat\(\) of|Using actual) aggregate .*?= (\d{1,19})\b")
_WARNING = re.compile(r"(?:ior )?WARNING: ")
_HINTS = re.compile(r"hints (passed|returned) (?:to|from) [\w ()]+ \{")
_HINT = re.compile(r"\t(\w+) =(?: (.*))?")
_DECIMAL = re.compile(r"\d+\.\d\d")
_MOST_WARNINGS = 20
# Of the numbers in the summary, which have two decimals.
_SUMMARY_HALF_UNIT = 0.005

_FACTS = {"Began": "began", "Machine": "machine", "Path": "path", "apiVersion": "api_version"}


class IorTextReader:
    """Fills an `IorRun` from the lines of a default output."""

    def __init__(self, run: IorRun) -> None:
        self._run = run
        self._test = run.unassigned
        self._inside = ""
        self._columns: list[str] = []
        self._sizes: dict[str, int] = {}
        self._shown = ("", "")
        self._hints: dict[str, str] | None = None

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        word = line[:5]
        if self._hints is not None:
            self._read_hint(line)
        elif self._inside == "rows" and word in ("write", "read "):
            if self._test.count < MAX_ROWS:
                self._read_row(line)
        elif self._inside == "summary" and word in ("write", "read "):
            self._read_summary(line)
        elif "WARNING" in line[:12]:
            if (size := _SIZE_WARNING.match(line)) is not None:
                self._sizes[size[1]] = int(size[2])
            else:
                if "inconsistent file size by different tasks" in line:
                    self._sizes["inconsistent"] = 1
                self._run.add_warning(line)
        elif word in _HEADS:
            self._read_head(line)
        elif self._inside == "options" or line[0] == "\t":
            self._read_option(line)

    def _read_head(self, line: str) -> None:
        """Parse a line that begins or ends a run, a test or a section."""
        run, (name, _, value) = self._run, line.partition(":")
        if (shown := _HINTS.fullmatch(line)) is not None:
            self._hints = run.hints.setdefault(shown[1], {})
        elif (title := _TITLE.match(line)) is not None:
            run.titles += 1
            run.version = title[1]
        elif name.strip() in _FACTS:
            run.facts.setdefault(_FACTS[name.strip()], value.strip())
        elif line.startswith("Comma"):
            run.set_command(IorCommand.read(value))
        elif line.startswith("Test"):
            self._begin_test(line)
        elif line.startswith("Operation ") and self._inside == "summary":
            self._columns = line.split()
        elif line.startswith(("Finished  ", "Finished:")):
            run.ends += 1
            self._inside = ""
        elif line.startswith("Writing output to "):
            run.facts["written_to"] = line[len("Writing output to ") :].strip()
        elif line in ("Options:", "Summary:"):
            self._inside = "options"
        elif (section := next((begun for text, begun in _SECTIONS.items() if line.startswith(text)), None)) is not None:
            self._inside = section
        elif line.startswith("acces") and self._inside == "options":
            self._read_option(line)

    def _read_hint(self, line: str) -> None:
        """Parse a line of the hints of an open file; any other ends them."""
        match, hints = _HINT.fullmatch(line), self._hints
        if match is None or hints is None:
            self._hints = None
            self._run.damaged += _HINTS.fullmatch(line) is not None
        elif len(hints) < MAX_NAMES:
            value = match[2] or ""
            self._run.damaged += hints.setdefault(match[1], value) != value

    def _begin_test(self, line: str) -> None:
        """Begin the test of a title line; without a readable number what follows belongs to no test."""
        old = _OLD_TEST.match(line)
        number = old[1] if old else line.rpartition(" ")[2]
        self._inside, self._shown = "", ("", "")
        if is_count(number):
            self._test = self._run.begin_test(int(number), old is not None)
        else:
            self._run.damaged += 1
            self._test = self._run.unassigned

    def _read_option(self, line: str) -> None:
        """Record a line `NAME : VALUE`: an option of the test, in the form of new or old versions, or a fact."""
        indented = line[0] in "\t "  # blanks: tabs that an editor or terminal expanded
        match = (_OLD_OPTION if indented else _OPTION).fullmatch(line)
        if match is None:
            return
        name, value = match[1], match[2].strip()
        if indented and name in _OLD_OPTIONS and (old := _OLD_OPTIONS[name][0].fullmatch(value)) is not None:
            for option, text in zip(_OLD_OPTIONS[name][1], old.groups(), strict=True):
                if text is not None:
                    self._test.set_option(option, text)
        elif not indented and name in _FACTS:
            self._run.facts.setdefault(_FACTS[name], value)
        else:
            self._test.set_option(name, value)

    def _read_row(self, line: str) -> None:
        """Record a row of the table with the sizes that it and the warnings before it state, or count it as damaged."""
        match = _ROW.fullmatch(line)
        sizes, self._sizes = self._sizes, {}
        if match is None:
            if _DAMAGED_ROW.match(line) is None:
                return
            if _UNREAL.search(line):
                self._run.unreal += 1
            else:
                self._run.damaged += 1
            return
        cells = match.groups()
        operation, bandwidth, rate, _latency, block, transfer, *times, iteration = cells
        # Printed again, the row has to be the same: a lost or an added character moves a column.
        printed_again = _LAYOUT % cells if rate is not None else _OLD_LAYOUT % (*cells[:2], *cells[4:])
        if line != printed_again:
            self._run.damaged += 1
            return
        row = IorRow(float(bandwidth), None if rate is None else float(rate), *map(float, times))
        if not self._test.add(operation, int(iteration), row):
            self._run.damaged += 1
            return
        if self._shown != (block, transfer):
            self._shown = block, transfer
            for name, size in zip(ROW_SIZES, self._shown, strict=True):
                self._test.set_option(name, size)
        self._record_size_warnings(operation, int(iteration), sizes)

    def _record_size_warnings(self, operation: str, iteration: int, sizes: Mapping[str, int]) -> None:
        """Record the bytes that a row moved, and whether the file is too short, from the warnings before the row."""
        moved = sizes.get("Using actual")
        if moved is None:
            return
        self._test.moved[operation, iteration] = moved
        file_bytes = sizes.get("Stat() of", moved)
        # Where tasks see different sizes, as on file systems that publish them late, IOR takes the smallest.
        # With -F given twice it takes the size of one file.
        is_of_all_files = self._run.command is None or self._run.command.line.count("F") < 2
        if file_bytes < moved and is_of_all_files and "inconsistent" not in sizes:
            self._run.short_file = f"the file has {file_bytes} bytes but {moved} were transferred"

    def _read_summary(self, line: str) -> None:
        """Record the summary of an operation; one that is not printed whole is left out."""
        words = line.split()
        surplus = len(words) - len(self._columns)
        if surplus > 0 and self._columns[-2:] == ["API", "RefNum"]:
            # The name of an interface may have blanks: `HDF5-1.8.14 (Parallel)`.
            words[-2 - surplus : -1] = [" ".join(words[-2 - surplus : -1])]
        values = dict(zip(reversed(self._columns), reversed(words), strict=False))
        numbers = [values.get(name, "") for name in ("Max(MiB)", "Min(MiB)", "Mean(MiB)")]
        columns_whole = len(words) == len(self._columns) and set(self._columns) >= _SUMMARY_COLUMNS
        if not columns_whole or not all(map(_DECIMAL.fullmatch, numbers)):
            return
        test = self._run.find_test(values.get("Test#", ""))
        if test is None:
            return
        test.set_summary(words[0], numbers, _SUMMARY_HALF_UNIT, _SUMMARY_EXACT, values)
        # A flag that is given twice counts as 2.
        test.set_option("access", "single-shared-file" if values["fPP"] == "0" else "file-per-process")


# Columns of the summary that are exact -> names in `IorTest.exact`.
_SUMMARY_EXACT = {
    "#Tasks": "tasks",
    "tPN": "per_node",
    "reps": "repetitions",
    "segcnt": "segments",
    "blksiz": "block",
    "xsize": "transfer",
}
_SUMMARY_COLUMNS = {*_SUMMARY_EXACT, "API", "fPP"}
# First five characters of the lines that begin or end something.
_HEADS = {
    "Began",
    "Comma",
    "Finis",
    "IOR-3",
    "IOR-4",
    "Machi",
    "Max R",
    "Max W",
    "Opera",
    "Optio",
    "Path ",
    "Summa",
    "Test ",
    "TestI",
    "Writi",
    "acces",
    "hints",
}
# Beginning of a line -> the section that starts there.
_SECTIONS = {"Summary of all tests:": "summary", "access    bw(MiB/s)": "rows", "Max Write:": "", "Max Read:": ""}


_PAIR = re.compile(r'"([^"]+)" ?: ("[^"]*"|[^",{}\[\]]+)')
_JSON_NUMBER = re.compile(r"\d{1,15}\.\d{4}")
_NUMBERS = re.compile(rf"(?:{_JSON_NUMBER.pattern} )+")
_NOT_FINITE = re.compile(r"(?:^| )-*(?:inf|nan)")
_SECTION = re.compile(r'"(Parameters|Options|Results|max|summary)": ')
_ROW_START_KEYS = frozenset(("access", "operation", "Finished"))
_TIMES = ("openTime", "wrRdTime", "closeTime", "totalTime")
_ROW_KEYS = ("access", "bwMiB", "blockKiB", "xferKiB", "iops", "latency", *_TIMES)
# before 3.3
_OLD_ROW_KEYS = tuple(key for key in _ROW_KEYS if key not in ("iops", "latency"))
# Members of `Parameters` and of a summary -> names in `IorTest.exact`.
_PARAMETERS = {
    "tasksPerNode": "per_node",
    "repetitions": "repetitions",
    "fsync": "fsync",
    "segmentCount": "segments",
    "transferSize": "transfer",
    "blockSize": "block",
}
_SUMMARY = {
    "segmentCount": "segments",
    "blockSize": "block",
    "transferSize": "transfer",
    "numTasks": "tasks",
    "tasksPerNode": "per_node",
    "repetitions": "repetitions",
}
# Half a unit of the last digit: all numbers in rows have four decimals.
_JSON_HALF_UNIT = 0.00005


class IorJsonReader:
    """Fills an `IorRun` from the lines of a JSON output."""

    def __init__(self, run: IorRun) -> None:
        self._run = run
        self._test = run.unassigned
        self._section = ""
        self._object: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        line = line.strip()
        if line[-1] in "{[" and (section := _SECTION.match(line)) is not None:
            self._close()
            self._section = section[1]
            return
        for key, value in _PAIR.findall(line):
            self._take(key, value[1:-1] if value[0] == '"' else value.rstrip())
        if line.startswith("}"):
            self._close()

    def _take(self, key: str, text: str) -> None:
        """Handle a member of the JSON document: its name decides which part of the output begins or continues."""
        if self._object and key not in _ROW_START_KEYS:
            self._object.append((key, text))
        elif key == "Finished":
            self._close()
            self._run.ends += 1
        elif key in ("access", "operation") and self._section in ("Results", "summary"):
            self._close()
            self._object = [(key, text)]
        elif key == "TestID":
            if is_count(text):
                self._section, self._counts = "", {}
                self._test = self._run.begin_test(int(text))
                self._test.half_unit = lambda _value: _JSON_HALF_UNIT
        elif key == "Version":
            self._run.titles += 1
            self._run.version = text
        elif key == "Command line":
            self._run.set_command(IorCommand.read(text))
        elif key in _FACTS:
            self._run.facts.setdefault(_FACTS[key], text)
        elif self._section == "Parameters" and key in _PARAMETERS and is_count(text):
            self._test.set_exact(_PARAMETERS[key], int(text))
        elif self._section == "Options":
            self._test.set_option(key, text)

    def finish(self) -> None:
        """Finish after the last line: parameters that were not printed exactly are missing."""
        for test in self._run.tests.values():
            if not set(_PARAMETERS.values()) <= test.exact.keys():
                test.contradictions.add("Parameters")

    def _close(self) -> None:
        """Handle the end of a row or of one operation's summary."""
        pairs, self._object = self._object, []
        if pairs and self._section == "summary":
            self._close_summary(dict(pairs))
        elif pairs and pairs[0][1] in OPERATIONS:
            self._close_row(pairs)

    def _close_row(self, pairs: list[tuple[str, str]]) -> None:
        """Record a row, or count it as damaged: its members are not those of the version, or no numbers."""
        operation = pairs[0][1]
        iteration = self._counts.get(operation, 0)
        self._counts[operation] = iteration + 1
        keys, (_, *values) = zip(*pairs, strict=True)
        numbers = "".join([f"{value} " for value in values])
        old = (self._run.version or "").startswith("3.2")
        if _NOT_FINITE.search(numbers):
            self._run.unreal += 1
        elif keys != (_OLD_ROW_KEYS if old else _ROW_KEYS) or not _NUMBERS.fullmatch(numbers):
            self._run.damaged += 1
        else:
            text = dict(pairs)
            times = [float(text[key]) for key in _TIMES]
            row = IorRow(float(text["bwMiB"]), None if old else float(text["iops"]), *times)
            self._run.damaged += not self._test.add(operation, iteration, row)

    def _close_summary(self, values: dict[str, str]) -> None:
        """Record the summary of an operation; one without its three numbers is left out."""
        numbers = [values.get(key, "") for key in ("bwMaxMIB", "bwMinMIB", "bwMeanMIB")]
        if values.get("operation") not in OPERATIONS:
            return
        test = self._run.find_test(values.get("TestID", ""))
        if test is None:
            return
        if all(map(_JSON_NUMBER.fullmatch, numbers)):
            test.set_summary(values["operation"], numbers, _JSON_HALF_UNIT, _SUMMARY, values)
