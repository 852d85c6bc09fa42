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
from iowatch.benchmarks.benchmark import Benchmark, ProgramProbe, repetitions
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
    **{"Directory creation": "directory-create", "Directory stat": "directory-stat"},
    **{"Directory rename": "directory-rename", "Directory removal": "directory-remove"},
    **{"File creation": "create", "File stat": "stat", "File read": "read", "File removal": "remove"},
    **{"Tree creation": "tree-create", "Tree removal": "tree-remove"},
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
    r"WARNING: (?:write|read|pwrite|pread|fsync)\(.*failed": "I/O calls failed",
    r"WARNING: .*partial (?:write|read)\(\)": "I/O calls failed",
    r"(?:^|ior |mdtest )ERROR[: ]|ERROR in aiori|FAILED in ": "mdtest reports an error",
    r"^error |could not create directory|[Uu]nable to (?:create|open|stat|read|write)": "mdtest reports an error",
    r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid|verification error": "mdtest reports an error",
}
_SIGNATURES = tuple(parsing.FailureSignature(*row) for row in _PHRASES.items())


@dataclass
class _MdtestTable:
    """A table of rates or times: printed numbers of each row, and the column in which its statistics end."""

    kind: str
    unit: str | None
    iterations: int
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    doubled: set[str] = field(default_factory=set)


def _parse_command_line(text: str) -> dict[str, str] | None:
    """Parse a command line as printed by mdtest, with every argument quoted or none; None if it is invalid."""
    options: dict[str, str] = {}
    tokens = iter([token[1:-1] for token in _ARGUMENT.findall(text)] or text.split()[1:])
    for token in tokens:
        if token.startswith("--"):
            continue
        match = _LETTERS.fullmatch(token)
        if match is None:
            return None
        flags, last, attached = match.groups()
        options.update(dict.fromkeys(flags, ""))
        options[last] = (attached or next(tokens, "")) if last in _WITH_VALUE else ""
        if attached and last not in _WITH_VALUE:
            return None
    return options if _API.fullmatch(options.get("a", "POSIX")) else None


_FIELDS: parsing.FieldTable = {
    "launches": (
        re.compile(
            r"mdtest-(\d+\.\d+\.\d+[\w.+-]*) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)"
        ),
        lambda version, ranks, nodes: (version, int(ranks), int(nodes)),
    ),
    "items": (
        re.compile(r"(\d{1,9}) tasks, (\d{1,15}) (files/directories|files?|directories)"),
        lambda tasks, items, kind: (int(tasks), int(items), kind),
    ),
    "commands": (_COMMAND, _parse_command_line),
    "unquoted": (_UNQUOTED_COMMAND, _parse_command_line),
    "paths": (re.compile(r"Path *: (.*)"), str),
    "tables": (
        re.compile(r"SUMMARY(?: (rate|time)(?: \(in ([a-z/]+)\))?)?: \(of (\d{1,9}) iterations\)"),
        lambda kind, unit, iterations: _MdtestTable(kind or "", unit, int(iterations)),
    ),
    "ends": (re.compile(r"-- finished at (.*) --"), str),
    "starts": (re.compile(r"-- started at (.*?)[ -]*"), str),
}


