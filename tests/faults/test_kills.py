"""A small seeded sample of the campaign (`python -m tests.faults.campaign`; figures: docs/faults.md)."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.faults.commands import COMMANDS, Command
from tests.faults.conftest import LONG, only_long
from tests.faults.kills import Copy, Ingest, Run, Site, campaign

KILLS = int(os.environ.get("IOWATCH_FAULT_KILLS", "3"))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_ingestion_loses_nothing(request: pytest.FixtureRequest, var: Path, kind: str) -> None:
    place = None if kind == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    tally = campaign(Ingest(Random(1), place), KILLS)
    assert tally.faults == []
    assert tally.kills, "every kill came too late: nothing was tested"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_copy_can_be_repeated(request: pytest.FixtureRequest, var: Path, kind: str) -> None:
    socket = None if kind == "sqlite" else request.getfixturevalue("postgresql_socket")
    tally = campaign(Copy(Random(1), socket), KILLS)
    assert tally.faults == []
    assert tally.kills


@pytest.mark.slow
def test_killed_dashboard_build_leaves_a_complete_site(var: Path) -> None:
    tally = campaign(Site(Random(1)), KILLS)
    assert tally.faults == []
    assert tally.kills


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMMANDS] if LONG else ["history export", "reference propose"])
def test_killed_command_can_be_repeated(var: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("IOWATCH_ROOT", "")  # the command sets it, and it is restored
    tally = campaign(Command(Random(1), name), KILLS)
    assert tally.faults == []


@pytest.mark.end_to_end
@only_long
def test_killed_run_loses_no_finished_case(var: Path) -> None:
    from iowatch.site.stack.load import discover_stacks

    stack = next(found.name for found in discover_stacks("local") if found.status == "installed")
    assert campaign(Run(Random(1), stack), KILLS).faults == []
