"""Tables of other systems, read by the maps of their import formats."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.benchmarks.tables import read_table
from iowatch.benchmarks.tables.maps import load_map, ready_maps
from iowatch.core import InputError, UsageError
from tests.benchmarks.tables import DATA, points, read
from tests.datasets import EDISON


def _epoch(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type]


def test_unknown_map_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Did you mean 'tokio'"):
        load_map("toki")


def test_ready_maps_are_maps() -> None:
    assert {"tokio", "reframe-perflog", "reframe-3-perflog", "xdmod", "io500"} <= set(ready_maps())
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


# As ReFrame 4.0 to 4.2 write by default (reframe/core/settings.py of 4.0.0 and 4.2.0): commas, local times.
REFRAME_4_0 = """job_completion_time,version,display_name,system,partition,environ,jobid,result,\
write_value,write_unit,write_ref,write_lower,write_upper
2022-10-18T21:41:25,4.0.0,ior %api=POSIX,main,compute,gnu,81351,pass,2423.6,MiB/s,2520,-0.05,0.05
2022-10-19T21:41:31,4.0.0,ior %api=POSIX,main,compute,gnu,81377,fail,2361.4,MiB/s,2520,-0.05,0.05
2022-10-20T21:41:31,4.0.0,ior %api=POSIX,main,compute,gnu,81390,fail,None,MiB/s,2520,-0.05,0.05
"""


def test_perflogs_of_reframe_4_0(tmp_path: Path) -> None:
    """Values as printed; the third execution failed."""
    table = read(tmp_path, REFRAME_4_0, load_map("reframe-perflog").with_zone("Europe/Berlin", None))
    assert table.refused == []
    found = {(point[0], dict(point[4])["api"], *point[6]) for point in points(table)}
    # Local time is two hours ahead of UTC in October.
    assert found == {
        (_epoch(2022, 10, 18, 19, 41, 25), "POSIX", 2423.6),
        (_epoch(2022, 10, 19, 19, 41, 31), "POSIX", 2361.4),
    }
    assert {(run.output.tool, run.partition, run.stack) for run in table.runs} == {("ior", "compute", "gnu")}
    assert [run.output.status for run in table.runs] == ["ok", "ok", "failed"]


def test_local_times_of_reframe_need_a_zone(tmp_path: Path) -> None:
    table = read(tmp_path, REFRAME_4_0, load_map("reframe-perflog"))
    assert (len(table.runs), len(table.refused)) == (0, 3)
    assert "give it with --zone" in table.refused[0].reason


@pytest.mark.parametrize("separator", [",", "|", "\t"])
def test_perflogs_of_reframe_in_formats_of_sites(tmp_path: Path, separator: str) -> None:
    """The header follows from `format`: here with `%(check_system)s:%(check_partition)s`, and without a unique name."""
    header = ("result", "job_completion_time", "system:partition", "short_name", "environ", "num_tasks")
    row = ("pass", "2025-03-01T02:00:00+01:00", "main:gpu", "ior_8273bc19", "cray", "64")
    lines = [separator.join((*header, "write_value", "write_unit")), separator.join((*row, "512.5", "MiB/s"))]
    table = read(tmp_path, "".join(f"{line}\n" for line in lines), "reframe-perflog")
    assert table.refused == []
    (run,) = table.runs
    assert (run.output.tool, run.partition, run.stack) == ("ior_8273bc19", "gpu", "cray")
    assert (run.started_at, run.output.results[0].samples) == (_epoch(2025, 3, 1, 1), (512.5,))
    assert run.output.results[0].case["ranks"] == 64


def test_perflogs_of_reframe_with_name_value_and_unit_in_one_column(tmp_path: Path) -> None:
    """`format_perfvars` with `%(check_perf_var)s=%(check_perf_value)s %(check_perf_unit)s`; the second test failed."""
    lines = (
        "job_completion_time\tsystem:partition\tshort_name\twrite_var=write_value write_unit\t",
        "2025-03-01T02:00:00+01:00\tmain:gpu\tior_8273bc19\twrite=512.5 MiB/s\t",
        "2025-03-02T02:00:00+01:00\tmain:gpu\tior_8273bc19\twrite=None MiB/s\t",
        "2025-03-03T02:00:00+01:00\tmain:gpu\tior_8273bc19\twrite=51\t",
    )
    table = read(tmp_path, "".join(f"{line}\n" for line in lines), "reframe-perflog")
    assert [line.line for line in table.refused] == [4]
    assert [run.output.status for run in table.runs] == ["ok", "failed"]
    (result,) = table.runs[0].output.results
    assert (result.operation, result.metric, result.samples) == ("write", "bandwidth", (512.5,))


def test_perflogs_of_reframe_with_the_text_of_info(tmp_path: Path) -> None:
    """Partition and stack are in `%(check_info)s`."""
    text = "job_completion_time_unix|info|write_value|write_unit\n1740790800.5|ior %api=MPIIO /6904380d "
    text += "@main:gpu+cray|512.5|MiB/s\n"
    table = read(tmp_path, text, "reframe-perflog")
    assert table.refused == []
    (run,) = table.runs
    assert (run.output.tool, run.partition, run.stack) == ("ior", "gpu", "cray")
    assert (run.started_at, run.output.results[0].case["api"]) == (1740790800, "MPIIO")


def test_partition_and_stack_of_the_options_count_where_a_perflog_has_none(tmp_path: Path) -> None:
    path = tmp_path / "ior.log"
    path.write_text("job_completion_time_unix|name|write_value|write_unit\n1740790800|ior|512.5|MiB/s\n")
    (run,) = read_table(path, "reframe-perflog", partition="compute", stack="gnu").runs
    assert (run.partition, run.stack) == ("compute", "gnu")


# Two lines as in docs/listings/perflogs.txt of ReFrame 3.12.0, the third as in docs/tutorial_basics.rst of 3.5.0, the
# fourth with the number of tasks; then one of an unknown unit, and one that is cut off.
REFRAME_3 = """2022-01-19T17:17:15|reframe 3.10.0|ior %api=POSIX @main:compute+gnu|jobid=345|write=24672.4|\
ref=25200 (l=-0.05, u=0.05)|MB/s
2022-01-19T17:17:15|reframe 3.10.0|ior %api=POSIX @main:compute+gnu|jobid=345|read=16834.0|\
ref=16800 (l=-0.05, u=0.05)|MB/s
2020-06-24T00:27:06|reframe 3.1-dev0 (rev: 9d92d0ec)|ior_POSIX on main:compute using gnu|jobid=58384|write=24762.2|\
ref=25200 (l=-0.05, u=0.05)|MB/s
2020-06-25T00:27:06|reframe 3.2.0|ior_POSIX on main:compute using gnu|jobid=2679|num_tasks=8|write=24762.2|\
ref=None (l=None, u=None)|MB/s
2020-06-26T00:27:06|reframe 3.2.0|ior_POSIX on main:compute using gnu|jobid=2680|write=24762.2|\
ref=0 (l=None, u=None)|None
2020-06-27T00:27:06|reframe 3.2.0|ior_POSIX on main:compute using gnu|jobid=2681|write=2476
"""


def test_perflogs_of_reframe_3(tmp_path: Path) -> None:
    """One line per variable; the two lines of one execution are one run. 24672.4 MB/s are 23529.4 MiB/s."""
    table = read(tmp_path, REFRAME_3, load_map("reframe-3-perflog").with_zone("UTC", None))
    assert [line.line for line in table.refused] == [5, 6]
    assert [len(run.output.results) for run in table.runs] == [2, 1, 1]
    assert {(run.partition, run.stack) for run in table.runs} == {("compute", "gnu")}
    first = table.runs[0]
    assert (first.output.tool, first.output.version, first.started_at) == (
        "ior",
        "3.10.0",
        _epoch(2022, 1, 19, 17, 17, 15),
    )
    samples = {result.operation: (dict(result.case), *result.samples) for result in first.output.results}
    assert samples == {
        "write": ({"api": "POSIX"}, pytest.approx(24672.4e6 / 2**20)),
        "read": ({"api": "POSIX"}, pytest.approx(16834.0e6 / 2**20)),
    }
    assert [run.output.tool for run in table.runs[1:]] == ["ior_POSIX", "ior_POSIX"]
    assert table.runs[2].output.results[0].case["ranks"] == 8


def test_perflog_of_reframe_3_names_its_map(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, REFRAME_3, load_map("reframe-perflog"))
    assert "--map reframe-3-perflog" in str(caught.value.hint)


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


# As IO500's program of 2020 writes: no section [run], and no number of processes until 2022.
IO500_2020 = """
version         = io500-isc20
config-hash     = 8299AA79
; START 2020-06-02 10:30:58

