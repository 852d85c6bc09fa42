"""Channels of notices of a site: the example of docs/plugins.md, and channels with faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import plugins
from iowatch.output.notice_channels import NOTICE_CHANNELS
from iowatch.store import History
from tests.plugins.examples import write_examples

Cli = Callable[..., Result]
FAILING = """
from typing import Literal
from iowatch.output.channels.notice import ChannelSettings, NoticeChannel

class FailingSettings(ChannelSettings):
    kind: Literal["failing"]

def fail(channel, notice):
    raise RuntimeError("https://hook.example.org/SECRET")

FAILING = NoticeChannel("failing", FailingSettings, fail)
"""
WITHOUT_KIND = """
from iowatch.output.channels.notice import ChannelSettings, NoticeChannel

CHANNEL = NoticeChannel("unreachable", ChannelSettings, print)
"""


@pytest.fixture
def site(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository of a site with the examples and a history without sessions."""
    place = tmp_path / "site"
    (place / "plugins").mkdir(parents=True)
    (place / "site.yaml").write_text("title: Ours\n")
    write_examples(place)
    for folder in (place, *(path for path in place.rglob("*"))):
        folder.chmod(0o755)  # whatever the umask of the test is
    monkeypatch.chdir(place)
    monkeypatch.delenv("IOWATCH_SITE", raising=False)
    History.open().close()
    plugins.forget_plugins()
    yield place
    plugins.forget_plugins()


def write_channel(site: Path, fields: str) -> Path:
    """Write a `notify.yaml` with one channel of these fields, and one that writes an issue behind it."""
    path = site / "systems" / "local" / "notify.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    issue = "{name: tracker, kind: issue, directory: issues}"
    path.write_text(f"digest: never\nchannels:\n  - {{name: ours, {fields}}}\n  - {issue}\n")
    return path


def test_channel_of_a_plugin_delivers_notices(site: Path, cli: Cli, tmp_path: Path) -> None:
    collected = tmp_path / "collected.txt"
    write_channel(site, f"kind: logfile, path: {collected}")
    done = cli("notify", "--system", "local", "--json")
    assert done.exit_code == 0, done.output
    assert [channel["kind"] for channel in json.loads(done.stdout)["channels"]] == ["logfile", "issue"]
    assert collected.read_text() == "local\toverdue\tlocal: session overdue\n"


def test_refused_notice_of_a_plugin_is_sent_by_the_next_call(site: Path, cli: Cli, tmp_path: Path) -> None:
    collected = tmp_path / "absent" / "collected.txt"
    write_channel(site, f"kind: logfile, path: {collected}")
    refused = cli("notify", "--system", "local")
    assert refused.exit_code == 1
    assert f"ours: 0 sent; 1 pending until the next call: cannot write {collected}" in refused.output
    collected.parent.mkdir()
    assert cli("notify", "--system", "local").exit_code == 0
    assert cli("notify", "--system", "local").exit_code == 0
    assert len(collected.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("fields", "fault"),
    [("kind: logfile", "path"), ("kind: logfile, path: /x, colour: red", "colour"), ("kind: pigeon", "'logfile'")],
)
def test_settings_of_a_plugin_are_checked_with_their_position(site: Path, cli: Cli, fields: str, fault: str) -> None:
    path = write_channel(site, fields)
    done = cli("notify", "--system", "local")
    assert done.exit_code == 2
    assert f"{path}:3:" in done.stderr
    assert fault in done.stderr


def test_exception_of_a_plugin_is_reported_without_its_message(site: Path, cli: Cli, var: Path) -> None:
    (site / "plugins" / "failing.py").write_text(FAILING)
    write_channel(site, "kind: failing")
    done = cli("notify", "--system", "local")
    assert done.exit_code == 1
    assert f"{site}/plugins/failing.py: RuntimeError" in done.output
    assert "SECRET" not in done.output
    assert len(list((var / "issues").iterdir())) == 1


def test_channel_that_no_entry_can_select_is_a_fault_of_its_plugin(site: Path) -> None:
    (site / "plugins" / "unreachable.py").write_text(WITHOUT_KIND)
    assert "unreachable" not in NOTICE_CHANNELS
    (fault,) = [fault for plugin in plugins.load_plugins() for fault in plugin.faults]
    assert fault.startswith(f"{site}/plugins/unreachable.py, line 4: ValueError: channel 'unreachable'")
