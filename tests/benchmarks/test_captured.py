"""Every captured output is compared with its `truth.json` (`README.md` in captured.tar.xz)."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output, parse_output_file
from iowatch.core import Output
from tests.benchmarks.corpus import Captured, captured
from tests.datasets import unpacked

# The operating system wrote into its cache and never reported that the disk was full: no trace in stdout,
# stderr or exit code (captured/README.md, "benchio (original)").
UNDETECTABLE_FAILURES = {
    "benchio-davidhenty/0c682b6/fail_diskfull_ext4_serial",
    "benchio-davidhenty/0c682b6/fail_diskfull_proc",
}
# mdtest 3.3 prints statistics over iterations and ranks: they have no value of an iteration.
WITHOUT_ITERATIONS = {
    "mdtest/3.3.0/dirs_only_D_n100",
    "mdtest/3.3.0/files_dirs_n100_i3_u",
    "mdtest/3.3.0/many_iter_i10",
    "mdtest/3.3.0/print_time_P",
    "mdtest/3.3.0/tmpfs",
}
# Its truth lists no rates, because the script that wrote it did not support this spacing ("numbers unchanged").
WITHOUT_RATES = "derived_cray_ftn_style"


def _rates(run: Captured) -> list[tuple[str, float]]:
    """The bandwidths in MiB/s that the truth lists, or mdtest's maxima and minima over iterations."""
    if run.tool == "mdtest":
        rates: list[tuple[str, float]] = []
        for table in run.truth["summary"]:
            if table["kind"] != "rate":
                continue
            for row in table["rows"].values():
                # One iteration ends with its slowest rank.
                values = {row["min"]} if table["iterations"] == 1 else {row["max"], row["min"]}
                rates += [("", value) for value in values if row["max"] > 0]
        return rates
    if run.tool == "ior":
        return [(row["op"], row["bw_mib_s"]) for row in run.truth.get("per_repetition") or []]
    results = run.truth["results"]
    return [("write", row["bw_mib_s"]) for r in results for row in r.get("per_repetition", [r])]


def _found(output: Output, metrics: tuple[str, ...], with_operation: bool = True) -> list[tuple[str, float]]:
    wanted = [r for r in output.results if r.metric in metrics]
    return [(r.operation if with_operation else "", s) for r in wanted for s in r.samples]


