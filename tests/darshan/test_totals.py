"""Totals and derived figures equal those that the tools of Darshan print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from iowatch.darshan import DarshanReader, Trace, read_trace
from tests.datasets import OUTSIDE, outside_cases, unpacked

LOGS = OUTSIDE / "data" / "darshan-logs"
CAPTURED = unpacked("captured") / "darshan"
# Printed by darshan-parser --total, --all and darshan-dxt-parser of darshan-util (main branch of April 2026, version
# 3.5.0), all with --show-incomplete; `sums` are sums over the printed records.
PRINTED: dict[str, Any] = json.loads(Path(__file__).with_name("parser_totals.json").read_text())
# Printed by the same darshan-dxt-parser for the captured logs that have a trace.
PRINTED_DXT: dict[str, Any] = json.loads(Path(__file__).with_name("parser_dxt.json").read_text())


def captured(kind: str) -> list[Path]:
    return sorted(p for p in CAPTURED.rglob("*.darshan") if p.name.startswith("0_") == (kind == "good"))


def all_counters(trace: Trace) -> dict[str, float]:
    return {name: value for counters in trace.modules.values() for name, value in counters.items()}


def printed_total(path: Path) -> dict[str, float]:
    lines = re.findall(r"^total_(\w+): (\S+)$", path.read_text(errors="replace"), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def check_totals(trace: Trace, expected: dict[str, float]) -> None:
    ours = all_counters(trace)
    assert expected.keys() <= ours.keys()
    # darshan-parser prints six decimals.
    differing = {n: (ours[n], v) for n, v in expected.items() if ours[n] != pytest.approx(v, abs=6e-7)}
    assert not differing


@pytest.mark.parametrize("name", outside_cases(PRINTED))
def test_totals_of_published_logs_match_darshan_parser(name: str, reader: DarshanReader) -> None:
    trace, expected = read_trace(LOGS / name, reader), PRINTED[name]
    check_totals(trace, expected["totals"])
    check_totals(trace, {n: v for n, v in expected["sums"].items() if "CHUNK" not in n})


@pytest.mark.parametrize("name", outside_cases(PRINTED))
def test_job_of_published_logs_matches_darshan_parser(name: str, reader: DarshanReader) -> None:
    job, expected = read_trace(LOGS / name, reader).job, PRINTED[name]["job"]
    for key in ("ranks", "exe", "uid", "jobid"):
        assert job[key] == expected[key]
    assert job["darshan_version"] == expected["lib_ver"]
    assert job["run_time_s"] == pytest.approx(expected["run_time_s"], abs=6e-5)


@pytest.mark.parametrize("name", outside_cases(PRINTED))
def test_bandwidth_and_file_counts_of_published_logs_match_darshan_parser(name: str, reader: DarshanReader) -> None:
    performance = read_trace(LOGS / name, reader).derived["performance"]
    for module, bandwidth in PRINTED[name]["perf"].items():
        assert performance[module]["bandwidth_mib_per_s"] == pytest.approx(bandwidth, abs=6e-7)
    for module, counts in PRINTED[name]["files"].items():
        ours = performance[module]["files"]
        assert ours["all"] == counts["total"]
        assert ours["read_write"] == counts["read_write"]
        assert ours["unique"] == counts["unique"]
        # The tool prints shared and partly shared files as one number.
        assert ours["shared"] + ours["partly_shared"] == counts["shared"]


@pytest.mark.parametrize("name", outside_cases(n for n in PRINTED if PRINTED[n]["dxt"]))
def test_accesses_of_published_logs_match_dxt_parser(name: str, reader: DarshanReader) -> None:
    modules = read_trace(LOGS / name, reader).modules
    for key, value in PRINTED[name]["dxt"].items():
        module, figure = key.split(".")
        assert modules[module][figure] == value


@pytest.mark.parametrize("name", PRINTED_DXT)
def test_accesses_of_captured_logs_match_dxt_parser(name: str, reader: DarshanReader) -> None:
    """Their DXT modules are of a version that PyDarshan 3.5.0 does not read."""
    modules = read_trace(next(CAPTURED.rglob(name)), reader).modules
    for key, value in PRINTED_DXT[name].items():
        module, figure = key.split(".")
        assert modules[module][figure] == value


def test_status_of_published_logs_is_correct(reader: DarshanReader, outside_data: Path) -> None:
    for name in PRINTED:
        trace = read_trace(outside_data / "data" / "darshan-logs" / name, reader)
        if name == "imbalanced-io.darshan":
            # darshan-parser: "The POSIX module contains incomplete data!"
            assert trace.status == "partial"
            assert list(trace.missing) == ["POSIX"]
        else:
            assert (trace.status, trace.reason) == ("ok", None)


@pytest.mark.parametrize("path", captured("good"), ids=lambda p: f"{p.parent.name}-{p.name[:12]}")
def test_totals_of_captured_logs_match_darshan_parser(path: Path, reader: DarshanReader) -> None:
    trace = read_trace(path, reader)
    assert trace.status == "ok"
    check_totals(trace, printed_total(path.with_name(path.name + ".total.txt")))


@pytest.mark.parametrize("path", captured("good"), ids=lambda p: f"{p.parent.name}-{p.name[:12]}")
def test_records_of_captured_logs_match_truth_file(path: Path, reader: DarshanReader) -> None:
    """truth.json has the counters of every record; totals are their sums, counters per file are equal."""
    trace = read_trace(path, reader)
    truth = json.loads(path.with_name("truth.json").read_text())
    log = next(log for log in truth["logs"] if log["file"] == path.name)
    assert trace.job["ranks"] == log["nprocs"]
    assert sorted(m for m in trace.modules if not m.startswith("DXT")) == log["modules"]
    by_path = {row["path"]: row["counters"] for row in trace.files}
    for module, files in log["records"].items():
        summed: dict[str, float] = {}
        for name, counters in files.items():
            for counter, value in counters.items():
                if counter == "rank_records":
                    continue
                summed[counter] = summed.get(counter, 0) + value
                if "_USE_" not in counter:
                    assert by_path[name].get(counter, 0) == value
        for counter, value in summed.items():
            assert trace.modules[module][counter] == value


def test_collective_writes_match_source_000(reader: DarshanReader) -> None:
    """Lawrence et al. 2017, section 5.3: 24 ranks make 24 collective writes with MPI-IO and with HDF5."""
    counts = {}
    for case in ("benchio_mpiio_ompi_np24", "benchio_hdf5_ompi_np24"):
        trace = read_trace(next((CAPTURED / "3.5.0" / case).glob("*.darshan")), reader)
        counts[case] = (trace.counter("MPIIO_COLL_WRITES"), trace.counter("MPIIO_INDEP_WRITES"))
    # 7 rather than the 6 of the paper: HDF5 1.10.8 (captured/README.md).
    assert counts == {"benchio_mpiio_ompi_np24": (24, 0), "benchio_hdf5_ompi_np24": (24, 7)}
