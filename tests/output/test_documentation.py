"""`iowatch docs`: pages of the installed documentation, and messages that name them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import name_pages
from iowatch.output import documentation
from tests.conftest import ROOT

Cli = Callable[..., Result]


def test_page_is_printed_as_a_path_without_a_display(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no display: `less $(iowatch docs settings)`."""
    monkeypatch.setenv("DISPLAY", ":0")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for name in ("settings", "settings.md", "docs/settings.md", "Settings#anchor"):
        done = cli("docs", name)
        assert (done.exit_code, done.stdout, done.stderr) == (0, f"{ROOT / 'docs' / 'settings.md'}\n", "")
    assert opened == []


def test_page_opens_at_its_section_in_a_browser(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path))
    monkeypatch.setattr("iowatch.cli.commands.docs.has_display", lambda: True)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert cli("docs", "systems#times").exit_code == 0
    page = tmp_path / "documentation" / "systems.html"
    assert opened == [f"{page.as_uri()}#times"]
    assert '<h2 id="times">' in page.read_text(encoding="utf-8")


def test_unknown_page_has_near_misses_and_exit_code_2(cli: Cli) -> None:
    done = cli("docs", "setings")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no page 'setings'" in done.stderr
    assert "Did you mean 'settings'?" in done.stderr


def test_every_page_is_listed(cli: Cli) -> None:
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"readme", "changelog", "contributing"}
    listed = json.loads(cli("docs", "--json").stdout)["pages"]
    assert {page["name"] for page in listed} == names
    assert all(Path(page["path"]).is_file() for page in listed)
    lines = cli("docs").stdout.splitlines()
    assert re.fullmatch(r"settings +Settings", next(line for line in lines if line.startswith("settings")))


def test_links_between_the_html_pages_lead_somewhere(tmp_path: Path) -> None:
    """Files and anchors; addresses with a scheme are of the network, and LICENSE is a file of the clone."""
    documentation.write_html_pages(tmp_path)
    texts = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    broken = []
    for name, text in texts.items():
        for link in re.findall(r'(?:href|src)="([^":]+)"', text):
            file, _, anchor = link.partition("#")
            target = tmp_path / (file or name)
            is_absent = not target.exists() or (anchor and f'id="{anchor}"' not in texts[target.name])
            if is_absent and link != "LICENSE":
                broken.append(f"{name}: {link}")
    assert broken == []
    assert len(texts) > 40


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("docs/settings.md lists the settings.", "`iowatch docs settings` lists the settings."),
        ("two stacks (docs/comparison.md).", "two stacks (`iowatch docs comparison`)."),
        ("docs/systems.md#times documents it", "`iowatch docs systems#times` documents it"),
        # Paths of other files stay.
        ("/home/ada/docs/settings.md: absent", "/home/ada/docs/settings.md: absent"),
        ("site/docs/notes.md", "site/docs/notes.md"),
        ("docs/settings.txt", "docs/settings.txt"),
    ],
)
def test_pages_are_named_by_the_command_that_opens_them(text: str, printed: str) -> None:
    assert name_pages(text) == printed


def test_messages_and_help_name_the_command(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed iowatch has no docs/ in the working directory."""
    site_file = tmp_path / "site.yaml"
    site_file.write_text("titel: x\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    error = cli("config")
    assert error.exit_code == 2
    assert "`iowatch docs settings`" in error.stderr
    assert "docs/settings.md" not in error.stderr
    monkeypatch.delenv("IOWATCH_SITE")
    shown = " ".join(cli("run", "--help").stdout.split())
    assert "`iowatch docs operations`" in shown
    assert "`iowatch docs comparison`" in shown
    assert "docs/" not in shown


def test_pages_that_messages_name_exist() -> None:
    """In the sources they are paths; `iowatch.core.text.name_pages` makes commands of them."""
    pages = {page.name for page in documentation.documentation_pages()}
    named = set()
    for path in (ROOT / "src" / "iowatch").rglob("*.py"):
        named.update(re.findall(r"(?:\bdocs/|`iowatch docs )([a-z-]+)(?:\.md|`)", path.read_text(encoding="utf-8")))
    assert named - pages == set()
    assert len(named) > 20
