"""Older versions of IOR and mdtest, and benchio; outputs in tests/benchmarks/data.

They were made on one machine (2 ranks, Debian 12, Open MPI 4.1.4) with the version in their name; the
numbers below were read off the files by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from iowatch.benchmarks.h5bench_output import parse_amount
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output, parse_output_file
from iowatch.core import Output
from tests.benchmarks.corpus import DATA
from tests.benchmarks.sealed import sealed
from tests.datasets import unpacked


def _samples(output: Output, operation: str, metric: str) -> tuple[float, ...]:
    return next(r.samples for r in output.results if (r.operation, r.metric) == (operation, metric))


def test_ior_3_0_default_output_is_parsed() -> None:
    output = parse_output_file("ior", DATA / "ior-3.0.1-posix.txt", rc=0, ranks=2)
    assert (output.version, output.status, output.reason) == ("3.0.1", "ok", None)
    assert _samples(output, "write", "bandwidth") == (113.22, 285.64, 400.34)
    assert _samples(output, "read", "bandwidth") == (11950.0, 27166.0, 330.98)
    assert output.results[0].case == {
        **{"api": "POSIX", "file": "shared", "collective": False, "reorder": "constant", "sync": True},
        **{"ranks": 2, "nodes": 1, "segments": 1, "transfer_bytes": 2**20, "block_bytes": 2**22},
        "total_bytes": 2**23,
    }


def test_ior_3_0_verbose_prints_lossy_sizes() -> None:
    output = parse_output_file("ior", DATA / "ior-3.0.1-mpiio-v.txt")
    assert output.status == "ok"
    case = output.results[0].case
    assert (case["api"], case["file"], case["collective"], case["segments"]) == ("MPIIO", "per-process", True, 2)
    assert (case["transfer_bytes"], case["block_bytes"], case["total_bytes"]) == (10**6, 2 * 10**6, 8 * 10**6)


@pytest.mark.parametrize("name", ["ior-3.2.1-posix.txt", "ior-3.2.1-json.txt"])
def test_ior_3_2_without_number_of_nodes_is_parsed(name: str) -> None:
    output = parse_output_file("ior", DATA / name)
    assert (output.version, output.status) == ("3.2.1", "ok")
    assert output.results[0].case["nodes"] == 1
    assert "rate" not in {result.metric for result in output.results}


def test_ior_4_flags_without_value_are_parsed() -> None:
    """The word after a flag is the next option, not its value; runs with and without are two cases."""
    output = parse_output_file("ior", DATA / "ior-4.0.0-hdf5-flags.txt", rc=0, ranks=2)
    assert (output.status, output.reason) == ("ok", None)
    assert _samples(output, "write", "bandwidth") == (2.37, 5.84)
    case = output.results[0].case
    assert (case["fill"], case["collective_metadata"], case["alignment_bytes"]) == (False, True, 2**20)
    output = parse_output_file("ior", DATA / "ior-4.0.0-mpiio-flags.txt", rc=0, ranks=2)
    assert (output.status, output.reason) == ("ok", None)
    assert _samples(output, "read", "bandwidth") == (18.84, 34.88)
    assert output.results[0].case["mode"] == "mpiio.useFileView"


def test_h5bench_alignment_is_part_of_the_case() -> None:
    path = DATA / "h5bench-1.6-aligned.txt"
    output = parse_output_file("h5bench", path, rc=0, ranks=2, fresh=True)
    assert (output.status, output.results[0].case["alignment_bytes"]) == ("ok", 4096)
    for lost in ("    align length = 4096\n", "Align settings: \n"):
        text = path.read_text().replace(lost, "")
        output = parse_output("h5bench", text, RunContext(rc=0, ranks=2, fresh=True))
        assert (output.status, output.results) == ("incomplete", ())


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("512.000  B/s", 512),
        ("1.500 KB/s", 1536),
        ("8.000 MB", 8 * 2**20),
        ("1.250 GB/s", 1.25 * 2**30),
        ("2.000 TB/s", 2 * 2**40),
    ],
)
def test_h5bench_unit_prefixes_are_powers_of_1024(printed: str, expected: float) -> None:
    """`format_human_readable` in h5bench's `commons/h5bench_util.c` divides by 1024."""
    found = parse_amount(printed)
    assert found is not None
    assert found.value == expected


def test_h5bench_rates_are_stored_in_mib_per_second() -> None:
    output = parse_output_file("h5bench", DATA / "h5bench-1.6-aligned.txt", fresh=True)
    assert _samples(output, "write", "raw_bandwidth") == (pytest.approx(81.499),)
    assert _samples(output, "write", "observed_bandwidth") == (pytest.approx(20.668),)


