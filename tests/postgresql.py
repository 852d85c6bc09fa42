"""A PostgreSQL server of the tests' own, from Debian's packages: on a socket, without network."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """The directory of initdb and pg_ctl, newest version first; Debian keeps it off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    usable = [place for place in found if (place / "initdb").exists() and (place / "pg_ctl").exists()]
    return usable[0] if usable else None


def _as_user(words: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *words]
        if os.geteuid() == 0
        else words
    )


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
def server() -> Iterator[Path]:
    """Start a server; gives the directory of its socket."""
    place = programs()
    assert place is not None
    # Short: a socket's path has at most 107 characters.
    base = Path(tempfile.mkdtemp(prefix="iowpg"))
    base.chmod(0o777)
    data = base / "data"

    def call(*words: str) -> None:
        subprocess.run(_as_user([str(place / words[0]), *words[1:]]), check=True, capture_output=True, cwd=base)

    try:
        call(
            "initdb",
            "-D",
            str(data),
            "-A",
            "trust",
            "-U",
            "iowatch",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={base} -c fsync=off"
        call("pg_ctl", "-D", str(data), "-o", options, "-l", str(base / "log"), "-w", "start")
        yield base
    finally:
        subprocess.run(
            _as_user([str(place / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"]),
            check=False,
            capture_output=True,
            cwd=base,
        )
        shutil.rmtree(base, ignore_errors=True)


def create_database(socket: Path, name: str) -> str:
    """A new database on the server; returns its URL."""
    import psycopg

    with psycopg.connect(host=str(socket), user="iowatch", dbname="postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    return f"postgresql+psycopg://iowatch@/{name}?host={socket}"
