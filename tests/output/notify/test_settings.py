"""The settings in notify.yaml and the command: faults are reported, secrets are never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import InputError
from iowatch.output import notice_channels
from iowatch.store import History
from tests.conftest import ROOT


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write systems/local/notify.yaml in a separate checkout."""
    place = tmp_path / "checkout"
    (place / "benchmarks").mkdir(parents=True)
    (place / "systems" / "local").mkdir(parents=True)
    (place / "systems" / "local" / "system.yaml").symlink_to(ROOT / "systems" / "local" / "system.yaml")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))

    def to_file(text: str) -> Path:
        path = place / "systems" / "local" / "notify.yaml"
        path.write_text(text)
        return path

    return to_file


GOOD = """\
dashboard: https://io.example.org
digest: monday
channels:
  - name: chat
    kind: slack
    url: {environment: IOWATCH_SLACK}
  - name: admins
    kind: mail
    host: mail.example.org
    sender: iowatch@example.org
    to: [admins@example.org]
    user: iowatch
    password: {file: ~/.config/iowatch/mail}
  - name: tracker
    kind: issue
    send: [finding]
    directory: issues
"""


def test_settings_are_read(write: Callable[[str], Path]) -> None:
    write(GOOD)
    read = notice_channels.load_notify_settings("local")
    assert read is not None
    assert [channel.kind for channel in read.channels] == ["slack", "mail", "issue"]


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("digest: monday", "digest: someday", 2, "digest"),
        ("kind: slack", "kind: pigeon", 5, "pigeon"),
        ("url: {environment: IOWATCH_SLACK}", "url: hunter2", 6, "url"),
        ("url: {environment: IOWATCH_SLACK}", "url: {environment: A, file: B}", 6, "one of"),
        ("environment: IOWATCH_SLACK", "secret: hunter2", 6, "unknown field"),
        ("to: [admins@example.org]", 'to: ["a@b.c\\nBcc: x@y.z"]', 11, "to"),
        ("    user: iowatch\n", "", 7, "go together"),
        ("host: mail.example.org", "host: m\n    security: none", 7, "without encryption"),
        ("name: tracker", "name: chat", 1, "differ"),
        ("directory: issues", "directory: issues\n    colour: red", 18, "colour"),
        # Settings that can never send anything.
        (GOOD[GOOD.index("channels:") :], "channels: []\n", 3, "channels"),
        ("send: [finding]", "send: []", 16, "send"),
        ("digest: monday", "digest: monday\noverdue_hours: 1.0e+9", 3, "overdue_hours"),
    ],
)
def test_faults_are_reported_with_file_line_and_field_without_secrets(
    write: Callable[[str], Path], old: str, new: str, line: int, word: str
) -> None:
    assert old in GOOD
    path = write(GOOD.replace(old, new))
    with pytest.raises(InputError) as error:
        notice_channels.load_notify_settings("local")
    assert f"{path}:{line}:" in str(error.value)
    assert word in str(error.value)
    assert "hunter2" not in str(error.value)


def test_empty_file_is_reported(write: Callable[[str], Path]) -> None:
    write("")
    with pytest.raises(InputError, match=r"notify\.yaml:1"):
        notice_channels.load_notify_settings("local")


def test_nothing_is_sent_without_settings(cli: Any, write: Callable[[str], Path], var: Path) -> None:
    done = cli("notify", "--system", "local")
    assert done.exit_code == 0
    assert "no notify.yaml" in done.output


def test_command_reports_sent_notices(cli: Any, write: Callable[[str], Path], var: Path) -> None:
    write("digest: never\nchannels:\n  - {name: tracker, kind: issue, directory: issues}\n")
    History.open().close()
    dry_run = cli("notify", "--system", "local", "--dry-run")
    assert (dry_run.exit_code, dry_run.stdout) == (0, "tracker: local: session overdue\n")
    done = cli("notify", "--system", "local", "--json")
    assert done.exit_code == 0
    (channel,) = json.loads(done.stdout)["channels"]
    assert channel["sent"] == ["overdue never"]
    assert "# local: session overdue" in (var / "issues" / "overdue-never.md").read_text()
    assert "0 sent" in cli("notify", "--system", "local").output


def test_failed_channel_exits_with_1(
    cli: Any, write: Callable[[str], Path], var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IOWATCH_SLACK", raising=False)
    write("channels:\n  - {name: chat, kind: slack, url: {environment: IOWATCH_SLACK}}\n")
    History.open().close()
    done = cli("notify", "--system", "local")
    assert done.exit_code == 1
    assert "IOWATCH_SLACK" in done.output


@pytest.mark.parametrize("names", [("chat", "tracker"), ("tracker", "chat")])
def test_failed_channel_beside_a_good_one_exits_with_1(
    cli: Any, write: Callable[[str], Path], var: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    monkeypatch.delenv("IOWATCH_SLACK", raising=False)
    channels = {
        "chat": "{name: chat, kind: slack, url: {environment: IOWATCH_SLACK}}",
        "tracker": "{name: tracker, kind: issue, directory: issues}",
    }
    write("digest: never\nchannels:\n" + "".join(f"  - {channels[name]}\n" for name in names))
    History.open().close()
    done = cli("notify", "--system", "local")
    assert done.exit_code == 1
    assert "tracker: 1 sent\n" in done.output
    assert "chat: 0 sent; 1 pending until the next call: " in done.output
    # The good channel has nothing left to send, the other one still has.
    again = cli("notify", "--system", "local", "--json")
    assert again.exit_code == 1
    channels_left = json.loads(again.stdout)["channels"]
    assert {channel["channel"]: channel["waiting"] for channel in channels_left} == {"chat": 1, "tracker": 0}


@pytest.mark.sqlite_file
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",)])
def test_misspelt_history_is_refused_and_nothing_sent(
    cli: Any, write: Callable[[str], Path], var: Path, more: tuple[str, ...]
) -> None:
    """No second, empty history is created."""
    write("channels:\n  - {name: tracker, kind: issue, directory: issues}\n")
    absent = var / "mispelt" / "iowatch.db"
    done = cli("notify", "--system", "local", "--db", absent, *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"there is no history at sqlite:///{absent}" in done.stderr
    assert not absent.parent.exists()
    assert not (var / "issues").exists()


def test_example_in_the_documentation_is_valid(write: Callable[[str], Path]) -> None:
    text = (ROOT / "docs" / "notices.md").read_text()
    examples = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    (example,) = [one for one in examples if "channels:" in one]
    write(example)
    read = notice_channels.load_notify_settings("local")
    assert read is not None
    assert [channel.name for channel in read.channels] == ["chat", "monitoring", "admins", "tickets", "tracker"]
