"""The site of a PostgreSQL history equals the site of an SQLite history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.site import SiteWriter, write_in_processes
from iowatch.store import History, bulk
from tests import postgresql
from tests.output.dashboard import shapes

# More than the number of sessions with long pages.
SESSIONS = 34
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def url(postgresql_socket: Path) -> str:
    """The history of `shapes` in PostgreSQL."""
    made = postgresql.create_database(postgresql_socket, "dashboard")
    shapes.fill(made, SESSIONS)
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the same history in SQLite."""
    place = tmp_path_factory.mktemp("sqlite")
    shapes.fill(place / "history.db", SESSIONS)
    with pytest.MonkeyPatch.context() as patch:
        # Else the commands on its pages would name it.
        patch.setenv("IOWATCH_DB", str(place / "history.db"))
        with History.open() as history:
            build_site(history, place / "site", now=NOW)
    return place / "site"


def files(site: Path) -> dict[str, str]:
    """The pages and feeds of a site by name, without the place of the history in commands."""
    kinds = (".html", ".xml", ".json")
    return {
        path.relative_to(site).as_posix(): re.sub(r" --db [^\s\"<]+", "", path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*"))
        if path.suffix in kinds
    }


@pytest.mark.slow
def test_site_of_a_postgresql_history_equals_that_of_sqlite(url: str, site: Path, tmp_path: Path) -> None:
    with History.open(url) as history:
        build_site(history, tmp_path / "site", now=NOW)
    ours, theirs = files(tmp_path / "site"), files(site)
    assert len(ours) > SESSIONS
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_two_processes_read_postgresql_concurrently(url: str, tmp_path: Path) -> None:
    """Forked processes must not use the connection of their parent."""
    with History.open(url) as history:
        numbers = [row.id for row in history.series()]

        def work(items: Sequence[int]) -> None:
            for position, number in enumerate(items):
                with history.reading() as connection:
                    (found,) = bulk.read_series_samples(connection, [number])
                (tmp_path / f"{number}-{position}").write_text(str(len(found.time)))

        writer = SiteWriter(tmp_path, None)
        write_in_processes(history, writer, work, numbers * 60)
        assert len(history.series()) == len(numbers)
    counts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(counts) == 60 * len(numbers)
    assert set(counts) == {str(SESSIONS)}
