"""Tables that are read by maps: what a cell becomes, what is refused, and damage to files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.benchmarks.tables import maps
from iowatch.benchmarks.tables.proposal import propose_map
from iowatch.core import InputError
from tests.benchmarks.tables import LONG, LONG_MAP, SPREADSHEET, SPREADSHEET_MAP, points, read, write_map
from tests.datasets import ROOT


def _epoch(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type]


def _simple(values: str = "- {column: v, unit: MiB/s}", **fields: str) -> str:
    """A map of a table with the columns t (epoch seconds) and v."""
    given = {"title": "test", "time": "{column: t, format: epoch}", "benchmark": "ior"} | fields
    return "\n".join([*(f"{name}: {text}" for name, text in given.items()), "values:", f"  {values}", ""])


def _values(folder: Path, rows: str, chosen: str, header: str = "t,v") -> list[tuple[float, ...]]:
    table = read(folder, f"{header}\n{rows}\n", chosen)
    return [result.samples for run in table.runs for result in run.output.results]


def test_spreadsheet_export(tmp_path: Path) -> None:
    table = read(tmp_path, SPREADSHEET, SPREADSHEET_MAP)
    assert (table.refused, table.units) == ([], {("MB/s", "bandwidth"): 5})
    # 02:30 in Berlin is 01:30 UTC in winter.
    expected = {
        (_epoch(2025, 12, 30, 1, 30), "write", "scratch"): 12345.6,
        (_epoch(2025, 12, 30, 1, 30), "read", "scratch"): 9876.5,
        (_epoch(2025, 12, 31, 1, 30), "write", "scratch"): 12001.0,
        (_epoch(2026, 1, 1, 1, 30), "write", "home"): 812.25,
        (_epoch(2026, 1, 1, 1, 30), "read", "home"): 640.5,
    }
    cases = {
        (point, tuple(dict(point[4])[name] for name in ("operation", "file_system", "ranks")))
        for point in points(table)
    }
    found = {(point[0], *case[:2]): point[6] for point, case in cases if case[2] == 96}
    assert found == {key: (pytest.approx(value * 1e6 / 2**20),) for key, value in expected.items()}
    # Days are those of the zone: a session per night.
    assert [run.session for run in table.runs] == ["20251230", "20251231", "20260101"]


def test_long_table(tmp_path: Path) -> None:
    table = read(tmp_path, LONG, LONG_MAP)
    found = {(point[0], dict(point[4])["operation"], point[5]): point[6] for point in points(table)}
    # The clocks change between the nights; 1.5 GiB/s are 1536 MiB/s, 250 ms are 0.25 s.
    assert found == {
        (_epoch(2025, 3, 30, 0, 30), "write", "bandwidth"): (1536.0,),
        (_epoch(2025, 3, 30, 0, 30), "write", "time"): (0.25,),
        (_epoch(2025, 3, 30, 23, 30), "read", "bandwidth"): (2000.0,),
    }
    assert len(table.runs) == 2, "rows with the same time and case are one run"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_file(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    plain = points(read(tmp_path, LONG, LONG_MAP))
    packed = pack(LONG.encode())
    assert points(read(tmp_path, packed, LONG_MAP)) == plain
    with pytest.raises(InputError, match="not readable"):
        read(tmp_path, packed[:-6], LONG_MAP)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_encodings_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    text = SPREADSHEET.removeprefix("\ufeff") if encoding != "utf-8" else SPREADSHEET
    assert len(points(read(tmp_path, text.encode(encoding), SPREADSHEET_MAP))) == 5


def test_other_encoding_is_declared(tmp_path: Path) -> None:
    content = "t,v,Größe\n1700000000,1,klein\n".encode("cp1252")
    chosen = _simple(case="{size: {column: Größe}}")
    with pytest.raises(InputError, match="damaged header: bytes that are no text in this encoding"):
        read(tmp_path, content, chosen)
    (run,) = read(tmp_path, content, _simple(case="{size: {column: Größe}}", file="{encoding: cp1252}")).runs
    assert run.output.results[0].case == {"size": "klein"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_the_one_with_which_the_columns_are_found(tmp_path: Path, delimiter: str) -> None:
    rows = "x,y;z|a\tb".replace(delimiter, "-")
    assert _values(tmp_path, delimiter.join(("1700000000", rows, "7.5")), _simple(), delimiter.join("tnv")) == [(7.5,)]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("1234.5", "{}", 1234.5),
        ("1.2e3", "{}", 1200.0),
        ("1234,5", '{delimiter: ";", decimal: ","}', 1234.5),
        ("1.234,5", '{delimiter: ";", decimal: ",", thousands: "."}', 1234.5),
        ("1\u202f234.5", '{delimiter: ";", thousands: " "}', 1234.5),
        ("1'234'567", '{delimiter: ";", thousands: "\'"}', 1234567.0),
        # What another convention would read otherwise is refused.
        ("1,234", '{delimiter: ";"}', None),
        ("1.234.567", '{delimiter: ";"}', None),
        ("1.234", '{delimiter: ";", decimal: ","}', None),
        ("12.34,5", '{delimiter: ";", decimal: ",", thousands: "."}', None),
        ("1.2345", '{delimiter: ";", decimal: ",", thousands: "."}', None),
        ("nan", "{}", None), ("inf", "{}", None), ("1e999", "{}", None), ("0", "{}", None), ("-5", "{}", None),
        ("0x10", "{}", None), ("1_000", "{}", None), ("12 MB/s", "{}", None), ("٣", "{}", 3.0),
        # 100 TiB/s is the ceiling of a bandwidth.
        ("104857601", "{}", None), ("104857600", "{}", 104857600.0),
    ],
)  # fmt: skip
def test_number(tmp_path: Path, text: str, options: str, expected: float | None) -> None:
    delimiter = ";" if "delimiter" in options else ","
    table = read(tmp_path, f"t{delimiter}v\n1700000000{delimiter}{text}\n", _simple(file=options))
    assert [result.samples for run in table.runs for result in run.output.results] == (
        [] if expected is None else [(expected,)]
    )
    assert len(table.refused) == (expected is None)


@pytest.mark.parametrize(
    ("unit", "metric", "expected"),
    [
        ("B/s", "bandwidth", 3 / 2**20), ("kB/s", "bandwidth", 3000 / 2**20), ("GiB/s", "bandwidth", 3072.0),
        ("Gbit/s", "bandwidth", 3e9 / 8 / 2**20), ("bytes/s", "bandwidth", 3 / 2**20), ("us", "time", 3e-6),
        ("min", "time", 180.0), ("kIOPS", "rate", 3000.0), ("1/s", "rate", 3.0),
    ],
)  # fmt: skip
def test_unit_implies_the_metric_and_is_converted(tmp_path: Path, unit: str, metric: str, expected: float) -> None:
    table = read(tmp_path, "t,v\n1700000000,3\n", _simple(f"- {{column: v, unit: {unit}}}"))
    (result,) = table.runs[0].output.results
    assert (result.metric, result.samples) == (metric, (pytest.approx(expected),))


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("1700000000.9", "{column: t, format: epoch}", 1700000000),
        ("1700000000123", "{column: t, format: epoch_ms}", 1700000000),
        ("2025-12-31T02:30:00Z", "{column: t}", _epoch(2025, 12, 31, 2, 30)),
        ("2025-12-31 02:30", "{column: t, zone: Europe/Berlin}", _epoch(2025, 12, 31, 1, 30)),
        ("2025-12-31T02:30:00+05:30", "{column: t, zone: Europe/Berlin}", _epoch(2025, 12, 30, 21, 0)),
        ("12/31/2025 2:30 PM", '{column: t, format: "%m/%d/%Y %I:%M %p", zone: America/New_York}',
         _epoch(2025, 12, 31, 19, 30)),
        # A spreadsheet counts days since 30 December 1899: 46022.5 is noon of 31 December 2025.
        ("46022.5", "{column: t, format: excel, zone: UTC}", _epoch(2025, 12, 31, 12)),
        ("run_20251231", '{column: t, pattern: "[0-9]{8}", format: "%Y%m%d", zone: UTC}', _epoch(2025, 12, 31)),
        ("2025-12-31 02:30", "{column: t}", "states no zone"),
        ("31.12.2025", "{column: t, zone: UTC}", "is not a time of the format iso"),
        ("2025-03-30 02:30", "{column: t, zone: Europe/Berlin}", "does not exist in Europe/Berlin"),
        ("1989-12-31", "{column: t, zone: UTC}", "before 1990"),
        ("", "{column: t, zone: UTC}", "is empty"),
        # 2:30 happens twice; the first is in summer time.
        ("2025-10-26 02:30", "{column: t, zone: Europe/Berlin}", _epoch(2025, 10, 26, 0, 30)),
    ],
)  # fmt: skip
def test_time(tmp_path: Path, text: str, source: str, expected: int | str) -> None:
    table = read(tmp_path, f"t,v\n{text},1\n", _simple(time=source))
    if isinstance(expected, str):
        assert expected in table.refused[0].reason
    else:
        assert [run.started_at for run in table.runs] == [expected]
    assert table.ambiguous == ("10-26" in text)


@pytest.mark.parametrize(
    ("cell", "source", "expected"),
    [
        ("8", "{column: p}", 8), ("08", "{column: p}", "08"), ("8", "{column: p, type: text}", "8"),
        ("8.0", "{column: p, type: integer}", 8), ("8.5", "{column: p, type: integer}", None),
        ("1m", "{column: p, type: size}", 2**20), ("1.5", "{column: p, unit: GiB}", 3 * 2**29),
        ("yes", "{column: p, type: boolean}", True), ("ja", "{column: p, type: boolean}", None),
        ("W", "{column: p, values: {W: write}}", "write"), ("X", "{column: p, values: {W: write}}", None),
        ("n16", "{column: p, pattern: 'n([0-9]+)'}", 16), ("x", "{column: p, pattern: 'n([0-9]+)'}", None),
        ("", "{column: p, default: 4}", 4), ("", "{column: p}", "absent"), ("x", "constant", "constant"),
        ("5", "{choose: [{when: p >= 4, value: many}, {value: few}]}", "many"),
        ("3", "{choose: [{when: p >= 4, value: many}, {value: few}]}", "few"),
        ("3", "{choose: [{when: \"p == '4'\", value: four}]}", "absent"),
        ("x" * 201, "{column: p}", None),
    ],
)  # fmt: skip
def test_parameter(tmp_path: Path, cell: str, source: str, expected: object) -> None:
    table = read(tmp_path, f"t,v,p\n1700000000,1,{cell}\n", _simple(case=f"{{p: {source}}}"))
    if expected is None:
        assert (table.runs, len(table.refused)) == ([], 1)
    else:
        case = table.runs[0].output.results[0].case
        assert case.get("p", "absent") == expected
        assert type(case.get("p", "absent")) is type(expected)


def test_row_is_refused_with_its_line_and_does_not_stop_others(tmp_path: Path) -> None:
    rows = [
        "1700000000,1",
        "1700000001;5",
        "1700000002,2,3",
        "",
        "1700000003,x",
        "1700000004,4",
        '1700000005,"5',
        "1700000006,6",
    ]
    table = read(tmp_path, "t,v\n" + "\n".join(rows) + "\n", _simple())
    assert [run.started_at - 1700000000 for run in table.runs] == [0, 4, 6]
    assert [one.line for one in table.refused] == [3, 4, 6, 8]
    assert table.refused[0].reason == "1 fields, expected 2"


@pytest.mark.parametrize(
    ("line", "reason"),
    [("no pair", "line 4 is not KEY = VALUE"), ("v = 7", "'v' occurs twice"), ("w = \xff", "bytes that are no text")],
)
def test_section_is_refused_with_its_line_and_does_not_stop_others(tmp_path: Path, line: str, reason: str) -> None:
    content = f"[a]\nt = 1700000000\nv = 1\n{line}\n[b]\nt = 1700000001\nv = 2\n; end\n[c]\nt = 1700000002\nv = 3\n"
    table = read(tmp_path, content.encode("latin-1"), _simple(file="{format: sections}"))
    assert [(row.line, reason in row.reason) for row in table.refused] == [(1, True)]
    assert [run.started_at - 1700000000 for run in table.runs] == [1, 2]


def test_rows_beside_a_part_of_a_number_are_refused(tmp_path: Path) -> None:
    """`12.5` with a line end within is `12`, which is a number, and `.5`."""
    table = read(tmp_path, "t,v\n1700000000,1\n1700000001,12\n.5\n1700000002,2\n1700000003,3\n", _simple())
    assert [run.started_at - 1700000000 for run in table.runs] == [0, 3]
    assert [one.line for one in table.refused] == [3, 4, 5]


def test_last_line_without_end_is_refused(tmp_path: Path) -> None:
    """`1234.5` cut to `12` is a number, too."""
    content = "t,v\n1700000000,1234.5\n1700000001,12"
    table = read(tmp_path, content, _simple())
    assert [run.started_at for run in table.runs] == [1700000000]
    assert "truncated" in table.refused[0].reason
    assert len(read(tmp_path, content, _simple(file="{complete: true}")).runs) == 2


def test_same_time_and_case_with_another_value_is_refused(tmp_path: Path) -> None:
    rows = "1700000000,1\n1700000000,1\n1700000000,2"
    table = read(tmp_path, f"t,v\n{rows}\n", _simple())
    assert (len(table.runs), table.repeated, [one.line for one in table.refused]) == (1, 1, [4])
    assert "repetitions: rows" in table.refused[0].reason
    assert _values(tmp_path, rows, _simple(repetitions="rows")) == [(1.0, 1.0, 2.0)]


def test_columns_with_the_same_case_are_refused_or_repetitions(tmp_path: Path) -> None:
    rows, family = "1700000000,1,2,4", "- {columns: 'run[0-9]', unit: s}"
    table = read(tmp_path, f"t,run1,run2,run3\n{rows}\n", _simple(family))
    assert "repetitions: columns" in table.refused[0].reason
    assert _values(tmp_path, rows, _simple(family, repetitions="columns"), "t,run1,run2,run3") == [(1.0, 2.0, 4.0)]


def test_kept_failed_and_empty_rows(tmp_path: Path) -> None:
    content = "t,v,s,n\n1700000000,1,ok,4\n1700000001,2,ok,2\n1700000002,3,bad,4\n1700000003,,ok,4\n"
    chosen = {"keep": "n >= 4", "failed": "s != 'ok'"}
    table = read(tmp_path, content, _simple(**chosen))
    assert [(run.output.status, run.output.reason) for run in table.runs] == [("ok", None), ("failed", "s is 'bad'")]
    assert (table.skipped, table.empty, table.refused) == (1, 1, [])
    assert points(table) == points(read(tmp_path, content.splitlines()[0] + "\n1700000000,1,ok,4\n", _simple(**chosen)))
    table = read(tmp_path, content, _simple(**chosen, no_value="failed"))
    assert [run.output.reason for run in table.runs] == [None, "s is 'bad'", "no value v"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t,w\n", "table.csv:1: no column 'v'"),
        ("t,v,v\n", "table.csv:1: 'v' is the name of several columns"),
        ('"t,v\n', "table.csv:1: damaged header"),
        ("", "no table: the file is empty"),
    ],
)
def test_file_that_is_not_the_table_of_the_map(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, content, _simple())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ranks:", "x: {columns: Prozesse}\n      ranks:"), r"own.yaml:6:\d+: field 'case.x.columns': unknown"),
        (("MB/s, case: {operation: read}", "MBps"), r"own.yaml:\d+:\d+: field 'values.1': unknown unit 'MBps'"),
        (("Europe/Berlin", "Berlin"), r"own.yaml:3:\d+: field 'time.zone': 'Berlin' is not a time zone"),
        (("benchmark: ior", "benchmark: SET-ME"), r"own.yaml:4:\d+: field 'benchmark': replace SET-ME"),
        (("benchmark: ior", "benchmark: ior\n    keep: Prozesse ~ 4"), "field 'keep': not a condition"),
        (("benchmark: ior", "benchmark: ior\n    columns: {x: {column: y, pattern: '('}}"), "not a regular expression"),
        (("title: nights of a spreadsheet", ""), "field 'title'"),
    ],
)  # fmt: skip
def test_fault_of_a_map_has_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = SPREADSHEET_MAP.replace(*change).removeprefix("\n")
    with pytest.raises(InputError, match=message) as caught:
        write_map(tmp_path, text)
    assert "docs/import.md" in str(caught.value)


_MARKS = (",", ";", "\t", "|", '"', "'", "\n", "\r", "\0", " ", "\ufeff", "#", "\\")


def _damaged(text: str, rng: random.Random) -> bytes:
    """Damage that leaves digits and decimal signs as they are; another digit is another number that nothing shows."""
    place = rng.randrange(len(text))
    lines = text.splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(1, len(lines))
    kind = rng.randrange(7)
    if kind == 0:
        return text.encode()[:place]
    if kind == 1:
        return (text[:place] + rng.choice(_MARKS) + text[place:]).encode()
    if kind == 2:
        while text[place].isdigit() or text[place] in ",.":
            place = rng.randrange(len(text))
        return (text[:place] + text[place + 1 :]).encode()
    if kind == 3:
        return text.encode()[:place] + bytes([rng.randrange(0x80, 0x100)]) + text.encode()[place:]
    if kind == 4:
        lines[other] = lines[other].rstrip("\r\n")
    elif kind == 5:
        lines.insert(other, lines[one])
    else:
        lines[other] = re.split("[;\t]", lines[other])[0] + "\n"
    return "".join(lines).encode()


@pytest.mark.parametrize(("text", "chosen"), [(SPREADSHEET, SPREADSHEET_MAP), (LONG, LONG_MAP)], ids=["wide", "long"])
def test_damaged_table_has_no_wrong_number(tmp_path: Path, text: str, chosen: str) -> None:
    loaded = write_map(tmp_path, chosen)
    whole = points(read(tmp_path, text, loaded))
    rng = random.Random(20)
    refused = 0
    for _ in range(700):
        content = _damaged(text, rng)
        try:
            table = read(tmp_path, content, loaded)
        except InputError:
            refused += 1
            continue
        assert points(table) <= whole, content
        refused += bool(table.refused)
    assert refused > 300, "most damage is refused; otherwise the test would show nothing"


def test_proposed_map_needs_what_only_the_user_knows(tmp_path: Path) -> None:
    table = tmp_path / "messungen.csv"
    table.write_text(SPREADSHEET)
    text = propose_map(table)
    assert text.count("SET-ME") == 3, "title line of the comment, zone and benchmark"
    with pytest.raises(InputError, match="SET-ME"):
        write_map(tmp_path, text)
    completed = text.replace("zone: SET-ME", "zone: Europe/Berlin").replace("benchmark: SET-ME", "benchmark: ior")
    own, expected = (points(read(tmp_path, SPREADSHEET, one)) for one in (completed, SPREADSHEET_MAP))
    assert {point[0:4] + point[5:] for point in own} == {point[0:4] + point[5:] for point in expected}


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (LONG, ['unit: {column: "unit"}', 'values: {"BW": SET-ME, "T": SET-ME}']),
        ("when,GB/s\n01/02/2025,1\n03/04/2025,2\n", ["SET-ME # all of these fit", 'unit: "GB/s"']),
        ("at,IOPS,host\n1700000000,5,a\n1700000100,6,b\n", ['format: "epoch"', 'unit: "IOPS"', "keep: host == 'a'"]),
        ("x;y\nfoo;bar\n", ["time: {column: SET-ME}", "{column: SET-ME, unit: SET-ME}"]),
    ],
)  # fmt: skip
def test_proposal(tmp_path: Path, content: str, lines: list[str]) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content)
    text = propose_map(path)
    assert [line for line in lines if line not in text] == [], text


def test_every_field_of_a_map_is_documented() -> None:
    text = (ROOT / "docs" / "import.md").read_text()
    for model in (
        maps.TableMap,
        maps.Layout,
        maps.TimeSource,
        maps.Source,
        maps.Choice,
        maps.ValueSource,
        maps.PairsSource,
    ):
        missing = [name for name in model.model_fields if f"`{name}`" not in text and f"{name}:" not in text]
        assert missing == [], model.__name__
