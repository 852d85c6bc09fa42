"""Environment diffs between the runs before and after a change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iowatch.findings.evidence import environment_differences
from iowatch.store import RunFacts

RECORD = Path(__file__).resolve().parents[1] / "benchmarks" / "data" / "benchio-record.json"
MACHINE = {
    "kernel": "5.14.0-427.el9",
    "lustre": "2.15.4",
    "mount": "lustre 10.0.0.1@o2ib:/scratch rw,flock",
    "striping": "stripe_count: 4 stripe_size: 1048576",
}


def differences(
    before: dict[str, Any], after: dict[str, Any], **options: bool
) -> dict[tuple[str, str], tuple[str, str]]:
    found = environment_differences("case", RunFacts.from_document(before), RunFacts.from_document(after), **options)
    return {(one.where, one.what): (one.before, one.after) for one in found}


def test_only_changed_machine_settings_are_reported() -> None:
    after = MACHINE | {"kernel": "5.14.0-503.el9", "striping": "stripe_count: 1 stripe_size: 1048576"}
    assert differences({"machine": MACHINE}, {"machine": after}) == {
        ("compute node", "kernel"): ("5.14.0-427.el9", "5.14.0-503.el9"),
        ("compute node", "default striping"): (MACHINE["striping"], after["striping"]),
    }
    assert differences({"machine": MACHINE}, {"machine": dict(MACHINE)}) == {}


def test_changed_mitigation_of_the_processor_is_reported_alone() -> None:
    before, after = (
        {"machine": MACHINE | {"vulnerabilities": f"meltdown: {state} | spectre_v2: Mitigation: Retpolines; STIBP"}}
        for state in ("Vulnerable", "Mitigation: PTI")
    )
    assert differences(before, after) == {("compute node, processor", "meltdown"): ("Vulnerable", "Mitigation: PTI")}
    # Runs of earlier releases did not record it.
    assert differences({"machine": MACHINE}, after) == {}


def test_environment_is_read_from_benchio_records() -> None:
    """A captured record; values that differ in every session (directory, free bytes) are no difference."""
    record = json.loads(RECORD.read_text())
    before = {name: record[name] for name in ("kernel", "filesystem", "mpi", "libraries", "hints")}
    assert before["filesystem"]["type"]
    after = json.loads(json.dumps(before))
    after["filesystem"] |= {"directory": "/elsewhere", "free_bytes": 7}
    assert differences(before, after) == {}
    after["filesystem"] |= {"directory_stripe_count": 1}
    before["filesystem"] |= {"directory_stripe_count": 4}
    assert differences(before, after) == {("compute node", "default stripe count"): ("4", "1")}


def test_effective_hints_are_compared_per_case() -> None:
    before = {"hints": {"source": "file handle", "effective": {"cb_nodes": "4", "romio_cb_write": "enable"}}}
    after = {"hints": {"source": "file handle", "effective": {"cb_nodes": "1"}}}
    assert differences(before, after) == {
        ("MPI-IO hints, case", "cb_nodes"): ("4", "1"),
        ("MPI-IO hints, case", "romio_cb_write"): ("enable", "none"),
    }


def test_loaded_library_difference_is_reported_unless_in_the_stack_diff() -> None:
    """A module of the same name that loads another version."""
    before, after = ({"libraries": {"hdf5": version, "netcdf4": "4.9.0"}} for version in ("1.10.8", "1.14.5"))
    assert differences(before, after) == {("loaded", "hdf5"): ("1.10.8", "1.14.5")}
    assert differences(before, after, programs=False) == {}


def test_replaced_program_of_equal_versions_is_reported() -> None:
    program = {"path": "/opt/ior/bin/ior", "sha256": "aa", "libraries": ["/usr/lib/libmpi.so.40.30.4"]}
    before, after = ({"program": {**program, "sha256": digest}, "tracing": "Darshan"} for digest in ("aa", "bb"))
    assert differences(before, after) == {("program", "SHA-256"): ("aa", "bb")}
    assert differences(before, {**before, "tracing": "none"}) == {("tracing", "by"): ("Darshan", "none")}


@pytest.mark.parametrize("other", [{}, {"machine": {}}, {"machine": None}, {"machine": {"kernel": "unknown"}}])
def test_values_missing_on_one_side_are_no_difference(other: dict[str, Any]) -> None:
    assert differences({"machine": MACHINE}, other) == {}
    assert differences(other, {"machine": MACHINE}) == {}
