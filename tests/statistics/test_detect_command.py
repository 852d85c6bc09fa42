"""`iowatch detect --csv`: fields of its output, exit codes, messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iowatch.cli.commands.detect import command
from iowatch.core import InputError
from tests.statistics.series import stepped, times

CHANGE = {"index", "time", "direction", "ratio", "before", "after", "confidence"}


def rows(name: str, n: int, ratio: float) -> list[str]:
    values = stepped(n, n // 2, ratio, seed=1)
    return [f"{name},{t:.0f},{v:.3f}" for t, v in zip(times(n), values, strict=True)]


def run(tmp_path: Path, lines: list[str], *options: str) -> Result:
    file = tmp_path / "s.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CliRunner().invoke(command, ["--csv", str(file), *options])


def test_change_is_reported_and_exits_with_1(tmp_path: Path) -> None:
    result = run(tmp_path, ["series,time,value", *rows("a", 40, 2.0), *rows("b", 40, 1.0)], "--json")
    assert result.exit_code == 1
    series = json.loads(result.stdout)["series"]
    (change,) = series["a"]["changes"]
    assert set(change) >= CHANGE
    assert (change["index"], change["time"], change["direction"]) == (20, "2008-01-30T21:20:00Z", "up")
    assert series["b"]["changes"] == []
    assert series["b"]["n"] == 40


def test_no_change_exits_with_0(tmp_path: Path) -> None:
    result = run(tmp_path, ["series,time,value", *rows("b", 40, 1.0)])
    assert result.exit_code == 0
    assert "0 of 1 series changed" in result.stdout


def test_columns_rows_and_times_may_have_any_form(tmp_path: Path) -> None:
    """Other column order, a further column, a byte order mark, reversed rows, a time zone: the same result."""
    plain = run(tmp_path, ["series,time,value", *rows("a", 40, 2.0)], "--json")
    values = stepped(40, 20, 2.0, seed=1)
    other = [
        f"{v:.3f},x,2008-{1 + (9 + i) // 31:02d}-{1 + (9 + i) % 31:02d}T23:20:00+02:00,a" for i, v in enumerate(values)
    ]
    changed = run(tmp_path, ["\ufeffvalue,note,time,series", *reversed(other)], "--json")
    assert json.loads(changed.stdout) == json.loads(plain.stdout)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,2009-03-17T02:00:00Z,1240,5", "s.csv:3: 4 fields, the header has 3"),  # a decimal comma
        ("a,2009-03-17T02:00:00Z", "s.csv:3: 2 fields, the header has 3"),
    ],
)
def test_row_with_other_fields_than_the_header_is_refused(tmp_path: Path, line: str, message: str) -> None:
    result = run(tmp_path, ["series,time,value", "a,2009-03-16T02:00:00Z,1200", line])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def test_duplicate_column_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, ["series,time,value,value", "a,2009-03-16T02:00:00Z,1200,1"])
    assert isinstance(result.exception, InputError)
    assert "has value more than once" in str(result.exception)


def test_too_few_observations_and_no_series_are_reported(tmp_path: Path) -> None:
    result = run(tmp_path, ["series,time,value", *rows("a", 5, 9.0)])
    assert result.exit_code == 0
    assert "1 not assessed: too few observations" in result.stdout
    assert json.loads(run(tmp_path, ["series,time,value"], "--json").stdout) == {"series": {}}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["s.csv:1", "no column series, time, value"]),
        (["series,when,value", "a,1,1"], ["s.csv:1", "no column time"]),
        (["series,time,value", "a,1"], ["s.csv:2", "2 fields"]),
        (["series,time,value", "a,yesterday,1"], ["s.csv:2", "yesterday"]),
        (["series,time,value", "a,1,0", "a,2,nan", ",3,1"], ["s.csv:2", "s.csv:3", "s.csv:4", "no name"]),
        (["series,time,value", 'a,1,"7'], ["s.csv:2"]),
        (["series,time,value", *["a,1,-1"] * 30], ["s.csv:11", "and 20 more"]),
    ],
)
def test_invalid_input_is_reported_with_its_line(tmp_path: Path, lines: list[str], words: list[str]) -> None:
    error = run(tmp_path, lines).exception
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert all(word in str(error) for word in words)


def test_binary_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_bytes(b"series,time,value\na,1,\xff\n")
    error = CliRunner().invoke(command, ["--csv", str(file)]).exception
    assert isinstance(error, InputError)
    assert "not UTF-8" in str(error)
