"""The counters in the job of a run."""

from __future__ import annotations

from pathlib import Path

from iowatch.checks import JobScript, RunOrder
from iowatch.checks.job import compose_job
from iowatch.darshan import DarshanReader
from iowatch.experiments.gate.extension import add_operation_counts
from tests.builders import build_checked_run, build_output
from tests.darshan.test_use import BUSY, MakeLog


def test_counter_starts_the_program_under_its_counters() -> None:
    order = RunOrder(session="s1", extensions={"counter": {"counter": "valgrind"}})
    script = compose_job(build_checked_run(order=order), JobScript())
    assert list(script.command[:3]) == ["sh", "profile.sh", "ior"]
    assert "valgrind" in script.files["profile.sh"]


def test_counted_run_has_the_calls_of_its_log(make_log: MakeLog, reader: DarshanReader, tmp_path: Path) -> None:
    """Those of all files together, without the system calls, which strace counts; none of a damaged log or without."""
    counted = build_output(facts={"counts": {"calls": {"close": 1}, "operations": None}})
    log = make_log(posix=[("/a", -1, BUSY)], mpiio=[(one, -1, {"MPIIO_COLL_WRITES": 24}) for one in ("/a", "/b")])
    assert add_operation_counts(counted, [log], reader).facts["counts"] == {
        "calls": {"close": 1}, "operations": {"MPIIO_COLL_WRITES": 48}
    }  # fmt: skip
    damaged = tmp_path / "damaged.darshan"
    damaged.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    assert add_operation_counts(counted, [damaged], reader) == counted
    assert add_operation_counts(counted, []) == counted
