"""Roles of a PostgreSQL history: what a writer, a reviewer and a reader may do; messages for what they may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import create_engine, text

from iowatch.findings import load_findings, update_findings
from iowatch.reference import reviews
from iowatch.session.directory import start_session
from iowatch.session.runner import lock_system
from iowatch.site import load_system
from iowatch.store import ROLES_FILE, History, NotPermittedError, maintenance
from iowatch.store.schema import Base
from tests import postgresql
from tests.builders import build_session
from tests.faults.outages import Session
from tests.store.test_grafana import SYSTEM, fill

Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def common(postgresql_socket: Path) -> str:
    """A history of some sessions with a finding, with an account of each role and one without."""
    url = postgresql.create_database(postgresql_socket, "common")
    with History.open(url) as history:
        fill(history, sessions=30)
        assert update_findings(history, SYSTEM)
    postgresql.create_roles(url, wendy="writer", ralf="reviewer", rita="reader")
    return url


@pytest.fixture
def site(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of a site, for decisions."""
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    return tmp_path


def as_account(url: str, name: str) -> str:
    return url.replace("//iowatch@", f"//{name}@")


def execute_as_owner(url: str, statement: str) -> None:
    """Without the checks of a history."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_writer_runs_sessions(common: str, var: Path, tmp_path: Path) -> None:
    """All that a session does: locks, cases, results, findings, its end; and the recovery of an interrupted one."""
    with History.open(as_account(common, "wendy")) as history:
        with lock_system(history, load_system("local")):
            one = Session(history, tmp_path, 2, "of-wendy")
            one.run()
            start_session(history, build_session("killed", suite="smoke", started_at=1_700_000_100), [])
        with lock_system(history, load_system("local")) as recovered:
            assert recovered == ("killed",)
        assert (history.session("of-wendy").status, one.missing()) == ("ok", [])
        update_findings(history, SYSTEM)
        with History.open(str(tmp_path / "earlier.db")) as earlier:
            earlier.begin_session(build_session("earlier", system=SYSTEM, suite="smoke", started_at=1_600_000_000))
            assert maintenance.copy_history(earlier, history).sessions == 1


@pytest.mark.parametrize("account", ["wendy", "ralf", "rita"])
def test_nobody_but_the_owner_changes_what_is_measured(common: str, account: str) -> None:
    statements = [f"DELETE FROM {name}" for name in Base.metadata.tables]
    statements += ["UPDATE run SET status = 'x'", "UPDATE result SET max = 1"]
    statements += [
        "UPDATE alembic_version SET version_num = 1",
        "CREATE TABLE mine (a int)",
        "DROP VIEW iowatch_series",
    ]
    statements += ["UPDATE session SET uuid = 'x'"] if account != "wendy" else []
    with History.existing(as_account(common, account)) as history:
        for statement in statements:
            with pytest.raises(NotPermittedError), history.writing() as connection:
                connection.execute(text(statement))


def test_reviewer_decides_and_adds_no_results(common: str, cli: Cli, site: Path) -> None:
    place = as_account(common, "ralf")
    with History.existing(place) as history:
        (finding, *_) = load_findings(history, SYSTEM)
        with pytest.raises(NotPermittedError):
            history.begin_session(build_session("of-ralf", system=SYSTEM, suite="smoke", started_at=1_700_000_000))
    done = cli("review", "dismiss", finding.id, "--reason", "a test", "--by", "R", "--db", place)
    assert done.exit_code == 0, done.output
    assert f"{finding.id} is now dismissed" in done.stdout
    with History.existing(as_account(common, "rita")) as history:
        assert load_findings(history, SYSTEM)[0].state == "dismissed"
    assert cli("detect", "--system", SYSTEM, "--db", place).exit_code in (0, 1)


def test_reader_reads_and_is_told_what_the_account_lacks(common: str, cli: Cli, site: Path) -> None:
    place = as_account(common, "rita")
    listed = cli("findings", "list", "--all", "--db", place)
    assert listed.exit_code in (0, 1)
    assert SYSTEM in listed.stdout
    assert "may only read the history: findings as of the last update" in listed.stderr
    for words in (("history", "list"), ("history", "export"), ("detect", "--system", SYSTEM)):
        assert cli(*words, "--db", place).exit_code in (0, 1), words
    with History.existing(place) as history:
        (finding, *_) = load_findings(history, SYSTEM)
    refused = cli("review", "accept", finding.id, "--reason", "x", "--by", "R", "--db", place)
    assert refused.exit_code == 3
    assert "this account may only read the history postgresql+psycopg://rita@/common" in refused.stderr
    assert "role of a writer, reviewer or reader" in refused.stderr
    assert not reviews.review_file_path(SYSTEM).exists()
    output = Path(__file__).parents[1] / "benchmarks/data/ior-3.2.1-json.txt"
    imported = cli("import", "ior", output, "--time", "2026-01-01", "--system", SYSTEM, "--db", place)
    assert (imported.exit_code, "permission denied" in imported.stderr) == (3, True)


def test_account_without_a_role_is_told_whom_to_ask(common: str, cli: Cli) -> None:
    postgresql.create_roles(common, newcomer="reader")
    execute_as_owner(common, "REVOKE common_reader FROM newcomer")
    refused = cli("history", "list", "--db", as_account(common, "newcomer"))
    assert refused.exit_code == 3
    assert "permission denied for table alembic_version" in refused.stderr
    assert "The owner of the history gives the account the role" in refused.stderr


def test_only_the_owner_creates_a_history(common: str, postgresql_socket: Path) -> None:
    empty = postgresql.create_database(postgresql_socket, "empty_of_roles")
    with pytest.raises(NotPermittedError, match="may not create a history at postgresql") as error:
        History.open(as_account(empty, "wendy"))
    assert "`iowatch history roles`" in str(error.value.hint)


def test_command_prints_the_roles(cli: Cli) -> None:
    assert cli("history", "roles").stdout == ROLES_FILE.read_text(encoding="utf-8")
