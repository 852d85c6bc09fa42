"""The list of findings as a table: id, state, since, size, series, cause; `iowatch findings show` has the prose.

On a terminal no line is longer than it is wide: the last columns are shortened, and where that is not enough each
finding has lines of its own. Elsewhere (a pipe, a file) lines are complete. Ids are never shortened.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from iowatch.core import format_count
from iowatch.findings import Finding
from iowatch.output.text.changes import format_factor
from iowatch.output.text.evidence import administered_differences, format_cause_date, format_load, is_load_stated
from iowatch.output.text.explanations import name_group

_TITLES = ("id", "state", "since", "size", "series", "cause")
# Columns that may be shortened, in this order, and the letters that remain at least: of `hdf5, netcdf-c d…` a reader
# still recognises the part.
_SHORTENED = (("cause", 16), ("series", 14))
_COLUMN_DISTANCE = 2
# Differences that the column names.
_MAX_NAMED_DIFFERENCES = 2
# The part of a line before a gap of spaces: a title, under the text of which a wrapped line goes on.
_TITLE = re.compile(r"\s*\S+(?: \S+)* {2,}")


def finding_table_lines(findings: Iterable[Finding], width: int | None) -> Iterator[str]:
    """A heading and a line per finding.

    Args:
        width: of the terminal in letters; None: lines are as long as they need.
    """
    rows = [_finding_cells(finding) for finding in findings]
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    for name, least in _SHORTENED:
        surplus = 0 if width is None else _line_length(widths) - width
        if surplus > 0:
            column = _TITLES.index(name)
            widths[column] = max(min(least, widths[column]), widths[column] - surplus)
    if width is not None and _line_length(widths) > width:
        yield from _stacked_lines(rows, width)
        return
    for row in (_TITLES, *rows):
        cells = [_shorten(cell, length).ljust(length) for cell, length in zip(row, widths, strict=True)]
        yield (" " * _COLUMN_DISTANCE).join(cells).rstrip()


def finding_table_notes(listed: Sequence[Finding], hidden: int) -> Iterator[str]:
    """What the table does not show: where results were not measured on this installation, and what is not listed.

    Args:
        hidden: number of findings that are not listed.
    """
    ids_of_label: dict[str, list[str]] = {}
    for finding in listed:
        if finding.label:
            ids_of_label.setdefault(finding.label, []).append(finding.id)
    for label, ids in ids_of_label.items():
        names = "all of these" if len(ids) == len(listed) else ", ".join(ids)
        yield f"({names}: {label})"
    if hidden:
        verb = "is" if hidden == 1 else "are"
        yield f"({format_count(hidden, 'closed finding')} {verb} not listed; --all shows all)"


def _line_length(widths: Sequence[int]) -> int:
    return sum(widths) + _COLUMN_DISTANCE * (len(widths) - 1)


def _stacked_lines(rows: Iterable[Sequence[str]], width: int) -> Iterator[str]:
    """The id of each finding, and its other cells below, for terminals with too little room for columns."""
    for identifier, state, since, size, series, cause in rows:
        details = f"  {state} since {since}; {size}; {series}; cause: {cause}"
        yield from wrap_lines([identifier, details], width)


def _finding_cells(finding: Finding) -> tuple[str, ...]:
    return (
        finding.id,
        _format_state(finding),
        finding.date,
        _format_size(finding),
        _format_series(finding),
        _format_cause(finding),
    )


def _format_state(finding: Finding) -> str:
    """`open`, `suspected (59 %)`: with the probability that it lasts; `open, decide again` after a decision expired."""
    probability = finding.probability_lasting
    if finding.review is not None and not finding.review.is_in_force:
        return f"{finding.state}, decide again"
    if finding.state != "suspected" or probability is None:
        return finding.state
    return f"{finding.state} ({100 * probability:.0f} %)"


def _format_size(finding: Finding) -> str:
    """`×0.54`, of both directions `×0.54, ×1.2`, of a pattern with its kind: `alternating ×0.3`."""
    sizes = ", ".join(format_factor(group.size) for group in finding.groups)
    return sizes if finding.pattern is None else f"{finding.pattern} {sizes}"


def _format_series(finding: Finding) -> str:
    """`6 of 12, MPI-IO writes`."""
    count = f"{finding.changed} of {finding.explanation.total}"
    name = name_group(finding.groups[0])
    return count if name is None else f"{count}, {name}"


def _format_cause(finding: Finding) -> str:
    """What may have caused it, the shortest texts: `upgrade that day; hdf5 differs`; `unknown` without."""
    texts: list[str] = []
    if finding.causes:
        texts.append(f"{finding.causes[0].event} {format_cause_date(finding.causes[0])}")
    names = [difference.what for difference in administered_differences(finding)]
    if names:
        verb = "differs" if len(names) == 1 else "differ"
        more = len(names) - _MAX_NAMED_DIFFERENCES
        listed = ", ".join(names[:_MAX_NAMED_DIFFERENCES])
        texts.append(f"{listed} and {more} more {verb}" if more > 0 else f"{listed} {verb}")
    if finding.load is not None and is_load_stated(finding):
        texts.append(format_load(finding.load, "explained by"))
    if finding.layer is not None and finding.layer.named is not None:
        texts.append(f"{finding.layer.named} moved")
    return "; ".join(texts) or "unknown"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def wrap_lines(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Lines of text, none longer than a terminal; what follows a title goes on below itself.

    Args:
        width: of the terminal in letters; None: lines stay as they are.
    """
    for line in lines:
        if width is None or len(line) <= width:
            yield line
            continue
        indent = len(line) - len(line.lstrip()) + 4
        title = _TITLE.match(line)
        if title is not None and title.end() <= width // 2:
            indent = title.end()
        yield from textwrap.wrap(
            line, width, subsequent_indent=" " * min(indent, width // 2), break_on_hyphens=False, tabsize=1
        )
