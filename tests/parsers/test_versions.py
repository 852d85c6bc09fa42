"""Older versions of IOR and mdtest, and our own benchio; outputs in tests/parsers/data.

They were made on one machine (2 ranks, Debian 12, Open MPI 4.1.4) with the version in their name; the
numbers below are read off the files by eye.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from iowatch.model import Output
from iowatch.parsers import parse, parse_file
from tests.parsers.corpus import DATA


def _samples(output: Output, operation: str, metric: str) -> tuple[float, ...]:
    return next(r.samples for r in output.results if (r.operation, r.metric) == (operation, metric))


def test_ior_3_0_default() -> None:
    output = parse_file("ior", DATA / "ior-3.0.1-posix.txt", rc=0, ranks=2)
    assert (output.version, output.status, output.reason) == ("3.0.1", "ok", None)
    assert _samples(output, "write", "bandwidth") == (113.22, 285.64, 400.34)
    assert _samples(output, "read", "bandwidth") == (11950.0, 27166.0, 330.98)
    assert output.results[0].case == {
        **{"api": "POSIX", "file": "shared", "collective": False, "reorder": "constant", "sync": True},
        **{"ranks": 2, "nodes": 1, "segments": 1, "transfer_bytes": 2**20, "block_bytes": 2**22},
        "total_bytes": 2**23,
    }


def test_ior_3_0_verbose_prints_lossy_sizes() -> None:
    output = parse_file("ior", DATA / "ior-3.0.1-mpiio-v.txt")
    assert output.status == "ok"
    case = output.results[0].case
    assert (case["api"], case["file"], case["collective"], case["segments"]) == (
        "MPIIO",
        "per-process",
        True,
        2,
    )
    assert (case["transfer_bytes"], case["block_bytes"], case["total_bytes"]) == (10**6, 2 * 10**6, 8 * 10**6)


@pytest.mark.parametrize("name", ["ior-3.2.1-posix.txt", "ior-3.2.1-json.txt"])
def test_ior_3_2_has_no_number_of_nodes(name: str) -> None:
    output = parse_file("ior", DATA / name)
    assert (output.version, output.status) == ("3.2.1", "ok")
    assert output.results[0].case["nodes"] == 1
    assert "rate" not in {result.metric for result in output.results}


def test_ior_4_flags_that_take_no_value() -> None:
    """The word after a flag is the next option, not its value; runs with and without are two cases."""
    output = parse_file("ior", DATA / "ior-4.0.0-hdf5-flags.txt", rc=0, ranks=2)
    assert (output.status, output.reason) == ("ok", None)
    assert _samples(output, "write", "bandwidth") == (2.37, 5.84)
    case = output.results[0].case
    assert (case["fill"], case["collective_metadata"], case["alignment_bytes"]) == (False, True, 2**20)
    output = parse_file("ior", DATA / "ior-4.0.0-mpiio-flags.txt", rc=0, ranks=2)
    assert (output.status, output.reason) == ("ok", None)
    assert _samples(output, "read", "bandwidth") == (18.84, 34.88)
    assert output.results[0].case["mode"] == "mpiio.useFileView"


def test_h5bench_with_alignment_is_another_case() -> None:
    path = DATA / "h5bench-1.6-aligned.txt"
    output = parse_file("h5bench", path, rc=0, ranks=2)
    assert (output.status, output.results[0].case["alignment_bytes"]) == ("ok", 4096)
    for lost in ("    align length = 4096\n", "Align settings: \n"):
        output = parse("h5bench", path.read_text().replace(lost, ""), rc=0, ranks=2)
        assert (output.status, output.results) == ("incomplete", ())


def test_mdtest_1_9() -> None:
    output = parse_file("mdtest", DATA / "mdtest-1.9.3.txt")
    assert (output.version, output.status) == ("1.9.3", "ok")
    assert _samples(output, "create", "rate") == (14629.048, 2001.174)
    assert output.facts["rate_summary"]["tree-remove"]["mean"] == 227.727
    assert output.results[0].case["directories"] == "separate"


def test_our_record_and_our_table_say_the_same() -> None:
    record = parse_file("benchio", DATA / "benchio-record.json", ranks=2)
    table = parse_file("benchio", DATA / "benchio-table.txt", ranks=2)
    assert record.status == table.status == "ok"
    for operation in ("write", "read"):
        exact = _samples(record, operation, "bandwidth")
        assert _samples(table, operation, "bandwidth") == tuple(round(value, 2) for value in exact)
    case = record.results[0].case
    assert {name: case[name] for name in ("pattern", "transfer_bytes", "segments", "sync", "cache")} == {
        **{"pattern": "interleaved", "transfer_bytes": 65536, "segments": 8},
        **{"sync": True, "cache": "drop"},
    }
    assert table.results[0].case.items() <= case.items()


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "bandwidth": (
        lambda r: r["operations"][0]["repetitions"][0].update(bandwidth_bytes_per_second=1e9),
        "contradict",
    ),
    "option": (lambda r: r["options"].update(api="hdf5"), "hash"),
    "ranks": (lambda r: r["geometry"].update(ranks=4), "contradict"),
    "lost repetition": (lambda r: r["operations"][0]["repetitions"].pop(), "1 of 2 repetitions"),
    "lost operation": (lambda r: r["operations"].pop(), "operations write instead of write, read"),
    "other schema": (lambda r: r.update(schema="benchio-record/9"), "benchio-record/1"),
    "lost key": (lambda r: r.pop("geometry"), "damaged"),
    "phase longer than the whole": (
        lambda r: r["operations"][0]["repetitions"][0]["phases"]["open"].update(max=9.5),
        "contradict",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_that_contradicts_itself_is_not_ok(name: str) -> None:
    change, reason = CHANGES[name]
    record = json.loads((DATA / "benchio-record.json").read_text())
    change(record)
    output = parse("benchio", json.dumps(record, ensure_ascii=False, indent=2) + "\n")
    assert output.status != "ok"
    assert reason in str(output.reason)


def test_a_record_of_a_failed_run_says_why() -> None:
    record = json.loads((DATA / "benchio-record.json").read_text())
    record["status"] = "failed"
    record["failure"] = {
        **{"message": "rank 1 on n1: writing /scratch/x", "rank": 1, "host": "n1", "operation": "writing"},
        **{"path": "/scratch/x", "text": "No space left on device"},
    }
    record["operations"] = []
    output = parse("benchio", json.dumps(record, indent=2) + "\n")
    assert output.status == "failed"
    assert "No space left on device" in str(output.reason)
    assert output.results == ()


def test_of_two_rows_of_mdtest_for_one_operation_none_is_believed() -> None:
    """A row of another process; which of the two is this run's, the output does not say."""
    lines = (DATA / "mdtest-1.9.3.txt").read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("File creation"))
    foreign = lines[at].replace("14629.048", "24629.048")
    assert foreign != lines[at]
    output = parse("mdtest", "".join([*lines[:at], foreign, *lines[at:]]))
    assert output.status == "incomplete"
    assert {"stat", "remove"} <= {result.operation for result in output.results}
    assert "create" not in {result.operation for result in output.results}


@pytest.mark.parametrize("tool", ["benchio", "ior", "mdtest", "h5bench"])
@pytest.mark.parametrize(
    "text", ["", "\n", "nothing that a benchmark prints\n", "{\n}\n", "[1, 2]\n", "\x00\xff"]
)
def test_what_is_no_output_at_all(tool: str, text: str) -> None:
    output = parse(tool, text)
    assert output.status == "incomplete"
    assert output.reason
    assert output.results == ()