def test_h5bench_rates_printed_in_gb_are_stored_in_mib_per_second() -> None:
    """The same program with 2^24 particles of 32 bytes per rank, 2 ranks and 2 steps: 2 GiB in 1.6 s and 2 s."""
    text = (DATA / "h5bench-1.6-aligned.txt").read_text()
    for old, new in (
        ("8192", str(2**24)),
        ("Total write size: 1.000 MB", "Total write size: 2.000 GB"),
        ("Raw write time: 0.012 s", "Raw write time: 1.600 s"),
        ("Observed completion time: 0.049 s", "Observed completion time: 2.001 s"),
        ("81.499 MB/s", "1.250 GB/s"),
        ("20.668 MB/s", "1.000 GB/s"),
    ):
        assert old in text
        text = text.replace(old, new)
    output = parse_output("h5bench", text, RunContext(rc=0, ranks=2))
    assert (output.status, output.reason) == ("ok", None)
    assert output.results[0].case["total_bytes"] == 2**31
    assert _samples(output, "write", "raw_bandwidth") == (1280,)
    assert _samples(output, "write", "observed_bandwidth") == (1024,)


def _h5bench_text(raw_s: str, raw_rate: str) -> str:
    text = (DATA / "h5bench-1.6-aligned.txt").read_text()
    return text.replace("Raw write time: 0.012 s", f"Raw write time: {raw_s} s").replace("81.499 MB/s", raw_rate)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    ("raw_s", "raw_rate"), [("0.012", "81.499 GB/s"), ("0.012", "81.499 KB/s"), ("0.000", "999.000 GB/s")]
)
def test_h5bench_rate_that_contradicts_its_time_is_refused(raw_s: str, raw_rate: str, fresh: bool) -> None:
    """1 MiB: the clock counts microseconds, so a time printed as 0.000 s permits at most 977 GB/s."""
    output = parse_output("h5bench", _h5bench_text(raw_s, raw_rate), RunContext(ranks=2, fresh=fresh))
    assert (output.status, output.results) == ("incomplete", ())


def test_h5bench_rate_that_its_time_does_not_confirm_is_only_read_from_a_fresh_output() -> None:
    """1 MiB in 0.0125 s is 80 MB/s, in 0.0115 s 87 MB/s: the rate could be wrong by 8 %."""
    text = _h5bench_text("0.012", "81.499 MB/s")
    output = parse_output("h5bench", text, RunContext(ranks=2))
    assert (output.status, output.results) == ("incomplete", ())
    assert "81.499 MB/s' is not confirmed: its time, 0.012 s, has too few digits" in str(output.reason)
    assert parse_output("h5bench", text, RunContext(ranks=2, fresh=True)).status == "ok"


def test_same_h5bench_program_twice_is_refused() -> None:
    text = (unpacked("captured") / "h5bench/1.6-675c86d/units_big_np2/01-write/stdout").read_text()
    once, twice = parse_output("h5bench", text, RunContext()), parse_output("h5bench", 2 * text, RunContext())
    assert (once.status, twice.status, twice.results) == ("ok", "failed", once.results)
    assert "program 2: a program with the same operation and parameters" in str(twice.reason)


@pytest.mark.parametrize(
    ("old", "new"),
    [("20010.475", "20910.475"), ("6802.110", "6302.110"), ("15530.326", "15530.426"), ("6172.508", "6177.508")],
)
def test_mdtest_statistics_of_three_values_confirm_each_other(old: str, new: str) -> None:
    text = (DATA / "mdtest-1.9.3-lanl.txt").read_text()
    assert old in text
    output = parse_output("mdtest", text.replace(old, new), RunContext())
    assert (output.status, {r.operation for r in output.results if r.operation == "create"}) == ("incomplete", set())


def test_ior_rates_are_omitted_if_their_times_have_too_few_digits() -> None:
    """IOR's JSON prints four decimals: 0.0006 s confirms a rate within 17 %. A session reads its own output."""
    path = DATA / "ior-4.0.0-mpich-labels.txt"
    data = unpacked("captured") / "ior" / "4.0.0" / "posix_json" / "stdout"
    for source, fresh, found in ((data, False, False), (data, True, True), (path, False, True)):
        output = parse_output_file("ior", source, fresh=fresh)
        assert output.status == "ok"
        assert ("rate" in {result.metric for result in output.results}) == found
        assert ("write rate" in output.facts.get("below_resolution", ())) != found


