"""The tables of the original benchio: 2018 (MiB/s, repetitions) and 2024 (GiB/s, one write a line).

Sources: EPCCed/benchio (90023d1) and davidhenty/benchio (0c682b6), `benchio.F90`. Fortran list-directed
output: gfortran and Cray ftn space it differently, and both print all digits, so that time x rate must be the
total to the last of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from iowatch.model import Output, Scalar
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source, readable
from iowatch.parsers.trouble import Sign
from iowatch.units import GIB, MIB, mib_per_s

_NUMBER = r"(\d+\.\d*(?:E[-+]?\d+)?)"
_ROW = re.compile(rf"(|min|avg)time =\s+{_NUMBER}\s*, (?:|max|avg)rate =\s+{_NUMBER}\s+([MG]iB/s)")
_TOTAL = re.compile(rf"Total amount of data =\s+{_NUMBER}\s+([MG]iB)")
_SHAPE = re.compile(r"(Process grid|Array size|Global size) is\s+\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)")
_SHAPES = ("Process grid", "Array size", "Global size")
_COUNT = re.compile(r"Running on\s+(\d+)\s+(process\(es\)|nodes?(?:\(s\))?)")
_WRITING = re.compile(r"Writing to (\S+)")
_LISTS = {"Using the following IO methods": "methods", "Using the following stripings": "stripings"}
_ELEMENT_BYTES = 8
# Both numbers carry 16 digits or more; Cray prints 17.
_TOLERANCE = 1e-11

# stem of the file -> api and file layout
_BACKENDS: dict[str, tuple[str, str]] = {
    "serial": ("POSIX", "serial"),
    "proc": ("POSIX", "per-process"),
    "node": ("POSIX", "per-node"),
    "mpiio": ("MPIIO", "shared"),
    "hdf5": ("HDF5", "shared"),
    "netcdf": ("NETCDF4", "shared"),
    "adios": ("ADIOS2", "shared"),
    "fpp": ("POSIX", "per-process"),
}
_STRIPINGS = ("unstriped", "striped", "defstriped", "fullstriped")
_WORDS = {*_BACKENDS, *_STRIPINGS}
_STEM = re.compile(rf"({'|'.join(_BACKENDS)})\d*(?:\.dat|\.nc|\.bp)?$")

SIGNS = (
    Sign(r"(?:Open|View|Write|Read|Close|Sync) error on rank", "MPI-IO reports an error"),
    Sign(r"Illegal|ERROR:|Invalid", "benchio reports an error"),
    Sign(r"NetCDF: \w", "the NetCDF library reports an error"),
)


@dataclass
class _Block:
    """What follows one `Writing to …`: rows of one file."""

    path: str
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    checks: dict[str, tuple[float, float]] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def refuses(self, kind: str, time_s: str, rate: str) -> bool:
        """Whether such a row cannot follow what is there already."""
        return "avg" in self.checks or kind in self.checks or (not kind and (time_s, rate) in self.seen)


@dataclass
class _Table:
    """Everything that a table says, before anything is believed."""

    total_bytes: float | None = None
    digits: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)
    titles: int = 0
    ends: int = 0
    damaged: int = 0

    def digits_fit(self, *numbers: str) -> bool:
        """Whether numbers are printed with as many digits as this Fortran run-time prints everywhere.

        gfortran prints 17 digits, Intel 15 (16 with an exponent); Cray drops trailing zeros: no rule.
        """
        return self.digits < 15 or all(_digits(n) in (self.digits, self.digits + ("E" in n)) for n in numbers)


def _digits(number: str) -> int:
    return len(number.partition("E")[0].replace(".", "").lstrip("-0"))


def parse(draft: Draft, source: Source, evidence: Evidence) -> Output:
    """Read a table of the original benchio.

    Args:
        draft: to be filled in.
        source: stdout.
        evidence: what else the run left.
    """
    lines = draft.lines(source)
    table = _Table()
    listing: list[str] | None = None
    for line in lines:
        text = line.strip()
        if text in _LISTS:
            listing = table.lists.setdefault(_LISTS[text], [])
        elif listing is not None and text in _WORDS:
            listing.append(text)
        elif set(text) != {"-"}:
            listing = None
            _read(table, text)
    _judge(draft, table, evidence)
    return draft.close(evidence, lines)


def _read(table: _Table, text: str) -> None:
    if (row := _ROW.fullmatch(text)) is not None:
        _read_row(table, *row.groups())
    elif (writing := _WRITING.fullmatch(text)) is not None:
        table.blocks.append(_Block(writing[1]))
    elif (shape := _SHAPE.fullmatch(text)) is not None:
        table.shapes[shape[1]] = tuple(int(n) for n in shape.groups()[1:])
    elif (count := _COUNT.fullmatch(text)) is not None:
        table.counts[count[2][:4]] = int(count[1])
    elif (total := _TOTAL.fullmatch(text)) is not None:
        table.total_bytes = float(total[1]) * (GIB if total[2] == "GiB" else MIB)
        table.digits = _digits(total[1])
    elif text in ("Finished", "Simple Parallel IO benchmark"):
        table.ends += text == "Finished"
        table.titles += text != "Finished"
    elif "time =" in text or "rate =" in text:
        table.damaged += 1


def _read_row(table: _Table, kind: str, time_s: str, rate: str, unit: str) -> None:
    """Take one row where it belongs: a row after the averages, or of no file, belongs nowhere."""
    block = table.blocks[-1] if table.blocks else None
    values = float(time_s), mib_per_s(float(rate), unit)
    if block is None or block.refuses(kind, time_s, rate) or not table.digits_fit(time_s, rate):
        table.damaged += 1
    elif kind:
        block.checks[kind] = values
    elif table.total_bytes and math.isclose(values[0] * values[1] * MIB, table.total_bytes, rel_tol=_TOLERANCE):
        block.seen.add((time_s, rate))
        block.times.append(values[0])
        block.rates.append(values[1])
    else:
        table.damaged += 1


def _judge(draft: Draft, table: _Table, evidence: Evidence) -> None:
    if table.titles > 1 or table.ends > 1:
        draft.fail("more than one benchio wrote into this output")
        return
    if table.titles == 0:
        draft.cut("this is no output of benchio")
    if table.ends == 0:
        draft.cut("the output ends before 'Finished'")
    if table.damaged:
        draft.cut(f"{table.damaged} damaged or misplaced rows")
    case = _case(draft, table)
    if case is None:
        return
    if evidence.ranks is not None and evidence.ranks != case["ranks"]:
        draft.fail(f"{evidence.ranks} ranks were asked for, benchio ran with {case['ranks']}")
    draft.facts["generation"] = "2024" if table.lists else "2018"
    _keep_blocks(draft, table, case)


def _case(draft: Draft, table: _Table) -> dict[str, Scalar | None] | None:
    """The parameters that all rows share, where everything printed about them agrees."""
    grid, local, whole = (table.shapes.get(name) for name in _SHAPES)
    ranks = table.counts.get("proc")
    if not (grid and local and whole and ranks and table.total_bytes):
        draft.cut("sizes or ranks are not printed whole")
        return None
    same = tuple(g * n for g, n in zip(grid, local, strict=True)) == whole and math.prod(grid) == ranks
    total = math.prod(whole) * _ELEMENT_BYTES
    if not same or not math.isclose(total, table.total_bytes, rel_tol=1e-4):
        draft.cut("sizes and ranks do not agree with each other")
        return None
    return {
        "ranks": ranks,
        "nodes": table.counts.get("node"),
        "pattern": "block3d",
        "local_size": "x".join(map(str, local)),
        "global_size": "x".join(map(str, whole)),
        "total_bytes": total,
    }


def _keep_blocks(draft: Draft, table: _Table, case: dict[str, Scalar | None]) -> None:
    seen: set[str] = set()
    for block in table.blocks:
        directory, _, name = block.path.rpartition("/")
        stem = _STEM.match(name)
        if stem is None or block.path in seen:
            draft.cut(f"'Writing to {readable(block.path)}' is damaged or doubled")
            continue
        seen.add(block.path)
        _check_block(draft, table, block)
        api, layout = _BACKENDS[stem[1]]
        striping = directory if directory in _STRIPINGS else None
        full: dict[str, Scalar | None] = {**case, "api": api, "file": layout, "striping": striping}
        draft.keep("write", "bandwidth", block.rates, full)
        draft.keep("write", "time", block.times, full)
    _check_set(draft, table, seen)


def _check_block(draft: Draft, table: _Table, block: _Block) -> None:
    """Repetitions must agree with the minimum and the averages that were printed of them."""
    where = f"of '{readable(block.path)}'"
    if not block.times:
        draft.cut(f"no row {where}")
    elif table.lists:
        if len(block.times) > 1:
            draft.cut(f"more than one row {where}")
            del block.times[1:], block.rates[1:]
    elif set(block.checks) != {"min", "avg"}:
        draft.cut(f"minimum or average {where} is missing")
    else:
        n = len(block.times)
        expected = (min(block.times), max(block.rates), sum(block.times) / n, sum(block.rates) / n)
        printed = (*block.checks["min"], *block.checks["avg"])
        if not all(math.isclose(e, p, rel_tol=_TOLERANCE) for e, p in zip(expected, printed, strict=True)):
            draft.cut(f"rows {where} do not agree with their minimum and average")


def _check_set(draft: Draft, table: _Table, seen: set[str]) -> None:
    """The 2024 benchio says beforehand what it will write."""
    for method in table.lists.get("methods", []):
        for striping in table.lists.get("stripings", []):
            if not any(path.startswith(f"{striping}/{method}") for path in seen):
                draft.cut(f"no row of '{striping}/{method}'")
    if table.lists and not (table.lists.get("methods") and table.lists.get("stripings")):
        draft.cut("the list of methods or stripings is missing")
    if not seen:
        draft.cut("no file was written")
