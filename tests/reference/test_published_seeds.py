"""Every cell of the published tables is compared with the text of the source documents."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from iowatch.reference import published
from tests.datasets import outside_cases
from tests.reference.seed_text import TABLES, flat, printed, seed

pytestmark = pytest.mark.outside_data

ALL = [(source, table) for source, tables in TABLES.items() for table in tables]
WORDS = {
    "one": 1, "two": 2, "pair": 2, "couple": 2, "doubled": 2, "three": 3, "four": 4, "quad": 4, "five": 5,
    "eight": 8, "ten": 10, "fifteen": 15, "sixteen": 16, "twenty-five": 25, "thirty": 30, "forty-eight": 48,
    "fifty": 50, "hundreds": 100, "thousand": 1000, "half": 0.5, "one hundredth": 0.01, "about the same": 1,
    "four million": 4e6,
}  # fmt: skip


@pytest.mark.parametrize(("source", "table"), outside_cases(ALL))
def test_every_cell_matches_the_source(source: str, table: str) -> None:
    caption, header, rows = printed(source, table)
    ours = published.load_published_table(source, table)
    assert ours.printed == rows
    assert len(ours.sidecar.columns) == len(header[-1])
    if source != "azcarate-mn4":
        assert ours.sidecar.title == caption.rstrip(".")
    head = flat(" ".join(cell for line in header for cell in line))
    for column in ours.sidecar.columns:
        assert column.name.removeprefix("Striping ").split(" (")[0] in head
        assert column.unit in (None, "1") or column.unit in head or column.name == "StdDev"


@pytest.mark.parametrize("table", outside_cases(t for t in TABLES["bartz2014"] if t.startswith("A.")))
def test_appendix_has_each_decimal_as_often_as_the_source(table: str) -> None:
    """Independent of the assembly of rows: nothing lost or duplicated at page breaks."""
    text = seed("bartz2014").split(f"Table {table}.: ")[-1]
    region = re.split(r"\nTable A\.|\nErklärung", text)[0].split("\n", 1)[1]
    decimals = Counter(re.findall(r"(?<=\t)\d+\.\d+", region))
    assert decimals == Counter(
        cell for row in published.load_published_table("bartz2014", table).printed for cell in row if "." in cell[:-1]
    )


def test_all_tables_of_the_sources_are_published() -> None:
    for source, tables in TABLES.items():
        assert set(tables) <= set(published.published_table_names(source))
    captions = re.findall(r"^Table ([A\d.]+?)\.: ", seed("bartz2014"), re.MULTILINE)
    assert sorted(captions) == sorted(TABLES["bartz2014"])
    assert re.findall(r"^Table (\d+)\. ", seed("lawrence2017"), re.MULTILINE) == TABLES["lawrence2017"]
    assert len(re.findall(r"</span>Table \d: ", seed("turner2018"))) == len(TABLES["turner2018"])


def _numbers(text: str) -> set[float]:
    """The numbers that a printed text can represent: figures with , or . between thousands, k/M, words."""
    found = {float(w) for word, w in WORDS.items() if re.search(rf"(?<![a-z]){word}(?![a-z])", text.lower())}
    for figure, suffix in re.findall(r"(\d[\d.,]*\d|\d)\s?([KM](?![a-zA-Z])|million)?", text):
        grouped = re.fullmatch(r"\d{1,3}([.,]\d{3})+", figure) and figure.count(".") != 1
        value = float(re.sub(r"[.,]", "", figure)) if grouped else float(figure.replace(",", ""))
        found.add(value * {"K": 1e3, "M": 1e6, "million": 1e6}.get(suffix, 1))
    return found


@pytest.mark.parametrize(
    "source", outside_cases(["lawrence2017", "bartz2014", "turner2018", "antypas2009", "azcarate-mn4"])
)
def test_numbers_of_the_text_are_in_its_sentences(source: str) -> None:
    text = flat(seed(source))
    for section, quantity, value, unit, shown, sentence in published.load_published_table(source, "text").rows:
        assert sentence in text, (quantity, sentence)
        assert str(shown) in str(sentence), (quantity, shown)
        if unit == "date":
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)), quantity
            assert {float(str(value)[-2:])} <= {float(n) for n in re.findall(r"\d+", str(shown))}, quantity
        elif isinstance(value, str):
            assert value in str(shown), quantity
        else:
            assert isinstance(value, int | float), quantity
            assert value in _numbers(str(shown)), (quantity, value, shown)
        assert _heading(str(section), text), section


def _heading(section: str, text: str) -> bool:
    return all(part in text for part in re.split(r"(?<!\d), ", section)[-1:])


NOT_NUMBERS = {  # names, numbers of figures, sections and references, days without a year
    "antypas2009": r"Figure \d+|\[\d(, \d)*\]|SeaStar-?2|Seastar-2|fc4|M(AD|ad)[Bb]ench2|S3D|HDF5|XT4|CLE2\.1 ?UP01"
    r"|March 17th(?!,? 2009)|^\d(\.\d)? (?=[A-Z])",
    "azcarate-mn4": r"h5bench|HDF5(?! 1)|H5F?\w*|Mare[nN]ostrum 4|[123]D|[\d\w-]+-c-c\S*|GBs-core\S*|DIM_\d"
    r"|^192³ particles$|^192$|^128$|^256-256-128 particles$|^256-128$",
}


@pytest.mark.parametrize("source", outside_cases(["antypas2009", "azcarate-mn4"]))
def test_every_figure_of_the_text_is_recorded(source: str) -> None:
    """Every figure in digits (names and the like apart) is the printed one of a row of its sentence."""
    body = seed(source).split("Abstract\n" if source == "antypas2009" else "Configuration\n", 1)[1]
    body = re.split(r"8 Acknowledgments|\nConclusions\n", body)[0]
    if source == "azcarate-mn4":
        body = re.sub(r'"benchmark": .*?\n}|=+ Performance Results.*?\n=+\n', "", body, flags=re.DOTALL)
    rows = [[str(cell) for cell in row] for row in published.load_published_table(source, "text").rows]
    for line in filter(str.strip, body.splitlines()):
        whole = flat(line)
        shown = " ".join(row[4] for row in rows if row[5] in whole or whole[-20:] in row[5] or whole[:20] in row[5])
        for figure in re.findall(r"\d[\d.,]*", re.sub(NOT_NUMBERS[source], " ", whole)):
            assert figure.strip(".,") in shown, (figure, line)
