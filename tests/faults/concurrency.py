"""Concurrency: nightly sessions that start together, and many writers of one history."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from iowatch.store import History, RunRecord, SessionRecord
from tests.faults import material
from tests.faults.kills import IOWATCH

WRITERS, RUNS = 8, 100


def _write(place: str | None, number: int) -> None:
    with History.open(place) as history:
        uuid = f"writer-{number}"
        begun = SessionRecord(uuid, f"system-{number % 4}", "nightly", "run", 1_700_000_000 + number)
        history.begin_session(begun, material.expected(RUNS))
        for run in range(RUNS):
            output = material.output(Random(run), run + 1)
            record = RunRecord(f"ior:{run}", "compute", material.STACK, f"{uuid}-{run}", 1_700_000_000, output)
            # A run that is recorded twice must be stored once.
            history.record_runs(uuid, [record])
            history.record_runs(uuid, [record])
        history.end_session(uuid, "ok", 1_700_000_100)


def writers(place: str | None) -> tuple[float, list[str]]:
    """Seconds that 8 processes took for 100 runs each, recorded twice; what is wrong afterwards."""
    begun, codes = time.monotonic(), _in_processes(*(partial(_write, place, n) for n in range(WRITERS)))
    took = time.monotonic() - begun
    faults = [f"writer {n} ended with {code}" for n, code in enumerate(codes) if code]
    with History.open(place) as history:
        for row in history.sessions():
            names = [run.name for run in history.runs(row.uuid)]
            if sorted(names) != sorted(f"ior:{n}" for n in range(RUNS)):
                faults.append(f"{row.uuid} has {len(names)} runs")
            if len(history.received(row.uuid)) != 2 * RUNS or len(history.expected(row.uuid)) != 2 * RUNS:
                faults.append(f"{row.uuid} has {len(history.received(row.uuid))} results")
        if len(history.sessions()) != WRITERS:
            faults.append(f"{len(history.sessions())} sessions")
    return took, faults


def _write_same(place: str | None, runs: int) -> None:
    with History.open(place) as history:
        history.begin_session(SessionRecord("shared", "system", "nightly", "run", 1_700_000_000), [])
        for number in range(runs):
            output = material.output(Random(number), number + 1)
            record = RunRecord(f"ior:{number}", "compute", material.STACK, f"run-{number}", 1_700_000_000, output)
            history.record_runs("shared", [record])


def same_runs(place: str | None, runs: int = RUNS) -> tuple[float, list[str]]:
    """Seconds in which 8 processes stored the same runs of one session; what is wrong afterwards."""
    began, codes = time.monotonic(), _in_processes(*[partial(_write_same, place, runs)] * WRITERS)
    took = time.monotonic() - began
    faults = [f"writer {n} ended with {code}" for n, code in enumerate(codes) if code]
    with History.open(place) as history:
        names = [run.name for run in history.runs("shared")]
        if sorted(names) != sorted(f"ior:{n}" for n in range(runs)) or len(history.received("shared")) != 2 * runs:
            faults.append(f"{len(names)} runs, {len(history.received('shared'))} results")
    return took, faults


def _in_processes(*works: Callable[[], object]) -> list[int | None]:
    """Exit codes of the works, each in a process."""
    made = [multiprocessing.get_context("fork").Process(target=work) for work in works]
    for one in made:
        one.start()
    for one in made:
        one.join()
    return [one.exitcode for one in made]


def concurrent_sessions(stack: str, var: Path) -> list[str]:
    """Start two nightly sessions at the same time; one must be refused. Returns what is wrong."""
    words = [str(IOWATCH), "run", "--suite", "tiny", "--stack", stack]
    environment = {**os.environ, "IOWATCH_VAR": str(var)}
    with History.open(str(var / "iowatch.db")) as history:
        before = len(history.sessions())
    both = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [one.communicate()[1] for one in both]
    codes = sorted(one.returncode for one in both)
    faults = [] if codes == [0, 3] else [f"they ended with {codes}: {errors}"]
    refused = next((text for one, text in zip(both, errors, strict=True) if one.returncode == 3), "")
    winner = next((one.pid for one in both if one.returncode == 0), 0)
    if f"process {winner}" not in refused or "Traceback" in "".join(errors):
        faults.append(f"the refused one says {refused!r}")
    with History.open(str(var / "iowatch.db")) as history:
        if len(history.sessions()) != before + 1:
            faults.append(f"{len(history.sessions()) - before} sessions were begun")
    return faults