def parse_mdtest(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of mdtest."""
    reader = _MdtestReader(builder)
    for line in lines:
        reader.read(line)
        lines.decided = len(reader.found["launches"]) > 1
    reader.check(context)


class _MdtestReader:
    """Collects the fields of an output and the rows of its tables."""

    def __init__(self, builder: parsing.OutputBuilder) -> None:
        self._builder = builder
        self.found: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        self._damaged = 0

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        if line.startswith("V-"):
            return  # `-V`: one line per file
        if not line.startswith("   "):
            parsing.read_field(_FIELDS, line, self.found)
        elif self.found["tables"]:
            self._read_row(self.found["tables"][-1], line)
        else:
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
        table.ends[match[1]] = len(line) - len(tail) + max(14, len(numbers[0]))

    def check(self, context: parsing.RunContext) -> None:
        """Check the output and add its samples to the builder."""
        builder, found = self._builder, self.found
        builder.recognised = any(found.values()) or self._damaged > 0
        if found["starts"]:
            builder.facts["began"] = found["starts"][0]
        if len(found["launches"]) > 1 or len(found["ends"]) > 1:
            builder.add_failure("more than one mdtest wrote into this output")
            return
        if not found["ends"]:
            builder.add_truncation("the output ends before 'finished at'")
        case = self._case()
        if case is None:
            builder.add_truncation("the header is incomplete, or contradicts itself")
            return
        if others := context.rank_mismatch_reason(found["launches"][0][1], "mdtest"):
            builder.add_failure(others)
            return
        # Without -d, mdtest writes to ./out; another path shows that the end of the command line is missing.
        if "d" not in self._options and found["paths"] != ["./out"]:
            builder.add_truncation("the command line names no directory (-d), so it may be truncated")
            return
        if found["unquoted"]:  # before 1.9.3 of IOR: rates only, and their title does not name them
            for table in found["tables"]:
                table.kind = "rate" if table.kind == "" else "unknown"
        kinds = [table.kind for table in found["tables"]]
        both = "P" in self._options
        if kinds not in (["rate"], ["time"]) and not (kinds == ["rate", "time"] and both):
            builder.add_truncation("the tables are not printed whole")
            return
        if both and len(kinds) < 2:
            builder.add_truncation("the table of times is missing")
            return
        for table in found["tables"]:
            self._check_table(table, case)
        if self._damaged:
            builder.add_truncation(f"{self._damaged} damaged or duplicate rows")

    @property
    def _options(self) -> dict[str, str]:
        """Options of the command line, after `_case` has checked it."""
        return next(iter(self.found["commands"] + self.found["unquoted"]))

    def _case(self) -> parsing.CaseParameters | None:
        commands, items = self.found["commands"] + self.found["unquoted"], self.found["items"]
        if not self.found["launches"] or len(items) != 1 or not commands or None in commands:
            return None
        self._builder.version, ranks, nodes = self.found["launches"][0]
        (tasks, files, _), options = items[0], commands[0]
        sizes = {letter: parsing.parse_printed_size(options.get(letter)) for letter in "nwezbIN"}
        if any(command != options for command in commands) or not all(options[o] for o in _WITH_VALUE & options.keys()):
            return None
        if any(size is None and letter in options for letter, size in sizes.items()) or (sizes["z"] or 0) > _DEEPEST:
            return None
        each = _items_per_task(options, sizes)
        if not 0 < tasks <= ranks or not 0 < nodes <= ranks or (each is not None and files != tasks * each):
            return None
        return {
            "api": options.get("a", "POSIX"),
            "ranks": tasks,
            # 1.9.4 counts a node too many
            "nodes": nodes if self._builder.version == "1.9.3" or not self._builder.version.startswith("1.") else None,
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
        builder, (version, *_), (tasks, _, items) = self._builder, self.found["launches"][0], self.found["items"][0]
        before_4 = version.startswith(_BEFORE_4)
        over_ranks = version.startswith("3.") or (before_4 and "B" in self._options)  # 1.9 with -B: no barriers
        if list(table.rows) != [name for name in _OPERATIONS if name in table.rows]:
            builder.add_truncation(f"the rows of the {table.kind} are not in order")
            return
        column = Counter(table.ends.values()).most_common(1)[0][0] if table.ends else 0
        summary: dict[str, dict[str, float]] = {}
        for name, numbers in table.rows.items():
            high, low, mean, deviation = map(float, numbers)
            if name in table.doubled:
                continue  # two rows: it is unknown which belongs to this run
            n = table.iterations * (tasks if over_ranks and not name.startswith("Tree") else 1)
            squares = deviation**2 * (n if before_4 else n - 1)
            if table.ends[name] != column or not _has_values(n, high, low, mean, squares):
                self._damaged += 1
            elif high == 0 and table.kind == "rate":
                builder.facts.setdefault("not_run", []).append(_OPERATIONS[name])
                self._check_not_run(name)
            else:
                operation = _OPERATIONS[name]
                summary[operation] = {"max": high, "min": low, "mean": mean, "stddev": deviation}
                if table.unit != "ms/op":
                    builder.add_samples(operation, table.kind, (high,) if high == low else (high, low), case)
        builder.facts[f"{table.kind}_summary"] = {"iterations": table.iterations, **summary}
        # "files/directories" -> prefixes of the rows: "File", "Directory" and "Tree"
        kinds = ("Tree", *(kind.title()[:4] for kind in items.split("/")))
        for name in _OPERATIONS:
            unknown = name == "Directory rename" and before_4
            if name.startswith(kinds) and name not in table.rows and not unknown:
                builder.add_truncation(f"the {table.kind} of '{name}' is missing")

    def _check_not_run(self, name: str) -> None:
        options, phase = self._options, name.rpartition(" ")[2]
        requested = not set(_PHASES.values()) & options.keys() or _PHASES.get(phase) in options
        if phase in _PHASES and requested and self.found["items"][0][1] > 0 and not name.startswith("Tree"):
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
    probe=ProgramProbe("mdtest"),
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
