"""Darshan logs before and after a change in `findings show`. Logs: tests/darshan/conftest.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from iowatch.core import artefacts
from iowatch.findings import Finding, find_log_differences, update_findings
from iowatch.store import Artefact, History
from tests.builders import build_result, build_run, build_session, store_session
from tests.darshan.conftest import LogSpec, build

START, DAY_S, STEP, SESSIONS = 1_760_000_000, 86_400, 12, 20


def log(place: Path, number: int, mpiio: Mapping[str, float]) -> Artefact:
    path = place / f"{number}.darshan"
    # Reads differ between sessions, independent of the change.
    path.write_bytes(
        build(LogSpec(mpiio=[("/lus/a", -1, mpiio)], posix=[("/lus/a", -1, {"POSIX_READS": 100 * (1 + number % 3)})]))
    )
    return Artefact("darshan", "trace.darshan", *astuple(artefacts.store_artefact(path)))


@pytest.fixture
def found(history: History, tmp_path: Path, var: Path) -> Finding:
    """Half the bandwidth from the thirteenth session on; writes are independent since then."""
    for number in range(SESSIONS):
        begin, after = START + number * DAY_S, number >= STEP
        value = (500.0 if after else 1000.0) + number % 3
        case = {"api": "MPIIO", "file": "shared", "ranks": 4}
        kept = log(tmp_path, number, {"MPIIO_INDEP_WRITES" if after else "MPIIO_COLL_WRITES": 24})
        run = build_run(build_result(value, case=case), name="ior:a", stack="old", started_at=begin, artefacts=(kept,))
        store_session(history, build_session(f"n{number}", started_at=begin), [run], duration_s=600)
    (finding,) = update_findings(history, "local", datetime.fromtimestamp(START + (SESSIONS + 1) * DAY_S, UTC))
    return finding


def test_log_differences_are_reported(found: Finding, history: History) -> None:
    logs = find_log_differences(history, found)
    assert logs is not None
    assert logs.logs == (3, 3)
    assert [(change.name, change.left, change.right) for change in logs.changes] == [
        ("MPIIO_COLL_WRITES", 24, 0),
        ("MPIIO_INDEP_WRITES", 0, 24),
        ("collective_write_share", 1.0, 0.0),
    ]


def test_findings_show_has_log_differences(found: Finding, cli: Callable[..., CliResult]) -> None:
    shown = cli("findings", "show", found.id).stdout
    assert "How the I/O was done: ior write MPI-IO shared file, 3 logs before and 3 after" in shown
    assert "  collective writes: 24 -> 0 (none after)" in shown
    document = json.loads(cli("findings", "show", found.id, "--json").stdout)
    assert document["darshan"]["changes"][0]["name"] == "MPIIO_COLL_WRITES"


def test_missing_logs_give_no_log_differences(
    found: Finding, history: History, cli: Callable[..., CliResult], var: Path
) -> None:
    for path in (var / "artefacts").glob("??/*"):
        path.unlink()
    assert find_log_differences(history, found) is None
    assert "How the I/O was done" not in cli("findings", "show", found.id).stdout
    assert json.loads(cli("findings", "show", found.id, "--json").stdout)["darshan"] is None
