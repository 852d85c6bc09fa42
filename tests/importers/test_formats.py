"""Tables of other systems, read by the maps of their import formats."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.benchmarks.tables import read_table
from iowatch.benchmarks.tables.maps import load_map, ready_maps
from iowatch.core import UsageError
from tests.benchmarks.tables import DATA, points, read
from tests.datasets import EDISON


def _epoch(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type]


def test_unknown_map_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Did you mean 'tokio'"):
        load_map("toki")


def test_ready_maps_are_maps() -> None:
    assert {"tokio", "reframe-perflog", "xdmod", "io500"} <= set(ready_maps())
    for name in ready_maps():
        assert load_map(name).source, f"{name}: where its format is documented"


@pytest.mark.slow
def test_year_of_edison_is_as_its_own_reader_read_it() -> None:
    """The digest is that of the reader for this format alone, which the map replaced (27c6b8e…), without reasons."""
    digest = hashlib.sha256()
    for run in read_table(EDISON, "tokio").runs:
        prefix, _, identity = run.identity.partition("\0")
        fingerprint = hashlib.sha256(f"{prefix}\0edison\0{identity}".encode()).hexdigest()
        output = run.output.to_json()
        del output["reason"]
        row = [run.name, run.partition, run.stack, fingerprint, run.started_at, run.wall_s, output, dict(run.facts)]
        digest.update(json.dumps(row, sort_keys=True).encode() + b"\n")
    assert digest.hexdigest() == "2fab938416e2f2bb65535dbb597563d96d25673e3061bb5c20bfb7496d55b11b"


def test_perflogs_of_reframe() -> None:
    """Two executions of a test with two parameters; values as the test printed them, 1024.25 MB/s are 976.8 MiB/s."""
    table = read_table(DATA / "reframe-4.10.4-perflog.log", "reframe-perflog")
    assert table.refused == []
    assert len(table.runs) == 4
    for run in table.runs:
        assert (run.output.tool, run.partition, run.stack) == ("ior_nightly", "default", "builtin")
        found = {result.operation: (result.metric, *result.samples) for result in run.output.results}
        mib = pytest.approx(1024.25e6 / 2**20)
        assert found == {"write": ("bandwidth", 512.5), "read": ("bandwidth", mib), "open_time": ("time", 2.5)}
        assert run.output.results[0].case["ranks"] == 1
    assert {run.output.results[0].case["api"] for run in table.runs} == {"POSIX", "MPIIO"}
    failed = read_table(DATA / "reframe-4.10.4-perflog-failed.log", "reframe-perflog")
    assert [run.output.status for run in failed.runs] == ["failed"] * 4


def test_values_of_a_reframe_test_outside_its_reference_count(tmp_path: Path) -> None:
    """The regression is in these rows."""
    text = (DATA / "reframe-4.10.4-perflog.log").read_text().replace("\npass|", "\nfail|")
    assert len(points(read(tmp_path, text, load_map("reframe-perflog")))) == 12


def test_result_of_io500() -> None:
    """Captured with 2 processes; the first write phases are invalid, because they took less than 300 s."""
    chosen = load_map("io500").with_zone("UTC", None)
    table = read_table(DATA / "io500-isc26-result.txt", chosen)
    assert (table.refused, table.skipped, len(table.runs)) == ([], 2, 13)
    ok = {(str(point[4]), point[6]) for point in points(table)}
    assert len(ok) == 8
    found = {
        (dict(point[4])["test"], dict(point[4])["operation"]): (point[0], point[5], *point[6])
        for point in points(table)
    }
    # [ior-easy-read] score = 11.694504 (GiB/s); [mdtest-hard-delete] score = 0.564084 (kIOPS)
    read_at, remove_at = _epoch(2026, 11, 23, 8, 32, 6), _epoch(2026, 11, 23, 8, 32, 10)
    assert found["ior-easy", "read"] == (read_at, "bandwidth", pytest.approx(11.694504 * 1024))
    assert found["mdtest-hard", "remove"] == (remove_at, "rate", pytest.approx(564.084))
    assert ("ior-easy", "write") not in found
    # t_end - t_start: [ior-easy-read] ended within a second, [mdtest-hard-delete] after 2 s; all phases together.
    assert [run.wall_s for run in table.runs if run.started_at == remove_at] == [2]
    assert [run.wall_s for run in table.runs if run.started_at == read_at] == [0, 0, 1]
    assert sum(run.wall_s or 0 for run in table.runs) == 9
    summary = read_table(DATA / "io500-isc26-result_summary.txt", load_map("io500-summary"), moment=datetime.now(UTC))
    assert {point[6] for point in points(summary)} == {point[6] for point in points(table)}


def test_phase_of_io500_without_a_score_is_a_failed_run(tmp_path: Path) -> None:
    """Left out, it would look as if nobody had wanted to run it."""
    text = (DATA / "io500-isc26-result.txt").read_text().replace("score           = 11.694504\n", "")
    table = read(tmp_path, text, load_map("io500").with_zone("UTC", None))
    assert (table.refused, len(table.runs)) == ([], 13)
    assert [run.output.status for run in table.runs if run.output.reason == "no value score"] == ["failed"]


@pytest.mark.parametrize("size", range(1100, 6959, 331))
def test_truncated_result_of_io500_has_no_wrong_number(tmp_path: Path, size: int) -> None:
    content = (DATA / "io500-isc26-result.txt").read_bytes()
    chosen = load_map("io500").with_zone("UTC", None)
    whole = points(read(tmp_path, content, chosen))
    assert points(read(tmp_path, content[:size], chosen)) <= whole


# As ExportBuilder.php writes charts: two charts in one file; no job ran on 3 May.
XDMOD = """title
"Avg: /scratch write rate: Per Node weighted by node-hour: by Resource"
parameters

