"""Tables of the original benchio: 2018 (MiB/s, repetitions) and 2024 (GiB/s, one write per line).

Time x rate must be the total to the last digit, minimum and average must match the rows, and the decomposition must
be consistent. Sources: EPCCed/benchio (90023d1, 2018) and davidhenty/benchio (0c682b6, 2024), `benchio.f90`. Fortran
list-directed output: spacing differs between gfortran, Intel and Cray, but all print every digit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeVar

from iowatch.benchmarks import parsing
from iowatch.core import GIB, MIB, to_mib_per_s

_T = TypeVar("_T")

_NUMBER = r"(\d+\.\d*(?:E[-+]?\d+)?)"
_ROW = re.compile(rf"(|min|avg)time =\s+{_NUMBER}(\s*), (?:|max|avg)rate =\s+{_NUMBER}(\s+)([MG]iB/s)")
_TOTAL = re.compile(rf"Total amount of data =\s+{_NUMBER}\s+([MG]iB)")
_SIZE = r"\s*(\d{1,9})\s*"
_SHAPE = re.compile(rf"(Process grid|Array size|Global size) is\s+\({_SIZE},{_SIZE},{_SIZE}\)")
_COUNT = re.compile(r"Running on\s+(\d{1,9})\s+(process\(es\)|nodes?(?:\(s\))?)")
_NODE = re.compile(r"Node number\s+\d+\s+is \S+\s+with\s+(\d{1,9})\s+process(?:es)?")
_FILE = re.compile(r"(Writing to|Deleting:) (\S+)")
_LISTS = {"Using the following IO methods": "methods", "Using the following stripings": "stripings"}
_MIB_PER_S = {unit: to_mib_per_s(1.0, unit) for unit in ("MiB/s", "GiB/s")}
_EXPONENT_CHARACTERS = len("E-002")
# Both numbers of a row carry 15 digits or more.
_TOLERANCE = 2e-14

# file name without extension -> api and file layout
BACKENDS: dict[str, tuple[str, str]] = {
    "serial": ("POSIX", "serial"),
    "proc": ("POSIX", "per-process"),
    "fpp": ("POSIX", "per-process"),
    "node": ("POSIX", "per-node"),
    "mpiio": ("MPIIO", "shared"),
    "hdf5": ("HDF5", "shared"),
    "netcdf": ("NETCDF4", "shared"),
    "adios": ("ADIOS2", "shared"),
}
STRIPINGS = ("unstriped", "striped", "defstriped", "fullstriped")
SHAPES = ("Process grid", "Array size", "Global size")


@dataclass
class BenchioFileBlock:
    """The lines after one `Writing to …`.

    Attributes:
        path: the file.
        times, rates: seconds and MiB/s of each repetition.
        checks: `min` -> (shortest time, highest rate), `avg` -> both means.
        deleted: the file that was deleted afterwards (2018).
    """

    path: str
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    checks: dict[str, tuple[float, float]] = field(default_factory=dict)
    deleted: str | None = None
    printed: set[tuple[str, str]] = field(default_factory=set)

    def takes(self, check: str, time_s: str, rate: str) -> bool:
        """Return whether this row can follow the existing rows.

        Args:
            check: `min` or `avg`; empty for a repetition.
        """
        if "avg" in self.checks or check in self.checks:
            return False
        if not check and (time_s, rate) in self.printed:
            return False
        return len(self.times) < parsing.MAX_ROWS


@dataclass
class BenchioTable:
    """The complete content of a table."""

    recent: bool = False
    total_bytes: float | None = None
    digits: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    per_node: list[int] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[BenchioFileBlock] = field(default_factory=list)
    titles: int = 0
    ends: int = 0
    damaged: int = 0
    contradicts: bool = False
    _listing: list[str] | None = None

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        text = line.strip()
        if text.startswith("time ="):
            self._listing = None
            self._read_row(text)
        elif text in _LISTS:
            self.recent = True
            self._listing = self.lists.setdefault(_LISTS[text], [])
        elif self._listing is not None and (text in BACKENDS or text in STRIPINGS):
            if len(self._listing) < parsing.MAX_NAMES:
                self._listing.append(text)
        elif set(text) != {"-"}:
            self._listing = None
            self._read(text)

    def _read(self, text: str) -> None:
        if "time =" in text or "rate =" in text:
            self._read_row(text)
        elif file := _FILE.fullmatch(text):
            self._read_file(file[1], file[2])
        elif text == "Finished":
            self.ends += 1
        elif text == "Simple Parallel IO benchmark":
            self.titles += 1
        elif shape := _SHAPE.fullmatch(text):
            name, *sizes = shape.groups()
            self._set(self.shapes, name, tuple(map(int, sizes)))
        elif count := _COUNT.fullmatch(text):
            self._set(self.counts, count[2][:4], int(count[1]))
        elif node := _NODE.fullmatch(text):
            if len(self.per_node) < parsing.MAX_ROWS:
                self.per_node.append(int(node[1]))
        elif total := _TOTAL.fullmatch(text):
            # The 2018 version prints MiB.
            unit = MIB
            if total[2] == "GiB":
                self.recent = True
                unit = GIB
            self.total_bytes = float(total[1]) * unit
            self.digits = _count_digits(total[1])

    def _read_file(self, action: str, path: str) -> None:
        """Begin the rows of a file, or note that it was deleted."""
        if action == "Writing to" and len(self.blocks) < parsing.MAX_ROWS:
            self.blocks.append(BenchioFileBlock(path))
        elif self.blocks and self.blocks[-1].deleted is None:
            self.blocks[-1].deleted = path
        else:
            self.damaged += 1

    def _set(self, values: dict[str, _T], name: str, value: _T) -> None:
        """Keep a value that is printed; another one for the same name is a contradiction."""
        self.contradicts |= values.setdefault(name, value) != value

    def _read_row(self, text: str) -> None:
        """Add one row to its file; a row after the averages, or without a file, is invalid."""
        match = None
        if self.blocks:
            # Not matched for a file with too many rows: a hostile output must not take long.
            is_full = len(self.blocks[-1].times) >= parsing.MAX_ROWS and text.startswith("time =")
            match = None if is_full else _ROW.fullmatch(text)
        if match is None:
            self.damaged += 1
            return
        block = self.blocks[-1]
        check, time_s, blanks_after_time, rate, blanks_after_rate, unit = match.groups()
        is_printed_whole = self._digits_fit(time_s) and self._digits_fit(rate)
        # Time x rate is the same if both are exchanged.
        is_in_place = _blanks_fit(time_s, blanks_after_time) and _blanks_fit(rate, blanks_after_rate)
        if not (block.takes(check, time_s, rate) and is_printed_whole and is_in_place):
            self.damaged += 1
            return
        seconds, bandwidth = float(time_s), float(rate) * _MIB_PER_S[unit]
        if check:
            block.checks[check] = seconds, bandwidth
        elif math.isclose(seconds * bandwidth * MIB, self.total_bytes or 0, rel_tol=_TOLERANCE):
            block.printed.add((time_s, rate))
            block.times.append(seconds)
            block.rates.append(bandwidth)
        else:
            self.damaged += 1

    def _digits_fit(self, number: str) -> bool:
        """Return whether a number has as many digits as this Fortran run-time prints everywhere.

        gfortran prints 17 digits, Intel 15 (16 with an exponent); Cray omits trailing zeros, so no rule applies.
        """
        return self.digits < 15 or _count_digits(number) in (self.digits, self.digits + ("E" in number))

    def check(self, builder: parsing.OutputBuilder, context: parsing.RunContext) -> None:
        """Check the table and add its samples to the builder."""
        builder.recognised = bool(self.titles or self.blocks or self.shapes or self.total_bytes)
        if self.titles > 1 or self.ends > 1:
            builder.add_failure("output of more than one benchio run")
            return
        if self.titles == 0:
            builder.add_truncation("this is no output of benchio")
        if self.ends == 0:
            builder.add_truncation("the output ends before 'Finished'")
        if self.damaged:
            builder.add_truncation(f"{self.damaged} damaged or misplaced rows")
        case = _table_case(self)
        if case is None:
            builder.add_truncation("sizes and ranks are not printed whole, or contradict each other")
            return
        mismatch = context.rank_mismatch_reason(case["ranks"], "benchio")
        if mismatch:
            builder.add_failure(mismatch)
            return
        if self.recent:
            builder.facts["generation"] = "2024"
            blocks = _blocks_of_2024(builder, self)
        else:
            builder.facts["generation"] = "2018"
            blocks = _blocks_of_2018(builder, self)
        for block in blocks:
            _keep_block(builder, block, case)


def _blanks_fit(number: str, blanks: str) -> bool:
    """Return whether a number can have been printed there: gfortran's fields have one width.

    It prints as many blanks behind a number without an exponent as `E-002` has characters, and none behind that.
    """
    return "E" not in number or len(blanks) < _EXPONENT_CHARACTERS


def _count_digits(number: str) -> int:
    return len(number.partition("E")[0].replace(".", "").lstrip("0"))


_STEM = re.compile(rf"({'|'.join(BACKENDS)})\d*(?:\.dat|\.nc|\.bp)?", re.ASCII)
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)
_ELEMENT_BYTES = 8
_SUM_TOLERANCE = 1e-11


def _table_case(table: BenchioTable) -> parsing.CaseParameters | None:
    """Return the parameters that all rows share if all printed information about them agrees, else None."""
    grid, local, whole = (table.shapes.get(name) for name in SHAPES)
    ranks, nodes = table.counts.get("proc"), table.counts.get("node")
    if table.contradicts or not (grid and local and whole and ranks and table.total_bytes):
        return None
    total = math.prod(whole) * _ELEMENT_BYTES
    if tuple(processes * size for processes, size in zip(grid, local, strict=True)) != whole:
        return None
    if math.prod(grid) != ranks or not math.isclose(total, table.total_bytes, rel_tol=1e-4):
        return None
    # The 2018 version does not print the ranks of each node.
    if table.recent and (len(table.per_node) != nodes or sum(table.per_node) != ranks):
        return None
    return {
        "ranks": ranks,
        "nodes": nodes,
        "pattern": "block3d",
        "local_size": "x".join(map(str, local)),
        "global_size": "x".join(map(str, whole)),
        "total_bytes": total,
    }


def _keep_block(builder: parsing.OutputBuilder, block: BenchioFileBlock, case: parsing.CaseParameters) -> None:
    directory, _, name = block.path.rpartition("/")
    stem = _STEM.fullmatch(name)
    if stem is None:
        builder.add_truncation(f"'Writing to {parsing.decode_for_display(block.path)}' names no file of benchio")
        return
    api, layout = BACKENDS[stem[1]]
    striping = directory if directory in STRIPINGS else None
    full: parsing.CaseParameters = {**case, "api": api, "file": layout, "striping": striping}
    builder.add_samples("write", "bandwidth", block.rates, full)
    builder.add_samples("write", "time", block.times, full)


def _blocks_of_2024(builder: parsing.OutputBuilder, table: BenchioTable) -> list[BenchioFileBlock]:
    """Return the files of the 2024 version: one row per file, files in the announced order."""
    expected: list[str] = []
    for method in table.lists.get("methods", []):
        expected += [f"{striping}/{method}" for striping in table.lists.get("stripings", [])]
    # The position of each file in this order; -1: not announced.
    positions = []
    for block in table.blocks:
        position = next((index for index, name in enumerate(expected) if block.path.startswith(name)), -1)
        positions.append(position)
    if not expected or -1 in positions or positions != sorted(set(positions)):
        builder.add_truncation("files, methods and stripings are not printed whole, or not in the order announced")
        return []
    # A row before a gap may belong to one of the missing files.
    end = len(expected) if table.ends else max(positions, default=0) + 1
    following = [*positions, end]
    complete = []
    for number, block in enumerate(table.blocks):
        is_followed = following[number + 1] == positions[number] + 1
        if len(block.times) == 1 and is_followed:
            complete.append(block)
    if len(complete) < len(expected):
        builder.add_truncation(f"{len(complete)} of {len(expected)} files were printed whole")
    return complete


def _blocks_of_2018(builder: parsing.OutputBuilder, table: BenchioTable) -> list[BenchioFileBlock]:
    """Return the files of the 2018 version: repetitions, minimum, average; the last file may be truncated."""
    deletes = any(block.deleted for block in table.blocks)
    directories = {block.path.rpartition("/")[0] for block in table.blocks}
    is_plausible = len(directories) == 1 or (directories <= set(STRIPINGS) and (deletes or _are_in_order(table.blocks)))
    valid, paths = [], [block.path for block in table.blocks]
    for block in table.blocks:
        where = f"of '{parsing.decode_for_display(block.path)}'"
        is_whole = table.ends > 0 or block is not table.blocks[-1]
        has_valid_name = (is_plausible or deletes) and _PLAIN.fullmatch(block.path) and paths.count(block.path) == 1
        if is_whole and deletes and block.deleted != block.path:
            builder.add_truncation(f"the end {where} is damaged")
        elif not has_valid_name:
            builder.add_truncation(f"the name {where} is damaged or doubled")
        elif not is_whole and not block.checks and not table.damaged:
            # Cut off before its minimum and average.
            valid.append(block)
        elif not _averages_match(block):
            builder.add_truncation(f"rows {where} do not agree with their minimum and average")
        else:
            valid.append(block)
    if not table.blocks:
        builder.add_truncation("no file was written")
    return valid


def _are_in_order(blocks: list[BenchioFileBlock]) -> bool:
    """Return whether there is one file per striping, in this order (2018's file per process, which deletes none)."""
    positions = [STRIPINGS.index(block.path.rpartition("/")[0]) for block in blocks]
    return positions == sorted(set(positions))


def _averages_match(block: BenchioFileBlock) -> bool:
    if set(block.checks) != {"min", "avg"} or not block.times:
        return False
    repetitions = len(block.times)
    best = (min(block.times), max(block.rates))
    means = (sum(block.times) / repetitions, sum(block.rates) / repetitions)
    printed = (*block.checks["min"], *block.checks["avg"])
    pairs = zip((*best, *means), printed, strict=True)
    return all(math.isclose(expected, value, rel_tol=_SUM_TOLERANCE) for expected, value in pairs)
