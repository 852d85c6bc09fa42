"""Exports: every sample is read back; damaged files are refused with line and field."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError, UsageError, escape_controls
from iowatch.store import History, ResultFilter, ResultRow, SeriesFilter
from iowatch.store.export import export_results, read_export_file
from tests.comparison.known_ratios import nightly, record

Cli = Callable[..., Result]
HOSTILE = 'a"b\\c\nd,<script>'


@pytest.fixture
def filled(history: History) -> History:
    nightly(history, 3, {"old": 1.0, HOSTILE: 1.1})
    record(history, "ab_run", {1: (0.1 + 0.2,)}, facts={"pair": 7, "side": "left"}, suffix="#7")
    record(history, "broken", {1: (5.0,)}, status="incomplete")
    return history


def ordered(rows: list[ResultRow]) -> list[ResultRow]:
    return sorted(rows, key=lambda r: (r.session, r.stack, r.run, r.metric))


def written(history: History, form: str, place: Path, chosen: ResultFilter | None = None) -> Path:
    path = place / f"export.{form}"
    with path.open("wb") as stream:
        export_results(history, chosen or ResultFilter(), form, stream)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_exported_samples_are_read_back_exactly(filled: History, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    back = read_export_file(written(filled, form, tmp_path))
    assert ordered(back) == ordered(list(filled.results()))
    assert {row.pair for row in back} == {None, 7}


def test_no_cell_of_csv_is_a_formula(history: History, tmp_path: Path) -> None:
    """OWASP, "CSV Injection": a text that begins with one of = + - @ tab CR is executed by spreadsheets."""
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1", "'", "", "plain", "a=b"]
    nightly(history, 1, dict.fromkeys((name for name in names if name), 1.0))
    path = written(history, "csv", tmp_path)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert {float(row["value"]) > 0 for row in rows} == {True}  # numbers are unchanged
    assert {row.stack for row in read_export_file(path)} == {name for name in names if name}


def test_exports_hold_no_controls(history: History, tmp_path: Path) -> None:
    """`iowatch history export` prints to the terminal by default."""
    nightly(history, 1, {"\x1b]0;x\x07\u202e\x9b": 1.0})
    for form in ("csv", "json"):
        text = written(history, form, tmp_path).read_bytes().decode()
        assert text == escape_controls(text), form
        assert r"\u202e" in text, form


def test_filters_narrow_the_export(filled: History, tmp_path: Path) -> None:
    chosen = ResultFilter(SeriesFilter(stack="old"), session="night-001")
    rows = read_export_file(written(filled, "csv", tmp_path, chosen))
    assert {(row.session, row.stack) for row in rows} == {("night-001", "old")}
    assert len(rows) == 3


def test_unknown_format_is_refused(filled: History) -> None:
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        export_results(filled, ResultFilter(), "xml", io.BytesIO())


HEAD = "session,time,benchmark,case,metric,value\n"
GOOD = 's,2024-01-01T02:00:00Z,ior,"{""ranks"": 2}",bandwidth,5.5\n'


def test_minimal_csv_file_needs_six_columns(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(HEAD + GOOD + GOOD.replace("5.5", "6.5"))
    (row,) = read_export_file(path)
    assert row.samples == (5.5, 6.5)
    assert dict(row.case.parameters) == {"ranks": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD.replace(",value", "") + GOOD, "no column value"),
        (HEAD + GOOD.replace("5.5", "nan"), r":2: field 'value': expected a finite number, found 'nan'"),
        (HEAD + GOOD.replace("bandwidth", "bandwith"), "unknown metric 'bandwith'"),
        (HEAD + GOOD.replace("2024-01-01T02:00:00Z", "yesterday"), ":2: 'yesterday' is not a time"),
        (HEAD + GOOD.replace('{""ranks"": 2}', "[1]"), "expected a JSON object"),
        (HEAD + GOOD.replace('{""ranks"": 2}', '{""ranks""'), ":2: "),
    ],
)
def test_damaged_file_is_reported_with_its_location(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_export_file(path)


@pytest.mark.parametrize(("name", "content"), [("x.json", "{}"), ("x.json", "nonsense"), ("x.txt", ""), ("x.csv", "")])
def test_files_of_other_formats_are_refused(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError):
        read_export_file(path)


def test_binary_files_are_refused(tmp_path: Path) -> None:
    for suffix in ("csv", "json", "parquet"):
        path = tmp_path / f"noise.{suffix}"
        path.write_bytes(bytes(range(256)) * 10)
        with pytest.raises(InputError):
            read_export_file(path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stack", "odl"], "the history has no stack 'odl'"),
        (["--benchmark", "iro"], "the history has no benchmark 'iro'"),
        (["--system", "local", "--benchmark", "iro"], "system 'local' has no benchmark 'iro'"),
        (["--metric", "bandwith"], "the history has no metric 'bandwith'"),
        (["--since", "2024-01-02", "--until", "2024-01-01"], "not before --until"),
    ],
)
def test_misspelt_name_is_refused_without_an_empty_file(
    cli: Cli, filled: History, tmp_path: Path, words: list[str], message: str
) -> None:
    target = tmp_path / "out.csv"
    done = cli("history", "export", *words, "--output", str(target))
    assert done.exit_code == 2
    assert message in done.output
    assert not target.exists()


def test_unmeasured_metric_gives_an_empty_export(cli: Cli, filled: History) -> None:
    done = cli("history", "export", "--metric", "rate")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 1


def test_sessions_cannot_be_filtered_by_benchmark(cli: Cli, filled: History) -> None:
    done = cli("history", "list", "--benchmark", "ior")
    assert done.exit_code == 2
    assert "Add --series." in done.output