[ior-easy-write]
t_start         = 2020-06-02 10:30:58
exe             = ./ior -w
throughput-stonewall = 3763.75
score           = 11.713997
t_delta         = 770.6032
t_end           = 2020-06-02 10:43:48

[SCORE]
MD              = 79.834344
"""


@pytest.mark.parametrize("heading", ["", "[run]\n"])
def test_result_of_io500_without_the_number_of_processes(tmp_path: Path, heading: str) -> None:
    """Then it is no parameter of the case; the configuration is one, with the section [run] (2021) or without."""
    table = read(tmp_path, heading + IO500_2020, load_map("io500").with_zone("UTC", None))
    assert table.refused == []
    (run,) = table.runs
    (result,) = run.output.results
    assert result.samples == (pytest.approx(11.713997 * 1024),)
    assert dict(result.case) == {"test": "ior-easy", "configuration": "8299AA79"}
    assert (run.output.version, run.wall_s) == ("io500-isc20", 770)


def test_lines_before_the_first_section_are_ignored_if_they_are_no_keys(tmp_path: Path) -> None:
    """A launcher may have written there."""
    table = read(tmp_path, "srun: job 5 queued\n" + IO500_2020, load_map("io500").with_zone("UTC", None))
    assert (table.refused, len(table.runs)) == ([], 1)


# As IO500's shell version prints (utilities/io500_fixed.sh): MiB/s / 1024, called GB/s until 2019.
IO500_SHELL = """[RESULT] BW   phase 1            ior_easy_write              216.140 GB/s : time 304.45 seconds
[RESULT] IOPS phase 1         mdtest_easy_write              219.880 kiops : time 310.10 seconds
[RESULT-invalid] BW   phase 2            ior_hard_write                2.100 GiB/s : time  41.05 seconds
[RESULT] IOPS phase 3                      find              854.990 kiops : time  15.21 seconds
[RESULT] IOPS phase 8        mdtest_hard_delete               27.163 kiops : time 160.81 seconds
[SCORE] Bandwidth 21.3 GB/s : IOPS 94.8 kiops : TOTAL 44.9
"""


def test_summary_of_the_shell_version_of_io500(tmp_path: Path) -> None:
    """Its phases continue the series of the same phases of later versions; an invalid phase is failed."""
    moment = datetime(2019, 6, 1, tzinfo=UTC)
    path = tmp_path / "result_summary.txt"
    path.write_text(IO500_SHELL)
    table = read_table(path, "io500-summary", moment=moment)
    assert table.refused == []
    found = {(dict(point[4])["test"], dict(point[4])["operation"], *point[6]) for point in points(table)}
    assert found == {
        ("ior-easy", "write", 216.140 * 1024),
        ("mdtest-easy", "create", 219880.0),
        ("find", "find", 854990.0),
        ("mdtest-hard", "remove", 27163.0),
    }
    assert [run.output.status for run in table.runs] == ["ok", "ok", "failed", "ok", "ok"]


def test_log_of_the_shell_version_of_io500_repeats_its_results_at_the_end(tmp_path: Path) -> None:
    """The time is in its name."""
    path = tmp_path / "io-500-summary.2019.06.01-02.30.00.txt"
    path.write_text(f"[Starting] ior_easy_write\n[Results] in /x/ior_easy_write.txt.\n{IO500_SHELL}{IO500_SHELL}")
    table = read_table(path, load_map("io500-summary").with_zone("UTC", None))
    assert (table.refused, len(table.runs), table.repeated) == ([], 5, 5)
    assert {run.started_at for run in table.runs} == {_epoch(2019, 6, 1, 2, 30)}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("216.140 GB/s", "216.140 TB/s"),
        ("216.140 GB/s", "216 GB/s"),
        ("ior_easy_write", "ior_mean_write"),
        ("304.45 seconds", "304.45 sec"),
        ("[RESULT] BW   phase 1", "[RESULT] BW phase"),
    ],
)
def test_damaged_line_of_an_io500_summary_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    path = tmp_path / "result_summary.txt"
    path.write_text(IO500_SHELL.replace(right, wrong, 1))
    table = read_table(path, "io500-summary", moment=datetime(2019, 6, 1, tzinfo=UTC))
    assert [line.line for line in table.refused] == [1]
    assert len(table.runs) == 4


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
