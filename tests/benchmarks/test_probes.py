"""fio and hpcc: captured outputs (tests/data/PROVENANCE.md), with values read off by hand; what their jobs ask for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iowatch.benchmarks.fio import FIO
from iowatch.benchmarks.hpcc import HPCC
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import get_benchmark, parse_output, parse_output_file
from iowatch.core import InputError, Output
from iowatch.reference import has_peak

DATA = Path(__file__).parent / "data"
MIB = 2**20


def parse(name: str, *, ranks: int | None = None, stderr: str | None = None) -> Output:
    data = (DATA / name).read_bytes()
    return parse_output(name.partition("-")[0], data, RunContext(stderr=stderr, ranks=ranks))


@pytest.mark.parametrize(
    ("version", "cache", "write", "read"),
    [
        # bw_bytes of the two jobs.
        ("3.33-direct", "direct", 1813753081, 818400780),
        ("3.42-direct", "direct", 958698057, 276168164),
        ("3.16-buffered", "keep", 5162220307, 4473924266),  # on ramfs, which refuses O_DIRECT
    ],
)
def test_fio_gives_one_bandwidth_for_each_direction(version: str, cache: str, write: int, read: int) -> None:
    output = parse(f"fio-{version}.json")
    assert (output.status, output.version) == ("ok", version.partition("-")[0])
    case = {"api": "raw", "file": "serial", "ranks": 1, "transfer_bytes": MIB, "total_bytes": 64 * MIB, "cache": cache}
    found = [(one.operation, one.metric, one.samples, one.case) for one in output.results]
    assert found == [("write", "bandwidth", (write / MIB,), case), ("read", "bandwidth", (read / MIB,), case)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fio-3.33-no-space.json", "no space left on device"),
        ("fio-3.33-no-direct.json", "job 'write' ended with error 22"),
    ],
)
def test_failed_probe_gives_no_number(name: str, reason: str) -> None:
    output = parse(name)
    assert output.status != "ok"
    assert reason in str(output.reason)
    assert output.results == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('"bw_bytes" : 818', '"bw_bytes" : 918'), "rate and time of job 'read' contradict"),
        (('"rw" : "read"', '"rw" : "randread"'), "not a sequential read"),
        (('"end_fsync" : "1"', '"end_fsync" : "0"'), "has to sync"),
        (('"total_ios" : 64', '"total_ios" : 63'), "not the whole file"),
        (("fio-3.33", "fio-2.21"), "not a version of fio 3"),
    ],
)
def test_other_fio_job_is_refused(change: tuple[str, str], reason: str) -> None:
    text = (DATA / "fio-3.33-direct.json").read_text()
    assert change[0] in text
    output = parse_output("fio", text.replace(*change), RunContext())
    assert output.status != "ok"
    assert reason in str(output.reason)


def test_fio_messages_around_the_document_are_ignored() -> None:
    text = (DATA / "fio-3.33-direct.json").read_text()
    noted = "note: both iodepth >= 1 and synchronous I/O engine are selected\n" + text + "real 0.1\n"
    assert parse_output("fio", noted, RunContext()).results == parse("fio-3.33-direct.json").results
    assert parse_output("fio", text + text, RunContext()).status == "failed"


def test_fio_with_processes_of_another_mpi_is_failed() -> None:
    assert "4 ranks were requested" in str(parse("fio-3.33-direct.json", ranks=4).reason)


# Summary of each output: GFLOP/s, GB/s of 10^9 bytes, microseconds. The samples have the digits of the sections.
PRINTED = {
    "hpcc-1.5.0-openmpi.txt": ("1.5.0", 2, 333333, (1.05901, 2.18959, 74.8229, 0.353583, 0.246227, 0.257308, 6.6489)),
    # 1.4.2: as it prints.
    "hpcc-1.4.3-mpich.txt": ("1.4.2", 3, 29800, (2.36208, 1.31001, 88.6028, 383.285, 1.7472, 243.72, 0.762845)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_hpcc_gives_processor_memory_and_messages(name: str) -> None:
    version, ranks, elements, (hpl, dgemm, triad, latency, bandwidth, ring_latency, ring_bandwidth) = PRINTED[name]
    output = parse(name, ranks=ranks)
    assert (output.status, output.version) == ("ok", version)
    small, large = ({"api": "MPI", "ranks": ranks, "transfer_bytes": size} for size in (8, 2_000_000))
    wanted = {
        ("hpl", "flop_rate"): (hpl, {"ranks": ranks, "array_bytes": 8 * elements}),
        ("dgemm", "flop_rate"): (dgemm, {"ranks": ranks, "array_bytes": 8 * elements}),
        ("triad", "memory_bandwidth"): (triad * 1e9 / MIB, {"ranks": ranks, "array_bytes": 8 * elements}),
        ("ping-pong", "latency"): (latency * 1e-6, small),
        ("ping-pong", "network_bandwidth"): (bandwidth * 1e9 / MIB, large),
        ("random-ring", "latency"): (ring_latency * 1e-6, small),
        ("random-ring", "network_bandwidth"): (ring_bandwidth * 1e9 / MIB, large),
    }
    found = {(one.operation, one.metric): one for one in output.results}
    assert found.keys() == wanted.keys()
    for key, (value, case) in wanted.items():
        assert found[key].samples == pytest.approx([value], rel=2e-3), key  # latencies have 1 ns
        assert found[key].case == case


def test_one_rank_has_no_messages() -> None:
    output = parse("hpcc-1.5.0-one-rank.txt", ranks=1)
    wanted = (("hpl", "flop_rate"), ("dgemm", "flop_rate"), ("triad", "memory_bandwidth"))
    assert [(one.operation, one.metric, one.case["ranks"]) for one in output.results] == [(*one, 1) for one in wanted]
    assert output.status == "ok"
    assert HPCC.expects(HPCC.read_options({"ranks": 1})) == wanted


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (("CommWorldProcs=2", "CommWorldProcs=1"), "incomplete", "damaged"),
        (("StarSTREAM_Triad=74.8", "StarSTREAM_Triad=75.8"), "incomplete", "75.8229 in the summary"),
        (("HPL_Tflops=0.00105901", "HPL_Tflops=0.00106901"), "incomplete", "HPL_Tflops is 0.00106901 in the summary"),
        (("Success=1", "Success=0"), "failed", "one of its tests failed"),
        (("CommWorldProcs=2", "CommWorldProcs=4"), "incomplete", "contradict each other"),
        (("End of HPC Challenge tests.", ""), "incomplete", "missing: end"),
    ],
)
def test_contradictory_or_failed_hpcc_is_refused(change: tuple[str, str], status: str, reason: str) -> None:
    text = (DATA / "hpcc-1.5.0-openmpi.txt").read_text()
    assert change[0] in text
    output = parse_output("hpcc", text.replace(*change), RunContext())
    assert (output.status, reason in str(output.reason)) == (status, True), output.reason


# Printed in a section, and in the summary: 1.059 GFLOP/s of one process.
HPL_ROW = "WR11C2R4        1000    80     1     1"


def on_grid(rows: int, columns: int) -> str:
    """An output of two processes, with another grid of HPL in section and summary."""
    text = (DATA / "hpcc-1.5.0-openmpi.txt").read_text()
    assert HPL_ROW in text
    text = text.replace(HPL_ROW, f"WR11C2R4        1000    80 {rows:5} {columns:5}")
    return text.replace("HPL_nprow=1", f"HPL_nprow={rows}").replace("HPL_npcol=1", f"HPL_npcol={columns}")


def test_hpl_of_a_grid_of_processes_is_no_rate_of_one_process() -> None:
    """The other tests do not depend on HPL's grid."""
    output, of_one = parse_output("hpcc", on_grid(1, 2), RunContext()), parse("hpcc-1.5.0-openmpi.txt")
    assert (output.status, output.reason) == ("ok", None)
    assert output.results == tuple(result for result in of_one.results if result.operation != "hpl")
    assert output.facts["hpl"] == {"rows": 1, "columns": 2, "gflop_per_second": 1.059}
    assert "hpl" not in of_one.facts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (on_grid(1, 2).replace("HPL_npcol=2", "HPL_npcol=1"), "1 x 2 processes in its section, 1 x 1 in the summary"),
        (on_grid(2, 2), "2 x 2 processes in its section, 2 x 2 in the summary, of 2 processes in all"),
    ],
)
def test_contradictory_grid_of_hpl_is_reported(text: str, reason: str) -> None:
    output = parse_output("hpcc", text, RunContext())
    assert output.status == "incomplete"
    assert reason in str(output.reason)
    assert {result.operation for result in output.results} == {"dgemm", "triad", "ping-pong", "random-ring"}


