"""`iowatch import csv`: tables into the history, and what detection makes of them."""

from __future__ import annotations

import json
import random
import re
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.session.imports import import_tables
from iowatch.store import History, SeriesFilter
from tests.benchmarks.tables import DATA, SPREADSHEET, SPREADSHEET_MAP, write_map

Cli = Callable[..., Result]


def _files(folder: Path, content: str = SPREADSHEET, chosen: str = SPREADSHEET_MAP) -> tuple[Path, Path]:
    """A table and its map."""
    table, own = folder / "nights.csv", folder / "nights.yaml"
    table.write_text(content)
    own.write_text(textwrap.dedent(chosen))
    return table, own


def test_import_twice_is_the_same_as_once(cli: Cli, var: Path, tmp_path: Path) -> None:
    table, own = _files(tmp_path)
    first, second = (cli("import", "csv", table, "--map", own, "--system", "main") for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert first.stdout.startswith("3 of 3 runs stored, 0 already known")
    assert second.stdout.startswith("0 of 3 runs stored, 3 already known")
    with History.open() as history:
        sessions = sorted((row.uuid, row.suite, row.origin, row.status, row.runs) for row in history.sessions())
        assert sessions == [
            (f"import-nights-main-{day}", "nights", "import", "ok", 1) for day in ("20251230", "20251231", "20260101")
        ]
        assert sum(row.n for row in history.series(SeriesFilter(metric="bandwidth"))) == 5


def test_renamed_and_grown_file_adds_only_new_rows(history: History, tmp_path: Path) -> None:
    table, _own = _files(tmp_path)
    chosen = write_map(tmp_path, SPREADSHEET_MAP)
    lines = SPREADSHEET.splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    grown = tmp_path / "grown.csv"
    grown.write_text(SPREADSHEET)
    assert import_tables(history, chosen, [table], system="main").stored == 2
    done = import_tables(history, chosen.model_copy(update={"name": "other"}), [table, grown], system="main")
    # The two files have two rows in common, which are known.
    assert (done.files, done.stored, done.known, done.skipped, done.troubles) == (3, 1, 2, 2, ())


@pytest.mark.parametrize(
    ("old", "new", "stated"),
    [("12.345,6", "12.345,7", r"\[11773.6\d*\]"), (";96;12.001,0;;", ";96;12.001,0;5;", "this run without it")],
)
def test_corrected_value_is_reported_and_not_mixed_with_the_earlier(
    history: History, tmp_path: Path, old: str, new: str, stated: str
) -> None:
    table, _own = _files(tmp_path)
    chosen = write_map(tmp_path, SPREADSHEET_MAP)
    import_tables(history, chosen, [table], system="main")
    before = {row.id: history.samples(row.id) for row in history.series()}
    table.write_text(SPREADSHEET.replace(old, new))
    done = import_tables(history, chosen, [table], system="main")
    (problem,) = done.troubles
    assert (done.stored, problem.refused) == (0, True)
    assert problem.file.startswith(f"{table}:")

    assert re.search(rf"an earlier import stored {stated}, which is kept", problem.reason)
    assert {row.id: history.samples(row.id) for row in history.series()} == before


def test_preview_stores_nothing(cli: Cli, var: Path, tmp_path: Path) -> None:
    table, own = _files(tmp_path, SPREADSHEET + "02.01.2026;02:30;/home;96;kaputt;640,5;\r\n")
    options = ("import", "csv", table, "--map", own, "--system", "main", "--preview")
    shown = cli(*options)
    assert shown.exit_code == 2
    assert "3 sessions, 3 runs, 4 series; 1 refused; nothing is stored" in shown.stdout
    assert "5 values in MB/s, stored in MiB/s" in shown.stdout
    assert f"{table}:6: column 'Schreiben [MB/s]': 'kaputt' is not a number" in shown.stderr
    document = json.loads(cli(*options, "--json").stdout)
    series = {
        (one["case"]["parameters"]["operation"], one["case"]["parameters"]["file_system"]): one
        for one in document["series"]
    }
    assert {key: one["n"] for key, one in series.items()} == {
        ("write", "scratch"): 2, ("read", "scratch"): 1, ("write", "home"): 1, ("read", "home"): 1,
    }  # fmt: skip
    first = datetime(2025, 12, 30, 1, 30, tzinfo=UTC)
    assert series["write", "scratch"]["first"] == int(first.timestamp())
    assert not var.exists()


@pytest.mark.capability("importers")
def test_exit_code_states_refused_before_failed_runs(cli: Cli, var: Path, tmp_path: Path) -> None:
    log = DATA / "reframe-4.10.4-perflog-failed.log"
    result = cli("import", "csv", log, "--map", "reframe-perflog", "--system", "main")
    assert (result.exit_code, result.stdout.split(",")[0]) == (1, "4 of 4 runs stored")
    broken = tmp_path / "broken.log"
    broken.write_text(log.read_text() + "pass|cut\n")
    result = cli("import", "csv", broken, tmp_path / "absent.log", "--map", "reframe-perflog", "--system", "main")
    assert result.exit_code == 2
    assert "broken.log:6: 2 fields, expected 42" in result.stderr
    assert "absent.log: no such file" in result.stderr
    with History.open() as history:
        assert {row.status for row in history.sessions()} == {"failed"}
        assert history.series() == []


def test_file_that_is_no_table_is_refused_and_the_others_are_imported(cli: Cli, var: Path, tmp_path: Path) -> None:
    table, own = _files(tmp_path)
    other = tmp_path / "other.csv"
    other.write_text("a;b\n1;2\n")
    result = cli("import", "csv", other, table, "--map", own, "--system", "main")
    assert (result.exit_code, result.stdout.split(",")[0]) == (2, "3 of 3 runs stored")
    assert f"{other}:1: no column 'Dateisystem', 'Datum'" in result.stderr
    assert "Traceback" not in cli("import", "csv", tmp_path, "--map", own, "--system", "main").output


def test_messages_are_limited(cli: Cli, var: Path, tmp_path: Path) -> None:
    table, own = _files(tmp_path, SPREADSHEET + "x\r\n" * 50)
    result = cli("import", "csv", table, "--map", own, "--system", "main")
    assert result.stderr.count(": 1 fields, expected 7") == 20
    assert "… and 30 more problems; --json lists all" in result.stderr


@pytest.mark.capability("importers")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("csv",), "csv needs --map FILE|NAME"),
        (("ior", "--map", "tokio"), "are for tables, not for ior"),
        (("csv", "--map", "io500"), "states no time zone for its times"),
        (("csv", "--map", "io500", "--zone", "Berlin"), "'Berlin' is not a time zone"),
        (("csv", "--map", "tokio", "--time", "2025-01-01"), "reads the times from the file"),
        (("csv", "--map", "absent.yaml"), "no map 'absent.yaml'"),
    ],
)
def test_wrong_use(cli: Cli, var: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    table, _ = _files(tmp_path)
    result = cli("import", *options, table, "--system", "main")
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.capability("importers")
def test_zone_of_the_site_is_the_default(cli: Cli, var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_TIMEZONE", "Europe/Berlin")
    path = DATA / "io500-isc26-result.txt"
    shown = cli("import", "csv", path, "--map", "io500", "--system", "main", "--preview", "--json")
    first = min(one["first"] for one in json.loads(shown.stdout)["series"])
    # [ior-easy-read] t_start = 2026-11-23 08:32:06, the first valid phase
    assert first == int(datetime(2026, 11, 23, 7, 32, 6, tzinfo=UTC).timestamp())


def test_proposal_does_not_overwrite(cli: Cli, var: Path, tmp_path: Path) -> None:
    table, own = _files(tmp_path)
    written = tmp_path / "new.yaml"
    assert cli("import", "csv", table, "--system", "main", "--propose-map", written).exit_code == 0
    assert "SET-ME" in written.read_text()
    result = cli("import", "csv", table, "--system", "main", "--propose-map", own)
    assert (result.exit_code, "exists" in result.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_session_of_a_column_with_long_names(
    request: pytest.FixtureRequest, var: Path, tmp_path: Path, kind: str
) -> None:
    """A database limits names: PostgreSQL refuses what is longer, SQLite stores it."""
    place = None if kind == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    chosen = write_map(
        tmp_path,
        """
        title: campaigns
        time: {column: t, format: epoch}
        session: {column: campaign}
        benchmark: {column: tool}
        partition: {column: queue}
        values: [{column: v, unit: MiB/s}]
        """,
        name="campaigns.yaml",
    )
    table = tmp_path / "campaigns.csv"
    rows = [("a" * 100, "t" * 100, "q" * 100), ("b/../..", "t", "q"), ("b/../..", "t" * 101, "q"), ("", "t", "q")]
    lines = [f"{1_700_000_000 + n},{campaign},{tool},{queue},1" for n, (campaign, tool, queue) in enumerate(rows)]
    table.write_text("t,campaign,tool,queue,v\n" + "\n".join(lines) + "\n")
    with History.open(place) as history:
        done = import_tables(history, chosen, [table], system="main")
        assert [problem.file.rpartition(":")[2] for problem in done.troubles] == ["4", "5"]
        assert (done.stored, len(history.sessions())) == (2, 2)
        assert sorted(len(row.uuid) for row in history.sessions())[-1] <= 64


def test_step_of_an_imported_table_is_found(cli: Cli, var: Path, tmp_path: Path) -> None:
    """60 nights at 1000 MiB/s, then 30 at 600, with 2 % scatter."""
    rng = random.Random(3)
    day = datetime(2025, 9, 1, 2, tzinfo=UTC)
    rows = [
        f"{day + timedelta(days=night):%Y-%m-%dT%H:%M:%SZ},{(1000 if night < 60 else 600) * rng.gauss(1, 0.02):.3f}"
        for night in range(90)
    ]
    table, own = _files(
        tmp_path,
        "time,bw\n" + "\n".join(rows) + "\n",
        "title: test\ntime: {column: time}\nbenchmark: ior\ncase: {operation: write}\n"
        "values: [{column: bw, unit: MiB/s}]\n",
    )
    assert cli("import", "csv", table, "--map", own, "--system", "main").exit_code == 0
    assert cli("detect", "--system", "main").exit_code == 1
    findings = cli("findings", "list").stdout
    assert "main-20251031-down" in findings
    assert re.search(r"main-20251031-down +open +2025-10-31 +×0\.6 +1 of 1, all series", findings)
    compared = cli("compare", "since:2025-09-01..2025-10-30", "since:2025-10-31..2025-11-30", "--json")
    assert [one["verdict"] for one in json.loads(compared.stdout)["pairs"]] == ["slower"], compared.output
    assert cli("dashboard", "build").exit_code == 0