def test_mdtest_1_9_output_is_parsed() -> None:
    output = parse_output_file("mdtest", DATA / "mdtest-1.9.3.txt")
    assert (output.version, output.status) == ("1.9.3", "ok")
    assert _samples(output, "create", "rate") == (107064.089,)
    assert output.facts["rate_summary"]["tree-remove"]["mean"] == 84.407
    assert output.results[0].case["directories"] == "separate"


def test_mdtest_before_ior_prints_no_quotes_and_no_word_for_rates() -> None:
    """Version 1.9.4 counts a node too many (`count_tasks_per_node` leaves out the last rank), so it gives none."""
    output = parse_output_file("mdtest", DATA / "mdtest-1.9.3-lanl.txt", ranks=2)
    assert (output.version, output.status, output.reason) == ("1.9.3", "ok", None)
    assert _samples(output, "create", "rate") == (20010.475, 6802.110)
    assert output.results[0].case["nodes"] == 1
    output = parse_output_file("mdtest", DATA / "mdtest-1.9.4-rc1.txt", ranks=2)
    assert (output.version, output.status, output.reason) == ("1.9.4-rc1", "ok", None)
    assert _samples(output, "tree-remove", "rate") == (113.331,)
    assert output.results[0].case["directories"] == "separate"
    assert "nodes" not in output.results[0].case


def test_mdtest_without_directory_must_print_the_default_path() -> None:
    path = DATA / "mdtest-4.0.0-no-directory.txt"
    assert parse_output_file("mdtest", path, ranks=2).status == "ok"
    for lost in ("Path                : ./out\n", "./out"):
        output = parse_output("mdtest", path.read_text().replace(lost, ""), RunContext(ranks=2))
        assert (output.status, output.results) == ("incomplete", ())
        assert "names no directory (-d)" in str(output.reason)


@pytest.mark.parametrize("tabs", [lambda text: text.expandtabs(), lambda text: text.replace("\t", "  ")])
@pytest.mark.parametrize("name", ["ior-3.0.1-posix.txt", "ior-3.0.1-mpiio-v.txt"])
def test_ior_3_0_with_blanks_for_tabs_is_parsed(name: str, tabs: Callable[[str], str]) -> None:
    text = (DATA / name).read_text()
    assert parse_output("ior", tabs(text), RunContext()) == parse_output("ior", text, RunContext())


def test_mdtest_command_line_sizes_may_have_a_unit() -> None:
    text = (DATA / "mdtest-1.9.3.txt").read_text().replace('"-d"', '"-w" "4k" "-e" "1m" "-d"')
    output = parse_output("mdtest", text, RunContext())
    assert (output.status, output.reason) == ("ok", None)
    case = output.results[0].case
    assert (case["write_bytes"], case["read_bytes"]) == (4096, 2**20)


@pytest.mark.parametrize(("unit", "kept"), [("", (2732.045, 2118.309)), (" (in ms/op)", None)])
def test_mdtest_times_in_milliseconds_are_not_stored_as_seconds(unit: str, kept: tuple[float, float] | None) -> None:
    """Later versions print either seconds per phase, or milliseconds per operation."""
    text = (DATA / "mdtest-4.0.0-no-directory.txt").read_text().replace("SUMMARY rate:", f"SUMMARY time{unit}:")
    output = parse_output("mdtest", text, RunContext())
    assert output.status == "ok"
    found = {result.operation: result.samples for result in output.results if result.metric == "time"}
    assert found.get("create") == kept
    assert output.facts["time_summary"]["create"]["max"] == 2732.045


def test_ior_csv_gives_bandwidths_rates_and_sizes() -> None:
    """By hand: 2 ranks, 16 segments of 4 MiB, transfers of 1 MiB: 128 MiB in 0.1 s, 128 transfers in 0.08 s."""
    header = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter"
    numbers = "1280.0000,1600.0000,0.0010,4096.0000,1024.0000,0.0100,0.0800,0.0100,0.1000,2,"
    rows = [f"{operation},{numbers}{i}" for i in (0, 1) for operation in ("write", "read")]
    output = parse_output("ior", "\n".join([header, *rows]) + "\n", RunContext(rc=0, ranks=2))
    assert (output.status, output.reason) == ("ok", None)
    assert _samples(output, "write", "bandwidth") == (1280.0, 1280.0)
    assert _samples(output, "read", "rate") == (1600.0, 1600.0)
    assert output.results[0].case == {"ranks": 2, "transfer_bytes": 2**20, "block_bytes": 4 * 2**20}


