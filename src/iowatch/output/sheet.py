"""A report on one page, which is read on the terminal, posted as Markdown, or printed and signed as HTML.

All forms have the same parts in the same order: a title, the result in a sentence, sections and tables, and facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.console import Console

from iowatch.core import escape_controls, make_table
from iowatch.output.report import escape_markdown


@dataclass(frozen=True)
class SheetSection:
    """A title, and lines below it; it is left out without lines."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class SheetTable:
    """A table; it is left out without rows.

    Attributes:
        right: names of the columns that are aligned to the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


@dataclass(frozen=True)
class SheetDecision:
    """The decision of a report in a word, and how it is coloured: `good`, `bad` or `open`."""

    word: str
    style: str


@dataclass(frozen=True)
class Sheet:
    """A report on one page.

    Attributes:
        title: with the decision, if there is one.
        heading: the title without the decision; None: the same.
        summary: the result in one sentence.
        decision: None if the report decides nothing.
        facts: what it rests on, in small print.
        is_signed: whether the printed page has lines for name, date and signature.
    """

    title: str
    summary: str
    parts: Sequence[SheetSection | SheetTable]
    facts: Sequence[str] = ()
    heading: str | None = None
    decision: SheetDecision | None = None
    is_signed: bool = False


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print the report."""
    _print_lines(console, [sheet.title, sheet.summary])
    for part in sheet.parts:
        if isinstance(part, SheetSection):
            if part.lines:
                _print_lines(console, [f"{part.title}:", *(f"  {line}" for line in part.lines)])
        elif part.rows:
            table = make_table(*part.columns, right=part.right)
            for cells in part.rows:
                table.add_row(*cells)
            console.print(table)
    _print_lines(console, sheet.facts)


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, emoji=False, soft_wrap=True)


def sheet_markdown(sheet: Sheet) -> str:
    """The report as Markdown."""
    paragraphs = [f"## {escape_markdown(sheet.title)}", escape_markdown(sheet.summary)]
    for part in sheet.parts:
        if isinstance(part, SheetTable):
            if part.rows:
                paragraphs.append(_markdown_table(part))
        elif part.lines:
            lines = "\n".join(f"- {escape_markdown(line)}" for line in part.lines)
            paragraphs.append(f"### {part.title}\n\n{lines}")
    paragraphs += [escape_markdown(fact) for fact in sheet.facts]
    return "\n\n".join(paragraphs) + "\n"


def _markdown_table(table: SheetTable) -> str:
    rule = ["---:" if column in table.right else "---" for column in table.columns]
    lines = [f"| {' | '.join(table.columns)} |", f"|{'|'.join(rule)}|"]
    for cells in table.rows:
        lines.append(f"| {' | '.join(map(escape_markdown, cells))} |")
    return "\n".join(lines)


_STYLE = """
@page { size: A4; margin: 14mm; }
body { font: 10.5pt/1.4 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #111; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.05em; margin: 1em 0 .2em; }
ul { margin: 0; padding-left: 1.2em; } table { border-collapse: collapse; margin-top: 1em; font-size: .85em; }
td, th { padding: .15em .6em; border-bottom: 1px solid #ccc; text-align: left; } .n { text-align: right; }
.decision { display: inline-block; padding: .1em .6em; color: #fff; background: #555; }
.decision.good { background: #1b6e3c; } .decision.bad { background: #a3231f; }
.signed { margin-top: 2.5em; display: flex; gap: 2em; } .signed p { flex: 1; border-top: 1px solid #111; }
.facts { color: #444; font-size: .85em; } section { break-inside: avoid; }
section.sheet + section.sheet { break-before: page; margin-top: 3em; }
@media print { body { margin: 0; max-width: none; padding: 0; } section.sheet + section.sheet { margin-top: 0; } }
"""


def sheets_html(sheets: Sequence[Sheet]) -> str:
    """Reports as one document without scripts, each on a page of its own when it is printed."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_html(', '.join(sheet.title for sheet in sheets))}</title><style>{_STYLE}</style></head><body>",
        *(_sheet_html(sheet) for sheet in sheets),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _sheet_html(sheet: Sheet) -> str:
    decision = ""
    if sheet.decision is not None:
        word, style = _html(sheet.decision.word), _html(sheet.decision.style)
        decision = f'<strong class="decision {style}">{word}</strong> '
    parts = [f'<section class="sheet"><h1>{_html(sheet.heading or sheet.title)}</h1>']
    parts.append(f"<p>{decision}{_html(sheet.summary)}</p>")
    for part in sheet.parts:
        if isinstance(part, SheetTable):
            if part.rows:
                parts.append(_html_table(part))
        elif part.lines:
            items = "".join(f"<li>{_html(line)}</li>" for line in part.lines)
            parts.append(f"<section><h2>{_html(part.title)}</h2><ul>{items}</ul></section>")
    if sheet.facts:
        facts = "<br>".join(_html(fact) for fact in sheet.facts)
        parts.append(f'<p class="facts">{facts}</p>')
    if sheet.is_signed:
        parts.append('<div class="signed"><p>Name</p><p>Date</p><p>Signature</p></div>')
    parts.append("</section>")
    return "\n".join(parts)


def _html_table(table: SheetTable) -> str:
    lines: list[str] = []
    for tag, cells in (("th", table.columns), *(("td", row) for row in table.rows)):
        line = ""
        for column, cell in zip(table.columns, cells, strict=True):
            style = ' class="n"' if column in table.right else ""
            line += f"<{tag}{style}>{_html(cell)}</{tag}>"
        lines.append(f"<tr>{line}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _html(text: str) -> str:
    return escape(escape_controls(text))
