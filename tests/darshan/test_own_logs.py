"""Logs of a real runtime compared with the record of the traced program (tests/data/PROVENANCE.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from iowatch.darshan import DarshanReader, Trace, read_trace
from iowatch.darshan.summary import read_activity
from tests.datasets import DATA

LOGS = DATA / "darshan"


def log_and_record(name: str, reader: DarshanReader) -> tuple[Trace, Any]:
    trace = read_trace(LOGS / f"{name}.darshan", reader)
    assert (trace.status, trace.reason) == ("ok", None)
    return trace, json.loads((LOGS / f"{name}.json").read_text())


def sums(trace: Trace, file_name: str) -> Counter[str]:
    """Counters of all files whose name begins with `file_name`, added up; without those of Open MPI."""
    found: Counter[str] = Counter()
    for row in trace.files:
        path = Path(row["path"].partition(":")[0])  # an HDF5 data set is FILE:NAME
        if path.name.startswith(file_name) and path.suffix != ".sm" and ".locktest" not in path.suffixes:
            found.update({name: int(value) for name, value in row["counters"].items()})
    return found


def work(record: dict[str, Any], operation: str) -> tuple[int, int]:
    """Transfers and bytes of all ranks and repetitions of an operation."""
    (done,) = (o for o in record["operations"] if o["operation"] == operation)
    n = len(done["repetitions"])
    return n * record["geometry"]["transfers_per_rank"] * record["geometry"]["ranks"], n * done["bytes"]


def test_log_counts_every_operation_of_a_known_program(reader: DarshanReader) -> None:
    trace, counted = log_and_record("counted", reader)
    assert trace.job["ranks"] == counted["ranks"]
    own, shared = sums(trace, "own."), sums(trace, "shared")
    assert {name: own[name] for name in counted["own_files"]} == counted["own_files"]
    assert {name: shared[name] for name in counted["shared_file"]} == counted["shared_file"]


@pytest.mark.parametrize(
    ("name", "operation", "transfers", "size"),
    [
        ("posix", "write", "POSIX_WRITES", "POSIX_BYTES_WRITTEN"),
        ("posix", "read", "POSIX_READS", "POSIX_BYTES_READ"),
        ("mpiio", "write", "MPIIO_COLL_WRITES", "MPIIO_BYTES_WRITTEN"),
        ("mpiio", "read", "MPIIO_COLL_READS", "MPIIO_BYTES_READ"),
        ("mpiio_dxt", "write", "MPIIO_INDEP_WRITES", "MPIIO_BYTES_WRITTEN"),
        ("hdf5", "write", "H5D_WRITES", "H5D_BYTES_WRITTEN"),
    ],
)
def test_transfers_and_bytes_match_the_benchio_record(
    name: str, operation: str, transfers: str, size: str, reader: DarshanReader
) -> None:
    trace, record = log_and_record(name, reader)
    found = sums(trace, "data.")
    assert (found[transfers], found[size]) == work(record, operation)


def test_dxt_trace_has_every_access(reader: DarshanReader) -> None:
    trace, record = log_and_record("mpiio_dxt", reader)
    traced = trace.modules["DXT_MPIIO"]
    assert (traced["write_count"], traced["write_bytes"]) == work(record, "write")


def test_timeline_has_only_the_writes_of_each_rank(reader: DarshanReader) -> None:
    """benchio ran with --op write (command line in its record and in the log)."""
    found = reader.call(read_activity, LOGS / "mpiio_dxt.darshan")
    assert "--op write" in found["exe"]
    assert (found["source"], set(found["write"]), found["read"]) == ("DXT_POSIX", {"0", "1"}, {})
    ends = [time for spans in found["write"].values() for span in spans for time in span]
    assert 0 < min(ends) < max(ends) < found["run_time_s"]


def test_hdf5_writes_its_data_collectively(reader: DarshanReader) -> None:
    """One collective write per rank and repetition, as with MPI-IO (Lawrence et al. 2017, 5.3)."""
    trace, record = log_and_record("hdf5", reader)
    assert sums(trace, "data.")["MPIIO_COLL_WRITES"] == work(record, "write")[0]


def test_job_of_the_log_matches_the_record(reader: DarshanReader) -> None:
    for name in ("posix", "mpiio", "hdf5", "mpiio_dxt"):
        trace, record = log_and_record(name, reader)
        assert trace.job["ranks"] == record["geometry"]["ranks"]
        assert trace.job["start"][:16] == record["started"][:16]
        assert trace.job["exe"].split()[1:3] == ["--api", record["options"]["api"]]