start,end
2025-05-01,2025-05-03
---------
Day,"[main] Avg: /scratch write rate: Per Node weighted by node-hour (bytes/s)","[gpu] CPU Hours: Total"
2025-05-01,2097152.0000,5
2025-05-02,1048576.0000,6
2025-05-03,0,7
---------
title
"Avg: /scratch read rate: Per Node weighted by node-hour"
parameters

start,end
2025-05-01,2025-05-01
---------
Day,"Avg: /scratch read rate: Per Node weighted by node-hour (bytes/s)"
2025-05-01,3145728.0000
---------
"""


def test_charts_of_xdmod(tmp_path: Path) -> None:
    table = read(tmp_path, XDMOD, load_map("xdmod").with_zone("UTC", None))
    found = {(point[0], dict(point[4])["operation"], dict(point[4]).get("group"), *point[6]) for point in points(table)}
    first, second = _epoch(2025, 5, 1), _epoch(2025, 5, 2)
    assert found == {(first, "write", "main", 2.0), (second, "write", "main", 1.0), (first, "read", None, 3.0)}
    assert (table.refused, table.empty) == ([], 1)


# As AppKernelDb.php exports data sets.
APP_KERNEL = """title
"App Kernel Data"
parameters
"App Kernel = IOR","Resource = main","Metric = MPIIO Collective N-to-1 Write Aggregate Throughput",\
"Processing Units = 8"
start,end
2025-05-01,2025-05-02
---------
Date,Value,Control,Changed
"2025-05-01 04:00:00",287.5,0.1,no
"2025-05-02 04:00:00",290.25,0.2,no
---------
"""


def test_application_kernels_of_xdmod(tmp_path: Path) -> None:
    table = read(tmp_path, APP_KERNEL, load_map("xdmod-appkernels"))
    assert {(point[0], point[1], *point[6]) for point in points(table)} == {
        (_epoch(2025, 5, 1, 4), "main", 287.5),
        (_epoch(2025, 5, 2, 4), "main", 290.25),
    }
    expected = {"operation": "write", "api": "MPIIO", "file": "shared", "collective": True, "processing_units": 8}
    assert dict(next(iter(points(table)))[4]) == expected


@pytest.mark.parametrize(
    ("metric", "case"),
    [
        ("POSIX N-to-N Read", {"operation": "read", "api": "POSIX", "file": "per-process"}),
        ("HDF5 Independent N-to-1 Write", {"operation": "write", "api": "HDF5", "file": "shared", "collective": False}),
        (
            "Parallel NetCDF Collective N-to-1 Read",
            {"operation": "read", "api": "PNETCDF", "file": "shared", "collective": True},
        ),
    ],
)
def test_case_of_an_application_kernel_is_in_the_name_of_its_metric(
    tmp_path: Path, metric: str, case: dict[str, object]
) -> None:
    text = APP_KERNEL.replace("MPIIO Collective N-to-1 Write", metric)
    table = read(tmp_path, text, load_map("xdmod-appkernels"))
    assert {point[4] for point in points(table)} == {tuple(sorted({**case, "processing_units": 8}.items()))}
