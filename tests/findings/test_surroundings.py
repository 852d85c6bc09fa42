"""What the runs on both sides of a change met that is not the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iowatch.findings.evidence import environment_differences

RECORD = Path(__file__).resolve().parents[1] / "benchmarks" / "data" / "benchio-record.json"
MACHINE = {
    "kernel": "5.14.0-427.el9",
    "lustre": "2.15.4",
    "mount": "lustre 10.0.0.1@o2ib:/scratch rw,flock",
    "striping": "stripe_count: 4 stripe_size: 1048576",
}


def told(before: dict[str, Any], after: dict[str, Any], **options: bool) -> dict[tuple[str, str], tuple[str, str]]:
    found = environment_differences("case", before, after, **options)
    return {(one.where, one.what): (one.before, one.after) for one in found}


def test_what_a_maintenance_changed_is_told_and_nothing_else() -> None:
    after = MACHINE | {"kernel": "5.14.0-503.el9", "striping": "stripe_count: 1 stripe_size: 1048576"}
    assert told({"machine": MACHINE}, {"machine": after}) == {
        ("compute node", "kernel"): ("5.14.0-427.el9", "5.14.0-503.el9"),
        ("compute node", "default striping"): (MACHINE["striping"], after["striping"]),
    }
    assert told({"machine": MACHINE}, {"machine": dict(MACHINE)}) == {}


def test_a_record_of_benchio_says_it_without_the_checks() -> None:
    """A captured record; what differs in it from night to night (directory, free bytes) is no difference."""
    record = json.loads(RECORD.read_text())
    before = {name: record[name] for name in ("kernel", "filesystem", "mpi", "libraries", "hints")}
    assert before["filesystem"]["type"]
    after = json.loads(json.dumps(before))
    after["filesystem"] |= {"directory": "/elsewhere", "free_bytes": 7}
    assert told(before, after) == {}
    after["filesystem"] |= {"directory_stripe_count": 1}
    before["filesystem"] |= {"directory_stripe_count": 4}
    assert told(before, after) == {("compute node", "default stripe count"): ("4", "1")}


def test_hints_in_force_are_told_by_case_and_one_that_vanished_is_absent() -> None:
    before = {"hints": {"source": "file handle", "effective": {"cb_nodes": "4", "romio_cb_write": "enable"}}}
    after = {"hints": {"source": "file handle", "effective": {"cb_nodes": "1"}}}
    assert told(before, after) == {
        ("MPI-IO hints, case", "cb_nodes"): ("4", "1"),
        ("MPI-IO hints, case", "romio_cb_write"): ("enable", "absent"),
    }


def test_another_library_than_the_stack_says_is_told_unless_the_stack_says_it() -> None:
    """A module of the same name that loads something else."""
    before, after = ({"libraries": {"hdf5": version, "netcdf4": "4.9.0"}} for version in ("1.10.8", "1.14.5"))
    assert told(before, after) == {("loaded", "hdf5"): ("1.10.8", "1.14.5")}
    assert told(before, after, programs=False) == {}


@pytest.mark.parametrize("other", [{}, {"machine": {}}, {"machine": None}, {"machine": {"kernel": "unknown"}}])
def test_what_one_side_did_not_record_is_no_difference(other: dict[str, Any]) -> None:
    assert told({"machine": MACHINE}, other) == {}
    assert told(other, {"machine": MACHINE}) == {}
