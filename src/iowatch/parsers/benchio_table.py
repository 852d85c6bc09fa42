"""Reading the tables of the original benchio, before anything is believed.

Sources: EPCCed/benchio (90023d1, 2018) and davidhenty/benchio (0c682b6, 2024), `benchio.f90`. Fortran
list-directed output: gfortran, Intel and Cray space it differently, and all print every digit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeVar

from iowatch.parsers.draft import MOST_NAMES, MOST_ROWS
from iowatch.units import GIB, MIB, mib_per_s

_T = TypeVar("_T")

_NUMBER = r"(\d+\.\d*(?:E[-+]?\d+)?)"
_ROW = re.compile(rf"(|min|avg)time =\s+{_NUMBER}\s*, (?:|max|avg)rate =\s+{_NUMBER}\s+([MG]iB/s)")
_TOTAL = re.compile(rf"Total amount of data =\s+{_NUMBER}\s+([MG]iB)")
_SIZE = r"\s*(\d{1,9})\s*"
_SHAPE = re.compile(rf"(Process grid|Array size|Global size) is\s+\({_SIZE},{_SIZE},{_SIZE}\)")
_COUNT = re.compile(r"Running on\s+(\d{1,9})\s+(process\(es\)|nodes?(?:\(s\))?)")
_NODE = re.compile(r"Node number\s+\d+\s+is \S+\s+with\s+(\d{1,9})\s+process(?:es)?")
_FILE = re.compile(r"(Writing to|Deleting:) (\S+)")
_LISTS = {"Using the following IO methods": "methods", "Using the following stripings": "stripings"}
_MIB_PER_S = {unit: mib_per_s(1.0, unit) for unit in ("MiB/s", "GiB/s")}
# Both numbers of a row carry 15 digits or more.
_TOLERANCE = 2e-14

# stem of the file -> api and file layout
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
class Block:
    """What follows one `Writing to …`.

    Attributes:
        path: the file.
        times, rates: seconds and MiB/s of each repetition.
        checks: `min` -> (shortest time, highest rate), `avg` -> both means.
        deleted: the file that was deleted after it (2018).
    """

    path: str
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    checks: dict[str, tuple[float, float]] = field(default_factory=dict)
    deleted: str | None = None
    printed: set[tuple[str, str]] = field(default_factory=set)

    def takes(self, kind: str, time_s: str, rate: str) -> bool:
        """Whether such a row can follow what is there already."""
        if not self.checks and not kind:
            return (time_s, rate) not in self.printed and len(self.times) < MOST_ROWS
        doubled = not kind and (time_s, rate) in self.printed
        return not ("avg" in self.checks or kind in self.checks or doubled or len(self.times) >= MOST_ROWS)


@dataclass
class Table:
    """Everything that a table says."""

    recent: bool = False
    total_bytes: float | None = None
    digits: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    per_node: list[int] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    titles: int = 0
    ends: int = 0
    damaged: int = 0
    contradicts: bool = False
    _listing: list[str] | None = None

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        text = line.strip()
        if text.startswith("time ="):
            self._listing = None
            self._read_row(text)
        elif text in _LISTS:
            self.recent = True
            self._listing = self.lists.setdefault(_LISTS[text], [])
        elif self._listing is not None and (text in BACKENDS or text in STRIPINGS):
            self._listing += [text] if len(self._listing) < MOST_NAMES else []
        elif set(text) != {"-"}:
            self._listing = None
            self._read(text)

    def _read(self, text: str) -> None:
        if "time =" in text or "rate =" in text:
            self._read_row(text)
        elif (file := _FILE.fullmatch(text)) is not None:
            self._read_file(file[1], file[2])
        elif text in ("Finished", "Simple Parallel IO benchmark"):
            self.ends += text == "Finished"
            self.titles += text != "Finished"
        else:
            self._read_head(text)

    def _read_head(self, text: str) -> None:
        if (shape := _SHAPE.fullmatch(text)) is not None:
            self._set(self.shapes, shape[1], tuple(int(n) for n in shape.groups()[1:]))
        elif (count := _COUNT.fullmatch(text)) is not None:
            self._set(self.counts, count[2][:4], int(count[1]))
        elif (node := _NODE.fullmatch(text)) is not None:
            self.per_node += [int(node[1])] if len(self.per_node) < MOST_ROWS else []
        elif (total := _TOTAL.fullmatch(text)) is not None:
            self.recent |= total[2] == "GiB"
            self.total_bytes = float(total[1]) * (GIB if total[2] == "GiB" else MIB)
            self.digits = _digits(total[1])

    def _set(self, place: dict[str, _T], name: str, value: _T) -> None:
        self.contradicts |= place.setdefault(name, value) != value

    def _read_file(self, verb: str, path: str) -> None:
        if verb == "Writing to" and len(self.blocks) < MOST_ROWS:
            self.blocks.append(Block(path))
        elif self.blocks and self.blocks[-1].deleted is None:
            self.blocks[-1].deleted = path
        else:
            self.damaged += 1

    def _read_row(self, text: str) -> None:
        """Take one row where it belongs: a row after the averages, or of no file, belongs nowhere."""
        block = self.blocks[-1] if self.blocks else None
        full = block is not None and len(block.times) >= MOST_ROWS and text.startswith("time =")
        match = None if full else _ROW.fullmatch(text)
        if match is None or block is None:
            self.damaged += 1
            return
        kind, time_s, rate, unit = match.groups()
        if not block.takes(kind, time_s, rate) or not (self._digits_fit(time_s) and self._digits_fit(rate)):
            self.damaged += 1
            return
        seconds, bandwidth = float(time_s), float(rate) * _MIB_PER_S[unit]
        if kind:
            block.checks[kind] = seconds, bandwidth
        elif math.isclose(seconds * bandwidth * MIB, self.total_bytes or 0, rel_tol=_TOLERANCE):
            block.printed.add((time_s, rate))
            block.times.append(seconds)
            block.rates.append(bandwidth)
        else:
            self.damaged += 1

    def _digits_fit(self, number: str) -> bool:
        """Whether a number is printed with as many digits as this Fortran run-time prints everywhere.

        gfortran prints 17 digits, Intel 15 (16 with an exponent); Cray drops trailing zeros: no rule.
        """
        return self.digits < 15 or _digits(number) in (self.digits, self.digits + ("E" in number))


def _digits(number: str) -> int:
    return len(number.partition("E")[0].replace(".", "").lstrip("0"))
