"""Tables that a program prints below a line of column heads: numbers of a fixed width, one row for each label.

       Operation                      Max            Min           Mean        Std Dev
       File creation     :      14629.048       2001.174       6346.197       5859.219

The heads say what the numbers of a row are, and how many a row has. They say nothing about positions: many programs do
not print them above their numbers. A number that is longer than its width moves the rest of its row; a row in which a
character is missing is shorter than the others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_GAP = re.compile(r" {2,}")


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """Head of a column: its name, and the group of columns that it belongs to (`per Rank: Max`), or none."""

    group: str
    name: str


def read_column_heads(line: str) -> tuple[ColumnHead, ...]:
    """Return the heads of a line, without that of the labels; two or more blanks separate them."""
    heads: list[ColumnHead] = []
    group = ""
    for text in _GAP.split(line.strip())[1:]:
        before, colon, after = text.partition(":")
        if colon:
            group = before.strip()
        name = after.strip() if colon else text
        if name:
            heads.append(ColumnHead(group, name))
    return tuple(heads)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row as printed: its label, its numbers by their heads, and the characters that are not of a number."""

    label: str
    numbers: dict[ColumnHead, float]
    padding: int


@dataclass
class PrintedTable:
    """A table that is read line by line.

    Attributes:
        number_width: characters that a number takes at least.
        heads: of the columns of numbers; empty until their line is read.
        rows: in the order printed.
        damaged: number of rows that are there twice, or have too few or too many numbers.
    """

    number_width: int
    heads: tuple[ColumnHead, ...] = ()
    rows: dict[str, TableRow] = field(default_factory=dict)
    damaged: int = 0
    _labels: set[str] = field(default_factory=set)

    def add_row(self, label: str, line: str, numbers: list[str]) -> None:
        """Add a row.

        Args:
            label: its name.
            line: as printed.
            numbers: the numbers at its end, as printed.
        """
        if label in self._labels or len(numbers) != len(self.heads):
            self.damaged += 1
            # Of two rows it is unknown which belongs to this run.
            self.rows.pop(label, None)
            return
        self._labels.add(label)
        width = sum(max(self.number_width, len(number)) for number in numbers)
        values = dict(zip(self.heads, map(float, numbers), strict=True))
        self.rows[label] = TableRow(label, values, padding=len(line) - width)

    def drop_shifted_rows(self) -> None:
        """Drop the rows in which characters are missing or too many: most rows have the same padding."""
        paddings = Counter(row.padding for row in self.rows.values())
        if not paddings:
            return
        padding, _ = paddings.most_common(1)[0]
        shifted = [row.label for row in self.rows.values() if row.padding != padding]
        for label in shifted:
            del self.rows[label]
        self.damaged += len(shifted)
