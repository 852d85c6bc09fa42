"""Mornings of an administrator: first session, quiet sessions, first bad morning, eight systems with one event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import numpy as np

from iowatch.core import Scalar
from iowatch.demo.scenarios import Scenario, SimulatedSeries, generate_sessions
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.store import NO_SESSION_FACTS, History, SessionFacts, StackRecord, write

FIRST = date(2025, 1, 1)
STEP = date(2025, 2, 10)
# Systems with the shared event, and the factor of their MPI-IO series from STEP on.
SHARED = {"amber": 0.7, "beryl": 0.5, "coral": 0.3}
SYSTEMS = ("amber", "beryl", "coral", "dolomite", "emerald", "flint", "garnet", "hematite")


def scenario(
    system: str, last: date, factors: Mapping[tuple[str, str], tuple[date, float]], apis: Iterable[str] = ()
) -> Scenario:
    """Series of 1,000 MiB/s; `factors` by API and operation (either may be empty) are applied from their day on."""
    series = []
    for api in apis or ("MPIIO", "POSIX", "HDF5", "NETCDF4"):
        for operation in ("write", "read"):
            parameters: dict[str, Scalar] = {
                "operation": operation, "api": api, "file": "per-process" if api == "POSIX" else "shared", "ranks": 64
            }  # fmt: skip
            steps = [step for key, step in factors.items() if key in ((api, operation), (api, ""), ("", operation))]
            levels = ((FIRST, 1000.0), *((day, 1000.0 * factor) for day, factor in steps))
            series.append(SimulatedSeries(f"ior:{api}", "ior", parameters, levels, "simulated"))
    stacks = ((FIRST, StackRecord("openmpi")),)
    return Scenario("nightly", system, "compute", "simulated", FIRST, last, tuple(series), stacks, missing_runs=0.0)


def record(history: History, planned: Scenario) -> None:
    """Record all sessions as measured ones; findings are updated after all but the last three, and after the last."""
    # Different values on each system, the same in every run of the tests.
    seed = int(np.frombuffer(planned.system.encode()[:4].ljust(4), dtype=np.uint32)[0])
    sessions = list(generate_sessions(planned, seed=seed))
    for part, last in ((sessions[:-3], planned.last - timedelta(days=3)), (sessions[-3:], planned.last)):
        with history.writing() as connection:
            for one in part:
                uuid = f"{planned.system}-{one.session.uuid}"
                session = replace(one.session, uuid=uuid, origin="run", facts=NO_SESSION_FACTS)
                runs = [replace(run, fingerprint=f"{uuid}-{run.name}") for run in one.runs]
                write.insert_session(connection, session, one.expected)
                write.insert_runs(connection, uuid, runs)
                write.update_session_end(connection, uuid, "ok", session.started_at + 3600)
        update_findings(history, planned.system, morning(last))


def morning(last: date) -> datetime:
    """06:00 UTC after the session of a day."""
    return datetime.combine(last + timedelta(days=1), time(6), UTC)


def first_session(history: History) -> date:
    """One session of two stacks; MPI-IO of the second one is seven times slower."""
    planned = scenario("laptop", FIRST, {})
    slow = scenario("laptop", FIRST, {("MPIIO", ""): (FIRST, 1 / 7)}, apis=("MPIIO", "POSIX"))
    (one,), (two,) = (list(generate_sessions(each, seed=1)) for each in (planned, slow))
    others = [replace(run, stack=StackRecord("mpich"), fingerprint=f"mpich-{run.name}") for run in two.runs]
    lacking = [
        {
            "kind": "unavailable",
            "stack": stack,
            "run": runs,
            "reason": f"the stack does not provide {what}",
            "partition": "",
        }
        for stack in ("mpich", "openmpi")
        for runs, what in (
            ("2 cases", "netcdf4"),
            ("4 cases", "h5bench"),
            ("1 case", "fio"),
            ("7 cases", "ior"),
            ("3 cases", "mdtest"),
        )
    ]
    attributes = {"unavailable": lacking, "install_commands": ["iowatch stack install reference --system laptop"]}
    session = replace(one.session, origin="run", facts=SessionFacts.from_document(attributes))
    history.begin_session(session, one.expected)
    history.record_runs(session.uuid, [*one.runs, *others])
    history.end_session(session.uuid, "ok", session.started_at + 600)
    update_findings(history, "laptop", morning(FIRST))
    return FIRST


def quiet(history: History) -> date:
    """Twenty sessions without a change."""
    last = FIRST + timedelta(days=19)
    record(history, scenario("amber", last, {}))
    return last


def first_bad_morning(history: History) -> date:
    """The first session in which MPI-IO of a quiet system has 35 % of its bandwidth: an event that lasts with 51 %."""
    planned = scenario("amber", STEP, {("MPIIO", ""): (STEP, 0.35)})
    record(history, replace(planned, series=tuple(replace(one, sigma=0.02) for one in planned.series)))
    return STEP


def eight_systems(history: History) -> date:
    """Twelve sessions after an event on three systems; elsewhere a small loss, an improvement, a missing session."""
    last = STEP + timedelta(days=11)
    for name in SYSTEMS:
        factors: dict[tuple[str, str], tuple[date, float]] = {}
        if name in SHARED:
            factors = {("MPIIO", ""): (STEP, SHARED[name])}
        elif name == "dolomite":
            factors = {("POSIX", "write"): (STEP - timedelta(days=8), 0.8)}
        elif name == "emerald":
            factors = {("", "read"): (STEP - timedelta(days=4), 1.6)}
        planned = scenario(name, last, factors)
        record(history, replace(planned, missing=frozenset({last - timedelta(days=3)})) if name == "flint" else planned)
    return last


Morning = Callable[[History], date]


def build(place: Path, kind: Morning) -> Path:
    """The site of a morning."""
    with History.open(str(place / "history.db")) as history:
        last = kind(history)
        build_site(history, place / "site", now=morning(last))
    return place / "site"