@pytest.mark.parametrize(
    ("rate_of_other_size", "status"),
    # The summary has the fastest row: 1.05901 GFLOP/s.
    [("8.125e-01", "ok"), ("1.125e+00", "incomplete")],
)
def test_hpl_of_several_sizes_has_the_rate_of_the_summary(rate_of_other_size: str, status: str) -> None:
    text = (DATA / "hpcc-1.5.0-openmpi.txt").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith(HPL_ROW)]
    other_row = row.replace("1000    80", " 500   240").replace("1.059e+00", rate_of_other_size)
    output = parse_output("hpcc", text.replace(row, f"{row}\n\n{other_row}"), RunContext())
    assert output.status == status
    (rate,) = [result for result in output.results if result.operation == "hpl"] or [None]
    assert (rate is not None) == (status == "ok")
    assert rate is None or rate.samples == (1.059,)


def test_last_line_end_of_hpcc_may_be_missing() -> None:
    """Nothing is read after the line that ends the tests."""
    text = (DATA / "hpcc-1.5.0-openmpi.txt").read_text()
    assert parse_output("hpcc", text.rstrip(), RunContext()) == parse_output("hpcc", text, RunContext())
    end = text.index("End of HPC Challenge tests.")
    assert parse_output("hpcc", text[: end + 20], RunContext()).status == "incomplete"


