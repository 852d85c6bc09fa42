"""Real outputs: captured ones (with expected values read off by hand, `truth.json`) and a few made for iowatch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import datasets

DATA = Path(__file__).parent / "data"

TOOLS = {"benchio-EPCCed": "benchio", "benchio-davidhenty": "benchio"}


@dataclass(frozen=True)
class Captured:
    """One captured run.

    Attributes:
        tool: name of the parser.
        directory: where its files are.
        truth: `truth.json`.
    """

    tool: str
    directory: Path
    truth: dict[str, Any]

    @property
    def rc(self) -> int:
        """The exit code that was observed (or assumed, for derived cases)."""
        return int((self.directory / "rc").read_text())

    @property
    def name(self) -> str:
        """Tool, version and case."""
        return "/".join(self.directory.parts[-3:])


def captured() -> list[Captured]:
    """Every captured run of the tools that are read here."""
    found = []
    for path in sorted(datasets.unpacked("captured").glob("*/*/*/truth.json")):
        tool = path.parts[-4]
        if tool != "darshan":
            found.append(Captured(TOOLS.get(tool, tool), path.parent, json.loads(path.read_text())))
    return found


def outputs() -> Iterator[tuple[str, Path]]:
    """Every single output with its tool, also h5bench's nested ones."""
    for path in sorted(DATA.iterdir()):
        yield path.name.partition("-")[0], path
    for run in captured():
        nested = ("*/stdout", "*/*.csv", "*h5bench.log")
        for pattern in nested if run.tool == "h5bench" else ("stdout", "out.*"):
            for path in sorted(run.directory.glob(pattern)):
                yield run.tool, path
    for path in sorted((datasets.OUTSIDE / "data" / "archer-benchio").rglob("*.dat"))[::9]:
        yield "benchio", path