def _same(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> bool:
    pairs = zip(sorted(found), sorted(wanted), strict=False)
    return len(found) == len(wanted) and all(f[0] == w[0] and math.isclose(f[1], w[1], rel_tol=1e-12) for f, w in pairs)


def _runs() -> list[Captured]:
    return [run for run in captured() if run.tool != "h5bench"]


def _parse(run: Captured) -> Output:
    stdout, stderr, ranks = run.directory / "stdout", run.directory / "stderr", run.truth.get("ranks")
    return parse_output_file(run.tool, stdout, stderr=stderr, rc=run.rc, ranks=ranks, fresh=True)


def test_status_matches_truth_file() -> None:
    runs = _runs()
    assert len(runs) >= 240
    wrong = {}
    for run in runs:
        output = _parse(run)
        if run.name in WITHOUT_ITERATIONS:
            assert output.status == "incomplete"
            assert "over iterations and ranks" in str(output.reason)
        elif (output.status == "ok") != (run.truth["expect"] == "ok"):
            wrong[run.name] = (output.status, output.reason)
        assert (output.reason is None) == (output.status == "ok"), run.name
    assert set(wrong) == UNDETECTABLE_FAILURES, wrong


def test_samples_of_valid_outputs_match_truth_file() -> None:
    checked = 0
    for run in _runs():
        unreadable = run.truth.get("json_valid") is False or run.name.endswith(WITHOUT_RATES)
        if run.truth["expect"] != "ok" or unreadable or run.name in WITHOUT_ITERATIONS:
            continue
        metrics = ("rate",) if run.tool == "mdtest" else ("bandwidth",)
        found = _found(_parse(run), metrics, with_operation=run.tool != "mdtest")
        assert _same(found, _rates(run)), run.name
        checked += len(found)
    assert checked > 850


def test_failed_outputs_yield_only_printed_numbers() -> None:
    for run in _runs():
        if run.truth["expect"] == "ok" or run.truth.get("json_valid") is False or run.tool == "mdtest":
            continue
        output = _parse(run)
        given, printed = Counter(_found(output, ("bandwidth",))), Counter(_rates(run))
        assert all(any(math.isclose(value, p[1], rel_tol=1e-12) for p in printed) for _, value in given), run.name


@pytest.mark.parametrize("metric", ["rate", "time"])
def test_ior_rates_and_times_match_truth_file(metric: str) -> None:
    key = {"rate": "iops", "time": "total_s"}[metric]
    compared = 0
    for run in _runs():
        if run.tool != "ior" or run.truth["expect"] != "ok" or run.truth.get("format") != "text":
            continue
        found = _found(_parse(run), (metric,))
        wanted = [(row["op"], row[key]) for row in run.truth.get("per_repetition") or []]
        assert _same(found, wanted), run.name
        compared += len(found)
    assert compared > 300


def test_ior_cases_match_truth_file() -> None:
    names = ("transfer_bytes", "block_bytes", "segments", "ranks", "collective")
    for run in _runs():
        if run.tool != "ior" or run.truth["expect"] != "ok" or run.truth.get("format") != "text":
            continue
        for result in _parse(run).results[:1] if "script" not in run.name else ():
            wanted: dict[str, Any] = {name: run.truth[name] for name in names}
            assert {name: result.case[name] for name in names} == wanted, run.name
            assert result.case["total_bytes"] == run.truth["aggregate_bytes"], run.name
            assert (result.case["file"] == "per-process") == run.truth["file_per_process"], run.name


def test_ior_text_and_json_of_one_run_give_the_same_case() -> None:
    root = unpacked("captured") / "ior" / "4.0.0"
    text = parse_output_file("ior", root / "posix_shared_indep_np2" / "stdout")
    document = parse_output_file("ior", root / "posix_json" / "stdout")
    assert [r.full_case("ior") for r in text.results if r.metric == "bandwidth"] == [
        r.full_case("ior") for r in document.results if r.metric == "bandwidth"
    ]


def test_h5bench_outputs_match_truth_file() -> None:
    rates = ("raw_rate_mib_s", "observed_rate_mib_s")
    per_rank = tuple(f"{op}_rate_{end}_mib_s_per_rank" for op in ("write", "read") for end in ("min", "max"))
    checked = 0
    for run in captured():
        for part in run.truth["benchmarks"] if run.tool == "h5bench" else []:
            directory = run.directory / part["dir"]
            stderr = directory / "stderr"
            output = parse_output_file(
                "h5bench",
                directory / "stdout",
                stderr=stderr if stderr.exists() else None,
                ranks=part.get("ranks"),
                fresh=True,
            )
            name = f"{run.name}/{part['dir']}"
            assert (output.status == "ok") == (part["expect"] == "ok"), (name, output.reason)
            if part["expect"] == "ok":
                metrics = ("raw_bandwidth", "observed_bandwidth", "rank_bandwidth")
                wanted = [part[key] for key in (per_rank if part["format"] == "hdf5_iotest" else rates)]
                assert [value for _, value in _found(output, metrics)] == wanted, name
                checked += 1
    assert checked >= 55


# Failures that the programs' CSV does not show: the configuration (a missing dimension), the HDF5 errors on stderr, and
# a value that was damaged in stdout only.
NOT_IN_THE_CSV = ("fail_missing_dim", "fail_timesteps_larger_read", "derived_nan")


def test_h5bench_csv_matches_truth_file() -> None:
    for run in captured():
        for part in run.truth["benchmarks"] if run.tool == "h5bench" else []:
            path = run.directory / part["dir"] / "output.csv"
            if not path.exists() or run.directory.name in NOT_IN_THE_CSV:
                continue
            output = parse_output_file("h5bench", path, ranks=part.get("ranks"), fresh=True)
            assert (output.status == "ok") == (part["expect"] == "ok"), (run.name, output.reason)
            if part["expect"] == "ok":
                found = [value for _, value in _found(output, ("raw_bandwidth", "observed_bandwidth"))]
                assert found == [part["raw_rate_mib_s"], part["observed_rate_mib_s"]], run.name


# The driver wrote SUCCESS for these: the output was damaged later, or the sizes were not the requested ones.
DRIVER_REPORTED_SUCCESS = {"derived_empty", "derived_nan", "fail_missing_dim"}


def test_h5bench_driver_log_status_matches_truth_file() -> None:
    wrong = set()
    for run in captured():
        if run.tool == "h5bench":
            log = run.directory / "conf-h5bench.log"
            output = parse_output_file("h5bench", log, stderr=run.directory / "stderr", rc=run.rc)
            if (output.status == "ok") != (run.truth["expect"] == "ok"):
                wrong.add(run.directory.name)
    assert wrong == DRIVER_REPORTED_SUCCESS


def test_archer_outputs_of_other_compilers_are_parsed(outside_data: Path) -> None:
    paths = sorted((outside_data / "data" / "archer-benchio").rglob("*.dat"))
    statuses = Counter(parse_output_file("benchio", path).status for path in paths)
    # 67 complete; four truncated by the job's time limit, one refused by the launcher
    assert statuses == {"ok": 67, "incomplete": 5}


@pytest.mark.parametrize(
    "name",
    [
        "benchio-davidhenty/0c682b6/mpiio_local128_np2",
        "benchio-davidhenty/0c682b6/all_global128_np4",
        "benchio-EPCCed/90023d1-2018/fpp_64_np2",
    ],
)
def test_exchanged_columns_of_the_original_benchio_are_refused(name: str) -> None:
    """Time x rate stays the same: only the blanks of Fortran's fields show which number was printed where."""
    text = (unpacked("captured") / name / "stdout").read_bytes()
    exchanged = re.sub(rb"(time =\s+)(\S+)(\s*, rate =\s+)(\S+)", rb"\1\4\3\2", text, count=1)
    assert exchanged != text
    assert parse_output("benchio", text, RunContext()).status == "ok"
    assert parse_output("benchio", exchanged, RunContext()).status != "ok"