def test_reason_names_the_field_of_hpcc_that_is_there_twice() -> None:
    line = "StarSTREAM_Triad=74.8229\n"
    text = (DATA / "hpcc-1.5.0-openmpi.txt").read_text()
    output = parse_output("hpcc", text.replace(line, 2 * line), RunContext())
    assert (output.status, output.results) == ("incomplete", ())
    assert "StarSTREAM_Triad" in str(output.reason)


def test_hpcc_without_its_input_file_is_failed(tmp_path: Path) -> None:
    """It then runs with sizes of its own and returns 0; the message is of hpcc 1.5.0."""
    message = ">>> cannot open file hpccinf.txt <<<\n"
    output = parse("hpcc-1.5.0-openmpi.txt", stderr=f"HPL WARNING from process # 0, on line 313:\n{message}")
    assert output.status == "failed"
    assert parse_output_file("hpcc", DATA / "hpcc-1.5.0-openmpi.txt", ranks=4).status == "failed"


def test_probes_are_not_compared_with_the_peak_of_a_file_system() -> None:
    assert has_peak("bandwidth")
    metrics = {metric for _, metric in HPCC.expects(HPCC.read_options({"ranks": 2}))}
    assert not any(map(has_peak, metrics))


def test_hpcc_input_has_the_order_of_the_memory_of_a_rank() -> None:
    """One process solves HPL, so that each has 2048² x 8 bytes (HPCC_LocalVectorSize of hpcc's io.c)."""
    options = HPCC.read_options({"memory": "32m", "ranks": 2})
    lines = HPCC.configuration(options)["hpccinf.txt"].splitlines()
    assert (lines[5], lines[10], lines[11], len(lines)) == ("2048", "1", "1", 36)


@pytest.mark.parametrize(("allowed", "direct"), [(0, "1"), (1, "0")])
def test_fio_is_buffered_only_where_o_direct_is_refused(tmp_path: Path, allowed: int, direct: str) -> None:
    (tmp_path / "dd").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexit {allowed}\n')
    (tmp_path / "dd").chmod(0o755)
    command = FIO.before(FIO.read_options({"transfer": "2m"}), f"{tmp_path}/a b")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, check=True)
    assert (tmp_path / "fio.direct").read_text() == f"direct={direct}\n"
    words = (tmp_path / "words").read_text()
    assert f"of={tmp_path}/a b/fio.probe bs=2097152" in words
    assert "oflag=direct" in words


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        ("fio", {"total": "10m", "transfer": "3m"}, "not a multiple"),
        ("hpcc", {"ranks": 2, "memory": "1k"}, "1m of at least 80000"),
    ],
)
def test_impossible_probe_is_refused(tool: str, options: dict[str, str | int], message: str) -> None:
    benchmark = get_benchmark(tool)
    with pytest.raises(InputError, match=message):
        benchmark.configuration(benchmark.read_options(options))
