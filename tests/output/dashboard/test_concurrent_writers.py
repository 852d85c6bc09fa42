"""A site is built during writes: it shows the data at its start, the next site shows the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.output.dashboard import build
from iowatch.output.dashboard.data import Catalogue, collect_catalogue
from iowatch.store import History
from tests import postgresql
from tests.builders import build_result, build_run, build_session

DAY_S = 86400
START = 1_760_000_400
SESSIONS = 9


def record_session(history: History, number: int, *apis: str) -> None:
    """A session with a run of each interface."""
    begin, name = START + number * DAY_S, f"night-{number}"
    history.begin_session(build_session(name, system="busy", started_at=begin))
    for api in apis:
        result = build_result(1000.0 + number, 990.0, case={"api": api, "ranks": 4})
        run = build_run(result, name=f"ior:{api}", stack="gcc", started_at=begin)
        history.record_runs(name, [run])
    history.end_session(name, "ok", begin + 600)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path or URL of the history."""
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    why = postgresql.usable()
    if why:
        pytest.skip(why)
    return postgresql.create_database(request.getfixturevalue("postgresql_socket"), "beside")


def _collect_with_concurrent_write(place: str) -> Callable[[History, str | None], Catalogue]:
    """`collect_catalogue`, followed by a concurrent write."""

    def read(history: History, system: str | None) -> Catalogue:
        found = collect_catalogue(history, system)
        with History.open(place) as other:
            record_session(other, SESSIONS, "POSIX", "MPIIO", "HDF5")
        return found

    return read


@pytest.mark.slow
def test_data_written_during_a_build_are_in_the_next_site(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History.open(place) as history:
        for number in range(SESSIONS):
            record_session(history, number, "POSIX", "MPIIO")
        with monkeypatch.context() as patch:
            patch.setattr(build, "collect_catalogue", _collect_with_concurrent_write(place))
            build.build_site(history, tmp_path / "site")
        pages = sorted((tmp_path / "site" / "series").glob("*.html"))
        assert len(pages) == 2
        assert all(f"{1000 + SESSIONS}" not in page.read_text(encoding="utf-8") for page in pages)
        assert not (tmp_path / "site" / f"session/night-{SESSIONS}.html").exists()
        build.build_site(history, tmp_path / "site")
    pages = sorted((tmp_path / "site" / "series").glob("*.html"))
    assert len(pages) == 3
    assert all(f"<strong>{1000 + SESSIONS}</strong>" in page.read_text(encoding="utf-8") for page in pages)
    assert (tmp_path / "site" / f"session/night-{SESSIONS}.html").exists()
