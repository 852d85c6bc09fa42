"""The commands of the site guide on a cluster with several nodes and accounting, in an empty home on its login node."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import gluster
from tests.cluster.machines import LOGIN, Box
from tests.cluster.site import with_settings
from tests.conftest import ROOT
from tests.docs.shell_blocks import Block, fault_of, shell_blocks

pytestmark = pytest.mark.slow

_PAGE = ROOT / "docs" / "site-guide.md"
# No environment modules are in the box: section 3. Section 6 measures for minutes; 5 and 7 have no commands.
_SECTIONS = ("## 1.", "## 2.", "## 4.", "## 8.")


def blocks_of(section: str) -> list[Block]:
    """Blocks of a section that can run here, with their lines in the page."""
    text = _PAGE.read_text(encoding="utf-8")
    start = text.index(f"\n{section}") + 1
    end = text.find("\n## ", start)
    # Blank lines in place of the other sections keep the numbers of lines.
    lines_before = "\n" * text.count("\n", 0, start)
    blocks = shell_blocks(lines_before + text[start : end if end > 0 else None])
    return [block for block in blocks if "tests/cluster runs it" in (block.mark("not run") or "tests/cluster runs it")]


@dataclass
class LoginShell:
    """An administrator's shell on the login node: what `cd` changes stays, HOME is empty at first."""

    box: Box
    home: Path
    directory: Path

    def run(self, text: str) -> tuple[int, str]:
        """Run a command of the page; return exit code and output."""
        moved = re.fullmatch(r"cd ~/(\S+)", text)
        if moved is not None:
            self.directory = self.home / moved[1]
            return 0, ""
        path = f"{self.home}/bin:{Path(sys.executable).parent}:$PATH"
        line = f"export HOME={self.home} COLUMNS=200 PATH={path}; exec 2>&1; {text}"
        done = self.box.run(LOGIN, "bash", "-c", line, seconds=180, directory=self.directory, may_fail=True)
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def shell(box: Box) -> LoginShell:
    home = box.directory / "home"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "iowatch"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {shlex.quote(sys.executable)} -m iowatch "$@"\n')
    program.chmod(0o755)
    return LoginShell(box, home, home)


def describe_file_system(shell: LoginShell) -> None:
    """What section 2 asks to set by hand: the scratch directory, here also one of the partitions."""
    system = shell.home / "iowatch-site" / "systems" / "mycluster"
    facts = (system / "system.yaml").read_text()
    facts, count = re.subn(r"(?m)^scratch: .*$", f"scratch: {gluster.mount_directory(shell.box)}/iowatch", facts)
    assert count == 1, facts
    (system / "system.yaml").write_text(re.sub(r"(?m)^(  free_bytes): .*$", r"\1: 1m", facts))
    settings = (system / "reframe.py").read_text()
    # Accounting, both partitions and the interface of each MPI were detected.
    for words in ('SCHEDULER = "slurm"', '"queue": "small"', '"queue": "wide"', '"openmpi": "pmix"', '"mpich": "pmi2"'):
        assert words in settings, settings
    partition = {"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"}
    settings = re.sub(r"(?ms)^PARTITIONS = \[\n.*?^\]$", "PARTITIONS = []", settings)
    (system / "reframe.py").write_text(with_settings(settings, {"PARTITIONS": [partition]}))


def test_commands_of_the_guide(shell: LoginShell) -> None:
    page = _PAGE.relative_to(ROOT).as_posix()
    for section in _SECTIONS:
        blocks = blocks_of(section)
        assert blocks, section
        for block in blocks:
            for command in block.commands:
                fault = fault_of(page, command, *shell.run(command.text))
                assert fault is None, fault
                if command.text.startswith("iowatch system init"):
                    describe_file_system(shell)
