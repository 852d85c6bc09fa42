"""A separate checkout with reference files per test, and small histories with planted steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest

from iowatch.core import Scalar
from iowatch.demo.scenarios import Scenario, SimulatedSeries, generate_sessions
from iowatch.findings import Finding, update_findings
from iowatch.store import History, StackRecord, write
from tests.conftest import ROOT

FIRST = date(2025, 1, 1)
STEP = date(2025, 2, 10)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the events of the demonstrations and no decisions."""
    place = tmp_path / "checkout"
    for name in ("systems", "benchmarks", "reference/reviews"):
        (place / name).mkdir(parents=True)
    shutil.copytree(ROOT / "reference" / "events", place / "reference" / "events")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))
    return place


def level(api: str, operation: str, *steps: tuple[date, float]) -> SimulatedSeries:
    """A series of 1,000 MiB/s that is multiplied at each step by its factor."""
    file = "per-process" if api == "POSIX" else "shared"
    parameters: dict[str, Scalar] = {"operation": operation, "api": api, "file": file, "ranks": 64}
    levels, value = [(FIRST, 1000.0)], 1000.0
    for day, factor in steps:
        value *= factor
        levels.append((day, value))
    return SimulatedSeries(f"{api}-{operation}", "ior", parameters, tuple(levels), "planted")


def scenario_of(*series: SimulatedSeries, last: date = date(2025, 3, 31)) -> Scenario:
    """A simulated history without missing sessions."""
    return Scenario(
        name="planted",
        system="planted",
        partition="compute",
        label="planted",
        first=FIRST,
        last=last,
        series=series,
        stacks=((FIRST, StackRecord("one")),),
        missing_runs=0.0,
    )


def slower_mpiio(*, last: date = date(2025, 3, 31)) -> Scenario:
    """MPI-IO loses half of its bandwidth on STEP; POSIX, HDF5 and NetCDF are unchanged."""
    return scenario_of(
        *(level("MPIIO", operation, (STEP, 0.5)) for operation in ("write", "read")),
        *(level(api, operation) for api in ("POSIX", "HDF5", "NETCDF4") for operation in ("write", "read")),
        last=last,
    )


def update_time(day: date) -> datetime:
    """06:00 UTC of a day, after the runs of the night before."""
    return datetime.combine(day, time(6), UTC)


RecordAndUpdate = Callable[..., list[Finding]]


@pytest.fixture
def record_and_update(history: History, root: Path) -> RecordAndUpdate:
    """Record sessions of a scenario from `since` (None: all) to the day before `until`; update findings if wanted."""

    def record(
        scenario: Scenario, until: date, since: date | None = None, report: bool = True, update: bool = True
    ) -> list[Finding]:
        # One transaction for all sessions: the commits of a session are tested in tests/store.
        with history.writing() as connection:
            for session in generate_sessions(replace(scenario, last=until - timedelta(days=1)), seed=5):
                if since is None or session.session.started_at >= update_time(since).timestamp() - 86400:
                    write.insert_session(connection, session.session, ())
                    write.insert_runs(connection, session.session.uuid, session.runs)
        return update_findings(history, scenario.system, update_time(until), report=report) if update else []

    return record
