"""Output of mdtest: the tables of rates and times that versions 1.9 to 4.1 print, and the lines of iterations (`-v`).

`mdtest_tables.py` says what the tables are computed over. A sample is the rate of one iteration: all items by the time
of the slowest rank. Tables over iterations have those of the fastest and of the slowest one; tables over ranks have it
if there is one iteration. Otherwise only the lines of iterations have them. The statistics themselves are facts.
Source: hpc/ior and MDTEST-LANL/mdtest, `mdtest.c`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from iowatch.benchmarks import parsing
from iowatch.benchmarks.command_line import CommandLine, CommandLineSyntax, read_command_line
from iowatch.benchmarks.mdtest_tables import Statistics, SummaryTable, statistics_fault
from iowatch.benchmarks.printed_table import read_column_heads

# Operations in the order printed; `Directory rename` since version 4.
_OPERATIONS = {
    "Directory creation": "directory-create",
    "Directory stat": "directory-stat",
    "Directory rename": "directory-rename",
    "Directory removal": "directory-remove",
    "File creation": "create",
    "File stat": "stat",
    "File read": "read",
    "File removal": "remove",
    "Tree creation": "tree-create",
    "Tree removal": "tree-remove",
}
# phase -> the option that selects only this phase
_PHASES = {"creation": "C", "stat": "T", "read": "E", "removal": "r"}
_SYNTAX = CommandLineSyntax(
    valued_letters=frozenset("abdefGiIlnNpsVwWxz"),
    long_flags=frozenset({"print-all-procs", "showRankStatistics", "verify-write", "verify-read", "warningAsErrors"}),
)
_FLAG_LETTERS = frozenset("BcCDEFgkLPRrStTuUvXyYZ")
_SIZES = "nwezbIN"
_API = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_DEEPEST = 40
# Half a unit of the last of three decimals.
_HALF_UNIT = 0.0005
# Rank 0 may be faster than the slowest rank: it may have started its files later, after creating directories.
_LARGEST_LEAD = 2.0
# Share by which the creation may seem to end before its stonewall: it may start before its time is taken.
_STONEWALL_TOLERANCE = 0.05

# With `-v`, the directories of `-d` follow the line `dirpath(s):`: none before IOR, the default path in IOR.
_NO_DIRECTORY = re.compile(r"dirs_only +: (?:True|False)|\s*\./out")
_DEFAULT_PATH = "./out"

_ROW = re.compile(r" {3}([A-Z][a-z]+ [a-z]+) {0,30}(:?)((?: {1,40}\d{1,15}\.\d{3}){1,8})")
_DAMAGED_ROW = re.compile(r" {1,3}(?:Directory|File|Tree) [a-z]+")
_ITERATION = re.compile(
    r"V-1: .{0,60}?((?:Directory|File|Tree) [a-z]+) {0,20}: +(\d+\.\d{3}) sec, +(\d+\.\d{3}) ops/sec"
)

# phrase -> meaning
_PHRASES = {
    r"WARNING: (?:write|read|pwrite|pread|fsync)\(.{0,200}failed": "I/O calls failed",
    r"WARNING: .{0,200}partial (?:write|read)\(\)": "I/O calls failed",
    r"(?:^|ior |mdtest )ERROR[: ]|ERROR in aiori|FAILED in ": "mdtest reports an error",
    r"^error |could not create directory|[Uu]nable to (?:create|open|stat|read|write)": "mdtest reports an error",
    r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid|verification error": "mdtest reports an error",
}
SIGNATURES = tuple(parsing.FailureSignature(*row) for row in _PHRASES.items())


@dataclass(frozen=True, slots=True)
class _Launch:
    """The line `mdtest-… was launched with …`."""

    version: str
    ranks: int
    nodes: int

    @property
    def counts_requested_items(self) -> bool:
        """Whether a rate may count all requested files where a stonewall stopped their creation before.

        Corrected in hpc/ior in December 2018, in versions that call themselves 1.9.3, as those before do.
        """
        return self.version.startswith(("1.", "3.2.0"))

    @property
    def is_before_4(self) -> bool:
        """Whether it is a version before 4.0."""
        return self.version.startswith(("1.", "3."))


@dataclass(frozen=True, slots=True)
class _Items:
    """The line `2 tasks, 40 files/directories`."""

    tasks: int
    count: int
    words: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Beginnings of the labels of their rows: `files/directories` has those of files, directories and trees."""
        return ("Tree", *(word.title()[:4] for word in self.words.split("/")))


