"""Published tables: refused faults and their messages, the long form, the command."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from iowatch.cli.main import iowatch
from iowatch.core import InputError, IowatchError, UsageError
from iowatch.reference import published

Copy = Callable[[str, str, str, str], Path]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("1.csv", "24,384,352", "24,384,fast", r"1\.csv:2: column 3 'Min\.': expected a number.*'fast'"),
        ("1.csv", "24,384,352", "24,384,-352", r"1\.csv:2: column 3 'Min\.': a measurement cannot be negative"),
        ("1.csv", "24,384,352", "24,384,nan", r"1\.csv:2: column 3 'Min\.'"),
        ("1.csv", "48,768,7,", "48,768,", r"1\.csv:3: 7 cells expected, found 6"),
        ("1.csv", "Min.,", "Minimum,", r"1\.csv:1: header .* is not that of the sidecar"),
        ("1.yaml", "section:", "sektion:", r"1\.yaml:2:1: field 'sektion': unknown field.*Did you mean 'section'"),
        ("1.yaml", "unit: MiB,", "unit: MB/S,", r"1\.yaml:6:29: field 'columns\.1\.unit': .*found 'MB/S'"),
        ("1.yaml", "key: writers", "key: writer", r"1\.yaml:5:\d+: field 'columns\.0\.key'"),
        ("1.yaml", "title:", "title: [", r"1\.yaml:\d+:\d+: not YAML"),
        ("1.yaml", "section:", "title: again\nsection:", r"1\.yaml:2:1: key 'title' occurs twice"),
        ("1.yaml", "stripe_count: 4", "stripe_count: [4]", r"1\.yaml:\d+:17: field 'common\.stripe_count"),
    ],
)  # fmt: skip
def test_fault_is_reported_with_file_line_and_column(
    published_copy: Copy, file: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        published.load_published_table("lawrence2017", "1", published_copy("000", file, old, new))


def test_all_faults_of_a_file_are_reported_together(published_copy: Copy) -> None:
    root = published_copy("000", "1.csv", "24,384,352", "x,384,y")
    with pytest.raises(InputError) as error:
        published.load_published_table("lawrence2017", "1", root)
    assert str(error.value).count("1.csv:2:") == 2


def test_text_without_meaning_in_the_sidecar_is_reported(published_copy: Copy) -> None:
    root = published_copy("001", "A.1.csv", "POSIX", "POSIXX")
    with pytest.raises(InputError, match=r"A\.1\.yaml:\d+:\d+: column 'API' has 'POSIXX'.*Did you mean 'POSIX'"):
        published.load_published_table("bartz2014", "A.1", root)


def test_unknown_unit_of_a_row_is_reported(published_copy: Copy) -> None:
    root = published_copy("004", "example.csv", "0.642,s", "0.642,sec")
    with pytest.raises(InputError, match=r"example\.csv:5: column 3 'Unit': unknown unit 'sec'"):
        published.load_published_table("azcarate-mn4", "example", root)


def test_csv_without_sidecar_is_reported(published_copy: Copy) -> None:
    root = published_copy("004", "example.csv", "0.642", "0.642")
    (root / "004" / "example.yaml").unlink()
    with pytest.raises(InputError, match=r"example\.csv: no sidecar"):
        published.load_all_tables(root)


def test_table_names_are_in_printed_order() -> None:
    assert published.published_table_names("lawrence2017")[:10] == [str(n) for n in range(1, 11)]
    assert published.published_table_names("turner2018")[4:7] == ["5", "5b", "6"]
    assert published.published_table_names("bartz2014")[9:12] == ["A.1", "A.2", "A.3"]


@pytest.mark.parametrize("bad", [("005", "1"), ("000", "22")])
def test_error_for_unknown_source_or_table_lists_the_known(bad: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="Known: "):
        published.load_published_table(*bad)


TABLES = [t for t in published.load_all_tables() if published.has_long_form(t)]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.source}/{t.name}")
def test_long_form_has_every_measured_cell_once(table: published.PublishedTable) -> None:
    measured = [n for n, c in enumerate(table.sidecar.columns) if c.measured is not None]
    cells = Counter(row[n] for row in table.rows for n in measured if row[n] is not None)
    records = published.table_measurements(table)
    assert Counter(r["value"] for r in records) == cells
    keys = Counter(tuple(v for k, v in r.items() if k != "value") for r in records)
    assert max(keys.values()) == 1, "two measurements of the same thing"
    assert all(r["system"] and r["benchmark"] and r["api"] and r["operation"] and r["statistic"] for r in records)


def test_long_form_of_a_stripe_size_block() -> None:
    """[lawrence2017], Table 6: 6144 writers, 8 MiB stripes, 15946.277 MiB/s; 24 writers per node (section 6)."""
    (record,) = (
        r
        for r in published.table_measurements(published.load_published_table("lawrence2017", "6"))
        if r["writers"] == 6144 and r["stripe_size_mib"] == 8
    )
    expected = {"system": "archer", "api": "MPIIO", "operation": "write", "nodes": 256, "total_mib": 786432,
                "stripe_count": -1, "local_size": "256x256x256", "statistic": "max", "value": 15946.277,
                "unit": "MiB/s"}  # fmt: skip
    assert expected.items() <= record.items()


def test_long_form_converts_sizes_in_text() -> None:
    """[bartz2014], Table A.2: transfer sizes from 128 KiB to 512 MiB."""
    sizes = {
        r["transfer_mib"] for r in published.table_measurements(published.load_published_table("bartz2014", "A.2"))
    }
    assert sizes == {0.125, 0.25, 0.5, *(2**n for n in range(10))}


def test_rows_of_one_experiment_agree_in_all_tables_that_repeat_it() -> None:
    """[bartz2014] repeats the 1-OST results of Table A.5 in A.6, A.9 and A.15, those of A.1 in A.17."""
    for first, others in {"A.5": ("A.6", "A.9", "A.15"), "A.1": ("A.17",), "A.2": ("A.3",)}.items():
        known = {tuple(row[-4:]) for row in published.load_published_table("bartz2014", first).rows}
        for other in others:
            assert (
                len(known & {tuple(row[-4:]) for row in published.load_published_table("bartz2014", other).rows}) >= 4
            )


@pytest.mark.parametrize("name", [f"A.{n}" for n in range(1, 19)])
def test_max_min_mean_and_deviation_fit_three_repetitions(name: str) -> None:
    """Three repetitions ([bartz2014], 4.3): the third follows from mean, max and min, and then the deviation does."""
    for *_, high, low, mean, deviation in published.load_published_table("bartz2014", name).rows:
        assert all(isinstance(v, int | float) for v in (high, low, mean, deviation))
        third = 3 * mean - high - low
        squares = sum((v - mean) ** 2 for v in (high, low, third))
        either = (math.sqrt(squares / 3), math.sqrt(squares / 2))
        assert min(abs(deviation - e) for e in either) <= 0.02 + 0.01 * deviation


def test_json_has_the_documented_fields() -> None:
    outcome = CliRunner().invoke(iowatch, ["reference", "show", "--published", "lawrence2017", "17", "--json"])
    document = json.loads(outcome.stdout)
    assert outcome.exit_code == 0
    assert list(document) == ["source", "table", "title", "columns", "rows"]
    assert (document["source"], document["table"]) == ("000", "17")
    assert document["columns"][2] == {"name": "Striping 8", "unit": "MiB/s"}
    assert document["rows"][0] == [16, 3072, None, None, None, None, 625.527]


def test_command_lists_sources_and_tables() -> None:
    outcome = CliRunner().invoke(iowatch, ["reference", "show", "--published", "--json"])
    known = {s["source"]: {t["table"] for t in s["tables"]} for s in json.loads(outcome.stdout)["sources"]}
    assert sorted(known) == ["000", "001", "002", "003", "004"]
    assert {"4.1", "A.18"} <= known["001"]
    people = CliRunner().invoke(iowatch, ["reference", "show", "--published", "antypas2009"])
    assert "Franklin" in people.stdout


def test_command_has_a_long_form_and_prints_notes() -> None:
    outcome = CliRunner().invoke(iowatch, ["reference", "show", "--published", "bartz2014", "A.4", "--long", "--json"])
    document = json.loads(outcome.stdout)
    assert [c["name"] for c in document["columns"]][:13] == [
        "system", "benchmark", "api", "operation", "writers", "nodes", "total_mib", "stripe_count",
        "stripe_size_mib", "local_size", "statistic", "value", "unit",
    ]  # fmt: skip
    assert len(document["rows"]) == 52 * 4
    assert "note: " in CliRunner().invoke(iowatch, ["reference", "show", "--published", "bartz2014", "A.4"]).stdout


@pytest.mark.parametrize(
    "arguments",
    [["bartz2014", "4.1", "--long"], ["lawrence2017", "99"], ["006"], ["lawrence2017", "1", "2"]],
    ids=" ".join,
)
def test_invalid_use_is_refused(arguments: list[str]) -> None:
    outcome = CliRunner().invoke(iowatch, ["reference", "show", "--published", *arguments])
    assert isinstance(outcome.exception, IowatchError)
    assert outcome.exception.exit_code == 2


def test_source_has_a_key_and_its_number_as_alias() -> None:
    assert published.source_number("lawrence2017") == published.source_number("000") == "000"
    assert published.source_key("lawrence2017") == published.source_key("000") == "lawrence2017"
    assert {source.key for source in published.load_sources().values()} == {
        "lawrence2017", "bartz2014", "turner2018", "antypas2009", "azcarate-mn4",
    }  # fmt: skip
    by_key, by_number = (
        CliRunner().invoke(iowatch, ["reference", "show", "--published", name, "6", "--json"])
        for name in ("lawrence2017", "000")
    )
    assert by_key.stdout == by_number.stdout
    with pytest.raises(UsageError, match="no published source 'lawrence'") as refused:
        published.source_number("lawrence")
    assert "lawrence2017" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("name", "cited"),
    [
        ("000/13", "Lawrence et al. 2017, Table 13"),
        ("bartz2014/A.15", "Bartz 2014, Table A.15"),
        ("000/text", "Lawrence et al. 2017, text"),
        ("003", "Antypas and Uselton 2009"),
        ("4f0c1d2e", "4f0c1d2e"),
    ],
)
def test_tables_are_cited_by_author_and_year(name: str, cited: str) -> None:
    assert published.cite_table(name) == cited


def test_output_shows_author_year_and_table() -> None:
    shown = CliRunner().invoke(iowatch, ["reference", "show", "--published", "lawrence2017", "17"])
    assert "Lawrence et al. 2017, Table 17: " in shown.stdout
    listed = CliRunner().invoke(iowatch, ["reference", "show", "--published", "antypas2009"])
    assert "antypas2009 (003) Katie Antypas, Andrew Uselton: MPI-I/O on Franklin" in " ".join(listed.stdout.split())


def test_keys_and_references_are_those_of_the_glossary() -> None:
    glossary = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| `(\d{3})` \| .*?\*(.*?)\*", glossary, re.MULTILINE)
    assert {key: (number, title) for key, number, title in rows} == {
        source.key: (number, source.title) for number, source in published.load_sources().items()
    }
