"""Facts that the papers state, recomputed from their tables; and a few that only follow from their tables.

A fact is one row of `_FACTS`: the statement of the text (a row of the source's table "text") and its computation
from the tables. If the two do not agree, ERRATA.md names the fact. `_UNSTATED` has facts without a number in a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from iowatch.core import InputError, UsageError, suggest_name
from iowatch.reference import published

Relation = Literal["is", "about", "over", "under"]
_ABOUT = 0.05


@dataclass(frozen=True, slots=True)
class DerivedFact:
    """A statement of a paper and the value computed from its tables.

    Attributes:
        name: key; if the statement does not hold, ERRATA.md contains it.
        source: its key.
        section: where it is stated, or what it is computed from.
        stated: the number of the text; None where it has none.
        unit: of both numbers.
        relation: how the text means it: `is` (to the digits printed), `about` (within 5 %), `over`, `under`.
        computed: the value from the tables.
    """

    name: str
    source: str
    section: str
    stated: float | None
    unit: str
    relation: Relation | None
    computed: float

    @property
    def holds(self) -> bool | None:
        """Whether the statement follows from the tables; None where there is none."""
        if self.stated is None:
            return None
        if self.relation == "over":
            return self.computed > self.stated
        if self.relation == "under":
            return self.computed < self.stated
        digits = len(f"{self.stated}".partition(".")[2]) if not float(self.stated).is_integer() else 0
        rounded = round(self.computed, digits) == self.stated
        return rounded if self.relation == "is" else abs(self.computed - self.stated) <= _ABOUT * self.stated


@cache
def _load_table(source: str, table: str) -> published.PublishedTable:
    return published.load_published_table(source, table)


def _column_cells(loaded: published.PublishedTable, column: str) -> list[published.PublishedCell]:
    names = [c.name for c in loaded.sidecar.columns]
    if column not in names:
        where = f"table {loaded.source}/{loaded.name}"
        raise UsageError(f"{where} has no column '{column}'", hint=suggest_name(column, names))
    return [row[names.index(column)] for row in loaded.rows]


def column_numbers(source: str, table: str, column: str) -> list[float]:
    """The numbers of a column, blanks left out.

    Raises:
        UsageError: no such table or column.
    """
    return [cell for cell in _column_cells(_load_table(source, table), column) if isinstance(cell, int | float)]


def column_maximum(source: str, table: str, *columns: str) -> float:
    """The highest number of some columns."""
    return max(max(column_numbers(source, table, column)) for column in columns)


def cell_value(source: str, table: str, column: str, **where: str | float) -> float:
    """The number of a column in the one row that has these cells; `_` in a name represents a blank.

    Raises:
        InputError: no such row, several, or no number there.
    """
    loaded = _load_table(source, table)
    keys = [_column_cells(loaded, name.replace("_", " ")) for name in where]
    found = [
        value
        for value, *row in zip(_column_cells(loaded, column), *keys, strict=True)
        if row == list(where.values()) and isinstance(value, int | float)
    ]
    if len(found) != 1:
        raise InputError(f"table {source}/{table} has {len(found)} numbers '{column}' where {where}, expected one")
    return found[0]


def stated_value(source: str, quantity: str) -> float:
    """A number of a source's text."""
    return cell_value(source, "text", "Value", Quantity=quantity)


def percent_of(value: float, whole: float) -> float:
    """A part in per cent."""
    return 100 * value / whole


def percent_gain(value: float, base: float) -> float:
    """How much higher a value is than a base, in per cent."""
    return 100 * (value / base - 1)


@dataclass(frozen=True, slots=True)
class BestStripe:
    """The stripe size with the highest bandwidth for one volume, in one printed table of ARCHER.

    Attributes:
        table: of [lawrence2017].
        case: interface and local size.
        total_mib: volume, MiB.
        best: the stripe size as printed.
        gain: how much higher it is than with 1 MiB, in per cent.
    """

    table: str
    case: str
    writers: int
    total_mib: float
    best: str
    gain: float