@dataclass(frozen=True, slots=True)
class _Command:
    """A command line; IOR prints its arguments in quotes, mdtest before IOR does not."""

    line: CommandLine
    is_of_ior: bool


@dataclass(frozen=True, slots=True)
class _Iteration:
    """What rank 0 prints of a phase of one iteration: its time in seconds, and operations per second."""

    seconds: float
    rate: float

    def value(self, metric: str) -> float:
        """Return the time or the rate."""
        return self.seconds if metric == "time" else self.rate


_FIELDS: parsing.FieldTable = {
    "launches": (
        re.compile(
            r"mdtest-(\d+\.\d+(?:\.\d+|alpha\d+)[\w.+-]*) was launched with (\d{1,9}) total task\(s\)"
            r" on (\d{1,9}) node\(s\)"
        ),
        lambda version, ranks, nodes: _Launch(version, int(ranks), int(nodes)),
    ),
    "items": (
        re.compile(r"(\d{1,9}) tasks, (\d{1,15}) (files/directories|files?|directories)"),
        lambda tasks, items, words: _Items(int(tasks), int(items), words),
    ),
    "commands": (
        re.compile(r"Command line used: (\S.*)"),
        lambda text: _Command(read_command_line(text, _SYNTAX), is_of_ior="'" in text or '"' in text),
    ),
    "paths": (re.compile(r"Path *: (.*)"), str),
    # Items per task when the first task stopped, which all others then reached.
    "stonewalls": (re.compile(r"Continue stonewall hit min: \d+ max: (\d{1,15}) avg: .*"), int),
    "tables": (
        re.compile(r"SUMMARY(?: (rate|time)(?: \(in ([a-z/]+)\))?)?: \(of (\d{1,9}) iterations\)"),
        lambda metric, unit, iterations: SummaryTable(metric or "", unit, int(iterations)),
    ),
    "ends": (re.compile(r"-- finished at (.*) --"), str),
    "starts": (re.compile(r"-- started at (.*)"), lambda text: text.rstrip(" -")),
}


