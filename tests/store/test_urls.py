"""Passwords in the URL of a database are never printed, wherever the driver accepts them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from iowatch.core.text import hide_passwords

SECRET = "S3cretPw"
# Port 1 refuses every connection.
URLS = (
    f"postgresql://iowatch:{SECRET}@127.0.0.1:1/iowatch",
    f"postgresql://iowatch@127.0.0.1:1/iowatch?password={SECRET}",
    f"postgresql://iowatch:x@127.0.0.1:1/iowatch?sslmode=prefer&sslpassword={SECRET}",
    # An @ that should be %40: the rest of the password is read as part of the host.
    f"postgresql://iowatch:part@{SECRET}@127.0.0.1:1/iowatch",
    f"postgresql+psycopg://iowatch:pa/rt@{SECRET}@127.0.0.1:1/iowatch",
)


@pytest.mark.sqlite_file
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("words", [("findings", "list"), ("-v", "findings", "list"), ("config",), ("config", "--json")])
def test_no_command_prints_a_password(
    cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, url: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("IOWATCH_DB", url)
    monkeypatch.setenv("COLUMNS", "300")
    # One attempt: a server that restarts would be waited for.
    monkeypatch.setattr("iowatch.store.engine._REPEAT_S", 0.0)
    done = cli(*words)
    assert SECRET not in done.output
    assert "***" in done.output
    assert done.exit_code == (0 if "config" in words else done.exit_code)


@pytest.mark.sqlite_file
def test_unescaped_at_in_a_password_is_refused_with_the_remedy(
    cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOWATCH_DB", URLS[3])
    done = cli("findings", "list")
    assert done.exit_code == 2
    assert "'postgresql+psycopg://iowatch:***@127.0.0.1:1/iowatch'" in done.output
    assert "it has more than one @ before the host" in done.output
    assert "%40" in done.output


@pytest.mark.parametrize(
    "text",
    [
        "var/iowatch.db",
        "sqlite:////data/a@b/iowatch.db",
        "postgresql://iowatch@history.example.org:5432/iowatch?sslmode=require&connect_timeout=5",
    ],
)
def test_urls_without_a_password_are_shown_whole(text: str) -> None:
    assert hide_passwords(text) == text
