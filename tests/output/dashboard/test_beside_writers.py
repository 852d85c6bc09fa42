"""A site is built while others write: it shows what was there when it began, the next one the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import Output, Result
from iowatch.output.dashboard import build
from iowatch.output.dashboard.data import Catalogue, collect_catalogue
from iowatch.store import History, RunRecord, SessionRecord, StackRecord
from tests import postgresql

DAY_S = 86400
START = 1_760_000_400
NIGHTS = 9


def night(history: History, number: int, *apis: str) -> None:
    """A session with a run of each interface."""
    begin, name = START + number * DAY_S, f"night-{number}"
    history.begin_session(SessionRecord(name, "busy", "nightly", "run", begin))
    for api in apis:
        result = Result("write", "bandwidth", "MiB/s", (1000.0 + number, 990.0), {"api": api, "ranks": 4})
        output = Output("ior", "4.0.0", "ok", None, (result,))
        run = RunRecord(f"ior:{api}", "default", StackRecord("gcc"), f"{name}/{api}", begin, output)
        history.record_runs(name, [run])
    history.end_session(name, "ok", begin + 600)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the history is."""
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    why = postgresql.usable()
    if why:
        pytest.skip(why)
    return postgresql.create_database(request.getfixturevalue("postgresql_socket"), "beside")


def _interrupted(place: str) -> Callable[[History], Catalogue]:
    """`collect`, with a writer who is done just after it has read."""

    def read(history: History) -> Catalogue:
        found = collect_catalogue(history)
        with History.open(place) as other:
            night(other, NIGHTS, "POSIX", "MPIIO", "HDF5")
        return found

    return read


def test_what_comes_while_a_site_is_built_waits_for_the_next(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History.open(place) as history:
        for number in range(NIGHTS):
            night(history, number, "POSIX", "MPIIO")
        with monkeypatch.context() as patch:
            patch.setattr(build, "collect_catalogue", _interrupted(place))
            build.build_site(history, tmp_path / "site")
        pages = sorted((tmp_path / "site" / "series").glob("*.html"))
        assert len(pages) == 2
        assert all(f"{1000 + NIGHTS}" not in page.read_text(encoding="utf-8") for page in pages)
        assert not (tmp_path / "site" / f"session/night-{NIGHTS}.html").exists()
        build.build_site(history, tmp_path / "site")
    pages = sorted((tmp_path / "site" / "series").glob("*.html"))
    assert len(pages) == 3
    assert all(f"<strong>{1000 + NIGHTS}</strong>" in page.read_text(encoding="utf-8") for page in pages)
    assert (tmp_path / "site" / f"session/night-{NIGHTS}.html").exists()
