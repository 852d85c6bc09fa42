"""A small seeded sample of the campaign (`python -m tests.faults.campaign`; figures: docs/operations.md)."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.faults.kills import Ingest, Migration, Run, Site, campaign

KILLS = int(os.environ.get("IOWATCH_FAULT_KILLS", "3"))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("work", [Ingest, Migration])
def test_a_kill_loses_nothing(
    request: pytest.FixtureRequest, var: Path, kind: str, work: type[Ingest] | type[Migration]
) -> None:
    place = None if kind == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    tally = campaign(work(Random(1), place), KILLS)
    assert tally.faults == []
    assert tally.kills, "every kill came too late: nothing was tested"


def test_a_killed_build_leaves_a_whole_site(var: Path) -> None:
    tally = campaign(Site(Random(1)), KILLS)
    assert tally.faults == []
    assert tally.kills


@pytest.mark.end_to_end
@pytest.mark.skipif(
    "IOWATCH_FAULT_KILLS" not in os.environ,
    reason="a kill of `iowatch run` takes ten seconds: set IOWATCH_FAULT_KILLS, or run tests.faults.campaign",
)
def test_a_killed_run_loses_no_finished_case(var: Path) -> None:
    from iowatch.stacks import discover

    stack = next(found.name for found in discover("local") if found.status == "installed")
    assert campaign(Run(Random(1), stack), KILLS).faults == []
