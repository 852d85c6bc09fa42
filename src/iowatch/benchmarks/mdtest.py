"""mdtest (part of IOR since 3.2): options, and the table of rates and times that versions 1.9 to 4.1 print.

mdtest does not print single repetitions. Its maximum and minimum are measured values, so they are the samples (one
sample if both are equal); mean and deviation are kept as facts. Version 3.3 computes them over ranks and iterations,
the others over iterations. Source: hpc/ior and MDTEST-LANL/mdtest (1.9), `mdtest.c`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.benchmark import Benchmark, ProgramInterface, ProgramProbe, repetitions
from iowatch.benchmarks.ior import LISTED_INTERFACES
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    Option,
    OptionError,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import Scalar

# Since version 4, directories are renamed, too: stored where it is printed, but not expected.
_EXPECTED_OPERATIONS = {
    "files": ("create", "stat", "read", "remove"),
    "directories": ("directory-create", "directory-stat", "directory-remove"),
}
_EXPECTED_OPERATIONS["both"] = (*_EXPECTED_OPERATIONS["directories"], *_EXPECTED_OPERATIONS["files"])
_ITEMS = {"files": ["-F"], "directories": ["-D"], "both": []}
# A file takes at least one block of the file system.
_BLOCK_BYTES = 4096

_OPTIONS = declare_options(
    Option("items", OptionType.CHOICE, "files (-F), directories (-D), or both", default="files", choices=tuple(_ITEMS)),
    Option("files", OptionType.NUMBER, "files, or directories, in all, over all ranks", default=1024, minimum=1),
    Option(
        "directories",
        OptionType.CHOICE,
        "single: all ranks in one; separate: one per rank (-u)",
        default="single",
        choices=("single", "separate"),
    ),
    Option("write", OptionType.SIZE, "bytes written to each file (-w); unset: empty files", minimum=0),
    Option("read", OptionType.SIZE, "bytes read from each file (-e), at most those written; unset: none", minimum=0),
    Option("sync", OptionType.FLAG, "fsync after each write (-y)", default=False),
    repeat_option(3, "runs; mdtest prints no single repetitions, so it is started once for each"),
    RANKS,
    NODES,
)


def _contents(options: Options) -> dict[str, int]:
    """Return bytes written and read per file, by the names of their case parameters; empty files have none.

    Raises:
        OptionError: contents of directories, or more read than written.
    """
    sizes = {f"{name}_bytes": options.number(name) for name in ("write", "read") if name in options}
    if sizes and options.text("items") == "directories":
        raise OptionError("items", "directories have no contents: leave out write and read")
    if sizes.get("read_bytes", 0) > sizes.get("write_bytes", 0):
        raise OptionError("read", "read is more than write")
    return sizes


def _files_per_rank(options: Options) -> int:
    return math.ceil(options.number("files") / options.number("ranks"))


def _files_of_all_ranks(options: Options) -> int:
    return _files_per_rank(options) * options.number("ranks")


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {
        "files": _files_of_all_ranks(options),
        "directories": options.text("directories"),
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
        **_contents(options),
    }
    # Cases name it only where a suite sets it.
    if "sync" in options:
        parameters["sync"] = options.flag("sync")
    return parameters


def _arguments(options: Options, scratch: str) -> list[str]:
    words = [*_ITEMS[options.text("items")], "-n", str(_files_per_rank(options))]
    # -N shifts ranks by the ranks per node: no rank stats the files that it created (client caches).
    shift = options.number("ranks") // options.number("nodes")
    words += ["-N", str(shift), "-i", "1"]
    sizes = _contents(options)
    for letter, name in (("-w", "write_bytes"), ("-e", "read_bytes")):
        if name in sizes:
            words += [letter, str(sizes[name])]
    if options.flag("sync"):
        words.append("-y")
    words += ["-d", f"{scratch}/mdtest"]
    if options.text("directories") == "separate":
        words.append("-u")
    return words


def _case(options: Options) -> dict[str, Scalar]:
    """Return the page cache policy of contents that are read: on one node they are still in its memory."""
    reads = _contents(options).get("read_bytes", 0) > 0
    if reads and options.number("nodes") == 1:
        return {"cache": "keep"}
    return {}


def _file_bytes(options: Options) -> int:
    """Return the space of all files: a block each, or their contents."""
    bytes_of_a_file = max(_BLOCK_BYTES, _contents(options).get("write_bytes", 0))
    return bytes_of_a_file * options.number("files")


def _volume_bytes(options: Options) -> int:
    """Return the contents of all files, written and read, of all runs; metadata are not counted."""
    return sum(_contents(options).values()) * _files_of_all_ranks(options) * repetitions(options)


def _inodes(options: Options) -> int:
    items = options.number("files")
    if options.text("items") == "both":
        items *= 2
    # Directories: one per rank, that of the test and the one above.
    return items + options.number("ranks") + 2


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    return tuple((operation, "rate") for operation in _EXPECTED_OPERATIONS[options.text("items")])


_COMMAND = re.compile(r"""Command line used: (\S+(?: '[^']*'| "[^"]*")*)""")
_UNQUOTED_COMMAND = re.compile(r"""Command line used: (\S+(?: [^\s'"]+)+)""")
_ROW = re.compile(r" {3}([A-Z][a-z]+ [a-z]+) *:?((?: +\d{1,15}\.\d{3}){4}|(?: +\d{1,15}\.\d{3}){7})")
_DAMAGED_ROW = re.compile(r" {1,3}(?:Directory|File|Tree) [a-z]+")

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
_BEFORE_4 = ("1.", "3.")
# phase -> the option that selects only this phase
_PHASES = {"creation": "C", "stat": "T", "read": "E", "removal": "r"}
_WITH_VALUE = frozenset("abdefGiIlnNpsVwWxz")
_ARGUMENT = re.compile(r"""'[^']*'|"[^"]*\"""")
# options without value, then one that may be followed directly by its number
_LETTERS = re.compile(r"-([BcCDEFgkLPRrStTuvXyYZ]*)([A-Za-z])(\d*)")
_API = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_DEEPEST = 40

# phrase -> meaning
_PHRASES = {
    r"WARNING: (?:write|read|pwrite|pread|fsync)\(.{0,200}failed": "I/O calls failed",
    r"WARNING: .{0,200}partial (?:write|read)\(\)": "I/O calls failed",
    r"(?:^|ior |mdtest )ERROR[: ]|ERROR in aiori|FAILED in ": "mdtest reports an error",
    r"^error |could not create directory|[Uu]nable to (?:create|open|stat|read|write)": "mdtest reports an error",
    r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid|verification error": "mdtest reports an error",
}
_SIGNATURES = tuple(parsing.FailureSignature(*row) for row in _PHRASES.items())


@dataclass
class _MdtestTable:
    """A table of rates or times.

    Attributes:
        metric: `rate` or `time`; empty where the title does not name it.
        unit: as printed.
        iterations: number of them.
        rows: row -> maximum, minimum, mean and deviation, as printed.
        ends: row -> column in which they end.
        doubled: rows that are there twice.
    """

    metric: str
    unit: str | None
    iterations: int
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    doubled: set[str] = field(default_factory=set)


def _parse_command_line(text: str) -> dict[str, str] | None:
    """Parse a command line as printed by mdtest, with every argument quoted or none; None if it is invalid."""
    options: dict[str, str] = {}
    quoted = [token[1:-1] for token in _ARGUMENT.findall(text)]
    tokens = iter(quoted or text.split()[1:])
    for token in tokens:
        if token.startswith("--"):
            continue
        match = _LETTERS.fullmatch(token)
        if match is None:
            return None
        # `-Fyn10`: two options without value, then one with a number.
        flags, last, attached = match.groups()
        options.update(dict.fromkeys(flags, ""))
        if last in _WITH_VALUE:
            options[last] = attached or next(tokens, "")
        elif attached:
            return None
        else:
            options[last] = ""
    if not _API.fullmatch(options.get("a", "POSIX")):
        return None
    return options


_FIELDS: parsing.FieldTable = {
    "launches": (
        re.compile(
            r"mdtest-(\d+\.\d+\.\d+[\w.+-]*) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)"
        ),
        lambda version, ranks, nodes: (version, int(ranks), int(nodes)),
    ),
    "items": (
        re.compile(r"(\d{1,9}) tasks, (\d{1,15}) (files/directories|files?|directories)"),
        lambda tasks, items, words: (int(tasks), int(items), words),
    ),
    "commands": (_COMMAND, _parse_command_line),
    "unquoted": (_UNQUOTED_COMMAND, _parse_command_line),
    "paths": (re.compile(r"Path *: (.*)"), str),
    "tables": (
        re.compile(r"SUMMARY(?: (rate|time)(?: \(in ([a-z/]+)\))?)?: \(of (\d{1,9}) iterations\)"),
        lambda metric, unit, iterations: _MdtestTable(metric or "", unit, int(iterations)),
    ),
    "ends": (re.compile(r"-- finished at (.*) --"), str),
    "starts": (re.compile(r"-- started at (.*)"), lambda text: text.rstrip(" -")),
}


def parse_mdtest(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of mdtest."""
    reader = _MdtestReader(builder)
    for line in lines:
        reader.read(line)
        lines.decided = len(reader.fields["launches"]) > 1
    reader.check(context)


class _MdtestReader:
    """Collects the fields of an output and the rows of its tables."""

    def __init__(self, builder: parsing.OutputBuilder) -> None:
        self._builder = builder
        self.fields: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        self._damaged = 0

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        if line.startswith("V-"):
            return  # `-V`: one line per file
        if not line.startswith("   "):
            parsing.read_field(_FIELDS, line, self.fields)
        elif self.fields["tables"]:
            self._read_row(self.fields["tables"][-1], line)
        else:
            # A row before the title of its table.
            self._damaged += _ROW.fullmatch(line) is not None

    def _read_row(self, table: _MdtestTable, line: str) -> None:
        match = _ROW.fullmatch(line)
        if match is None or match[1] not in _OPERATIONS or match[1] in table.rows:
            self._damaged += bool(_DAMAGED_ROW.match(line)) and "stonewall" not in line
            if match is not None and match[1] in table.rows:
                table.doubled.add(match[1])
            return
        # with rank statistics, the first three are over ranks, the last four over iterations
        numbers = match[2].split()[-4:]
        tail = " ".join(f"{number:>14}" for number in numbers)
        if not line.endswith(tail) or not _are_statistics_consistent(*map(float, numbers)):
            self._damaged += 1
            return
        table.rows[match[1]] = tuple(numbers)
        # A maximum of more than 14 digits moves the whole row.
        table.ends[match[1]] = len(line) - len(tail) + max(14, len(numbers[0]))

    def check(self, context: parsing.RunContext) -> None:
        """Check the output and add its samples to the builder."""
        builder, fields = self._builder, self.fields
        builder.recognised = any(fields.values()) or self._damaged > 0
        if fields["starts"]:
            builder.facts["began"] = fields["starts"][0]
        if len(fields["launches"]) > 1 or len(fields["ends"]) > 1:
            builder.add_failure("more than one mdtest wrote into this output")
            return
        if not fields["ends"]:
            builder.add_truncation("the output ends before 'finished at'")
        case = self._case()
        if case is None:
            builder.add_truncation("the header is incomplete, or contradicts itself")
            return
        _, ranks, _ = fields["launches"][0]
        mismatch = context.rank_mismatch_reason(ranks, "mdtest")
        if mismatch is not None:
            builder.add_failure(mismatch)
            return
        # Without -d, mdtest writes to ./out; another path shows that the end of the command line is missing.
        if "d" not in self._options and fields["paths"] != ["./out"]:
            builder.add_truncation("the command line names no directory (-d), so it may be truncated")
            return
        damage = self._damage_of_tables()
        if damage is not None:
            builder.add_truncation(damage)
            return
        for table in fields["tables"]:
            self._check_table(table, case)
        if self._damaged:
            builder.add_truncation(f"{self._damaged} damaged or duplicate rows")

    def _damage_of_tables(self) -> str | None:
        """Return why the tables are not those that the options ask for; None if they are."""
        tables = self.fields["tables"]
        if self.fields["unquoted"]:  # before 1.9.3 of IOR: rates only, and their title does not name them
            for table in tables:
                table.metric = "rate" if table.metric == "" else "unknown"
        metrics = [table.metric for table in tables]
        # -P prints both tables.
        asks_for_two = "P" in self._options
        if metrics not in (["rate"], ["time"]) and not (metrics == ["rate", "time"] and asks_for_two):
            return "the tables are not printed whole"
        if asks_for_two and len(metrics) < 2:
            return "the table of times is missing"
        return None

    @property
    def _options(self) -> dict[str, str]:
        """Options of the command line, after `_case` has checked it."""
        return next(iter(self.fields["commands"] + self.fields["unquoted"]))

    def _case(self) -> parsing.CaseParameters | None:
        """Return the case parameters; None if the header is incomplete or contradicts itself."""
        commands = self.fields["commands"] + self.fields["unquoted"]
        items = self.fields["items"]
        if not self.fields["launches"] or len(items) != 1 or not commands or None in commands:
            return None
        version, ranks, nodes = self.fields["launches"][0]
        self._builder.version = version
        tasks, files, _ = items[0]
        options = commands[0]
        # Command lines that are printed again are the same, and no option has lost its value.
        if any(command != options for command in commands):
            return None
        if not all(options[letter] for letter in _WITH_VALUE & options.keys()):
            return None
        sizes = {letter: parsing.parse_printed_size(options.get(letter)) for letter in "nwezbIN"}
        given_sizes = [sizes[letter] for letter in sizes.keys() & options.keys()]
        depth = sizes["z"] or 0
        if None in given_sizes or depth > _DEEPEST:
            return None
        # What the header says must agree with the options.
        items_per_task = _items_per_task(options, sizes)
        if items_per_task is not None and files != tasks * items_per_task:
            return None
        if not 0 < tasks <= ranks or not 0 < nodes <= ranks:
            return None
        # 1.9.4 counts a node too many.
        counts_nodes = version == "1.9.3" or not version.startswith("1.")
        return {
            "api": options.get("a", "POSIX"),
            "ranks": tasks,
            "nodes": nodes if counts_nodes else None,
            "files": files,
            "directories": "separate" if "u" in options else "single",
            "depth": sizes["z"],
            "branches": sizes["b"],
            "files_per_directory": sizes["I"],
            "write_bytes": sizes["w"],
            "read_bytes": sizes["e"],
            "reorder": "constant" if sizes["N"] else "none",
            "sync": "y" in options,
        }

    def _check_table(self, table: _MdtestTable, case: parsing.CaseParameters) -> None:
        """Add the rows of one table; rows with shifted columns have missing or additional characters."""
        builder = self._builder
        version, _, _ = self.fields["launches"][0]
        tasks, _, items = self.fields["items"][0]
        before_4 = version.startswith(_BEFORE_4)
        # 1.9 with -B has no barriers: its statistics are over ranks, too.
        over_ranks = version.startswith("3.") or (before_4 and "B" in self._options)
        if list(table.rows) != [name for name in _OPERATIONS if name in table.rows]:
            builder.add_truncation(f"the rows of the {table.metric} are not in order")
            return
        # The column of most rows is the right one.
        column = Counter(table.ends.values()).most_common(1)[0][0] if table.ends else 0
        summary: dict[str, dict[str, float]] = {}
        for name, numbers in table.rows.items():
            high, low, mean, deviation = map(float, numbers)
            if name in table.doubled:
                continue  # two rows: it is unknown which belongs to this run
            n = table.iterations
            if over_ranks and not name.startswith("Tree"):
                n *= tasks
            # Before version 4 the deviation is that of a population, since then of a sample.
            squares = deviation**2 * (n if before_4 else n - 1)
            if table.ends[name] != column or not _has_values(n, high, low, mean, squares):
                self._damaged += 1
            elif high == 0 and table.metric == "rate":
                builder.facts.setdefault("not_run", []).append(_OPERATIONS[name])
                self._check_not_run(name)
            else:
                operation = _OPERATIONS[name]
                summary[operation] = {"max": high, "min": low, "mean": mean, "stddev": deviation}
                if table.unit != "ms/op":
                    samples = (high,) if high == low else (high, low)
                    builder.add_samples(operation, table.metric, samples, case)
        builder.facts[f"{table.metric}_summary"] = {"iterations": table.iterations, **summary}
        # "files/directories" -> beginnings of the rows: "File", "Dire" and "Tree"
        beginnings = ("Tree", *(word.title()[:4] for word in items.split("/")))
        for name in _OPERATIONS:
            unknown = name == "Directory rename" and before_4
            if name.startswith(beginnings) and name not in table.rows and not unknown:
                builder.add_truncation(f"the {table.metric} of '{name}' is missing")

    def _check_not_run(self, name: str) -> None:
        """Report a rate of 0 of an operation that was requested."""
        options, phase = self._options, name.rpartition(" ")[2]
        _, items, _ = self.fields["items"][0]
        if phase not in _PHASES or name.startswith("Tree") or items == 0:
            return
        # Without an option of a phase all of them are requested.
        selects_phases = bool(set(_PHASES.values()) & options.keys())
        if not selects_phases or _PHASES[phase] in options:
            self._builder.add_failure(f"'{name}' was requested and has rate 0")


def _are_statistics_consistent(high: float, low: float, mean: float, deviation: float) -> bool:
    """Return whether maximum, minimum, mean and deviation are possible for one set of values."""
    slack = 0.001 + 1e-12 * high
    if not low - slack <= mean <= high + slack or deviation > 0.75 * (high - low) + slack:
        return False
    return high - low <= slack or deviation > 0


def _has_values(n: int, high: float, low: float, mean: float, squares: float) -> bool:
    """Return whether n values can have these statistics; for three or fewer values, each number confirms the others.

    Args:
        squares: sum of the squared deviations from the mean.
    """
    if n < 3:
        return abs(high + low - 2 * mean) <= 0.003 and (n == 2 or high == low)
    others = n - 2
    middle = (n * mean - high - low) / others
    left = squares - (high - mean) ** 2 - (low - mean) ** 2 - others * (middle - mean) ** 2
    # the largest variance of values between low and high (Bhatia and Davis)
    most = others * (high - middle) * (middle - low) if others > 1 else 0.0
    step, slack = 0.001 * n, 0.01 * n * (high - low + 0.001)
    return low - step <= middle <= high + step and -slack <= left <= most + slack


def _items_per_task(options: dict[str, str], sizes: dict[str, int | None]) -> int | None:
    """Return the items per task that the options state; None if they are ambiguous."""
    if not {"z", "b", "I"} & options.keys():
        return sizes["n"] or 0
    depth, branches, items = sizes["z"] or 0, sizes["b"] or 1, sizes["I"]
    if items is None or "n" in options:
        return None
    levels = [depth] if "L" in options else range(depth + 1)
    return items * sum(int(branches**level) for level in levels)


MDTEST = Benchmark(
    name="mdtest",
    title="mdtest",
    check="MdtestCheck",
    parse=parse_mdtest,
    signatures=_SIGNATURES,
    banner=r"^mdtest-\S+ was launched with",
    package="ior",
    probe=ProgramProbe("mdtest", interfaces_command=("mdtest", "-h"), interfaces_pattern=LISTED_INTERFACES),
    # mdtest is in IOR's package, whose other programs may have what mdtest lacks.
    interfaces=(ProgramInterface("mdtest-posix", "POSIX interface", listed="POSIX"),),
    uses=lambda _options: ("mdtest-posix",),
    options=_OPTIONS,
    program=lambda _options: "mdtest",
    arguments=_arguments,
    requires=lambda _options: ("mpi", "mdtest"),
    expects=_expects,
    samples=repetitions,
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    runs=repetitions,
    inodes=_inodes,
    case=_case,
    layers=lambda _case: (benchmark.CPU, benchmark.NETWORK, benchmark.METADATA),
)
