"""Grafana: every query of the dashboard, as the read-only role, on a real PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from iowatch.cli.main import _run_command
from iowatch.findings import update_findings
from iowatch.store import History, write
from iowatch.store.schema import VIEW_NAMES
from tests.builders import build_result, build_run, build_session
from tests.conftest import ROOT
from tests.faults.material import STACK, SYSTEM, expected

FOLDER = ROOT / "dashboards" / "grafana"
SESSIONS = 100
# Values of the variables; Grafana's formats: `sqlstring` quotes, plain joins by commas.
CHOSEN = {
    "system": f"'{SYSTEM}'", "benchmark": "'ior'", "operation": "'write','read'", "metric": "'bandwidth'",
    "series": "1,2",
}  # fmt: skip


def expanded(sql: str) -> str:
    """A query as Grafana sends it."""
    sql = re.sub(r"\$__unixEpochFilter\(([\w.]+)\)", r"\1 >= 1600000000 AND \1 <= 1900000000", sql)
    return re.sub(r"\$\{(\w+)(?::sqlstring)?\}", lambda match: CHOSEN[match[1]], sql)


def queries() -> dict[str, str]:
    """Every query of the dashboard by its panel or variable."""
    document = json.loads((FOLDER / "iowatch.json").read_text())
    variables = document["templating"]["list"]
    found = {f"variable {v['name']}": v["query"] for v in variables if v["type"] == "query"}
    found |= {f"annotation {a['name']}": a["target"]["rawSql"] for a in document["annotations"]["list"]}
    for panel in document["panels"]:
        found |= {f"{panel['title']} {t['refId']}": t["rawSql"] for t in panel["targets"]}
    return found


def fill(history: History, sessions: int = SESSIONS) -> None:
    """Sessions of four runs, write and read; all writes halve after three fifths of the sessions."""
    draw = Random(1)
    with history.writing() as connection:  # one transaction: those of a session are tested elsewhere
        for number in range(sessions):
            uuid, moment = f"night-{number}", 1_700_000_000 + number * 86400
            write.insert_session(connection, build_session(uuid, system=SYSTEM, started_at=moment), expected(4))
            level = {"write": 500.0 if number >= 0.6 * sessions else 1000.0, "read": 2000.0}
            runs = []
            for ranks in (1, 2, 3, 4):
                case = {"api": "POSIX", "file": "shared", "ranks": ranks}
                results = tuple(
                    build_result(*tuple(value * draw.gauss(1, 0.02) for _ in range(10)), operation=name, case=case)
                    for name, value in level.items()
                )
                runs.append(
                    build_run(
                        *results, name=f"ior:{ranks}", partition="compute", stack=STACK, started_at=moment + ranks
                    )
                )
            write.insert_runs(connection, uuid, runs)
            write.update_session_end(connection, uuid, "ok", moment + 60)


@pytest.fixture(scope="module")
def server(postgresql_socket: Path) -> str:
    """A history of some sessions with a finding, and its read-only role."""
    from tests import postgresql

    url = postgresql.create_database(postgresql_socket, "grafana")
    with History.open(url) as history:
        fill(history)
        assert update_findings(history, SYSTEM)
    postgresql.create_roles(url, watcher="reader")
    return url


@pytest.fixture
def reader(server: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the read-only role."""
    parts = urlsplit(server)
    host = parse_qs(parts.query)["host"][0]
    with psycopg.connect(host=host, user="watcher", dbname=parts.path.strip("/")) as connection:
        yield connection


@pytest.mark.parametrize("where", queries())
def test_every_query_returns_rows_for_the_read_only_role(reader: psycopg.Connection[Any], where: str) -> None:
    rows = reader.execute(expanded(queries()[where]).encode()).fetchall()
    assert rows
    assert all(value is not None for value in rows[0])


def test_views_have_the_values_of_the_history(reader: psycopg.Connection[Any], server: str) -> None:
    with History.open(server) as history:
        series = history.series()
        points = history.points([series[0].id])[series[0].id]
    statement = "SELECT epoch_s, max, median, min, mean, n FROM iowatch_results WHERE series_id = %s ORDER BY 1"
    rows = reader.execute(statement, (series[0].id,)).fetchall()
    wanted = zip(points.time, points.max, points.median, points.min, points.mean, points.count, strict=True)
    assert rows == [tuple(value.item() for value in row) for row in wanted]
    session_row = reader.execute("SELECT expected, runs, failed_runs FROM iowatch_sessions LIMIT 1").fetchone()
    assert session_row == (8, 4, 0)


def test_series_query_uses_the_index(reader: psycopg.Connection[Any]) -> None:
    """Ten years of 2,400 series: no panel may read them all. The planner avoids sequential scans."""
    reader.execute("SET enable_seqscan = off")
    sql = expanded(queries()["Best sample of each night A"])
    plan = "\n".join(row[0] for row in reader.execute(f"EXPLAIN {sql}".encode()))
    assert re.search(r"result_\d{4}_series_id_time_idx.*\n.*Index Cond: .*series_id.*time", plan), plan


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM result", "UPDATE run SET status = 'x'", "CREATE TABLE x (a int)", "DROP VIEW iowatch_series"],
)  # fmt: skip
def test_read_only_role_cannot_write(reader: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute(statement.encode())


def test_site_can_be_built_with_the_read_only_role(server: str, var: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.replace("//iowatch@", "//watcher@")
    assert _run_command(["dashboard", "build", "--db", url]) == 0
    assert SYSTEM in (var / "site" / "index.html").read_text()
    assert _run_command(["findings", "list", "--db", url]) in (0, 1, 3)
    assert "Traceback" not in capsys.readouterr().err


def test_views_are_documented() -> None:
    text = (ROOT / "docs" / "history.md").read_text()
    for name in VIEW_NAMES:
        assert f"`{name}`" in text
