"""Outputs of mdtest 3.0 to 4.1: a table of maximum, minimum, mean and deviation of each phase.

mdtest prints no single repetitions. Its maximum and minimum are values that were measured, so they are the
samples (one sample where both are the same); mean and deviation go to the facts. Version 3.3 takes them over
ranks and iterations, later ones over iterations. Source: hpc/ior, `mdtest.c`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from iowatch.errors import InputError
from iowatch.model import Output, Scalar
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source
from iowatch.parsers.trouble import Sign
from iowatch.units import parse_size

_TITLE = re.compile(r"mdtest-(\S+) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)")
_COMMAND = re.compile(r"""Command line used: (\S+(?: '[^']*'| "[^"]*")*)""")
_ITEMS = re.compile(r"(\d{1,9}) tasks, (\d{1,15}) (files/directories|files?|directories)")
_TABLE = re.compile(r"SUMMARY (rate|time)(?: \(in ([a-z/]+)\))?: \(of (\d+) iterations\)")
_ROW = re.compile(r" {3}([A-Z][a-z]+ [a-z]+) *:?((?: +\d{1,15}\.\d{3}){4}|(?: +\d{1,15}\.\d{3}){7})")
_LIKE_ROW = re.compile(r" {1,3}(?:Directory|File|Tree) [a-z]+")
_END = re.compile(r"-- finished at .* --")

_FILES = {"File creation": "create", "File stat": "stat", "File read": "read", "File removal": "remove"}
_DIRECTORIES = {
    "Directory creation": "directory-create",
    "Directory stat": "directory-stat",
    "Directory removal": "directory-remove",
}
_TREE = {"Tree creation": "tree-create", "Tree removal": "tree-remove"}
# since version 4
_RENAME = {"Directory rename": "directory-rename"}
# in the order printed
_OPERATIONS = {
    **{name: _DIRECTORIES[name] for name in ("Directory creation", "Directory stat")},
    **_RENAME,
    **_DIRECTORIES,
    **_FILES,
    **_TREE,
}
_EXPECTED = {
    "file": {**_FILES, **_TREE},
    "files": {**_FILES, **_TREE},
    "directories": {**_DIRECTORIES, **_TREE},
    "files/directories": {**_FILES, **_DIRECTORIES, **_TREE},
}
_BEFORE_4 = ("1.", "3.")
# a phase -> the option that asks for it alone
_PHASES = {"creation": "C", "stat": "T", "read": "E", "removal": "r"}
_WITH_VALUE = frozenset("abdefGiIlnNpsVwWxz")
_ARGUMENT = re.compile(r"""'[^']*'|"[^"]*\"""")
# options without value, then one that may have its number attached
_LETTERS = re.compile(r"-([BcCDEFgkLPRrStTuvXyYZ]*)([A-Za-z])(\d*)")
_API = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_DEEPEST = 40
_LARGEST = 1 << 60

_SIGNS = (
    Sign(r"WARNING: (?:write|read|pwrite|pread|fsync)\(.*failed", "I/O calls failed"),
    Sign(r"WARNING: .*partial (?:write|read)\(\)", "I/O calls failed"),
    Sign(r"(?:^|ior |mdtest )ERROR[: ]|ERROR in aiori|FAILED in ", "mdtest reports an error"),
    Sign(
        r"^error |could not create directory|[Uu]nable to (?:create|open|stat|read|write)",
        "mdtest reports an error",
    ),
    Sign(
        r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid|verification error",
        "mdtest reports an error",
    ),
)


@dataclass
class _Table:
    kind: str
    unit: str | None
    iterations: int
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    doubled: set[str] = field(default_factory=set)


@dataclass
class _Run:
    launches: list[tuple[str, int, int]] = field(default_factory=list)
    items: list[tuple[int, int, str]] = field(default_factory=list)
    options: dict[str, str] | None = None
    tables: list[_Table] = field(default_factory=list)
    commands: int = 0
    ends: int = 0
    damaged: int = 0


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of mdtest (see `iowatch.parsers.parse`)."""
    draft, run = Draft("mdtest", _SIGNS), _Run()
    lines = draft.lines(source)
    for line in lines:
        _read(draft, run, line)
        lines.decided = len(run.launches) > 1
    _judge(draft, run, evidence)
    return draft.close(evidence, lines)


def _read(draft: Draft, run: _Run, line: str) -> None:
    if line.startswith("   ") and (run.tables or _ROW.fullmatch(line)):
        _read_row(run, line)
    elif (title := _TITLE.fullmatch(line)) is not None:
        run.launches.append((title[1], int(title[2]), int(title[3])))
    elif (items := _ITEMS.fullmatch(line)) is not None:
        run.items.append((int(items[1]), int(items[2]), items[3]))
    elif (command := _COMMAND.fullmatch(line)) is not None:
        options = _options(command[1])
        run.commands += options != run.options
        run.options = options
    elif (table := _TABLE.fullmatch(line)) is not None:
        run.tables.append(_Table(table[1], table[2], int(table[3])))
    elif _END.fullmatch(line):
        run.ends += 1
    elif line.startswith("-- started at "):
        draft.facts.setdefault("began", line[len("-- started at ") :].rstrip(" -"))


def _options(text: str) -> dict[str, str] | None:
    """Options of a command line as mdtest prints it, every argument quoted; None where it makes no sense."""
    options: dict[str, str] = {}
    tokens = iter(token[1:-1] for token in _ARGUMENT.findall(text))
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
    # A command line without a directory was cut off: nobody measures where he happens to be.
    return options if options.get("d") and _API.fullmatch(options.get("a", "POSIX")) else None


def _read_row(run: _Run, line: str) -> None:
    if not run.tables:
        run.damaged += 1
        return
    match = _ROW.fullmatch(line)
    table = run.tables[-1]
    if match is None or match[1] not in _OPERATIONS or match[1] in table.rows:
        run.damaged += bool(_LIKE_ROW.match(line)) and "stonewall" not in line
        if match is not None and match[1] in table.rows:
            table.doubled.add(match[1])
        return
    # with rank statistics the first three are over ranks, the last four over iterations
    numbers = match[2].split()[-4:]
    tail = " ".join(f"{number:>14}" for number in numbers)
    if not line.endswith(tail) or not _agree([float(n) for n in numbers], run):
        run.damaged += 1
        return
    table.rows[match[1]] = tuple(numbers)
    table.ends[match[1]] = len(line) - len(tail) + max(14, len(numbers[0]))


def _agree(numbers: list[float], run: _Run) -> bool:
    """Whether maximum, minimum, mean and deviation can be those of one set of values."""
    high, low, mean, deviation = numbers
    slack = 0.001 + 1e-12 * high
    if not low - slack <= mean <= high + slack or deviation > 0.75 * (high - low) + slack:
        return False
    return high - low <= slack or deviation > 0


def _judge(draft: Draft, run: _Run, evidence: Evidence) -> None:
    if len(run.launches) > 1 or run.ends > 1:
        draft.fail("more than one mdtest wrote into this output")
        return
    if run.ends == 0:
        draft.cut("the output ends before 'finished at'")
    case = _case(draft, run)
    if case is None:
        draft.cut("the beginning is not printed whole, or contradicts itself")
        return
    if others := evidence.other_ranks(run.launches[0][1], "mdtest"):
        draft.fail(others)
        return
    kinds = [table.kind for table in run.tables]
    if kinds not in (["rate"], ["time"]) and not (kinds == ["rate", "time"] and "P" in (run.options or {})):
        draft.cut("the tables are not printed whole")
        return
    if "P" in (run.options or {}) and len(kinds) < 2:
        draft.cut("the table of times is missing")
        return
    for table in run.tables:
        _judge_table(draft, run, table, case)
    if run.damaged:
        draft.cut(f"{run.damaged} damaged or doubled rows")
    if not run.tables:
        draft.cut("no summary was printed")


def _case(draft: Draft, run: _Run) -> dict[str, Scalar | None] | None:
    if not run.launches or len(run.items) != 1 or run.options is None or run.commands > 1:
        return None
    version, ranks, nodes = run.launches[0]
    tasks, items, _ = run.items[0]
    options = run.options
    draft.version = version
    sizes = {letter: _size(options.get(letter)) for letter in "nwezbIN"}
    if any(not options[letter] for letter in _WITH_VALUE & options.keys()):
        return None
    if any(size is None and letter in options for letter, size in sizes.items()):
        return None
    if (sizes["z"] or 0) > _DEEPEST:
        return None
    each = _items_each(options, sizes)
    if not 0 < tasks <= ranks or not 0 < nodes <= ranks or (each is not None and items != tasks * each):
        return None
    return {
        "api": options.get("a", "POSIX"),
        "ranks": tasks,
        "nodes": nodes,
        "files": items,
        "directories": "separate" if "u" in options else "single",
        "depth": sizes["z"],
        "branches": sizes["b"],
        "files_per_directory": sizes["I"],
        "write_bytes": sizes["w"],
        "read_bytes": sizes["e"],
        "reorder": "constant" if sizes["N"] else "none",
        "sync": "y" in options,
    }


def _items_each(options: dict[str, str], sizes: dict[str, int | None]) -> int | None:
    """Items of one task as the options say it; None where they do not say it plainly."""
    if not {"z", "b", "I"} & options.keys():
        return sizes["n"] or 0
    depth, branches, items = sizes["z"] or 0, sizes["b"] or 1, sizes["I"]
    if items is None or "n" in options:
        return None
    levels = [depth] if "L" in options else range(depth + 1)
    return items * sum(int(branches**level) for level in levels)


def _size(text: str | None) -> int | None:
    try:
        size = parse_size(text) if text is not None else None
    except InputError:
        return None
    return size if size is None or size < _LARGEST else None


def _judge_table(draft: Draft, run: _Run, table: _Table, case: dict[str, Scalar | None]) -> None:
    """Keep the rows of one table; rows whose columns are shifted lost or gained a character."""
    column = Counter(table.ends.values()).most_common(1)[0][0] if table.ends else 0
    summary: dict[str, dict[str, float]] = {}
    if list(table.rows) != [name for name in _OPERATIONS if name in table.rows]:
        draft.cut(f"the rows of the {table.kind} are not in order")
        return
    for name, numbers in table.rows.items():
        high, low, mean, deviation = map(float, numbers)
        if name in table.doubled:
            continue  # nobody can tell which of the two is this run's
        if table.ends[name] != column or not _over_iterations(run, table, high, low, mean):
            run.damaged += 1
        elif high == 0 and table.kind == "rate":
            draft.facts.setdefault("not_run", []).append(_OPERATIONS[name])
            _check_not_run(draft, run, name)
        else:
            operation = _OPERATIONS[name]
            summary[operation] = {"max": high, "min": low, "mean": mean, "stddev": deviation}
            samples = (high,) if high == low else (high, low)
            if table.unit != "ms/op":
                draft.keep(operation, table.kind, samples, case)
    draft.facts[f"{table.kind}_summary"] = {"iterations": table.iterations, **summary}
    renamed = "directories" in run.items[0][2] and not run.launches[0][0].startswith(_BEFORE_4)
    for name in {**_EXPECTED[run.items[0][2]], **(_RENAME if renamed else {})}:
        if name not in table.rows:
            draft.cut(f"the {table.kind} of '{name}' is missing")


def _over_iterations(run: _Run, table: _Table, high: float, low: float, mean: float) -> bool:
    """Since version 4 the numbers are over iterations, so that one or two of them leave no freedom."""
    if run.launches[0][0].startswith(_BEFORE_4) or table.iterations > 2:
        return True
    return abs(high + low - 2 * mean) <= 0.003 and (table.iterations == 2 or high == low)


def _check_not_run(draft: Draft, run: _Run, name: str) -> None:
    options, phase = run.options or {}, name.rpartition(" ")[2]
    asked = set(_PHASES.values()) & options.keys()
    meant = phase in _PHASES and (not asked or _PHASES[phase] in asked)
    if meant and run.items[0][1] > 0 and not name.startswith("Tree"):
        draft.fail(f"'{name}' was asked for and has rate 0")