STRIPE_SIZES = ("1 MiB", "4 MiB", "8 MiB")
_STRIPE_TABLES = {"4": "MPIIO 128x128x128", "6": "MPIIO 256x256x256"}


def best_stripe_sizes() -> list[BestStripe]:
    """For each volume of [lawrence2017], Tables 4 and 6 (MPI-IO, maximum striping), the best stripe size."""
    return [stripe for table, case in _STRIPE_TABLES.items() for stripe in _best_stripe_sizes_of_table(table, case)]


def _best_stripe_sizes_of_table(table: str, case: str) -> Iterator[BestStripe]:
    columns = ("Writers", "Total MiB", *STRIPE_SIZES)
    for writers, volume, *rates in zip(*(column_numbers("lawrence2017", table, c) for c in columns), strict=True):
        best = STRIPE_SIZES[rates.index(max(rates))]
        yield BestStripe(table, case, int(writers), volume, best, percent_gain(max(rates), rates[0]))


def _bartz2014_cell(table: str, column: str, *cells: str) -> float:
    """A cell of [bartz2014]'s appendix by the first cells of its row."""
    loaded = _load_table("bartz2014", table)
    (row,) = (row for row in loaded.rows if tuple(row[: len(cells)]) == cells)
    value = row[[c.name for c in loaded.sidecar.columns].index(column)]
    assert isinstance(value, int | float)
    return value


def _new_over_old(operation: str) -> float:
    """The worse of the two patterns with the new default chunk size over the old."""
    old = _bartz2014_cell("A.18", "Mean", "Old", "disjoint & 1-OST", operation)
    return min(_bartz2014_cell("A.18", "Mean", "New", pattern, operation) for pattern in ("disjoint", "1-OST")) / old


def _spread(table: str) -> float:
    rows = zip(
        column_numbers("lawrence2017", table, "Max."), column_numbers("lawrence2017", table, "Min."), strict=True
    )
    return max(high / low for high, low in rows)


def _antypas2009_share(before: str, factor: str) -> float:
    """Part of file-per-processor after the maintenance, were file-per-processor unchanged."""
    return stated_value("antypas2009", before) * stated_value("antypas2009", factor)


_READ_1MB = "MPI-IO read of 1 MB as part of file-per-processor before"
_WRITE_1MB = "MPI-IO write of 1 MB as part of file-per-processor before"
_READ_FACTOR = "IOR MPI-IO read factor, 1 MB (over)"
_WRITE_FACTOR = "IOR MPI-IO write factor, aligned and not (roughly)"
_ARCHER_PEAK = "ARCHER theoretical sustained performance as used"
_CIRRUS_PEAK = "Cirrus theoretical maximum as used"

