"""Times of nodes in benchio's record: read, checked against the hosts, and reduced to what a run keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output, parse_output_file
from iowatch.core import NODE_TIMES_FACT, reduce_node_times
from tests.benchmarks.sealed import sealed
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
# Of the real program on three nodes; see tests/data/PROVENANCE.md.
RECORD = DATA / "benchio-record-nodes.json"
SCHEMA = ROOT / "benchmarks" / "benchio" / "schema" / "record.schema.json"


def test_times_of_nodes_are_a_fact_of_the_run() -> None:
    record = json.loads(RECORD.read_text())
    output = parse_output_file("benchio", RECORD, ranks=3)
    assert output.status == "ok"
    times = output.facts[NODE_TIMES_FACT]
    assert set(times) == {"write", "read"}
    assert times["write"]["names"] == ("n1", "n2", "n3")
    assert times["write"]["sizes"] == (2**21, 2**21, 2**21)
    # 64 x 64 x 64 doubles of one rank; times are those of the record with four digits.
    recorded = [repetition["nodes"]["own_seconds"][1] for repetition in record["operations"][0]["repetitions"]]
    assert times["write"]["seconds"][1] == pytest.approx(recorded, rel=1e-3)
    assert times["write"]["quartiles"] == ()


def test_record_of_the_program_fits_the_schema() -> None:
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(RECORD.read_text()))


def test_record_without_times_of_nodes_is_read() -> None:
    """Stored outputs of sites are of version 2."""
    output = parse_output_file("benchio", DATA / "benchio-record.json", ranks=2)
    assert output.status == "ok"
    assert NODE_TIMES_FACT not in output.facts


Change = Callable[[dict[str, Any]], object]
CONTRADICTIONS: dict[str, Change] = {
    "bytes of a node": lambda operation: operation["node_bytes"].__setitem__(0, 1),
    "number of nodes": lambda operation: operation["node_bytes"].append(0),
    "number of times": lambda operation: operation["repetitions"][2]["nodes"]["seconds"].pop(),
    "number of own times": lambda operation: operation["repetitions"][2]["nodes"]["own_seconds"].pop(),
    "longer than all": lambda operation: operation["repetitions"][0]["nodes"]["seconds"].__setitem__(2, 99.0),
    "own time longer than all": lambda operation: operation["repetitions"][0]["nodes"]["own_seconds"].__setitem__(2, 9),
    "no member": lambda operation: operation["repetitions"][0].pop("nodes"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_times_that_contradict_the_record_are_reported(name: str) -> None:
    record = json.loads(RECORD.read_text())
    CONTRADICTIONS[name](record["operations"][0])
    output = parse_output("benchio", sealed(record), RunContext(ranks=3))
    assert output.status == "incomplete"
    assert "write" not in output.facts.get(NODE_TIMES_FACT, {})


def test_collective_run_has_no_times_of_nodes() -> None:
    record = json.loads(RECORD.read_text())
    for operation in record["operations"]:
        for repetition in operation["repetitions"]:
            repetition["nodes"]["own_seconds"] = None
    output = parse_output("benchio", sealed(record), RunContext(ranks=3))
    assert output.status == "ok"
    assert NODE_TIMES_FACT not in output.facts


def test_of_many_nodes_the_slowest_are_kept() -> None:
    """A thousand nodes whose times are 1, 2, … 1,000 s in a hundred repetitions."""
    names = [f"n{number}" for number in range(1, 1_001)]
    times = reduce_node_times(names, [8] * 1_000, [list(range(1, 1_001))] * 100)
    assert times is not None
    assert (times.nodes, times.repetitions) == (1_000, 100)
    assert times.names == tuple(names[-32:])
    assert times.seconds[-1] == (1000.0,) * 16
    # Linear interpolation between the 1,000 values, four digits.
    assert {(row.lower, row.median, row.upper) for row in times.quartiles} == {(250.8, 500.5, 750.2)}
    assert len(json.dumps(times.to_json())) < 10_000


def test_all_of_64_nodes_are_kept_in_bounds() -> None:
    names = [f"long-name-of-a-node-{number}" for number in range(64)]
    times = reduce_node_times(names, [2**30] * 64, [[1.2345678] * 64] * 1_000)
    assert times is not None
    assert times.names == tuple(names)
    assert len(json.dumps(times.to_json())) < 20_000


@pytest.mark.parametrize(
    ("names", "repetitions"),
    [(["n1"], [[1.0]]), (["n1", "n1"], [[1.0, 1.0]]), (["n1", "n2"], []), (["n1", "n2"], [[1.0, 0.0]])],
    ids=["one node", "one name", "no repetition", "no time"],
)
def test_times_that_tell_nothing_are_not_kept(names: list[str], repetitions: list[list[float]]) -> None:
    assert reduce_node_times(names, [1] * len(names), repetitions) is None
