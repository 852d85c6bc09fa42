"""PostgreSQL restarts or goes away during a session: cases wait in the spool, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from iowatch.session.directory import recover_sessions
from iowatch.store import History, HistoryUnavailableError, engine
from tests import postgresql
from tests.faults import material
from tests.faults.outages import Session, session_with_restarts


@pytest.fixture
def server() -> Iterator[Path]:
    """A server of this test, which may stop it."""
    if (why := postgresql.usable()) is not None:
        pytest.skip(why)
    with postgresql.server() as socket:
        yield socket


@pytest.mark.slow
def test_session_survives_restarts_of_the_server(server: Path, var: Path, tmp_path: Path) -> None:
    assert session_with_restarts(server, 2, tmp_path, Random(1)) == []


def test_server_that_stays_away_costs_no_case(
    server: Path, var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """It stops before the first of three cases ends, and starts again after the session."""
    monkeypatch.setattr(engine, "_REPEAT_S", 0.0)
    url = postgresql.create_database(server, "away")

    class Interrupted(Session):
        def execute(self) -> None:
            postgresql.control(server, "stop", "-m", "immediate")
            super().execute()

    with History.open(url) as history:
        running = Interrupted(history, tmp_path, 3, "interrupted")
        with pytest.raises(HistoryUnavailableError, match=r"3 finished cases in .* not yet stored") as refused:
            running.run()
        assert refused.value.exit_code == 3
        assert "Nothing is lost: the next session of local stores them" in str(refused.value)
        assert len(messages) == 1  # once per outage, not once per poll
        postgresql.control(server, "start")
        assert recover_sessions(history, material.SYSTEM) == ["interrupted"]
        assert len(history.runs("interrupted")) == 3
        assert history.session("interrupted").status == "incomplete"