_Row = tuple[str, str, str, Relation, Callable[[], float]]
_FACTS: tuple[_Row, ...] = (
    ("archer-fraction", "lawrence2017", "ARCHER maximum striping part of the advertised bandwidth (just over)", "over",
     lambda: percent_of(column_maximum("lawrence2017", "2", "Max."), stated_value("lawrence2017", _ARCHER_PEAK))),
    ("archer-default-fraction", "lawrence2017", "ARCHER default striping part of the theoretical performance", "is",
     lambda: percent_of(column_maximum("lawrence2017", "1", "Max."), stated_value("lawrence2017", _ARCHER_PEAK))),
    ("archer-peak", "lawrence2017", "ARCHER maximum striping maximum (slightly under)", "under",
     lambda: column_maximum("lawrence2017", "2", "Max.")),
    ("archer-worst-case", "lawrence2017", "ARCHER 48 writers, maximum over minimum (more than)", "over",
     lambda: _spread("1")),
    ("cirrus-fraction", "lawrence2017", "Cirrus striped part of the theoretical maximum", "is",
     lambda: percent_of(column_maximum("lawrence2017", "14", "MPI-IO", "NetCDF"),
                        stated_value("lawrence2017", _CIRRUS_PEAK))),
    ("cirrus-unstriped-lowest", "lawrence2017", "Cirrus unstriped, lower", "over",
     lambda: min(min(column_numbers("lawrence2017", "13", api)) for api in ("MPI-IO", "HDF5", "NetCDF"))),
    ("cosma-fraction", "lawrence2017", "COSMA part of the rated maximum (approximately)", "about",
     lambda: percent_of(column_maximum("lawrence2017", "15", "Bandwidth"),
                        1024 * stated_value("lawrence2017", "COSMA theoretical maximum"))),
    ("rdf-dac-fraction", "lawrence2017", "RDF DAC part of the theoretical maximum (approximately)", "about",
     lambda: percent_of(column_maximum("lawrence2017", "18", "MPI-IO"),
                        stated_value("lawrence2017", "RDF DAC theoretical maximum as used"))),
    ("rdf-dac-hdf5", "lawrence2017", "RDF DAC HDF5 as part of MPI-IO", "is",
     lambda: percent_of(column_maximum("lawrence2017", "18", "HDF5"), column_maximum("lawrence2017", "18", "MPI-IO"))),
    ("rdf-dac-netcdf", "lawrence2017", "RDF DAC NetCDF as part of MPI-IO", "is",
     lambda: percent_of(column_maximum("lawrence2017", "18", "NetCDF"),
                        column_maximum("lawrence2017", "18", "MPI-IO"))),
    ("archer-netcdf", "lawrence2017", "ARCHER NetCDF as part of MPI-IO (roughly)", "about",
     lambda: percent_of(column_maximum("lawrence2017", "10", *STRIPE_SIZES),
                        column_maximum("lawrence2017", "4", *STRIPE_SIZES))),
    ("hdf5-overhead", "lawrence2017", "overhead of HDF5", "is",
     lambda: 100 - percent_of(column_maximum("lawrence2017", "18", "HDF5"),
                              column_maximum("lawrence2017", "18", "MPI-IO"))),
    ("netcdf-overhead", "lawrence2017", "overhead of NetCDF", "is",
     lambda: 100 - percent_of(column_maximum("lawrence2017", "18", "NetCDF"),
                              column_maximum("lawrence2017", "18", "MPI-IO"))),
    ("stripe-gain-4", "lawrence2017", "gain of 4 MiB stripes, large arrays (approximately)", "about",
     lambda: percent_gain(column_maximum("lawrence2017", "6", "4 MiB"), column_maximum("lawrence2017", "6", "1 MiB"))),
    ("stripe-gain-8", "lawrence2017", "gain of 8 MiB stripes, large arrays (approximately)", "about",
     lambda: percent_gain(column_maximum("lawrence2017", "6", "8 MiB"), column_maximum("lawrence2017", "6", "1 MiB"))),
    ("four-files", "lawrence2017", "768 writers, four files over one (more than)", "over",
     lambda: cell_value("lawrence2017", "12", "4 Files Aggregate", Writers=768)
     / cell_value("lawrence2017", "11", "1 File", Writers=768)),
    ("hamburg-maximum", "bartz2014", "theoretical maximum in MiB/s", "is",
     lambda: stated_value("bartz2014", "theoretical maximum") * 1e6 / 2**20),
    ("hamburg-new-chunk-write", "bartz2014", "new version over old (more than)", "over",
     lambda: _new_over_old("write")),
    ("hamburg-new-chunk-read", "bartz2014", "new version over old (more than)", "over",
     lambda: _new_over_old("read")),
    ("franklin-flash", "antypas2009", "FLASH read factor (over)", "about",
     lambda: stated_value("antypas2009", "FLASH read rate after")
     / stated_value("antypas2009", "FLASH read rate before (less than)")),
    ("franklin-s3d", "antypas2009", "S3D factor (over)", "over",
     lambda: stated_value("antypas2009", "S3D rate after, harmonic mean")
     / stated_value("antypas2009", "S3D rate before, harmonic mean")),
    ("franklin-osts", "antypas2009", "OSTs", "is",
     lambda: stated_value("antypas2009", "OSSs") * stated_value("antypas2009", "OSTs an OSS")),
    ("franklin-disk", "antypas2009", "disk of /scratch", "is",
     lambda: stated_value("antypas2009", "OSTs") * stated_value("antypas2009", "size of a LUN")),
    ("marenostrum-flush", "azcarate-mn4", "part of H5Fflush in the raw write time (nearly)", "about",
     lambda: cell_value("azcarate-mn4", "example", "Value", Quantity="H5Fflush() time")
     / cell_value("azcarate-mn4", "example", "Value", Quantity="Raw write time")),
)  # fmt: skip


