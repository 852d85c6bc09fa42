"""Reads the printed tables out of the text of the seed documents, independently of `iowatch.reference`.

A row here is the list of a printed line's cells, "" for an empty cell; keys that span rows are
repeated, and cells that a page break removed are added (see `_complete`).
"""

from __future__ import annotations

import html
import re

from tests.datasets import OUTSIDE

SEEDS = OUTSIDE / "seeds"
_PREFIXES = {
    "lawrence2017": "000",
    "bartz2014": "001",
    "turner2018": "002",
    "antypas2009": "003",
    "azcarate-mn4": "004",
}

Row = list[str]


def seed(source: str) -> str:
    """The complete text of one source document."""
    (path,) = SEEDS.glob(f"{_PREFIXES[source]}_*.txt")
    return path.read_text(encoding="utf-8")


def flat(text: str) -> str:
    """Text on one line without markup, so that sentences can be found across line and page breaks."""
    text = re.sub(r"<br />\n|[*`]", "", text)
    return re.sub(r"\s+", " ", html.unescape(text))


def _block_before(lines: list[str], caption: int) -> list[Row]:
    end = caption
    while not lines[end - 1].strip():
        end -= 1
    start = end
    while lines[start - 1].strip():
        start -= 1
    return [line.split("\t") for line in lines[start:end]]


def _block_after(lines: list[str], caption: int) -> list[Row]:
    """All tabbed lines up to the next text: page breaks leave blank lines inside a table."""
    rows: list[Row] = []
    for line in lines[caption + 1 :]:
        if line.strip() and "\t" not in line:
            break
        if line.strip():
            rows.append(line.split("\t"))
    return rows


def _find(lines: list[str], start: str) -> int:
    (found,) = (number for number, line in enumerate(lines) if line.startswith(start))
    return found


def _archer(table: str) -> tuple[str, list[Row], list[Row]]:
    """[lawrence2017]: the caption is below the table; header lines are those before the first number."""
    lines = seed("lawrence2017").splitlines()
    at = _find(lines, f"Table {table}. ")
    block = _block_before(lines, at)
    body = next(n for n, row in enumerate(block) if row[0].isdigit())
    return lines[at].split(". ", 1)[1], block[:body], block[body:]


def _complete(row: Row, width: int, above: Row, spanning: int) -> Row:
    """A page break removed the empty cells on the left (and may have added one on the right)."""
    cells = row if len(row) == width else [""] * (width - len(row)) + row
    if len(row) == width and not row[-1]:
        cells = ["", *row[:-1]]
    return [cell or (above[n] if n < spanning else "") for n, cell in enumerate(cells)]


def _appendix(table: str) -> tuple[str, list[Row], list[Row]]:
    """[bartz2014], appendix A: the caption is above the table; the first line is the header; left keys span rows."""
    lines = seed("bartz2014").splitlines()
    at = _find(lines, f"Table {table}.: ")
    header, *body = _block_after(lines, at)
    spanning = next(n for n, name in enumerate(header) if name.startswith("Max"))
    rows: list[Row] = []
    for row in body:
        rows.append(_complete(row, len(header), rows[-1] if rows else row, spanning))
    return lines[at].split(".: ", 1)[1], [header], _pairs(rows) if table == "A.4" else rows


def _pairs(rows: list[Row]) -> list[Row]:
    """Table A.4: every chunk size has a write and then a read; behind the page break in the NetCDF-4 part
    the text has each size one line early (its last size would have two reads and 1 MiB none)."""
    fixed = [list(row) for row in rows]
    for above, row in zip(rows, fixed[1:], strict=False):
        if row[2] == "read":
            row[1] = above[1]
    return fixed


def _configuration(table: str) -> tuple[str, list[Row], list[Row]]:
    """[bartz2014], chapter 4: `name = value` lines (Table 4.1: a header and two columns), caption below."""
    lines = seed("bartz2014").splitlines()
    at = _find(lines, f"Table {table}.: ")
    block = [[re.sub("</?code>", "", cell) for cell in row if cell != "="] for row in _block_before(lines, at)]
    header, body = (block[:1], block[1:]) if table == "4.1" else ([["Parameter", "Value"]], block)
    return lines[at].split(".: ", 1)[1], header, body


def _pipes(lines: list[str]) -> list[Row]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if not set("".join(row)) <= {"-"}]


def _html(text: str) -> list[Row]:
    rows = re.findall(r"<tr.*?>(.*?)</tr>", text, re.DOTALL)
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", re.sub(r"<br />\n", "", row), re.DOTALL) for row in rows]


def _uk(table: str) -> tuple[str, list[Row], list[Row]]:
    """[turner2018]: Markdown or HTML below the caption; "5b" is the second table printed as number 5."""
    text = seed("turner2018")
    captions = list(re.finditer(rf"^.*</span>Table {table[0]}: (.*)$", text, re.MULTILINE))
    caption = captions[1 if table.endswith("b") else 0]
    block = text[caption.end() :].lstrip("\n").split("\n\n")[0]
    header, *body = _html(block) if block.startswith("<table>") else _pipes(block.splitlines())
    return caption[1], [header], body


def _h5bench(table: str) -> tuple[str, list[Row], list[Row]]:
    """[azcarate-mn4]: the JSON configuration, and the lines `name: value unit` of the printed example."""
    text = seed("azcarate-mn4")
    if table == "configuration":
        return ("Configuration", [["Option", "Value"]], [[*m] for m in re.findall(r'^"(\w+)": "(.*?)"', text, re.M)])
    example = text.split("Performance Results")[1].split("====\n")[1]
    rows = re.findall(r"^(.*): ([\d.]+) ?(\S*)$", example, re.MULTILINE)
    return "Performance Results", [["Quantity", "Value", "Unit"]], [[q, v, u or "1"] for q, v, u in rows]


def printed(source: str, table: str) -> tuple[str, list[Row], list[Row]]:
    """Caption, header lines and rows of one printed table."""
    if source == "lawrence2017":
        return _archer(table)
    if source == "bartz2014":
        return _appendix(table) if table.startswith("A.") else _configuration(table)
    return _uk(table) if source == "turner2018" else _h5bench(table)


TABLES = {
    "lawrence2017": [str(n) for n in range(1, 22)],
    "bartz2014": [f"4.{n}" for n in range(1, 10)] + [f"A.{n}" for n in range(1, 19)],
    "turner2018": ["1", "2", "3", "4", "5", "5b", "6"],
    "azcarate-mn4": ["configuration", "example"],
}
