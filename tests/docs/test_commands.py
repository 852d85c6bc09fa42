"""Every command in the documents runs, and prints what the documents show (`shell_blocks` has the conventions)."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.conftest import ROOT
from tests.docs.shell_blocks import Block, fault_of, shell_blocks, words_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page.relative_to(ROOT).as_posix(): list(shell_blocks(page.read_text(encoding="utf-8"))) for page in PAGES}
RUN = {page: blocks for page, blocks in BLOCKS.items() if any(block.mark("not run") is None for block in blocks)}
Cli = Callable[..., Result]


class Shell:
    """A directory with a site's repository, in which the commands of one page run one after the other."""

    def __init__(self, home: Path, cli: Cli, patch: pytest.MonkeyPatch, demos: Path) -> None:
        self.cli, self.patch, self.demos = cli, patch, demos
        program = home / "bin" / "iowatch"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m iowatch "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (home / ".gitconfig").write_text("[user]\nname = Ada Lovelace\nemail = ada@example.org\n")
        for name, value in {
            "HOME": home,
            "CLONE": ROOT,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "COLUMNS": "200",
        }.items():
            patch.setenv(name, str(value))
        patch.chdir(home)
        assert cli("init", "site").exit_code == 0
        patch.chdir(home / "site")

    def run(self, text: str) -> tuple[int, str]:
        """Run a command; returns exit code and output."""
        if moved := re.fullmatch(r"cd (\S+)", text):
            self.patch.chdir(Path(moved[1]).expanduser())
            return 0, ""
        words = words_of(text)
        if words is None:
            done = subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return done.returncode, done.stdout
        if words[:1] == ["demo"] and len(words) == 2:
            return 0, self._demo(words[1])
        found = self.cli(*words)
        return found.exit_code, found.output

    def _demo(self, name: str) -> str:
        """A demonstration is made once for all pages; later ones get a copy."""
        here, kept, shown = Path("var", f"demo-{name}.db").absolute(), self.demos / f"{name}.db", self.demos / name
        if not kept.exists():
            found = self.cli("demo", name)
            assert found.exit_code == 0, found.output
            shutil.copyfile(here, kept)
            shown.write_text(found.output.replace(str(here), "HERE"))
        here.parent.mkdir(exist_ok=True)
        shutil.copyfile(kept, here)
        return shown.read_text().replace("HERE", str(here))


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories of demonstrations, and what their command printed."""
    return tmp_path_factory.mktemp("demos")


@pytest.fixture
def shell(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, demos: Path) -> Shell:
    """A scratch site, without settings of the environment."""
    for name in ("IOWATCH_DB", "IOWATCH_VAR", "IOWATCH_SITE"):
        monkeypatch.delenv(name, raising=False)
    return Shell(tmp_path, cli, monkeypatch, demos)


def _run_block(shell: Shell, page: str, block: Block) -> list[str]:
    for mark, text in block.marks:
        if mark == "setup":
            code, output = shell.run(text)
            assert code == 0, f"{page}:{block.line}: setup: {text}\n{output}"
    faults: list[str] = []
    for command in block.commands:
        fault = fault_of(page, command, *shell.run(command.text))
        if fault:
            faults.append(fault)
    return faults


# What newcomers read first is run by `make test`, all other pages by `make test-all`.
FIRST_PAGES = ("README.md", "docs/tutorial-first-night.md", "docs/tutorial-first-finding.md", "docs/findings.md")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in FIRST_PAGES else pytest.mark.slow) for page in RUN]
)
def test_commands_of_a_page(page: str, shell: Shell) -> None:
    blocks = [block for block in RUN[page] if block.mark("not run") is None]
    usable = [block for block in blocks if not (need := block.mark("needs")) or shutil.which(need)]
    faults = [fault for block in usable for fault in _run_block(shell, page, block)]
    assert not faults, "\n\n".join(faults)
    if len(usable) < len(blocks):
        absent = {block.mark("needs") for block in blocks} - {None}
        pytest.skip(f"commands of {page} need {', '.join(map(str, absent))}; the others ran")


def test_unrun_commands_have_a_reason(record_property: Callable[[str, object], None]) -> None:
    """The list of what is not run, for a person: `pytest -rP -k unrun_commands`."""
    listed = [
        f"{page}:{block.line}: {block.mark('not run')}: {block.commands[0].text}"
        for page, blocks in BLOCKS.items()
        for block in blocks
        if block.mark("not run") is not None
    ]
    print("\n".join(listed))
    assert [line for line in listed if ": : " in line] == []
    commands = sum(len(block.commands) for blocks in BLOCKS.values() for block in blocks)
    assert len(listed) < commands / 2