def aligned_over_unaligned() -> float:
    """NetCDF-4 collective writes of the 1-OST pattern, with alignment over without, means ([bartz2014], Table A.15)."""
    aligned = _bartz2014_cell("A.15", "Mean", "NC4", "cll.", "aligned", "write")
    return aligned / _bartz2014_cell("A.15", "Mean", "NC4", "cll.", "unaligned", "write")


def franklin_after() -> dict[str, float]:
    """MPI-IO in per cent of file-per-processor after 17 March 2009, from the shares before and the factors.

    The factors are of [antypas2009], section 5.4; file-per-processor is taken as unchanged, as for MADBench2.
    """
    aligned = "MPI-IO write of 1 MiB as part of file-per-processor before (about)"
    return {
        "read 1 MB": _antypas2009_share(_READ_1MB, _READ_FACTOR),
        "write 1 MB": _antypas2009_share(_WRITE_1MB, _WRITE_FACTOR),
        "write 1 MiB": _antypas2009_share(aligned, _WRITE_FACTOR),
    }


# (name, source, what it is computed from, unit, how)
_UNSTATED: tuple[tuple[str, str, str, str, Callable[[], float]], ...] = (
    ("hamburg-aligned-write", "bartz2014", "Table A.15: NetCDF-4, 1-OST, cll. write, aligned over unaligned", "1",
     aligned_over_unaligned),
    ("franklin-read-1mb-after", "antypas2009", "sections 3 and 5.4: share of file-per-processor x factor", "%",
     lambda: franklin_after()["read 1 MB"]),
    ("franklin-write-1mb-after", "antypas2009", "sections 3 and 5.4: share of file-per-processor x factor", "%",
     lambda: franklin_after()["write 1 MB"]),
    ("franklin-write-1mib-after", "antypas2009", "sections 3 and 5.4: share of file-per-processor x factor", "%",
     lambda: franklin_after()["write 1 MiB"]),
)  # fmt: skip


def _compute_fact(row: _Row) -> DerivedFact:
    name, source, quantity, relation, compute = row
    text = _load_table(source, "text")
    (line,) = (line for line in text.rows if line[1] == quantity)
    section, _, value, unit, *_ = line
    assert isinstance(value, int | float)
    return DerivedFact(name, source, str(section), value, str(unit), relation, compute())


def compute_facts() -> list[DerivedFact]:
    """All facts, in the order of the sources."""
    ours = [DerivedFact(name, source, of, None, unit, None, compute()) for name, source, of, unit, compute in _UNSTATED]
    return sorted([*map(_compute_fact, _FACTS), *ours], key=lambda fact: fact.source)


def compute_fact(name: str) -> DerivedFact:
    """One fact.

    Raises:
        UsageError: no such fact.
    """
    known = {fact.name: fact for fact in compute_facts()}
    if name not in known:
        raise UsageError(f"no fact '{name}'", hint=suggest_name(name, list(known)))
    return known[name]
