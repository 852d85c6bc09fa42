"""The suites that repeat a paper's tables: every case is a row of one, and every table named has cases.

The tables are those of reference/published, which other tests compare with the sources.
"""

from __future__ import annotations

import re

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.benchmark import requested_operations
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import MIB, Scalar, parse_size
from iowatch.core.yamlfile import YamlDocument
from iowatch.reference import published
from tests.conftest import ROOT

Row = dict[str, Scalar | None]

# suite -> source, tables. ARCHER's tables have no HDF5 (Tables 13 and 14, of Cirrus, have).
REPEATED = {
    "benchio/hamburg": ("bartz2014", [f"A.{n}" for n in (1, 2, 3, 4, 5, 7, *range(9, 19))]),
    "ior/hamburg": ("bartz2014", ["A.1", "A.5", "A.7"]),
    "benchio/archer": ("lawrence2017", [str(n) for n in range(1, 13)]),
    "benchio/cosma6": ("lawrence2017", ["16", "17"]),
}
# Tables 16 and 17 print totals that are not those of their writers (reference/ERRATA.md), and no nodes.
_UNKNOWN = {"16": ("total_mib", "nodes", "local_size"), "17": ("total_mib", "nodes", "local_size")}
# Source -> case parameter `hints` of its collective runs. [bartz2014], section 4.3: "For collective I/O, we disable the
# Two-Phase I/O optimisation"; [lawrence2017] sets no hint but striping, which is a column of its tables.
_COLLECTIVE_HINTS = {"bartz2014": "cb=off", "lawrence2017": None}
_APIS = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "netcdf4": "NETCDF4"}
_DEFAULTS: Row = {
    **{"alignment_mib": 0, "chunk_mib": None, "osts": None, "dimensions": 1, "transfer_mib": None},
    **{"instances": 1, "local_size": None, "variant": None},
}
_KEYS = ("api", "operation", "writers", "nodes", "total_mib", "stripe_count", "stripe_size_mib", "pattern")


def _published(source: str, table: str) -> list[Row]:
    """The parameters of the rows of a table; aggregates are left out because they are no runs."""
    rows = []
    for record in published.table_measurements(published.load_published_table(source, table)):
        row = {key: record.get(key) for key in (*_KEYS, "collective", *_DEFAULTS)}
        row |= {key: value for key, value in _DEFAULTS.items() if row[key] is None}
        if str(row["variant"]).endswith("default chunk size"):  # A.18: both chunked, extended with each transfer
            row |= {"chunk_mib": None, **({"osts": None} if str(row["variant"]).startswith("old") else {})}
        row |= dict.fromkeys(_UNKNOWN.get(table, ()))
        row["hints"] = _COLLECTIVE_HINTS[source] if row["collective"] else None
        if row["variant"] != "aggregate":
            rows.append(row)
    return rows


def _mib(case: SuiteCase, name: str) -> float | None:
    return case.options.number(name) / MIB if name in case.options else None


def _rows(case: SuiteCase) -> list[Row]:
    """A case in the vocabulary of the tables, one row per operation."""
    options = case.options
    chunk = str(options["chunk"]).partition("x")[0] if "chunk" in options else None
    pattern = options.get("pattern") or ("interleaved" if "segments" in options else "disjoint")
    block3d = "local" in options
    unlimited = "unlimited" if options.get("unlimited") else None
    # A.18: default chunks of one unlimited dimension
    defaults = {"1": "old default chunk size", "4m": "new default chunk size"}
    if unlimited and chunk in defaults:
        unlimited, chunk = defaults[chunk], None
    row: Row = {
        "api": _APIS[str(options["api"])],
        "writers": options["ranks"],
        "nodes": options["nodes"],
        "total_mib": case.tool.file_bytes(options) / MIB,
        "stripe_count": options.get("stripe-count"),
        "stripe_size_mib": _mib(case, "stripe-size"),
        "pattern": "block3d" if block3d else pattern,
        "collective": options.get("access", "collective" if block3d else None) == "collective"
        or options.get("collective", False),
        "alignment_mib": _mib(case, "align") or 0,
        "chunk_mib": parse_size(chunk) / MIB if chunk else None,
        "osts": (_mib(case, "block") or 0) if pattern == "interleaved" and not block3d else None,
        "dimensions": 2 if "row" in options else 1,
        "transfer_mib": _mib(case, "transfer"),
        "instances": options.get("instances", 1),
        "local_size": options.get("local"),
        "variant": unlimited,
        "hints": case.tool.shows(options).get("hints"),
    }
    if case.suite == "cosma6":
        row |= dict.fromkeys(_UNKNOWN["16"])
    return [{**row, "operation": operation} for operation in requested_operations(options)]


def test_suites_cite_sources_by_key() -> None:
    keys = {source.key for source in published.load_sources().values()}
    cited = [
        YamlDocument(path).data["repeats"]
        for path in (ROOT / "benchmarks").glob("*/suites/*.yaml")
        if "repeats" in YamlDocument(path).data
    ]
    assert cited
    assert all(re.match(r"\[([\w-]+)\]", text)[1] in keys for text in cited), cited


@pytest.mark.parametrize("name", REPEATED)
def test_every_case_is_a_row_of_a_published_table(name: str) -> None:
    source, tables = REPEATED[name]
    rows = {table: _published(source, table) for table in tables}
    used: set[str] = set()
    for case in _cases(name):
        for row in _rows(case):
            found = {table for table in tables if row in rows[table]}
            assert found, f"{case.name}: {row}"
            used |= found
    assert used == set(tables)


def _cases(name: str) -> list[SuiteCase]:
    tool, _, suite = name.partition("/")
    found = suites.read_suite_file(ROOT / "benchmarks" / tool / "suites" / f"{suite}.yaml")
    return [case for case in found if not (suite == "archer" and case.options["api"] == "hdf5")]


@pytest.mark.parametrize(
    ("names", "statement"),
    [
        (("benchio/hamburg", "ior/hamburg"), "196 of 306"),
        (("benchio/archer",), "84 of 277"),
        (("benchio/cosma6",), "62 of 67"),
    ],
)
def test_documentation_states_the_number_of_repeated_rows(names: tuple[str, ...], statement: str) -> None:
    have = [row for name in names for case in _cases(name) for row in _rows(case)]
    source, tables = REPEATED[names[0]]
    rows = []
    for table in tables:
        of_table = _published(source, table)
        rows += [row for i, row in enumerate(of_table) if row not in of_table[:i]]
    counts = (sum(row in have for row in rows), len(rows))
    assert [int(word) for word in re.findall(r"\d+", statement)] == list(counts)
    assert statement in (ROOT / "docs" / "benchmarks.md").read_text()