def parse_mdtest(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of mdtest."""
    reader = _MdtestReader()
    for line in lines:
        reader.read(line)
        lines.decided = len(reader.fields["launches"]) > 1
    reader.check(builder, context)


class _MdtestReader:
    """Collects the fields of an output, the rows of its tables and the lines of its iterations."""

    def __init__(self) -> None:
        self.fields: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        self.iterations: dict[str, list[_Iteration]] = {name: [] for name in _OPERATIONS}
        self._damaged_rows = 0
        self._last_line = ""

    def read(self, line: str) -> None:
        """Read one cleaned line."""
        if _NO_DIRECTORY.fullmatch(line) and self._last_line == "dirpath(s):":
            self.fields["paths"].append(_DEFAULT_PATH)
        self._last_line = line
        if line.startswith("V-"):
            # With `-V`, one line per file: few of them are of an iteration.
            if line.endswith(" ops/sec"):
                self._read_iteration(line)
        elif not line.startswith("   "):
            parsing.read_field(_FIELDS, line, self.fields)
        elif self.fields["tables"]:
            self._read_row(self.fields["tables"][-1], line)
        else:
            # A row before the title of its table.
            self._damaged_rows += _ROW.fullmatch(line) is not None

    def _read_iteration(self, line: str) -> None:
        match = _ITERATION.fullmatch(line)
        if match is not None and match[1] in _OPERATIONS and len(self.iterations[match[1]]) < parsing.MAX_NAMES:
            self.iterations[match[1]].append(_Iteration(float(match[2]), float(match[3])))

    def _read_row(self, summary: SummaryTable, line: str) -> None:
        if line.startswith("   Operation "):
            summary.table.heads = summary.table.heads or read_column_heads(line)
            return
        match = _ROW.fullmatch(line)
        if match is not None and match[1] in _OPERATIONS:
            summary.has_colons |= bool(match[2])
            summary.table.add_row(match[1], line, match[3].split())
        elif _DAMAGED_ROW.match(line) and "stonewall" not in line:
            self._damaged_rows += 1

    def check(self, builder: parsing.OutputBuilder, context: parsing.RunContext) -> None:
        """Check the output and add its samples to the builder."""
        fields = self.fields
        builder.recognised = any(fields.values()) or self._damaged_rows > 0
        if fields["starts"]:
            builder.facts["began"] = fields["starts"][0]
        if len(fields["launches"]) > 1 or len(fields["ends"]) > 1:
            builder.add_failure("more than one mdtest wrote into this output")
            return
        if not fields["ends"]:
            builder.add_truncation("the output ends before 'finished at'")
        fault = _header_fault(fields)
        if fault is not None:
            builder.add_truncation(fault)
            return
        run = _Run(builder, fields["launches"][0], fields["items"][0], fields["commands"][0], fields["stonewalls"])
        builder.version = run.launch.version
        mismatch = context.rank_mismatch_reason(run.launch.ranks, "mdtest")
        if mismatch is not None:
            builder.add_failure(mismatch)
            return
        fault = run.fault_of_tables(fields["tables"])
        if fault is not None:
            builder.add_truncation(fault)
            return
        for summary in fields["tables"]:
            summary.table.drop_shifted_rows()
            self._damaged_rows += summary.table.damaged
            run.add_table(summary, self.iterations)
        run.check_products()
        run.report_missing_samples()
        if self._damaged_rows:
            builder.add_truncation(f"{self._damaged_rows} damaged or duplicate rows")


def _header_fault(fields: dict[str, list[Any]]) -> str | None:
    """Return what is missing above the tables, or contradicts itself; None if nothing is and does."""
    lines = {"launches": "was launched with", "commands": "Command line used", "items": "tasks, … files"}
    for name, words in lines.items():
        if not fields[name]:
            return f"the line '{words}' is missing or damaged"
    launch, items = fields["launches"][0], fields["items"][0]
    commands: list[_Command] = fields["commands"]
    if len(fields["items"]) > 1:
        return "the line 'tasks, … files' is there more than once"
    # mdtest before IOR prints its command line twice.
    if any(command != commands[0] for command in commands):
        return "the command lines differ"
    if not 0 < items.tasks <= launch.ranks:
        return f"{items.tasks} tasks of {launch.ranks} ranks"
    if not 0 < launch.nodes <= launch.ranks:
        return f"{launch.nodes} nodes for {launch.ranks} ranks"
    return _command_fault(commands[0].line, fields["paths"]) or _items_fault(commands[0].line, items)


def _command_fault(line: CommandLine, paths: list[str]) -> str | None:
    """Return what is damaged in the command line; None if nothing is."""
    if line.strays:
        return f"the command line has '{line.strays[0]}', which is no option and the value of none"
    if line.without_value:
        return f"the command line has no value of -{line.without_value[0]}"
    for name in sorted(line.names):
        if len(name) == 1 and name not in _FLAG_LETTERS and name not in _SYNTAX.valued_letters:
            return f"the command line has -{name}, which mdtest has not"
    for name in _SIZES:
        if name in line.names and parsing.parse_printed_size(line.value(name)) is None:
            return f"the value of -{name} is '{line.value(name)}', which is no number"
    if (_size(line, "z") or 0) > _DEEPEST:
        return f"-z {line.value('z')}: a tree of this depth is not plausible"
    if not _API.fullmatch(line.value("a", "POSIX") or ""):
        return f"-a {line.value('a')} is no interface"
    # Without -d, mdtest says that it writes to its default path; otherwise the end of the command line may be missing.
    if "d" not in line.names and _DEFAULT_PATH not in paths:
        return "the command line names no directory (-d), so it may be truncated"
    return None


def _size(line: CommandLine, name: str) -> int | None:
    return parsing.parse_printed_size(line.value(name))


def _items_fault(line: CommandLine, items: _Items) -> str | None:
    """Return how the number of items contradicts the options; None if it does not."""
    items_per_task = _items_per_task(line)
    if items_per_task is None or items.count == items.tasks * items_per_task:
        return None
    return f"the command line asks for {items_per_task} items per task, not for {items.count} of {items.tasks} tasks"


def _items_per_task(line: CommandLine) -> int | None:
    """Return the items per task that the options state; None if they are ambiguous."""
    if not {"z", "b", "I"} & line.names:
        return _size(line, "n") or 0
    items = _size(line, "I")
    if items is None or "n" in line.names:
        return None
    depth, branches = _size(line, "z") or 0, _size(line, "b") or 1
    levels = [depth] if line.is_set("L") else range(depth + 1)
    return items * sum(int(branches**level) for level in levels)


@dataclass
class _Run:
    """A run whose header is sound: adds the rows of its tables to the builder.

    Attributes:
        stonewalls: items per task of each `Continue stonewall` line.
        values: label -> metric -> value of the only iteration.
        without_samples: metric -> labels of rows without the value of an iteration.
    """

    builder: parsing.OutputBuilder
    launch: _Launch
    items: _Items
    command: _Command
    stonewalls: list[int]
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    without_samples: dict[str, list[str]] = field(default_factory=dict)

    def _case(self) -> parsing.CaseParameters:
        line = self.command.line
        # 1.9.4 counts a node too many.
        counts_nodes = self.launch.version == "1.9.3" or not self.launch.version.startswith("1.")
        return {
            "api": line.value("a", "POSIX"),
            "ranks": self.items.tasks,
            "nodes": self.launch.nodes if counts_nodes else None,
            "files": self.items.count,
            "directories": "separate" if line.is_set("u") else "single",
            "depth": _size(line, "z"),
            "branches": _size(line, "b"),
            "files_per_directory": _size(line, "I"),
            "write_bytes": _size(line, "w"),
            "read_bytes": _size(line, "e"),
            "reorder": "constant" if _size(line, "N") else "none",
            "sync": line.is_set("y"),
        }

    def fault_of_tables(self, tables: list[SummaryTable]) -> str | None:
        """Return why the tables are not those that the options ask for; None if they are."""
        # Until June 2018 there are rates only, and their title does not name them.
        for summary in tables:
            if summary.metric == "" and self.launch.version.startswith("1."):
                summary.metric = "rate"
            if not summary.has_heads:
                return "the heads of a table are missing or damaged"
        metrics = [summary.metric for summary in tables]
        # -P prints both tables.
        asks_for_two = self.command.line.is_set("P")
        if metrics not in (["rate"], ["time"]) and not (metrics == ["rate", "time"] and asks_for_two):
            return "the tables are not printed whole"
        if asks_for_two and len(metrics) < 2:
            return "the table of times is missing"
        return None

    def add_table(self, summary: SummaryTable, iterations: dict[str, list[_Iteration]]) -> None:
        """Check the rows of a table and add their samples."""
        builder = self.builder
        rows = summary.table.rows
        if list(rows) != [label for label in _OPERATIONS if label in rows]:
            builder.add_truncation(f"the rows of the {summary.metric} are not in order")
            return
        facts: dict[str, dict[str, float]] = {}
        for label, row in rows.items():
            statistics = summary.statistics(row)
            fault = self._statistics_fault(summary, label, statistics)
            if fault is not None:
                builder.add_truncation(f"{summary.metric} of '{label}': {fault}")
            elif statistics.maximum == 0 and summary.metric == "rate":
                builder.facts.setdefault("not_run", []).append(_OPERATIONS[label])
                self._check_not_run(label)
            else:
                facts[_OPERATIONS[label]] = statistics.facts()
                self._add_row(summary, label, statistics, iterations[label])
        builder.facts[f"{summary.metric}_summary"] = {"iterations": summary.iterations, **facts}
        for label in _OPERATIONS:
            is_optional = label == "Directory rename" and self.launch.is_before_4
            if label.startswith(self.items.labels) and label not in rows and not is_optional:
                builder.add_truncation(f"the {summary.metric} of '{label}' is missing")

    def _is_over_ranks(self, summary: SummaryTable, label: str) -> bool:
        # Rank 0 alone creates and removes the tree.
        has_ranks = self.items.tasks > 1 and not label.startswith("Tree")
        has_barriers = "B" not in self.command.line.names
        return has_ranks and summary.is_over_ranks(is_of_ior=self.command.is_of_ior, has_barriers=has_barriers)

    def _statistics_fault(self, summary: SummaryTable, label: str, statistics: Statistics) -> str | None:
        """Return why no values have these statistics; None if some may have."""
        count = summary.iterations
        if self._is_over_ranks(summary, label):
            count *= self.items.tasks
        # Until version 4 the deviation is that of a population, since then of a sample.
        is_of_sample = not summary.has_colons
        return statistics_fault(count, statistics, is_of_sample)

    def _add_row(self, summary: SummaryTable, label: str, statistics: Statistics, iterations: list[_Iteration]) -> None:
        """Add the samples of a row, if nothing else in the output contradicts them."""
        fault = self._iterations_fault(summary, label, statistics, iterations)
        if fault is None:
            fault = self._stonewall_fault(summary, label, statistics, iterations)
        if fault is not None:
            self.builder.add_truncation(fault)
            return
        samples: tuple[float, ...] = (statistics.maximum, statistics.minimum)
        if statistics.maximum == statistics.minimum or summary.iterations == 1:
            samples = (summary.slowest(statistics),)
            self.values.setdefault(label, {})[summary.metric] = samples[0]
        elif self._is_over_ranks(summary, label):
            samples = tuple([iteration.value(summary.metric) for iteration in iterations])
        if not samples:
            self.without_samples.setdefault(summary.metric, []).append(label)
        elif summary.unit != "ms/op":
            self.builder.add_samples(_OPERATIONS[label], summary.metric, samples, self._case())

    def _iterations_fault(
        self, summary: SummaryTable, label: str, statistics: Statistics, iterations: list[_Iteration]
    ) -> str | None:
        """Return how the lines of iterations contradict the row; None if they do not, or if there are none."""
        if iterations and len(iterations) != summary.iterations:
            return f"{len(iterations)} lines of iterations of '{label}', expected {summary.iterations}"
        for iteration in iterations:
            if not self._is_in_row(summary, label, statistics, iteration):
                return (
                    f"the line of an iteration of '{label}', {iteration.seconds:.3f} sec and {iteration.rate:.3f} "
                    f"ops/sec, contradicts the table of the {summary.metric}: from {statistics.minimum:.3f} to "
                    f"{statistics.maximum:.3f}"
                )
        return None

    def _is_in_row(self, summary: SummaryTable, label: str, statistics: Statistics, iteration: _Iteration) -> bool:
        """Return whether what rank 0 measured in an iteration is possible for a row."""
        tolerance = 1 + parsing.CONFIRMED
        # A table over iterations has their slowest ranks.
        lead = _LARGEST_LEAD if not summary.has_colons else tolerance
        if summary.metric == "time":
            shortest, longest = statistics.minimum / lead - _HALF_UNIT, statistics.maximum * tolerance + _HALF_UNIT
            return shortest <= iteration.seconds <= longest
        lowest, highest = statistics.minimum / tolerance, statistics.maximum * lead
        if summary.has_colons or label.startswith("Tree"):
            return lowest <= iteration.rate <= highest
        # Since the labels have no colon, the line has the rate of rank 0 alone.
        if lowest <= iteration.rate * self.items.tasks <= highest:
            return True
        # Versions of 2021 print the rate of another operation, and the right time (hpc/ior, issue 381).
        count = self._count(label)
        if count is None:
            return False
        slowest = count / (iteration.seconds + _HALF_UNIT)
        fastest = count / max(iteration.seconds - _HALF_UNIT, _HALF_UNIT)
        return slowest <= highest and lowest <= fastest

    def _count(self, label: str) -> int | None:
        """Return the number of items of a phase, over all tasks; None if no line has it."""
        line = self.command.line
        if label.startswith("Tree"):
            return None
        if not self.stonewalls and not {"W", "x"} & line.names:
            return self.items.count
        if label == "File creation" and not self.stonewalls:
            return self.items.count
        if label == "File creation" and len(self.stonewalls) == 1:
            return self.stonewalls[0] * self.items.tasks
        # The file of -x has how many files were created before.
        return None

    def _stonewall_fault(
        self, summary: SummaryTable, label: str, statistics: Statistics, iterations: list[_Iteration]
    ) -> str | None:
        """Return why the rate of a creation that a stonewall stopped counts other files than those created."""
        count = self._count(label)
        seconds = parsing.parse_count(self.command.line.value("W"))
        is_stopped = label == "File creation" and len(self.stonewalls) == 1
        if not is_stopped or summary.metric != "rate" or count is None or seconds is None:
            return None
        if self.items.count <= count * (1 + parsing.CONFIRMED):
            return None
        rate = summary.slowest(statistics)
        # No task ends before the stonewall.
        if rate * seconds > count * (1 + _STONEWALL_TOLERANCE):
            return (
                f"{rate:g} creations per second in at least {seconds} s (-W) are more than the {count} files that were "
                "created: the rate counts all requested files"
            )
        is_confirmed = any(abs(line.seconds * rate - count) <= parsing.CONFIRMED * count for line in iterations)
        if self.launch.counts_requested_items and not is_confirmed:
            return (
                f"mdtest {self.launch.version} with a stonewall (-W) may divide the {self.items.count} requested files "
                f"by the time, not the {count} created ones, and no time is printed that shows which"
            )
        return None

    def check_products(self) -> None:
        """Check that rate x time of an iteration is its number of items, where both tables are printed."""
        for label, values in self.values.items():
            count = self._count(label)
            if count is None or values.keys() != {"rate", "time"} or 0 in values.values():
                continue
            product = values["rate"] * values["time"]
            slack = parsing.CONFIRMED + _HALF_UNIT / values["time"] + _HALF_UNIT / values["rate"]
            if abs(product - count) > slack * count:
                self.builder.add_truncation(f"rate x time of '{label}' is {product:.0f} items, not {count}")

    def report_missing_samples(self) -> None:
        """Report the rows whose statistics have no value of an iteration."""
        for metric, labels in self.without_samples.items():
            names = ", ".join(f"'{label}'" for label in labels)
            self.builder.add_truncation(
                f"the {metric} of {names} is over iterations and ranks, so that it has no value of one iteration: "
                "repeat the run with -i 1, or with -v"
            )

    def _check_not_run(self, label: str) -> None:
        """Report a rate of 0 of an operation that was requested."""
        names, phase = self.command.line.names, label.rpartition(" ")[2]
        if phase not in _PHASES or label.startswith("Tree") or self.items.count == 0:
            return
        # Without an option of a phase all of them are requested.
        selects_phases = bool(set(_PHASES.values()) & names)
        if not selects_phases or _PHASES[phase] in names:
            self.builder.add_failure(f"'{label}' was requested and has rate 0")
