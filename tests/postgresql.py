"""A separate PostgreSQL server for tests, from Debian's packages: on a socket, without network."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def programs() -> Path | None:
    """The directory of initdb and pg_ctl, newest version first; Debian keeps it off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    usable = [place for place in found if (place / "initdb").exists() and (place / "pg_ctl").exists()]
    return usable[0] if usable else None


def _as_user(words: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *words] if os.geteuid() == 0 else words


def usable() -> str | None:
    """Why no server can be started here, or None."""
    if programs() is None:
        return "needs a PostgreSQL server (Debian: apt-get install postgresql)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "needs the user postgres to start PostgreSQL as root"
    return None


@contextmanager
def server(directory: Path | None = None, settings: Sequence[str] = ()) -> Iterator[Path]:
    """Start a server; yields the directory of its socket.

    Args:
        directory: keeps the data there afterwards; the default is a temporary one.
        settings: options of the server, such as `-c`, `shared_buffers=512MB`.
    """
    place = programs()
    assert place is not None
    # Short: a socket's path has at most 107 characters.
    base = Path(tempfile.mkdtemp(prefix="iowpg"))
    base.chmod(0o777)
    data = (directory or base).absolute() / "data"
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)  # the server is another user where this is root

    def call(*words: str) -> None:
        subprocess.run(_as_user([str(place / words[0]), *words[1:]]), check=True, capture_output=True, cwd=base)

    try:
        if not data.exists():
            encoding = ("-E", "UTF8", "--locale=C.UTF-8")
            call("initdb", "-D", str(data), "-A", "trust", "-U", "iowatch", "--no-sync", *encoding)
        # A temporary server need not survive a power failure.
        safety = () if directory else ("-c", "fsync=off")
        options = ["-c", "listen_addresses=''", "-c", f"unix_socket_directories={base}", *safety, *settings]
        call("pg_ctl", "-D", str(data), "-o", " ".join(options), "-l", str(base / "log"), "-w", "start")
        yield base
    finally:
        mode = "fast" if directory else "immediate"
        stop = [str(place / "pg_ctl"), "-D", str(data), "-m", mode, "stop"]
        subprocess.run(_as_user(stop), check=False, capture_output=True, cwd=base)
        shutil.rmtree(base, ignore_errors=True)


def control(socket: Path, *words: str) -> None:
    """`pg_ctl` for a temporary server: `stop`, `start`, `restart`, each until it is done."""
    place = programs()
    assert place is not None
    options = f"-c listen_addresses='' -c unix_socket_directories={socket} -c fsync=off"
    command = [
        str(place / "pg_ctl"),
        "-D",
        str(socket / "data"),
        "-l",
        str(socket / "log"),
        "-o",
        options,
        "-w",
        *words,
    ]
    subprocess.run(_as_user(command), check=True, capture_output=True, cwd=socket)


def create_database(socket: Path, name: str) -> str:
    """The URL of a database on the server; creates the database if it does not exist."""
    import psycopg

    with psycopg.connect(host=str(socket), user="iowatch", dbname="postgres", autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
        if known is None:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    return f"postgresql+psycopg://iowatch@/{name}?host={socket}"


def create_roles(url: str, **accounts: str) -> None:
    """Create the roles of a history as its owner does, and accounts: `create_roles(url, alice="writer")`."""
    from sqlalchemy import make_url

    from iowatch.store import ROLES_FILE

    place = make_url(url)
    words = ["psql", "-q", "-h", str(place.query["host"]), "-U", "iowatch", "-d", str(place.database)]
    for _ in range(2):  # the owner runs it again after each upgrade
        subprocess.run([*words, "-f", str(ROLES_FILE)], check=True, stderr=subprocess.PIPE)
    for name, role in accounts.items():
        grant = f'DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN; GRANT "{place.database}_{role}" TO {name}'
        subprocess.run([*words, "-c", grant], check=True, stderr=subprocess.PIPE)


def stand_in_for_files(socket: Path, patch: pytest.MonkeyPatch) -> None:
    """Map each SQLite file that this process opens to a database on the server, named by its path."""
    from iowatch.store import engine

    real = engine.database_url

    def database_url(place: str | None = None) -> str:
        url = real(place)
        if not url.startswith("sqlite"):
            return url
        return create_database(socket, "file_" + hashlib.sha256(url.encode()).hexdigest()[:16])

    patch.setattr(engine, "database_url", database_url)
