"""A figure or unit that changed after the comparison of its table with the paper is reported with file and line."""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.reference import published
from tests.reference import digests

PUBLISHED = Path(__file__).resolve().parents[2] / "reference" / "published"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A copy of all published tables."""
    return shutil.copytree(PUBLISHED, tmp_path / "published")


@pytest.fixture
def replaced(tables: Path) -> Callable[[str, str, str], list[str]]:
    """Replace a text of one file; return the reported changes, without the directory."""

    def changes(file: str, old: str, new: str) -> list[str]:
        path = tables / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))
        published.load_all_tables(tables)  # valid: only the digests show the change
        return [
            change.removeprefix(f"{tables}/").split(": correct it")[0] for change in digests.find_digest_changes(tables)
        ]

    return changes


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_committed_tables_are_those_that_were_compared() -> None:
    assert digests.find_digest_changes() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        ("000/1.csv", "24,384,352,563,896", "24,384,352,563,869",
         "000/1.csv:2: column 5 'Max.': '869' differs from the recorded value when"),
        ("000/1.yaml", "{name: Total MiB, unit: MiB,", "{name: Total MiB, unit: GiB,",
         "000/1.yaml:6:23: columns.1: the unit is 'GiB', and was 'MiB' when"),
        ("000/1.yaml", "stripe_count: 4", "stripe_count: 8",
         "000/1.yaml:20:3: common.stripe_count: differs from the recorded value"),
        ("004/example.csv", "0.642,s", "0.642,ms", "004/example.csv:5: column 3 'Unit': 'ms' differs"),
        ("001/source.yaml", "2014-04-07", "2014-07-04", "001/source.yaml:5:1: date: differs from the recorded value"),
    ],
)  # fmt: skip
def test_change_is_reported_with_line_and_field(
    replaced: Callable[[str, str, str], list[str]], file: str, old: str, new: str, text: str
) -> None:
    (what,) = replaced(file, old, new)
    assert what.startswith(text)


def test_added_or_removed_row_is_reported_with_its_line(tables: Path) -> None:
    path = tables / "000" / "1.csv"
    lines = path.read_text().splitlines(keepends=True)
    for changed, text in (
        (lines[:3] + lines[4:], f"{path}:4: 1 row above this line is missing"),
        (lines[:-2], f"{path}:{len(lines) - 1}: 2 rows above this line are missing"),
        ([*lines[:3], lines[5], *lines[3:]], f"{path}:4: this row was not there"),
    ):
        path.write_text("".join(changed))
        (what,) = digests.find_digest_changes(tables)
        assert what.startswith(text)


@pytest.mark.slow
def test_any_changed_digit_is_reported(tables: Path) -> None:
    """Forty changes, drawn with a seed from all cells: each is reported once, with line and column."""
    random.seed(6)
    cells = []
    for path in sorted(tables.glob("*/*.csv")):
        rows = _rows(path)
        cells += [(path, r, c) for r in range(1, len(rows)) for c, cell in enumerate(rows[r]) if cell.isdigit()]
    for path, r, c in random.sample(cells, 40):
        before = path.read_text()
        rows = _rows(path)
        rows[r][c] = f"{(int(rows[r][c][0]) + 1) % 10}{rows[r][c][1:]}"
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        (text,) = digests.find_digest_changes(tables)
        assert text.startswith(f"{path}:{r + 1}: column {c + 1} "), text
        path.write_text(before)


def test_table_without_digests_and_digests_without_table_are_reported(tables: Path) -> None:
    for suffix in ("csv", "yaml"):
        (tables / "000" / f"1.{suffix}").rename(tables / "000" / f"22.{suffix}")
    changes = sorted(
        change.split(": correct it")[0].removeprefix(f"{tables}/") for change in digests.find_digest_changes(tables)
    )
    assert changes == [
        "000/1.csv:1: is gone",
        "000/1.yaml:1: is gone",
        "000/22.csv:1: has not been compared with its paper",
        "000/22.yaml:1: has not been compared with its paper",
    ]


def test_rewritten_digests_accept_the_change_but_damaged_tables_are_refused(tables: Path) -> None:
    path = tables / "000" / "1.csv"
    path.write_text(path.read_text().replace("24,384,352", "24,384,353"))
    own = tables / "digests.txt"
    digests.write_digests(tables, own)
    assert digests.find_digest_changes(tables, own) == []
    path.write_text(path.read_text().replace("24,384,353", "24,384,x"))
    with pytest.raises(InputError, match="expected a number"):
        digests.write_digests(tables, own)


def test_missing_digests_are_reported(tables: Path) -> None:
    with pytest.raises(InputError, match=r"digests\.txt: not readable"):
        digests.find_digest_changes(tables, tables / "digests.txt")
