"""Times of single transfers: of fio, and of benchio's record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from tests.benchmarks.sealed import sealed

DATA = Path(__file__).parent / "data"
# Of fio 3.33 with 128 transfers per job, and of benchio on three nodes; see tests/data/PROVENANCE.md.
FIO = DATA / "fio-3.33-many-transfers.json"
RECORD = DATA / "benchio-record-nodes.json"
METRICS = ("transfer_latency_median", "transfer_latency_p99", "transfer_latency_max")


def latencies(tool: str, text: str, ranks: int) -> dict[str, tuple[tuple[float, ...], ...]]:
    """Samples of the three metrics, by operation; operations without any are left out."""
    output = parse_output(tool, text, RunContext(ranks=ranks))
    assert output.status == "ok", output.reason
    samples = {(result.operation, result.metric): result.samples for result in output.results}
    table: dict[str, tuple[tuple[float, ...], ...]] = {}
    for operation in ("write", "read"):
        if (operation, METRICS[0]) in samples:
            table[operation] = tuple(samples[operation, metric] for metric in METRICS)
    return table


def test_fio_gives_percentiles_of_its_transfers() -> None:
    """`clat_ns` of the output; the 99th percentile of the read is that of a bin."""
    found = latencies("fio", FIO.read_text(), 1)
    assert found["write"] == tuple((pytest.approx(ns * 1e-9),) for ns in (234496, 468992, 579710))
    assert found["read"] == tuple((pytest.approx(ns * 1e-9),) for ns in (432128, 552960, 835790))


def test_no_percentile_of_few_transfers() -> None:
    """64 transfers of each job: their 99th percentile would be the longest one."""
    assert latencies("fio", (DATA / "fio-3.33-direct.json").read_text(), 1) == {}


def test_fio_whose_longest_transfer_is_longer_than_its_job_is_damaged() -> None:
    text = FIO.read_text()
    assert text.count('"max" : 579710') == 1
    output = parse_output("fio", text.replace('"max" : 579710', '"max" : 57971000'), RunContext(ranks=1))
    assert output.status == "incomplete"
    assert "times of transfers of job 'write' contradict each other" in str(output.reason)


def record_with_transfers(count: int, median: float, p99: float, longest: float) -> dict[str, Any]:
    """The captured record with the same times of transfers in each repetition."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    times = {"count": count, "median_seconds": median, "p99_seconds": p99, "max_seconds": longest}
    for operation in record["operations"]:
        for repetition in operation["repetitions"]:
            repetition["transfers"] = dict(times)
    return record


def test_record_gives_a_sample_for_each_repetition() -> None:
    record = record_with_transfers(100, 1e-5, 2e-5, 3e-5)
    repetitions = len(record["operations"][0]["repetitions"])
    samples = ((1e-5,) * repetitions, (2e-5,) * repetitions, (3e-5,) * repetitions)
    assert latencies("benchio", sealed(record), 3) == {"write": samples, "read": samples}
    assert latencies("benchio", sealed(record_with_transfers(99, 1e-5, 2e-5, 3e-5)), 3) == {}
    # A record of an earlier release has none.
    assert latencies("benchio", RECORD.read_text(), 3) == {}


@pytest.mark.parametrize(
    ("median", "p99", "longest"),
    [
        pytest.param(3e-5, 2e-5, 3e-5, id="median above percentile"),
        pytest.param(1e-5, 4e-5, 3e-5, id="percentile above longest"),
        pytest.param(1e-5, 2e-5, 99.0, id="longer than the repetition"),
        pytest.param(-1e-5, 2e-5, 3e-5, id="negative"),
    ],
)
def test_times_that_contradict_each_other_are_reported(median: float, p99: float, longest: float) -> None:
    record = record_with_transfers(100, median, p99, longest)
    output = parse_output("benchio", sealed(record), RunContext(ranks=3))
    assert output.status == "incomplete"
    assert "times of transfers contradict each other" in str(output.reason)
