"""How much room the history and the rest of `var/` take, and how much is left; nothing is made or changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from iowatch import paths
from iowatch.store.engine import NETWORK_FILE_SYSTEMS, database_url, file_system_type

# A night of a site writes some MiB; below this the next months are in danger.
_SHORT_BYTES = 2**30
_PARTS = {"artefacts": "outputs and Darshan logs", "runs": "what runs left", ".site.versions": "dashboard"}
_CONNECT_S = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A part of `var/`: words for people, files, bytes on disk; a file with several names counts once."""

    name: str
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Usage:
    """What `iowatch doctor` tells of disks.

    Attributes:
        database: place of the history, without a password.
        database_bytes: its size, with SQLite's log; None where there is none, or it does not answer.
        free_bytes: what may still be written in `var/`; None where it cannot be told.
        warnings: what will go wrong, in words.
    """

    var: str
    database: str
    database_bytes: int | None
    parts: tuple[Part, ...]
    free_bytes: int | None
    file_system: str
    warnings: tuple[str, ...]


def usage(place: str | None = None) -> Usage:
    """Look at `var/` and the history at `place` (default: as everywhere)."""
    var = paths.var().absolute()
    url = make_url(database_url(place))
    existing = next(path for path in (var, *var.parents) if path.exists())
    room = os.statvfs(existing)
    free = room.f_bavail * room.f_frsize
    size, warnings = _database(place)
    kind = file_system_type(existing)
    if free < _SHORT_BYTES:
        warnings.append(f"{var} has little room left: `iowatch history prune`, or move it (IOWATCH_VAR)")
    return Usage(
        var=str(var),
        database=url.render_as_string(hide_password=True),
        database_bytes=size,
        parts=tuple(_part(words, var / name) for name, words in _PARTS.items()),
        free_bytes=free,
        file_system=kind,
        warnings=tuple(warnings),
    )


def _database(place: str | None) -> tuple[int | None, list[str]]:
    url = make_url(database_url(place))
    if url.get_backend_name() == "sqlite":
        return _sqlite(Path(url.database or ""))
    try:
        # Without a pool: the connection is closed at once.
        engine = create_engine(url, connect_args={"connect_timeout": _CONNECT_S}, poolclass=NullPool)
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()), []
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        return None, [f"the history {url.render_as_string(hide_password=True)} does not answer: {reason}"]


def _sqlite(path: Path) -> tuple[int | None, list[str]]:
    directory = next(one for one in path.absolute().parents if one.exists())
    kind = file_system_type(directory)
    warnings = []
    if kind in NETWORK_FILE_SYSTEMS:
        warnings.append(
            f"the history {path} is SQLite on a network file system ({kind}), where its locks do not hold: "
            "use a local directory or PostgreSQL (IOWATCH_DB)"
        )
    files = [one for one in (path, path.with_name(f"{path.name}-wal")) if one.is_file()]
    return (sum(one.stat().st_size for one in files) if files else None), warnings


def _part(words: str, directory: Path) -> Part:
    sizes = {(facts.st_dev, facts.st_ino): facts.st_blocks * 512 for facts in _files(directory)}
    return Part(words, len(sizes), sum(sizes.values()))


def _files(directory: Path) -> Iterator[os.stat_result]:
    """Facts of all files below a directory; what goes away meanwhile is passed over."""
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                yield os.lstat(Path(place, name))
            except FileNotFoundError:
                continue