def test_benchio_record_and_table_give_the_same_results() -> None:
    record = parse_output_file("benchio", DATA / "benchio-record.json", ranks=2)
    table = parse_output_file("benchio", DATA / "benchio-table.txt", ranks=2)
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
CONTRADICTIONS: dict[str, tuple[Change, str]] = {
    "bandwidth": (lambda r: r["operations"][0]["repetitions"][0].update(bandwidth_bytes_per_second=1e9), "contradict"),
    "ranks": (lambda r: r["geometry"].update(ranks=4), "contradict"),
    "missing repetition": (lambda r: r["operations"][0]["repetitions"].pop(), "1 of 2 repetitions"),
    "missing operation": (lambda r: r["operations"].pop(), "operations write instead of write, read"),
    "other schema": (lambda r: r.update(schema="benchio-record/9"), "benchio-record/3"),
    "missing key": (lambda r: r.pop("geometry"), "damaged"),
    "phase longer than the whole": (
        lambda r: r["operations"][0]["repetitions"][0]["phases"]["open"].update(max=9.5),
        "contradict",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_inconsistent_record_is_not_ok(name: str) -> None:
    change, reason = CONTRADICTIONS[name]
    record = json.loads((DATA / "benchio-record.json").read_text())
    change(record)
    output = parse_output("benchio", sealed(record), RunContext())
    assert output.status != "ok"
    assert reason in str(output.reason)


DAMAGE = {
    "one digit": ('"bytes": 1048576', '"bytes": 1048577', "SHA-256"),
    "an option": ('"api": "posix"', '"api": "hdf5"', "SHA-256"),
    "a blank": ('"status": "ok"', '"status":  "ok"', "SHA-256"),
    "the count": ('"repetitions": 4', '"repetitions": 5', "4 of 5 repetitions"),
    "the digest": ('"sha256": "', '"sha256": "0', "SHA-256"),
    "the name of the digest": ('"sha256"', '"sha1"', "damaged"),
    "the oldest form": ("benchio-record/2", "benchio-record/1", "benchio-record/3"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_modified_record_is_incomplete(name: str) -> None:
    before, after, reason = DAMAGE[name]
    text = (DATA / "benchio-record.json").read_text()
    assert before in text
    output = parse_output("benchio", text.replace(before, after, 1), RunContext())
    assert (output.status, output.results) == ("incomplete", ())
    assert reason in str(output.reason)


def test_record_with_unicode_names_is_ok() -> None:
    """U+0085 and U+00A0 are blanks to Python, and their bytes are blanks in Latin-1."""
    record = json.loads((DATA / "benchio-record.json").read_text())
    record["options"]["dir"] = "/scratch/Größe 日本 \x85\xa0"
    output = parse_output("benchio", sealed(record), RunContext())
    assert (output.status, output.reason) == ("ok", None)


def test_record_with_a_missing_line_yields_no_results() -> None:
    """Every line, also where the rest is valid JSON."""
    lines = (DATA / "benchio-record.json").read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        output = parse_output("benchio", "".join(lines[:i] + lines[i + 1 :]), RunContext())
        assert output.status != "ok", f"without line {i + 1}: {lines[i]}"
        assert output.results == (), f"without line {i + 1}: {lines[i]}"


def test_record_of_a_failed_run_gives_the_reason() -> None:
    record = json.loads((DATA / "benchio-record.json").read_text())
    record["status"] = "failed"
    record["failure"] = {
        **{"message": "rank 1 on n1: writing /scratch/x", "rank": 1, "host": "n1", "operation": "writing"},
        **{"path": "/scratch/x", "text": "No space left on device"},
    }
    record["operations"] = []
    output = parse_output("benchio", sealed(record), RunContext())
    assert output.status == "failed"
    assert "No space left on device" in str(output.reason)
    assert output.results == ()


def test_mdtest_operation_with_two_rows_is_rejected() -> None:
    """One row is of another process; the output does not show which of the two belongs to this run."""
    lines = (DATA / "mdtest-1.9.3.txt").read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("File creation"))
    foreign = lines[at].replace("107064.089", "207064.089")
    assert foreign != lines[at]
    output = parse_output("mdtest", "".join([*lines[:at], foreign, *lines[at:]]), RunContext())
    assert output.status == "incomplete"
    assert {"stat", "remove"} <= {result.operation for result in output.results}
    assert "create" not in {result.operation for result in output.results}


@pytest.mark.parametrize("tool", ["benchio", "ior", "mdtest", "h5bench"])
@pytest.mark.parametrize("text", ["", "\n", "nothing that a benchmark prints\n", "{\n}\n", "[1, 2]\n", "\x00\xff"])
def test_text_without_output_is_incomplete(tool: str, text: str) -> None:
    output = parse_output(tool, text, RunContext())
    assert output.status == "incomplete"
    assert output.reason
    assert output.results == ()
